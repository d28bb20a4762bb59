"""The encoder–decoder: every choice that makes one, and the model.

    from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    model = EncoderDecoder(EncoderDecoderConfig(1000, d_model=64, d_ff=128, n_layers=2, n_heads=4))

The chapter explains and exports both rooms: `settings` with the presets, `model` with the blocks and what they remember.
"""

from tlm_book.encoder_decoder.model import CrossBlock as CrossBlock
from tlm_book.encoder_decoder.model import EncoderBlock as EncoderBlock
from tlm_book.encoder_decoder.model import EncoderDecoder as EncoderDecoder
from tlm_book.encoder_decoder.model import KeysValues as KeysValues
from tlm_book.encoder_decoder.model import State as State
from tlm_book.encoder_decoder.settings import (
    EncoderDecoderConfig as EncoderDecoderConfig,
)

__all__: list[str] = []  # what the chapter exports is listed in its rooms, and not a second time here
