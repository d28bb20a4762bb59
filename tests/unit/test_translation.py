"""Translation beyond what its chapters check: sources and targets that do not fit together, markers that are no tokens."""

import jaxtyping
import pytest
import torch

from tlm_book.corpora import sentence_pairs
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.training import TrainConfig
from tlm_book.translation import (
    TranslationReader,
    Translator,
    WordList,
    beam_translations,
    greedy_search,
    train_translator,
    translate_all,
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


def test_as_many_words_may_be_asked_for_as_the_model_reads(model):
    assert torch.equal(greedy_search(model, SOURCE, max_new=8), greedy_search(model, SOURCE))


def test_a_length_penalty_reaches_the_beam(model):
    torch.manual_seed(1)
    model, words = EncoderDecoder(model.config).eval(), WordList(tuple("abcdefgh"))
    sentences, found = ["c d", "a b", "h e g", "f"], []
    for penalty in (0.0, 5.0):
        found.append(translate_all(Translator(model, words, words), sentences, width=3, length_penalty=penalty))
        alone = [beam_translations(model, torch.tensor([words.encode(one)]), width=3, length_penalty=penalty)[0][0] for one in sentences]
        assert found[-1] == [words.decode(best.tokens.tolist()) for best in alone]
    assert found[0] != found[1]


def test_the_first_step_of_a_translator_has_the_first_rate_and_later_ones_the_betas():
    """Adam moves a weight by the rate at first, whatever its gradient. The caller's random numbers go on as before."""
    pairs, sizes = sentence_pairs(20), {"d_model": 8, "d_ff": 8, "n_heads": 2, "n_layers": 1}
    recipe, state = {"batch_size": 4, "warmup": 1, "weight_decay": 0.0}, torch.get_rng_state()
    made = [
        train_translator(pairs, TrainConfig(**recipe, **more), **sizes).model
        for more in ({"steps": 1, "lr": 1e-30}, {"steps": 1, "lr": 0.01}, {"steps": 2, "lr": 0.01}, {"steps": 2, "lr": 0.01, "betas": (0.5, 0.5)})
    ]
    assert torch.equal(torch.get_rng_state(), state) and not any(part.training for model in made for part in model.modules())
    begun, once, twice, otherwise = (torch.nn.utils.parameters_to_vector(model.parameters()) for model in made)
    assert abs((once - begun).abs().max() - 0.01) < 1e-4 and not torch.equal(twice, otherwise)
