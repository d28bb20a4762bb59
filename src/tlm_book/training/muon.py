"""Muon for the matrices inside the blocks, AdamW for everything else, as one optimizer. Written by hand."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.checks import expects
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.transformer_lm import TransformerLM

__all__ = ["Muon", "Together", "muon_for", "newton_schulz"]


def newton_schulz(M: Float[Tensor, "*stack n m"], steps: int = 5) -> Float[Tensor, "*stack n m"]:
    """The approximate polar factor UVᵀ of each matrix M = UΣVᵀ: X ← aX + bXXᵀX + c(XXᵀ)²X, from M / ‖M‖. (T-newton-schulz)

    a, b, c = 3.4445, −4.7750, 2.0315 (Jordan, 2024) bring singular values above about 1/100 of ‖M‖ to between 0.68 and 1.14
    in five steps. The zero matrix stays zero.
    """
    tiny = torch.finfo(M.dtype).tiny
    M = M / M.abs().amax((-2, -1), keepdim=True).clamp_min(tiny)  # so that no square is too large or too small for its type
    X = M / M.norm(dim=(-2, -1), keepdim=True).clamp_min(tiny)
    wide = X if M.shape[-2] <= M.shape[-1] else X.mT  # so that XXᵀ is the smaller product
    for _ in range(steps):
        A = wide @ wide.mT
        wide = 3.4445 * wide + (-4.7750 * A + 2.0315 * A @ A) @ wide
    return wide if M.shape[-2] <= M.shape[-1] else wide.mT


class Muon(torch.optim.Optimizer):
    """M ← βM + G, W ← (1 − ηλ) W − η √max(1, n/m) · polar(G + βM) for each n × m matrix W with gradient G (Jordan, 2024).

    lr              η: a step changes W by a matrix whose singular values are about η √max(1, n/m)
    momentum        β
    weight_decay    λ
    rows            the numbers of rows of the matrices that are stacked in W, such as queries, keys and values; each is treated
                    as a matrix of its own. None: W is one matrix

    Matrices of the same shape are processed together. ValueError for a parameter that is not a matrix.
    """

    def __init__(
        self, params: Iterable[Any], lr: float | Tensor = 0.02, momentum: float = 0.95, weight_decay: float = 0.0, rows: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "rows": rows})
        for group in self.param_groups:
            for W in group["params"]:
                expects(W.dim() == 2, "params", f"a parameter of shape {tuple(W.shape)}", "matrices only")
                expects(sum(group["rows"] or (len(W),)) == len(W), "rows", group["rows"], f"the sum {len(W)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for W in (W for W in group["params"] if W.grad is not None):
                M = self.state[W].setdefault("momentum", torch.zeros_like(W))
                M.mul_(group["momentum"]).add_(W.grad)
                rows = group["rows"] or len(W)
                for w, N in zip(W.split(rows), (W.grad + group["momentum"] * M).split(rows)):
                    shapes.setdefault(w.shape, []).append((w, N))
            for (n, m), matrices in shapes.items():
                steps = newton_schulz(torch.stack([N for _, N in matrices]))
                for (w, _), polar in zip(matrices, steps):
                    w.mul_(1 - group["lr"] * group["weight_decay"]).sub_(polar * (group["lr"] * max(1, n / m) ** 0.5))
        return loss


class Together(torch.optim.Optimizer):
    """Several optimizers, each with its own parameters, that step as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Use the parts' own dictionaries as groups, so that a rate changed here is changed in the part."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, its in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(its)
        self._share()


def muon_for(model: TransformerLM, lr: float, lr_beside: float) -> Together:
    """Muon with rate `lr` for the matrices inside the model's blocks, AdamW with `lr_beside` for tables, vectors and the experts of a mixture; neither decays.

    On a GPU the rates are tensors on the GPU, so that a step can be recorded (`RecordedStep`).
    """
    attentions = [part for part in model.blocks.modules() if isinstance(part, MultiHeadAttention)]
    cut = {id(a.qkv.weight): tuple(g * a.d_head for g in (a.n_heads, a.n_kv_heads, a.n_kv_heads)) for a in attentions}
    inside: dict[tuple[int, ...] | None, list[nn.Parameter]] = {}
    for W in model.blocks.parameters():
        if W.dim() == 2:
            inside.setdefault(cut.get(id(W)), []).append(W)
    mine = {id(W) for group in inside.values() for W in group}
    beside = [w for w in model.parameters() if id(w) not in mine]
    matrices = [{"params": group, "rows": rows} for rows, group in inside.items()]
    on_gpu = beside[0].is_cuda
    rates: list[Any] = [torch.tensor(rate, device=beside[0].device) if on_gpu else rate for rate in (lr, lr_beside)]
    return Together(Muon(matrices, lr=rates[0]), torch.optim.AdamW(beside, lr=rates[1], betas=(0.9, 0.99), weight_decay=0.0, capturable=on_gpu))
