"""Graders for the exercises of the chapter heads."""

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.spec.attention import attention_pattern
from tlm_book.spec.heads import induction_score


def said(m: int, times: int) -> np.ndarray:
    return np.array([0, *list(range(1, m + 1)) * times])


def by_hand(t: np.ndarray, back: int = 1, beta: float = 20.0) -> np.ndarray:
    """The pattern of the second head when the first looks `back` places back."""
    n, token = len(t), np.eye(t.max() + 1)[t]
    slot = attention_pattern(beta * np.eye(n, k=-back), np.eye(n), scale=1.0) @ token
    return attention_pattern(beta * token, slot, scale=1.0)


def mistaken() -> set[int]:
    """The m up to 10 for which a head that always looks back the same way has an induction score."""
    found = set()
    for m in range(1, 11):
        t = said(m, 2)
        heads = [np.eye(len(t)), np.eye(len(t), k=-1)]  # row 0 does not count
        if any(induction_score(A, t) > 0 for A in heads):
            found.add(m)
    return found


def weight(r: int) -> float:
    """What row 1 of round r gives to what followed the first copy of its token."""
    m = 4
    return float(by_hand(said(m, r))[(r - 1) * m + 1, 2])


def copied(m: int, back: int) -> int:
    """The place of the token that the forecast copies in the first row of the second round."""
    A = by_hand(said(m, 2), back)[m + 1]
    return int(A.argmax())


EXERCISES = [
    value(
        "the set of all m from 1 to 10 for which one of the two heads has an induction score above 0",
        mistaken,
        {
            "For m = 2 the token before is what followed the earlier copy. But look at m = 1, too.": {2},
            "For m = 1 the row itself is what followed the earlier copy. But look at m = 2, too.": {1},
            "The two heads score when the place i − m + 1 is i or i − 1.": {1, 2, 3},
            "They do score for some m: look at the shortest texts.": set(),
        },
    ),
    function(
        "a function `weight(r)`: the weight, as β grows without end, that a row of round r ≥ 2 (not its last) gives to the place"
        " after the *first* copy of its token",
        [(2,), (3,), (4,), (7,)],
        weight,
        {
            "All earlier copies have the same score; the last is not preferred.": lambda r: float(r == 2),
            "The first copy is not preferred either.": lambda r: 1.0,
            "In round r there are r − 1 earlier copies.": lambda r: 1 / r,
            "The weights of a row sum to 1: divide by the number of earlier copies.": lambda r: r - 1.0,
        },
        tol=1e-4,
    ),
    function(
        "a function `copied(m, back)`: the place that the second head looks at in row m + 1, the first of the second round, when the"
        " first head looks `back` places back, 1 ≤ back ≤ m",
        [(4, 1), (4, 2), (6, 3), (9, 5), (2, 2)],
        copied,
        {
            "This is right for the machine of the chapter only: the place after the copy.": lambda m, back: 2,
            "It looks at the row whose slot holds its token. Which row has written it there?": lambda m, back: 1,
            "Back is not ahead: row j holds the token of place j − back.": lambda m, back: m + 1 - back,
            "One place too few.": lambda m, back: back,
        },
    ),
]
