"""Products of many rows in single precision by the quicker of torch's two libraries.

On a processor torch has two libraries for products of matrices. It takes MKL (or another BLAS) for float32, oneDNN for bfloat16 and convolutions.
But some processors are twice as fast with oneDNN in float32, too: MKL does not use all that they can do. So both are tried, once.

    with quick_products(model):           # for the linear layers of any model, on a CPU
        loss = weighted_loss(model(shift(x)), x)
        loss.backward()

`train` does so by itself (`TrainConfig.products`). Written by hand.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tlm_book.checks import expects, expects_one_of

__all__ = ["LIBRARIES", "onednn_available", "onednn_linear", "onednn_product", "quick_linear", "quick_products", "quicker", "reordered", "takes"]

LIBRARIES = ("auto", "linear", "onednn")
SMALL = 2**22  # multiplications; below, starting oneDNN takes longer than it saves
MARGIN = 1.2  # so many times as quick must oneDNN be, so that the choice does not depend on what else the machine does
ROUNDS = 5


def onednn_available() -> bool:
    """Whether this torch has oneDNN's products, they are right, and they are switched on (`torch.backends.mkldnn`)."""
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled) and _works()


@cache
def _works() -> bool:
    """Whether the products of small whole numbers, with the matrix in either order of memory, are what they should be."""
    X, W, b = _counted(3, 4), _counted(5, 4), _counted(5)
    try:
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            return all(torch.equal(onednn_product(X, V, b), X @ W.T + b) for V in (W, W.T.contiguous().T, reordered(W, 16)))
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False  # no such operation in this torch, or not for this processor


def _counted(*shape: int, most: int = 100) -> Tensor:
    """The numbers 0, 1, … in float32 on the CPU, whatever the usual kind of a tensor is; beginning again at `most`."""
    return (torch.arange(math.prod(shape), device="cpu") % most).to(torch.float32).view(shape)


def takes(W: Shaped[Tensor, "out in"]) -> bool:
    """Whether `onednn_product` can multiply by this matrix: in float32, on a CPU, where oneDNN is available."""
    return W.dtype == torch.float32 and W.device.type == "cpu" and onednn_available()


def onednn_product(X: Float[Tensor, "rows in"], W: Float[Tensor, "out in"], b: Float[Tensor, "out"] | None = None) -> Float[Tensor, "rows out"]:
    """XW' + 1b by oneDNN, without a gradient; for float32 on a CPU. W may be `reordered`."""
    multiply: Any = torch.ops.mkldnn._linear_pointwise  # what torch.compile calls, too
    found: Tensor = multiply(X, W, b, "none", [], "")
    return found


def reordered(W: Float[Tensor, "out in"], rows: int) -> Shaped[Tensor, "out in"]:
    """A copy of W in oneDNN's own order for products with about so many rows; only `onednn_product` can read it."""
    pack: Any = torch.ops.mkldnn._reorder_linear_weight
    copy: Tensor = pack(W, rows)
    return copy


class _Linear(torch.autograd.Function):
    """XW' + 1b by oneDNN, with its gradients: for a gradient G of the result, GW, G'X and 1'G."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(X, W)
        return onednn_product(X.flatten(0, -2), W, b).unflatten(0, X.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        X, W = ctx.saved_tensors
        of_X, of_W, of_b = ctx.needs_input_grad
        g, x = G.flatten(0, -2), X.flatten(0, -2)
        dX = onednn_product(g, W.T).view(X.shape) if of_X else None
        dW = _transposed_product(g, x) if of_W else None
        return dX, dW, g.sum(0) if of_b else None


def _transposed_product(G: Float[Tensor, "rows out"], X: Float[Tensor, "rows in"]) -> Float[Tensor, "out in"]:
    """G'X. The first factor is copied in another order, so the smaller one comes first."""
    if G.shape[1] <= X.shape[1]:
        return onednn_product(G.T, X.T)
    return onednn_product(X.T, G.T).T.contiguous()


def onednn_linear(X: Float[Tensor, "*rows in"], W: Float[Tensor, "out in"], b: Float[Tensor, "out"] | None = None) -> Float[Tensor, "*rows out"]:
    """XW' + 1b, as torch's `linear`, by oneDNN, with first derivatives; for float32 on a CPU."""
    found: Tensor = _Linear.apply(X, W, b)
    return found


# The choice


@cache
def _quicker(threads: int) -> str:
    """Which of the two is quicker for a product and its gradients; their results are whole numbers, and must be right."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        A, B, G = ((_counted(512, 512, most=k) - 1).requires_grad_() for k in (3, 5, 7))
        takes: dict[str, Callable[..., Tensor]] = {"linear": F.linear, "onednn": onednn_linear}
        seconds: dict[str, list[float]] = {name: [] for name in takes}
        gradients = {}
        for _ in range(1 + ROUNDS):  # the first warms up
            for name, take in takes.items():
                begun = time.perf_counter()
                gradients[name] = torch.autograd.grad(take(A, B), (A, B), G)
                seconds[name].append(time.perf_counter() - begun)
    right = all(map(torch.equal, gradients["linear"], gradients["onednn"]))
    least = {name: min(took[1:]) for name, took in seconds.items()}
    return "onednn" if right and least["onednn"] * MARGIN < least["linear"] else "linear"


def quicker() -> str:
    """Which form "auto" takes here: "onednn" if it is at least MARGIN times as quick as "linear"; tried once for each number of threads."""
    return _quicker(torch.get_num_threads()) if onednn_available() else "linear"


@contextlib.contextmanager
def quick_products(model: nn.Module, form: str = "auto") -> Iterator[None]:
    """A context in which the linear layers (`nn.Linear`) of this model multiply by the quicker library, also for their gradients.

    For float32 on a CPU, and products large enough. `form`: "auto", which tries both, "onednn", or "linear", with which nothing changes. The
    results are equal up to rounding; gradients can be taken once. Under autocast, in compiled code and in torch.func's transformations the
    layers do as usual, and so do subclasses of `nn.Linear`. ValueError for an unknown form, and for "onednn" where torch lacks it.
    """
    expects_one_of("products", form, LIBRARIES)
    expects(form != "onednn" or onednn_available(), "products", repr(form), "a torch with oneDNN, or another form")
    layers = [m for m in model.modules() if type(m) is nn.Linear and "forward" not in vars(m) and form != "linear" and takes(m.weight)]
    for layer in layers:
        layer.forward = partial(_forward, layer, form)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)  # what the class says


def _forward(layer: nn.Linear, form: str, X: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
    return quick_linear(X, layer.weight, layer.bias, form)


def quick_linear(
    X: Float[Tensor, "*rows in"], W: Float[Tensor, "out in"], b: Float[Tensor, "out"] | None = None, form: str = "auto"
) -> Float[Tensor, "*rows out"]:
    """XW' + 1b by the quicker library, as the layers of `quick_products` compute it; what does not suit is left to torch."""
    large = X.numel() * len(W) >= SMALL
    if large and not torch.compiler.is_compiling() and _suit(X, W) and (quicker() if form == "auto" else form) == "onednn":
        return onednn_linear(X, W, b)
    return F.linear(X, W, b)


def _suit(X: Tensor, W: Tensor) -> bool:
    plain = type(X) is Tensor and type(W) in (Tensor, nn.Parameter) and X.dim() >= 2 and X.dtype == W.dtype
    as_usual = torch.is_autocast_enabled("cpu") or torch._C._are_functorch_transforms_active()
    return plain and takes(W) and not as_usual
