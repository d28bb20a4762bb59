"""Translation beyond what its chapters check: sources and targets that do not fit together, markers that are no tokens."""

import jaxtyping
import pytest
import torch

from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.translation import (
    TranslationReader,
    beam_translations,
    greedy_search,
)

SEARCHES = [greedy_search, beam_translations]
SOURCE = torch.tensor([[3, 4, 5], [6, 7, 8], [5, 4, 3]])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return EncoderDecoder(EncoderDecoderConfig(11, d_model=8, d_ff=8, n_heads=2, n_layers=1, max_len=8)).eval()


@pytest.mark.parametrize("rows", [1, 2])
def test_the_weights_of_cross_attention_are_those_of_as_many_targets(rows, model, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # without the runtime type checker, as a user has it
    with pytest.raises(ValueError, match=r"^target: got shape \(3, 3\), want as many sequences as source"):
        model.cross_attention_weights(SOURCE[:rows], SOURCE)
    assert model.cross_attention_weights(SOURCE, SOURCE[:, :2]).shape == (1, 3, 2, 2, 3)


def test_translations_are_without_dropout():
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig(11, d_model=8, d_ff=8, n_heads=2, n_layers=1, max_len=8, dropout=0.5))
    weights, scores = ([f(model.train(mode)) for mode in (True, True, False)] for f in (
        lambda model: model.cross_attention_weights(SOURCE, SOURCE),
        lambda model: torch.stack([reader.step(token) for reader in [TranslationReader(model, SOURCE)] for token in SOURCE.T]),
    ))
    for first, second, want in (weights, scores):
        assert torch.equal(first, want) and torch.equal(second, want)
    greedy_search(model.train(), SOURCE)
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ["start", "stop"])
def test_a_marker_is_a_whole_number(search, name, model):
    with pytest.raises(TypeError, match=f"^{name}: got True, want a whole number$"):
        search(model, SOURCE, **{name: True})


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_needs_a_source(search, model):
    with pytest.raises(ValueError, match="^source: got none, want at least one$"):
        search(model, SOURCE[:0])


def test_a_length_penalty_has_finite_powers(model):
    with pytest.raises(ValueError, match="^length_penalty: got 400.0, want a finite number ≥ 0 with 8.length_penalty < 2.1000$"):
        beam_translations(model, SOURCE, length_penalty=400.0)
