"""The encoder–decoder: every choice that makes one, and the model.

    from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    model = EncoderDecoder(EncoderDecoderConfig(1000, d_model=64, d_ff=128, n_layers=2, n_heads=4))

The chapter explains and exports both rooms: `settings` with the presets, `model` with the blocks and what they remember.
"""

from tlm_book.encoder_decoder.model import (
    CrossBlock,
    EncoderBlock,
    EncoderDecoder,
    KeysValues,
    State,
)
from tlm_book.encoder_decoder.settings import EncoderDecoderConfig

__all__ = [
    "EncoderDecoderConfig",
    "EncoderDecoder",
    "EncoderBlock",
    "CrossBlock",
    "KeysValues",
    "State",
]
