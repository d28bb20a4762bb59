"""Real models: this book's GPT-2 and Marian against `transformers`, on small random models with every switch; nothing is downloaded.

Numbers are compared in float64 to 1e-10 and in float32 to 1e-4, written text token for token, converted weights bit for bit.
"""

import contextlib
import hashlib
import json
import re
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch
from commands import run_code
from safetensors.torch import load_file, save_file
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    logging,
)

from tlm_book import pretrained
from tlm_book.encoder_decoder import EncoderDecoder
from tlm_book.feed_forward import FeedForward
from tlm_book.inference import generate
from tlm_book.pretrained import (
    load_gpt2,
    load_marian,
    marian_preset,
    save_gpt2,
    save_marian,
)
from tlm_book.pretrained.files import shared_out
from tlm_book.pretrained.gpt2 import gpt2_name, gpt2_pairs
from tlm_book.pretrained.marian import marian_pairs
from tlm_book.pretrained.names import turned
from tlm_book.tokenization import GPT2_PATTERN, Tokenizer
from tlm_book.training import save
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters
from tlm_book.translation import TranslationReader

logging.set_verbosity_error()
logging.disable_progress_bar()

GPT2 = {"vocab_size": 13, "n_positions": 12, "n_embd": 8, "n_layer": 2, "n_head": 2, "bos_token_id": None, "eos_token_id": None}
MARIAN = {
    "vocab_size": 13, "max_position_embeddings": 12, "d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10, "activation_function": "swish", "scale_embedding": True,
    "pad_token_id": 12, "decoder_start_token_id": 12, "eos_token_id": 0, "forced_eos_token_id": None,
}  # fmt: skip
GPT2_CASES = [
    {}, {"n_layer": 1, "n_head": 1}, {"n_layer": 3, "n_head": 4}, {"n_head": 8}, {"n_embd": 12, "n_head": 3}, {"n_inner": 5},
    {"activation_function": "gelu"}, {"activation_function": "relu"}, {"activation_function": "silu"}, {"activation_function": "gelu_pytorch_tanh"},
    {"layer_norm_epsilon": 0.1}, {"tie_word_embeddings": False}, {"scale_attn_weights": False}, {"vocab_size": 3, "n_positions": 30},
    {"tie_word_embeddings": False, "scale_attn_weights": False, "n_inner": 40, "layer_norm_epsilon": 1e-3, "activation_function": "gelu", "n_layer": 1},
]  # fmt: skip
MARIAN_CASES = [
    {}, {"encoder_layers": 1, "decoder_layers": 1}, {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    {"activation_function": "relu"}, {"activation_function": "gelu"}, {"activation_function": "gelu_new"}, {"scale_embedding": False},
    {"d_model": 12, "encoder_attention_heads": 1, "decoder_attention_heads": 1, "encoder_ffn_dim": 3, "decoder_ffn_dim": 3},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13}, {"max_position_embeddings": 40},
]  # fmt: skip


def label(case: dict) -> str:
    return " ".join(f"{name}={value}" for name, value in case.items()) or "plain"


def stirred(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """In evaluation mode, every weight (also biases and gains) moved at random; the tables of sines are left alone."""
    chance = torch.Generator().manual_seed(1)
    model = model.to(dtype).eval()
    with torch.no_grad():
        for name, w in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name and w.is_floating_point():
                w.add_(0.2 * torch.randn(w.shape, generator=chance, dtype=dtype))
    return model


def their_gpt2(case: dict, dtype: torch.dtype = torch.float64) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return stirred(GPT2LMHeadModel(GPT2Config(**GPT2 | case, attn_implementation="eager")), dtype)


def their_marian(case: dict, dtype: torch.dtype = torch.float64) -> MarianMTModel:
    torch.manual_seed(0)
    return stirred(MarianMTModel(MarianConfig(**MARIAN | case, attn_implementation="eager")), dtype)


def near(a: torch.Tensor, b: torch.Tensor, bound: float) -> bool:
    assert a.shape == b.shape and a.dtype == b.dtype
    return bool((a - b).abs().max() < bound * (1 + b.abs().max()))


def bits(tensors: dict) -> dict:
    return {name: (w.dtype, tuple(w.shape), w.detach().contiguous().numpy().tobytes()) for name, w in tensors.items()}


BOUNDS = pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), pytest.param(torch.float32, 1e-4, marks=pytest.mark.long)], ids=["float64", "float32"])


# GPT-2


@BOUNDS
@pytest.mark.parametrize("case", GPT2_CASES, ids=label)
def test_gpt2_computes_what_transformers_computes(case, dtype, bound, tmp_path):
    theirs = their_gpt2(case, dtype)
    theirs.save_pretrained(tmp_path / "m")
    ours, tokenizer = load_gpt2(tmp_path / "m")
    V, M = ours.config.vocab_size, ours.config.max_len
    assert tokenizer is None and count_parameters(ours.config) == sum(p.numel() for p in theirs.parameters())
    for n in (1, 7, M):
        tokens = torch.randint(V, (2, n), generator=torch.Generator().manual_seed(n))
        told = theirs(tokens, output_hidden_states=True, output_attentions=True)
        rows = ours.residual_stream(tokens)
        rows[-1] = ours.norm(rows[-1])  # theirs are normalized at the end
        assert near(ours(tokens), told.logits, bound)
        assert len(told.hidden_states) == len(rows) and all(near(a, b, bound) for a, b in zip(rows, told.hidden_states))
        assert near(ours.attention_weights(tokens), torch.stack(told.attentions), bound)


@pytest.mark.parametrize("case", GPT2_CASES, ids=label)
def test_gpt2_has_the_same_loss_and_gradients(case, tmp_path):
    theirs = their_gpt2(case)
    theirs.save_pretrained(tmp_path / "m")
    ours, _ = load_gpt2(tmp_path / "m")
    tokens = torch.randint(ours.config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0))
    loss = torch.nn.functional.cross_entropy(ours(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert near(loss.float(), theirs(tokens, labels=tokens).loss, 1e-6)  # which it computes in float32
    told = torch.nn.functional.cross_entropy(theirs(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert near(loss, told, 1e-10)
    loss.backward()
    told.backward()
    slopes, parameters = {name: p.grad for name, p in theirs.named_parameters()}, dict(ours.named_parameters())
    named = gpt2_pairs(ours.config)
    assert len(named) == len(slopes) == len(parameters)
    for name, our_name, layout, *_ in named:
        assert near(parameters[our_name].grad, turned(slopes[gpt2_name(name)], layout), 1e-10), name


@pytest.mark.parametrize("case", GPT2_CASES, ids=label)
def test_gpt2_writes_the_same_tokens(case, tmp_path):
    """Greedy, ours with its cache, theirs with and without theirs."""
    theirs = their_gpt2(case)
    theirs.save_pretrained(tmp_path / "m")
    ours, _ = load_gpt2(tmp_path / "m")
    prompt = torch.randint(ours.config.vocab_size, (3, 2), generator=torch.Generator().manual_seed(3))
    new = ours.config.max_len - 2
    written = generate(ours, prompt, new, temperature=0)
    for cache in (True, False):
        told = theirs.generate(prompt, max_new_tokens=new, do_sample=False, use_cache=cache, pad_token_id=0, attention_mask=torch.ones_like(prompt))
        assert torch.equal(written, told)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", GPT2_CASES, ids=label)
def test_gpt2_is_converted_without_loss(case, dtype, tmp_path):
    theirs = their_gpt2(case).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, _ = load_gpt2(tmp_path / "theirs")
    save_gpt2(ours, tmp_path / "ours")
    first, second = (load_file(tmp_path / who / "model.safetensors") for who in ("theirs", "ours"))
    view = torch.int16 if dtype.itemsize == 2 else dtype
    assert bits({k: w.view(view) for k, w in first.items()}) == bits({k: w.view(view) for k, w in second.items()})
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "ours", dtype=dtype, attn_implementation="eager").eval()
    assert all(torch.equal(a, b) for a, b in zip(theirs.state_dict().values(), again.state_dict().values(), strict=True))
    if again.config.activation_function == theirs.config.activation_function:  # one of two names for one function, which round differently
        tokens = torch.arange(3)[None]
        assert torch.equal(theirs(tokens).logits, again(tokens).logits)
    assert load_gpt2(tmp_path / "ours")[0].config == ours.config


def test_gpt2_of_older_files(tmp_path):
    """Names without "transformer.", masks among the weights, the tied matrix twice."""
    theirs = their_gpt2({})
    theirs.save_pretrained(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    old = {name.removeprefix("transformer."): w for name, w in load_file(file).items()}
    old |= {f"h.{i}.attn.bias": torch.ones(1, 1, 12, 12).tril() for i in range(2)} | {"h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_file(old | {"lm_head.weight": old["wte.weight"].clone()}, file)
    tokens = torch.arange(12)[None]
    ours, _ = load_gpt2(tmp_path / "m")
    assert near(ours(tokens), theirs(tokens).logits, 1e-10) and ours.unembedding.weight is ours.embedding.table.weight
    del old["wte.weight"]
    save_file(old | {"lm_head.weight": theirs.lm_head.weight.detach()}, file)
    assert near(load_gpt2(tmp_path / "m")[0](tokens), theirs(tokens).logits, 1e-10)
    save_file(old | {"lm_head.weight": theirs.lm_head.weight.detach(), "wte.weight": theirs.lm_head.weight.detach() + 1}, file)
    with pytest.raises(ValueError, match="got lm_head.weight other than wte.weight, want"):
        load_gpt2(tmp_path / "m")


def test_gpt2_sizes_are_the_published_ones():
    for n_embd, n_layer, n_head, count in [(768, 12, 12, 124439808), (1024, 24, 16, 354823168), (1280, 36, 20, 774030080), (1600, 48, 25, 1557611200)]:
        fields = GPT2Config(n_embd=n_embd, n_layer=n_layer, n_head=n_head).to_dict()
        config = pretrained.gpt2_config(fields)
        with torch.device("meta"):
            assert sum(p.numel() for p in TransformerLM(config).parameters()) == count_parameters(config) == count


def test_a_whole_folder_works_in_transformers(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = Tokenizer([(104, 105), (32, 256)], pattern=GPT2_PATTERN)
    model = TransformerLM(Config.gpt2(len(tokenizer), d_model=8, d_ff=12, n_layers=1, n_heads=2, max_len=20))
    save_gpt2(model, tmp_path / "m", tokenizer)
    reader, theirs = AutoTokenizer.from_pretrained(tmp_path / "m"), AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    for text in ("hi hi, it's  3 o'clock\n", "été 🍵"):
        assert reader(text)["input_ids"] == tokenizer.encode(text) and reader.decode(tokenizer.encode(text)) == text
    assert theirs.config.eos_token_id == reader.eos_token_id == tokenizer.start
    tokens = torch.tensor([tokenizer.encode("hi hi")])
    assert near(model.eval()(tokens), theirs(tokens).logits, 1e-4)
    again, read = load_gpt2(tmp_path / "m")
    read.check_same(tokenizer)
    assert again.config == model.config


@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_transformers_adds_no_token_to_a_tokenizer_with_markers_of_its_own(kind, tmp_path):
    """It added <|endoftext|> as number V, which the model does not have, and began, ended or filled up texts with it."""
    from transformers import AutoTokenizer

    tokenizer = Tokenizer([(104, 105)], ("<eos>", "<pad>"), GPT2_PATTERN)
    sizes = {"d_model": 8, "d_ff": 12, "n_layers": 1, "n_heads": 2, "max_len": 20} | ({"n_kv_heads": 1} if kind == "qwen2" else {})
    pretrained.save_model(TransformerLM(getattr(Config, kind)(len(tokenizer), **sizes)), tmp_path / "m", tokenizer)
    reader = AutoTokenizer.from_pretrained(tmp_path / "m")
    assert len(reader) == len(tokenizer) and reader.bos_token_id == reader.eos_token_id == tokenizer.start
    assert reader("hi<eos><pad>")["input_ids"] == tokenizer.encode("hi<eos><pad>", allowed_special={"<eos>", "<pad>"})
    pretrained.load_model(tmp_path / "m")[1].check_same(tokenizer)


def other_activation(model):
    model.blocks[1].feed_forward.activation = "relu"


def other_feed_forward(model):
    """With weights of the same names and shapes."""
    model.blocks[1].feed_forward.__class__ = type("Own", (FeedForward,), {"forward": lambda self, x: self.down(self.up(x).sin())})


def other_norm(model):
    model.norm = torch.nn.LayerNorm(8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_activation, "blocks.1.feed_forward.activation = 'relu', want 'gelu_tanh'"),
        (other_feed_forward, r"blocks.1.feed_forward \(Own\), want the layers that its config makes"),
        (other_norm, r"norm \(LayerNorm\), want the layers that its config makes"),
    ],
)
def test_a_model_of_which_another_would_be_read_is_not_written(change, message, tmp_path):
    """The files had the settings of the model that it once was, and the weights of the new one."""
    tokenizer = Tokenizer([], pattern=GPT2_PATTERN)
    model = TransformerLM(Config.gpt2(257, d_model=8, d_ff=12, n_layers=2, n_heads=2, max_len=20))
    model.dropout.p = 0.5  # this one is for training alone
    for write in (save, pretrained.save_model):
        write(model, tmp_path / write.__name__, tokenizer)
    change(model)
    for write in (save, pretrained.save_model):
        with pytest.raises(ValueError, match=f"model: got {message}"):
            write(model, tmp_path / "m", tokenizer)
    assert not (tmp_path / "m").exists()


def test_the_command_line_reads_a_gpt2(tmp_path, capsys):
    from tlm_book.__main__ import main
    from tlm_book.inference import complete

    tokenizer = Tokenizer([], pattern=GPT2_PATTERN)
    model = TransformerLM(Config.gpt2(257, d_model=8, d_ff=12, n_layers=1, n_heads=2, max_len=20)).eval()
    save_gpt2(model, tmp_path / "m", tokenizer)
    assert main(["generate", "--model", str(tmp_path / "m"), "--prompt", "hi", "--tokens", "5", "--seed", "3", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip("\n") == complete(model, tokenizer, "hi", 5, seed=3).strip("\n")


# Marian


@BOUNDS
@pytest.mark.parametrize("case", MARIAN_CASES, ids=label)
def test_marian_computes_what_transformers_computes(case, dtype, bound, tmp_path):
    theirs = their_marian(case, dtype)
    theirs.save_pretrained(tmp_path / "m")
    ours, tokenizer = load_marian(tmp_path / "m")
    assert tokenizer is None
    for n, m in ((1, 1), (7, 5), (12, 12)):
        chance = torch.Generator().manual_seed(n)
        source, target = torch.randint(13, (2, n), generator=chance), torch.randint(13, (2, m), generator=chance)
        key_mask = torch.arange(n) < torch.tensor([[n], [max(1, n - 3)]])
        told = theirs(input_ids=source, attention_mask=key_mask.long(), decoder_input_ids=target, output_hidden_states=True, output_attentions=True)
        assert near(ours(source, target, key_mask), told.logits, bound)
        x = ours.position(ours.source_embedding(source))
        for block, rows in zip([*ours.encoder, None], told.encoder_hidden_states, strict=True):
            assert near(x[key_mask], rows[key_mask], bound)
            x = block(x, key_mask) if block else x
        y = ours.position(ours.embedding(target))
        for block, rows in zip([*ours.decoder, None], told.decoder_hidden_states, strict=True):
            assert near(y, rows, bound)
            y = block(y, told.encoder_last_hidden_state, key_mask) if block else y
        assert near(ours.cross_attention_weights(source, target, key_mask), torch.stack(told.cross_attentions), bound)
        x, y = ours.position(ours.source_embedding(source)), ours.position(ours.embedding(target))
        for block, weights in zip(ours.encoder, told.encoder_attentions, strict=True):
            assert near(block.self_attention.attention_weights(x, x, key_mask), weights, bound)
            x = block(x, key_mask)
        for block, weights in zip(ours.decoder, told.decoder_attentions, strict=True):
            assert near(block.self_attention.attention_weights(y, y, causal=True), weights, bound)
            y = block(y, x, key_mask)


@pytest.mark.parametrize("case", MARIAN_CASES, ids=label)
def test_marian_has_the_same_loss_and_gradients(case, tmp_path):
    theirs = their_marian(case)
    theirs.save_pretrained(tmp_path / "m")
    ours, _ = load_marian(tmp_path / "m")
    chance = torch.Generator().manual_seed(5)
    source, target = torch.randint(12, (2, 6), generator=chance), torch.randint(12, (2, 5), generator=chance)
    start = torch.full((2, 1), 12)
    scores = ours(source, torch.cat([start, target[:, :-1]], 1))
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())
    told = theirs(input_ids=source, labels=target).loss
    assert near(loss, told, 1e-10)
    loss.backward()
    told.backward()
    slopes, parameters = {name: p.grad for name, p in theirs.named_parameters()}, dict(ours.named_parameters())
    compared = 0
    for name, our_name, layout, *_ in marian_pairs(ours.config):
        if name == "final_logits_bias":
            continue  # theirs is no parameter
        row = theirs.config.pad_token_id if "embed_tokens" in name or "shared" in name else None
        mine, wanted = parameters[our_name].grad.clone(), turned(slopes[name], layout)
        if row is not None:  # torch passes over the row of padding where it is looked up
            mine[row] = wanted[row] = 0
        assert near(mine, wanted, 1e-10), name
        compared += 1
    assert compared == len(parameters) - 1


def writes(model: EncoderDecoder, source: torch.Tensor, key_mask: torch.Tensor, steps: int) -> torch.Tensor:
    """Greedy with the cache; it does not stop at an end token."""
    state, tokens = model.begin(source, key_mask), [torch.full((len(source),), 12)]
    for _ in range(steps):
        scores, state = model.advance(tokens[-1], state)
        scores[:, 12] = -torch.inf
        tokens.append(scores.argmax(-1))
    return torch.stack(tokens, 1)


@pytest.mark.parametrize("case", MARIAN_CASES, ids=label)
@torch.no_grad()
def test_marian_writes_the_same_tokens(case, tmp_path):
    theirs = their_marian(case)
    theirs.save_pretrained(tmp_path / "m")
    ours, _ = load_marian(tmp_path / "m")
    source = torch.randint(12, (3, 6), generator=torch.Generator().manual_seed(3))
    key_mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    written = writes(ours, source, key_mask, 9)
    for cache in (True, False):
        told = theirs.generate(source, attention_mask=key_mask.long(), max_new_tokens=9, min_new_tokens=9, do_sample=False, num_beams=1,
                               use_cache=cache, bad_words_ids=[[12]], eos_token_id=[99999])  # fmt: skip
        assert torch.equal(written, told)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", MARIAN_CASES, ids=label)
def test_marian_is_converted_without_loss(case, dtype, tmp_path):
    theirs = their_marian(case).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, _ = load_marian(tmp_path / "theirs")
    save_marian(ours, tmp_path / "ours")
    again = MarianMTModel.from_pretrained(tmp_path / "ours", dtype=dtype).eval()
    source, target = torch.arange(5)[None], torch.arange(3)[None]
    first, second = theirs.state_dict(), again.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first if "embed_positions" not in name)
    assert near(theirs(source, decoder_input_ids=target).logits, again(source, decoder_input_ids=target).logits, 1e-6 if dtype != torch.bfloat16 else 0.1)
    last, _ = load_marian(tmp_path / "ours")
    assert last.config == ours.config and bits({k: w.double() for k, w in last.state_dict().items()}) == bits({k: w.double() for k, w in ours.state_dict().items()})


@pytest.mark.parametrize("source_vocab_size", [None, 7])
@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_transformers_computes_what_a_model_saved_as_marian_computes(tied, source_vocab_size, tmp_path):
    """Also where the two halves share their table and the last layer has a matrix of its own."""
    sizes = {"d_model": 8, "d_ff": 5, "n_layers": 1, "n_heads": 2, "max_len": 6, "source_vocab_size": source_vocab_size}
    ours = EncoderDecoder(marian_preset(9, tied=tied, **sizes)).double().eval()
    for w in ours.parameters():
        w.add_(0.2 * torch.randn(w.shape, generator=torch.Generator().manual_seed(w.numel()), dtype=w.dtype))
    save_marian(ours, tmp_path / "m")
    theirs = MarianMTModel.from_pretrained(tmp_path / "m", dtype=torch.float64).eval()
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    told = theirs(source, attention_mask=torch.ones_like(source), decoder_input_ids=target).logits
    assert near(ours(source, target), told, 1e-6)
    assert near(load_marian(tmp_path / "m")[0](source, target), ours(source, target), 1e-6)


def test_the_tables_of_positions_are_those_of_transformers():
    config = MarianConfig(**MARIAN | {"max_position_embeddings": 512, "d_model": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 8})
    theirs = MarianMTModel(config).model.encoder.embed_positions.weight
    ours = EncoderDecoder(marian_preset(13, d_model=512, d_ff=4, n_layers=1, n_heads=8, max_len=512)).position.table
    assert (ours - theirs).abs().max() < 1e-6 and not torch.equal(ours, ours.view(512, 256, 2).mT.flatten(1))


def tiny_spm(folder: Path, name: str, lines: list[str], size: int) -> list[str]:
    """A small sentencepiece model; its pieces."""
    spm = pytest.importorskip("sentencepiece")
    folder.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, vocab_size=size, hard_vocab_limit=False, minloglevel=2)
    reader = spm.SentencePieceProcessor(model_file=str(folder / name))
    return [reader.id_to_piece(i) for i in range(reader.get_piece_size())]


FRENCH = ["je suis étudiant", "tu es fatigué", "nous sommes petits", "le chat est noir", "la maison est grande"] * 20
ENGLISH = ["i am a student", "you are tired", "we are small", "the cat is black", "the house is big"] * 20


def marian_folder(folder: Path) -> Path:
    pieces = {*tiny_spm(folder, "source.spm", FRENCH, 60), *tiny_spm(folder, "target.spm", ENGLISH, 60)} - {"<s>", "</s>", "<unk>"}
    vocab = {piece: i for i, piece in enumerate(["</s>", "<unk>", *sorted(pieces), ">>eng<<", "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    V = len(vocab)
    their_marian({"vocab_size": V, "pad_token_id": V - 1, "decoder_start_token_id": V - 1, "max_position_embeddings": 40}).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


def test_marian_reads_and_writes_text(tmp_path):
    """Texts to tokens and back, and whole translations (of a random model: nonsense, but the same nonsense)."""
    from transformers import MarianTokenizer

    folder = marian_folder(tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MarianTokenizer.from_pretrained(folder)
    model, tokenizer = load_marian(folder)
    other = MarianMTModel.from_pretrained(folder, dtype=torch.float64).eval()
    sentences = ["je suis étudiant", "le chat est grand", ">>eng<< tu es noir", "x 🍵", ""]
    for sentence in sentences:
        assert tokenizer.encode(sentence) == theirs(sentence)["input_ids"]
    batch = theirs(sentences, return_tensors="pt", padding=True)
    told = other.generate(**batch, do_sample=False, num_beams=1, max_new_tokens=12, bad_words_ids=[[tokenizer.padding]], forced_eos_token_id=None)
    got = pretrained.translate_marian(model, tokenizer, sentences, max_new=12)
    assert got == theirs.batch_decode(told, skip_special_tokens=True) and any(got)
    save_marian(model, tmp_path / "again", tokenizer)
    again, read = load_marian(tmp_path / "again")
    assert read.vocab == tokenizer.vocab and read[3:] == tokenizer[3:]
    assert pretrained.translate_marian(again, read, sentences, max_new=12) == got
    (tmp_path / "again" / "source.spm").write_bytes(b"no model")
    with pytest.raises(ValueError, match="source.spm: got no sentencepiece model, want"):
        load_marian(tmp_path / "again")
    (tmp_path / "again" / "source.spm").unlink()
    with pytest.raises(FileNotFoundError, match="without source.spm, want it beside vocab.json"):
        load_marian(tmp_path / "again")


class Letters:
    """Stands in for sentencepiece: a piece for each letter."""

    def encode(self, text: str, out_type: type) -> list[str]:
        return ["▁", *text]

    def serialized_model_proto(self) -> bytes:
        return b"letters"


LETTERS = pretrained.MarianTokenizer(Letters(), Letters(), {"</s>": 0, "<unk>": 1, "a": 2, "▁": 3, ">>b<<": 4, "<pad>": 5}, start=5, stop=0, padding=5)


def test_a_tokenizer_of_pieces():
    assert LETTERS.encode("aXa") == [3, 2, 1, 2, 0] and LETTERS.encode(">>b<<a") == [4, 3, 2, 0]
    assert LETTERS.decode([3, 2, 2, 3, 2, 0, 2]) == "aa a" and LETTERS.decode([]) == ""
    with pytest.raises(IndexError, match=re.escape("tokens: got [9], want tokens of the vocabulary")):
        LETTERS.decode([2, 9])


def test_translation_stops_and_never_writes_padding():
    torch.manual_seed(0)
    model = EncoderDecoder(marian_preset(6, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=7)).eval()
    with torch.no_grad():
        model.unembedding.bias[5] = 1e6  # the token that must not be written
        assert pretrained.translate_marian(model, LETTERS, ["a", "aaaa"]) == [pretrained.translate_marian(model, LETTERS, [s])[0] for s in ("a", "aaaa")]
        model.unembedding.bias[2] = 1e5
        assert pretrained.translate_marian(model, LETTERS, ["a", "aaaa"]) == ["a" * 7] * 2  # as many as it can read
        assert pretrained.translate_marian(model, LETTERS, ["a"], max_new=3) == ["aaa"]
        model.unembedding.bias[0] = 2e5
        assert pretrained.translate_marian(model, LETTERS, ["a"]) == [""]


def test_a_sentence_that_is_too_long_is_named():
    model = EncoderDecoder(marian_preset(6, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=7)).eval()
    with pytest.raises(ValueError, match="sentences: got one of 11 tokens, want at most max_len = 7"):
        pretrained.translate_marian(model, LETTERS, ["a", "a" * 9])


@pytest.mark.parametrize(("sizes", "changes", "words"), [({}, {"start": 6}, r"got \[6\], want tokens from 0 to 5"), ({}, {"padding": -1}, r"got \[-1\]"), ({"source_vocab_size": 7}, {}, "got one, for a model with two vocabularies")])
def test_a_tokenizer_that_could_not_be_read_again_is_not_saved(sizes, changes, words, tmp_path):
    model = EncoderDecoder(marian_preset(6, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=7, **sizes))
    with pytest.raises(ValueError, match=f"tokenizer: {words}"):
        save_marian(model, tmp_path / "m", LETTERS._replace(**changes))
    assert not (tmp_path / "m").exists()


def test_a_text_that_holds_the_number_of_the_padding_is_read_whole(monkeypatch):
    """What is hidden is what was filled up, and not what looks like it."""
    torch.manual_seed(0)
    model, masks = EncoderDecoder(marian_preset(6, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=7)).eval(), []
    tokenizer = LETTERS._replace(vocab={**LETTERS.vocab, "p": LETTERS.padding})
    assert tokenizer.encode("apa") == [3, 2, 5, 2, 0]

    def reader(model, source, key_mask):
        masks.append(key_mask.tolist())
        return TranslationReader(model, source, key_mask)

    monkeypatch.setattr(pretrained.marian_text, "TranslationReader", reader)
    pretrained.translate_marian(model, tokenizer, ["apa", "a"])
    assert masks == [[[True] * 5, [True] * 3 + [False] * 2]]


# Files that do not fit


def a_gpt2(folder: Path, **case: object) -> Path:
    their_gpt2(case).save_pretrained(folder)
    return folder


def edited(folder: Path, **fields: object) -> Path:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({name: value for name, value in (settings | fields).items() if value != "none"}))
    return folder


def with_weights(folder: Path, change) -> Path:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")
    return folder


def cut(folder: Path, keep: int) -> Path:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    return folder


W, WORDS = "transformer.h.0.mlp.c_fc.weight", "each tensor that config.json calls for"
BAD_GPT2 = {
    "missing tensor": (lambda f: with_weights(f, lambda w: w.pop(W)), "got no tensor h.0.mlp.c_fc.weight, want " + WORDS),
    "extra tensor": (lambda f: with_weights(f, lambda w: w.update(more=torch.ones(1))), "got the further tensor more, want " + WORDS),
    "one block too many": (lambda f: edited(f, n_layer=1), "got the further tensor h.1.attn.c_attn.bias"),
    "one block too few": (lambda f: edited(f, n_layer=3), "got no tensor h.2.attn.c_attn.bias"),
    "wrong shape": (lambda f: with_weights(f, lambda w: w.update({W: w[W].T.contiguous()})), r"got h.0.mlp.c_fc.weight of shape (32, 8), want shape (8, 32)"),
    "whole numbers": (lambda f: with_weights(f, lambda w: w.update({W: w[W].int()})), "of type torch.int32, want floating point numbers"),
    "two types": (lambda f: with_weights(f, lambda w: w.update({W: w[W].half()})), "of type torch.float16, want one type for all, here torch.float64"),
    "NaN": (lambda f: with_weights(f, lambda w: w[W].fill_(float("nan"))), "got h.0.mlp.c_fc.weight with NaN or ∞, want finite weights"),
    "cut short": (lambda f: cut(f, -50), "got a broken file"),
    "cut very short": (lambda f: cut(f, 5), "got a broken file"),
    "empty": (lambda f: cut(f, 0), "got a broken file"),
    "no JSON": (lambda f: [(f / "config.json").write_text("{"), f][1], "got no JSON"),
    "a list": (lambda f: [(f / "config.json").write_text("[]"), f][1], "got no table, want a table of settings"),
    "another model": (lambda f: edited(f, model_type="llama"), "model_type: got 'llama', want 'gpt2'"),
    "cross-attention": (lambda f: edited(f, add_cross_attention=True), "add_cross_attention: got True, want False"),
    "a scale for each layer": (lambda f: edited(f, scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx: got True, want False"),
    "another bend": (lambda f: edited(f, activation_function="tanh"), "activation_function: got 'tanh', want 'gelu_new' or"),
    "heads that do not fit": (lambda f: edited(f, n_head=3), "n_heads: got 3, want a divisor"),
    "a size in words": (lambda f: edited(f, n_embd="eight"), "config.json"),
    "pickle": (lambda f: [(f / "model.safetensors").rename(f / "pytorch_model.bin"), f][1], "a .bin file is a pickle"),
    "parts": (lambda f: [(f / "model.safetensors").rename(f / "model.safetensors.index.json"), f][1], "index.json: got no JSON"),
    "no weights": (lambda f: [(f / "model.safetensors").unlink(), f][1], "without model.safetensors"),
    "no config": (lambda f: [(f / "config.json").unlink(), f][1], "without config.json"),
    "one byte a number": (lambda f: with_weights(f, lambda w: w.update({k: v.to(torch.float8_e4m3fn) for k, v in w.items()})), "of type torch.float8_e4m3fn, want floating point numbers of 16 bits"),
    "one tensor, two names": (lambda f: with_weights(f, lambda w: w.update({W.removeprefix("transformer."): w[W] + 1})), "got ['h.0.mlp.c_fc.weight'] with and without transformer."),
    "a terabyte of words": (lambda f: edited(f, vocab_size=10**12), "of shape (13, 8), want shape (1000000000000, 8)"),
    "more than can be counted": (lambda f: edited(f, n_embd=10**12), "config.json: got sizes too great to be counted, want"),
    "much more": (lambda f: edited(f, n_positions=10**30), "config.json: got sizes too great to be counted, want"),
    "a billion blocks": (lambda f: edited(f, n_layer=10**9), "config.json: got 1000000000 blocks, want at most"),
    "a scale that is no answer": (lambda f: edited(f, scale_attn_weights=None), "scale_attn_weights: got None, want True or False"),
    "half a tokenizer": (lambda f: [(f / "vocab.json").write_text("{}"), f][1], "merges.txt"),
}  # fmt: skip


@pytest.mark.parametrize(("room", "family"), [("gpt2", "gpt2"), ("llama_settings", "llama"), ("marian", "marian")])
def test_settings_are_a_table(room, family):
    """Without the runtime type checker."""
    told = run_code(f"from tlm_book.pretrained.{room} import {family}_config; {family}_config(None)").stderr
    assert told.endswith("TypeError: fields: got NoneType, want a table of settings\n")


@pytest.mark.parametrize("name", BAD_GPT2)
def test_a_folder_that_is_no_gpt2_is_refused(name, tmp_path):
    spoil, words = BAD_GPT2[name]
    folder = spoil(a_gpt2(tmp_path / "m"))
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(words)) as error:
        load_gpt2(folder)
    assert ": got" in str(error.value) or name == "half a tokenizer" or name == "a size in words"


BAD_MARIAN = {
    "another model": ({"model_type": "bart"}, "model_type: got 'bart', want 'marian'"),
    "pre-norm": ({"normalize_before": True}, "normalize_before: got True, want False"),
    "a last norm": ({"add_final_layer_norm": True}, "add_final_layer_norm: got True, want False"),
    "a norm of the embedding": ({"normalize_embedding": True}, "normalize_embedding: got True"),
    "learned positions": ({"static_position_embeddings": False}, "static_position_embeddings: got False, want True"),
    "unlike halves": ({"decoder_layers": 1}, "decoder_layers: got 1, want 2, as in the encoder"),
    "no width": ({"d_model": "none"}, "got no field ['d_model']"),
    "a terabyte of words": ({"vocab_size": 10**12}, "of shape (1, 13), want shape (1, 1000000000000)"),
    "a terabyte of places": ({"max_position_embeddings": 10**11}, "max_position_embeddings: got 100000000000, want at most"),
    "more than can be counted": ({"max_position_embeddings": 10**30}, "config.json: got sizes too great to be counted, want"),
    "much width": ({"d_model": 10**12}, "config.json: got sizes too great to be counted, want"),
    "a billion blocks": ({"encoder_layers": 10**9, "decoder_layers": 10**9}, "config.json: got 1000000000 blocks, want at most"),
    "shared or not": ({"share_encoder_decoder_embeddings": None}, "share_encoder_decoder_embeddings: got None, want True or False"),
    "another vocabulary": ({"vocab_size": 14}, "of shape (1, 13), want shape (1, 14)"),
}


@pytest.mark.parametrize("name", BAD_MARIAN)
def test_a_folder_that_is_no_marian_is_refused(name, tmp_path):
    fields, words = BAD_MARIAN[name]
    their_marian({}).save_pretrained(tmp_path / "m")
    with pytest.raises(ValueError, match=re.escape(words)):
        load_marian(edited(tmp_path / "m", **fields))


@pytest.mark.parametrize(
    ("vocab", "words"),
    [("{", "got no JSON"), ("[]", "got no number for <unk>"), ('{"<unk>": "1"}', "got ['1'], want whole numbers"), ('{"<unk>": 99}', "got [99], want"),
     ('{"<unk>": 1, "a": 1}', "got 1 numbers twice, want a number for each piece"), ('{"<unk>": 1, "</s>": 0}', "got [99], want tokens from 0 to 12 for padding")],
)  # fmt: skip
def test_a_vocabulary_that_is_none_is_refused(vocab, words, tmp_path, monkeypatch):
    their_marian({}).save_pretrained(tmp_path / "m")
    edited(tmp_path / "m", pad_token_id=99)
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / "m" / name).write_text(vocab)
    monkeypatch.setattr(pretrained.marian_text, "library", lambda name, extra: types.SimpleNamespace(SentencePieceProcessor=lambda model_proto: Letters()))
    with pytest.raises(ValueError, match=re.escape(words)):
        load_marian(tmp_path / "m")


def test_a_link_to_nowhere_is_no_missing_tokenizer(tmp_path):
    (a_gpt2(tmp_path / "m") / "vocab.json").symlink_to(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"vocab\.json"):
        load_gpt2(tmp_path / "m")


def test_two_vocabularies_are_refused(tmp_path):
    their_marian({"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13}).save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "vocab.json").write_text("{}")
    with pytest.raises(ValueError, match="config.json: got a vocabulary for each language, want one for both"):
        load_marian(tmp_path / "m")


SMALL = {"d_model": 8, "d_ff": 12, "n_layers": 1, "n_heads": 2, "max_len": 9}


@pytest.mark.parametrize(
    "changes",
    [{"norm": "post"}, {"eps_mode": "outside"}, {"variant": "parallel"}, {"pe": "sinusoidal"}, {"final_norm": False}, {"qkv_bias": False},
     {"out_bias": False}, {"unembed_bias": True}, {"embed_scale": True}, {"d_head": 3}, {"scale": 0.3}],
    ids=label,
)  # fmt: skip
def test_a_model_that_is_no_gpt2_is_not_saved_as_one(changes, tmp_path):
    (field, value), model = *changes.items(), TransformerLM(Config.gpt2(11, **SMALL | changes))
    with pytest.raises(ValueError, match=re.escape(f"model.config.{field}: got {value!r}, want ") + ".*, as in every GPT-2"):
        save_gpt2(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_what_is_as_good_as_a_gpt2_is_saved_as_one(tmp_path):
    for number, changes in enumerate([{"pe": "learned_from_sinusoid", "pe_start": 1}, {"d_head": 4}, {"dropout": 0.2}]):
        model = TransformerLM(Config.gpt2(11, **SMALL | changes)).eval()
        save_gpt2(model, tmp_path / str(number))
        theirs, tokens = GPT2LMHeadModel.from_pretrained(tmp_path / str(number)).eval(), torch.arange(9)[None]
        assert near(model(tokens), theirs(tokens).logits, 1e-4) and theirs.config.resid_pdrop == model.config.dropout


@pytest.mark.parametrize("changes", [{"norm": "pre"}, {"pe_halves": False}, {"out_bias": False}, {"final_norm": True}, {"d_value": 3}, {"eps": 1e-6}], ids=label)
def test_a_model_that_is_no_marian_is_not_saved_as_one(changes, tmp_path):
    model = EncoderDecoder(marian_preset(11, **SMALL | changes))
    with pytest.raises(ValueError, match=f"model.config.{next(iter(changes))}: got .*, want .*, as in every Marian"):
        save_marian(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_half_written(tmp_path, monkeypatch):
    model = TransformerLM(Config.gpt2(257, **SMALL))
    save_gpt2(model, tmp_path / "m")
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    with pytest.raises(FileExistsError):
        save_gpt2(model, tmp_path / "m")
    with pytest.raises(ValueError, match="tokenizer: got 258 tokens, want vocab_size = 257"):
        save_gpt2(model, tmp_path / "n", Tokenizer([(1, 2)], pattern=GPT2_PATTERN))
    with pytest.raises(ValueError, match="pattern: got"):  # after the weights have been written
        save_gpt2(model, tmp_path / "n", Tokenizer([]))
    other = TransformerLM(Config.gpt2(257, **SMALL))
    other.unembedding.weight = torch.nn.Parameter(other.unembedding.weight + 1)
    with pytest.raises(ValueError, match="model: got a tied model with two matrices, want one"):
        save_gpt2(other, tmp_path / "n")
    other = TransformerLM(Config.gpt2(257, **SMALL))
    other.norm.half()
    with pytest.raises(ValueError, match="of type torch.float16, want one type for all, here torch.float32"):
        save_gpt2(other, tmp_path / "n")
    with pytest.raises(ValueError, match="without numbers, want weights"):
        save_gpt2(other.to("meta"), tmp_path / "n")
    small = EncoderDecoder(marian_preset(4, **SMALL))
    with pytest.raises(ValueError, match=re.escape("tokenizer: got [4], want whole numbers, at least 0 and less than 4")):
        save_marian(small, tmp_path / "n", LETTERS)
    with torch.no_grad():
        model.norm.bias[0] = torch.inf
    with pytest.raises(ValueError, match="model: got transformer.ln_f.bias with NaN or ∞, want finite weights"):
        save_gpt2(model, tmp_path / "n")
    assert [path.name for path in tmp_path.iterdir()] == ["m"] and (tmp_path / "m" / "model.safetensors").read_bytes() == before


# The hub, without the hub


class Hub(types.ModuleType):
    """Stands in for huggingface_hub: a cache as it makes one, files named by their fingerprints."""

    errors = types.SimpleNamespace(HfHubHTTPError=type("HfHubHTTPError", (Exception,), {}))

    def __init__(self, cache: Path, folder: Path, main: tuple[str, ...]):
        super().__init__("huggingface_hub")
        self.cache, self.folder, self.main, self.asked = cache, folder, main, []

    def snapshot_download(self, name, *, revision, allow_patterns):
        self.asked.append((name, revision))
        assert not any("bin" in pattern or "*" in pattern for pattern in allow_patterns)
        place = self.cache / (revision or "main").replace("/", "_")
        place.mkdir(parents=True, exist_ok=True)
        for file in allow_patterns:
            if (self.folder / file).exists() and (revision or file in self.main):
                data = (self.folder / file).read_bytes()
                big = file.endswith(".safetensors")
                name = hashlib.sha256(data).hexdigest() if big else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
                (self.cache / name).write_bytes(data)
                with contextlib.suppress(FileExistsError):
                    (place / file).symlink_to(self.cache / name)
        return str(place)

    def HfApi(self):
        offer = dict(is_pull_request=True, author="SFconvertbot", title="Adding `safetensors` variant of this model", status="open", git_reference="refs/pr/7")
        others = [{"author": "someone"}, {"is_pull_request": False}, {"title": "Typo"}, {"status": "closed"}]
        others = [other | {"git_reference": f"refs/pr/{k}"} for k, other in enumerate(others)] + [{}]
        return types.SimpleNamespace(get_repo_discussions=lambda name: [types.SimpleNamespace(**offer | other) for other in others])


def test_a_name_is_fetched_from_the_hub(tmp_path, monkeypatch):
    folder = a_gpt2(tmp_path / "m")
    hub = Hub(tmp_path / "cache", folder, ("config.json", "model.safetensors"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    model, _ = load_gpt2("someone/some-gpt2")
    assert bits(model.state_dict()) == bits(load_gpt2(folder)[0].state_dict()) and hub.asked == [("someone/some-gpt2", None)]
    load_gpt2("gpt2", revision="abc")
    assert hub.asked[1:] == [("gpt2", "abc")]


def test_a_blob_may_lie_elsewhere(tmp_path, monkeypatch):
    """A store that several caches share names its files otherwise."""
    hub = Hub(tmp_path / "cache", a_gpt2(tmp_path / "m"), ("config.json", "model.safetensors"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    place = Path(hub.snapshot_download("a/b", revision=None, allow_patterns=["config.json", "model.safetensors"]))
    blob, store = (place / "model.safetensors").resolve(), tmp_path / ("f" * 64)
    blob.rename(store)
    blob.symlink_to(store)
    hub.snapshot_download = lambda *_, **__: place
    load_gpt2("a/b")
    store.write_bytes(store.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match="model.safetensors: got a file with fingerprint"):
        load_gpt2("a/b")


def test_what_the_hub_has_converted_is_found(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "cache", a_gpt2(tmp_path / "m"), ("config.json",))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    load_gpt2("someone/some-gpt2")
    assert [revision for _, revision in hub.asked] == [None, "refs/pr/7"]


def test_a_model_without_safetensors_is_refused(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "cache", a_gpt2(tmp_path / "m"), ("config.json",))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr(pretrained.hub, "converted", lambda hub, name: None)
    with pytest.raises(ValueError, match="name_or_folder: got 'a/b' without model.safetensors, want safetensors: a .bin file is a pickle"):
        load_gpt2("a/b")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_damaged_download_is_refused(file, tmp_path, monkeypatch):
    hub = Hub(tmp_path / "cache", a_gpt2(tmp_path / "m"), ("config.json", "model.safetensors"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    place = Path(hub.snapshot_download("a/b", revision=None, allow_patterns=["config.json", "model.safetensors"]))
    data = bytearray((place / file).read_bytes())
    data[-3] ^= 1
    hub.snapshot_download = lambda *_, **__: place
    (place / file).resolve().write_bytes(data)
    with pytest.raises(ValueError, match=f"{file}: got a file with fingerprint .*, want .*delete it and fetch it again"):
        load_gpt2("a/b")


def test_without_a_network_the_error_says_what_to_do(monkeypatch, tmp_path):
    import huggingface_hub

    def offline(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # beside which there is no x
    with pytest.raises(ConnectionError, match=r"name_or_folder: got 'openai-community/gpt2', which is no folder here, and no such files from the hub \(no connection\), want a network"):
        load_gpt2("openai-community/gpt2")
    with pytest.raises(ConnectionError):
        load_marian("Helsinki-NLP/opus-mt-fr-en")
    with monkeypatch.context() as without, pytest.raises(ImportError, match=r"name_or_folder: got 'gpt-2', which is no folder here, and, to fetch it, huggingface_hub: got no such"):
        without.setitem(sys.modules, "huggingface_hub", None)
        load_gpt2("gpt-2")
    for name in (tmp_path / "none", "./none", "a/b/c", "../x"):
        with pytest.raises(FileNotFoundError, match="name_or_folder: got .*, want a folder, or a name on the hub"):
            load_gpt2(name)


def test_without_a_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="huggingface_hub: got no such library, want .*pip install 'tlm_book.pretrained.'"):
        load_gpt2("openai-community/gpt2")


def test_a_file_may_be_just_as_large_as_the_limit():
    files = shared_out({name: torch.zeros(4) for name in "abcd"}, 32)
    assert [list(file) for file in files] == [["a", "b"], ["c", "d"]]


def test_finite_weights_may_have_a_sum_that_is_not(tmp_path):
    model = TransformerLM(Config.gpt2(13, **SMALL)).half()
    with torch.no_grad():
        model.norm.weight.fill_(60000)
    save_gpt2(model, tmp_path / "m")
    assert torch.equal(load_gpt2(tmp_path / "m")[0].norm.weight, model.norm.weight)


def test_a_tied_model_whose_two_matrices_are_equal_is_saved(tmp_path):
    model = TransformerLM(Config.gpt2(13, **SMALL))
    model.unembedding.weight = torch.nn.Parameter(model.embedding.table.weight.detach().clone())
    save_gpt2(model, tmp_path / "m")
    again = load_gpt2(tmp_path / "m")[0]
    assert again.unembedding.weight is again.embedding.table.weight and torch.equal(again.unembedding.weight, model.unembedding.weight)


def test_a_revision_that_is_asked_for_is_not_exchanged(tmp_path, monkeypatch):
    folder = a_gpt2(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    hub = Hub(tmp_path / "cache", folder, ("config.json",))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ValueError, match="without model.safetensors"):
        load_gpt2("a/b", revision="abc")
    assert hub.asked == [("a/b", "abc")]


def test_a_translation_begins_with_the_padding_unless_the_file_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained.marian_text, "read_processor", lambda folder, name: Letters())
    (tmp_path / "vocab.json").write_text('{"</s>": 0, "<unk>": 1}')
    read = lambda **fields: pretrained.marian_text.load_marian_tokenizer(tmp_path, {"vocab_size": 9} | fields)[3:]
    assert read() == (8, 0, 8) and read(pad_token_id=7) == (7, 0, 7) and read(decoder_start_token_id=2, eos_token_id=1) == (2, 1, 8)


def test_a_translation_ends_where_the_model_reads_no_more():
    torch.manual_seed(0)
    model = EncoderDecoder(marian_preset(6, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=7)).eval()
    with torch.no_grad():
        model.unembedding.bias[2] = 1e5
    assert pretrained.translate_marian(model, LETTERS, ["a"], max_new=1000) == ["a" * 7]


def test_the_language_is_the_first_code_and_what_follows_is_text():
    assert LETTERS.encode(">>b<<a<<") == [4, 3, 2, 1, 1, 0]
    assert LETTERS.encode(">>b<<a>>b<<") == [4, 3, 2, 1, 1, 1, 1, 1, 0]


def test_dropout_is_written_where_a_gpt2_has_it(tmp_path):
    save_gpt2(TransformerLM(Config.gpt2(11, **SMALL, dropout=0.25)), tmp_path / "m")
    said = json.loads((tmp_path / "m" / "config.json").read_text())
    assert (said["resid_pdrop"], said["embd_pdrop"], said["attn_pdrop"]) == (0.25, 0.25, 0.0)


def test_a_gpt2_keeps_its_start_marker_wherever_it_is_numbered(tmp_path):
    """Of several specials, the first begins a text, whatever the others' numbers are."""
    words = Tokenizer([(104, 105)], ("<s>", "</s>"), GPT2_PATTERN)
    for k, ids in enumerate((words.ids, [*range(257), 258, 257])):
        tokenizer = Tokenizer(words.merges, ("<s>", "</s>"), GPT2_PATTERN, ids=ids)
        model = TransformerLM(Config.gpt2(259, d_model=8, d_ff=8, n_layers=1, n_heads=1, max_len=4))
        save_gpt2(model, tmp_path / f"{k}", tokenizer)
        again = load_gpt2(tmp_path / f"{k}")[1]
        assert again.start == tokenizer.start == ids[257]
        assert (again.ids, again.specials) == (tokenizer.ids, tokenizer.specials)
        assert again.encode("hi</s><s>", allowed_special=("<s>", "</s>")) == [256, ids[258], ids[257]]
