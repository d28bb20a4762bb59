"""Graders for the exercises of the chapter auditing."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tlm_book.auditing import audit
from tlm_book.exercises.grading import call, holds


def rows() -> Tensor:
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def hidden(answer: Any) -> Iterator[tuple[str, object]]:
    T, X = answer
    yield "The audit finds this leak in ordinary rows. Make it rarer.", audit(T, rows()).ok
    yield "No leak shows at your X either: the audit of T at X is clean.", not audit(T, X).ok


def blind(answer: Any) -> Iterator[tuple[str, object]]:
    first, second = (audit(T, rows()) for T in answer)
    for which, report in (("first", first), ("second", second)):
        yield f"The audit of the {which} model comes to no verdict: {'; '.join(report.problems or report.notes)}.", report.leaks or not report.undecided
        yield f"The {which} model does not leak.", report.leaks
    yield "Derivatives find the leak of the first model.", all("derivatives" not in leak.ways for leak in first.leaks)
    yield "Replaced rows do not find the leak of the first model.", any("replaced rows" in leak.ways for leak in first.leaks)
    yield "The leak of the second model is found by more than removed rows.", all(leak.ways == ("removed rows",) for leak in second.leaks)


def forgetful(step: Any) -> Iterator[tuple[str, object]]:
    running = lambda X: X.cumsum(-2)
    report = audit(running, rows(), step=step)
    yield f"The audit comes to no verdict: {'; '.join(report.problems or report.notes)}.", report.leaks or not report.undecided
    yield "The audit finds no difference: this cache forgets nothing, or too little to be seen.", report.leaks
    leak = report.leaks[0]
    yield f"The fault is one of {leak.fault}; it should be one of the cache.", leak.fault == "cache"
    yield f"The cache is wrong by {leak.size:.1g}: too much for a billionth of the sum over a few steps.", leak.size < 1e-8
    yield f"The cache is wrong by {leak.size:.1g}: too little for a billionth of the sum.", leak.size > 1e-10
    (old, *_), state = step(torch.ones(1, dtype=torch.float64), None)
    for _ in range(100):
        (old, *_), state = step(torch.zeros(1, dtype=torch.float64), state)
    lost = 1 - float(old)
    yield f"Of a row of ones {lost:.1g} is lost in the next 100 steps, not a billionth in each: the old sum is to be forgotten.", 5e-8 < lost < 2e-7


def counted(c: int, j: int, calls: list[int]) -> Callable[[Tensor], Tensor]:
    """An operator in which row c alone depends on another row, and which notes each of its calls."""
    def T(X: Tensor) -> Tensor:
        calls.append(1)
        Y = X.clone()
        Y[c] += X[j]
        return Y
    return T


def finder(find: Any) -> Iterator[tuple[str, object]]:
    for n, c, j in [(16, 6, 7), (16, 0, 15), (8, 7, 3), (5, 1, 4), (16, 10, 2), (2, 0, 1), (64, 20, 21)]:
        calls: list[int] = []
        found = call(find, counted(c, j, calls), torch.randn(n, 3, generator=torch.Generator().manual_seed(n)))
        most = 2 * (n - 1).bit_length() + 1
        yield f"It names the wrong row (n = {n}): row {found}.", found == c
        yield f"It runs the operator {len(calls)} times for n = {n}; {most} are enough, the run on X itself included.", len(calls) <= most


def by_rows(T: Callable[[Tensor], Tensor], X: Tensor) -> int:
    for j in range(len(X)):
        other = X.clone()
        other[j] += 1
        found = set((T(other) != T(X)).any(-1).nonzero().flatten().tolist()) - {j}
        if found:
            return found.pop()
    return -1


def one_round_a_bit(T: Callable[[Tensor], Tensor], X: Tensor) -> int:
    found, Y = set(), T(X)
    for bit in range((len(X) - 1).bit_length()):
        rows = [j for j in range(len(X)) if j >> bit & 1]
        other = X.clone()
        other[rows] += 1
        found |= set((T(other) != Y).any(-1).nonzero().flatten().tolist()) - set(rows)
    return found.pop() if found else -1


mean = lambda X: X + X.mean(-2, keepdim=True)

EXERCISES = [
    holds(
        "a pair `(T, X)`: a model T whose leak `audit(T, x)` does not find for ordinary rows x, and rows X at which it does",
        hidden,
        [(lambda X: X.cumsum(-2), rows()), (mean, rows()), (lambda X: mean(X) * (X.amax() > 1e6), rows()), (lambda X: 2 * X, 1e6 * rows())],
    ),
    holds(
        "a pair `(T, S)` of models: the leak of T is found by replaced rows and not by derivatives, that of S by removed rows only",
        blind,
        [(mean, lambda X: X / X.shape[-2]), (lambda X: X.argsort(-2).argsort(-2).to(X), mean),
         (lambda X: X / X.shape[-2], lambda X: X.argsort(-2).argsort(-2).to(X)), (lambda X: X.round(), lambda X: X / X.shape[-2]),
         (lambda X: X.argsort(-2).argsort(-2).to(X), lambda X: X / 0 + X.missing)],
    ),
    holds(
        "a function `step(row, total)` that returns the new sum twice, as result and as state; at first `total` is None",
        forgetful,
        [lambda row, total: (row if total is None else row + total,) * 2,
         lambda row, total: (row if total is None else row + 0.9 * total,) * 2,
         lambda row, total: (row if total is None else row + (1 - 1e-6) * total,) * 2,
         lambda row, total: (row if total is None else (1 - 1e-9) * (row + total) / (1 - 1e-9),) * 2,
         lambda row, total: (row if total is None else total + (1 - 1e-9) * row,) * 2, lambda row, total: (row + (1 - 1e-9) * total,) * 2],
    ),
    holds(
        "a function `find(T, X)` that returns the number of the output row that depends on another row",
        finder,
        [by_rows, one_round_a_bit, lambda T, X: 0, lambda T, X: len(X) - 2],
    ),
]
