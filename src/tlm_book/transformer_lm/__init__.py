"""The transformer language model: every choice that makes one, and the model.

    from tlm_book.transformer_lm import Config, TransformerLM
    model = TransformerLM(Config.llama(1000, d_model=64, d_ff=128, n_layers=2, n_heads=4))

The chapter explains and exports every room: `settings` holds the choices, `presets` the sources' models by name, `count` their
parameters, `model` the layers.
"""

from tlm_book.transformer_lm.count import count_parameters
from tlm_book.transformer_lm.model import TransformerLM
from tlm_book.transformer_lm.presets import Config
from tlm_book.transformer_lm.settings import Settings

__all__ = ["Config", "Settings", "TransformerLM", "count_parameters"]
