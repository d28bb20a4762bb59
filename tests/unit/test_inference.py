"""Continuing texts: what may be a text, what a refusal leaves behind, and in which mode the model reads."""

import contextlib
import copy
import gc
import inspect
import subprocess
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tlm_book.inference import (
    CachedModel,
    beam_search,
    cache,
    complete,
    distribution,
    generate,
    step_flops,
    stream,
    stream_text,
    window,
)
from tlm_book.spec.inference import tempered
from tlm_book.tokenization import Tokenizer
from tlm_book.training import flops_per_token
from tlm_book.transformer_lm import Config, TransformerLM

SIZES = {"d_model": 8, "d_ff": 12, "n_layers": 2, "n_heads": 2, "max_len": 16}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = TransformerLM(Config(260, **SIZES, dropout=0.5))
    with torch.no_grad():
        for w in made.parameters():
            w.add_(0.3 * torch.randn_like(w))
    return made.eval()


LISTS = {
    "tuple": (3, 1, 2), "array": np.array([3, 1, 2]), "array of int16": np.array([3, 1, 2], dtype=np.int16), "numbers of numpy": list(np.array([3, 1, 2])),
    "numbers of torch": list(torch.tensor([3, 1, 2])),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_every_list_of_whole_numbers_is_a_text(name, model):
    want = generate(model, torch.tensor([3, 1, 2]), 4, temperature=0)
    written = generate(model, LISTS[name], 4, temperature=0)
    assert torch.equal(written, want) and written.dtype == torch.int64
    assert list(stream(model, LISTS[name], 4, temperature=0)) == want[3:].tolist()
    assert torch.equal(beam_search(model, LISTS[name], 4, width=1)[0].tokens, want[3:])


def test_ranges_tables_and_lists_of_each(model):
    ways = {"temperature": 0, "start": 0}
    want = generate(model, torch.tensor([0, 1, 2]), 4, **ways)
    assert torch.equal(generate(model, range(3), 4, **ways), want)
    assert torch.equal(generate(model, np.arange(3)[None], 4, **ways), want[None])
    several = generate(model, [range(3), np.arange(3), [], torch.arange(3)], 4, **ways)
    assert [len(text) for text in several] == [7, 7, 4, 7] and all(torch.equal(several[k], want) for k in (0, 1, 3))


def test_an_empty_list_is_one_empty_text(model):
    ways = {"temperature": 0, "start": 0}
    want = generate(model, torch.tensor([], dtype=torch.long), 4, **ways)
    written = generate(model, [], 4, **ways)
    assert torch.equal(written, want) and written.dtype == torch.int64
    assert list(stream(model, (), 4, **ways)) == want.tolist()
    assert torch.equal(beam_search(model, [], 4, width=1, start=0)[0].tokens, want)
    (alone,) = generate(model, [[]], 4, **ways)
    assert torch.equal(alone, want)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_a_tensor_keeps_its_type_where_that_holds_every_token(dtype, model):
    tokens = torch.tensor([[3, 1, 2]])
    want = generate(model, tokens, 8, temperature=0)
    assert want.max() > 127
    written = generate(model, tokens.to(dtype), 8, temperature=0)
    assert torch.equal(written.long(), want) and written.dtype == (torch.int64 if dtype == torch.int8 else dtype)
    one, other = generate(model, [tokens[0].to(dtype), tokens[0]], 8, temperature=0)
    assert torch.equal(one, written[0]) and one.dtype == written.dtype and torch.equal(other, want[0]) and other.dtype == torch.int64


def test_a_beam_that_is_too_long_is_not_told_to_slide(model):
    with pytest.raises(ValueError, match="want at most max_len = 16$"):
        beam_search(model, [1], 17)
    with pytest.raises(ValueError, match='want at most max_len = 16, or on_overflow="slide"$'):
        generate(model, [1], 17)


@pytest.mark.parametrize("penalty", [1000.0, 1000, 279, float("inf")])
def test_a_length_penalty_has_finite_powers(penalty, model):
    with pytest.raises(ValueError, match=f"^length_penalty: got {penalty}, want a finite number ≥ 0 with 12.length_penalty < 2.1000$"):
        beam_search(model, [1, 2], 12, length_penalty=penalty)


@pytest.mark.parametrize("penalty", [100, 278.5])
def test_a_large_length_penalty_has_its_value(penalty, model):
    best = beam_search(model, [1, 2], 12, length_penalty=penalty)[0]
    assert best.value == pytest.approx(best.log_p / 12.0**penalty, abs=0) and best.value < 0


@pytest.mark.parametrize("token", [10**30, -(10**30)])
def test_a_number_beyond_every_type_is_no_token(token, model):
    for action in (lambda: generate(model, [1, token], 1), lambda: stream(model, [token], 1), lambda: beam_search(model, [token], 1)):
        with pytest.raises(IndexError, match=f"^tokens: got a token {token}, want tokens from 0 to 259"):
            action()


def test_a_penalty_that_spoils_the_scores_is_named(model):
    with pytest.raises(ValueError, match="^repetition_penalty: got 1e-300, want one that leaves the scores finite$"):
        generate(model, range(12), 1, repetition_penalty=1e-300)
    spoiled = TransformerLM(Config(260, **SIZES)).eval()
    torch.nn.init.constant_(spoiled.embedding.table.weight, torch.nan)
    with pytest.raises(ValueError, match="^model: got scores that are NaN"):
        generate(spoiled, [1, 2], 1, repetition_penalty=2.0)


def test_a_text_that_is_too_long_is_named_as_the_caller_named_it(model):
    """`complete` counts with max_new; its tokenizer's start marker is read, too."""
    from tlm_book.inference.text import unread

    tokenizer = Tokenizer([(104, 105), (116, 104), (101, 114)])
    room = model.config.max_len - 3  # the start marker, "h" and "e" are read, and all new tokens but the last
    assert len(tokenizer.encode("he")) == 2
    complete(model, tokenizer, "he", room + 1, on_overflow="error")
    with pytest.raises(ValueError, match="^max_new: got .* want at most max_len = 16, or"):
        complete(model, tokenizer, "he", room + 2, on_overflow="error")
    assert [unread(model, tokenizer, "x" * n) for n in (15, 16, 18)] == [0, 1, 3]


@pytest.mark.parametrize("temperature", [0, -1, float("inf"), float("nan"), True, "x"])
def test_a_temperature_of_a_distribution_is_a_finite_number(temperature, model):
    with pytest.raises((ValueError, TypeError), match="temperature"):
        distribution(model, torch.tensor([1, 2]), temperature)


@pytest.mark.parametrize("room", [0, -1])
def test_a_window_has_room(room):
    with pytest.raises(ValueError, match="max_len: got"):
        window(torch.tensor([1, 2]), room, None)


@pytest.mark.parametrize("texts", [[0], torch.tensor([0.0]), torch.tensor([2]), torch.tensor([-1]), torch.tensor([], dtype=torch.long), torch.tensor(0)], ids=str)
def test_texts_that_are_not_there_are_not_selected(texts, model):
    cached = CachedModel(model)
    cached.read(torch.tensor([[1, 2, 3], [3, 2, 1]]))
    with pytest.raises((IndexError, ValueError, TypeError), match="texts"):
        cached.select(texts)
    assert cached.lengths == [3, 3]
    cached.select(torch.tensor([1, 1]))
    assert torch.allclose(cached.step(torch.tensor([4, 4]))[0], model(torch.tensor([3, 2, 1, 4]))[-1], atol=1e-5)


def test_whole_numbers_of_a_matrix_that_is_stored_by_columns():
    torch.manual_seed(0)
    model = TransformerLM(Config.gpt2(64, d_model=512, n_layers=1, n_heads=4, max_len=32)).eval()
    want = generate(model, [1, 2], 4, temperature=0, weights="int8")
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight = torch.nn.Parameter(module.weight.detach().T.contiguous().T)
    assert torch.equal(generate(model, [1, 2], 4, temperature=0, weights="int8"), want)


@pytest.mark.parametrize("token", [torch.tensor([5000]), torch.tensor([-1]), torch.tensor([1, 2]), torch.tensor([[1]])], ids=["large", "negative", "two", "a table"])
def test_a_step_that_is_refused_is_not_made(token, model):
    cached = CachedModel(model)
    cached.read([torch.tensor([1, 2, 3])])
    for _ in range(2):
        with pytest.raises((IndexError, ValueError, TypeError)):
            cached.step(token)
    assert cached.lengths == [3]
    assert torch.allclose(cached.step(torch.tensor([4]))[0], model(torch.tensor([1, 2, 3, 4]))[-1], atol=1e-5)


def test_a_step_that_fails_inside_is_not_made(model, monkeypatch):
    cached = CachedModel(model)
    cached.read([torch.tensor([1, 2, 3])])
    advance = cached._advance

    def failing(*inputs: object) -> None:
        advance(*inputs)
        raise KeyboardInterrupt

    monkeypatch.setattr(cached, "_advance", failing)
    with pytest.raises(KeyboardInterrupt):
        cached.step(torch.tensor([9]))
    monkeypatch.undo()
    assert torch.allclose(cached.step(torch.tensor([4]))[0], model(torch.tensor([1, 2, 3, 4]))[-1], atol=1e-5)


@pytest.mark.parametrize("compile", [False, True])
def test_it_is_freed_with_its_last_name(model, compile):
    """Without the collector of cycles, which takes half a second and must not run while a step is recorded: on a GPU the memory would be missed."""
    gc.collect()
    gc.disable()
    try:
        cached = CachedModel(model, compile=compile)
        cached.read([torch.tensor([1, 2, 3])])
        if not compile:  # in a process with the checker nothing can be compiled
            cached.step(torch.tensor([4]))
        alive = weakref.ref(cached)
        del cached
        assert alive() is None
    finally:
        gc.enable()


MANY = """
import torch
from torch import nn
from tlm_book.inference import CachedModel, cache
from tlm_book.transformer_lm import Config, TransformerLM

cache._compiler = lambda graph, examples: graph.forward  # what is tested is how many graphs there may be
for k in range(10):
    model = TransformerLM(Config(20, d_model=8, d_ff=4 + k, n_layers=1 + k % 2, n_heads=2, max_len=8)).eval()
    cached = CachedModel(model, compile=True)
    cached.read(torch.tensor([[1, 2, 3]]))
    z = cached.step(torch.tensor([4]))
    assert torch.allclose(z, model(torch.tensor([[1, 2, 3, 4]]))[:, -1], atol=1e-5)
assert torch._dynamo.config.recompile_limit < 10
"""


def test_any_number_of_models_can_be_compiled():
    """Torch gives up after eight graphs of a function. In a process without the checker, which no graph holds."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


DIRECTLY = """
import gc, weakref, torch
from tlm_book.inference import CachedModel, cache
from tlm_book.transformer_lm import Config, TransformerLM

torch.manual_seed(0)
model = TransformerLM(Config(20, d_model=8, d_ff=6, n_layers=2, n_heads=2, max_len=90)).eval()
x = torch.randint(20, (3, 90))
with torch.no_grad():
    want = model(x)
cached = CachedModel(model, compile=True)

def agrees(texts, n):
    assert torch.allclose(cached.step(x[texts, n].int()), want[texts, n], atol=1e-5), n

programs = []
cache._compiler = lambda graph, examples: programs.append(graph.forward) or programs[-1]
cached.read(x[:2, :60])
for n in range(60, 68):
    agrees([0, 1], n)
assert len(programs) == len(cached.recorded) == 2
steps, advance = cache._compiled_steps(), cache._compiled_steps().advance
steps.advance = None  # nothing but the programs
cached.read([x[1, :50], x[2, :63]])
z = cached.step(x[[1, 2], [50, 63]])
assert torch.allclose(z, want[[1, 2], [50, 63]], atol=1e-5)
kept = z.clone()
cached.step(x[[1, 2], [51, 64]])
assert torch.equal(z, kept)  # each step has scores of its own
steps.advance = advance
cached.select(torch.tensor([1]))  # other caches
agrees([2], 65)
agrees([2], 66)
gc.collect()
gc.disable()
alive = weakref.ref(cached)
del cached
assert alive() is None

cached, made = CachedModel(model, compile=True), len(programs)
with torch.compiler.set_stance("force_eager"):
    cached.read(x[:1, :60])
    for n in range(60, 68):
        agrees([0], n)
assert len(programs) == made and not cached.recorded  # a recording needs a program: of experts a layer on a GPU waits for the number of rows

torch.compiler.reset()  # from the second number of columns on, one graph serves all
long = CachedModel(TransformerLM(Config(20, d_model=8, d_ff=6, n_layers=2, n_heads=2, max_len=700)), compile=True)
long.read(x[:1, :10])
for n in range(20, 699, 20):
    long.lengths = [n]
    long.step(torch.tensor([1]))
assert list(long.recorded) == [*range(64, 700, 64), 700] and len(programs) == made + 2
"""


def test_a_compiled_program_is_called_directly():
    """After the first step torch no longer looks for a graph; also after other texts are read. Without the checker, which no graph holds."""
    done = subprocess.run([sys.executable, "-c", DIRECTLY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


CONVERTED = """
import sys, torch
from tlm_book.inference import CachedModel
from tlm_book.transformer_lm import Config, TransformerLM

torch.manual_seed(0)
own = {"n_kv_heads": 2, "d_head": 16} if sys.argv[1] == "qwen3" else {}
model = TransformerLM(getattr(Config, sys.argv[1])(50, d_model=32, d_ff=48, n_layers=1, n_heads=4, max_len=90, **own)).eval()
x = torch.randint(50, (2, 20))
with torch.no_grad():
    want = model(x)
cached = CachedModel(model, compile=True)
cached.read(x[:, :10])
for n in range(10, 16):
    assert torch.allclose(cached.step(x[:, n]).float(), want[:, n], atol=1e-4), n
    if n == 12:
        model.double()
"""


@pytest.mark.parametrize("name", ["qwen3", pytest.param("wojcik", marks=pytest.mark.long)])
def test_a_step_that_is_kept_outlives_a_conversion_of_the_model(name):
    """It reads the weights where they were."""
    done = subprocess.run([sys.executable, "-c", CONVERTED, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


FAILED = """
import threading, time, weakref, pytest, torch
from tlm_book.inference import CachedModel, cache
from tlm_book.transformer_lm import Config, TransformerLM

def cached_model():
    made = CachedModel(TransformerLM(Config(20, d_model=8, d_ff=6, n_layers=1, n_heads=2, max_len=90)).eval(), compile=True)
    made.read(torch.zeros(1, 5, dtype=torch.long))
    return made

def failing(graph, examples):
    def program(*inputs):
        raise MemoryError("none left")
    return program

cache._compiler = failing
cached = cached_model()
alive = weakref.ref(cached.cache[0].kept)
with pytest.raises(MemoryError):
    cached.step(torch.tensor([1]))
del cached
assert alive() is None  # so there is room for a smaller batch

cache._compiler = lambda graph, examples: graph.forward
torch.compiler.reset()
cache._compiled_steps.cache_clear()
underway, most, steps = [0], [0], []

class Slow(cache.Recorded):
    def __init__(self, *inputs):
        underway[0] += 1
        most[0] = max(most[0], underway[0])
        time.sleep(0.2)
        super().__init__(*inputs)
        underway[0] -= 1

cache.Recorded = Slow
models = [cached_model() for _ in range(3)]
threads = [threading.Thread(target=lambda made=made: steps.append(made.step(torch.tensor([1])))) for made in models]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(steps) == 3 and most == [1], (len(steps), most)
"""


def test_a_step_that_failed_leaves_nothing_and_one_is_recorded_at_a_time():
    """CUDA allows one recording at a time. Without the checker, which no graph holds."""
    done = subprocess.run([sys.executable, "-c", FAILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_recordings_share_a_stream_disturb_no_other_thread_and_keep_what_they_read(monkeypatch):
    """In place of a GPU: what torch is asked for."""
    streams, modes = [], []
    graph = lambda made, stream, capture_error_mode: modes.append(capture_error_mode) or contextlib.nullcontext()
    fakes = {"CUDAGraph": SimpleNamespace, "Stream": lambda device: streams.append(device), "graph": graph, "device": contextlib.nullcontext}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    cache._recording_stream.cache_clear()
    x = torch.ones(2)
    alive = weakref.ref(x)
    token = torch.zeros(1, dtype=torch.long).as_subclass(type("OnGpu", (torch.Tensor,), {"is_cuda": True, "device": torch.device("cuda:0")}))
    kept = [cache.Recorded(lambda x=x: -x, token, token) for _ in range(3)]
    del x
    assert alive() is not None and len(kept) == 3 and modes == 3 * ["thread_local"] and len(streams) == 1
    cache._recording_stream.cache_clear()


def test_texts_that_are_refused_leave_those_before(model):
    cached = CachedModel(model)
    cached.read([torch.tensor([1, 2, 3])])
    with pytest.raises(IndexError, match="texts: got a token 5000"):
        cached.read([torch.tensor([7, 5000])])
    with pytest.raises(IndexError):
        cached.select(torch.tensor([1]))
    assert torch.allclose(cached.step(torch.tensor([4]))[0], model(torch.tensor([1, 2, 3, 4]))[-1], atol=1e-5)


def test_texts_that_are_half_read_cannot_be_continued(model, monkeypatch):
    cached = CachedModel(model)
    cached.read([torch.tensor([1, 2, 3])])
    with monkeypatch.context() as patch:
        patch.setattr(cached, "through", lambda *inputs: int("no"))
        with pytest.raises(ValueError):
            cached.read([torch.tensor([7, 8])])
    with pytest.raises(ValueError, match="step: got no texts"):
        cached.step(torch.tensor([4]))
    cached.read([torch.tensor([7, 8])])
    assert torch.allclose(cached.step(torch.tensor([4]))[0], model(torch.tensor([7, 8, 4]))[-1], atol=1e-5)


def test_hooks_are_refused_and_writing_goes_on_without_them(model):
    want = generate(model, [1], 3, temperature=0)
    for register in (model.blocks[1].attention.register_forward_hook, model.register_forward_pre_hook):
        hook = register(lambda *call: None)
        for call in (lambda: generate(model, [1], 3), lambda: stream(model, [1], 3), lambda: beam_search(model, [1], 3)):
            with pytest.raises(ValueError, match=r"model: got hooks on (blocks\.1\.attention|the model), want none"):
                call()
        hook.remove()
    assert torch.equal(generate(model, [1], 3, temperature=0), want)


def test_a_distribution_is_without_dropout_and_leaves_the_mode(model):
    tokens = torch.tensor([1, 2])
    want = distribution(model, tokens)
    try:
        assert torch.equal(distribution(model.train(), tokens), want) and model.training
        with pytest.raises(IndexError):
            distribution(model, torch.tensor([5000]))
        assert all(part.training for part in model.modules())
    finally:
        model.eval()


def test_a_text_takes_every_choice_that_is_named(model):
    """All that `complete` says it takes works, in both of them."""
    from tlm_book.inference.text import CHOICES

    tokenizer = Tokenizer([(104, 105), (116, 104), (101, 114)])
    choices = {"max_new": 4, "temperature": 0.9, "seed": 3, "on_overflow": "error", "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1,
               "allowed": lambda text: range(3, 250), "compile": False, "products": "linear", "weights": None}  # fmt: skip
    assert set(choices) == set(CHOICES)
    assert "hi" + "".join(stream_text(model, tokenizer, "hi", **choices)) == complete(model, tokenizer, "hi", **choices)


@pytest.mark.parametrize(("V", "dtype"), [(128, torch.int8), (129, torch.int64)])
def test_the_largest_token_just_fits_into_eight_bits(V, dtype):
    model = TransformerLM(Config(V, **SIZES)).eval()
    assert generate(model, torch.tensor([3, 1], dtype=torch.int8), 2, temperature=0).dtype == dtype


def test_a_seed_has_63_bits(model):
    tokenizer = Tokenizer([(97, 98), (98, 99), (99, 100)])
    complete(model, tokenizer, "a", 1, seed=2**63 - 1)
    with pytest.raises(ValueError, match="seed: got 9223372036854775808, want a whole number from 0"):
        complete(model, tokenizer, "a", 1, seed=2**63)


def test_no_temperature_is_too_small_for_the_specification():
    assert tempered(np.array([5.0, 4.0]), 1e-309).tolist() == [1.0, 0.0]


def test_the_token_that_ends_a_text_is_not_part_of_it():
    tokenizer = Tokenizer([])
    model = TransformerLM(Config(len(tokenizer), d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=8))
    with torch.no_grad():
        model.unembedding.bias[tokenizer.stop] = 1e3
    assert complete(model, tokenizer, "a", max_new=5) == "a"


class Own(nn.Linear):
    """A layer of one's own: it adds to what the weights say, and sees its neighbours."""

    def forward(self, x):
        return super().forward(x) - x.mean(-2, keepdim=True).sum(-1, keepdim=True)


OWN = ["embedding", "position", "norm", "unembedding", "blocks.1"]
OWN += [f"blocks.1.{part}" for part in ("norm_attention", "attention", "attention.qkv", "attention.out", "norm_feed_forward", "feed_forward", "feed_forward.up")]


@pytest.mark.parametrize("place", OWN)
def test_layers_of_one_s_own_are_refused(place, model):
    """A normalization across rows, and what an adapter adds to queries, keys and values, were left out silently."""
    other = copy.deepcopy(model)
    other.set_submodule(place, Own(8, 8))
    with pytest.raises(TypeError, match="model: got a layer Own, want"):
        CachedModel(other)


def test_a_normalization_that_is_known_to_be_row_wise_is_used(model):
    other = copy.deepcopy(model)
    other.norm = nn.LayerNorm(8, bias=False)
    with torch.no_grad():
        other.norm.weight.normal_()
    tokens = torch.tensor([7, 8, 9])
    assert torch.allclose(CachedModel(other).read([tokens])[0], other(tokens)[-1], atol=1e-5)


@pytest.mark.parametrize("more", [{}, {"gated": True, "ff_bias": False, "n_kv_heads": 1, "window": 3}, {"gated": True, "ff_bias": False, "n_experts": 4}])
def test_a_training_step_takes_three_times_the_operations_of_a_step(more):
    config = Config(260, **SIZES, **more)
    assert all(flops_per_token(config, n) == 3 * step_flops(config, n) for n in (1, 3, 16))


def test_only_allowed_tokens_are_written(model):
    """Each text is asked for by itself, with its own tokens, until it is over."""
    V, asked = model.config.vocab_size, []

    def next_two(text):
        asked.append(text)
        return {(text[-1] + 1) % V, (text[-1] + 2) % V}

    texts = [[0], [V - 1, V - 2]]
    for text, new in zip(texts, generate(model, texts, 5, allowed=next_two)):
        assert len(new) == len(text) + 5 and new[: len(text)].tolist() == text
        steps = new[len(text) - 1 :].diff() % V
        assert set(steps.tolist()) <= {1, 2}
    assert asked[:2] == texts and len(asked) == 10
    asked.clear()
    new = generate(model, torch.tensor([[0], [2]]), 4, allowed=next_two, stop=[3, 4], temperature=0)
    assert len(new[0]) >= len(new[1]) and all(text[-1] not in (3, 4) for text in asked)
    one = list(stream(model, [0], 4, allowed=lambda text: np.array([len(text)])))
    assert one == list(stream(model, [0], 4, allowed=lambda text: torch.tensor([len(text)], dtype=torch.uint16)))
    assert one == [1, 2, 3, 4] == generate(model, [0], 4, allowed=lambda text: torch.tensor([len(text)]), repetition_penalty=1.3)[1:].tolist()
    free, all_of_them = (generate(model, [0], 6, generator=torch.Generator().manual_seed(1), allowed=f) for f in (None, lambda text: range(V)))
    assert torch.equal(free, all_of_them)


@pytest.mark.parametrize(
    ("allowed", "error", "message"),
    [
        (3, TypeError, "allowed: got 3, want a function of the text's tokens, or None"),
        (lambda text: [], ValueError, r"allowed: got no token after \[1, 2\], want at least one"),
        (lambda text: [0, 10**6], IndexError, "allowed: got a token 1000000, want tokens from 0 to"),
        (lambda text: [0.5], TypeError, "allowed: got dtype float64, want integer tokens"),
        (lambda text: "no", TypeError, "allowed: got dtype <U1, want integer tokens"),
        (lambda text: np.ones(3, dtype=bool), TypeError, "allowed: got dtype bool, want integer tokens"),
        (lambda text: None, TypeError, "allowed: got NoneType in return, want a list of tokens"),
        (lambda text: iter([1]), TypeError, "allowed: got list_iterator in return, want a list of tokens"),
        (lambda text: torch.tensor(1), TypeError, "allowed: got Tensor in return, want a list of tokens"),
        (lambda text: [[0], [0, 1]], TypeError, "allowed: got list of lists in return, want a list of tokens"),
    ],
)
def test_what_is_allowed_must_be_tokens(model, allowed, error, message):
    with pytest.raises(error, match=message):
        inspect.unwrap(generate)(model, [1, 2], 3, allowed=allowed)
