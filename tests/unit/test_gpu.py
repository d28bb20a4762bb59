"""Nothing assumes a CPU: on tensors of a GPU that is not there, everywhere; on a real one, agreement, where there is one (`make gpu`)."""

import subprocess
import sys
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from commands import run_script
from test_parity import (
    PRESETS,
    by_spec,
    distance,
    made,
    needs_gpu,
    preset,
    some_tokens,
)

from tlm_book.auditing import audit
from tlm_book.inference import CachedModel
from tlm_book.linear_attention import LinearAttention

ROOT = Path(__file__).parents[2]


def fake(*words: str) -> str:
    """What the program says of a GPU that is not there; the words choose what is tried."""
    done = run_script(ROOT / "tests/support/fake_gpu.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def test_no_part_assumes_a_cpu():
    assert fake("gpt2, training step in", "qwen3, decoding", "mixtral, decoding", "a run in float32", "picture", "hybrid").startswith("8 things tried, 0 failed; of 7 planted faults not noticed: none")


@pytest.mark.long
def test_nothing_assumes_a_cpu():
    """Forward pass, training step and decoding of every preset; whole runs; beams, the encoder–decoder, an audit."""
    assert "0 failed" in fake()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU on this machine")
def test_make_gpu_says_that_there_is_none():
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks/gpu.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no GPU" in done.stderr and "Traceback" not in done.stderr


CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}  # as `distance` measures


def agreement(name: str, dtype: torch.dtype, device: str) -> float:
    """How far the model is from the specification, which computes with the same weights, the rounded ones."""
    model, x = made(preset(name)).to(dtype), some_tokens(preset(name), 2, 7)
    wanted = np.stack([by_spec(model, row) for row in x])
    with torch.no_grad():
        result = model.to(device)(x.to(device)).double().cpu().numpy()
    return distance(result, wanted)


def test_the_bounds_of_agreement_are_met_on_the_cpu():
    for dtype, bound in CLOSE.items():
        assert agreement("qwen3", dtype, "cpu") < bound


def test_the_report_of_a_gpu(tmp_path, monkeypatch):
    """What is measured without a GPU is measured; the rest is made up. One entry, and the page that quotes it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu
    import harness
    import quoting

    monkeypatch.setattr(gpu, "SMALL", gpu.SMALL | {"n_layers": 1})
    found = gpu.agreement("cpu")
    assert {row["preset"] for row in found} == set(PRESETS) and all(float(row["float32"]) < 1e-5 and float(row["bfloat16"]) < 0.05 for row in found)
    rows = [{"beside": "Hugging Face", "ours, ms": "1.0 ± 0.1"}]
    machine = {"date": "2026-11-22", "processor": "P", "cores": 16, "gpu": "A GPU"}
    parts = {"agreement": found, "training": rows, "decoding": [{"texts": 1}]}
    way = {"machine": machine, "rounds": 5, "batch": 16, "goals": gpu.GOALS}
    report = gpu.begun(way, tmp_path) | parts | {"dates": dict.fromkeys(parts, machine["date"]) | {"decoding": "2026-11-20"}}
    harness.write(tmp_path, "gpu", report, lambda entries: harness.sections(entries, gpu.text_of))
    again = way | {"machine": machine | {"date": "2026-11-23"}}
    assert gpu.begun(again, tmp_path) == report | again  # measured in the same way
    assert gpu.begun(again | {"rounds": 6}, tmp_path) == again | {"rounds": 6, "dates": {}}
    assert "A GPU, 2026-11-20." in gpu.page(harness.entries(tmp_path, "gpu")) and "A GPU, 2026-11-22." in gpu.text_of(report)
    assert list(harness.entries(tmp_path, "gpu")) == ["A GPU"]
    monkeypatch.setattr(quoting, "HERE", tmp_path)
    page = "<!-- begin: benchmarks/gpu.md 1 -->\n\nNot measured.\n\n<!-- end: benchmarks/gpu.md -->"
    assert "| Hugging Face | 1.0 ± 0.1 |" in quoting.quoted(page)
    monkeypatch.setattr(quoting, "HERE", tmp_path / "nothing")
    assert quoting.quoted(page) == page


@needs_gpu
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("name", PRESETS)
def test_gpu_agrees_with_the_specification(name, dtype):
    if dtype == torch.bfloat16 and preset(name).n_experts is not None:
        pytest.skip("rounded scores may send a row to another expert, and then its result is another function's")
    assert agreement(name, dtype, "cuda") < CLOSE[dtype]


@needs_gpu
@pytest.mark.parametrize("compile", [False, True])
def test_a_hybrid_model_on_a_gpu_goes_on_from_its_states(compile, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no graph holds type checks
    model, x = made(preset("llama")), some_tokens(preset("llama"), 2, 7)
    model.blocks[0].attention = LinearAttention(model.config.d_model, 2, max_strength=2.0).double()
    with torch.no_grad():
        wanted = model(x)
        cached = CachedModel(model.cuda(), compile=compile)
        scores = [cached.read(x[:, :3].cuda()), *(cached.step(x[:, n].cuda()) for n in range(3, 7))]
    for n, z in enumerate(scores):
        assert torch.allclose(z.cpu(), wanted[:, 2 + n], atol=1e-10)


@needs_gpu
@pytest.mark.parametrize("name", PRESETS)
def test_a_cached_step_on_a_gpu_is_the_whole_pass(name):
    model, x = made(preset(name)).cuda(), some_tokens(preset(name), 2, 7).cuda()
    cached = CachedModel(model)
    cached.read(x[:, :3])
    for n in range(3, 7):
        whole = model(x[:, : n + 1])[:, -1]
        assert torch.allclose(cached.step(x[:, n]), whole, rtol=0, atol=1e-10)


RECORDED = """
import sys
sys.path += ["tests/unit", "tests/support"]
import torch
from test_parity import made, preset, some_tokens
from tlm_book.inference import CachedModel

model = made(preset(sys.argv[1]).replace(max_len=80)).cuda()
x = some_tokens(model.config, 3, 70).cuda()
cached = CachedModel(model, compile=True)

def agrees(texts, n):
    with torch.no_grad():
        assert torch.allclose(cached.step(texts[:, n]), model(texts[:, : n + 1])[:, -1], rtol=0, atol=1e-10), n

for texts in (x[:2], x[1:]):
    cached.read(texts[:, :60])
    for n in range(60, 68):
        agrees(texts, n)
cached.select(torch.tensor([1], device="cuda"))
agrees(x[2:], 68)
"""


@needs_gpu
@pytest.mark.parametrize("name", ["gpt2", "qwen3", "mixtral"])
def test_a_recorded_step_of_decoding_is_the_whole_pass(name):
    """Also when it looks at more columns than at first, after other texts are read, and when some have ended. Without the checker, which no graph holds."""
    done = subprocess.run([sys.executable, "-c", RECORDED, name], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]


@needs_gpu
def test_an_audit_on_a_gpu():
    model, x = made(preset("gpt2")).cuda(), some_tokens(preset("gpt2"), 2, 7).cuda()
    assert audit(model, x, progress=False).ok
