"""Graders for the exercises of the chapter translation."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from tlm_book.corpora.french import (
    FRENCH_ADJECTIVES,
    FRENCH_NOUNS,
    noun_phrase,
    plural,
)
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.inference import beam_search

NOTHING = np.array([], dtype=int)  # the text before the first word
Table = Mapping[tuple[int, ...], Sequence[float]]


def model_of(chances: Table, otherwise: Sequence[float] = (1e-9, 0.34, 0.33, 0.33)) -> Callable[[np.ndarray], np.ndarray]:
    """A model with these probabilities after these words (the start marker not counted)."""
    def T(tokens: np.ndarray) -> np.ndarray:
        rows = [chances.get(tuple(int(t) for t in tokens[1:i + 1]), otherwise) for i in range(len(tokens))]
        return np.log(np.maximum(rows, 1e-12))
    return T


def fits(T: Any) -> Iterator[tuple[str, object]]:
    for tokens in (np.array([0]), np.array([0, 2, 3])):
        Z, again = (np.asarray(call(T, tokens, names=["tokens"])) for _ in range(2))
        yield f"For {len(tokens)} tokens the scores have shape {Z.shape}.", Z.ndim == 2 and len(Z) == len(tokens)
        yield "The model gives other scores when it is asked again.", np.array_equal(Z, again, equal_nan=True)


def wider_is_worse(T: Any) -> Iterator[tuple[str, object]]:
    yield from fits(T)
    narrow, wide = (beam_search(T, NOTHING, 4, width, stop=(1,))[0] for width in (1, 2))
    yield "Both beams end with the same sentence.", narrow.tokens != wide.tokens
    yield "The wider beam ends with the more probable sentence.", narrow.log_p > wide.log_p + 1e-6


def short_or_long(T: Any) -> Iterator[tuple[str, object]]:
    yield from fits(T)
    plain, by_length = (beam_search(T, NOTHING, 4, 60, (1,), alpha)[0].tokens for alpha in (0.0, 1.0))
    yield f"With α = 0 the answer has {len(plain)} tokens, counting the end; it should have 1.", plain == (1,)
    yield f"With α = 1 the answer has {len(by_length)} tokens, counting the end; it should have 3.", len(by_length) == 3 and by_length[-1] == 1


def phrases() -> list[tuple[list[str], list[str]]]:
    """Noun phrases of the grammar, each with the same phrase in which an adjective after the noun is moved in front of it."""
    found = []
    after, before = ([a for a in FRENCH_ADJECTIVES if a.place == place] for place in ("after", "before"))
    for noun, number, k in itertools.product(FRENCH_NOUNS[::9], "sp", range(4)):
        for chosen in ([after[k]], [before[k % len(before)]], [before[k % len(before)], after[k]], []):
            words = [word.text for word in noun_phrase(noun, number, "the", chosen, "x")[0]]
            moves = bool(chosen) and chosen[-1].place == "after"
            found.append((words, [*words[:-2], words[-1], words[-2]] if moves else words))
    return found


SENTENCES = {
    "tu es fatiguée": "tu es fatiguée",
    "les homards noirs sont noirs": "les noirs homards sont noirs",
    "l' amie intelligente parle de l' étudiant content": "l' intelligente amie parle de l' content étudiant",
}
PHRASES = {tuple(words): want for words, want in phrases()} | {tuple(french.split()): want.split() for french, want in SENTENCES.items()}
FOLLOWING = {form for a in FRENCH_ADJECTIVES if a.place == "after" for form in (a.masculine, a.feminine)}
EVERY = {form for a in FRENCH_ADJECTIVES for form in (a.masculine, a.feminine)}


def exchanged(move: Callable[[str, str, int], bool]) -> Callable[[list[str]], list[str]]:
    """A wrong order: neighbours change places if `move(one, next, place)` says so."""
    def put_in_order(french: list[str]) -> list[str]:
        words = list(french)
        for i in range(len(words) - 1):
            if move(words[i], words[i + 1], i):
                words[i], words[i + 1] = words[i + 1], words[i]
        return words
    return put_in_order


def first_pair_only(french: list[str]) -> list[str]:
    moved = [i for i, (one, two) in enumerate(zip(french, PHRASES[tuple(french)])) if one != two][:2]
    return [*french[:moved[0]], french[moved[1]], french[moved[0]], *french[moved[1] + 1:]] if moved else french


def six_ways(sentence: Any) -> Iterator[tuple[str, object]]:
    yield "A text is wanted.", isinstance(sentence, str)
    words = sentence.lower().strip(" .!?").split()
    yield "Hand in the English sentence.", words and all(word.isascii() for word in words)
    if words[:2] == ["are", "you"]:
        words[:2] = ["you", "are"]
    yield "In this sentence it is clear who is meant, or how many.", words[0] == "you"
    adjectives = [a for a in FRENCH_ADJECTIVES if a.of_person == words[-1]]
    yield "Use an adjective that describes people: its French form shows who is meant.", words[1:2] == ["are"] and adjectives
    yield 'In this grammar only "not" may stand before the adjective.', words[2:-1] in ([], ["not"])
    forms = {(who, form) for a in adjectives for one in (a.masculine, a.feminine)
             for who, form in (("tu", one), ("vous", one), ("vous", plural(one)))}
    yield f"In this grammar it has {len(forms)} French translations.", len(forms) == 6


@functools.cache
def half_way() -> int:
    """The first step in which the growing part costs more than half of the operations, found by counting."""
    config = EncoderDecoderConfig(9, d_model=8, d_ff=12, n_layers=2, n_heads=2, max_len=99)
    model, cost = EncoderDecoder(config).eval(), []
    state = model.begin(torch.zeros(1, 5, dtype=torch.long))
    for _ in range(99):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            _, state = model.advance(torch.tensor([3]), state)
        cost.append(counter.get_total_flops())
    growth = cost[1] - cost[0]
    return next(i for i in range(1, 99) if growth * i > cost[i - 1] - growth * i)


def free(N: int) -> set[int]:
    """The blocks whose mask can be removed without a change of the last row, found by trying each."""
    found = set()
    for b in range(N):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = EncoderDecoder(EncoderDecoderConfig(9, d_model=8, d_ff=12, n_heads=2, n_layers=N, max_len=9)).double().eval()
        source, target = torch.tensor([[3, 4]]), torch.tensor([[1, 5, 6, 7]])
        before, layer = model(source, target)[0, -1], model.decoder[b].self_attention
        attend: Any = layer.attend
        layer.attend = lambda x, K, V, key_mask=None, causal=False, attend=attend: attend(x, K, V, key_mask)
        if torch.allclose(model(source, target)[0, -1], before, rtol=0, atol=1e-9):
            found.add(b)
    return found


def constant(row: Sequence[float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda tokens: np.log(np.maximum(np.tile(row, (len(tokens), 1)), 1e-12))


EXERCISES = [
    holds(
        "a model `T(tokens)` that returns scores of shape (len(tokens), V), V ≥ 3, such that width 2 ends with a less probable sentence than width 1:"
        " tokens[0] is the start 0, token 1 ends the sentence; at most 4 new tokens",
        wider_is_worse,
        [constant([1e-9, 0.4, 0.3, 0.3]), constant([1e-9, 0.1, 0.5, 0.4]),
         model_of({(): [0, 0.1, 0.5, 0.4], (2,): [0, 0.2, 0.4, 0.4], (3,): [0, 1, 0, 0]}), lambda tokens: np.zeros(4),
         lambda tokens: np.log(np.random.default_rng().dirichlet(np.ones(4), len(tokens)))],
    ),
    holds(
        "a model `T(tokens)` as in exercise 1; at most 4 new tokens",
        short_or_long,
        [constant([1e-9, 0.5, 0.25, 0.25]), constant([1e-9, 0.01, 0.5, 0.49]),
         model_of({(): [0, 0.4, 0.35, 0.25], (2,): [0, 0.9, 0.05, 0.05]}), model_of({(): [0, 0.1, 0.8, 0.1], (2,): [0, 0.1, 0.1, 0.8], (2, 3): [0, 1, 0, 0]})],
    ),
    function(
        "a function `put_in_order(french)` that takes a list of French words and returns them in the new order",
        [(list(words),) for words in PHRASES],
        lambda french: PHRASES[tuple(french)],
        {
            "Adjectives that stand before the noun must not be moved.": exchanged(lambda one, two, i: i > 0),
            "An adjective that follows a verb stays where it is.":
                exchanged(lambda one, two, i: two in FOLLOWING or two.rstrip("s") in FOLLOWING),
            "There may be more than one such noun in a sentence.": first_pair_only,
            "Plural forms are adjectives, too.": exchanged(lambda one, two, i: two in FOLLOWING and one not in ("es", "sont")),
            "Here the whole phrase is reversed, the article included.": lambda french: french[::-1],
            "Nothing is exchanged.": lambda french: list(french),
            "Only the first word after the article is looked at here.": exchanged(lambda one, two, i: i == 1 and two.rstrip("s") in EVERY),
        },
    ),
    holds(
        "the English sentence, as a text",
        six_ways,
        ["I am tired", "you work", "you are young", "the cat is black", "vous êtes fatigué", "you are a student", "they are tired", "you are very tired"],
    ),
    value(
        "the number of that word, counted from 1, for the model `EncoderDecoderConfig(9, d_model=8, d_ff=12, n_layers=2, n_heads=2)` and 5"
        " source tokens",
        half_way,
        {
            "At that word the growing part does not yet cost more than the rest.": 43,
            "Half of the rest is not the rest.": 22,
            "Scores and averages both grow: count them together.": 87,
            "The first step has one word already.": 45,
        },
    ),
    value(
        "two lists of token numbers: what the decoder reads, and what its rows are judged on",
        lambda: ([1, 5, 4], [5, 4, 2]),
        {
            "The first word is predicted from ∅; it has to be judged, too.": ([5, 4], [4, 2]),
            "The last row is judged on the stop token.": ([1, 5], [5, 4]),
            "The stop token is not read: nothing is predicted after it.": ([1, 5, 4, 2], [5, 4, 2]),
            "A row is judged on the next word, not on the one that it reads.": ([1, 5, 4], [1, 5, 4]),
        },
    ),
    value(
        "the number α",
        lambda: float(np.log2(np.log2(3))),
        {
            "2^α = log 3 / log 2 is right; solve it for α.": float(np.log2(3)),
            "|y| counts the stop token in both sentences.": float(np.log(np.log2(3)) / np.log(3)),
            "For α = 1 the longer one already wins.": 1.0,
            "The exponent of a power of 2 is a logarithm to the base 2.": float(np.log(np.log2(3))),
        },
        tol=5e-3,
    ),
    function(
        "a function `free(N)`: the set of those of the blocks 0, …, N − 1 in which the mask may be left out without changing the last row, whatever the"
        " weights are",
        [(1,), (2,), (3,)],
        free,
        {
            "After the last block nothing reads the earlier rows any more.": lambda N: set() if N > 1 else {0},
            "Without the mask the first block changes the earlier rows, and the second reads them.": lambda N: {0},
            "All blocks but the last change rows that the next block reads.": lambda N: set(range(N)),
        },
    ),
]
