"""Translation beyond what its chapters check: sources and targets that do not fit together, markers that are no tokens."""

from inspect import unwrap

import jaxtyping
import pytest
import torch

from tlm_book.corpora import SentencePair, sentence_pairs, split_words
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.training import TrainConfig, learning_rate, parameter_groups
from tlm_book.translation import (
    PADDING,
    STOP,
    TranslationReader,
    Translator,
    WordList,
    beam_translations,
    greedy_search,
    padded,
    train_translator,
    translate,
    translate_all,
    translation_loss,
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


def test_no_block_looks_at_padding():
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig(11, d_model=8, d_ff=8, n_heads=2, n_layers=2, max_len=8)).double()
    source = torch.nn.functional.pad(SOURCE, (0, 2))
    A = model.cross_attention_weights(source, SOURCE, source != PADDING)
    assert not A[..., 3:].any() and torch.allclose(A[..., :3], model.cross_attention_weights(SOURCE, SOURCE), rtol=0, atol=1e-12)


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


def test_a_search_goes_from_marker_to_marker_as_one_would_by_hand():
    """The likeliest word after those before it; with any markers, and source words that the target's language does not have."""
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig(11, source_vocab_size=20, d_model=8, d_ff=8, n_heads=2, n_layers=1, max_len=8)).eval()
    source = padded([[13, 14, 19], [16, 12], [15]])
    real = source != PADDING
    for start in (1, 5):
        target = torch.full((3, 1), start)
        for _ in range(8):
            target = torch.cat((target, model(source, target, real)[:, -1:].argmax(-1)), dim=1)
        written = target[:, 1:].tolist()
        for stop in {*written[0], *written[2]}:
            wanted = [row[: row.index(stop) + 1] if stop in row else row for row in written]
            found = greedy_search(model, source, real, start=start, stop=stop)
            assert torch.equal(found, padded(wanted, stop))
            first = [best.tokens.tolist() for [best] in beam_translations(model, source, real, width=1, start=start, stop=stop)]
            assert [row if row[-1:] == [stop] or len(row) == 8 else [*row, stop] for row in first] == wanted


@pytest.mark.parametrize("width", [1, 3])
def test_a_sentence_among_longer_ones_is_translated_as_if_alone(width, model):
    words = WordList(tuple("abcdefgh"))
    translator, sentences = Translator(model, words, words), ["c", "d a", "b", "h e g a b c d", "f g"]
    alone = [translate(translator, one, width=width) for one in sentences]
    assert translate_all(translator, sentences, width=width) == alone and len({*alone}) > 1


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


PAIR = SentencePair(("un", "chat"), ("one", "cat"), ())
NO_PAIRS = {
    "tuples": ([("un chat", "one cat")], TypeError, "pairs: got tuple, want a list of SentencePair"),
    "a generator": ((pair for pair in [PAIR]), TypeError, "pairs: got generator, want a list of SentencePair"),
    "a text": ([PAIR, PAIR._replace(french="chat")], TypeError, "pairs: got one str, want words, not a text"),
    "another text": ([PAIR._replace(english="cat")], TypeError, "pairs: got one str, want words, not a text"),
    "a capital": ([PAIR._replace(french=("Un", "chat"))], ValueError, r"pairs: got \('Un', 'chat'\), want words of split_words, here \['un', 'chat'\]"),
    "two in one": ([PAIR._replace(french=("un chat",))], ValueError, r"want words of split_words, here \['un', 'chat'\]"),
    "numbers": ([PAIR._replace(french=(1, 2))], ValueError, r"pairs: got \(1, 2\), want words"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_PAIRS)
def test_pairs_from_which_nothing_could_be_translated_are_refused(name):
    """Texts were learned letter by letter, and `translate` found no word of theirs, nor one with a capital."""
    pairs, error, message = NO_PAIRS[name]
    with pytest.raises(error, match=message):
        unwrap(train_translator)(pairs, TrainConfig(steps=1, warmup=1), d_model=8, d_ff=8, n_heads=2, n_layers=1)  # without the tests' own checker of types


def test_a_translator_of_one_s_own_pairs_and_a_recipe_that_is_none():
    sizes = {"d_model": 8, "d_ff": 8, "n_heads": 2, "n_layers": 1}
    pair = SentencePair(split_words("C'est un chat."), ("It", "is a", "cat"), ())
    made = unwrap(train_translator)([pair], TrainConfig(steps=60, batch_size=4, lr=0.03, warmup=1), **sizes)
    assert translate(made, "C’est un chat .") == "It is a cat"
    with pytest.raises(TypeError, match="recipe: got dict, want a TrainConfig"):
        unwrap(train_translator)([pair], {"steps": 1}, **sizes)


def test_a_translator_learns_as_one_would_by_hand():
    """From its seed, with dropout, and with a loss in which padding has no part."""
    pairs, sizes = sentence_pairs(20), {"d_model": 8, "d_ff": 8, "n_heads": 2, "n_layers": 1, "max_len": 16, "dropout": 0.2}
    recipe = TrainConfig(steps=4, batch_size=4, lr=0.1, warmup=1, weight_decay=0.3, seed=7)
    made = train_translator(pairs, recipe, **sizes)
    sources = padded([made.french.encode(" ".join(pair.french)) for pair in pairs])
    targets = padded([[*made.english.encode(" ".join(pair.english)), STOP] for pair in pairs])
    torch.manual_seed(7)
    model = EncoderDecoder(made.model.config)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.3), betas=recipe.betas)
    for step in range(4):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe)
        chosen = torch.randint(len(pairs), (4,))
        source, target = (rows[:, : int((rows != PADDING).sum(-1).max())] for rows in (sources[chosen], targets[chosen]))
        optimizer.zero_grad()
        translation_loss(model, source, target).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
    for name, w in model.state_dict().items():
        assert torch.allclose(w, made.model.state_dict()[name], rtol=0, atol=1e-6), name
