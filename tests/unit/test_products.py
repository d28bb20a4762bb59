"""The forms of a product are equal, the quickest is chosen, and no token depends on the choice."""

import itertools

import pytest
import torch

from tlm_book import onednn
from tlm_book.inference import CachedModel, generate
from tlm_book.inference import products as room
from tlm_book.inference.products import (
    FORMS,
    STORED,
    Choice,
    Product,
    Products,
    quantized,
)
from tlm_book.transformer_lm import Config, TransformerLM

SHAPES = [(8, 3), (7, 5), (1, 4), (24, 16), (50, 33), (129, 64)]


def drawn(shape: tuple[int, int], dtype: torch.dtype, bias: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    torch.manual_seed(sum(shape))
    return torch.randn(shape, dtype=dtype), torch.randn(shape[0], dtype=dtype) if bias else None


EXACT = [form for form in FORMS if form not in ("onednn", "reordered")]  # in float64, too


@pytest.mark.parametrize(("form", "dtype"), [*((form, torch.float64) for form in EXACT), *itertools.product(FORMS, (torch.float32, torch.bfloat16))])
def test_all_forms_are_equal(form, dtype):
    if form not in EXACT and not onednn.onednn_available(dtype):
        pytest.skip("this torch has no oneDNN, or the processor none in bfloat16")
    bound = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for shape, bias, rows in itertools.product(SHAPES, (False, True), (1, 2, 5, 16, 17, 70)):
        W, b = drawn(shape, dtype, bias)
        X = torch.randn(rows, shape[1], dtype=dtype)
        want = X @ W.T + (0 if b is None else b)
        made = Products(form).add(W, b)
        found = made(X)
        assert found.shape == want.shape and found.dtype == dtype and found.is_contiguous()
        assert (found - want).abs().max() <= bound * (1 + want.abs().max()), (form, shape, rows)
        assert torch.equal((made.form(form) if rows <= 16 or form in room.FOR_MANY[None] else made.form("linear"))(X), found)


def test_forms_take_the_threads_there_are():
    W, b = drawn((50, 33), torch.float64, True)
    X, threads = torch.randn(3, 33, dtype=torch.float64), torch.get_num_threads()
    try:
        for k in (1, 3, 16, 64):
            torch.set_num_threads(k)
            assert torch.allclose(FORMS["parts"](W, b)(X), X @ W.T + b)
    finally:
        torch.set_num_threads(threads)


def test_compiled_a_row_is_multiplied_as_a_column():
    """Unless a form is named, and in whole numbers, for which there is a kernel if the width is a multiple of 32; several rows as usual."""
    for form, want in (("auto", "column"), ("linear", "linear")):
        products = Products(form, compiled=True)
        made = products.add(*drawn((50, 33), torch.float32, True))
        assert made.chosen == [made.form(want), *[made.form("linear")] * 3]
    half, whole = (Products("auto", weights, compiled=True).add(*drawn((50, 33), torch.float32, True)) for weights in ("bfloat16", "int8"))
    assert half.chosen[0] is half.form("column") and whole.chosen[0] is whole.form("widened")
    assert str(products) == "products: linear"
    products = Products(weights="int8", compiled=True)
    whole, last = (products.add(*drawn((50, 64), torch.float32, True), keep=keep) for keep in (False, True))
    assert whole.chosen[0] is whole.form("packed") and whole.chosen[1] is whole.form("widened") and last.chosen[0] is last.form("column")
    assert str(products) == "products: packed and column for a row, else linear; nothing was tried"
    products = Products(compiled=True)
    products.add(*drawn((50, 33), torch.float32, False))
    assert str(products) == "products: column for a row, else linear; nothing was tried"


@pytest.mark.parametrize("form", STORED["int8"])
def test_int8_is_off_by_half_a_step(form):
    for shape, rows in itertools.product([(5, 32), (64, 128), (33, 96)] if form == "packed" else SHAPES, (1, 3, 40)):
        W, b = drawn(shape, torch.float32, True)
        Q, s = quantized(W)
        assert Q.abs().amax(1).eq(127).all() and (s[:, None] * Q - W).abs().le(s[:, None] * 0.5001).all()
        X = torch.randn(rows, shape[1])
        gap = (Product(W, b, "int8").form(form)(X) - X @ W.T - b).abs()
        bound = X.abs().sum(1)[:, None] * s / 2
        if form == "packed":  # rows and results have eight binary digits
            bound = bound + X.abs() @ (W.abs().T + s / 2) / 2**7
        assert (gap <= 1.001 * bound + 1e-5).all() and (gap.max() > 1e-4 or shape[0] == 1)
    for dtype in (torch.bfloat16, torch.float16):  # in which neither a quotient nor a sum may leave its range
        W = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
        Q, s = quantized(W)
        assert Q.abs().amax(1).eq(127).all() and (s[:, None] * Q - W).abs().le(s[:, None] * 0.5001).all()
        X = 300 * torch.randn(1, 64).to(dtype)
        found = Product(W / 50, None, "int8").form(form)(X)
        assert found.dtype == dtype and (found - X.float() @ (W / 50).float().T).abs().max() < 0.002 * X.float().norm()
    Q, s = quantized(torch.zeros(2, 3))
    assert not Q.any() and not s.any()


@pytest.mark.parametrize("form", STORED["bfloat16"])
def test_bfloat16_keeps_eight_digits(form):
    for shape, rows in itertools.product(SHAPES, (1, 3, 40)):
        W, b = drawn(shape, torch.float32, True)
        X = torch.randn(rows, shape[1])
        gap = (Product(W, b, "bfloat16").form(form)(X) - X @ W.T - b).abs()
        bound = X.abs() @ W.abs().T / 2**8
        assert (gap <= (1.01 if form == "widened" else 3.1) * bound + 1e-5).all()
    W = torch.tensor([[1 + 2.0**-8]])
    assert Product(W, None, "bfloat16").form("widened")(torch.ones(1, 1)).item() == 1  # so far off is the rounding at most


def test_packed_is_not_offered_where_its_kernel_fails():
    """It reads beyond the end of matrices of other widths, and takes no float64."""
    offered = lambda shape, dtype: Products("auto", "int8")._forms(Product(*drawn(shape, dtype, False), "int8"), 1)
    assert offered((8, 64), torch.float32) == ["packed", "widened"]
    assert offered((8, 48), torch.float32) == offered((8, 64), torch.float64) == ["widened"]


@pytest.fixture
def slow(monkeypatch):
    """Trials of small matrices, in which one form is made slow; a list of what was tried."""
    room.forget()
    tried = []

    def spied(name, make):
        def made(W, b):
            tried.append(name)
            return make(W, b)

        return made

    monkeypatch.setattr(room, "SMALL", 0)
    forms = {name: spied(name, make) for name, make in FORMS.items()}
    monkeypatch.setitem(room.STORED, None, forms)
    yield tried
    room.forget()


def test_the_quickest_form_is_chosen_and_remembered(slow, monkeypatch):
    costs = {"linear": 5, "column": 4, "in_out": 3, "parts": 1, "onednn": 7, "reordered": 6}
    monkeypatch.setattr(room, "can_multiply", lambda W: True)
    now = [0.0]

    def timed(name, make):
        def made(W, b):
            product = make(W, b)

            def run(X):
                now[0] += costs[name] * 1e-6
                return product(X)

            return run

        return made

    monkeypatch.setitem(room.STORED, None, {name: timed(name, make) for name, make in room.STORED[None].items()})
    monkeypatch.setattr(room.time, "perf_counter", lambda: now[0])
    first = Products()
    layers = [first.add(*drawn((24, 16), torch.float32, True)) for _ in range(3)] + [first.add(*drawn((8, 24), torch.float32, False))]
    assert str(first) == "products: linear, nothing was tried"
    first.prepare(1)
    assert {key: choice.form for key, choice in first.choices.items()} == {(16, 24, 1): "parts", (24, 8, 1): "parts"}
    assert all(layer.chosen == [layer.form("parts")] + 3 * [layer.form("linear")] for layer in layers)
    assert first.choices[16, 24, 1].milliseconds == pytest.approx({name: cost / 1e3 for name, cost in costs.items()})
    assert str(first).splitlines()[0] == "16 × 24, 1 row: parts (ms: parts 0.001, in_out 0.003, column 0.004, linear 0.005, reordered 0.006, onednn 0.007)"
    tried = len(slow)
    second = Products()
    again = [second.add(*drawn((24, 16), torch.float32, True)), second.add(*drawn((8, 24), torch.float32, False))]
    second.prepare(1)
    assert len(slow) == tried + 4 and all(layer.chosen[0] is layer.form("parts") for layer in again)  # linear and parts are made, nothing is tried
    second.prepare(4)
    assert len(slow) > tried + 4 and (16, 24, 4) in second.choices
    second.prepare(3, once=room.WORTHWHILE - 1)
    assert (16, 24, 64) not in second.choices
    second.prepare(3, once=room.WORTHWHILE)
    assert set(second.choices[16, 24, 64].milliseconds) == {"linear", "onednn", "reordered"} and second.choices[16, 24, 64].form == "linear"
    assert [line.split(":")[0] for line in str(second).splitlines()[::2]] == ["16 × 24, 1 row", "16 × 24, up to 4 rows", "16 × 24, more rows"]
    costs |= {"in_out": 0.88}
    room.forget()
    copied = Products()
    copied.add(*drawn((24, 16), torch.float32, True))
    copied.prepare(1)
    assert copied.choices[16, 24, 1].form == "parts"  # what a copy gains is too little
    costs |= {"in_out": 0.86}
    room.forget()
    copied.prepare(1)
    assert copied.choices[16, 24, 1].form == "in_out"
    costs |= {"column": 0.6}
    room.forget()
    third = Products()
    third.add(*drawn((24, 16), torch.float32, True))
    third.prepare(1)
    assert third.choices[16, 24, 1].form == "column"
    costs |= {"parts": 0.6 * room.DISTURBED + 0.1}  # its threads wait for a core that another program has
    room.forget()
    third.prepare(1)
    assert third.choices[16, 24, 1].form == "column" and third.choices[16, 24, 1].disturbed
    now[0] += room.AGAIN + 0.1  # disturbed again: the next time it waits twice as long
    third.prepare(1)
    costs |= {"parts": 0.5}
    now[0] += 2 * room.AGAIN - 1
    third.prepare(1)
    assert third.choices[16, 24, 1].form == "column"
    now[0] += 1.1
    third.prepare(1)
    assert third.choices[16, 24, 1].form == "parts"
    costs |= {"parts": 0.9}
    now[0] += 9 * room.AGAIN
    third.prepare(1)
    assert third.choices[16, 24, 1].milliseconds["parts"] == pytest.approx(5e-4)  # for all forms were below DISTURBED times the best


def test_what_is_small_or_large_is_not_tried(slow, monkeypatch):
    many = Products()
    many.add(*drawn((24, 16), torch.float32, True))
    monkeypatch.setattr(room, "SMALL", 2**20)
    many.prepare(1)
    assert many.choices == {}
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "COPIED", 0)
    many.prepare(1)
    assert not set(room.COPIES) & set(many.choices[16, 24, 1].milliseconds)
    half = Products(weights="bfloat16")
    half.add(*drawn((24, 16), torch.float32, True))
    half.prepare(1)
    assert "linear" in half.choices[16, 24, 1].milliseconds and "reordered" not in half.choices[16, 24, 1].milliseconds


def test_a_trial_reads_no_more_than_it_says(slow, monkeypatch):
    monkeypatch.setattr(room, "SAMPLE", 3 * 24 * 16 * 4)
    many = Products()
    for _ in range(10):
        many.add(*drawn((24, 16), torch.float32, True))
    many.add(*drawn((8, 16), torch.float32, True))
    before = slow.count("column")
    many.prepare(1)
    assert slow.count("column") - before <= 4 + (many.choices[16, 24, 1].form == "column") * 10 + (many.choices[16, 8, 1].form == "column")


def family() -> list[Config]:
    sizes = {"d_model": 16, "d_ff": 24, "n_layers": 2, "n_heads": 4, "max_len": 24}
    return [Config.gpt2(31, **sizes), Config.llama(31, **sizes, n_kv_heads=2), Config.mixtral(31, **sizes, n_kv_heads=2, n_experts=3), Config.wojcik(31).replace(**sizes)]


@pytest.mark.parametrize("config", family(), ids=["gpt2", "llama", "mixtral", "wojcik"])
@pytest.mark.parametrize("batch", [1, 3, 17])
def test_no_token_depends_on_the_choice(config, batch, monkeypatch):
    """In float64, with every form and with whatever is found to be quickest."""
    monkeypatch.setattr(room, "SMALL", 0)
    torch.manual_seed(0)
    model = TransformerLM(config).double()
    with torch.no_grad():
        for w in model.parameters():
            w.add_(0.3 * torch.randn_like(w))
    x = torch.randint(31, (batch, 4))
    want = generate(model, x, 16, temperature=0, products="linear")
    for form in ("auto", *EXACT):
        assert torch.equal(generate(model, x, 16, temperature=0, products=form), want), form
    for stored in ("bfloat16", "int8"):
        near = CachedModel(model, weights=stored)
        scores = near.read(x), near.step(want[:, 4])
        exact = CachedModel(model, products="linear")
        for z, y in zip(scores, (exact.read(x), exact.step(want[:, 4])), strict=True):
            assert 1e-8 < (z - y).abs().max() < 0.2 * y.abs().max()


def test_choices_are_seen():
    model = TransformerLM(Config.gpt2(31, d_model=16, d_ff=24, n_layers=2, n_heads=4, max_len=24))
    cached = CachedModel(model)
    cached.read(torch.randint(31, (1, 4)))
    assert str(cached.products) == "products: linear, nothing was tried" and len(cached.products.all) == 2 * 4 + 1
    assert str(CachedModel(model, products="parts").products) == "products: parts"
    assert Choice("linear").milliseconds == {}


def test_the_last_matrix_keeps_its_numbers():
    model = TransformerLM(Config.gpt2(31, d_model=16, d_ff=24, n_layers=2, n_heads=4, max_len=24))
    cached = CachedModel(model, weights="int8")
    assert [product.stored for product in cached.products.all] == ["int8"] * 8 + [None]


def test_a_long_text_and_each_number_of_threads_are_tried(slow):
    model = TransformerLM(Config.gpt2(31, d_model=16, d_ff=24, n_layers=2, n_heads=4, max_len=300))
    cached, threads = CachedModel(model), torch.get_num_threads()
    cached.read(torch.randint(31, (1, room.WORTHWHILE - 1)))
    assert {rows for *_, rows in cached.products.choices} == {1}
    cached.read(torch.randint(31, (1, room.WORTHWHILE)))
    assert {rows for *_, rows in cached.products.choices} == {1, 64}
    try:
        torch.set_num_threads(threads + 1)
        before = len(slow)
        CachedModel(model).products.prepare(1)
        assert slow[before:].count("column") >= 4 * 2  # of each shape at least one
    finally:
        torch.set_num_threads(threads)
