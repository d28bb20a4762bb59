"""Translation beyond what its chapters check: sources and targets that do not fit together, markers that are no tokens."""

import json
from dataclasses import replace
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
from tlm_book.translators import load_translator, save_translator

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


# A translator on disk


def a_translator(config=EncoderDecoderConfig, **sizes):
    """Three French and two English words, unless one vocabulary is for both."""
    torch.manual_seed(0)
    english = WordList(("I", "am") if sizes.get("source_vocab_size") else ("je", "suis", "là"))
    model = EncoderDecoder(config(len(english), d_model=8, d_ff=8, n_heads=2, n_layers=1, max_len=8, **sizes)).eval()
    return Translator(model, WordList(("je", "suis", "là")), english)


def test_a_learned_translator_is_kept(tmp_path):
    pairs = [SentencePair(split_words("L'ami est là."), split_words("The friend is here."), ())]
    made = train_translator(pairs, TrainConfig(steps=3, warmup=1, batch_size=2), d_model=8, d_ff=8, n_layers=1, n_heads=2)
    read = load_translator(save_translator(made, tmp_path / "made"))
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"config.json", "model.safetensors", "words.json"}
    assert (read.french, read.english) == (made.french, made.english) and read.model.config == made.model.config and not read.model.training
    assert translate_all(read, ["l'ami est là ."]) == translate_all(made, ["l'ami est là ."])


@pytest.mark.parametrize("source", [6, None])
@pytest.mark.parametrize("changes", [{}, {"pe": "learned"}, {"pe": "none", "unembed_bias": False}, {"tied": True, "dropout": 0.1}, {"norm": "pre", "final_norm": True, "d_value": 3}])
def test_every_kind_of_translator_comes_back(tmp_path, source, changes):
    made = a_translator(source_vocab_size=source, **changes)
    made.model.double()
    read = load_translator(save_translator(made, tmp_path / "kept")).model
    scores = [model(SOURCE % 6, SOURCE % 5) for model in (made.model, read)]
    assert torch.equal(*scores) and scores[0].dtype == torch.float64
    assert (read.source_embedding is read.embedding) == (source is None)
    assert (read.unembedding.weight is read.embedding.table.weight) == read.config.tied


def test_what_is_no_translator_is_not_kept(tmp_path, monkeypatch):
    made = a_translator(source_vocab_size=6)
    with pytest.raises(TypeError, match="^translator: got EncoderDecoder, want a Translator"):
        unwrap(save_translator)(made.model, tmp_path / "new")
    with pytest.raises(ValueError, match="^translator: got 6 French and 6 English tokens, want 6 and 5, as the model has"):
        save_translator(Translator(made.model, made.french, made.french), tmp_path / "new")
    with pytest.raises(FileExistsError, match="^folder: got "):
        save_translator(made, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="^translator: max_len: got 1000000000, want at most"):
        patch.setattr("tlm_book.translators.tensors_of", lambda model, named: model.state_dict())  # a table of this size is not made here
        patch.setattr(made.model, "config", replace(made.model.config, max_len=10**9))
        save_translator(made, tmp_path / "new")
    made.model.encoder[0].feed_forward.up.weight.data[0] = torch.nan
    with pytest.raises(ValueError, match="not finite, want finite weights"):
        save_translator(made, tmp_path / "new")
    assert not [*tmp_path.iterdir()]


BROKEN_TRANSLATORS = {
    "words.json: got other content": lambda at: at["words.json"].write_text('{"french": ["je"]}'),
    "words.json: got a word twice in 'english'": lambda at: at["words.json"].write_text('{"french": ["je", "suis", "là"], "english": ["I", "I"]}'),
    "words.json: got 4 French and 5 English tokens, want 6 and 5": lambda at: at["words.json"].write_text('{"french": ["je"], "english": ["I", "am"]}'),
    "words.json: got no JSON": lambda at: at["words.json"].write_text("{"),
    "model.safetensors: got a broken file": lambda at: at["model.safetensors"].write_bytes(at["model.safetensors"].read_bytes()[:-9]),
    r"config.json: got the unknown field \['layers'\]": lambda at: changed(at["config.json"], layers=2),
    "config.json: n_heads: got 3": lambda at: changed(at["config.json"], n_heads=3),
    "model.safetensors: got .* of shape": lambda at: changed(at["config.json"], d_ff=9),
    "model.safetensors: got no tensor": lambda at: changed(at["config.json"], n_layers=2),
    "config.json: max_len: got 1000000000": lambda at: changed(at["config.json"], max_len=10**9),
    "without words.json": lambda at: at["words.json"].unlink(),
}


def changed(file, **fields):
    content = json.loads(file.read_text())
    content["model"] |= fields
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("message", BROKEN_TRANSLATORS)
def test_a_broken_translator_is_refused_with_its_file(tmp_path, message):
    folder = save_translator(a_translator(source_vocab_size=6), tmp_path / "kept")
    BROKEN_TRANSLATORS[message]({path.name: path for path in folder.iterdir()})
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_translator(folder)
