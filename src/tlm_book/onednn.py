"""Products of many rows in single precision by the quicker of torch's two libraries.

On a CPU torch has two libraries for products of matrices. It takes MKL (or another BLAS) for float32, oneDNN for bfloat16 and convolutions.
But on some processors oneDNN is twice as quick in float32, too. So both are tried.

    with quick_products(model):           # for the linear layers of any model, on a CPU
        loss = weighted_loss(model(shift(x)), x)
        loss.backward()

`train` does so by itself (`TrainConfig.products`). Written by hand.
"""

import contextlib
import copyreg
import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tlm_book.checks import expects, expects_one_of

__all__ = [
    "LIBRARIES",
    "QuickLinear",
    "can_multiply",
    "is_linear",
    "onednn_available",
    "onednn_linear",
    "onednn_product",
    "padded_rows",
    "quick_linear",
    "quick_products",
    "quicker_library",
    "reordered",
]

LIBRARIES = ("auto", "linear", "onednn")
FORMATS = {torch.float32: 100, torch.bfloat16: 7}  # and whole numbers, below which a small product is exact
SMALL, FEW = 2**23, 128  # multiplications, and rows: with fewer of either, oneDNN gains nothing
MARGIN = 1.2  # oneDNN must be at least this many times as quick
ROUNDS = 30


# oneDNN's product


def onednn_available(dtype: torch.dtype = torch.float32) -> bool:
    """Whether this torch has oneDNN's products in this number format (float32, or bfloat16, which fewer processors can multiply), they are right, and
    they are switched on (`torch.backends.mkldnn`)."""
    if dtype not in FORMATS or not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    try:
        return _proved(dtype)
    except (AttributeError, RuntimeError, TypeError):
        return False  # no such operation in this torch, or not for this processor


@cache  # of a success: an error is not kept
def _proved(dtype: torch.dtype) -> bool:
    """Multiply small whole numbers, by a matrix in either order of memory and by a copy. RuntimeError for a wrong product."""
    X, W, b = (_counted(*shape, below=FORMATS[dtype]).to(dtype) for shape in ((3, 4), (5, 4), (5,)))
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        for V in (W, W.T.contiguous().T, reordered(W, 16)):
            if not torch.equal(onednn_product(X, V, b), X @ W.T + b):
                raise RuntimeError("oneDNN multiplies wrongly")
    return True


def _counted(*shape: int, below: int) -> Tensor:
    """The numbers 0, 1, …, below − 1, again and again, in float32 on the CPU, whatever the default type and device."""
    return (torch.arange(math.prod(shape), device="cpu") % below).to(torch.float32).view(shape)


def can_multiply(W: Shaped[Tensor, "..."]) -> bool:
    """Whether `onednn_product` can multiply by this matrix: on a CPU, where oneDNN is available for its number format."""
    return W.device.type == "cpu" and W.layout == torch.strided and W.dim() == 2 and onednn_available(W.dtype)


def onednn_product(X: Float[Tensor, "rows in"], W: Float[Tensor, "out in"], b: Float[Tensor, "out"] | None = None) -> Float[Tensor, "rows out"]:
    """XW' + 1b by oneDNN, without a gradient; for float32 or bfloat16 on a CPU. W may be `reordered`."""
    multiply: Any = torch.ops.mkldnn._linear_pointwise  # torch.compile emits this operation, but cannot trace a call of it
    found: Tensor = multiply(X, W, None if b is None else b.contiguous(), "none", [], "")
    return found


def reordered(W: Float[Tensor, "out in"], rows: int) -> Shaped[Tensor, "out in"]:
    """A copy of W in oneDNN's own order for products with about this many rows; only `onednn_product` can read it."""
    pack: Any = torch.ops.mkldnn._reorder_linear_weight
    copy: Tensor = pack(W, rows)
    return copy


def padded_rows(X: Float[Tensor, "rows in"]) -> Float[Tensor, "more in"]:
    """X with rows of zeros at its end, so that there are few different numbers of rows: oneDNN makes code for each one, and keeps it.

    >>> [len(padded_rows(torch.ones(n, 1))) for n in (16, 17, 128, 129, 1024, 1025)]
    [16, 32, 128, 160, 1024, 1280]
    """
    n = len(X)
    if n <= 16:
        return X
    missing = -n % max(16, 2 ** ((n - 1).bit_length() - 3))
    return F.pad(X, (0, 0, 0, missing)) if missing else X


class _Linear(torch.autograd.Function):
    """XW' + 1b by oneDNN, with its gradients: for a gradient G of the result, GW, G'X and 1'G."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        of_X, of_W, _ = ctx.needs_input_grad
        ctx.save_for_backward(X if of_W else None, W if of_X else None)
        return onednn_product(X, W, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        X, W = ctx.saved_tensors
        dX = None if W is None else onednn_product(G, W.T)
        dW = None if X is None else _transposed_product(G, X)
        return dX, dW, G.sum(0) if ctx.needs_input_grad[2] else None


def _transposed_product(G: Float[Tensor, "rows out"], X: Float[Tensor, "rows in"]) -> Float[Tensor, "out in"]:
    """G'X. The first factor is copied in another order, so the smaller one comes first."""
    if G.shape[1] <= X.shape[1]:
        return onednn_product(G.T, X.T)
    return onednn_product(X.T, G.T).T.contiguous()


def onednn_linear(X: Float[Tensor, "*rows in"], W: Float[Tensor, "out in"], b: Float[Tensor, "out"] | None = None) -> Float[Tensor, "*rows out"]:
    """XW' + 1b, as torch's `linear`, by oneDNN, for at least one row in float32 on a CPU. First derivatives only, in reverse mode."""
    rows = X.flatten(0, -2)
    found: Tensor = _Linear.apply(padded_rows(rows), W, b)
    if len(found) > len(rows):  # otherwise the gradient would be copied for nothing
        found = found[: len(rows)]
    return found.view(*X.shape[:-1], len(W))


# The choice


@cache
def _tried(threads: int) -> str:
    """Which of the two is quicker for a product and its gradients, which are whole numbers; the gradients must be equal."""
    seconds: dict[str, float] = {}
    gradients = {}
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),  # those of a step are not meant
    ):
        A, B, G = ((_counted(256, 256, below=k) - 1).requires_grad_() for k in (3, 5, 7))
        ways: dict[str, Callable[..., Tensor]] = {"linear": F.linear, "onednn": onednn_linear}
        for round_ in range(1 + ROUNDS):  # the first warms up
            for name, way in ways.items():
                begun = time.perf_counter()
                gradients[name] = torch.autograd.grad(way(A, B), (A, B), G)
                took = time.perf_counter() - begun
                seconds[name] = min(took, seconds[name]) if round_ > 1 else took
    right = all(map(torch.equal, gradients["linear"], gradients["onednn"]))
    return "onednn" if right and seconds["onednn"] * MARGIN < seconds["linear"] else "linear"


def quicker_library(library: str = "auto") -> str:
    """The library that this choice means here: for "auto", "onednn" if it is at least MARGIN times as quick as "linear" in a trial of some
    hundredths of a second, one for each number of threads. ValueError for an unknown name, and for "onednn" where torch lacks it.
    """
    expects_one_of("products", library, LIBRARIES)
    expects(library != "onednn" or onednn_available(), "products", repr(library), "a torch with oneDNN, or another library")
    if library != "auto":
        return library
    return _tried(torch.get_num_threads()) if onednn_available() else "linear"


def quick_linear(
    X: Float[Tensor, "*rows in"], W: Float[Tensor, "out in"], b: Float[Tensor, "out"] | None = None, library: str = "auto"
) -> Float[Tensor, "*rows out"]:
    """XW' + 1b by the quicker library, if it is large enough; what does not suit oneDNN is left to torch. Errors as in `quicker_library`."""
    if _suit(X, W, b) and quicker_library(library) == "onednn":
        return onednn_linear(X, W, b)
    return F.linear(X, W, b)


def _suit(X: Tensor, W: Tensor, b: Tensor | None) -> bool:
    """Whether oneDNN can multiply, and gains something."""
    if torch.compiler.is_compiling() or W.dim() != 2 or X.dim() < 2:
        return False
    d, entries = X.shape[-1], X.numel()
    if entries * len(W) < SMALL or entries < FEW * d or W.shape[1] != d:
        return False
    kinds = {Tensor, nn.Parameter} >= {type(X), type(W), *(() if b is None else (type(b),))}
    fits = X.dtype == W.dtype == torch.float32 and X.device == W.device and X.layout == W.layout and not X.is_nested
    of_bias = b is None or (b.dtype == W.dtype and b.device == W.device and b.shape == W.shape[:1])
    as_usual = torch.is_autocast_enabled("cpu") or torch._C._are_functorch_transforms_active() or torch.jit.is_tracing() or forward_ad._current_level >= 0
    return kinds and fits and of_bias and not as_usual and can_multiply(W)


class QuickLinear(nn.Linear):
    """A linear layer that multiplies by oneDNN, which layers become within `quick_products`. Copies of it are plain linear layers."""

    def forward(self, X: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        return quick_linear(X, self.weight, self.bias, "onednn")

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return copyreg._reconstructor, (nn.Linear, object, None), self.__dict__  # type: ignore[attr-defined]


def is_linear(layer: nn.Module) -> bool:
    """Whether this is torch's linear layer, within `quick_products` or not, and no other subclass of it."""
    return type(layer) in (nn.Linear, QuickLinear)


@contextlib.contextmanager
def quick_products(model: nn.Module, library: str = "auto") -> Iterator[None]:
    """A context in which the linear layers of this model multiply by the quicker library, also for their gradients.

    For float32 on a CPU, and products large enough. `library`: "auto", which tries both, "onednn", or "linear", with which nothing changes (nor
    does it switch off an outer context). The results are equal up to rounding; first derivatives only, in reverse mode. Under autocast, in compiled
    code and in torch.func's transformations the layers do as usual, and so do subclasses of `nn.Linear`. Meanwhile the layers are `QuickLinear`; do
    not change their class (as parametrizations do), and do not trace them with torch.fx. Errors as in `quicker_library`.
    """
    quick = quicker_library(library) == "onednn"
    layers = [layer for layer in model.modules() if quick and type(layer) is nn.Linear]
    try:
        for layer in layers:
            layer.__class__ = QuickLinear
        yield
    finally:
        for layer in layers:
            if type(layer) is QuickLinear:
                layer.__class__ = nn.Linear  # type: ignore[assignment]
