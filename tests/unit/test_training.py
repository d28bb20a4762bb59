"""The training chapter's main run, once more with other held-out documents: its margin over the counted trigram is no luck of one split."""

import dataclasses
import json

import numpy as np
import pytest

from tlm_book.tokenization import (
    HubTokenizer,
    Tokenizer,
    documents,
    to_tokenizers,
)
from tlm_book.training import (
    bigram_log_probs,
    encode_corpus,
    evaluate,
    fit_size,
    kneser_ney_log_probs,
    model_for,
    recipe,
    split_documents,
    split_text,
    train,
    trigram,
    unigram_log_probs,
    write_tokens,
)


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


def test_a_long_text_without_blank_lines_is_cut_at_line_ends():
    lines = [f"This is line {i}, of a few words." for i in range(300)]
    documents = split_text("\n".join(lines))
    assert len(documents) > 10 and [line for text in documents for line in text.split("\n") if line] == lines


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
