"""What heads do: the shipped model of rhymes is what its code makes, and what is knocked out is out everywhere."""

import copy
import inspect
import json
from importlib import resources

import numpy as np
import pytest
import torch

from tlm_book import heads, training
from tlm_book.derivation import derive
from tlm_book.inference import generate
from tlm_book.tokenization import Tokenizer
from tlm_book.transformer_lm import Config, TransformerLM

FOLDER = resources.files("tlm_book") / "data" / "rhymes"


@pytest.fixture(scope="module")
def shipped() -> tuple[TransformerLM, Tokenizer]:
    return heads.shipped_rhymes()


def test_the_shipped_model_is_small_and_its_tokenizer_is_the_rule(shipped):
    model, tokenizer = shipped
    assert (FOLDER / "model.safetensors").stat().st_size <= 1_500_000
    assert model.config == heads.new_rhyme_model(len(tokenizer)).config
    assert tokenizer.merges == heads.rhyme_tokenizer().merges
    assert all(len(tokenizer.encode(f" {word}")) == 1 for word in heads.WORDS + heads.OTHERS)
    assert len(set(heads.WORDS)) == len(heads.WORDS) == 134


def test_the_log_belongs_to_the_weights(shipped):
    """The scores that training wrote down at its end are those of the weights that ship."""
    model, tokenizer = shipped
    last = json.loads((FOLDER / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    probe = heads.said_twice(heads.word_tokens(tokenizer), 24, 16, tokenizer.start)
    for name, of_heads in heads.head_scores(model, probe).items():
        assert torch.allclose(of_heads, torch.tensor(last[name]), rtol=0, atol=1e-4), name


def test_training_repeats_itself(tmp_path):
    """The same code gives the same weights on the same machine: shown on two steps."""
    folders = [heads.train_rhymes(tmp_path / name, n_steps=2, progress=False, n_texts=50) for name in "ab"]
    first, second = (training.load(folder)[0].state_dict() for folder in folders)
    assert all(torch.equal(w, second[name]) for name, w in first.items())
    assert [json.loads(line)["step"] for line in (folders[0] / "log.jsonl").read_text(encoding="utf-8").splitlines()] == [2]
    shipped, made = (json.loads((folder / "config.json").read_text(encoding="utf-8"))["training"] for folder in (FOLDER, folders[0]))
    assert shipped | {"steps": 2, "warmup": 2} == {name: made[name] for name in shipped}
    with pytest.raises(FileExistsError, match="out: got"):
        heads.train_rhymes(tmp_path / "a", n_steps=2, progress=False)


def test_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    heads.said_twice(torch.arange(9), 3, 2, 0)
    heads.train_rhymes(tmp_path / "a", n_steps=1, progress=False, n_texts=50)
    assert torch.equal(torch.get_rng_state(), state)


def test_knocked_out_is_out_everywhere(shipped):
    """Not only where the model is called as a whole: cached writing, too, repeats a charm only with its induction heads."""
    model, tokenizer = shipped
    means = heads.mean_rows(model, heads.said_twice(heads.word_tokens(tokenizer), 24, 8, tokenizer.start, seed=2))
    text = heads.said_twice(heads.word_tokens(tokenizer), 10, 1, tokenizer.start, seed=5)[0]
    right = {}
    for name, out in (("whole", []), ("without", [(1, i) for i in range(4)])):
        other = heads.knock_out(model, *out, rows=means)
        written = generate(other, text[1:15], 6, temperature=0, start=tokenizer.start)[-6:]
        right[name] = int((written == text[15:]).sum())
        plain = text[:15]
        for _ in range(6):
            plain = torch.cat([plain, other(plain)[-1].argmax()[None]])
        assert torch.equal(written, plain[-6:])
    assert right["whole"] >= 5 and right["without"] <= 1


def test_true_and_false_are_no_head(shipped):
    with pytest.raises(TypeError, match=r"heads: got \(True, 0\), want a pair"):
        inspect.unwrap(heads.knock_out)(shipped[0], (True, 0))


def test_a_model_with_heads_knocked_out_is_a_model(shipped):
    other = heads.knock_out(shipped[0], (0, 1), (1, 3))
    assert derive(other).autoregressive
    assert other.unembedding.weight is other.embedding.table.weight  # still tied


def test_rows_of_another_type_are_knocked_in(shipped):
    model, tokenizer = shipped
    texts = heads.said_twice(heads.word_tokens(tokenizer), 5, 3, tokenizer.start)
    rows = heads.mean_rows(model, texts)
    wide, low = copy.deepcopy(model).double(), copy.deepcopy(model).bfloat16()
    assert torch.allclose(heads.knock_out(wide, (1, 2), rows=rows)(texts), heads.knock_out(model, (1, 2), rows=rows)(texts).double(), rtol=0, atol=1e-4)
    assert heads.knock_out(low, (1, 2), rows=rows)(texts).dtype == torch.bfloat16


def test_scores_of_a_batch_are_means_over_texts(shipped):
    model, tokenizer = shipped
    texts = heads.said_twice(heads.word_tokens(tokenizer), 5, 3, tokenizer.start)
    together = heads.head_scores(model, texts)
    for name, of_heads in together.items():
        one_by_one = [heads.head_scores(model, text[None])[name] for text in texts]
        assert torch.allclose(of_heads, torch.stack(one_by_one).mean(0), rtol=0, atol=1e-6)


def test_head_matrices_give_the_scores_at_equal_positions_if_these_are_rotary():
    torch.manual_seed(0)
    model = TransformerLM(Config(11, 12, 8, 1, 3, max_len=8, pe="rotary")).double()
    _, cache = model.run_with_cache(torch.arange(7))
    x, scores = cache["blocks.0.norm_attention"].detach(), cache["blocks.0.attention.scores"].detach()
    for head in range(3):
        found = x @ heads.head_matrices(model, 0, head)[0] @ x.T
        assert torch.allclose(found.diagonal(), scores[head].diagonal(), rtol=0, atol=1e-12)
        assert not torch.allclose(found, scores[head], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("scale", "n_heads", "n_kv_heads"), [(None, 3, None), (0.3, 3, 1), (None, 4, 2)])
def test_head_matrices_give_the_patterns(scale, n_heads, n_kv_heads):
    """softmax(◺ N(X) M N(X)ᵀ) is the pattern, for every head, shared keys, and any scale of the scores; the heads' terms sum to the layer."""
    torch.manual_seed(0)
    model = TransformerLM(Config(11, 12, 8, 2, n_heads, max_len=8, scale=scale, n_kv_heads=n_kv_heads)).double()
    t = torch.arange(7)
    for layer, (block, x) in enumerate(zip(model.blocks, model.residual_stream(t))):
        y = block.norm_attention(x).detach()
        total = block.attention.out.bias
        for head in range(n_heads):
            M, OV = heads.head_matrices(model, layer, head)
            scores = (y @ M @ y.T).masked_fill(~torch.ones(7, 7, dtype=torch.bool).tril(), -np.inf)
            assert torch.allclose(scores.softmax(-1), model.attention_weights(t)[layer, head], rtol=0, atol=1e-12)
            total = total + scores.softmax(-1) @ y @ OV
        assert torch.allclose(total, block.attention(y), rtol=0, atol=1e-12)
