"""The viewer's Python side: what the page is given, what is refused, and the style of the drawn pictures."""

import base64
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import traitlets

from tlm_book.training import shipped
from tlm_book.viewer import (
    attention,
    show,
    style,
    use_style,
)
from tlm_book.viewer.attention import View
from tlm_book.viewer.attention.drawing import figure, head_of
from tlm_book.viewer.reading import reading

MODULE = View._esm

HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "\u202eabc", "\u200d", "", " a\n\t",
           "&amp;", "$x$", "\ud800", "x" * 5000, "👩\u200d👧"]  # fmt: skip


def softmax(shape: tuple[int, ...], seed: int = 0, causal: bool = True) -> np.ndarray:
    scores = 2 * np.random.default_rng(seed).normal(size=shape)
    if causal:
        scores = np.where(np.tril(np.ones(shape[-2:])) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def unpacked(view: View) -> np.ndarray:
    """The weights that the page holds, which stores what is not masked, row after row."""
    return stored(view, 0)


def stored(view: View, which: int) -> np.ndarray:
    data = view.data
    *heads, n, m = data["shape"]
    mask, out = data["mask"], np.zeros(data["shape"])
    seen = [(i, j) for i in range(n) for j in range(m) if not masked(mask, i, j, m)]
    values = np.frombuffer(base64.b64decode(data["weights"][which]), np.uint8).reshape(*heads, len(seen))
    for c, (i, j) in enumerate(seen):
        out[..., i, j] = values[..., c] / 255
    return out


def masked(mask: str | None, i: int, j: int, m: int) -> bool:
    if mask in (None, "causal"):
        return mask is not None and j > i
    byte, bit = divmod(i * m + j, 8)
    return base64.b64decode(mask)[byte] >> (7 - bit) & 1 == 1


def words(n: int) -> list[str]:
    return [f"w{i}" for i in range(n)]


@pytest.mark.parametrize("shape", [(2, 3, 5, 5), (3, 5, 5), (5, 5), (1, 1)])
def test_any_rank_is_four_axes(shape):
    A = softmax(shape)
    view = attention(words(shape[-1]), A)
    assert view.data["shape"] == [1] * (4 - len(shape)) + list(shape)
    assert np.array_equal(unpacked(view), unpacked(attention(words(shape[-1]), A.tolist())))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_torch_weights_of_any_float(dtype):
    A = torch.tensor(softmax((2, 2, 4, 4)), dtype=getattr(torch, dtype), requires_grad=True)
    assert np.abs(unpacked(attention(words(4), A)) - A.detach().double().numpy()).max() <= 1 / 510 + 1e-12


def test_packing_error_is_half_a_step():
    A = np.random.default_rng(0).random((1, 1, 200, 200))
    error = np.abs(unpacked(attention(words(200), A)) - A)
    assert 0.9 / 510 < error.max() <= 1 / 510 + 1e-12


def test_causal_needs_exact_zeros_above_the_diagonal_of_every_head():
    A = softmax((2, 2, 5, 5))
    assert attention(words(5), A).data["mask"] == "causal"
    A[1, 0, 2, 3] = 1e-9
    assert not attention(words(5), A).data["mask"]
    assert not attention(words(1), [[1.0]]).data["mask"]
    assert not attention(words(2), np.eye(2), columns=words(2)).data["mask"]


def test_cross_attention_has_its_own_columns():
    view = attention(words(3), softmax((2, 3, 7), causal=False), columns=[f"c{j}" for j in range(7)])
    assert view.data["shape"] == [1, 2, 3, 7] and view.data["columns"][6] == "c6"


def test_page_is_self_contained():
    html = attention(words(4), softmax((4, 4)), title="T")._repr_mimebundle_()[0]["text/html"]
    assert MODULE in html and "</script" not in MODULE and "`</" not in MODULE
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|innerHTML|eval\(|//cdn|@import|\bimport\s|\bfetch\(|XMLHttpRequest|url\(", html)


def test_hostile_tokens_stay_text():
    n = len(HOSTILE)
    html = attention(HOSTILE, softmax((n, n)), columns=HOSTILE, title="</script><b>").to_html()
    assert html.count("<script") == html.count("</script") == 1
    assert "<img" not in html and "<!--" not in html and "<b>" not in html
    html.encode()  # no lone surrogate is left
    state = json.loads(re.search(r"const state = (\{.*\}), hear", html).group(1))
    shown = state["data"]["tokens"]
    assert shown[0] == HOSTILE[0]  # whole, as text
    assert shown[3:7] == ["‹202E›abc", "‹200D›", "∅", "␣a⏎⇥"]
    assert shown[9] == "‹D800›" and shown[10] == "x" * 200 + "…" and shown[11] == HOSTILE[11]


def test_static_table_names_the_largest_weights():
    html = attention(["to", "<be>"], [[1, 0], [0.25, 0.75]]).to_html()
    table = re.search(r"<table.*</table>", html, re.S).group(0)
    assert "<bdi>&lt;be&gt;</bdi> 0.75, <bdi>to</bdi> 0.25" in table


def test_size_of_a_page():
    for causal, most in ((True, 120_000), (False, 165_000)):
        html = attention(words(64), softmax((4, 4, 64, 64), causal=causal), title="x").to_html()
        assert len(html.encode()) < most


def test_same_bytes_in_fresh_processes():
    script = (
        "import numpy as np\nfrom tlm_book.viewer import attention\n"
        "v = attention(list('abc'), np.eye(3)); v.head = 0\nimport sys\n"
        "assert 'torch' not in sys.modules, 'the viewer must not load torch'\n"
        "data = v._repr_mimebundle_()[0]; print(data['text/plain']); print(data['text/html'])"
    )
    runs = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1
    assert "<attention weights: 1 × 1 heads, 3 × 3 tokens; block 0, head 0>".encode() in runs.pop()


def test_choice_of_head_is_a_trait_that_the_page_follows():
    view, seen = attention(words(3), softmax((2, 4, 3, 3))), []
    view.observe(lambda change: seen.append((change["name"], change["new"])), names=["layer", "head"])
    before = view._repr_mimebundle_()[0]
    view.layer, view.head = 1, 2
    after = view._repr_mimebundle_()[0]
    assert seen == [("layer", 1), ("head", 2)]
    assert before["text/plain"] != after["text/plain"] == "<attention weights: 2 × 4 heads, 3 × 3 tokens; block 1, head 2>"
    assert '"head":0,"layer":0,' in before["text/html"] and '"head":2,"layer":1,' in after["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in after
    with pytest.raises(IndexError, match=r"^head: got 4, want a head from 0 to 3$"):
        view.head = 4
    assert view.head == 2


@pytest.mark.parametrize("name, good, bad, error", [
    ("pinned", (2, None), (None, None), ValueError),
    ("pinned", [0, 4], (0, 5), IndexError),
    ("pinned", (None, 0), (3, None), IndexError),
    ("pinned", (1, 1), "11", TypeError),
    ("pinned", (1, 1), (True, 0), TypeError),
    ("scale", "log", "cubic", ValueError),
    ("top_k", 5, 6, IndexError),
    ("top_k", 1, 0, IndexError),
    ("form", "edges", "circles", ValueError),
    ("against", (1, 1), (2, 0), IndexError),
    ("against", [0, 1], "other", ValueError),
    ("against", (0, 0), (0, None), TypeError),
    ("difference", True, "yes", TypeError),
    ("reverse", True, 3, TypeError),
])  # fmt: skip
def test_choices_may_be_set_and_watched_and_the_page_follows(name, good, bad, error):
    view, seen = attention(words(3), softmax((2, 2, 3, 5), causal=False), columns=words(5)), []
    view.observe(lambda change: seen.append(change["new"]), names=[name])
    setattr(view, name, good)
    held = list(good) if isinstance(good, tuple) else good
    assert seen == [held] and getattr(view, name) == held
    assert json.loads(re.search(r"const state = (\{.*\}), hear", view.to_html()).group(1))[name] == held
    with pytest.raises(traitlets.TraitError if name in ("difference", "reverse") else error, match=f"(?i){name}"):
        setattr(view, name, bad)
    assert getattr(view, name) == held
    if name in ("pinned", "against"):
        setattr(view, name, None)
        assert getattr(view, name) is None


def test_two_models_are_packed_side_by_side():
    A, B = softmax((2, 2, 5, 5)), softmax((2, 2, 5, 5), seed=1)
    view = attention(words(5), A, compare=torch.tensor(B), names=("one", "t\two"))
    assert view.against == "other" and view.data["names"] == ["one", "t⇥wo"]
    assert np.array_equal(stored(view, 0), np.rint(255 * A) / 255) and np.array_equal(stored(view, 1), np.rint(255 * B) / 255)
    assert attention(words(5), A, compare=softmax((2, 2, 5, 5), causal=False)).data["mask"] is None  # one of them looks ahead


@pytest.mark.parametrize("shape", [(1, 1, 3, 5), (2, 3, 7, 7), (1, 2, 1, 9)])
def test_a_mask_of_any_form_is_kept_and_what_it_hides_is_not_stored(shape):
    rng = np.random.default_rng(sum(shape))
    seen = rng.random(shape[2:]) < 0.6
    A = rng.random(shape) * seen
    view = attention(words(shape[2]), A, columns=words(shape[3]), mask=torch.tensor(seen))
    assert [[not masked(view.data["mask"], i, j, shape[3]) for j in range(shape[3])] for i in range(shape[2])] == seen.tolist()
    assert np.array_equal(unpacked(view), np.rint(255 * A) / 255)
    assert len(base64.b64decode(view.data["weights"][0])) == shape[0] * shape[1] * seen.sum()
    still = view.to_html().split("<script")[0]
    for i in np.flatnonzero(seen.any(-1))[:1]:
        j = int(np.argmax(np.rint(255 * A[0, 0, i])))
        assert f"<bdi>w{j}</bdi> {np.rint(255 * A[0, 0, i, j]) / 255:.2f}" in still


def test_a_causal_mask_given_is_the_causal_mask_found():
    A = softmax((3, 3))
    assert attention(words(3), A, mask=np.tri(3, dtype=bool)).data == attention(words(3), A).data
    assert attention(words(3), np.eye(3), mask=np.ones((3, 3), bool)).data["mask"] is None
    assert attention(words(3), np.eye(3), mask=np.eye(3, dtype=bool)).data["mask"] not in (None, "causal")


def test_entropy_and_distance_of_a_head():
    A = softmax((2, 3, 6, 6), causal=False)
    A[1, 2, 4] = 0  # a row that looks nowhere does not count
    A[0, 1] /= 2  # rows are divided by their sums
    data = attention(words(6), A).data
    for l in range(2):
        for h in range(3):
            w = [row / row.sum() for row in A[l, h] if row.sum()]
            places = [i for i, row in enumerate(A[l, h]) if row.sum()]
            H = np.mean([-sum(x * np.log(x) for x in row) for row in w])
            D = np.mean([sum(x * abs(i - j) for j, x in enumerate(row)) for i, row in zip(places, w)])
            assert abs(data["entropy"][0][l][h] - H) < 6e-5 and abs(data["distance"][0][l][h] - D) < 6e-5
    data = attention(words(2), [[0.5, 0.25, 0.25], [0, 0, 1]], columns=words(3), compare=[[0, 0, 0], [0, 0, 0]]).data
    assert data["distance"] is None and data["entropy"] == [[[round(0.75 * np.log(2), 4)]], [[0.0]]]


@pytest.mark.parametrize("n", [1, 2, 24, 25, 100])
def test_still_drawing_shows_the_largest_weight_of_each_block(n):
    A = np.random.default_rng(n).random((n, n)) ** 4
    A = np.tril(A) if n % 2 == 0 else A  # with a mask and without
    still = attention(words(n), A).to_html().split("<script")[0]
    k = -(-n // 24)
    side = min(16, 240 // -(-n // k))
    level = np.zeros((-(-n // k),) * 2, int) - 9
    for colour, d in re.findall(r'<path fill="(#\w+)" stroke="none" d="([^"]*)"', still):
        for x, y in re.findall(r"M(\d+) (\d+)h", d):
            level[int(y) // side, int(x) // side] = ("#d5dae1", *style.SEQUENTIAL_STOPS).index(colour) - 1
    want = [[np.rint(8 * np.sqrt(np.rint(255 * A[a : a + k, b : b + k].max()) / 255)) for b in range(0, n, k)] for a in range(0, n, k)]
    want = np.where(np.triu(np.ones(level.shape), 1) > 0, -1, want) if n % 2 == 0 else want
    assert np.array_equal(level, want) and 'aria-label="weights of block 0, head 0"' in still


A3 = softmax((3, 3))
BAD = [
    (ValueError, "weights: got shape (3,), want", lambda: attention(words(3), A3[0])),
    (ValueError, "weights: got shape (1, 2, 1, 3, 3), a batch of 2, want one text", lambda: attention(words(3), np.stack([A3, A3])[None, :, None])),
    (ValueError, "weights: got shape (1, 1, 1, 1, 3, 3), want", lambda: attention(words(3), A3[None, None, None, None])),
    (ValueError, "weights: got shape (3, 3), want shape (…, 4, 4) for 4 tokens", lambda: attention(words(4), A3)),
    (ValueError, "want shape (…, 3, 2) for 3 tokens and 2 columns", lambda: attention(words(3), A3, columns=words(2))),
    (ValueError, "weights: got nan at layer, head, row, column [0, 0, 1, 1]", lambda: attention(words(3), np.diag([1, np.nan, 1]))),
    (ValueError, "weights: got inf at", lambda: attention(words(3), A3 + np.inf)),
    (ValueError, "weights: got -0.5, want numbers from 0 to 1", lambda: attention(words(3), np.eye(3) * -0.5)),
    (ValueError, "weights: got 2, want numbers from 0 to 1", lambda: attention(words(3), np.eye(3) * 2)),
    (ValueError, "weights: got shape (0, 3, 3), want at least", lambda: attention(words(3), np.zeros((0, 3, 3)))),
    (ValueError, "weights: got no array", lambda: attention(words(2), [[1], [1, 2]])),
    (ValueError, "weights: got 9000000 weights, want at most", lambda: attention(words(3000), np.zeros((3000, 3000), np.int8))),
    (TypeError, "weights: got dtype <U1, want real numbers", lambda: attention(words(1), [["a"]])),
    (TypeError, "weights: got dtype complex128", lambda: attention(words(3), A3 * 1j)),
    (ValueError, "tokens: got no token, want at least one", lambda: attention([], np.zeros((0, 0)))),
    (TypeError, "tokens: got a single str", lambda: attention("abc", A3)),
    (ValueError, "compare: got shape (1, 1, 2, 2), want the weights' shape (1, 1, 3, 3)", lambda: attention(words(3), A3, compare=np.eye(2))),
    (ValueError, "compare: got -1, want numbers from 0 to 1", lambda: attention(words(3), A3, compare=-np.eye(3))),
    (ValueError, "compare: got 12500000 weights in all", lambda: attention(words(2500), np.zeros((2500, 2500), np.int8), compare=np.zeros((2500, 2500), np.int8))),
    (ValueError, "names: got 1 of them, want two", lambda: attention(words(3), A3, names=["a"])),
    (TypeError, "mask: got dtype float64, want True and False", lambda: attention(words(3), A3, mask=np.tri(3))),
    (ValueError, "mask: got shape (2, 2), want shape (3, 3)", lambda: attention(words(3), A3, mask=np.eye(2) > 0)),
    (ValueError, "mask: got weight 1 at [0, 0, 1, 1], where it is False", lambda: attention(words(2), np.eye(2), mask=np.array([[True, True], [True, False]]))),
    # what a model of transformers gives as it loads by default, and what it gives whole
    (ValueError, 'weights: got none, want attentions, which a model of transformers gives when it was loaded with attn_implementation="eager"', lambda: attention(words(3), ())),
    (ValueError, 'weights: got none, want attentions', lambda: attention(words(3), None)),
    (ValueError, 'weights: got none, want attentions', lambda: attention(words(3), (None, None))),
    (TypeError, "weights: got a SimpleNamespace, want its attentions: the field of that name", lambda: attention(words(3), SimpleNamespace(attentions=(A3,)))),
    # the three arguments of show in another order, and other things
    (TypeError, "model: got str, want a model: show(model, tokenizer, text)", lambda: show("model", "tokenizer", "text")),
    (TypeError, "tokenizer: got str, want the model's tokenizer", lambda: show(torch.nn.Linear(2, 2), "text", "text")),
    (TypeError, "model: got a Linear, which is none of transformers", lambda: show(torch.nn.Linear(2, 2), Letters(), "text")),
]


@pytest.mark.parametrize("error, message, call", BAD, ids=[message for _, message, _ in BAD])
def test_bad_input_is_named(error, message, call):
    """What the runtime checker would refuse first stands in `bad_inputs.py`."""
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_style_is_set_and_the_two_colour_scales_agree():
    import matplotlib
    from matplotlib.colors import to_hex

    with matplotlib.rc_context():
        use_style()
        use_style()  # a second call changes nothing
        assert matplotlib.rcParams["svg.hashsalt"] == "tlm_book" and matplotlib.rcParams["savefig.dpi"] == 150
        assert matplotlib.rcParams["axes.prop_cycle"].by_key()["color"] == list(style.CYCLE)
        scale = matplotlib.colormaps[style.SEQUENTIAL]
        assert to_hex(scale(0.0)) == style.SEQUENTIAL_STOPS[0] and to_hex(scale(1.0)) == style.SEQUENTIAL_STOPS[-1]
    assert all(f'"{stop}"' in MODULE for stop in style.SEQUENTIAL_STOPS)


def linear(hexadecimal: str) -> np.ndarray:
    c = np.array([int(hexadecimal[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear sRGB: distances are about as large as they look (2 is just visible)."""
    xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]] @ rgb
    x, y, z = (np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz / [0.95047, 1, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colour_scale_has_equal_steps():
    stops = np.array([lab(linear(stop)) for stop in style.SEQUENTIAL_STOPS])
    steps = np.linalg.norm(np.diff(stops, axis=0), axis=1)
    assert (np.diff(stops[:, 0]) < 0).all()  # ever darker: it can be read without seeing hues
    assert steps.max() / steps.min() < 1.1


# What a reader without one kind of cone sees (Machado, Oliveira and Fernandes 2009), on linear sRGB.
CONES = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("seen", CONES.values(), ids=CONES)
def test_palette_can_be_told_apart(seen):
    colours = [lab(np.clip(seen @ linear(c), 0, 1)) for c in style.CYCLE]
    assert min(np.linalg.norm(a - b) for k, a in enumerate(colours) for b in colours[:k]) > 15


# The ways of a user: from a model to a picture in one line, and from the picture to a file


def test_a_model_of_ours_in_one_line():
    model, tokenizer = shipped()
    model.train()
    view = show(model, tokenizer, "The tide runs out", title="Tide")
    tokens = [tokenizer.start, *tokenizer.encode("The tide runs out")]
    assert model.training and view.data["title"] == "Tide" and view.data["tokens"][1] == "The"
    assert np.abs(unpacked(view) - model.eval().attention_weights(torch.tensor(tokens)).numpy()).max() <= 1 / 510 + 1e-6
    with pytest.raises(TypeError):
        show(model, tokenizer, ["The", "tide"])


class Letters:
    """As much of a tokenizer of transformers as is asked for."""

    def __call__(self, text, return_tensors):
        from transformers import BatchEncoding

        return BatchEncoding({"input_ids": torch.tensor([[ord(c) - 97 for c in text]])})

    def decode(self, tokens):
        return chr(tokens[0] + 97)

    def convert_ids_to_tokens(self, token):
        return "▁" + chr(token + 97)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_model_of_transformers_in_one_line(kernel):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=26, n_positions=9, bos_token_id=None, eos_token_id=None, attn_implementation=kernel)
    model = transformers.GPT2LMHeadModel(config).eval()
    view = show(model, Letters(), "tide")
    assert view.data["shape"] == [2, 2, 4, 4] and view.data["tokens"] == ["␣t", "␣i", "␣d", "␣e"] and view.data["mask"] == "causal"
    assert model.config._attn_implementation == kernel and not model.training
    model.set_attn_implementation("eager")
    told = model(torch.tensor([[19, 8, 3, 4]]), output_attentions=True).attentions  # a tuple, with gradients and a batch axis
    assert told[0].requires_grad and unpacked(attention(list("tide"), told)).tolist() == unpacked(view).tolist()
    half = unpacked(attention(list("tide"), tuple(layer.half() for layer in told)))
    assert np.rint(255 * np.abs(half - unpacked(view))).max() <= 1  # one step; the random model may have a weight between two


def test_a_model_without_attentions_is_refused():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=26, n_positions=9, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config)
    model.forward = lambda input_ids, output_attentions: transformers.modeling_outputs.CausalLMOutput()
    with pytest.raises(TypeError, match="model: got a GPT2LMHeadModel, which returns none, want one that returns attentions"):
        show(model, Letters(), "tide")


def test_a_view_is_saved_as_its_name_says(tmp_path):
    view = attention(["to", "$be", "or"], softmax((2, 2, 3, 3)), title="x < y")
    view.layer = 1
    for scale in ("root", "linear", "log", "top"):
        view.scale = scale
        assert view.save(tmp_path / f"{scale}.svg") == tmp_path / f"{scale}.svg"
    drawn = (tmp_path / "log.svg").read_text()
    assert drawn.startswith("<?xml") and len({(tmp_path / f"{scale}.svg").read_text() for scale in ("root", "linear", "log")}) == 3
    assert view.save(str(tmp_path / "again.svg")).read_text() == (tmp_path / "top.svg").read_text()
    assert view.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = view.save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and view.to_html() in page and "<title>x &lt; y</title>" in page
    state = json.loads(view.save(tmp_path / "a.json").read_text(encoding="utf-8"))
    assert state["data"] == view.data and state["layer"] == 1 and state["scale"] == "top"
    with pytest.raises(ValueError, match=r"file: got '.*a.pdf', want a name that ends in .html, .json, .svg or .png$"):
        view.save(tmp_path / "a.pdf")
    with pytest.raises(FileNotFoundError, match=r"file: got '.*new/a.svg', and no folder '.*new', want a file in a folder that exists"):
        view.save(tmp_path / "new" / "a.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder.svg', a folder, want the name of a file"):
        view.save(tmp_path / "folder.svg")
    assert len(list(tmp_path.iterdir())) == 9


@pytest.mark.parametrize("layer, head", [(0, 0), (0, 2), (1, 0), (1, 2)])
@pytest.mark.parametrize("mask", ["none", "causal", "other"])
def test_the_head_that_is_drawn(layer, head, mask):
    seen = np.random.default_rng(0).random((5, 5)) < 0.6 if mask == "other" else np.tri(5, k=0 if mask == "causal" else 5) > 0
    A = softmax((2, 3, 5, 5), causal=False) * seen
    view = attention(words(5), A, mask=seen)
    q, found = head_of(view.data, layer, head)
    assert np.array_equal(found, seen) and np.array_equal(q, np.rint(255 * A[layer, head]))
    view.layer, view.head = layer, head
    axes = figure(view).axes[0]
    drawn = axes.images[0].get_array()
    assert np.array_equal(drawn.mask, ~seen) and np.array_equal(drawn.data, q / 255) and axes.get_title(loc="left") + axes.get_title() == f"block {layer}, head {head}"
    assert [label.get_text() for label in axes.get_yticklabels()] == words(5)


def test_the_scale_of_a_drawing():
    view = attention(words(6), A := softmax((6, 6), causal=False))

    def image(scale):
        view.scale = scale
        return figure(view).axes[0].images[0]

    assert image("linear").norm(0.25) == 0.25 and image("root").norm(0.25) == 0.5
    assert image("log").norm(1 / 510) == 0 and image("log").norm(510**-0.5) == pytest.approx(0.5)
    for view.top_k in (1, 2, 5):
        q = np.rint(255 * A)
        places = np.argsort(-q, axis=1, kind="stable")[:, : view.top_k]
        want = np.zeros_like(q)
        np.put_along_axis(want, places, np.take_along_axis(q, places, 1), 1)
        assert np.array_equal(image("top").get_array(), want / 255)


WITHOUT_WIDGETS = """
import sys
sys.modules["anywidget"] = sys.modules["traitlets"] = None
import matplotlib
import torch
from tlm_book import Config, Tokenizer, TransformerLM, audit, derive

matplotlib.use("agg")
tokenizer = Tokenizer([])
model = TransformerLM(Config(len(tokenizer), d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=8)).eval()
derive(model).plot()
audit(model, torch.tensor([[1, 2]]), modes=["eval"], progress=False).plot()
from tlm_book import viewer
from tlm_book.viewer import style, use_style

use_style()
assert not hasattr(viewer, "nothing")
for name in viewer.__all__[:-1]:
    try:
        exec(f"from tlm_book.viewer import {name}")
    except ImportError as error:
        assert "pip install 'tlm_book[viewer]'" in str(error), error
    else:
        raise AssertionError(f"{name} was imported without widgets")
del sys.modules["anywidget"], sys.modules["traitlets"]  # installed meanwhile
from tlm_book.viewer import attention, show
print(show(model, tokenizer, "ab"), attention(["a"], [[1.0]]), viewer.attention is attention)
"""


def test_what_draws_without_widgets_needs_none():
    done = subprocess.run([sys.executable, "-c", WITHOUT_WIDGETS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("block 0, head 0> True\n")


@pytest.mark.filterwarnings("ignore:Widget")
def test_the_view_s_own_methods_come_first_in_its_help():
    import pydoc

    text = pydoc.plain(pydoc.render_doc(View))
    own, inherited = text.split("Methods inherited from", 1)
    assert all(f"{name}(self" in own and f"{name}(self" not in inherited for name in ("save", "to_html"))
    assert text.index('view.save("heads.html")') < text.index("Method resolution order")
    assert "Sequence" not in pydoc.plain(pydoc.render_doc(attention)).split("weights:")[1].split("columns:")[0]


def test_no_gradients_are_kept_for_a_picture():
    model = torch.nn.Linear(2, 2)
    with reading(model) as place:
        assert not model(torch.ones(2, device=place)).requires_grad
