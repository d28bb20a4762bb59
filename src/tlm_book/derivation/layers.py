"""The rules for torch's own layers, except attention. Most act on every row in the same way, but some of their options need care.

`Embedding` with `max_norm` rewrites its table while it reads. An activation with `inplace=True` overwrites its argument. A softmax
along any axis but the last, or a norm over several axes, mixes rows. Dropout is random while a model is trained, and so not an operator.
"""

from torch import nn

from tlm_book.derivation.calculus import compose, primitive
from tlm_book.derivation.kinds import Kind
from tlm_book.derivation.rules import derive, register_rule
from tlm_book.derivation.tree import Derivation
from tlm_book.onednn import QuickLinear

__all__: list[str] = []


@register_rule(nn.Linear)
@register_rule(QuickLinear)  # the same within quick_products
@register_rule(nn.modules.linear.NonDynamicallyQuantizableLinear)  # attention's last layer
def _linear(module: nn.Linear) -> Derivation:
    return primitive(
        f"Linear({module.in_features} → {module.out_features})",
        Kind.ROWWISE,
        "one map for all rows",
    )


@register_rule(nn.Embedding)
def _embedding(module: nn.Embedding) -> Derivation:
    name = f"Embedding({module.num_embeddings} → {module.embedding_dim})"
    if module.max_norm is not None:
        return primitive(
            name, Kind.UNPROVED, "max_norm: rewrites its table as it reads"
        )
    return primitive(name, Kind.ROWWISE, "one map for all rows")


@register_rule(nn.Identity)
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
    register_rule(_type)(_entry_by_entry)


@register_rule(nn.Softmax)
@register_rule(nn.LogSoftmax)
@register_rule(nn.Softmin)
@register_rule(nn.GLU)
def _along_an_axis(module: nn.Module) -> Derivation:
    name = f"{type(module).__name__}(dim={module.dim})"
    if module.dim != -1:
        return primitive(name, Kind.UNPROVED, "not along the last axis, dim=-1")
    return primitive(name, Kind.ROWWISE, "one map for all rows")


@register_rule(nn.Dropout)
def _dropout(module: nn.Dropout) -> Derivation:
    if module.training and module.p > 0:
        return primitive(
            f"Dropout({module.p})", Kind.UNPROVED, "random in training mode"
        )
    return primitive("Dropout", Kind.ROWWISE, "identity outside training")


@register_rule(nn.LayerNorm)
@register_rule(nn.RMSNorm)
def _norm(module: nn.LayerNorm | nn.RMSNorm) -> Derivation:
    name, shape = type(module).__name__, tuple(module.normalized_shape)
    if len(shape) != 1:
        return primitive(
            f"{name}{shape}", Kind.UNPROVED, "normalizes over more than one axis"
        )
    return primitive(f"{name}({shape[0]})", Kind.ROWWISE, "one map for all rows")


@register_rule(nn.Sequential)
def _sequential(module: nn.Sequential) -> Derivation:
    if len(module) == 0:
        return primitive("Sequential", Kind.ROWWISE, "identity")
    return compose("Sequential", *(derive(child) for child in module))
