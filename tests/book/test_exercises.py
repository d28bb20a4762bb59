"""The graders: each exercise of the book has one, typical wrong answers are recognised, and whatever an answer does is said plainly."""

import contextlib
import functools
import json
import math
import re
import signal
import sys
import time
from pathlib import Path

import chapters as book
import numpy as np
import pytest
import torch
from commands import run_script

from tlm_book import exercises
from tlm_book.exercises import check, grading
from tlm_book.exercises.grading import call, difference, value
from tlm_book.tokenization import PATTERN
from tlm_book.transformer_lm import Config, count_parameters

NUMBER = re.compile(r"^(?:\*\*(\d+)\.|### Exercise (\d+)\b)", re.M)
GRADED = exercises.chapters()
SCRIPT = Path(__file__).parents[1] / "support" / "wrong_answers.py"


def section(chapter: str) -> tuple[str, list[str]]:
    """The text of a chapter's exercises, and their solutions."""
    text, solutions, inside = [], [], False
    for cell in book.read(chapter).cells:
        if cell.cell_type == "markdown" and re.search(r"^## ", cell.source, re.M):
            inside = re.findall(r"^## (.+)$", cell.source, re.M)[-1] == "Exercises"
        if inside and cell.cell_type == "markdown":
            text.append(cell.source)
        elif inside and "hide-cell" in cell.metadata.get("tags", []):
            solutions.append(cell.source)
    return "\n\n".join(text), solutions


@pytest.mark.parametrize("chapter", [name for name in book.chapters() if name not in book.appendices()])
def test_every_exercise_has_a_grader_and_its_solution_passes_it(chapter):
    """The solutions run with the notebooks; here: each of them calls the grader, and the text says what the grader wants."""
    text, solutions = section(chapter)
    assert chapter in GRADED, f"src/tlm_book/exercises/{chapter}.py is missing"
    graders = exercises.exercises(chapter)
    numbers = [int(a or b) for a, b in NUMBER.findall(text)]
    assert numbers == list(range(1, len(graders) + 1)), f"exercises {numbers}, graders {list(graders)}"
    assert len(solutions) == len(graders)
    for (name, exercise), solution in zip(graders.items(), solutions):
        assert re.search(rf'^assert check\(\s*"{name}"', solution, re.M), f"{name}: the solution is not graded"
        assert f"*Hand in* {exercise.wants}" in text, f"{name}: the text does not say what the grader wants:\n{exercise.wants}"


@functools.cache
def outcomes() -> dict[str, list[list[str]]]:
    """{exercise: [[what was handed in, the hint it should get or "", the hint it got], …]}, without the runtime type checker."""
    result = run_script(SCRIPT)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_wrong_answers_are_recognised():
    """Typical ones, three at least for each exercise, with the hint that is meant for them; and nonsense, which breaks no grader."""
    assert list(outcomes()) == [name for chapter in GRADED for name in exercises.exercises(chapter)]
    for name, handed_in in outcomes().items():
        assert sum(answer.startswith("typical") for answer, _, _ in handed_in) >= 3, f"{name}: three typical wrong answers are wanted"
        for answer, expected, hint in handed_in:
            assert hint, f"{name}: passes with a wrong answer ({answer})"
            assert expected in ("", hint), f"{name}, {answer}: wanted the hint {expected!r}, got {hint!r}"


def zero_division(*inputs):
    return 1 / 0


def test_an_outer_limit_counts_the_time_within_inner_ones():
    began = time.monotonic()
    with pytest.raises(BaseException) as stopped, grading.time_limit(0.4):
        for _ in range(20):
            with grading.time_limit(5):
                time.sleep(0.1)
    assert type(stopped.value).__name__ == "_TimeUp" and time.monotonic() - began < 1.2


def test_what_an_answer_does_is_said_plainly(monkeypatch):
    monkeypatch.setattr(grading, "SECONDS", 0.2)

    def forever(Y):
        while True:
            pass

    def swallows(Y):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    def spoils(Y):
        Y[:] = np.cumsum(Y, axis=0)
        return Y

    def nudges(Y):
        Y[-1] += 1e-6
        return np.cumsum(Y, axis=0)

    assert "still running after 0.2 seconds" in check("operators-1", forever).hint
    assert "still running after 0.2 seconds" in check("operators-1", swallows).hint
    assert "changes its input" in check("operators-1", spoils).hint and "changes its input" in check("operators-1", nudges).hint
    assert "ZeroDivisionError" in check("operators-1", zero_division).hint and "shape (3, 3)" in check("operators-1", zero_division).hint
    assert "Is there a `return`?" in check("operators-1", lambda Y: None).hint
    assert "The answer must be a function" in check("operators-1", np.eye(3)).hint
    assert "takes 0 positional arguments" in check("operators-1", lambda: 0).hint


def test_nothing_that_an_answer_does_is_raised(capsys):
    """Leaving, raising when compared or shown, numbers that numpy lacks: wrong, and said so; a tensor in bfloat16 is a right answer."""

    class Odd:
        def __getattr__(self, name: str) -> None:
            raise RuntimeError

        __repr__ = __eq__ = __array__ = __getattr__

    assert "It raises SystemExit" in check("attention-1", lambda q, k: sys.exit(3)).hint
    assert "RecursionError" in check("attention-1", functools.partial(lambda f, q, k: f(f, q, k), lambda f, q, k: f(f, q, k))).hint
    assert "its type is generator, but numbers are wanted" in check("attention-1", lambda q, k: (i for i in range(3))).hint
    assert "cannot be compared with what is wanted: that raises RuntimeError" in check("attention-1", lambda q, k: Odd()).hint
    assert "cannot be compared" in check("attention-1", lambda q, k: torch.ones((), device="meta")).hint
    assert "too large to be compared" in check("attention-1", lambda q, k: 10**400).hint
    assert "cannot be compared" in check("auditing-3", lambda *_: sys.exit(3)).hint
    assert "not the right number" in check("attention-1", lambda q, k: print("0.5") or float(bool(check("attention-1", lambda q, k: 0.5)))).hint
    assert not capsys.readouterr().err
    for as_tensor in (torch.Tensor.bfloat16, torch.Tensor.to_sparse, torch.Tensor.requires_grad_):
        assert not grading.difference(as_tensor(torch.eye(2)), np.eye(2))


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda Y: np.cumsum(Y, axis=0).T, "it is the transpose of what is wanted"),
    (lambda Y: np.cumsum(Y, axis=0)[:1], "it has shape (1, 3), but (3, 3) is wanted"),
    (lambda Y: -np.cumsum(Y, axis=0), "the sign is wrong"),
    (lambda Y: 3 * np.cumsum(Y, axis=0), "3 times what is wanted"),
    (lambda Y: 1.05 * np.cumsum(Y, axis=0), "1.05 times what is wanted"),
    (lambda Y: np.cumsum(Y, axis=0) + 2, "off by 2"),
    (lambda Y: np.cumsum(Y, axis=0)[::-1], "in reverse order"),
    (lambda Y: np.cumsum(Y, axis=0) * np.append(np.ones(len(Y) - 1), 2)[:, None], "2 of 3 rows are right; row 2 is the first that is not"),
    (lambda Y: np.cumsum(Y, axis=0).round(4), "nearly right"),
    (lambda Y: np.cumsum(Y, axis=0) / 0 if len(Y) > 3 else np.cumsum(Y, axis=0), "Right for 3 of 6 inputs"),
    (lambda Y: Y if len(Y) == 1 else Y**2, "Right for 1 of 6 inputs"),
    (lambda Y: np.cumsum(Y, axis=0).astype(np.float16), "nearly right"),
    (lambda Y: 1.00001 * np.cumsum(Y, axis=0), "nearly right"),
])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_an_error_of_no_known_kind_is_described(wrong, words):
    hint = check("operators-1", wrong).hint
    assert words in hint, hint


def test_the_right_answer_is_right_and_says_so():
    result = check("operators-1", lambda Y: np.cumsum(Y, axis=0))
    assert result and repr(result) == "operators-1: right." and result.hint == ""
    assert check("decoder-block-1", lambda d, f: (4 * d * d + d, 2 * d * f + f + d, 4 * d))  # a dash does as well


@pytest.mark.parametrize(("name", "words"), [
    ("atention-1", "attention-1"), ("attention-9", "attention-6"), ("attention", "attention-1"), ("", "operators-1"), ("loss-", "loss-1"),
    ("multihead-2", "multi_head-1"), ("nomalization", "such as normalization-1"),
])
def test_an_exercise_that_is_not_there_is_named(name, words):
    with pytest.raises(ValueError, match=rf"exercise: got '{name}', want .*{words}"):
        check(name, None)


def test_numbers_that_are_wanted_one_by_one_may_come_as_an_array():
    for right in ((1, 6), [1, 6], np.array([1.0, 6.0]), torch.tensor([1.0, 6.0])):
        assert grading.difference(right, (1, 6)) == ""
    assert grading.difference(np.array([1.0, 7.0]), (1, 6)) and "not a tuple of length 2" in grading.difference(np.ones(3), (1, 6))


def test_a_pattern_drawn_anew_each_time_is_refused():
    rng = np.random.default_rng(0)

    def drawn(X):
        A = np.tril(rng.random((len(X), len(X))))
        return A / A.sum(axis=1, keepdims=True)

    assert "have another pattern when it is asked again" in check("attention-6", drawn).hint


def test_one_number_is_no_array_of_equal_numbers():
    assert "shape" in grading.difference(1.0, np.ones(3)) and "shape" in grading.difference(np.ones((3, 1)), np.ones(3))
    assert not grading.difference(np.ones((1, 1)), 1.0) and not grading.difference([1, 2], np.array([1.0, 2.0]))


def test_a_difference_is_described_without_what_is_wanted():
    for want in (12345, 0.98765, np.array([4321.0, 8765.0]), {"secret"}, "secret", (4321, "secret")):
        for got in (1, -1.5, np.array([1.0, 2.0]), {"other"}, "other", (1, 2), None, object()):
            words = grading.difference(got, want)
            assert words and not re.search(r"12345|0\.98|4321|8765|secret", words), words


def test_right_answers_in_other_clothes_are_right():
    """Single precision, truth values of torch, tensors and lists where arrays are used, another order of kept tokens."""
    single = torch.tensor([[1.0, 9.0], [8 / 3, 4.0]])
    assert check("encoder_decoder-7", single) and check("encoder_decoder-7", single.numpy())
    assert check("training-5", torch.tensor([11 / 30, 19 / 30])) and check("heads-5", (torch.tensor(77 / 240), torch.tensor(9 / 40)))
    assert check("heads-5", (torch.tensor(77 / 240), 9 / 40)) and not check("heads-5", (77 / 240 + 1e-7, 9 / 40))
    assert check("feed_forward-4", lambda activation, c: torch.tensor(c == 1 or (activation == "relu" and c > 0)))
    assert check("feed_forward-2", lambda W, b, V, c: (torch.from_numpy(W @ V), torch.from_numpy(b @ V + c)))
    assert check("inference-5", lambda p, q: (np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()).tolist())
    assert check("inference-1", lambda gap, p: np.array([gap / np.log(p / (1 - p))]))
    assert check("inference-6", ({0}, {1, 0}, [3, 2, 1, 0]))
    assert check("graph_networks-2", lambda f: ([[[1] * f], [[1]] * f], [[-i - 0.5 for i in range(f)], [0]]))
    assert check("word_vectors-1", lambda E, C: ((E * [10, 1, 1]).tolist(), (C / [10, 1, 1]).tolist()))


def test_every_kind_of_right_answer_is_right():
    """Questions and negations, corners far apart, other numbers than digits cut in another way, a parabola in place of a circle."""
    for sentence in ("Are you tired?", "are you not tired ?", "You are not new.", "you are pretty"):
        assert check("translation-4", sentence), sentence
    assert check("graph_networks-2", lambda f: ([np.ones((1, f)), np.ones((f, 1))], [-(10.0 ** np.arange(f)), np.zeros(1)]))
    assert check("graph_networks-2", lambda f: ([np.where(np.arange(f) % 2, -1e-3, 5)[None], -np.ones((f, 1))], [np.arange(f) + 1, np.ones(1)]))
    numbers = r" ?\p{N}+"
    for digits in (r"\p{N}", r"\d| ?(?:(?!\d)\p{N})+"):
        assert check("tokenization-5", PATTERN.replace(numbers, digits)), digits
    for step in (1, -1):  # whatever the order in which the k likeliest are added up, u may be on a boundary
        likeliest = lambda p, k: sorted(range(len(p)), key=lambda j: -p[j])[:k]
        total = lambda p, k, step=step: sum(p[j] for j in likeliest(p, k)[::step])
        assert check("playground-4", lambda p, k, u: next(
            j for j in range(len(p)) if sum(p[i] / total(p, k) for i in likeliest(p, k) if i <= j) > u)), step
    parabola = lambda n, i: (np.stack([i, np.ones(n)], 1), 20 * np.stack([i, -(i**2) / 2], 1))
    assert check("multi_head-5", lambda n: parabola(n, np.arange(float(n))))
    assert check("attention-5", lambda p, K: np.linalg.pinv(K[1:] - K[0]) @ (np.log(p[1:]) - np.log(p[0])))
    assert check("positional_encoding-8", torch.block_diag(torch.tensor([[-1.0]]), torch.tensor([[0.6, -0.8], [0.8, 0.6]])))


def undone_by(steps):
    return lambda f, Z: functools.reduce(lambda X, _: Z - f(X), range(steps), Z)


@pytest.mark.parametrize(("name", "wrong", "words"), [
    ("translation-4", "you are banana tired", 'only "not" may stand before the adjective'),
    ("attention-5", lambda p, K: np.linalg.lstsq(K, np.log(p), rcond=None)[0], "hardly ever a query with the scores log p"),
    ("feed_forward-1", [([[1, -1]], [0, 0], [[1], [1]], [0]), ([[1]], [10], [[1]], [-10])], "The layer for x is right only near 0"),
    ("graph_networks-1", ([[[1, 1]], [[2], [3]]], [[0, 10], [-30]]), "right only near 0"),
    ("tokenization-5", PATTERN.replace(r" ?\p{N}+", r"\d"), "The pieces of 'x² ½' do not make up the text: ['x', ' ']"),
    ("normalization-1", lambda x, b: (np.where(x == x.max(), 1, -1) if len(x) == 2 else 0 * x) + b, "Two equal numbers"),
    ("normalization-2", lambda d: np.eye(d)[0] + 0.003 * np.where(np.arange(d) % 2, 1, -1), "Right for 4 of 6 inputs. For d = 100"),
    ("normalization-2", lambda d: np.eye(d)[0], "so small that ε matters"),
    ("normalization-5", lambda x: 1e-6 * np.stack([np.ones(len(x)), x**2]), "One of the directions changes std(x)"),
    ("multi_head-5", lambda n: [c * np.exp(2j * np.pi * np.arange(n) / n).view(float).reshape(n, 2) for c in (1, 1000)], "For n = 2000"),
    ("auditing-2", (lambda X: X.argsort(-2).argsort(-2).to(X), lambda X: X.missing), "no verdict: tried in eval, float64: not possible (AttributeError"),
    ("auditing-3", lambda row, total: (0.5 * total + row,) * 2, "no verdict: decoding with a cache: TypeError"),
    ("operators-9", lambda X: np.tile(X.sum(axis=0), (len(X), 1)).astype(np.float32), "in single precision, which may be too little"),
    ("training-4", lambda y, w, N, W: -np.float32((w * y).sum() * N / len(y) / W), "in single precision, which may be too little"),
    ("decoder_block-4", undone_by(100), "no fixed number is enough"),
    ("decoder_block-4", undone_by(200), "nearly right"),
])
def test_what_is_right_only_in_easy_cases_is_wrong(name, wrong, words):
    hint = check(name, wrong).hint
    assert words in hint, hint


def averaged_momentum():
    w, m = np.ones(2), np.zeros(2)
    for _ in range(2):
        m = m / 2 + w * [1, 4] / 2
        w = w - m / 4
    return w


@pytest.mark.parametrize(("name", "wrong", "words"), [
    ("optimization-1", averaged_momentum(), "the whole gradient"),
    ("encoder_decoder-7", np.array([[1, 3, 1], [2, 1, 1]]) / [[5], [4]] @ [[4, 0], [0, 12], [0, 0]], "The third source row is padding"),
    ("transformer_lm-1", -(-(count_parameters(Config(1)) - 1025) // 1024), "The final layer has a bias"),
    ("overview-2", [[8, 0], [4, 4], np.log([2, 5]) / np.log(10) @ [[4, 4], [0, 8]]], "not to the scores"),
    ("translation-7", math.log(math.log(9) / math.log(4), 3), "counts the stop token in both"),
    ("inference-7", (2 * 24 * 2 * 64, 2 * 24 * 2 * 64 * 32_768), "a number takes two bytes"),
    ("inference-7", (24 * 2 * 64 * 2, 24 * 2 * 64 * 2 * 32_768), "A key and a value are kept"),
    ("fast_tokenization-1", ([257, 258], [257, 258]), "bc is joined first"),
])
def test_a_mistake_carried_out_to_the_end_gets_its_hint(name, wrong, words):
    hint = check(name, wrong).hint
    assert words in hint, hint


def test_nearly_right_numbers_are_said_to_be_so_and_whole_ones_have_to_be_exact():
    for name, rounded in (("training-5", (0.367, 0.633)), ("overview-3", (1.386, 2.773)), ("encoder_decoder-7", [[1, 9], [2.667, 4]])):
        assert "nearly right" in check(name, rounded).hint
    assert not check("embedding-2", (50_257 * 768, 1000 * 50_257 * 768 - 1))
    assert not check("pretrained-3", (6_230_444_800 - 4 * 3200, 0.052)) and check("pretrained-3", (6_230_444_800, 0.052))
    assert "imaginary" in check("encoder_decoder-6", np.array([522 + 3j])).hint
    assert check("normalization-8", np.array([1, -1, 1, 1]) + 1e-17j)  # as rounding leaves it
    assert "None" in check("overview-1", None).hint
    assert "Weights of two layers" in check("feed_forward-1", (np.ones((1, 1)),) * 4).hint


def test_elements_too_many_and_elements_that_are_missing_are_counted_apart():
    assert difference({1, 2, 3}, {1}) == "wrong elements: 2, missing elements: 0"
    assert difference({1, 4}, {1, 2, 3}) == "wrong elements: 1, missing elements: 2"


def test_a_dictionary_is_right_with_the_right_keys_in_their_order():
    assert difference({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0}) == ""
    for other in ({"a": 1.0, "c": 2.0}, {"b": 1.0, "a": 2.0}, [1.0, 2.0]):
        assert difference(other, {"a": 1.0, "b": 2.0}) == "it is not a dictionary with the right keys"


def test_ctrl_c_while_an_answer_runs_is_no_wrong_answer():
    def answer():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(answer)


def test_a_tensor_is_put_to_use_as_an_array():
    exercise = value("an array", lambda: 2.0, {}, through=lambda array: array.astype(float).max())
    assert exercise.judge(torch.tensor([1.0, 2.0])) == exercise.judge(np.array([2, 1])) == ""


def test_nan_and_infinity_are_named_where_they_are_not_wanted():
    assert difference(np.array([np.nan, 1]), np.ones(2)) == "it contains nan (not a number): look for 0/0 or ∞ − ∞"
    assert difference(np.array([np.inf, 1]), np.ones(2)) == "it contains an infinite number: look for a division by 0 or an overflow of exp"
    for odd in (np.nan, np.inf):
        assert difference(np.array([odd, 1, 3]), np.array([odd, 1, 3])) == ""
        assert difference(np.array([odd, 2, 3]), np.array([odd, 1, 3])) == "2 of 3 rows are right; row 1 is the first that is not"


def test_what_is_wrong_in_one_place_is_said_of_that_place():
    assert difference((1, 3), (1, 2)) == "in entry 1, it is not the right number"
    assert difference(False, True) == "it says False, which is wrong" and difference(True, False) == "it says True, which is wrong"
    assert difference(b"a", "a") == "its type is bytes, but a text is wanted"


def test_inputs_are_described_by_shape_or_value():
    inputs = (np.zeros((2, 3)), 2, np.array(0.5), zero_division)
    assert grading.describe(("x", "c", "p", "f"), inputs) == "x of shape (2, 3), c = 2, p = array(0.5), a certain f"


def test_a_result_that_is_put_to_use_is_judged_by_its_use():
    exercise = grading.function("f", [(1.0,), (2.0,)], lambda x: x, {}, through=lambda result, x: abs(result))
    assert exercise.judge(lambda x: -x) == ""
    assert exercise.judge(lambda x: x + 1) == "Right for 0 of 2 inputs. For x = 1.0: put to use, it is not the right number."


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs a timer")
def test_properties_are_tried_for_a_limited_time_and_the_timer_is_as_before(monkeypatch):
    monkeypatch.setattr(grading, "SECONDS", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(grading.WrongAnswer, match="The answer takes too long. Does its loop end?"):
        grading.holds("f", lambda f: [("", f())], []).judge(lambda: time.sleep(5) or True)
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
