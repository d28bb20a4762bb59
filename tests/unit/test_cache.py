"""The cache grows with the text, and experts run in one compiled graph."""

from itertools import pairwise

import pytest
import torch

from tlm_book.inference import CachedModel
from tlm_book.positional_encoding import Rotary
from tlm_book.transformer_lm import Config, TransformerLM

SIZES = {"d_model": 8, "d_ff": 12, "n_layers": 2, "n_heads": 4, "max_len": 300}


def some(config: Config) -> TransformerLM:
    torch.manual_seed(0)
    return TransformerLM(config).double().eval()


@pytest.mark.parametrize("config", [Config.gpt2(7, **SIZES), Config.mistral(7, **SIZES, n_kv_heads=2, window=100), Config.llama(7, **SIZES)], ids=["gpt2", "mistral", "llama"])
@pytest.mark.parametrize("lengths", [(5,), (3, 60, 40)])
@torch.no_grad()
def test_the_cache_grows_with_the_text(config, lengths):
    model, texts = some(config), torch.randint(7, (len(lengths), 300))
    want = model(texts)
    cached, room = CachedModel(model), config.window or 300
    z = cached.read([text[:n] for text, n in zip(texts, lengths, strict=True)])
    seen, last = set(), torch.tensor(lengths)
    while True:
        assert (z - want[torch.arange(len(last)), last - 1]).abs().max() < 1e-10
        seen.add(cached.cache[0].kept.shape[2])
        if last.max() == 300:
            break
        z = cached.step(texts[torch.arange(len(last)), last])
        last = last + 1
    assert max(seen) == room and min(seen) == min(room, max(64, 2 * max(lengths))) and all(a == b or b in (2 * a, room) for a, b in pairwise(sorted(seen)))
    assert all(cache.kept.shape[1:3] == (2, room) for cache in cached.cache)
    fresh = cached.read([text[:200] for text in texts])  # longer at once than what is reserved, in the same cache
    assert (fresh - want[:, 199]).abs().max() < 1e-10


@torch.no_grad()
def test_what_is_selected_goes_on_growing():
    model, texts = some(Config.gpt2(7, **SIZES)), torch.randint(7, (2, 300))
    want, cached = model(texts), CachedModel(model)
    cached.read(texts[:, :60])
    cached.select(torch.tensor([1, 0, 1]))
    for n in range(60, 140):
        z = cached.step(texts[[1, 0, 1], n])
    assert (z - want[[1, 0, 1], 139]).abs().max() < 1e-10 and cached.cache[0].kept.shape[2] == 240
    whole = CachedModel(model, compile=True)
    whole.read(texts[:1, :3])
    assert whole.cache[0].kept.shape[2] == 300  # a graph has fixed shapes


def test_blocks_that_turn_differently_are_refused():
    model = some(Config.llama(7, **SIZES))
    model.blocks[1].attention.rotary = Rotary(2, 300, base=5.0)
    with pytest.raises(ValueError, match="model: got other rotations, want one Rotary, shared by all blocks"):
        CachedModel(model)
