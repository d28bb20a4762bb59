"""Rowwise and autoregressive operators. Generated from book/operators.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.checks import expects, expects_shape

__all__ = [
    "causal_mask",
    "masked_softmax",
    "Kind",
    "MEANS",
    "Derivation",
    "primitive",
    "weakest",
    "compose",
    "add",
    "concat",
    "residual",
    "pattern",
    "product",
    "derives",
    "derive",
    "Causal",
]


# --- The mask in torch


def causal_mask(scores: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch n m"]:
    """◺A on the last two axes: −∞ above the diagonal. (W-mask-op-def)

    ValueError for fewer than two axes, TypeError for whole numbers.
    """
    expects_shape("scores", scores, ("n", "m"))
    real = scores.is_floating_point()
    expects(real, "scores", f"dtype {scores.dtype}", "floating point", TypeError)
    n, m = scores.shape[-2:]
    later = torch.ones(n, m, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, float("-inf"))


def masked_softmax(
    scores: Float[Tensor, "*batch n m"],
) -> Float[Tensor, "*batch n m"]:
    """softmax(◺A) on the last two axes. (W-masked-softmax-claim)"""
    return causal_mask(scores).softmax(-1)


# --- Derivations


class Kind(Enum):
    """What is known of an operator. The two patterns are notions of their own: no
    operators of fixed width.

    UNPROVED means that nothing is known, not that something is false.
    """

    ROWWISE = "rowwise"
    INDEXED_ROWWISE = "indexed-rowwise"
    AUTOREGRESSIVE = "autoregressive"
    EQUIVARIANT = "permutation-equivariant"
    UNPROVED = "unproved"
    CAUSAL_PATTERN = "causal pattern"
    EQUIVARIANT_PATTERN = "equivariant pattern"


MEANS: dict[Kind, frozenset[Kind]] = {
    Kind.ROWWISE: frozenset(list(Kind)[:4]),
    Kind.INDEXED_ROWWISE: frozenset({Kind.INDEXED_ROWWISE, Kind.AUTOREGRESSIVE}),
    Kind.AUTOREGRESSIVE: frozenset({Kind.AUTOREGRESSIVE}),
    Kind.EQUIVARIANT: frozenset({Kind.EQUIVARIANT}),
    Kind.UNPROVED: frozenset(),
}


@dataclass(frozen=True)
class Derivation:
    """A proof tree: `subject` is of `kind` because of `reason`, applied to
    `premises`. Its text is the tree; `plot` draws it.
    """

    subject: str
    kind: Kind
    reason: str
    premises: tuple["Derivation", ...] = ()

    @property
    def autoregressive(self) -> bool:
        """True when the tree proves the subject autoregressive: rowwise and
        indexed-rowwise imply it."""
        return Kind.AUTOREGRESSIVE in MEANS.get(self.kind, ())

    @property
    def equivariant(self) -> bool:
        """True when the tree proves the subject permutation-equivariant: rowwise
        implies it."""
        return Kind.EQUIVARIANT in MEANS.get(self.kind, ())

    def unproved(self) -> list["Derivation"]:
        """Where the proof breaks: the unproved sentences whose premises, if they
        have any, are all proved."""
        deeper = [gap for premise in self.premises for gap in premise.unproved()]
        return deeper or [self] * (self.kind is Kind.UNPROVED)

    def lines(self) -> list[tuple[int, int, "Derivation"]]:
        """The sentences from top to bottom, as (depth, how often in a row,
        sentence)."""
        listed, todo = [], [(0, 1, self)]
        while todo:
            depth, times, step = todo.pop()
            listed.append((depth, times, step))
            groups = [(one, len(list(all_))) for one, all_ in groupby(step.premises)]
            todo += [(depth + 1, n, premise) for premise, n in reversed(groups)]
        return listed

    def __repr__(self) -> str:
        return _tree_text(self.lines())

    def plot(self, ax: Any = None) -> Any:
        """Draws the tree, a colour for each kind, on these matplotlib axes or on new
        ones; returns the axes."""
        return _draw_tree(self.lines(), ax)


_Lines = list[tuple[int, int, Derivation]]


def _label(times: int, step: Derivation) -> str:
    return f"{step.subject} (× {times})" if times > 1 else step.subject


def _tree_text(lines: _Lines) -> str:
    text = []
    more: set[int] = set()  # the depths at which a sister is still to come
    for depth, times, step in reversed(lines):
        more = {level for level in more if level <= depth}
        rest = "".join(
            "│  " if level in more else "   " for level in range(1, depth)
        )
        branch = ("├─ " if depth in more else "└─ ") if depth else ""
        label = _label(times, step)
        text.append(f"{rest}{branch}{label}: {step.kind.value}   [{step.reason}]")
        more.add(depth)
    return "\n".join(reversed(text))


def _draw_tree(lines: _Lines, ax: Any) -> Any:
    import matplotlib.pyplot as plt

    from tlm_book.viewer import style

    ink = [style.BLUE, style.PURPLE, style.GREEN, style.ORANGE, style.RED]
    colours = dict(zip(Kind, [*ink, style.GREEN, style.ORANGE]))
    step_right, step_down = 0.26, 0.29  # inches
    if ax is None:
        size = (7.0, step_down * (len(lines) + 0.4))
        ax = plt.figure(figsize=size).add_axes((0, 0, 1, 1))
    where: dict[int, int] = {}  # the last line of each depth
    for y, (depth, times, step) in enumerate(lines):
        colour, where[depth] = colours[step.kind], y
        if depth:
            x = depth - 0.55
            line = dict(color=style.GREY, linewidth=0.8, zorder=0, clip_on=False)
            ax.plot([x, x], [where[depth - 1] + 0.36, y], **line)
            ax.plot([x, depth], [y, y], **line)
        edge = "dashed" if step.kind is Kind.UNPROVED else "solid"
        frame = dict(
            boxstyle="round,pad=0.25", fc="white", ec=colour, ls=edge, lw=1.3
        )
        name = _label(times, step)
        box = ax.text(depth, y, name, fontsize=8, va="center", bbox=frame)
        beside = dict(
            xy=(1, 0.5), textcoords="offset points", va="center", fontsize=8
        )
        words, why = (
            step.kind.value,
            f"by {step.reason}" if step.premises else step.reason,
        )
        kind = ax.annotate(
            words, xycoords=box, xytext=(9, 0), color=style.INK, **beside
        )
        ax.annotate(why, xycoords=kind, xytext=(7, 0), color=style.GREY, **beside)
    width, height = ax.get_figure().get_size_inches() * ax.get_position().size
    ax.set(
        xlim=(-0.5, width / step_right - 0.5), ylim=(height / step_down - 0.7, -0.7)
    )
    ax.axis("off")
    return ax


def primitive(subject: str, kind: Kind, reason: str) -> Derivation:
    """A declared fact, with the reason why it holds."""
    return Derivation(subject, kind, reason)


def _expects_derivation(argument: str, got: object) -> None:
    came = type(got).__name__
    expects(isinstance(got, Derivation), argument, came, "a Derivation", TypeError)


def weakest(premises: tuple[Derivation, ...]) -> Kind:
    """What all premises have in common. (T-closure-kinds, T-equivariant-closure)

    A pattern among them gives UNPROVED: its width is not fixed, so the
    closure lemmas say nothing of it. ValueError when there are no premises,
    TypeError for a premise that is no Derivation.
    """
    expects(len(premises) > 0, "premises", "none", "at least one Derivation")
    for premise in premises:
        _expects_derivation("premises", premise)
    every = [MEANS.get(premise.kind, frozenset()) for premise in premises]
    shared = frozenset.intersection(*every)
    return next(kind for kind, means in MEANS.items() if means == shared)


def compose(subject: str, *premises: Derivation) -> Derivation:
    """Composition, premises in the order in which they are applied.
    (W-composition-claim)
    """
    return Derivation(subject, weakest(premises), "composition", premises)


def add(subject: str, *premises: Derivation) -> Derivation:
    """X ↦ S(X) + T(X). (W-closure-lemmas)"""
    return Derivation(subject, weakest(premises), "sum", premises)


def concat(subject: str, *premises: Derivation) -> Derivation:
    """X ↦ [S(X), T(X)], side by side. (W-closure-lemmas)"""
    return Derivation(subject, weakest(premises), "concatenation", premises)


def residual(subject: str, premise: Derivation) -> Derivation:
    """X ↦ X + T(X). (W-closure-lemmas)"""
    return Derivation(subject, weakest((premise,)), "residual", (premise,))


def pattern(
    subject: str, queries: Derivation, keys: Derivation, causal: bool = True
) -> Derivation:
    """X ↦ softmax(◺(c·Q(X)K(X)ᵀ)) is a causal pattern when Q and K are
    autoregressive. (T-pattern-lemma)

    With `causal=False`, without ◺: an equivariant pattern when Q and K are
    equivariant. (T-equivariant-pattern)
    """
    _expects_derivation("queries", queries)
    _expects_derivation("keys", keys)
    if causal:
        proved = queries.autoregressive and keys.autoregressive
        kind = Kind.CAUSAL_PATTERN if proved else Kind.UNPROVED
        return Derivation(subject, kind, "masked softmax of scores", (queries, keys))
    proved = queries.equivariant and keys.equivariant
    kind = Kind.EQUIVARIANT_PATTERN if proved else Kind.UNPROVED
    return Derivation(subject, kind, "softmax of scores", (queries, keys))


def product(subject: str, weights: Derivation, values: Derivation) -> Derivation:
    """X ↦ A(X) B(X) is autoregressive for a causal pattern A and an autoregressive
    B, and equivariant for an equivariant pattern and an equivariant B.
    (W-product-claim, T-equivariant-pattern)
    """
    _expects_derivation("weights", weights)
    _expects_derivation("values", values)
    kind = Kind.UNPROVED
    if weights.kind is Kind.CAUSAL_PATTERN and values.autoregressive:
        kind = Kind.AUTOREGRESSIVE
    if weights.kind is Kind.EQUIVARIANT_PATTERN and values.equivariant:
        kind = Kind.EQUIVARIANT
    return Derivation(subject, kind, "product", (weights, values))


# --- Derivations of torch models


_Rule = Callable[[Any], Derivation]  # of modules of one type
_R = TypeVar("_R", bound=_Rule)
_RULES: dict[type[nn.Module], _Rule] = {}


def derives(module_type: type[nn.Module]) -> Callable[[_R], _R]:
    """Decorator: registers the rule by which `derive` reads modules of exactly this
    type.

    TypeError when `module_type` is not a class of torch modules.
    """
    is_module_type = isinstance(module_type, type) and issubclass(
        module_type, nn.Module
    )
    expects(
        is_module_type,
        "module_type",
        repr(module_type),
        "a subclass of torch.nn.Module",
        TypeError,
    )

    def register(rule: _R) -> _R:
        _RULES[module_type] = rule
        return rule

    return register


def _why_touched(module: nn.Module) -> str:
    """Why this module may not do what its type says, or ""."""
    own, everywhere = module._forward_hooks, nn.modules.module._global_forward_hooks
    before = module._forward_pre_hooks, nn.modules.module._global_forward_pre_hooks
    if own or everywhere or any(before):
        return "a hook may change what it computes"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return "compiled: another program computes it"
    if any(callable(getattr(type(module), name, None)) for name in vars(module)):
        return "one of its methods is replaced"
    held: list[dict[str, Any]] = [module._parameters, module._buffers, vars(module)]
    tensors = [x for kept in held for x in kept.values() if isinstance(x, Tensor)]
    if any(type(x) not in (Tensor, nn.Parameter) for x in tensors):
        return "one of its tensors is of a type of its own"
    return ""


def derive(module: nn.Module) -> Derivation:
    """The proof tree of what is known of x ↦ module(x), x one sequence: rows (n, d)
    or tokens (n,). A type without a rule is a leaf marked unproved.

    The type must match exactly, for a subclass may compute something else. Nothing
    is proved of a module that has, itself or in any module inside, a forward hook, a
    replaced method, a compiled call or a tensor of a type of its own. Dropout is read
    in the module's present mode. Where torch wants more than x: attention is
    (x, x, x), no mask; a decoder has some fixed memory; `Causal` adds the mask.
    TypeError for anything but a torch module.
    """
    came = type(module).__name__
    is_module = isinstance(module, nn.Module)
    expects(is_module, "module", came, "a torch.nn.Module", TypeError)
    if why := _why_touched(module):
        return primitive(came, Kind.UNPROVED, why)
    if type(module) not in _RULES:
        return primitive(came, Kind.UNPROVED, "no rule for this type")
    proof = _RULES[type(module)](module)
    _expects_derivation(f"what the rule for {came} returns", proof)
    if proof.kind is not Kind.UNPROVED:
        for part in module.modules():  # also parts at which the rule did not look
            if why := _why_touched(part):
                why = f"{type(part).__name__} inside: {why}"
                return Derivation(proof.subject, Kind.UNPROVED, why, proof.premises)
    return proof


@derives(nn.Linear)
@derives(nn.modules.linear.NonDynamicallyQuantizableLinear)  # attention's last layer
def _linear(module: nn.Linear) -> Derivation:
    return primitive(
        f"Linear({module.in_features} → {module.out_features})",
        Kind.ROWWISE,
        "one map for all rows",
    )


@derives(nn.Embedding)
def _embedding(module: nn.Embedding) -> Derivation:
    name = f"Embedding({module.num_embeddings} → {module.embedding_dim})"
    if module.max_norm is not None:
        return primitive(
            name, Kind.UNPROVED, "max_norm: rewrites its table as it reads"
        )
    return primitive(name, Kind.ROWWISE, "one map for all rows")


@derives(nn.Identity)
def _identity(module: nn.Identity) -> Derivation:
    return primitive("Identity", Kind.ROWWISE, "identity")


def _entry_by_entry(module: nn.Module) -> Derivation:
    name = type(module).__name__
    if getattr(module, "inplace", False):
        return primitive(name, Kind.UNPROVED, "inplace: overwrites its argument")
    return primitive(name, Kind.ROWWISE, "entry by entry")


_ENTRY_BY_ENTRY = (nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish,
    nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU,
    nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold)  # fmt: skip
for _type in _ENTRY_BY_ENTRY:
    derives(_type)(_entry_by_entry)


@derives(nn.Softmax)
@derives(nn.LogSoftmax)
@derives(nn.Softmin)
@derives(nn.GLU)
def _along_an_axis(module: nn.Module) -> Derivation:
    name = f"{type(module).__name__}(dim={module.dim})"
    if module.dim != -1:
        return primitive(name, Kind.UNPROVED, "not along the last axis, dim=-1")
    return primitive(name, Kind.ROWWISE, "one map for all rows")


@derives(nn.Dropout)
def _dropout(module: nn.Dropout) -> Derivation:
    if module.training and module.p > 0:
        return primitive(
            f"Dropout({module.p})", Kind.UNPROVED, "random in training mode"
        )
    return primitive("Dropout", Kind.ROWWISE, "identity outside training")


@derives(nn.LayerNorm)
@derives(nn.RMSNorm)
def _norm(module: nn.LayerNorm | nn.RMSNorm) -> Derivation:
    name, shape = type(module).__name__, tuple(module.normalized_shape)
    if len(shape) != 1:
        return primitive(
            f"{name}{shape}", Kind.UNPROVED, "normalizes over more than one axis"
        )
    return primitive(f"{name}({shape[0]})", Kind.ROWWISE, "one map for all rows")


@derives(nn.Sequential)
def _sequential(module: nn.Sequential) -> Derivation:
    if len(module) == 0:
        return primitive("Sequential", Kind.ROWWISE, "identity")
    return compose("Sequential", *(derive(child) for child in module))


# --- Attention in torch, and its mask


_MASK_ARGUMENT: dict[type[nn.Module], str] = {
    nn.MultiheadAttention: "attn_mask",
    nn.TransformerEncoderLayer: "src_mask",
    nn.TransformerEncoder: "mask",
    nn.TransformerDecoderLayer: "tgt_mask",
    nn.TransformerDecoder: "tgt_mask",
}


class Causal(nn.Module):
    """x ↦ module(x, mask ◺): one of torch's attention layers, always called with the
    causal mask. (W-mask-op-def)

    Takes a MultiheadAttention, called with x as query, key and value, or a
    TransformerEncoder, a TransformerDecoder or a layer of these (TypeError for
    others). `memory` is a decoder's second argument. The rows of x are its second
    axis from behind; its first, as torch has it, in a batch (n, batch, d) for a module
    with batch_first=False.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        fits = isinstance(module, tuple(_MASK_ARGUMENT))
        wants = "one of torch's layers that take a mask"
        expects(fits, "module", type(module).__name__, wants, TypeError)
        self.module = module

    def forward(
        self, x: Float[Tensor, "*batch d"], *memory: Float[Tensor, "*other k"]
    ) -> Float[Tensor, "*batch d"]:
        attention = next(
            m for m in self.module.modules() if hasattr(m, "batch_first")
        )
        n = x.shape[-2] if attention.batch_first or x.dim() == 2 else x.shape[0]
        mask = causal_mask(x.new_zeros(n, n))
        if isinstance(self.module, nn.MultiheadAttention):
            return self.module(x, x, x, attn_mask=mask, need_weights=False)[0]
        (name,) = {
            n for t, n in _MASK_ARGUMENT.items() if isinstance(self.module, t)
        }
        return self.module(x, *memory, **{name: mask})


_WITH_MASK: dict[type[nn.Module], _Rule] = {}


_TwoRules = Callable[[Any, bool], Derivation]  # without the mask and with it


def _with_and_without_mask(
    module_type: type[nn.Module],
) -> Callable[[_TwoRules], _TwoRules]:
    def register(rule: _TwoRules) -> _TwoRules:
        derives(module_type)(lambda module: rule(module, False))
        _WITH_MASK[module_type] = lambda module: rule(module, True)
        return rule

    return register


@derives(Causal)
def _causal(module: Causal) -> Derivation:
    if type(module.module) not in _WITH_MASK:
        name = type(module.module).__name__
        return primitive(f"Causal({name})", Kind.UNPROVED, "no rule for this type")
    return _WITH_MASK[type(module.module)](module.module)


@_with_and_without_mask(nn.MultiheadAttention)
def _attention(module: nn.MultiheadAttention, causal: bool) -> Derivation:
    name, d, h = type(module).__name__, module.embed_dim, module.num_heads
    name += "" if module.batch_first else ", rows on the first axis"
    if module.training and module.dropout > 0:
        return primitive(name, Kind.UNPROVED, "random in training mode")
    if (
        module.bias_k is not None
        or module.bias_v is not None
        or module.add_zero_attn
    ):
        return primitive(name, Kind.UNPROVED, "hears a key that belongs to no row")
    if not module.kdim == module.vdim == d:
        return primitive(name, Kind.UNPROVED, "queries and keys of different rows")
    rows = primitive(f"Linear({d} → {3 * d})", Kind.ROWWISE, "one map for all rows")
    scores = "softmax(◺(Q_iK_iᵀ)/√k)" if causal else "softmax(Q_iK_iᵀ/√k)"
    head = product("H_i", pattern(scores, rows, rows, causal), rows)
    listed = [f"H_{i}" for i in range(h)]
    listed = listed if h < 4 else [listed[0], "…", listed[-1]]
    heads = concat(f"[{', '.join(listed)}]", *[head] * h)
    return compose(name, heads, derive(module.out_proj))


_ENTRYWISE: tuple[object, ...] = (F.relu, F.gelu, F.silu, F.mish)
_ENTRYWISE += (torch.relu, torch.tanh, torch.sigmoid)


def _activation_of(layer: nn.Module) -> Derivation:
    f = layer.activation
    if isinstance(f, nn.Module):
        return derive(f)
    name = getattr(f, "__name__", type(f).__name__)
    if not any(f is known for known in _ENTRYWISE):
        return primitive(name, Kind.UNPROVED, "an unknown function")
    return primitive(name, Kind.ROWWISE, "entry by entry")


def _part(module: nn.Module, wants: type[nn.Module], causal: bool) -> Derivation:
    """A part that is called with more than x: nothing but the expected type will do."""
    if type(module) is not wants:
        name = type(module).__name__
        return primitive(
            name, Kind.UNPROVED, f"no rule for it in place of {wants.__name__}"
        )
    return derive(Causal(module)) if causal else derive(module)


def _branch(subject: str, *steps: Derivation) -> Derivation:
    """Composition, less the steps that do nothing."""
    kept = [step for step in steps if not step.reason.startswith("identity")]
    return kept[0] if len(kept) == 1 else compose(subject, *kept)


def _cross(module: nn.Module) -> Derivation:
    if (
        type(module) is not nn.MultiheadAttention
        or module.training
        and module.dropout > 0
    ):
        return primitive(
            "cross-attention", Kind.UNPROVED, "random, or no rule for it"
        )
    return primitive("cross-attention", Kind.ROWWISE, "one map for a fixed memory")


@_with_and_without_mask(nn.TransformerEncoderLayer)
@_with_and_without_mask(nn.TransformerDecoderLayer)
def _layer(m: Any, causal: bool) -> Derivation:
    dec = isinstance(m, nn.TransformerDecoderLayer)
    attend = _part(m.self_attn, nn.MultiheadAttention, causal)
    feed = [
        derive(m.linear1),
        _activation_of(m),
        derive(m.dropout),
        derive(m.linear2),
    ]
    branches = [("SA", m.norm1, [attend, derive(m.dropout1)])]
    if dec:
        branches += [("XA", m.norm2, [_cross(m.multihead_attn), derive(m.dropout2)])]
    norm, dropout = (m.norm3, m.dropout3) if dec else (m.norm2, m.dropout2)
    branches += [("FF", norm, [*feed, derive(dropout)])]
    steps = []
    for name, norm, branch in branches:
        if m.norm_first:
            step = _branch(f"{name}∘N", derive(norm), *branch)
            steps += [residual(f"Res({name}∘N)", step)]
        else:
            steps += [residual(f"Res({name})", _branch(name, *branch)), derive(norm)]
    return compose(type(m).__name__, *steps)


@_with_and_without_mask(nn.TransformerEncoder)
@_with_and_without_mask(nn.TransformerDecoder)
def _stack(module: Any, causal: bool) -> Derivation:
    dec = isinstance(module, nn.TransformerDecoder)
    one = nn.TransformerDecoderLayer if dec else nn.TransformerEncoderLayer
    steps = [_part(layer, one, causal) for layer in module.layers]
    if len(steps) == 0:
        return primitive(type(module).__name__, Kind.UNPROVED, "has no layers")
    steps += [] if module.norm is None else [derive(module.norm)]
    return compose(type(module).__name__, *steps)


# --- What a derivation does not see


def __getattr__(name: str) -> object:
    """`audit` and `assert_autoregressive`, from the next chapter, on first use.

    Found when asked for, and not imported above: a chapter imports only earlier ones.
    """
    if name in ("audit", "assert_autoregressive"):
        from importlib import import_module

        return getattr(import_module("tlm_book.auditing"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
