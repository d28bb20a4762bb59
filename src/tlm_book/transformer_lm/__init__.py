"""The transformer language model: every choice that makes one, and the model.

    from tlm_book.transformer_lm import Config, TransformerLM
    model = TransformerLM(Config.llama(1000, d_model=64, d_ff=128, n_layers=2, n_heads=4))

The chapter explains and exports every room: `settings` holds the choices, `presets` the sources' models by name, `count` their
parameters, `model` the layers.
"""

from tlm_book.transformer_lm.count import count_parameters as count_parameters
from tlm_book.transformer_lm.model import TransformerLM as TransformerLM
from tlm_book.transformer_lm.presets import Config as Config
from tlm_book.transformer_lm.settings import Settings as Settings

__all__: list[str] = []  # what the chapter exports is listed in its rooms, and not a second time here
