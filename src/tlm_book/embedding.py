"""From tokens to vectors. Generated from book/embedding.ipynb: edit the notebook, then `make export`."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.arrays import as_float64
from tlm_book.checks import expects, expects_kind, expects_positive, expects_tokens
from tlm_book.derivation import Derivation, derive, primitive, register_rule

__all__ = [
    "Embedding",
]


# --- The table


class Embedding(nn.Module):
    """Em: each token becomes its row of a trainable table, times `scale` (1, or √d
    in some models). (W-embedding-def, M-embed)

    Integer tokens of shape (*batch, n) become vectors of shape (*batch, n, d_model).
    TypeError unless tokens are int64 or int32. Tokens outside {0, …, vocab_size−1} raise
    IndexError on the CPU; on a GPU the check would wait for the device, so it is
    left out.
    """

    def __init__(self, vocab_size: int, d_model: int, scale: float = 1.0) -> None:
        super().__init__()
        expects_positive(vocab_size=vocab_size, d_model=d_model)
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = scale

    def forward(
        self, tokens: Int[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n d"]:
        expects_kind("tokens", tokens, Tensor, "a tensor")
        whole = tokens.dtype in (torch.int64, torch.int32)
        wants = "integer tokens (int64 or int32)"
        expects(whole, "tokens", f"dtype {tokens.dtype}", wants, TypeError)
        if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
            expects_tokens("tokens", tokens, self.table.num_embeddings)
        x = self.table(tokens)
        return x if self.scale == 1 else x * self.scale

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"E": scale · table} as float64, for `spec.embedding.embed`."""
        return {"E": self.scale * as_float64(self.table.weight)}


@register_rule(Embedding)
def _embedding(module: Embedding) -> Derivation:
    return primitive("Em", derive(module.table).kind, "row look-up")
