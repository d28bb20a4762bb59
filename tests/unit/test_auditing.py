"""The audit against a zoo: every planted leak is found and its module named, no clean model is accused, and nothing is left changed."""

import contextlib
import copy
import dataclasses
import functools
import io
import os
import random
import subprocess
import sys
import warnings
from collections import deque
from types import SimpleNamespace

import audit_zoo as zoo
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tlm_book.auditing import (
    assert_autoregressive,
    audit,
    blame,
    cuts,
    inputs,
    run,
    state,
    trial,
)
from tlm_book.auditing.report import Leak, Report
from tlm_book.auditing.small import first_culprit, small_audit
from tlm_book.checks import expects, refuse
from tlm_book.derivation import derive

pytestmark = pytest.mark.filterwarnings("ignore")


def audited(case: zoo.Case, **options):
    torch.manual_seed(0)
    model, example, *own = case.make()
    return audit(model, example, progress=False, **case.options, **(own[0] if own else {}), **options)


@functools.cache
def report_on(name: str):
    return audited(*named(name))


def every_third(cases: list[zoo.Case]) -> list:
    """The others belong to the long tests."""
    return [pytest.param(case, id=case.name, marks=pytest.mark.long if k % 3 else ()) for k, case in enumerate(cases)]


@pytest.mark.parametrize("case", every_third(zoo.PLANTED))
def test_a_planted_leak_is_found_and_its_module_named(case):
    report = report_on(case.name)
    assert not report.ok
    named = [leak for leak in report.leaks if leak.fault == case.fault]
    assert named and {leak.module for leak in report.leaks} == {case.module}, report
    assert case.cause in named[0].cause and case.setting in named[0].setting, report
    other = {"eval": "train", "train": "eval"}.get(case.setting)
    if case.name.startswith(("no mask in", "batch norm in", "in training")) and other:
        assert other not in named[0].setting, report
    assert all(0 <= leak.row and leak.size > 0 for leak in report.leaks)
    assert case.fault != "future" or named[0].source > named[0].row


@pytest.mark.parametrize("case", every_third(zoo.CLEAN))
def test_a_clean_model_is_not_accused(case):
    report = audited(case)
    assert report.ok and not report.leaks and not report.problems, report


@pytest.mark.long
def test_the_cause_is_right_nearly_always():
    """A cause that is stated counts as right when it is the one that was planted; "not known" states none."""
    stated, right = [], []
    for case in zoo.PLANTED:
        cause = next((leak.cause for leak in report_on(case.name).leaks if leak.fault == case.fault), "")
        if cause and not cause.startswith("not known"):
            stated.append(case.name)
            right += [case.name] if case.cause and case.cause in cause else []
    print(f"planted: {len(zoo.PLANTED)}; a cause is stated for {len(stated)} and right for {len(right)}")
    assert len(stated) >= 0.9 * len(zoo.PLANTED) and len(right) >= 0.95 * len(stated), set(stated) - set(right)


def test_the_zoo_is_large():
    assert len(zoo.PLANTED) >= 30 and len(zoo.CLEAN) >= 30
    names = [case.name for case in zoo.PLANTED + zoo.CLEAN]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", zoo.PLANTED, ids=lambda case: case.name)
def test_proof_and_experiment_agree(case):
    """What has a leak is not proved autoregressive, in the mode in which it has it."""
    torch.manual_seed(0)
    model = case.make()[0]
    if isinstance(model, nn.Module):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for mode in [case.setting] if case.setting else ["eval", "train"]:
                assert not derive(model.train(mode == "train")).autoregressive


def test_some_of_the_clean_are_proved():
    proved = [case for case in zoo.CLEAN if isinstance(case.make()[0], nn.Module) and derive(case.make()[0].eval()).autoregressive]
    assert {"this book's decoder block", "this book's model", "causal attention, rows first"} <= {case.name for case in proved}


ATTENTION = {
    "a mask": zoo.Attention, "no mask": zoo.NoMask, "one late": lambda: zoo.Ahead(1), "three late": lambda: zoo.Ahead(3), "mask of −10": lambda: zoo.Weak(-10.0),
    "mask of −60": lambda: zoo.Weak(-60.0), "after softmax": zoo.MaskAfter, "a prefix": zoo.Prefix, "temperature by n": zoo.LengthScale,
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_the_small_auditor_agrees(name):
    """On what both can judge: blocks that take one matrix of rows and return one."""
    torch.manual_seed(0)
    model, x = nn.Sequential(zoo.Block(), zoo.Block(ATTENTION[name]()), zoo.Block()).eval(), zoo.rows()
    small, large = small_audit(model, x[0]), audit(model, x, modes=["eval"], lengths=[zoo.N], progress=False)
    assert small.ok == large.ok == (name == "a mask")
    ways = {way for leak in large.leaks for way in leak.ways}
    found = {"replaced rows": small.replaced, "removed rows": small.removed, "derivatives": small.derivatives}
    assert {way for way, places in found.items() if places} == ways
    assert not small.replaced or small.culprit == large.leaks[0].module == "1.attention"


# --- Each part of the tool is needed: broken, the zoo notices


def found_wrong(cases) -> list[str]:
    wrong = []
    for case in cases:
        report = audited(case)
        planted = case in zoo.PLANTED
        named = [leak for leak in report.leaks if leak.fault == case.fault and leak.module == case.module and case.cause in leak.cause]
        if report.ok == planted or planted and not named or not planted and report.problems:
            wrong.append(case.name)
    return wrong


def named(*names: str) -> list[zoo.Case]:
    return [case for case in zoo.PLANTED + zoo.CLEAN if case.name in names]


BREAKS = {
    "no derivatives": ("experiments.try_derivatives", lambda *a: None, ["mask of −60, below all rounding", "10⁻²⁰ of the mean, below all rounding"]),
    "nothing replaced": ("experiments.try_replaced", lambda *a: None, ["detached mean", "ranks"]),
    "nothing removed": ("experiments.try_removed", lambda *a: None, ["positions as fractions of n", "temperature by n"]),
    "a tolerance of a thousandth": ("noise.noise_level", lambda *a: 1e-3, ["a cache that forgets"]),
    "no tolerance": ("noise.noise_level", lambda *a: 0.0, ["state space by Fourier transform", "softmax steadied by the largest of all scores"]),
    "no rounding is measured": ("noise.shaken", lambda *a: 0.0, ["Fourier transform with an offset"]),
    "no padding": ("experiments.try_padding", lambda *a: None, ["padding mask in place of ◺"]),
    "no cache": ("experiments.try_cache", lambda *a: None, ["a cache that forgets"]),
    "no other sequences": ("experiments.try_batch", lambda *a: None, ["batch and rows confused", "softmax over the batch"]),
    "whatever has no rows is a summary": ("blame.summarizes", lambda *a: True, ["a mean behind a convolution that is cropped", "a mean behind a left pad"]),
    "a summary by one length": ("blame.summarizes", lambda calls, k, shorter, whole=blame.summarizes: whole(calls, k, shorter[:1]), ["a mean behind pairs of rows"]),
    "no intervention": ("blame.explains", lambda *a: False, ["pooling layer"]),
    "the last culprit, not the first": ("blame.first_to_differ", lambda calls, differs: (len(calls) - 1, []), ["no mask in block 0", "final norm over the rows"]),
    "no weights in double": ("run.on_copies", lambda modules, dtype, whole=state.on_copies: whole(modules, None), ["a billionth of the mean"]),
    "generators run on": ("trial.seed_everything", lambda *a: None, ["dropout", "dropout of whole rows"]),
    "units of the outer precision": ("look.CoarsestType", lambda: contextlib.nullcontext(SimpleNamespace(eps=0.0)), ["Fourier transform in float32"]),
    "other padding is no noise": ("noise.repadded", lambda *a: 0.0, ["another kernel for padding"]),
    "the mask of a chunk cut like the chunk": ("trial.cut_beside", lambda *a, whole=inputs.cut_beside: whole(*a[:4], 0), ["a left-padded batch"]),
    "outputs not copied": ("trial.Trial.shown", lambda self, output, x, **k: trial.as_rows(self, output), ["a mean in one memory"]),
    "padding is no row": ("trial.Trial.real", lambda *a: None, ["a left-padded batch whose padding sees all"]),
    "the input itself": ("inputs.Inputs.back", lambda self, x: x.movedim((0, 1), (self.batch_axis, self.axis)), ["spoils its input"]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_audit_would_be_noticed(name, monkeypatch):
    part, instead, cases = BREAKS[name]
    monkeypatch.setattr(f"tlm_book.auditing.{part}", instead)
    try:
        assert found_wrong(named(*cases))
    except (ValueError, RuntimeError, TypeError):
        return  # it breaks outright


# --- Nothing is left changed


def picture(model: nn.Module) -> dict:
    """All that could change: memory and content of tensors, hooks, modes, other attributes."""
    found = {}
    for path, m in model.named_modules():
        for key, value in vars(m).items():
            if key in ("_parameters", "_buffers"):
                for name, t in value.items():
                    found[path, name] = None if t is None else (id(t), t.data_ptr(), t.dtype, t.requires_grad, t.grad is None, t.detach().clone().tolist())
            elif isinstance(value, torch.Generator):
                found[path, key] = value.get_state().tolist()
            elif key != "_modules":
                found[path, key] = copy.copy(value) if isinstance(value, dict | list | int | str | set) else id(value)
    return found


def generators() -> tuple:
    # Where the type checker runs it draws from Python's generator itself, to choose which items of a list to look at.
    python = None if "beartype" in sys.modules else random.getstate()
    return torch.get_rng_state().tolist(), python, np.random.get_state()[1].tolist(), torch.get_default_dtype(), torch.is_grad_enabled()


class Fails(nn.Module):
    """Raises at its forty-third call, with everything in the air."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.BatchNorm1d(zoo.D), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 43:
            raise KeyboardInterrupt
        return self.inner(x.mT).mT


KEPT = ["no mask in block 1", "batch norm in training", "counts its calls", "noise of its own generator", "renormalizing embedding", "GPT-2", "dropout", "bfloat16"]


@pytest.mark.parametrize("name", KEPT)
def test_the_model_is_as_it_was(name):
    (case,) = named(name)
    torch.manual_seed(0)
    model, example, *_ = case.make()
    next(iter(model.parameters()), torch.zeros(())).requires_grad_(False)
    model.train(name != "GPT-2")
    handle = model.register_forward_hook(lambda *args: None)
    before, states = picture(model), generators()
    audit(model, example, progress=False, **case.options)
    assert picture(model) == before and generators() == states
    handle.remove()


def test_the_model_is_as_it_was_after_an_interruption():
    model = Fails()
    before, states = picture(model), generators()
    with pytest.raises(KeyboardInterrupt):
        audit(model, zoo.rows(), progress=False)
    after = generators()
    assert picture(model) == before and after[1:] == states[1:]


def test_the_default_type_is_as_it_was():
    torch.set_default_dtype(torch.float64)
    try:
        assert audit(nn.Linear(zoo.D, 2), zoo.rows()).ok and torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


class Keeps(nn.Module):
    """Writes into containers at several depths, and draws from a generator that lies in one."""

    def __init__(self):
        super().__init__()
        self.seen = {"calls": [], "deep": ({"sizes": set()}, [{"last": deque([0, 1], maxlen=2)}])}
        self.chance = [torch.Generator().manual_seed(3)]
        self.tables = {"a": [torch.zeros(1)]}

    def forward(self, x):
        sizes, (inner,) = self.seen["deep"]
        self.seen["calls"].append(len(x))
        sizes["sizes"].add(x.shape)
        inner["last"].append(x.shape[1])
        inner["new"] = True
        self.tables["a"][0].add_(1)
        return x.cumsum(-2) + torch.randn(1, generator=self.chance[0]).to(x)


def test_what_lies_in_containers_is_as_it_was():
    model = Keeps()
    before, state = copy.deepcopy(model.seen), model.chance[0].get_state()
    report = audit(model, zoo.rows())
    assert report.ok and not report.problems, report  # its own draws are repeated
    assert model.seen == before and torch.equal(model.chance[0].get_state(), state) and model.tables["a"][0] == 0


def test_a_container_that_refuses_to_be_filled_is_left_alone_when_nothing_changed():
    class Frozen(dict):
        def __setitem__(self, *pair):
            raise TypeError("frozen")

        clear = update = __setitem__

    model = nn.Linear(zoo.D, zoo.D)
    model.options = [Frozen(width=3)]
    assert audit(model, zoo.rows()).ok and model.options[0]["width"] == 3


# --- Options, other inputs, what cannot be decided


class ToComplex(nn.Module):
    """x + i·x or x + i·(mean of all rows)."""

    def __init__(self, leaks):
        super().__init__()
        self.leaks = leaks

    def forward(self, x):
        return torch.complex(x, x.mean(-2, keepdim=True).expand_as(x) if self.leaks else x)


class ToReal(nn.Module):
    def forward(self, z):
        return z.real + z.imag


class Phases(nn.Module):
    """Attention of complex rows, without a mask."""

    def __init__(self):
        super().__init__()
        self.keys = nn.Linear(zoo.D, zoo.D, dtype=torch.complex64)

    def forward(self, z):
        weights = (z @ self.keys(z).mH).abs().softmax(-1)
        return torch.complex(weights @ z.real, weights @ z.imag)


def test_a_leak_that_complex_numbers_carry_is_named_where_it_is_made():
    torch.manual_seed(0)
    ends = nn.Linear(zoo.D, zoo.D), nn.Linear(zoo.D, zoo.D)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns when an imaginary part is dropped
        (mean,) = audit(nn.Sequential(ends[0], ToComplex(leaks=True), ToReal(), ends[1]), zoo.rows()).leaks
        (mask,) = audit(nn.Sequential(ends[0], ToComplex(leaks=False), Phases(), ToReal()), zoo.rows()).leaks
        (alone,) = audit(Phases(), torch.randn(2, 7, zoo.D, dtype=torch.complex64)).leaks
    assert (mean.module, mean.type) == ("1", "ToComplex") and mean.cause.startswith("pooling")
    for leak in mask, alone:
        assert (leak.module, leak.cause) == ("2" if leak is mask else "", "mask missing: later rows are seen, in whatever order")
        assert "eval, float64" in leak.setting and "derivatives" in leak.ways


def test_complex_numbers_are_judged_in_double_precision():
    z = torch.randn(2, 7, zoo.D, dtype=torch.complex64)
    for model in (nn.Linear(zoo.D, zoo.D, dtype=torch.complex64), lambda z: z.cumsum(-2).conj()):
        report = audit(model, z, modes=["eval"])
        assert report.ok and report.tolerance < 1e-12 and "complex64 (from 8e-06)" in str(report.notes), report
    rounded = audit(lambda x: x.to(torch.complex64).cumsum(-2).real.to(x), zoo.rows(), modes=["eval"])
    assert rounded.ok and rounded.tolerance > 1e-6  # the units are those of the coarser type inside


class Placed(nn.Module):
    """The table of positions is registered before that of tokens."""

    def __init__(self, places, tokens):
        super().__init__()
        self.places, self.tokens = nn.Embedding(places, zoo.D), nn.Embedding(tokens, zoo.D)

    def forward(self, ids):
        return self.tokens(ids) + self.places(torch.arange(ids.shape[-1]))


@pytest.mark.parametrize("places, tokens", [(1024, 50), (12, 50), (9, 50)])
def test_tokens_are_drawn_that_the_model_knows(places, tokens):
    ids = torch.arange(9)[None]
    model = Placed(places, tokens)
    assert audit(model, ids).ok and not audit(nn.Sequential(model, zoo.NoMask()), ids).ok



def test_encoders_and_windows():
    x = zoo.rows()
    encoder = nn.TransformerEncoderLayer(zoo.D, 2, 16, 0.0, batch_first=True)
    assert audit(encoder, x, expects="all").ok
    blind = audit(zoo.Attention(), x, expects="all").leaks
    assert [leak.fault for leak in blind] == ["blind"] and "36 of 81 pairs" in blind[0].ways
    decoder = nn.TransformerDecoderLayer(zoo.D, 2, 16, 0.0, batch_first=True)
    assert audit(lambda memory: decoder(torch.ones(len(memory), 4, zoo.D).to(memory), memory), x, expects="all").ok
    for reach, faults in ((1, ["far"]), (2, []), (3, ["blind"])):
        leaks = audit(zoo.Window(), x, max_lookback=reach).leaks
        assert [leak.fault for leak in leaks] == faults
        assert reach < 3 or leaks[0].ways == ("6 of 30 pairs",)
    assert audit(lambda x: x.tanh(), x, max_lookback=0).ok


def test_padding_need_not_be_seen():
    def model(input_ids, attention_mask):
        y = F.one_hot(input_ids, 7).double() * attention_mask[..., None]
        return y + F.pad(y, (0, 0, 1, 0))[:, :-1]

    ids, mask = torch.arange(18).view(2, 9) % 7, torch.ones(2, 9, dtype=torch.long)
    mask[:, :3] = 0
    report = audit(model, {"input_ids": ids, "attention_mask": mask}, max_lookback=1, vocab_size=7)
    assert report.ok, report


class Holder:
    """No module itself, nor can it be called; one of its fields has the name of a field of partials."""

    keywords = ("kept",)

    def __init__(self, inner):
        self.inner = inner

    def run(self, x):
        return self.inner(x)


HELD = {
    "args.0": lambda inner: functools.partial(lambda model, x: model(x), inner),
    "keywords.model": lambda inner: functools.partial(lambda x, model: model(x), model=inner),
    "default 0": lambda inner: lambda x, model=inner: model(x),
    "inner": lambda inner: Holder(inner).run,
    "holder.inner": lambda inner: (lambda holder: lambda x: holder.run(x))(Holder(inner)),
    "made": lambda inner: eval("lambda x: made(x)", {"made": inner}),  # a global name
}


@pytest.mark.parametrize("path", HELD)
def test_modules_are_found_in_what_holds_them(path):
    report = audit(HELD[path](nn.Sequential(nn.Linear(zoo.D, zoo.D), zoo.NoMask())), zoo.rows(), lengths=[5])
    assert [(leak.module, "eval, float64" in leak.setting) for leak in report.leaks] == [(f"{path}.1", True)], report
    assert audit(HELD[path](nn.Linear(zoo.D, 2)), zoo.rows()).ok


class KernelAfterMean(nn.Module):
    """The mean of all rows is taken off; then attention by torch's kernel, with its mask."""

    def forward(self, x):
        x = (x - x.mean(-2, keepdim=True))[:, None]
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)[:, 0]


CAUSES = {
    "no mask, three rows": (zoo.NoMask(), zoo.rows(), 3, "mask missing at this length"),
    "all rows, three of them": (zoo.Fn(lambda x: x + x.roll(1, -2) + x.roll(2, -2)), zoo.rows(), 3, "not known: it was seen at n = 3 only"),
    "truth values": (nn.Sequential(zoo.Fn(lambda x: x > 0), zoo.Fn(lambda b: b ^ b.roll(-1, -2))), zoo.rows(), 9, "an offset: each row sees 1 row ahead"),
    "a long convolution": (nn.Conv1d(zoo.D, zoo.D, 3, padding=1), torch.randn(1, zoo.D, 70), 70, "convolution padding: the window reaches later rows"),
    "sums from the end": (zoo.Fn(lambda x: x.flip(-2).cumsum(-2).flip(-2)), zoo.rows(), 9, "a sum from the end"),
    "a mean before torch's kernel": (KernelAfterMean(), zoo.rows(), 9, "pooling: it averages over the sequence"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_that_is_stated(name):
    model, x, n, cause = CAUSES[name]
    axis = -1 if isinstance(model, nn.Conv1d) else None
    (leak,) = audit(model, x, lengths=[n], modes=["eval"], input_axis=axis).leaks
    assert leak.cause.startswith(cause), leak


def test_batch_statistics_are_the_cause_of_both_faults():
    turn = zoo.Fn(lambda x: x.mT)
    leaks = audit(nn.Sequential(turn, nn.BatchNorm1d(zoo.D), turn), zoo.rows(), modes=["train"]).leaks
    assert {leak.fault for leak in leaks} == {"future", "batch"} and all(leak.cause.startswith("batch statistics") for leak in leaks)


def test_a_cache_that_forgets_the_padding():
    def model(input_ids, attention_mask=None, past_key_values=None, use_cache=False):
        x = F.one_hot(input_ids, 7).double()
        if attention_mask is not None and not use_cache:
            x = x * attention_mask[..., None]
        y = x.cumsum(1) + (0 if past_key_values is None else past_key_values)
        return SimpleNamespace(logits=y, past_key_values=y[:, -1:])

    (leak,) = audit(model, {"input_ids": torch.arange(9)[None] % 7}, modes=["eval"], vocab_size=7).leaks
    assert (leak.fault, leak.row, leak.ways) == ("cache", 3, ("half, one row, the rest, padded on the left",))


def test_the_positions_of_a_chunk_are_those_of_its_rows():
    def model(input_ids, position_ids, past_key_values=None, use_cache=False):
        y = F.one_hot(input_ids, 7).double().cumsum(1) + (0 if past_key_values is None else past_key_values)
        return SimpleNamespace(logits=y * position_ids[..., None], past_key_values=y[:, -1:])

    ids, places = torch.arange(9)[None] % 7, torch.arange(9)[None]
    report = audit(model, {"input_ids": ids, "position_ids": places}, modes=["eval"], vocab_size=7)
    assert report.ok and not report.problems and "decoding with a cache" in str(report.notes), report


def test_a_step_draws_what_the_whole_pass_draws():
    def step(row, total):
        total = row + (0 if total is None else total)
        return total + torch.rand(1), total

    report = audit(lambda x: x.cumsum(-2) + torch.rand(1), zoo.rows(), step=step, modes=["eval"])
    assert report.ok and not report.problems and "decoding with a cache" in str(report.notes), report


def test_a_model_that_raises_keeps_no_hook_of_the_small_auditor():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    with pytest.raises(RuntimeError):
        first_culprit(model, torch.zeros(2, 3), torch.ones(2, 3), 0, 0.0)
    assert not any(module._forward_hooks for module in model.modules())


def test_the_effects_of_a_report_are_fractions_of_the_largest_output():
    x = torch.arange(1.0, 13).view(4, 3)
    report, scaled = (audit(lambda x, c=c: c * x.cumsum(-2), x, modes=["eval"]) for c in (1, 8))
    assert np.allclose(report.effects, scaled.effects, rtol=1e-12) and not report.effects[:, 0].any() and (np.diag(report.effects)[1:] > report.tolerance).all()


@pytest.mark.parametrize("complain", [expects, lambda fits, *words: refuse(*words)], ids=["expects", "refuse"])
def test_a_model_of_this_book_complains_in_its_own_words(complain):
    with pytest.raises(ValueError, match="^width: got 3, want 4$"):
        audit(lambda x: complain(False, "width", 3, "4"), zoo.rows())


def test_what_only_double_precision_sees_is_no_blindness():
    x = torch.linspace(-1, 1, 32).view(1, 8, 4)
    assert audit(lambda x: x + 1e-7 * x.sum(-2, keepdim=True), x, expects="all").ok
    assert audit(lambda x: x + 1e-7 * x.cumsum(-2), x, max_lookback=7).ok
    lost = audit(lambda x: x + (0.1 if x.dtype == torch.float64 else 0.0) * x.sum(-2, keepdim=True), x, expects="all").leaks
    assert [(leak.fault, leak.setting) for leak in lost] == [("blind", "eval, float32")] and "56 of 64 pairs" in lost[0].ways


def test_inputs_by_keyword_and_beside():
    x, memory = zoo.rows(), torch.randn(zoo.B, 5, zoo.D)
    layer = nn.TransformerDecoderLayer(zoo.D, 2, 16, 0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(zoo.N)
    assert audit(layer, {"tgt": x, "memory": memory, "tgt_mask": mask}).ok
    assert audit(layer, (x, memory)).leaks[0].module == "self_attn"
    attention = nn.MultiheadAttention(zoo.D, 2, batch_first=True)
    assert "eval, float64" in audit(attention, (x, x, x)).leaks[0].setting  # in every precision one tensor stays one
    places = torch.arange(4 * zoo.N).view(1, 4, zoo.N)  # as many as the rows by chance
    report = audit(lambda x, attention_mask, places: (x * attention_mask[..., None]).cumsum(-2) + places.sum(), {"x": x, "attention_mask": torch.ones(zoo.B, zoo.N), "places": places})
    assert report.ok and not report.problems, report


def overwrites(way: str, x: torch.Tensor, given) -> torch.Tensor:
    """Spoils what it is given beside the rows, after use or before."""
    if way == "a factor":
        return (x @ x.mT + given.mul_(-1e9)).softmax(-1) @ x
    if way == "a mask after use":
        y = given / given.sum(-1, keepdim=True) @ x
        given.tril_()
        return y
    (inner,) = given["masks"]
    y = x.cumsum(-2) + inner.sum() + len(given["masks"])
    inner.zero_()
    given["masks"].append(inner)
    return y


OVERWRITTEN = {
    "a factor": (torch.ones(zoo.N, zoo.N).triu(1), True),
    "a mask after use": (torch.ones(zoo.N, zoo.N), False),
    "a list in a dictionary": ({"masks": [torch.ones(2, dtype=torch.long)]}, True),
}


@pytest.mark.parametrize("way", OVERWRITTEN)
@pytest.mark.parametrize("batch", [(zoo.B,), ()])
def test_a_model_may_overwrite_what_it_is_given(way, batch):
    given, autoregressive = OVERWRITTEN[way]
    before, x = copy.deepcopy(given), torch.randn(*batch, zoo.N, zoo.D)
    report = audit(lambda x, given: overwrites(way, x, given), (x, given))
    assert report.ok == autoregressive and not report.problems, report
    assert str(given) == str(before)


def test_a_model_may_overwrite_the_mask_of_the_audit():
    def spoils(x, attention_mask=None):
        if attention_mask is not None:
            x = x * attention_mask[..., None]
            attention_mask.zero_()
        return x.cumsum(-2)

    report = audit(spoils, zoo.rows())
    assert report.ok and not report.problems and "padding on both sides" in str(report.notes), report
    assert not audit(lambda x, attention_mask=None: spoils(x, attention_mask) + x[:, -1:], zoo.rows()).ok


def test_what_cannot_be_copied_is_handed_on():
    cells, computed = (cell for cell in range(3)), nn.Linear(2, 2).weight * 2
    task, cache = SimpleNamespace(name="a task"), SimpleNamespace(layers=[SimpleNamespace(keys=torch.ones(2))])
    assert inputs.copied(cells) is cells and inputs.copied(None) is None and inputs.copied(task) is task
    made = inputs.copied(cache)
    assert made is not cache and made.layers[0].keys is not cache.layers[0].keys
    (copy_of,) = inputs.copied([computed])
    assert copy_of is not computed and torch.equal(copy_of, computed)


def test_of_several_outputs_the_report_says_that_one_is_judged():
    several = {
        "only one of the 2 tensors in the output that may have rows": lambda x: (x, x.mean(-2, keepdim=True).expand_as(x)),
        "only one of the 3 tensors in the output that may have rows": lambda x: {"all": x.sum(), "rows": [x, x + x.sum()], "logits": x},
        "only one of the 2 tensors in the output": lambda x: SimpleNamespace(hidden=x.mean(-2, keepdim=True).expand_as(x), last_hidden_state=x),
        "only one of the 2 tensors in the output that may": lambda x: SimpleNamespace(hidden=x.mean(-2, keepdim=True).expand_as(x), logits=x),
    }
    for says, model in several.items():
        report = audit(model, zoo.rows())
        assert report.ok and all(says in note for note in report.notes), report
    assert "only one" not in str(audit(lambda x: (x, x.sum((0, 1))), zoo.rows()))


def test_hugging_face_inputs_with_a_mask():
    torch.manual_seed(0)
    model, ids = zoo.hugging_face("Llama", num_key_value_heads=1)()
    assert audit(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, progress=False).ok


def test_lengths_that_fail_are_reported():
    def pairs(x):
        return x.unflatten(1, (-1, 2)).flatten(1, 2)

    report = audit(pairs, torch.randn(1, 6, zoo.D))
    assert report.ok and sum("it raises" in line for line in report.problems) == 3, report
    asked = audit(pairs, torch.randn(1, 6, zoo.D), lengths=[5, 6])
    assert not asked.ok and not asked.leaks and asked.undecided


def test_what_was_asked_for_and_raised_is_not_ok():
    def bad(row, state):
        raise RuntimeError("no step")

    def attends(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    def picky(x, attention_mask=None):
        if attention_mask is not None and not attention_mask.all():
            raise RuntimeError("no padding")
        return x.cumsum(-2)

    for report, word in (
        (audit(lambda x: x.cumsum(-2), zoo.rows(), step=bad), "no step"),
        (audit(attends, zoo.rows(), back_ends=["cudnn"]), "No viable backend"),  # on the CPU
        (audit(picky, {"x": zoo.rows(), "attention_mask": torch.ones(zoo.rows().shape[:2])}), "no padding"),
    ):
        assert not report.ok and not report.leaks and any(word in line for line in report.problems), report
    assert audit(picky, zoo.rows()).ok  # nobody asked: it stands in the report


def test_a_fault_below_rounding_is_measured_in_derivatives_and_hides_no_other():
    faint = lambda x: x.tanh() + 1e-20 * x.mean(-2, keepdim=True)
    only = audit(faint, zoo.rows(), modes=["eval"]).leaks
    assert [(leak.ways, leak.unit) for leak in only] == [(("derivatives",), "derivative")] and "of the largest derivative" in str(only[0])
    future, length = audit(lambda x: faint(x) / x.shape[-2], zoo.rows(), modes=["eval"]).leaks
    assert future.ways == ("derivatives",) and (length.fault, length.ways, length.unit) == ("length", ("removed rows",), "output")
    at_eight = audit(lambda x: faint(x) + (x.shape[-2] == 8) * x.mean(-2, keepdim=True), zoo.rows(), modes=["eval"]).leaks[0]
    assert list(at_eight.sizes) == [8] and at_eight.size > 1e-3 and "times the largest output" in str(at_eight)


class ByLengthInTraining(nn.Module):
    """Divides by the number of rows, while it is trained."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(x) / (x.shape[-2] if self.training else 1)


def test_where_a_model_draws_the_report_says_that_no_rows_were_removed():
    found, missed = (audit(ByLengthInTraining(p), zoo.rows()) for p in (0.0, 0.5))
    assert [leak.fault for leak in found.leaks] == ["length"] and missed.ok
    for report in found, missed:
        said = {note.split(",")[0]: "no removed rows" in note for note in report.notes}
        assert said == {"tried in eval": False, "tried in train": report is missed}, report


@pytest.mark.parametrize("rows, words", [([1], "1"), (range(6), "0, 1, 2, 3, 4, 5"), (range(7), "0, 1, 2, 3, 4, 5 …")])
def test_nan_is_no_leak(rows, words):
    def spoiled(x):
        return x.cumsum(-2).masked_fill(torch.isin(torch.arange(x.shape[-2]), torch.tensor(rows))[:, None], torch.nan)

    report = audit(spoiled, zoo.rows())
    (problem,) = report.problems
    assert not report.leaks and not report.ok and problem.startswith(f"NaN in output rows {words}: nothing")


def test_nan_in_double_precision_alone_makes_that_precision_impossible():
    report = audit(lambda x: x.cumsum(-2) * (torch.nan if x.dtype == torch.float64 else 1), zoo.rows())
    assert report.ok and not report.problems and "not possible (ValueError: the output: got NaN" in str(report.notes), report


def test_a_new_nan_is_a_leak():
    report = audit(lambda x: x / (x.sum((-1, -2), keepdim=True) < 1e3), zoo.rows().abs())
    assert report.ok
    report = audit(lambda x: x + 0 * (x - x.mean(-2, keepdim=True)).sqrt().sum((-1, -2), keepdim=True).abs(), zoo.rows())
    assert not report.ok


def test_what_cannot_be_repeated_is_said():
    clock = iter(range(10**9))
    report = audit(lambda x: x.cumsum(-2) + 1e-6 * next(clock), zoo.rows())
    assert "the same input twice" in report.problems[0]
    draws = np.random.default_rng(0)  # a generator that nobody can hold
    report = audit(lambda x: x.cumsum(-2) + 1e-6 * torch.from_numpy(draws.normal(size=x.shape)).to(x), zoo.rows())
    assert report.ok and "the same input twice" in report.problems[0]
    report = audit(lambda x: x.cumsum(-2) + torch.from_numpy(draws.normal(size=x.shape)).to(x), zoo.rows())
    assert not report.ok and not report.leaks


class Remembers(nn.Module):
    """A state that is carried over from call to call."""

    state: torch.Tensor | float = 0.0

    def forward(self, x):
        y = x.cumsum(-2) + self.state
        self.state = x.detach().mean()
        return y


def test_a_model_that_remembers_earlier_calls_is_not_judged():
    report = audit(Remembers(), zoo.rows())
    assert not report.ok and not report.leaks and "remembers earlier calls" in report.problems[0]


class Counts(nn.Module):
    """Adds to each output a number that grows with every call."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(zoo.D, zoo.D), 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) + 0.01 * self.calls


@pytest.mark.parametrize("work", [2e11, 0])
def test_a_model_that_changes_with_every_call_is_not_judged(work):
    torch.manual_seed(0)
    report = audit(Counts(), zoo.rows(), work=work)
    assert not report.ok and not report.leaks and report.undecided, report
    assert "the model changes from call to call" in str(report.problems)


def test_an_exception_in_derivatives_is_reported():
    def checkpointed(x):  # one kind of checkpoint refuses torch.autograd.grad
        return torch.utils.checkpoint.checkpoint(lambda x: x.tanh().cumsum(-2), x, use_reentrant=True)

    report = audit(checkpointed, zoo.rows())
    (problem,) = report.problems
    assert report.ok and problem.startswith("derivatives: RuntimeError") and not any(", derivatives" in note for note in report.notes)
    none = audit(lambda x: x.detach().cumsum(-2), zoo.rows())
    assert none.ok and not none.problems and any("no derivatives" in note for note in none.notes)


def test_the_progress_bar_is_shown_and_closed(monkeypatch):
    bars = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    class Bar(run.tqdm):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **(options | {"delay": 0, "mininterval": 0, "file": Terminal()}))
            bars.append(self)
            self.closed = 0

        def close(self):
            super().close()
            self.closed += 1

    monkeypatch.setattr(run, "tqdm", Bar)
    audit(nn.Linear(zoo.D, 2), zoo.rows())
    with pytest.raises(KeyboardInterrupt):
        audit(Fails(), zoo.rows())
    shown = bars[0].fp.getvalue()
    assert "audit" in shown and "passed" in shown and "left" in shown
    assert abs(bars[0].n / bars[0].total - 1) < 0.2
    assert len(bars) == 2 and all(bar.closed for bar in bars)
    audit(nn.Linear(zoo.D, 2), zoo.rows(), progress=False)
    assert not hasattr(bars[2], "fp")  # it has nowhere to write


@pytest.mark.parametrize("kind", ["the decoder itself", "GPT-2", "dropout"])
def test_the_bar_knows_about_how_much_work_is_left(kind, monkeypatch):
    bars = []

    class Bar(run.tqdm):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **(options | {"disable": False, "file": io.StringIO()}))
            bars.append(self)

    monkeypatch.setattr(run, "tqdm", Bar)
    (case,) = named(kind)
    audited(case)
    assert 0.7 < bars[0].n / bars[0].total < 1.3, (bars[0].n, bars[0].total)


def test_no_bar_is_shown_where_there_is_no_terminal(monkeypatch, capfd):
    monkeypatch.setattr(run, "tqdm", functools.partial(run.tqdm, mininterval=0))
    audit(nn.Linear(zoo.D, 2), zoo.rows())
    assert capfd.readouterr() == ("", "")


def test_an_audit_does_not_wait_for_the_compiler():
    """torch imports its compiler (seconds) for whoever watches its operations, unless told not to."""
    program = "import sys, torch, tlm_book.auditing as a; a.audit(torch.nn.Softmax(1), torch.randn(2, 5, 3)); print('torch._dynamo' in sys.modules)"
    environment = {key: value for key, value in os.environ.items() if key != "TLM_BOOK_TYPECHECK"}
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment).stdout == "False\n"


def test_the_assertion_holds_the_report():
    assert assert_autoregressive(nn.Linear(zoo.D, 2), zoo.rows()) is None
    assert assert_autoregressive(zoo.NoMask(), zoo.rows(), expects="all") is None
    with pytest.raises(AssertionError, match="softmax over the sequence axis"):
        assert_autoregressive(nn.Softmax(1), zoo.rows())


def test_findings_can_be_compared_and_kept_in_sets():
    first, second = (audit(nn.Softmax(1), zoo.rows(), modes=["eval"]) for _ in range(2))
    assert first.leaks[0] == first.leaks[0] and len({*first.leaks, *first.leaks}) == 1
    assert first == first and first != second and len({first, second}) == 2


def test_a_report_and_a_derivation_are_drawn_without_anywidget():
    program = "import sys; sys.modules['anywidget'] = None; import matplotlib; matplotlib.use('Agg'); import torch, tlm_book.auditing as a, tlm_book.derivation as d"
    program += "; a.audit(torch.nn.Softmax(1), torch.randn(2, 5, 3)).plot(); d.derive(torch.nn.Linear(2, 2)).plot(); print('drawn')"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "drawn\n"


def test_a_report_in_words():
    sizes = {n: n / 32 for n in range(2, 18)} | {18: np.inf, 19: 0.0}
    leak = Leak("length", "eval", 1, 2, 0.5, ("removed rows", "another way"), "", "Mean", "a guess", sizes)
    assert str(leak).splitlines() == [
        "LENGTH [eval]: output row 1 changes when the rows from 2 on are removed, by 5.0e-01 of the largest output",
        "    found by: removed rows, another way",
        "    first in: (the model itself) (Mean)",
        "    likely cause: a guess",
        "    by length: 2: 6.2e-02, 4: 1.2e-01, 7: 2.2e-01, 9: 2.8e-01, 12: 3.8e-01, 14: 4.4e-01, 17: 5.3e-01, 19: 0.0e+00",
    ]
    assert "by 3.2 times the largest output" in str(dataclasses.replace(leak, size=3.15001))
    blind = dataclasses.replace(leak, fault="blind", ways=(), module=None, cause="", sizes={2: 0.5, 3: 0.25})
    assert str(blind) == "BLIND [eval]: output row 1 does not depend on input row 2\n    by length: 2: 5.0e-01, 3: 2.5e-01"
    report = Report("Mean", (blind,), ("a problem",), ("a note",), np.zeros((2, 2)), 0.0)
    assert str(report).splitlines() == ["audit of Mean: 1 fault found", *(f"  {line}" for line in str(blind).splitlines()), "  problem: a problem", "  a note"]
    for leaks, undecided, verdict in (((blind,) * 2, True, "2 faults found"), ((), True, "not decided"), ((), False, "ok")):
        assert str(dataclasses.replace(report, leaks=leaks, undecided=undecided)).startswith(f"audit of Mean: {verdict}\n")


def test_the_report_can_be_drawn():
    import matplotlib

    matplotlib.use("Agg")
    report = audit(nn.Softmax(1), zoo.rows())
    axes = report.plot()
    framed = {(patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in axes.patches}
    assert framed == {(i, j) for j in range(zoo.N) for i in range(j)} and report.effects.shape == (zoo.N, zoo.N)
    assert axes.get_xlim() == (-0.5, zoo.N - 0.5) and axes.get_ylim() == (zoo.N - 0.5, -0.5)
    stairs = {(k + 0.5, k - 0.5) for k in range(zoo.N)} | {(k + 0.5, k + 0.5) for k in range(zoo.N - 1)}
    assert {*zip(*axes.lines[0].get_data())} == stairs  # above them is the future
    loud = dataclasses.replace(report, tolerance=float(np.sort(report.effects[0])[-2]))  # only one change of row 0 is more than noise
    axes = loud.plot()
    assert [patch.get_x() + 0.5 for patch in axes.patches if patch.get_y() == -0.5] == [report.effects[0].argmax()]
    assert (np.ma.getmaskarray(axes.images[0].get_array()) == (report.effects <= loud.tolerance)).all()
    assert audit(nn.Linear(zoo.D, 2), zoo.rows()).plot(axes) is not None


def test_the_cost_of_a_large_model():
    """A dozen sequences of the whole length, and each shorter one once: half of n² rows and a multiple of n."""
    passes = []

    def model(x):
        passes.extend([x.shape[1]] * len(x))
        return linear(x).cumsum(1)

    linear = nn.Linear(zoo.D, zoo.D)
    for n in (24, 48):
        passes.clear()
        assert audit(model, torch.randn(1, n, zoo.D), work=0).ok
        assert set(range(1, n)) <= set(passes) and passes.count(n) <= 12
        assert n**2 / 2 <= sum(passes) <= n**2 / 2 + 12 * n + 700


@pytest.fixture
def products(monkeypatch):
    """Of each product in a sweep: how many rows were given, and how many were multiplied."""
    rows = []

    class Counted(cuts.KnownRows):
        def product(self, func, bias, x, weight):
            multiplied = []
            y = super().product(lambda *given: multiplied.append(len(given[-2])) or func(*given), bias, x, weight)
            rows.append((len(x), sum(multiplied)))
            return y

    monkeypatch.setattr(cuts, "KnownRows", Counted)
    return rows


def test_a_large_model_multiplies_a_row_once(products):
    """Where rows agree with those of the sweep's first run in every bit, where there is no room, and where they differ."""
    n, twice = 24, nn.Linear(zoo.D, zoo.D)
    agree = nn.Sequential(twice, nn.Tanh(), twice, nn.Linear(zoo.D, 5, bias=False))
    assert audit(lambda x: agree(x).cumsum(-2), torch.randn(1, n, zoo.D), work=0).ok
    given, multiplied = map(sum, zip(*products))
    assert (given, multiplied) == (3 * n * (n - 1) / 2, 3 * (n - 1))
    products.clear()
    assert audit(lambda x: agree(x).cumsum(-2), torch.randn(1, n, zoo.D), work=0, memory=1).ok
    assert sum(one for one, _ in products) == sum(other for _, other in products) == 3 * n * (n - 1) / 2
    products.clear()
    noisy = lambda x: agree(x * (1 + 1e-7 * x.shape[-2] * (x.dtype == torch.float32))).cumsum(-2)  # below the noise
    assert audit(noisy, torch.randn(1, n, zoo.D), work=0).ok
    assert sum(other for _, other in products) > n * (n - 1)


class FastWeights(nn.Module):
    """With 20 or 21 rows, the weights depend on the sequence."""

    def __init__(self, way):
        super().__init__()
        self.way, self.inner, self.last = way, nn.Linear(zoo.D, zoo.D), nn.Linear(zoo.D, 5)
        self.slow = nn.Parameter(torch.randn(zoo.D, zoo.D))

    def forward(self, x):
        much = x.mean((0, 1)) if x.shape[-2] in (20, 21) else torch.zeros(zoo.D).to(x)
        new = self.slow + much
        if self.way == "another tensor":
            self.inner.weight.data = new.data
        elif self.way == "written":
            self.inner.weight.data.copy_(new)
        elif self.way == "written by rows":
            torch._foreach_copy_(list(self.inner.weight.data), list(new))
        else:
            return self.last(F.linear(x, new))
        return self.last(self.inner(x))


@pytest.mark.parametrize("way", ["another tensor", "written", "written by rows", "made on the way"])
def test_weights_that_depend_on_the_sequence_are_seen_by_a_sweep(way):
    report = audit(FastWeights(way), torch.randn(1, 24, zoo.D), work=0)
    assert {leak.fault for leak in report.leaks} == {"length"}, report


def test_a_sweep_runs_compiled_models_as_they_are(products):
    inner = nn.Linear(zoo.D, zoo.D)
    for model in (torch.compile(inner, backend="eager"), torch.compile(lambda x: inner(x), backend="eager"), nn.Sequential(torch.compile(inner, backend="eager"))):
        assert audit(model, torch.randn(1, 12, zoo.D), work=0).ok and not products


def late(x, n):
    """Looks one row ahead in sequences of n rows and more."""
    return x.cumsum(-2) + (x.shape[-2] >= n) * F.pad(x[..., 1:, :], (0, 0, 0, 1))


@pytest.mark.parametrize("function, fault", [(lambda x: late(x, 20), "future"), (lambda x: x / max(x.shape[-2], 20), "length"), (lambda x: x.cumsum(-2), None)])
def test_a_large_model_is_judged_at_its_whole_length(function, fault):
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = nn.Linear(zoo.D, zoo.D), nn.Linear(zoo.D, 5)

        def forward(self, x):
            return self.last(function(self.inner(x)))

    model = Large()
    report = audit(model, torch.randn(2, 24, zoo.D), work=0)
    assert {leak.fault for leak in report.leaks} == {fault} - {None}, report
    assert "forward" not in vars(model.last) and not report.problems


def test_a_large_model_that_refuses_lengths_is_judged_by_replaced_rows():
    def pairs(x):
        return linear(x).unflatten(1, (-1, 4)).flatten(1, 2)

    linear = nn.Linear(zoo.D, zoo.D)
    report = audit(pairs, torch.randn(2, 24, zoo.D), work=0)
    assert report.ok and "replaced rows at n = 24" in str(report.notes), report


def test_what_the_last_layer_hides_is_no_leak():
    """A large model is first judged by what its last layer is given; that layer may take away what leaked."""

    class Hides(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(zoo.D, zoo.D)
            nn.init.zeros_(self.last.weight[:, 0])

        def forward(self, x):
            return self.last(torch.cat([x[..., :1] + x[..., :1].mean(-2, keepdim=True), x[..., 1:].cumsum(-2)], -1))

    report = audit(Hides(), torch.randn(2, 24, zoo.D), work=0)
    assert report.ok, report


@pytest.mark.parametrize("n, options, tried", [(24, {}, "3, 8"), (24, {"lengths": [5, 24]}, "5, 8"), (5, {}, "3, 5"), (24, {"work": 576 * zoo.D}, "1, 2, 3, 12, 23, 24")])
def test_how_many_rows_a_large_model_is_tried_with(n, options, tried):
    model = nn.Linear(zoo.D, 1, bias=False)
    report = audit(model, torch.randn(1, n, zoo.D), **({"work": n**2 * zoo.D - 1} | options))
    assert report.ok and f"derivatives at n = {tried.removeprefix('1, ')}; " in report.notes[0], report


def test_rows_of_another_width_at_other_lengths_are_not_compared():
    report = audit(lambda x: (x @ x.mT).tril(), zoo.rows(), row_axis=-2, modes=["eval"])
    assert report.ok and report.problems[0].startswith("at other lengths its rows have another width: removed rows are not compared"), report


def test_the_picture_is_of_the_setting_that_leaks():
    class InTraining(nn.Module):
        def forward(self, x):
            return x + self.training * x.mean(-2, keepdim=True)

    report = audit(InTraining(), zoo.rows())
    assert (np.triu(report.effects, 1) > report.tolerance).sum() == zoo.N * (zoo.N - 1) / 2


@pytest.mark.parametrize("way", ["configured", "given"])
def test_every_token_of_the_vocabulary_is_drawn(way):
    def five(ids):
        seen.update(ids.flatten().tolist())
        return F.one_hot(ids, 5).cumsum(-2)

    seen, model = set(), zoo.Fn(five)
    model.places, model.config = nn.Embedding(12, 2), SimpleNamespace(vocab_size=5)  # what the table has does not count
    audit(model if way == "configured" else five, torch.zeros(1, 9, dtype=torch.long), modes=["eval"], vocab_size=5 if way == "given" else None)
    assert seen == set(range(5))


def test_a_token_is_replaced_by_another_one():
    """Of two tokens, a random one would often be the same again."""
    ids = torch.zeros(1, 9, dtype=torch.long)
    report = audit(lambda ids: F.one_hot(ids, 2).cumsum(-2), ids, vocab_size=2, max_lookback=9)
    assert report.ok, report


def test_the_row_that_is_seen_is_named():
    (leak,) = audit(lambda x: x + x.roll(1, -2), zoo.rows(), lengths=[9]).leaks
    assert (leak.row, leak.source) == (0, 8)


def test_gradients_are_as_they_were():
    class Forgets(zoo.Attention):
        def forward(self, x):
            self.zero_grad()
            return super().forward(x)

    model = Forgets()
    before = {name: torch.full_like(w, 0.5) for name, w in model.named_parameters()}
    for name, w in model.named_parameters():
        w.grad = before[name]
    audit(model, zoo.rows())
    assert all(w.grad is before[name] for name, w in model.named_parameters())


def test_the_rows_of_an_encoder_are_left_alone_though_they_are_as_many():
    table = torch.randn(7, zoo.D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def model(input_ids, attention_mask, decoder_input_ids):
        memory = (table[input_ids] * attention_mask[..., None]).sum(1, keepdim=True)
        return table[decoder_input_ids].cumsum(1) + memory

    ids = torch.arange(9)[None] % 7
    report = audit(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids.flip(1)}, vocab_size=7)
    assert report.ok, report


def test_what_goes_with_the_sequence_is_that_of_the_sequence():
    """The first is padded, so the second is audited."""
    table, seen = torch.randn(7, zoo.D, generator=torch.Generator().manual_seed(0)), set()

    def model(input_ids, attention_mask, which):
        seen.update(which.flatten().tolist())
        return table.to(torch.float64)[input_ids].cumsum(1)

    ids, mask = torch.arange(18).view(2, 9) % 7, torch.ones(2, 9, dtype=torch.long)
    mask[0, 5:] = 0
    audit(model, {"input_ids": ids, "attention_mask": mask, "which": torch.tensor([[0], [1]])}, vocab_size=7)
    assert seen == {1}
