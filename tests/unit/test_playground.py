"""The model on a page, Python's side: what is refused, what a reader without scripts sees, and that hostile text stays text."""

import copy
import json

import numpy as np
import pytest
import torch
import traitlets
from commands import run_code

from tlm_book import Config, Tokenizer, TransformerLM
from tlm_book.viewer import playground, questions
from tlm_book.viewer.playground.pack import pack, rounded
from tlm_book.viewer.playground.still import looked, still
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
        ({"file": 'a"b'}, ValueError, "file: got 'a\"b', want a name of letters, digits, - and _"),
        ({"stories": ["Anna had the key.\nWho had the key? "]}, ValueError, "got 'Anna had the key."),
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


def test_weights_without_numbers_are_refused(pair):
    broken, empty = copy.deepcopy(pair[0]), copy.deepcopy(pair[0]).to("meta")
    with torch.no_grad():
        next(broken.parameters())[0, 0] = torch.nan
    for model in (broken, empty):
        with pytest.raises(ValueError, match="model: got weights that are not finite, or hold no numbers"):
            playground(model, pair[1])


def test_the_file_of_a_site_has_a_plain_name(pair):
    for make in (lambda: shared_file("../x", *pair), lambda: questions(*pair, [STORY], file="x.js")):
        with pytest.raises(ValueError, match="want a name of letters, digits, - and _"):
            make()


def test_the_readers_choices_can_be_set(pair):
    view = playground(*pair, "hi")
    view.off, view.causal, view.top_k, view.text = ["0.1", "1.0"], False, 5, "ho"
    with pytest.raises(ValueError, match="off: got '9.9', want \"block.head\" with blocks from 0 to 1 and heads from 0 to 1"):
        questions(*pair, [STORY]).off = ["9.9"]
    for name, value in (("off", ["2.0"]), ("top_k", 0), ("temperature", 99.0), ("seed", -1)):
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


class Told(torch.nn.Module):
    """A model that writes `answer`, whatever is asked, and looks where `A` says."""

    def __init__(self, tokenizer, answer, A=None, max_len=60):
        super().__init__()
        self.answer, self.A, self.asked = tokenizer.encode(answer), A, None
        self.config = Config(len(tokenizer), **{**SMALL, "max_len": max_len})

    def forward(self, tokens):
        self.asked = self.asked or len(tokens)
        return torch.nn.functional.one_hot(torch.tensor([0] * (len(tokens) - 1) + [self.answer[len(tokens) - self.asked]]), self.config.vocab_size)

    def attention_weights(self, tokens):
        return torch.eye(len(tokens)).expand(2, 2, -1, -1) if self.A is None else self.A[..., : len(tokens), : len(tokens)]


@pytest.mark.parametrize("answer, right", [(" At mill. Ben", " At mill."), (" At mill\nBen", " At mill"), (" At mill.\n", " At mill.")])
def test_an_answer_ends_with_its_sentence_or_its_line(answer, right):
    tokenizer = Tokenizer([])
    found = looked(Told(tokenizer, answer), tokenizer, "Anna was at mill.", "Where?")
    assert tokenizer.decode(found.tokens[found.asked :]) == right
    assert found.asked == 1 + len("Anna was at mill.\nWhere?") and found.story == 1 + len("Anna was at mill.\n")
    assert found.word == "" and not found.weights and not found.cut  # letters are no words


@pytest.mark.parametrize("first, second, off", [((0, 1), (1, 0), ()), ((1, 1), (0, 0), ()), ((0, 1), (1, 0), [(0, 1)])])
def test_where_the_head_that_found_the_answer_looked(first, second, off):
    """The weights are those of the row that wrote the answer's longest word, of the head that gave most to its places together; the others look at
    other words and from other rows.
    """
    tokenizer = Tokenizer.train([" Anna Ben the mill hut was at Where" * 9], 283)
    story, question, answer = "Ben was at the hut Anna was at the mill the mill", "Where was Anna?", " At the mill."
    tokens = [tokenizer.start, *tokenizer.encode(story + "\n"), *tokenizer.encode(question), *tokenizer.encode(answer)]
    one, two, written = (j for j, token in enumerate(tokens) if tokenizer.decode([token]) == " mill")
    row = written - 1  # it reads " the" and writes " mill"
    A = torch.zeros(2, 2, len(tokens), len(tokens))
    A[..., 0] = 1
    A[..., row, :] = 0
    A[..., row, one] = 0.1
    A[..., row, 1] = 0.9  # most look at Ben
    for head, shares in ((first, (0.3, 0.5)), (second, (0.1, 0.6))):
        A[*head, row, :2] = torch.tensor([1 - sum(shares), 0.0])
        A[*head, row, [one, two]] = torch.tensor(shares)
    A[0, 0, row - 1, one], A[1, 1, row + 1, one] = 5, 5  # rows that wrote other words
    found = looked(Told(tokenizer, answer, A, max_len=90), tokenizer, story, question, off)
    want, share = (second, 0.7) if off else (first, 0.8)
    assert found.word == "mill" and (found.block, found.head) == want and found.share == pytest.approx(share)
    assert found.tokens == tokens and found.weights == A[*want, row].tolist()
    silent = looked(Told(tokenizer, answer, A, max_len=90), tokenizer, story, question, [(b, h) for b in range(2) for h in range(2)])
    assert silent.word == "" and not silent.weights


def test_of_a_story_too_long_the_end_is_read_and_that_is_said():
    tokenizer = Tokenizer([])
    model = Told(tokenizer, "A hut.", max_len=60)
    story = "Anna was here. " * 5 + "Ben has the hut."
    found = looked(model, tokenizer, story, "Where?")
    assert found.cut and found.asked == 30 and tokenizer.decode(found.tokens[1:]) == (story + "\nWhere?")[-29:] + "A hut."
    assert tokenizer.decode(found.tokens[1 : found.story]) == (story + "\n")[-23:]
    assert "Only the last 29 tokens are read." in still(Told(tokenizer, "A hut."), tokenizer, story, "Where?", "A hut.")
    assert "are read" not in still(Told(tokenizer, "A hut."), tokenizer, "Ben has it.", "Where?", "A hut.")
    assert looked(Told(tokenizer, "A hut.", max_len=900), tokenizer, "a" * 900, "Where?").asked == 320 - 40  # as many as a page computes


def test_an_answer_without_a_word_is_none():
    tokenizer = Tokenizer([])
    assert "The model answers nothing. The story says" in still(Told(tokenizer, "."), tokenizer, "Ben has it.", "Where?", "A hut.")


@pytest.mark.parametrize("mode", [True, False])
def test_a_model_is_read_in_evaluation_mode(mode):
    tokenizer = Tokenizer([])
    torch.manual_seed(0)
    model = TransformerLM(Config(257, **{**SMALL, "max_len": 120}, dropout=0.5)).train(mode)
    assert len({playground(model, tokenizer, stories=[STORY]).data["still"] for _ in range(3)}) == 1
    assert model.training == mode
    tokenizer.token_bytes = None  # an error on the way
    with pytest.raises(TypeError):
        looked(model, tokenizer, "A story.", "Where?")
    assert model.training == mode


NUMPY = """
import copy
import json
import numpy as np
from tlm_book.viewer import attention, clock_hands, descent, epsilon_spread, sampling, softmax_temperature

whole, half = np.int64, np.float32
pairs = [
    [sampling([1.0, 2.0], ["a", "b"], temperature=t(0.5), top_k=n(1), top_p=t(0.01), seed=n(3), shown=n(2)) for n, t in ((whole, half), (int, float))],
    [softmax_temperature({n(1): [1.0], n(4): [2.0]}, width=n(4), temperature=t(2)) for n, t in ((np.int8, half), (int, float))],
    [clock_hands(n(8), position=n(1), offset=n(-2), max_position=n(9), max_offset=n(9), base=t(100)) for n, t in ((np.int16, half), (int, float))],
    [epsilon_spread(t(0.25), sigma=t(0.5)) for t in (half, float)],
    [descent(rate=t(0.25), beta=t(0.5), steps=n(3), start=(t(1), t(-0.5))) for n, t in ((np.uint8, half), (int, float))],
]
views = [attention(["a", "b"], np.eye(2)) for _ in range(2)]
views[0].pinned, views[1].pinned = (whole(1), None), (1, None)
refused = []
for call in (lambda: sampling([1.0], ["a"], top_k=np.True_), lambda: sampling([1.0], ["a"], top_k=np.float64(1)), lambda: sampling([1.0], ["a"], temperature=np.bool_(True))):
    try:
        call()
    except TypeError as error:
        refused.append(str(error))
print(json.dumps([[[view.to_html() for view in pair] for pair in [*pairs, views]], refused]))
"""


def test_numbers_of_numpy_are_numbers():
    done = run_code(NUMPY)
    assert done.returncode == 0, done.stderr
    pages, refused = json.loads(done.stdout)
    assert all(numpys == pythons for numpys, pythons in pages)
    assert [words.split(": got")[0] for words in refused] == ["top_k", "top_k", "temperature"] and len(pages) == 6


def test_a_matrix_that_is_nearly_the_table_is_kept():
    E = np.random.default_rng(0).normal(size=(6, 4))
    near = 2 * E.T
    near[0, 0] *= 1.001
    tied, own = (pack({"E": E, "Y": Y}, bits=32)["names"] for Y in (2 * E.T, near))
    assert tied["tied"] == 0.5 and "Y" not in tied
    assert "tied" not in own and own["Y"]["shape"] == [4, 6]


def test_the_page_reads_no_more_tokens_than_the_model(pair):
    assert playground(*pair).data["longest"] == 16
