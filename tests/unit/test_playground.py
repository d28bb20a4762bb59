"""The model on a page, Python's side: what is refused, what a reader without scripts sees, and that hostile text stays text."""

import numpy as np
import pytest
import torch
import traitlets

from tlm_book import Config, Tokenizer, TransformerLM
from tlm_book.viewer import playground, questions
from tlm_book.viewer.playground.pack import pack, rounded
from tlm_book.viewer.playground.still import looked
from tlm_book.viewer.shared import shared_file

SMALL = {"d_model": 8, "d_ff": 8, "n_layers": 2, "n_heads": 2, "max_len": 16}


@pytest.fixture(scope="module")
def pair():
    tokenizer = Tokenizer([(104, 105)])
    torch.manual_seed(0)
    return TransformerLM(Config(len(tokenizer), **SMALL)), tokenizer


def test_what_a_reader_without_scripts_sees(pair):
    view = playground(*pair, "hi <there>", title="A <model>")
    assert repr(view) == "<playground: 2 blocks of 2 heads, 258 tokens>"
    still, page = view.to_html().split("<script")[0], view.to_html()
    assert "hi &lt;there&gt;" in still and "A &lt;model&gt;" in still
    assert page == playground(*pair, "hi <there>", title="A <model>").to_html()


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "\ud800", "${alert(1)}`"])
def test_hostile_text_stays_text(pair, text):
    page = playground(*pair, text, title=text).to_html()
    assert page.count("<script") == page.count("</script") == 1 and "<!--" not in page
    page.encode()


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"temperature": 0.0}, ValueError, "temperature: got 0.0, want a number from 0.1 to 10.0"),
        ({"top_k": 0}, ValueError, "top_k: got 0, want a whole number from 1 to 258"),
        ({"top_k": 259}, ValueError, "top_k: got 259"),
        ({"top_p": 0.0}, ValueError, "top_p: got 0.0"),
        ({"seed": -1}, ValueError, "seed: got -1"),
    ],
)  # fmt: skip
def test_refused(pair, change, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        playground(*pair, **change)


def test_models_and_tokenizers_that_do_not_fit(pair):
    model, tokenizer = pair
    with pytest.raises(ValueError, match="tokenizer: got 257 tokens, want the model's vocab_size = 258"):
        playground(model, Tokenizer([]))
    with torch.device("meta"):
        large = TransformerLM(Config.gpt2(258, n_layers=2))
    with pytest.raises(ValueError, match=r"model: got 15,\d+,\d+ weights, want at most 8,000,000: a page holds them all"):
        playground(large, tokenizer)
    turned = Tokenizer([(104, 105)], ids=[*range(255, -1, -1), 256, 257])
    with pytest.raises(ValueError, match="tokenizer: got tokens numbered in another order"):
        playground(model, turned)


def test_the_readers_choices_can_be_set(pair):
    view = playground(*pair, "hi")
    view.off, view.causal, view.top_k, view.text = ["0.1", "1.0"], False, 5, "ho"
    for name, value in (("off", ["2.0"]), ("top_k", 0), ("temperature", 99.0)):
        with pytest.raises((ValueError, traitlets.TraitError), match=f"{name}: got"):
            setattr(view, name, value)


@pytest.mark.parametrize("seed", range(5))
def test_rounding_keeps_shapes_zeros_and_signs(seed):
    """q f is within half a step of each number; the largest of each row or column and all zeros are kept."""
    rng = np.random.default_rng(seed)
    weights = {"E": rng.normal(size=(7, 4)), "blocks": [{"CA": {"W_Q": rng.normal(size=(2, 4, 3)), "qk_gain": rng.normal(size=(2, 3))}}],
               "Y": rng.normal(size=(4, 7)), "b": rng.normal(size=7), "P": None}  # fmt: skip
    weights["E"][2] = 0
    near = rounded(weights)
    assert near["P"] is None and np.array_equal(near["E"][2], np.zeros(4))
    for W, to, axis in ((weights["E"], near["E"], 1), (weights["blocks"][0]["CA"]["W_Q"], near["blocks"][0]["CA"]["W_Q"], 1)):
        top = np.abs(W).max(axis=axis, keepdims=True)
        assert W.shape == to.shape and (np.abs(W - to) <= top / 254 * 1.0001).all()
        np.testing.assert_allclose(np.abs(to).max(axis=axis, keepdims=True), top, rtol=1e-6)
    for W, to in ((weights["b"], near["b"]), (weights["blocks"][0]["CA"]["qk_gain"], near["blocks"][0]["CA"]["qk_gain"])):
        np.testing.assert_allclose(W, to, rtol=1e-7)
    assert pack(weights) == pack(weights) != pack(weights, bits=32)


STORY = "Anna was at the mill. </script> Ben was at the hut.\nWhere was Anna? At the mill.\nWhere was Ben? At the hut.\n"


def test_what_stands_there_before_the_weights_are_asked_for(pair):
    """The output for a site holds the still picture and no weights; a saved page and `to_html` hold all."""
    for view in (questions(*pair, [STORY], file="tiny"), playground(*pair, stories=[STORY], file="tiny")):
        lazy, whole = view._repr_mimebundle_()[0]["text/html"], view.to_html()
        weights = view.data["file"]["bytes"]
        assert weights in whole and weights not in lazy and len(lazy) < 6_000 and "_static/tiny.js" in lazy
        assert "Where was Anna?" in lazy.split("<script")[0] and lazy.count("</script") == 1
        assert weights in playground(*pair)._repr_mimebundle_()[0]["text/html"]


def test_one_file_for_all_pictures(pair):
    text = shared_file("tiny", *pair)
    assert text.count(playground(*pair).data["file"]["bytes"]) == 1 and "export default" not in text
    assert text == shared_file("tiny", *pair) and text.count("class Tokenizer {") == 1  # what the pictures share stands there once


def test_where_the_head_that_found_the_answer_looked(pair):
    """A model that writes what it is told to: the answer ends with its sentence or its line, and the weights are of the row that wrote its longest word."""
    class Told(torch.nn.Module):
        answer = b""
        config = Config(258, **{**SMALL, "max_len": 60})

        def forward(self, tokens):
            return torch.nn.functional.one_hot(torch.tensor([0] * (len(tokens) - 1) + [self.answer[len(tokens) - start]]), 258)

        def attention_weights(self, tokens):
            return torch.eye(len(tokens)).expand(2, 2, -1, -1)

    tokenizer = Tokenizer([])
    start = 1 + len(b"Anna was at mill.\nWhere?")
    for Told.answer, right in ((b" At mill. Ben", " At mill."), (b" At mill\nBen", " At mill"), (b" At mill.\n", " At mill.")):
        found = looked(Told(), tokenizer, "Anna was at mill.", "Where?")
        assert tokenizer.decode(found.tokens[found.asked :]) == right
    assert found.asked == start and found.story == 1 + len(b"Anna was at mill.\n")
    assert found.word == "" and not found.weights  # letters are no words
