"""The training chapter's main run, once more with other held-out documents: its margin over the counted trigram is no luck of one split."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from tlm_book.tokenization import (
    HubTokenizer,
    Tokenizer,
    documents,
    to_tokenizers,
)
from tlm_book.training import (
    bigram,
    bigram_log_probs,
    data,
    encode_corpus,
    evaluate,
    fit_size,
    kneser_ney_log_probs,
    model_for,
    read_tokens,
    recipe,
    split_documents,
    split_text,
    train,
    trigram,
    unigram_log_probs,
    write_tokens,
)
from tlm_book.training.config import TrainConfig, sizes_up_to
from tlm_book.training.data import is_held_out
from tlm_book.training.step import learning_rate
from tlm_book.training.text import (
    blocks,
    cut,
    read_text,
    stream_documents,
    text_files,
)
from tlm_book.transformer_lm import Config


@pytest.mark.parametrize(("V", "dtype"), [(256, np.uint8), (256, np.uint16), (256, np.int16), (70000, np.int32), (70000, np.uint32)])
def test_the_type_of_the_integers_does_not_matter_to_the_counts(V, dtype):
    """Codes of two tokens are larger than these types hold."""
    text = np.array([1, 2, V - 2, V - 1, 3, V - 2, V - 1, 0] * 9)
    small = text.astype(dtype)
    a, b = slice(0, 7), slice(1, 8)
    assert np.array_equal(unigram_log_probs(small, small[a], V), unigram_log_probs(text, text[a], V))
    assert np.array_equal(bigram_log_probs(small, small[a], small[b], V, 0.5), bigram_log_probs(text, text[a], text[b], V, 0.5))
    assert np.array_equal(kneser_ney_log_probs(small, small[a, None], small[b], V), kneser_ney_log_probs(text, text[a, None], text[b], V))


def test_a_text_of_one_token_has_no_pair():
    one, none = np.array([1]), np.array([0])
    assert np.allclose(bigram_log_probs(one, none, one, 3, 0.5), np.log(1 / 3))


def test_a_discount_may_be_nothing_or_all_of_a_pair_seen_once():
    """After 0 stood 1, twice; of the two pairs one ends with 1, and one and a half in four are counted to it."""
    text, a, b = np.array([0, 1, 0, 1]), np.array([0]), np.array([1])
    assert [np.exp(bigram_log_probs(text, a, b, 2, D))[0] for D in (0.0, 1.0)] == pytest.approx([1.0, 0.75])


def test_a_long_text_without_blank_lines_is_cut_at_line_ends():
    lines = [f"This is line {i}, of a few words." for i in range(300)]
    documents = split_text("\n".join(lines))
    assert len(documents) > 10 and [line for text in documents for line in text.split("\n") if line] == lines


def test_a_piece_may_have_the_greatest_length():
    assert cut("to be or not", 5) == ["to be", "or", "not"] and cut("to\nbe or", 5) == ["to", "be or"] and cut("together", 5) == ["toget", "her"]


def test_a_mark_at_the_end_is_not_learned():
    paragraphs = [f"This is paragraph {i}, of a few words." for i in range(60)]
    plain = split_text("\n\n".join(paragraphs))
    assert len(plain) > 10
    assert split_text("\f" + "\n\n".join(paragraphs) + "<|endoftext|>\n") == plain


def test_a_document_ends_with_the_token_at_which_writing_stops(tmp_path):
    state = json.loads(to_tokenizers(Tokenizer([], specials=("<s>", "</s>"))).to_str())
    tokenizer = HubTokenizer(state, start=0, stop=1)
    want = [*tokenizer.encode("ab"), 1, *tokenizer.encode("c"), 1]
    assert encode_corpus(tokenizer, ["ab", "c"]).tolist() == want
    assert write_tokens(tmp_path / "t.tokens", ["ab", "c"], tokenizer).tokens.tolist() == want


def test_a_token_file_gives_back_its_documents_and_a_changed_token_is_noticed(tmp_path):
    words, texts = Tokenizer([]), ["Zürich", "", "a"]
    file = write_tokens(tmp_path / "t.tokens", texts, words)
    assert [file.document(i).tolist() for i in range(3)] == [[*words.encode(text), words.stop] for text in texts]
    assert {name: file.head[name] for name in ("tokens", "documents", "bytes", "characters")} == {"tokens": 11, "documents": 3, "bytes": 8, "characters": 7}
    file.tokens[0] += 1  # in memory alone
    again = read_tokens(tmp_path / "t.tokens", verify=True)
    assert again.tokens.tolist() == encode_corpus(words, texts).tolist() and again.tokens[0] != file.tokens[0]
    data = bytearray((tmp_path / "t.tokens").read_bytes())
    data[data.index(again.tokens.numpy().tobytes())] += 1
    (tmp_path / "t.tokens").write_bytes(data)
    assert read_tokens(tmp_path / "t.tokens").tokens[0] == file.tokens[0]
    with pytest.raises(ValueError, match=r"file: got other tokens in '.*t\.tokens', want those of its check sum"):
        read_tokens(tmp_path / "t.tokens", verify=True)


@pytest.mark.parametrize(("size", "dtype"), [(2**15, torch.int16), (2**15 + 1, torch.int32)])
def test_tokens_take_two_bytes_while_that_is_enough(size, dtype, tmp_path):
    class Large(Tokenizer):
        __len__ = lambda self: size
        encode = lambda self, text: [size - 1]

    tokens = write_tokens(tmp_path / "t.tokens", ["a"], Large([])).tokens
    assert tokens.dtype == dtype and tokens[0] == size - 1


@pytest.mark.long
def test_the_bytes_model_beats_the_trigram_on_another_split():
    """The same run with other held-out documents and seed 2. With the chapter's own, the chapter tries five seeds (tlm_book.measuring)."""
    texts = documents()
    rest, test_texts = split_documents(texts, 0.1, 1)
    train_texts, validation_texts = split_documents(rest, 0.1, 1)
    tokenizer = Tokenizer.train(train_texts, 257)
    known, validation, test = (encode_corpus(tokenizer, part) for part in (train_texts, validation_texts, test_texts))
    sizes = {"d_model": 96, "layers": 2, "heads": 4, "context": 32, "batch_size": 16, "steps": 900, "token_noise": 0.0}
    size = dataclasses.replace(fit_size(sum(len(text.encode()) for text in texts)), vocab_size=257, **sizes)
    config = recipe(size, eval_every=150, seed=2)
    result = train(config, model_for(size, 257), known, validation, start=tokenizer.start, device="cpu", progress=False)
    loss = evaluate(result.model, test, 32, tokenizer.start, context=16)
    assert loss < trigram(known, test, 257, tokenizer.start) - 0.15, loss
    print(f"transformer {loss:.3f}, trigram {trigram(known, test, 257, tokenizer.start):.3f}")


def test_windows_line_ends_and_the_byte_order_mark_go(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_text(file, at_least=13) == "one\ntwo\n"
    with pytest.raises(ValueError, match="path: got 13 bytes in '.*text.txt', want at least 14 bytes of text"):
        read_text(file, at_least=14)


def test_the_place_of_a_bad_byte_is_counted_from_the_beginning_of_the_file(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"one two three four \xff five")
    with pytest.raises(ValueError, match="the byte 0xff at position 19 of"):
        list(stream_documents([file], block=8))


def test_a_mark_of_byte_order_is_left_out_at_the_start_of_a_file_only(tmp_path):
    """Within the text the character means something else, even where a block begins."""
    (tmp_path / "text.txt").write_text("\ufeffone \ufefftwo", encoding="utf-8")
    assert ["".join(blocks(tmp_path / "text.txt", size)) for size in (7, 100)] == ["one \ufefftwo"] * 2


def test_files_in_hidden_folders_are_no_text(tmp_path):
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    for name in ("a.txt", ".b.txt", ".git/c.txt", ".git/objects/d.txt"):
        (tmp_path / name).write_text("text")
    assert text_files(tmp_path) == [tmp_path / "a.txt"]


def test_a_folder_in_a_folder_that_holds_a_model_is_no_text(tmp_path):
    """But the named one is read, whatever else lies in it."""
    (tmp_path / "model").mkdir()
    for name in ("a.txt", "b.safetensors", "model/config.json", "model/model.safetensors"):
        (tmp_path / name).write_text("text")
    assert text_files(tmp_path) == [tmp_path / "a.txt", tmp_path / "b.safetensors"]


def test_what_lies_deeper_in_a_model_and_the_work_of_a_run_are_no_text(tmp_path):
    """Such as the log for TensorBoard and a user's notes in subfolders: with them, a finished run could not be taken further."""
    for name in ("a.txt", "b.run/c.txt", "model/model.safetensors", "model/tensorboard/events", "sub/d.run/run.json", "sub/d.run/train.tokens", "sub/d.run/step-00000001/state.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert text_files(tmp_path) == [tmp_path / "a.txt", tmp_path / "b.run" / "c.txt"]


@pytest.mark.parametrize(("bytes_of_other", "n_documents"), [(6000, 3), (60_000, 1)])
def test_a_file_is_cut_if_it_holds_more_than_a_tenth_of_the_text(bytes_of_other, n_documents, tmp_path):
    """Of 60 lines, without marks: the documents that hold them."""
    (tmp_path / "a.txt").write_text("\n".join(f"It is a line, number {i}, of few words." for i in range(60)))
    (tmp_path / "b.txt").write_text("x" * bytes_of_other)
    documents = [text for text in stream_documents([tmp_path / "a.txt", tmp_path / "b.txt"]) if "line" in text]
    assert min(len(documents), 3) == n_documents


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    """Else its documents would be trained on and held out."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    assert text_files([b, tmp_path, tmp_path / "." / ".." / tmp_path.name / "a.txt"]) == [b, a]
    (tmp_path / "c.txt").symlink_to(b)
    assert text_files([tmp_path, a]) == text_files([tmp_path, tmp_path]) == [a, b]


def test_one_document_is_left_to_train_on():
    assert split_documents(["a", "b"], 0.9, 0) in ((["a"], ["b"]), (["b"], ["a"]))
    assert [len(part) for part in split_documents(["a", "b", "c"], 0.99, 0)] == [1, 2]


def test_the_number_of_documents_that_are_held_out_is_rounded():
    assert [len(split_documents(["a"] * n, 0.2, 0)[1]) for n in (7, 8, 12, 13)] == [1, 2, 2, 3]


def test_another_seed_holds_out_other_documents_of_a_stream():
    one, other = ([is_held_out(i, 0.5, seed) for i in range(64)] for seed in (0, 1))
    assert one != other and one == [is_held_out(i, 0.5, 0) for i in range(64)]
    assert one[:2] == other[:2] == [False, True]


def test_a_tokenizer_is_learned_from_documents_of_the_whole_text(monkeypatch):
    monkeypatch.setattr(data, "TOKENIZER_TEXT", 100)
    texts = ["ab" * 5] * 10 + ["xy" * 5] * 90
    learned = [data.learn_tokenizer(texts, 258, seed) for seed in range(3)]
    assert all(len(tokenizer.encode("xyxy")) < 4 for tokenizer in learned)


def test_the_ends_of_a_range_belong_to_it():
    TrainConfig(steps=5, warmup=5, batch_size=2, grad_accum_steps=2, min_lr=1.0, weight_decay=0.0, betas=(0.0, 0.0), clip=math.inf, seed=2**63 - 1)
    TrainConfig(steps=1, warmup=0, min_lr=0.0, token_noise=0.0, seed=0, replanned=())


def test_a_mean_without_memory_may_be_written_as_a_whole_number():
    text = torch.arange(60) % 9
    runs = [train(TrainConfig(steps=2, warmup=0, batch_size=2, betas=betas), Config(9, 4, 4, 1, 1, 4), text, text, progress=False) for betas in ((0, 0.9), (0.0, 0.9))]
    assert runs[0].log == runs[1].log


def test_a_text_that_is_as_long_as_a_bound_has_the_larger_size():
    for bound in (50_000, 1_000_000, 20_000_000):
        assert fit_size(bound - 1).d_model < fit_size(bound).d_model


def test_a_run_is_measured_twelve_times():
    size = fit_size(10_000)
    assert recipe(size, steps=1200).eval_every == 100 and recipe(size, steps=5).eval_every == 1


def test_a_preset_keeps_its_share_of_key_heads():
    kinds = {name: model_for(fit_size(10_000_000), 1000, name) for name in ("qwen2", "qwen3", "gemma", "llama")}
    assert {name: (c.n_heads, c.kv_heads) for name, c in kinds.items()} == {"qwen2": (8, 1), "qwen3": (8, 4), "gemma": (8, 1), "llama": (8, 8)}
    assert Config.mistral().kv_heads == 8 and model_for(fit_size(10_000_000), 1000, "mistral").kv_heads == 2


def test_gated_layers_have_as_many_weights_as_plain_ones():
    for width in (64, 96, 128, 192, 256, 384):
        size = dataclasses.replace(fit_size(10_000), d_model=width)
        assert abs(model_for(size, 300).d_ff - 8 / 3 * width) <= 4 and abs(model_for(size, 300, "llama").d_ff - 8 / 3 * width) <= 8
        assert model_for(size, 300, "gpt2").d_ff == 4 * width


def test_the_window_of_a_preset_is_half_the_context():
    size = fit_size(10_000_000)
    assert model_for(dataclasses.replace(size, context=1), 1000, "mistral").window == 1
    assert model_for(size, 1000, "mistral").window == size.context // 2
    assert model_for(size, 1000, "llama").window is None


def test_smaller_sizes_have_the_noise_of_the_size_that_suits_the_text():
    for n_bytes in (10_000, 200_000, 10_000_000, 10**9):
        assert {size.token_noise for size in sizes_up_to(n_bytes)} == {fit_size(n_bytes).token_noise}


def test_after_the_last_step_the_rate_stays_the_lowest():
    for schedule in ("linear", "cosine"):
        config = TrainConfig(steps=10, warmup=2, lr=1.0, min_lr=0.25, schedule=schedule)
        assert learning_rate(9, config) == learning_rate(10, config) == learning_rate(100, config) == 0.25


def test_the_discount_of_the_bigram_is_chosen_on_the_known_text():
    """The last tenth of the known text is unlike the rest, the held-out text like it."""
    chance = np.random.default_rng(0)
    known, held_out = torch.tensor([*([0, 1, 2, 3] * 90), *chance.integers(0, 9, 40)]), torch.tensor([0, 1, 2, 3] * 9)
    losses = {D: -bigram_log_probs(known.numpy(), np.array([3, *held_out[:-1]]), held_out.numpy(), 9, D / 10).mean() for D in range(1, 10)}
    cut = 360
    own = {D: -bigram_log_probs(known[:cut].numpy(), known[cut - 1 : -1].numpy(), known[cut:].numpy(), 9, D / 10).mean() for D in range(1, 10)}
    best = min(own, key=own.get)
    assert best != min(losses, key=losses.get)
    assert bigram(known, held_out, 9, start=3) == pytest.approx(losses[best])


def test_documents_may_begin_with_a_bracket(tmp_path):
    file = tmp_path / "pages.txt"
    pages = [f"<p>Page {i}.</p>" + "\n\nOf words." * 40 for i in range(3)]
    file.write_text("<|endoftext|>".join(pages))
    assert [*stream_documents([file], 600)] == pages
    file.write_text(pages[0] + "<|endoftext|>\n<|endoftext|>")  # marks, but no second document
    assert len([*stream_documents([file], 600)]) > 1
