"""Reuse of rows that have been multiplied by a weight before, for the sweep over all cuts of a large model."""

from collections import Counter
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from tlm_book.auditing.onlooker import Onlooker
from tlm_book.auditing.tensors import tensors_in
from tlm_book.auditing.trial import Trial

PRODUCTS = torch.ops.aten.mm.default, torch.ops.aten.addmm.default


class KnownRows(Onlooker):
    """Runs a model; in a product XW or XW + b with weights W and b, a row of X that is as in the last run gets the result of that run.

    This hides no leak: row i of a product depends on row i of X only, and all rows that differ, by however little, are computed.
    Tensors that a model computes from its weights do not count as weights; once it writes into a weight, everything is computed.
    """

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.trial, self.room = trial, trial.plan.options.memory
        weights = [t for m in trial.modules.values() for t in m._parameters.values() if t is not None]
        kept = [t.untyped_storage() for t in weights if t.layout == torch.strided]
        self.held = {storage.data_ptr(): storage for storage in kept}  # held, so that nothing else gets their memory
        self.known: dict[Any, tuple[Tensor, Tensor]] = {}
        self.turn: Counter[Any] = Counter()

    def rows(self, x: Shaped[Tensor, "batch n *d"]) -> Shaped[Tensor, "batch m e"]:
        """The output for these sequences."""
        self.turn.clear()
        with self:
            return self.trial.rows(x)

    def is_weight(self, t: Shaped[Tensor, "..."]) -> bool:
        return t.layout == torch.strided and t.untyped_storage().data_ptr() in self.held

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func._schema.is_mutable:
            given = dict(zip((a.name for a in func._schema.arguments), args)) | kwargs
            written = [given.get(a.name) for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
            if any(map(self.is_weight, tensors_in(written))):
                self.held.clear()
        if func in PRODUCTS and not kwargs:
            *bias, x, weight = args
            if all(map(self.is_weight, (*bias, weight))) and all(b.dim() == 1 for b in bias):
                return self.product(func, bias, x, weight)
        return func(*args, **kwargs)

    def product(self, func: Any, bias: list[Tensor], x: Shaped[Tensor, "n d"], weight: Shaped[Tensor, "d e"]) -> Shaped[Tensor, "n e"]:
        """The product, of which only the new rows are computed."""
        which = tuple((t.data_ptr(), t.shape, t.stride()) for t in (*bias, weight))
        self.turn[which] += 1
        key = which, self.turn[which]
        if key not in self.known or len(self.known[key][0]) < len(x):
            y = func(*bias, x, weight)
            self.room -= x.nbytes + y.nbytes
            if self.room >= 0:
                self.known[key] = x.clone(), y.clone()
            return y
        before, after = (t[: len(x)] for t in self.known[key])
        if not torch.equal(x, before):
            new = (x != before).any(1)
            before[new], after[new] = x[new], func(*bias, x[new], weight)
        return after.clone()
