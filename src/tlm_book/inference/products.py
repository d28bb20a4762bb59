"""The products of a model that writes, each in the form that is quickest on this machine.

A step multiplies one row (or one row of each text) by every matrix of the model. Its time goes into reading the matrices, and how fast they are
read depends on processor, library and shape: the same product can take five times as long in another form. So the forms are tried.

    products = Products("auto")
    layer = products.add(W, b)           # X ↦ XW' + 1b, where W (out, in) is the transposed matrix
    products.prepare(rows=1)             # tries the forms once for each shape, or remembers what an earlier model has found
    print(products)                      # which form each shape has, and how long the others took

Written by hand.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from tlm_book.checks import expects, expects_one_of
from tlm_book.onednn import (
    can_multiply,
    onednn_available,
    onednn_product,
    padded_rows,
    reordered,
)

__all__ = ["Rows", "FORMS", "UP_TO", "Choice", "Product", "Products", "forget", "quantized"]

Rows = Callable[[Float[Tensor, "rows a"]], Float[Tensor, "rows b"]]
Matrix = Shaped[Tensor, "out in"]
Bias = Float[Tensor, "out"] | None
Form = Callable[[Any, Bias], Rows]  # from the matrix (out, in), as it is kept, and the bias to a function of rows

UP_TO = 1, 4, 16  # rows; each product has a form for as many as these, and one for more
TRIED = *UP_TO, 64  # rows with which these are tried
WORTHWHILE = 256  # rows that repay a trial, though they are multiplied only once
SMALL = 2**23  # bytes of all matrices together: so few stay in the processor's cache, where all forms are alike
COPIED = 2**27  # bytes of all matrices together up to which a copy in another order is tried
SAMPLE = 2**26  # bytes that a trial reads, more than caches hold, for a form that is quick there may be slow in memory
ROUNDS = 3
PATIENCE = 0.1  # seconds after which no further round begins
WORTH_A_COPY = 1.15  # times as quick must a form be that copies the matrix, since each new model copies anew
HOPELESS = 3.0  # times as long as the best: not tried again
DISTURBED = 16.0  # times as long as the best: no form is so bad, but another program had one of the cores
AGAIN = 10.0  # seconds that a choice holds after a disturbed trial; after each further one twice as long


# The forms


def _linear(W: Matrix, b: Bias) -> Rows:
    """As torch multiplies many rows."""
    V = W.T
    if b is None:
        return lambda X: torch.mm(X, V)
    return lambda X: torch.addmm(b, X, V)


def _column(W: Matrix, b: Bias) -> Rows:
    """Matrix times column, for one row."""
    many = _linear(W, b)
    # X[0], stored before it is multiplied: otherwise a compiled loop normalizes it anew for each entry of the result
    column = lambda X: X.as_strided(X.shape[1:], X.stride()[1:])
    if b is None:
        return lambda X: torch.mv(W, column(X))[None] if len(X) == 1 else many(X)
    return lambda X: torch.addmv(b, W, column(X))[None] if len(X) == 1 else many(X)


def _in_out(W: Matrix, b: Bias) -> Rows:
    """The product from a copy of the matrix in the order of the formula, (in, out)."""
    return _linear(W.T.contiguous().T, b)


def _parts(W: Matrix, b: Bias) -> Rows:
    """The matrix, cut without a copy into k equal parts that are multiplied as a batch: each thread reads its own parts."""
    threads, (out, d) = torch.get_num_threads(), W.shape
    k = min(out, threads * math.ceil(8 / threads))
    m = out // k * k
    parts, rest = W[:m].view(k, m // k, d), None
    added = None if b is None else b[:m].view(k, m // k, 1)
    if m < out:
        rest = _linear(W[m:], None if b is None else b[m:])

    def product(X: Float[Tensor, "rows a"]) -> Float[Tensor, "rows b"]:
        columns = X.T.expand(k, d, len(X))
        Y = torch.bmm(parts, columns) if added is None else torch.baddbmm(added, parts, columns)
        Y = Y.view(m, len(X)).T
        return Y.contiguous() if rest is None else torch.cat((Y, rest(X)), 1)

    return product


def _onednn(W: Matrix, b: Bias) -> Rows:
    """The product of torch's other library (`tlm_book.onednn`); in compiled code, which cannot call it, the usual one."""
    return _by_onednn(W, _linear(W, b), b)


def _reordered(W: Matrix, b: Bias) -> Rows:
    """The same from a copy of the matrix in that library's own order."""
    return _by_onednn(reordered(W, UP_TO[-1]), _linear(W, b), b)


def _by_onednn(W: Matrix, usual: Rows, b: Bias) -> Rows:
    def product(X: Float[Tensor, "rows a"]) -> Float[Tensor, "rows b"]:
        if torch.compiler.is_compiling():
            return usual(X)
        Y, n = onednn_product(padded_rows(X), W, b), X.shape[0]
        return Y if Y.shape[0] == n else Y[:n]

    return product


# All of them are torch's: threads of a second library (numpy's) and of torch wait for each other, which no trial of single products shows.
FORMS: dict[str, Form] = {"linear": _linear, "column": _column, "in_out": _in_out, "parts": _parts, "onednn": _onednn, "reordered": _reordered}
COPIES = ("in_out", "reordered")


# Weights in fewer bits


def quantized(W: Float[Tensor, "out in"]) -> tuple[Shaped[Tensor, "out in"], Float[Tensor, "out"]]:
    """(Q, s) with whole numbers Q from −127 to 127 and a scale for each row: W ≈ s Q, every entry of row j off by at most s_j/2, s_j = max|W_j|/127."""
    W = W.to(torch.promote_types(W.dtype, torch.float32))  # rounded to eight digits, 127 could become 128, which no byte holds
    s = W.abs().amax(1) / 127
    return (W / torch.where(s > 0, s, 1)[:, None]).round().to(torch.int8).contiguous(), s


Quantized = tuple[Shaped[Tensor, "out in"], Float[Tensor, "out"]]


def _bfloat16(form: str) -> Form:
    """A form whose matrix is in bfloat16; the rows and the result are rounded to bfloat16, too."""

    def make(W: Matrix, b: Bias) -> Rows:
        product = FORMS[form](W, None)
        if b is None:
            return lambda X: product(X.bfloat16()).to(X.dtype)
        return lambda X: product(X.bfloat16()).to(X.dtype) + b

    return make


def _bfloat16_widened(W: Matrix, b: Bias) -> Rows:
    """The matrix in bfloat16, converted to the rows' type for each product: the rows are not rounded."""
    return lambda X: F.linear(X, W.to(X.dtype), b)


_int8_kernel: Any = getattr(torch, "_weight_int8pack_mm", None)


def _int8_packed(W: Quantized, b: Bias) -> Rows:
    """Whole numbers, multiplied by torch's own kernel for them; rows and results are rounded to bfloat16."""
    Q, s = W
    one = torch.ones_like(s, dtype=torch.bfloat16)
    scaled = lambda X: (_int8_kernel(X.bfloat16(), Q, one) * s).to(X.dtype)
    return scaled if b is None else lambda X: scaled(X) + b


def _int8_widened(W: Quantized, b: Bias) -> Rows:
    """Whole numbers, converted to the rows' type for each product: the rows are not rounded."""
    Q, s = W

    def scaled(X: Float[Tensor, "rows a"]) -> Float[Tensor, "rows b"]:
        wide = torch.promote_types(X.dtype, torch.bfloat16)  # float16 would overflow before the sum is scaled
        return (torch.mm(X.to(wide), Q.to(wide).T) * s).to(X.dtype)

    return scaled if b is None else lambda X: scaled(X) + b


STORED: dict[str | None, dict[str, Form]] = {
    None: FORMS,
    "bfloat16": {form: _bfloat16(form) for form in ("linear", "parts", "column", "reordered")} | {"widened": _bfloat16_widened},
    "int8": {"packed": _int8_packed, "widened": _int8_widened},
}
# those that gain something when there are many rows
FOR_MANY: dict[str | None, tuple[str, ...]] = {None: ("linear", "onednn", "reordered"), "bfloat16": ("linear", "reordered", "widened"), "int8": ("widened",)}


def _usable(form: str, product: "Product") -> bool:
    W = product.W
    if form in ("onednn", "reordered"):
        return can_multiply(product.kept) and W.dtype != torch.float64
    if form == "packed":  # its kernel reads beyond the end of a matrix of another width
        return _int8_kernel is not None and W.device.type == "cpu" and W.dtype != torch.float64 and W.shape[1] % 32 == 0
    return form == "widened" or product.stored is None or W.dtype != torch.float64


# The choice


@dataclass(frozen=True)
class Choice:
    """The form chosen for the products of one shape, and the milliseconds that each form took for one product (empty if nothing was tried). The
    quickest is chosen, but one that copies the matrix only if it is clearly quicker.
    """

    form: str
    milliseconds: dict[str, float] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """Seconds of the quickest form."""
        return self.milliseconds[self.form] / 1e3

    @property
    def disturbed(self) -> bool:
        """Whether a form took so long that another program must have had one of the cores."""
        return bool(self.milliseconds) and max(self.milliseconds.values()) > DISTURBED * min(self.milliseconds.values())


Key = tuple[object, ...]  # what a choice depends on
# In this process: one trial for all models with the same shapes, the moment until which it holds, seconds between a disturbed trial and the next one
_found: dict[frozenset[Key], tuple[dict[Key, Choice], float, float]] = {}


def forget() -> None:
    """Forget all choices: the next model tries again."""
    _found.clear()


class Product:
    """X ↦ XW + 1b, in a form that depends on the number of rows. `stored` is the number format of W."""

    def __init__(self, W: Matrix, b: Bias, stored: str | None) -> None:
        self.W, self.b, self.stored = W, b, stored
        self.kept: Any = W.bfloat16() if stored == "bfloat16" else quantized(W) if stored == "int8" else W
        self.made: dict[str, Rows] = {}
        plain = "widened" if stored == "int8" or (stored and W.dtype == torch.float64) else "linear"
        self.chosen = [self.form(plain)] * len(TRIED)

    def form(self, name: str) -> Rows:
        """The product in the form of that name."""
        if name not in self.made:
            self.made[name] = STORED[self.stored][name](self.kept, self.b)
        return self.made[name]

    def __call__(self, X: Float[Tensor, "rows a"]) -> Float[Tensor, "rows b"]:
        n = X.shape[0]
        return self.chosen[_kind(n) if n > 1 else 0](X)


def _kind(rows: int) -> int:
    """The place in TRIED of so many rows."""
    return (rows > UP_TO[0]) + (rows > UP_TO[1]) + (rows > UP_TO[2])


class Products:
    """The products of one model. `form` is "auto", which tries the forms, or the name of one for all; `weights` is the number format of the matrices.

    In steps that are `compiled` for a processor, "auto" multiplies a row as a column, for which the compiler writes a loop of its own, and whole
    numbers by torch's kernel for them. Otherwise it tries on a processor, when the matrices take more than SMALL bytes: the forms take turns over
    the matrices in the order of a step, so that these come from memory, and each shape gets the form with the shortest time, for one row, up to
    four, up to sixteen, and more. If another program had a core meanwhile, a text after AGAIN seconds or more tries again. Up to rounding all forms are equal. In float32, when two tokens are nearly tied, another form may write another
    token: to get the same text again, name a form.
    ValueError for an unknown name.
    """

    def __init__(self, form: str = "auto", weights: str | None = None, compiled: bool = False) -> None:
        expects_one_of("weights", weights, tuple(STORED))
        expects_one_of("products", form, ("auto", *STORED[weights]))
        self.fixed, self.weights, self.compiled = form, weights, compiled
        self.all: list[Product] = []
        self.choices: dict[tuple[int, int, int], Choice] = {}  # (in, out, rows with which the forms were tried)

    def add(self, W: Float[Tensor, "out in"], b: Bias = None, keep: bool = False) -> Product:
        """The product with this matrix, (out, in); with `keep`, the matrix stays in its own number format."""
        made = Product(W, b, None if keep else self.weights)
        if self.fixed in STORED[made.stored]:
            usable = self.fixed in self._forms(made, 1)
            expects(usable, "products", repr(self.fixed), f"a form for {str(W.dtype).removeprefix('torch.')} on {W.device.type}")
            for kind, rows in enumerate(TRIED):
                if self.fixed in self._forms(made, rows):
                    made.chosen[kind] = made.form(self.fixed)
        elif form := self._untried(made):
            made.chosen[0] = made.form(form)
        self.all.append(made)
        return made

    def prepare(self, rows: int, once: int = 0) -> None:
        """Give each product its form for this many rows; also for `once` rows, which are multiplied a single time, if they are enough to repay a trial."""
        if once >= WORTHWHILE:
            self.prepare(once)
        size = sum(product.W.nbytes for product in self.all)
        on_processor = all(product.W.device.type == "cpu" for product in self.all)
        if self.fixed != "auto" or size <= SMALL or not on_processor:
            return
        kind = _kind(rows)
        rows = TRIED[kind]
        here = rows, torch.get_num_threads(), onednn_available(), size <= COPIED
        key = lambda product: (tuple(product.W.shape), product.W.dtype, product.stored, product.b is None, *here)
        shapes = frozenset(map(key, self.all))
        found, until, wait = _found.get(shapes, ({}, -math.inf, AGAIN / 2))
        if time.perf_counter() > until:
            found, wait = _tried([(key(product), product, self._forms(product, rows)) for product in self.all], rows), 2 * wait
            disturbed = any(choice.disturbed for choice in found.values())
            _found[shapes] = found, time.perf_counter() + wait if disturbed else math.inf, wait
        for product in self.all:
            choice = found[key(product)]
            product.chosen[kind] = product.form(choice.form)
            self.choices[product.W.shape[1], product.W.shape[0], rows] = choice

    def _untried(self, product: Product) -> str | None:
        """The form of a row in compiled steps, which is not tried."""
        if self.fixed != "auto" or not self.compiled or product.W.device.type != "cpu":
            return None
        return next((form for form in self._forms(product, 1) if form in ("column", "packed")), None)

    def _forms(self, product: Product, rows: int) -> list[str]:
        """The forms that can be used here for so many rows."""
        large = self.fixed == "auto" and sum(other.W.nbytes for other in self.all) > COPIED
        names = FOR_MANY[product.stored] if rows > UP_TO[-1] else STORED[product.stored]
        return [name for name in names if _usable(name, product) and not (large and name in COPIES)]

    def __str__(self) -> str:
        if not self.choices:
            forms = dict.fromkeys(form for product in self.all if (form := self._untried(product)))
            usual = f"{' and '.join(forms)} for a row, else linear; nothing was tried" if forms else "linear, nothing was tried"
            return f"products: {usual if self.fixed == 'auto' else self.fixed}"
        lines = []
        for (d, out, rows), choice in self.choices.items():
            times = ", ".join(f"{name} {took:.3f}" for name, took in sorted(choice.milliseconds.items(), key=lambda pair: pair[1]))
            kind = "1 row" if rows == 1 else f"up to {rows} rows" if rows in UP_TO else "more rows"
            lines.append(f"{d} × {out}, {kind}: {choice.form} (ms: {times})")
        return "\n".join(lines)


Candidate = tuple[Key, Product, list[str]]


@torch.inference_mode()
def _tried(candidates: Sequence[Candidate], rows: int) -> dict[Key, Choice]:
    """{key: the form with the shortest time}. The forms take turns, each over all matrices in their order."""
    wanted = dict.fromkeys(key for key, *_ in candidates)
    sample: list[Candidate] = []
    read = 0
    for candidate in candidates:  # as many as a trial reads, and one of each kind
        if read < SAMPLE or candidate[0] not in {key for key, *_ in sample}:
            sample.append(candidate)
            read += candidate[1].W.nbytes
    inputs = {product.W.shape[1]: product.W.new_ones(rows, product.W.shape[1]) for _, product, _ in sample}
    names = list(dict.fromkeys(name for *_, forms in sample for name in forms))
    made = {name: [(key, p.W.shape[1], STORED[p.stored][name](p.kept, p.b)) for key, p, forms in sample if name in forms] for name in names}
    least: dict[tuple[Key, str], float] = {}
    begun = time.perf_counter()
    for round_ in range(1 + ROUNDS):  # the first warms up
        for name in names:
            for key, took in _least_times(made[name], inputs).items():
                before = least[key, name] if round_ > 1 else math.inf
                least[key, name] = min(before, took)
        names = [name for name in names if any(least.get((key, name), math.inf) <= HOPELESS * _choice(key, least).least for key in wanted)]
        if time.perf_counter() - begun > PATIENCE:
            break
    return {key: _choice(key, least) for key in wanted}


def _least_times(made: Sequence[tuple[Key, int, Rows]], inputs: dict[int, Tensor]) -> dict[Key, float]:
    """The shortest seconds of a product of each kind, in one walk over all matrices: each comes from memory, and other programs disturb only some."""
    least: dict[Key, float] = {}
    for key, d, product in made:
        begun = time.perf_counter()
        product(inputs[d])
        least[key] = min(least.get(key, math.inf), time.perf_counter() - begun)
    return least


def _choice(key: Key, seconds: dict[tuple[Key, str], float]) -> Choice:
    times = {name: 1e3 * took for (other, name), took in seconds.items() if other == key}
    return Choice(min(times, key=lambda name: times[name] * (WORTH_A_COPY if name in COPIES else 1)), times)
