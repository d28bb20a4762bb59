"""Byte pair merges, one at a time: the reader steps through a sentence and sees its tokens fuse. Written by hand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import traitlets

from tlm_book.checks import expects, is_whole, refuse
from tlm_book.viewer.base import (
    Picture,
    bdi,
    kind,
    module,
    shown_title,
    shown_token,
    table,
)
from tlm_book.viewer.drawn import tokens as drawn_tokens

__all__ = ["MergeStepper", "merge_stepper"]

MAX_TOKENS = 400
FALLBACK_STEPS, FALLBACK_TOKENS = 16, 60

Token = str | bytes


class MergeStepper(Picture):
    """The picture that `merge_stepper` returns; `step` is the number of merges applied.
    """

    _esm = module("merge_stepper")
    _word = "merges"
    step = traitlets.Int(0).tag(sync=True, picture=True)

    @traitlets.validate("step")
    def _in_range(self, proposal: Mapping[str, Any]) -> int:
        got, last = proposal["value"], len(self.data["merges"])
        expects(0 <= got <= last, "step", got, f"a step from 0 to {last}", IndexError)
        return got

    def _states(self) -> list[list[int]]:
        """The numbers of the tokens' names in every state, as the page computes them."""
        states = [self.data["start"]]
        for merge in self.data["merges"]:
            states.append(_fuse(states[-1], merge["token"], merge["at"]))
        return states

    def __repr__(self) -> str:
        sizes = [len(state) for state in self._states()]
        return f"<merge stepper: {sizes[0]} tokens become {sizes[-1]} in {len(sizes) - 1} merges; step {self.step}>"

    def _fallback(self) -> str:
        names, states, merges = self.data["names"], self._states(), self.data["merges"]
        rows = []
        for k, state in list(enumerate(states))[: FALLBACK_STEPS + 1]:
            left, right = merges[k - 1]["pair"] if k else (None, None)
            shown = " · ".join(bdi(names[t]) for t in state[:FALLBACK_TOKENS])
            more = f" · … ({len(state) - FALLBACK_TOKENS} more)" if len(state) > FALLBACK_TOKENS else ""
            rows.append([str(k), f"{bdi(names[left])} + {bdi(names[right])}" if k else "", str(len(state)), shown + more])
        cut = f" (the first {FALLBACK_STEPS} of {len(merges)})" if len(merges) > FALLBACK_STEPS else ""
        return table(f"{self.data['title'] or 'Merges, one at a time'}{cut}.", ["step", "fused", "tokens", "the text"], rows)


    def _figure(self) -> Any:
        k, merges = self.step, self.data["merges"]
        at = merges[k]["at"] if k < len(merges) else []
        texts = [self.data["names"][token] for token in self._states()[k]]
        title = f"{self.data['title'] or 'Merges, one at a time'}: step {k} of {len(merges)}, {len(texts)} tokens"
        return drawn_tokens(title, texts, [i for left in at for i in (left, left + 1)])


def merge_stepper(
    states: Iterable[Sequence[Token]],
    *,
    ranks: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
    title: str | None = None,
) -> MergeStepper:
    """The merges of a text as a picture to step through: the pair about to fuse is marked, and the tokens are counted.

    states  the text as tokens before the first merge, after the first, …: lists of str or of bytes, none empty. Each
            state comes from the one before by fusing one pair of neighbouring tokens (a, b) into a + b, in one place or
            in several; the picture finds the pair and the places itself.
    ranks   for each merge, the number of its rule in the tokenizer; shown where given.
    counts  for each merge, how often its pair was counted in training; shown where given.
    title   a line above the picture.

    Tokens are shown as text whatever they contain; spaces, line ends and invisible characters get visible signs. Bytes
    that are UTF-8 are shown as their text, other bytes in the form ‹C3›. `view.step` follows the reader in a live notebook.

    Raises TypeError (tokens of another type, ranks or counts that are not whole numbers), ValueError (no state, no token,
    an empty token, more than 400 tokens; a state that does not follow from the one before by one pair; a wrong number of
    ranks or counts); setting `step` to a number that is out of range raises IndexError.

    >>> merge_stepper([["a", "a", "b", "a", "a"], ["aa", "b", "aa"], ["aab", "aa"]], counts=[4, 2])
    <merge stepper: 5 tokens become 2 in 2 merges; step 0>
    """
    title = shown_title(title)
    texts = _states(states)
    names: dict[Token, int] = {}

    def name(token: Token) -> int:
        return names.setdefault(token, len(names))

    start, merges = [name(t) for t in texts[0]], []
    for k, (before, after) in enumerate(zip(texts, texts[1:])):
        at = _fused_at(before, after, k + 1)
        left, right = before[at[0]], before[at[0] + 1]
        merges.append({"pair": [name(left), name(right)], "token": name(left + right), "at": at})
    for key, numbers in (("rank", ranks), ("count", counts)):
        for merge, value in zip(merges, _numbers(f"{key}s", numbers, len(merges))):
            merge[key] = value
    shown = [shown_token(token) for token in names]
    return MergeStepper(data={"names": shown, "start": start, "merges": merges, "title": title})


def _states(states: Iterable[Sequence[Token]]) -> list[list[Any]]:
    """The states as lists of tokens of one type. Errors as in `merge_stepper`."""
    wants = "a list of lists of str or bytes, one list a state"
    expects(not isinstance(states, (str, bytes)) and hasattr(states, "__iter__"), "states", kind(states), wants, TypeError)
    texts = []
    for k, state in enumerate(states):
        right = not isinstance(state, (str, bytes)) and hasattr(state, "__iter__")
        expects(right, "states", f"{kind(state)} at {k}", wants, TypeError)
        texts.append(list(state))
    expects(len(texts) > 0, "states", "no state", "at least one: the tokens before the first merge")
    first = texts[0][0] if texts[0] else ""
    for k, text in enumerate(texts):
        expects(1 <= len(text) <= MAX_TOKENS, "states", f"{len(text)} tokens at state {k}", f"from 1 to {MAX_TOKENS}")
        for token in text:
            right = isinstance(token, (str, bytes)) and isinstance(token, type(first))
            expects(right, "states", f"a token of type {kind(token)} at state {k}", "all str or all bytes", TypeError)
            expects(len(token) > 0, "states", f"an empty token at state {k}", "tokens of at least one character")
    return texts


def _fused_at(before: list[Any], after: list[Any], k: int) -> list[int]:
    """The places in state k − 1 of the left tokens of the fused pairs. ValueError if no single pair leads to state k."""
    wants = "the tokens of the state before with one pair of neighbours fused"
    at, pairs, i = [], set(), 0
    for token in after:
        if i < len(before) and before[i] == token:
            i += 1
        elif i + 1 < len(before) and before[i] + before[i + 1] == token:
            at.append(i)
            pairs.add((before[i], before[i + 1]))
            i += 2
        else:
            refuse("states", f"{token!r:.60} in state {k}", wants)
    expects(i == len(before), "states", f"state {k} without the last {len(before) - i} tokens", wants)
    expects(len(pairs) == 1, "states", f"{len(pairs)} pairs fused in state {k}", wants)
    return at


def _fuse(state: Sequence[int], token: int, at: Sequence[int]) -> list[int]:
    """The state with each place and its right neighbour replaced by the token."""
    left, right = set(at), {i + 1 for i in at}
    return [token if i in left else t for i, t in enumerate(state) if i not in right]


def _numbers(argument: str, numbers: Sequence[int] | None, n: int) -> list[int]:
    """One whole number ≥ 0 for each merge, or none at all."""
    if numbers is None:
        return []
    expects(hasattr(numbers, "__iter__"), argument, kind(numbers), "a list of whole numbers, one for each merge", TypeError)
    numbers = list(numbers)
    expects(len(numbers) == n, argument, f"{len(numbers)} numbers", f"{n}, one for each merge")
    for x in numbers:
        expects(is_whole(x), argument, repr(x), "a whole number", TypeError)
        expects(x >= 0, argument, x, "a number ≥ 0")
    return [int(x) for x in numbers]
