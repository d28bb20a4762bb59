"""Looking inside: every intermediate result of every model is that of the specification, and a hook puts another in its place."""

import math
import os
import re
import subprocess
import sys
from functools import partial

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from test_parity import by_torch, configs, distance, made, many, some_tokens
from torch import nn

from tlm_book.derivation import derive
from tlm_book.heads import logit_lens
from tlm_book.inside import names_inside, run_with_cache, run_with_hooks
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.spec.decoder_block import FEED_FORWARDS
from tlm_book.spec.embedding import embed
from tlm_book.spec.feed_forward import FORMULAS, GATE_FORMULAS, chosen_experts
from tlm_book.spec.multi_head import heads, unit_rows, window_mask
from tlm_book.spec.normalization import layer_norm, rms_norm
from tlm_book.spec.operators import softmax
from tlm_book.spec.positional_encoding import add_positions, rotary
from tlm_book.spec.transformer_lm import final_layer
from tlm_book.transformer_lm import Config, TransformerLM


def specified(model: TransformerLM, t: np.ndarray) -> dict[str, np.ndarray]:
    """Every intermediate result for one text, by the specification's own functions."""
    w, s = model.spec_weights(), model.spec_settings()
    found = {"embedding": embed(t, w["E"])}
    X = found["position"] = found["embedding"] if w["P"] is None else add_positions(found["embedding"], w["P"])
    for l, block in enumerate(w["blocks"]):
        of_block = in_block(X, block, s)
        X = of_block["residual_post"]
        found |= {f"blocks.{l}.{name}": value for name, value in of_block.items()}
    found["norm"] = X if w["N"] is None else normalized(X, w["N"], s)
    return found | {"logits": final_layer(found["norm"], w["Y"], w["b"])}


def normalized(X, weights, s):
    return rms_norm(X, **weights, eps=s["eps"]) if s["norm_kind"] == "rms" else layer_norm(X, **weights, eps=s["eps"], eps_mode=s["eps_mode"])


def in_block(X, w, s):
    N = lambda name, X: X if s["norm"] == "none" else normalized(X, w[name], s)
    found = {"residual_pre": X}
    post, sequential = s["norm"] == "post", s["variant"] == "sequential"
    read = X if post else N("N_ca", X)
    of_attention = in_attention(read, w["CA"], s)
    attended = X + of_attention["attention"]
    found |= of_attention | {"norm_attention": N("N_ca", attended) if post else read}
    mid = found["norm_attention"] if post else attended
    found |= {} if s["variant"] == "parallel" else {"residual_mid": mid}
    read = mid if post else N("N_ff", X if s["variant"] == "parallel" else mid)
    found |= in_feed_forward(read, w["FF"], s)
    fed = found["feed_forward"] + (X if s["variant"] == "simplified" else mid)
    assert post is False or sequential
    return found | {"norm_feed_forward": N("N_ff", fed) if post else read, "residual_post": N("N_ff", fed) if post else fed}


def in_attention(X, w, s):
    rows = {x: X @ w[f"W_{x}"] + (w[f"b_{x}"][:, None] if f"b_{x}" in w else 0) for x in "QKV"}
    rotate = None if s["rotary"] is None else partial(rotary, **s["rotary"])
    for x, gain in zip("QK", w.get("qk_gain", ())):
        rows[x] = unit_rows(rows[x], gain, s["eps"])
    if rotate is not None:
        rows |= {x: np.stack([rotate(head) for head in rows[x]]) for x in "QK"}
    Q, K, V = rows["Q"], rows["K"], rows["V"]
    h, n = len(Q), len(X)
    c = 1 / math.sqrt(Q.shape[2]) if s["scale"] is None else s["scale"]
    scores = [c * Q[i] @ K[i // (h // len(K))].T for i in range(h)]
    masked = [window_mask(S, s["window"] or n) for S in scores]
    H = heads(X, **{name: W for name, W in w.items() if name not in ("W_O", "b_O")}, scale=s["scale"], window=s["window"], qk_eps=s["eps"], rotate=rotate)
    found = {"queries": Q, "keys": K, "values": V, "scores": scores, "masked_scores": masked, "weights": [softmax(S) for S in masked], "heads": H}
    result = np.concatenate(H, axis=1) @ w["W_O"] + w["b_O"]
    return {f"attention.{name}": np.stack(list(value)) for name, value in found.items()} | {"attention": result}


def in_feed_forward(X, w, s):
    k = {"k": s["n_experts_used"]} if s["feed_forward"] == "experts" else {}
    found = {"feed_forward": FEED_FORWARDS[s["feed_forward"]](X, **w, **k, activation=s["activation"])}
    hidden_of = lambda expert: GATE_FORMULAS[s["activation"]](X @ expert["W_G"] + expert.get("b_G", 0)) * (X @ expert["W_1"] + expert.get("b_1", 0))
    if s["feed_forward"] == "experts":
        R = found["feed_forward.router"] = X @ w["W_R"]
        every = np.stack([hidden_of(expert) for expert in w["experts"]], axis=1)
        best = [sorted(np.flatnonzero(row), key=lambda e, R=r: -R[e]) for r, row in zip(R, chosen_experts(R, s["n_experts_used"]))]
        hidden = np.stack([rows[chosen] for rows, chosen in zip(every, best)])
    elif s["feed_forward"] == "gated":
        found |= {"feed_forward.gate": X @ w["W_G"] + w.get("b_G", 0), "feed_forward.up": X @ w["W_1"] + w.get("b_1", 0)}
        hidden = hidden_of(w)
    else:
        up = found["feed_forward.up"] = X @ w["W_1"] + w["b_1"]
        hidden = FORMULAS[s["activation"]](up)
    return found | {"feed_forward.hidden": hidden}


@many(40)
@given(configs())
def test_every_intermediate_result_is_the_specification_s(config):
    model = made(config)
    x = some_tokens(config, 2, min(6, config.max_len))
    logits, cache = model.run_with_cache(x)
    assert list(cache) == names_inside(model) and distance(logits.detach().numpy(), by_torch(model, x)) < 1e-12
    for l, block in enumerate(model.blocks):
        weights = block.attention_weights(cache[f"blocks.{l}.residual_pre"])
        assert torch.allclose(weights, cache[f"blocks.{l}.attention.weights"], rtol=0, atol=1e-12)
    for i, t in enumerate(x):
        wanted = specified(model, t.numpy())
        assert cache.keys() == wanted.keys()
        for name, result in cache.items():
            got, want = result[i].detach().numpy(), wanted[name]
            hidden = np.isneginf(want)
            assert got.shape == want.shape and np.array_equal(np.isneginf(got), hidden), name
            assert distance(np.where(hidden, 0, got), np.where(hidden, 0, want)) < 1e-12, name


def small(**choices) -> tuple[TransformerLM, torch.Tensor]:
    config = Config.llama(11, d_model=8, d_ff=6, n_layers=2, n_heads=4, n_kv_heads=2, max_len=9, **choices)
    return made(config), some_tokens(config, 2, 7)


@pytest.mark.parametrize("experts", [{}, {"n_experts": 3, "n_experts_used": 2}])
def test_each_hook_replaces_what_comes_after_and_nothing_before(experts):
    model, x = small(**experts)
    logits, cache = model.run_with_cache(x)
    names = names_inside(model)
    for at, name in enumerate(names):
        other, changed = model.run_with_cache(x, hooks={name: lambda result: 0.5 * result.masked_fill(result.isneginf(), -3.0) + 0.1})
        assert not torch.equal(changed[name], cache[name]) and not torch.equal(other, logits), name
        for before in names[:at]:
            same_step = {before, name} <= {n for n in names if re.search(r"feed_forward\.(gate|up)$|queries|keys|values", n)}
            assert same_step or torch.equal(changed[before], cache[before]), (name, before)
    assert torch.equal(model.run_with_cache(x, hooks={"*": lambda result: None})[0], logits)


@many(20)
@given(configs())
def test_the_sums_of_the_stream_hold_when_any_of_its_results_is_replaced(config):
    model, x = made(config), some_tokens(config, 2, min(6, config.max_len))
    post, parallel, simplified = config.norm == "post", config.variant == "parallel", config.variant == "simplified"
    block, normalized = "blocks.0.", (lambda norm, sum: norm(sum)) if post else (lambda norm, sum: sum)
    for name in ["residual_pre", "attention", "feed_forward"] + ["residual_mid"] * (not parallel):
        logits, cache = model.run_with_cache(x, f"{block}*", {block + name: lambda result: 0.5 * result.flip(-1) + 0.1})
        pre, added, fed, end = (cache[block + part] for part in ("residual_pre", "attention", "feed_forward", "residual_post"))
        mid = normalized(model.blocks[0].norm_attention, pre + added)
        if name == "residual_mid":
            assert torch.allclose(cache[block + name], 0.5 * mid.flip(-1) + 0.1, rtol=0, atol=1e-12)
        mid = mid if parallel else cache[block + "residual_mid"]
        assert torch.allclose(end, normalized(model.blocks[0].norm_feed_forward, (pre if simplified else mid) + fed), rtol=0, atol=1e-12), name
        rest = model.run_with_hooks(x, {block + "residual_post": lambda result: end})
        assert torch.equal(rest, logits), name


def test_several_hooks_of_one_result_are_called_in_their_order():
    model, x = small()
    name, pattern = "blocks.0.attention.heads", "blocks.0.attention.h*"
    want = model.run_with_hooks(x, {name: torch.zeros_like})
    look = lambda result: None
    assert all(torch.equal(model.run_with_hooks(x, hooks), want) for hooks in ({name: torch.zeros_like, pattern: look}, {pattern: look, name: torch.zeros_like}))
    one, two = (lambda result: result + 1), (lambda result: 2 * result)
    for hooks, both in (({name: one, pattern: two}, lambda result: 2 * (result + 1)), ({pattern: two, name: one}, lambda result: 2 * result + 1)):
        assert torch.equal(model.run_with_hooks(x, hooks), model.run_with_hooks(x, {name: both}))


def test_a_hook_may_look_into_the_model():
    model, x = small()
    logits, cache = model.run_with_cache(x)
    within = []
    outer = model.run_with_cache(x, "*", {"blocks.0.attention.weights": lambda _: within.append(model.run_with_cache(x)[1])})
    assert torch.equal(outer[0], logits) and len(within) == 1
    assert all(torch.equal(outer[1][name], result) and torch.equal(within[0][name], result) for name, result in cache.items())
    assert all("watch" not in vars(module) for module in model.modules())


def test_a_run_goes_on_from_what_was_kept():
    """The residual stream of one text, put into a run on another, gives the first text's logits."""
    model, x = small()
    logits, cache = model.run_with_cache(x, ["blocks.1.residual_pre", "blocks.*.weights"])
    assert list(cache) == ["blocks.0.attention.weights", "blocks.1.residual_pre", "blocks.1.attention.weights"]
    patched = run_with_hooks(model, x.flip(0), {"blocks.1.residual_pre": lambda _: cache["blocks.1.residual_pre"]})
    assert torch.allclose(patched, logits, rtol=0, atol=1e-12) and torch.equal(model.run_with_hooks(x, {}), model(x))


def test_gradients_reach_what_is_kept():
    model, x = small()
    logits, cache = model.run_with_cache(x, "blocks.*.attention.weights")
    by_layer = torch.autograd.grad(logits[0, 3].sum(), list(cache.values()))
    assert all(g[0, :, :4].abs().sum() > 0 and not g[1].any() for g in by_layer)


def test_nothing_stays_behind_also_when_a_hook_fails():
    model, x = small(n_experts=2)
    def fail(result):
        raise RuntimeError("mine")
    with pytest.raises(RuntimeError, match="mine"):
        model.run_with_hooks(x, {"blocks.1.feed_forward.hidden": fail})
    assert derive(model).autoregressive  # it has no hook
    assert all(getattr(module, "watch", None) is None for module in model.modules())


COMPILED = """
import torch
from tlm_book.transformer_lm import Config, TransformerLM

def made():
    torch.manual_seed(0)
    return TransformerLM(Config.llama(11, d_model=8, d_ff=6, n_layers=2, n_heads=4, n_kv_heads=2, max_len=9)).double()

x = torch.arange(7)
wanted, cache = made().run_with_cache(x)
whole, parts = torch.compile(made(), fullgraph=True, backend="eager"), made()
for block in parts.blocks:
    block.compile(fullgraph=True, backend="eager")
for compiled in (whole, parts):
    assert torch.allclose(compiled(x), wanted)
    again = compiled.run_with_cache(x)[1]
    assert again.keys() == cache.keys() and all(torch.equal(again[name], cache[name]) for name in cache)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.allclose(compiled(x), wanted)
print("as written")
"""


@pytest.mark.long
def test_a_compiled_model_is_looked_into_as_it_was_written():
    """It is one graph before and after, and need not be compiled again; without the checks of signatures, which no graph holds."""
    env = os.environ | {"TLM_BOOK_TYPECHECK": "0"}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout == "as written\n", done.stderr


@pytest.mark.parametrize(("hooks", "message"), [
    (lambda result: result, "hooks: got function, want a mapping {name: f}"),
    ([("logits", torch.zeros_like)], "hooks: got list, want a mapping {name: f}"),
    ({"logits": 3}, "hooks['logits']: got int, want a function of one argument, the result"),
    ({"logits": lambda value, hook: value}, "hooks['logits']: got a function of other arguments (missing a required argument: 'hook'), want a function of one argument"),
])  # fmt: skip
def test_hooks_of_another_form_are_refused_before_the_run(hooks, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # without the runtime type checker, as a user has it
    model = TransformerLM(Config(11, d_model=4, d_ff=4, n_layers=1, n_heads=1))
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        model.run_with_cache(torch.tensor([1, 2]), hooks=hooks)
    assert model.run_with_hooks(torch.tensor([1, 2]), {"logits": torch.zeros_like}).abs().max() == 0  # torch's own say nothing of their arguments


def test_a_name_that_is_not_in_the_cache_is_answered_with_the_nearest():
    _, cache = TransformerLM(Config(11, d_model=4, d_ff=4, n_layers=1, n_heads=1)).run_with_cache(torch.tensor([1, 2]))
    with pytest.raises(KeyError, match=r"got 'blocks.0.attention.weight', want one that was kept, such as 'blocks.0.attention.weights'"):
        cache["blocks.0.attention.weight"]
    assert cache.get("nothing") is None and isinstance(cache, dict)


def test_the_logit_lens_ends_with_the_logits():
    model, x = small()
    lens = logit_lens(model, x)
    assert lens.shape == (3, *model(x).shape) and (lens[-1] - model(x)).abs().max() < 1e-14
    for layer, stream in enumerate(model.residual_stream(x)):  # the same products in another shape, which may be rounded otherwise
        assert (lens[layer] - model.unembedding(model.norm(stream))).abs().max() < 1e-14


def test_the_nearest_name_is_suggested_however_far_it_is():
    model = TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4))
    _, cache = run_with_cache(model, torch.tensor([1, 2]), "logits")
    with pytest.raises(KeyError, match="got 'xyz', want one that was kept, such as 'logits'"):
        cache["xyz"]


def test_nothing_is_left_behind_in_a_layer():
    model = TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4))
    before = [sorted(vars(part)) for part in model.modules()]
    run_with_cache(model, torch.tensor([1, 2]))
    assert [sorted(vars(part)) for part in model.modules()] == before


class Halved(nn.Module):
    """A layer of one's own."""

    def forward(self, x):
        return x / 2


@pytest.mark.parametrize("part", ["attention", "feed_forward", None])
def test_what_a_layer_of_one_s_own_does_not_show_is_not_there(part):
    """A hook on it had no effect, and `attention_weights` left the block out, so that the others had its numbers."""
    model, x = small()
    if part is None:
        model.blocks[0] = Halved()
    else:
        setattr(model.blocks[0], part, Halved())
    names = [f"blocks.0.{part or 'attention'}.{inside}" for inside in ("weights", "hidden")]
    assert not set(names) & set(names_inside(model))
    logits, cache = run_with_cache(model, x)
    assert list(cache) == names_inside(model) and torch.equal(cache["blocks.0.residual_post"], cache["blocks.1.residual_pre"])
    assert torch.equal(logits, cache["logits"])
    for name in names:
        with pytest.raises(ValueError, match=f"hooks: got '{name}', want a name inside the model"):
            run_with_hooks(model, x, {name: torch.zeros_like})
    if part != "feed_forward":
        with pytest.raises(ValueError, match="names: got 'blocks.0.attention.weights', want a name inside the model"):
            model.attention_weights(x)


def test_a_result_that_is_never_handed_over_is_refused():
    class Own(MultiHeadAttention):
        def forward(self, x):
            return x

    model = TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4))
    model.blocks[0].attention = Own(4, 1)
    x, name = torch.tensor([1, 2]), "blocks.0.attention.weights"
    assert name not in run_with_cache(model, x)[1]
    for argument, asked in (("names", {"names": name}), ("hooks", {"hooks": {name: torch.zeros_like}})):
        with pytest.raises(ValueError, match=f"{argument}: got '{name}', want a result that is handed over"):
            run_with_cache(model, x, **asked)
