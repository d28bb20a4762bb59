"""Checks for what a file may ask for that the book's models cannot do, and for what they do that a file cannot express."""

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from typing import Any, TypeVar

from tlm_book.checks import expects, expects_kind
from tlm_book.transformer_lm import Settings

__all__ = ["expects_only", "expects_same", "plain_heads"]

S = TypeVar("S", bound=Settings)


def expects_only(fields: Mapping[str, Any], only: Mapping[str, Sequence[object]]) -> None:
    """Check that each of these fields of a config.json has one of the values listed; a missing field has the first. ValueError
    otherwise.
    """
    expects_kind("fields", fields, Mapping, "a table of settings")
    for name, choices in only.items():
        got, wants = fields.get(name, choices[0]), " or ".join(map(repr, choices))
        expects(got in choices, name, repr(got), f"{wants}: the model has nothing else")


def expects_same(config: Settings, like: Settings, kind: str) -> None:
    """Check that all fields of `config` are those of `like`; the ValueError otherwise names the first that is not."""
    for field in fields_of(config):
        got, want = getattr(config, field.name), getattr(like, field.name)
        expects(got == want, f"model.config.{field.name}", repr(got), f"{want!r}, as in every {kind}")


def plain_heads(config: S) -> S:
    """The same settings, with the width of the heads set to None if it has the usual value."""
    return config.replace(d_head=None) if config.d_head == config.d_model // config.n_heads else config
