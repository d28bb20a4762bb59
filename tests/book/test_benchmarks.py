"""The benchmarks: their common parts, that what speed.py compares is the same function, and that the chapter quotes what was measured."""

import ast
import dataclasses
import importlib
import itertools
import json
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import harness  # noqa: E402

from tlm_book.training import fit_size, model_for, recipe  # noqa: E402
from tlm_book.transformer_lm import TransformerLM, count_parameters  # noqa: E402


def test_spread_and_ratio():
    spread = harness.Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.median, spread.low, spread.high) == (3.0, 2.0, 4.0)
    assert harness.Spread.of([7.0]) == harness.Spread(7.0, 7.0, 7.0)
    ours = harness.Timing([0.1, 0.2, 0.1], [0.2, 0.4, 0.2])
    theirs = harness.Timing([0.2, 0.4, 0.3], [0.2, 0.4, 0.2])
    assert harness.ratio(theirs, ours).median == 2 and harness.ratio(theirs, ours, "processor").median == 1
    assert ours.ms() == "100.0 ± 25.0" and ours.json()["processor_ms"]["median"] == 200
    with pytest.raises(ValueError):
        harness.ratio(harness.Timing([1.0], [1.0]), ours)


def test_jobs_take_turns_in_opposite_orders():
    seen = []
    found = harness.in_turn({name: lambda name=name: seen.append(name) or len(seen) for name in "abc"}, rounds=2, warmup=1)
    assert "".join(seen) == "cbaabccba" and found == {"a": [4, 9], "b": [5, 8], "c": [6, 7]}
    times = harness.side_by_side({"quick": lambda: None, "slow": lambda: sum(range(300_000))}, rounds=5)
    assert len(times["slow"].wall) == 5 and harness.ratio(times["slow"], times["quick"], "processor").low > 5


def test_table_and_files(tmp_path, capsys):
    rows = [{"what": "a", "ms": 1.5}, {"what": "b", "ms": None}]
    assert harness.table(rows).splitlines() == ["| what | ms |", "| --- | ---: |", "| a | 1.5 |", "| b |  |"]
    facts = {"date": "2026-11-21", "processor": "Some(R) Processor", "cores": 2, "gpu": harness.NO_GPU}
    text_of = lambda found: harness.sections(found, lambda report: f"x is {report['x']}\n")
    paint = lambda report, axes: harness.bars(axes, {"a": report["x"], "b": 2.0}, mark=1)
    folder = tmp_path / "new"
    harness.write(folder, "name", {"machine": facts, "x": 1}, text_of, paint)
    harness.write(folder, "name", {"machine": facts, "x": 3}, text_of, paint)  # the same machine again
    assert (folder / "name.md").read_text() == "x is 3\n"
    harness.write(folder, "name", {"machine": facts | {"gpu": "A GPU"}, "x": 5}, text_of, paint)
    assert {name: report["x"] for name, report in harness.entries(folder, "name").items()} == {"Some(R) Processor, 2 cores": 3, "A GPU": 5}
    assert (folder / "name.md").read_text() == "## Some(R) Processor, 2 cores\n\nx is 3\n\n## A GPU\n\nx is 5\n"
    assert "<svg" in (folder / "name.svg").read_text() and "A GPU" in (folder / "name.svg").read_text()
    facts = harness.torch_machine("cpu", peer="1.0")
    assert harness.NO_GPU in harness.about(facts) and {"date", "processor", "vectors", "cores", "threads", "torch", "blas", "peer"} <= facts.keys()
    assert [harness.vectors(flags) for flags in ({"avx", "avx2", "avx512f"}, {"avx", "avx2"}, {"asimd"})] == ["AVX512", "AVX2", ""]
    amd = [harness.vectors({"avx2", "avx512f"}, "AuthenticAMD", family) for family in ("25", "26")]
    assert amd == ["AVX512 in halves", "AVX512"] and harness.vectors({"avx2"}, "AuthenticAMD", "25") == "AVX2"
    named = {"processor": "P", "vectors": "AVX2", "cores": 2}
    assert harness.entry_name(named) == "P (AVX2), 2 cores" and harness.entry_name(named | {"vectors": ""}) == "P, 2 cores"
    assert harness.about(named | {"vectors": ""}) == "processor P, cores 2"
    assert "x is 5" in capsys.readouterr().out


def test_machines_side_by_side():
    """Rows that agree in the keys are one; what a machine has not measured is an empty cell."""
    first, second = [{"size": "S", "ms": 1}, {"size": "L", "ms": 2}], [{"size": "L", "ms": 3}, {"size": "XL", "ms": 4}]
    one = harness.abreast({"A(R) Processor, 2 cores": first}, ("size",), ("ms",))
    assert one == first
    both = harness.abreast({"A(R) Processor, 2 cores": first, "B, 4 cores": second}, ("size",), ("ms",))
    assert both == [{"size": "S", "A: ms": 1, "B: ms": None}, {"size": "L", "A: ms": 2, "B: ms": 3}, {"size": "XL", "A: ms": None, "B: ms": 4}]
    assert harness.abreast({"A, 2 cores": first, "B, 4 cores": []}, ("size",), ("ms",)) == [{"size": "S", "A: ms": 1}, {"size": "L", "A: ms": 2}]
    more = [row | {"more": "x"} for row in first]
    assert harness.abreast({"A": more}, ("size",), ("ms", "more"), few=("ms",)) == more
    assert harness.abreast({"A": more, "B": second}, ("size",), ("ms", "more"), few=("ms",))[0] == {"size": "S", "A: ms": 1, "B: ms": None}
    assert harness.short_names(["A, 2 cores", "A, 4 cores"]) == {"A, 2 cores": "A, 2 cores", "A, 4 cores": "A, 4 cores"}
    names = ["A(R) Processor (AVX512 in halves), 2 cores", "B (AVX2), 2 cores", "B (AVX512), 2 cores", "B"]
    assert list(harness.short_names(names).values()) == ["A", "B (AVX2)", "B (AVX512)", "B"]


@pytest.fixture(scope="module")
def speed():
    import speed

    return speed


def test_each_step_of_the_speed_table_is_the_same_function(speed):
    """Loss and gradients, from the plain version to the fast one."""
    torch.manual_seed(0)
    size = speed.Size(n_layers=2, n_heads=2, d_model=16, n=12, batch=3, vocab_size=30)
    model, (x, y) = speed.TransformerLM(size.config("gelu_tanh")).double(), speed.random_batch(size, "cpu")
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    marks = [mark for mark in speed.STEPS.values() if mark]
    forms, found = [], []
    for k in range(len(marks) + 1):
        plain = set(marks[k:])
        speed.put_on(model, plain)
        loss = speed.loss_by_formula if "loss" in plain else speed.weighted_loss
        value = loss(model(x), y)
        found.append([value, *torch.autograd.grad(value, list(model.parameters()))])
        forms.append([part.__dict__.get("forward") for part in model.modules()])
    for some in found[1:]:
        assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(some, found[0], strict=True))
    assert all(a != b for a, b in zip(forms[:4], forms[1:5], strict=True))  # heads, pattern, norm, gelu: each step changes the model
    assert forms[-1] == [None] * len(forms[-1])  # what is called fast is the package as it is


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_peers_compute_the_same_loss(speed, activation):
    size = speed.Size(n_layers=2, n_heads=2, d_model=16, n=12, batch=3, vocab_size=30)
    peers = speed.groups(None)[activation]
    made = speed.players(size, activation, peers, "cpu", "float32", False)
    x, y = speed.random_batch(size, "cpu")
    losses = lambda: {who: player.loss(x, y).item() for who, player in made.items()}
    first = losses()
    for player in made.values():
        player.step()
    then = losses()
    assert max(first.values()) - min(first.values()) < 1e-5
    assert all(then[who] < first[who] for who in made)  # every step trains


def test_llama_computes_the_same_loss(speed):
    import llama

    torch.manual_seed(0)
    size = llama.LlamaSize(n_layers=2, n_heads=4, d_model=16, n=12, batch=3, vocab_size=30)
    x, y = batch = speed.random_batch(size, "cpu")
    mine = speed.ours(size, batch, "float32", False, "silu")
    other = llama.their_player(mine.model, batch)
    first = mine.loss(x, y).item()
    assert abs(first - other.loss(x, y).item()) < 1e-5
    for player in (mine, other):
        player.step()
        assert player.loss(x, y).item() < first


def test_the_audit_beside_a_sweep():
    """Each report of an audit is looked at, and the sweep replaces every row once, two sequences at a time."""
    import auditing
    from transformers import GPT2Config, GPT2LMHeadModel

    small = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=None, eos_token_id=None)
    made = auditing.row("GPT-2 small", small, 5, 1)
    assert list(made) == ["model", "n", *auditing.COLUMNS, "goal, s"] and made["n"] == 5 and made["goal, s"] == 20
    seen, model = [], GPT2LMHeadModel(small).eval()
    model.register_forward_hook(lambda _, read, written: seen.append(read[0].shape))
    auditing.sweep(model, torch.zeros(2, 5, dtype=torch.long))
    assert seen == [(2, 5)] * 2
    model.lm_head.register_forward_hook(lambda _, read, written: written + written.mean(1, keepdim=True))
    with pytest.raises(SystemExit, match="a wrong verdict"):
        auditing.confirm(model, torch.randint(20, (2, 5)))
    text = auditing.page({"A (AVX2), 2 cores": {"machine": {"date": "today"}, "rounds": 1, "rows": [made]}})
    assert "| GPT-2 small | 5 |" in text and "Measured on A (AVX2), 2 cores, today." in text


def test_operations_of_a_step(speed):
    """Counted by torch: products forward, and twice as many backward."""
    from torch.utils.flop_counter import FlopCounterMode

    size = speed.Size(n_layers=2, n_heads=2, d_model=16, n=12, batch=3, vocab_size=30)
    model, (x, y) = speed.TransformerLM(size.config("gelu")), speed.random_batch(size, "cpu")
    speed.put_on(model, {"heads", "pattern"})  # in plain products, which can be counted
    with FlopCounterMode(display=False) as counter:
        speed.weighted_loss(model(x), y).backward()
    assert counter.get_total_flops() == size.products()


def test_the_figures_of_the_chapters_are_the_measured_ones():
    """Every table that a chapter quotes stands in the benchmark's report as it is."""
    import quoting

    found = []
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            if "<!-- begin: benchmarks/" in text:
                assert cell["cell_type"] == "markdown" and quoting.quoted(text) == text, path.name
                found += [(path.stem, match[2], match[4].count("\n")) for match in quoting.QUOTED.finditer(text)]
                assert text.count("<!-- begin: benchmarks/") == len(quoting.QUOTED.findall(text))
    assert {(page, name) for page, name, _ in found} >= {("speed", "speed"), ("speed", "decoding"), ("speed", "gpu"), ("pretrained", "llama"), ("fast_tokenization", "tokenization"), ("auditing", "auditing")}
    assert all(lines >= 4 for _, name, lines in found if quoting.tables(name))


def sources_of(chapter: str, kind: str) -> str:
    cells = json.loads((ROOT / "book" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    return " ".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == kind)


def prose_of(chapter: str) -> str:
    return sources_of(chapter, "markdown")


def code_of(chapter: str) -> str:
    return sources_of(chapter, "code")


def test_the_chapter_on_speed_says_what_was_measured_of_writing():
    """The sizes, the lengths and what fewer bits cost stand in prose there; the figures are those of the report."""
    import decoding

    from tlm_book.inference import products

    prose = prose_of("speed")
    small, large = decoding.SIZES["S"], decoding.SIZES["L"]
    assert f"write {decoding.NEW} tokens after {decoding.PROMPT} given ones" in prose
    assert f"(S: {small['n_layers']} blocks of width {small['d_model']}, L: {large['n_layers']} of {large['d_model']}, [as before](#speed-sizes))" in prose
    reports = [harness.entries(ROOT / "benchmarks", "decoding")[f"AMD EPYC ({vectors}), 2 cores"] for vectors in ("AVX512", "AVX512 in halves", "AVX2")]
    for report in reports:
        of = lambda texts: [row["chosen"] for row in report["forms"] if row["texts"] == texts]
        assert of(1).count("parts") > len(of(1)) / 2 and of(16).count("reordered") > len(of(16)) / 2
    several = {row["texts"]: row["ours, tokens/s"] for row in reports[0]["batches"] if row["size"] == "L"}
    told = f"{several[1]} tokens a second in one text, {several[4]:,} in four, {several[16]:,} in sixteen and {several[64]:,} in sixty-four."
    assert f"on the EPYC with AVX512, not compiled, L writes {told}" in prose and f"more than {products.SMALL // 2**20} MiB tries the forms" in prose
    assert "on the EPYCs below mostly `parts` for one text and `reordered` for sixteen" in prose
    bits = [{row["weights"]: row for row in report["fewer bits"]} for report in reports]
    gain = lambda row, key="gain": float(row[key].split()[0])
    assert {found["int8"]["same tokens"] for found in bits} == {1} and {found["bfloat16"]["same tokens"] for found in bits} == {20}
    off = {kind: [float(found[kind]["off by"].rstrip("%")) for found in bits] for kind in ("int8", "bfloat16")}
    moved = f"move by up to {max(off['int8']):.0f}% of their standard deviation with `int8` and {min(off['bfloat16']):.0f} to {max(off['bfloat16']):.0f}% with `bfloat16`"
    assert f"the scores of L {moved}, and its text parts from that of float32 after 1 and 20 tokens, on all three EPYCs" in prose
    whole, (wide, halves, narrow) = [gain(found["int8"]) for found in bits], [gain(found["bfloat16"]) for found in bits]
    assert f"`int8` was {min(whole):.1f} to {max(whole):.1f} times as fast as float32, `bfloat16` {wide:.2f} times with AVX512 (before" in prose
    assert f"`reordered`), {halves:.2f} times with AVX512 in halves and {narrow:.2f} times with AVX2." in prose
    compiled = {kind: sorted(gain(found[kind], "gain, compiled") for found in bits[1:]) for kind in ("int8", "bfloat16", "float32")}
    low, high = ({kind: f"{gains[k]:.1f}" for kind, gains in compiled.items()} for k in (0, -1))
    wanted = f"`int8` was {low['int8']} to {high['int8']}, `bfloat16` {low['bfloat16']} to {high['bfloat16']} and float32 {low['float32']} to {high['float32']}"
    assert f"Compiled, on the last two, {wanted} times as fast as float32 that is not compiled." in prose
    rows = [row for report in reports for row in report["writing"] if "compiled, ms" in row]
    assert len(rows) == 8 and [report.get("notes") is not None for report in reports] == [False, False, True]
    assert "(With AVX2 the last column is from another run.)" in prose
    first = [row["first text compiled, s"] for row in rows if row["first text compiled, s"]]
    assert f"The first text waits for the compiler, here {min(first)} to {max(first)} seconds." in prose
    shares = [int(row["compiled, of the limit"].rstrip("%")) for row in rows if row["size"] == "L"]
    assert f"At L this is {min(shares)} to {max(shares)}% of the limit" in prose


def test_the_chapters_say_what_was_measured_of_two_libraries():
    """How much quicker the second is, what a step gains from it, and how our step compares with the others."""
    entries = harness.entries(ROOT / "benchmarks", "speed")
    prose, first = prose_of("speed"), lambda cell: float(cell.split()[0])
    llama = harness.entries(ROOT / "benchmarks", "llama")
    speeds, gains = {}, {}
    for vectors in ("AVX512", "AVX512 in halves", "AVX2"):
        name = f"AMD EPYC ({vectors}), 2 cores"
        found = re.findall(r"([\d,]+)(?: billion operations| with oneDNN)", entries[name]["libraries"])
        speeds[vectors] = [float(number.replace(",", "")) for number in found]
        (row,) = (row for row in entries[name]["steps"] if row["step"] == "products by the quicker library")
        gains[vectors] = {size: first(row[f"{size}: gain"]) for size in ("S", "L")}
        ours = {made["size"]: first(made["theirs / ours"]) for made in llama[name]["rows"] if made["what"] == "training step"}
        assert all(abs(ours[size] - gain) < 0.1 for size, gain in gains[vectors].items())
    usual, other, _ = speeds["AVX512"]
    assert 1.9 < other / usual < 2.3 and "computes with 512 bits at a time (AVX512) oneDNN is twice as fast as MKL in `float32`, too" in prose
    alike = "AVX512 in halves", "AVX2"
    assert all(0.8 < other / usual < 1.25 for usual, other, _ in map(speeds.get, alike))
    assert "on two other AMD processors the two are about equally fast" in prose
    assert all(0.95 < gain < 1.05 for vectors in alike for gain in gains[vectors].values())
    assert min(gains["AVX512"].values()) > 1.3
    small, large = (1 / gains["AVX512"][size] for size in ("S", "L"))
    assert f"with it a training step takes {large:.1f} to {small:.1f} times as long" in prose
    beside_llama = [[first(made["theirs / ours"]) for made in llama[f"AMD EPYC ({vectors}), 2 cores"]["rows"] if made["what"] == "training step"] for vectors in ("AVX512", *alike)]
    assert f"With AVX512 ours trains {min(beside_llama[0]):.1f} to {max(beside_llama[0]):.1f} times as fast" in prose_of("pretrained")
    assert all(0.9 < ratio < 1.1 for ratios in beside_llama[1:] for ratio in ratios)
    assert "with AVX512 in halves and with AVX2 the two are about equally fast" in prose_of("pretrained")
    beside = {
        name: [first(row["theirs / ours"]) for row in entry["side"] if (row["what"], row["beside"]) == ("training step", "nanoGPT")]
        for name, entry in entries.items()
    }
    wide = beside.pop("AMD EPYC (AVX512), 2 cores")
    rest = [ratio for ratios in beside.values() for ratio in ratios]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"on an AMD EPYC with AVX512 a step is {min(wide):.1f} to {max(wide):.1f} times as fast as nanoGPT's" in readme
    assert f"on three other processors {min(rest):.1f} to {max(rest):.1f} times" in readme and len(beside) == 3
    takes = {name: [1 / first(row["theirs / ours"]) for row in entry["side"] if row["what"] == "training step"] for name, entry in entries.items()}
    wide, rest = takes.pop("AMD EPYC (AVX512), 2 cores"), [time for times in takes.values() for time in times]
    assert f"our step takes {min(wide):.2f} to {max(wide):.2f} times as long as theirs" in prose_of("speed")
    assert f"on the other three processors {min(rest):.2f} to {max(rest):.2f} times." in prose_of("speed")
    of = lambda entry, step, size: next((first(row[f"{size}: gain"]) for row in entry["steps"] if row["step"] == step), 1.0)
    gained = [of(entry, "all together", size) / of(entry, "products by the quicker library", size) for entry in entries.values() for size in ("S", "L")]
    assert f"here, the library aside, a step becomes only {min(gained):.1f} to {max(gained):.1f} times as fast, since the products are the same" in prose_of("speed")
    shares = [int(share) for entry in entries.values() for share in re.findall(r"(\d+)% of what one large product", entry["share"])]
    assert len(shares) == 8 and f"they alone would take {min(shares)} to {max(shares)}% of our step." in prose_of("speed")
    times = [time["wall_ms"] for steps in entries["AMD EPYC (AVX2), 2 cores"]["step_times"].values() for time in steps.values()]
    apart = [100 * (time["high"] - time["low"]) / time["median"] for time in times]
    assert min(apart) > 5 and "On the last two processors the times scatter: there, factors from 0.99 to 1.05 (grey) mean nothing." in prose_of("speed")
    times = [time["wall_ms"] for steps in entries["AMD EPYC (AVX512 in halves), 2 cores"]["step_times"].values() for time in steps.values()]
    apart = sorted(100 * (time["high"] - time["low"]) / time["median"] for time in times)
    assert apart[-4] > 25
    drawn = ast.literal_eval(re.search(r"gains = ({.*?\n})", code_of("speed"), re.DOTALL)[1])
    for k, entry in enumerate(entries.values()):
        at = {step: tuple(of(entry, name, size) for size in ("S", "L")) for step in drawn for name in (row["step"] for row in entry["steps"]) if name.startswith(step)}
        assert at == {step: many[k] for step, many in drawn.items() if many[k]}
    sizes = [importlib.import_module("speed").SIZES[name] for name in ("S", "L")]
    words = "*S* is a model of {} blocks of width {} with {} heads and {} kinds of tokens, on {} texts of {} tokens; *L* one of {} blocks of width {} with {} heads and {:,} kinds, on {} texts of {}."
    numbers = [number for s in sizes for number in (s.n_layers, s.d_model, s.n_heads, s.vocab_size, s.batch, s.n)]
    assert words.format(*numbers) in prose_of("speed")


def test_the_chapters_say_what_was_measured_on_a_gpu():
    """The figures beside the tables are those of the report."""
    gpu, speed = map(importlib.import_module, ("gpu", "speed"))
    report = harness.entries(ROOT / "benchmarks", "gpu")["NVIDIA H100 80GB HBM3"]
    number = lambda cell: float(cell.split()[0].replace(",", ""))
    speeds = {(row["texts"], row["type"]): number(row["tokens a second"]) for row in report["decoding"]}
    gains = [round(speeds[64, dtype] / speeds[1, dtype]) for dtype in ("float32", "bfloat16")]
    assert f"On the H100, sixty-four texts together are written {gains[0]} (float32) and {gains[1]} times (bfloat16) as fast as one." in prose_of("speed")
    assert f"measured = {{1: {speeds[1, 'bfloat16']:_.0f} * 2 * P, 64: {speeds[64, 'bfloat16']:_.0f} * 2 * P" in code_of("speed")
    (trained,) = (row["share of the peak"].rstrip("%") for row in report["training"] if row["beside"] == "Hugging Face, fused GELU")
    assert f"{report['batch']} * 1024: 0.{trained.replace('.', '')} * {speed.PEAKS['H100'] / 1e14:.2f}e14" in code_of("speed")
    assert f"{speed.PEAKS['H100'] / 1e14:.2f}e14, {gpu.BANDWIDTHS['H100 80GB HBM3'] / 1e12}e12, 2, measured)" in code_of("speed")
    reports = harness.entries(ROOT / "benchmarks", "gpu")
    shares = [number(row["tokens a second"]) / number(row["limit"]) for found in reports.values() for row in found["decoding"] if row["texts"] == 1]
    many = [number(row["tokens a second"]) / number(row["limit"]) for found in reports.values() for row in found["decoding"] if row["texts"] == 64 and row["tokens a second"]]
    told = f"one text at {100 * min(shares):.0f} to {100 * max(shares):.0f}% of it, sixty-four at {100 * min(many):.0f} to {100 * max(many):.0f}%."
    assert told in prose_of("speed")
    steps = [number(row["ours, ms"]) / gpu.NEW for found in reports.values() for row in found["decoding"] if row["texts"] == 1]
    assert f"the ${min(steps):.1f}$ to ${max(steps):.1f}$ milliseconds of a step" in prose_of("speed")
    size, peak = speed.SIZES[gpu.SIZE], speed.PEAKS["H100"]
    assert f"of the H100 promises $F={peak / 1e14:.2f}\\cdot10^{{14}}$ in `bfloat16`" in prose_of("speed") and peak == speed.PEAKS["H200"]
    exact = report["training"][0]["share of the peak"].rstrip("%")
    causal = dataclasses.replace(size, n=size.n // 2).products() * 2 / size.products()  # as many tokens, half as many scores for each
    assert f"without them {exact}% would be {float(exact) * causal:.1f}%" in prose_of("speed")
    unmeasured = reports["NVIDIA H200"]["decoding"][-1]
    assert (unmeasured["tokens a second"] is None) == ("We have measured neither what it is nor the last line of the table." in prose_of("speed"))
    assert report["batch"] == 48 and "Steps of 48 windows of 1,024 tokens; medians of five alternating runs" in prose_of("speed") and report["rounds"] == 5


def test_the_chapter_on_auditing_says_what_was_measured():
    for report in harness.entries(ROOT / "benchmarks", "auditing").values():
        small, large = (float(row["sweep / audit"].split()[0]) for row in report["rows"])
        assert small < 0.1 and large > 2 and "So for GPT-2 the whole audit takes less than half as long as one sweep." in prose_of("auditing")


def test_the_chapter_on_fast_tokenization_says_how_it_was_measured():
    reports, prose = list(harness.entries(ROOT / "benchmarks", "tokenization").values()), prose_of("fast_tokenization")
    assert [report.get("clock") for report in reports] == ["", ", processor time"]
    wanted = "The Xeon's figures are seconds by the clock, medians of {} runs; the EPYC's are processor time, medians of {}."
    assert wanted.format(*(report["rounds"] for report in reports)) in prose


def test_other_figures_come_into_the_page(monkeypatch):
    import quoting

    old = "| a | ms |\n| --- | ---: |\n| x | 1.0 |"
    new = [old.replace("1.0", "2.0"), "| b | ms |\n| --- | ---: |\n| x | 3.0 |"]
    monkeypatch.setattr(quoting, "tables", lambda name: new)
    page = "Before.\n\n<!-- begin: benchmarks/some.md -->\n\n{}\n\n<!-- end: benchmarks/some.md -->\n\nAfter."
    assert quoting.quoted(page.format(old)) == page.format(new[0])
    second = page.replace("md -->", "md 2 -->", 1)
    assert quoting.quoted(second.format(old)) == second.format(new[1])


@pytest.mark.parametrize("name", ["data", "decoding", "essays", "gpu", "inside", "llama", "recipe", "speed", "tokenization", "world"])
def test_reports_are_written_from_what_was_measured(name, tmp_path):
    """NAME.md is what NAME.json says, and each machine's entry stands under its name."""
    benchmark, folder = importlib.import_module(name), ROOT / "benchmarks"
    found = harness.entries(folder, name)
    assert found and all(harness.entry_name(report["machine"]) == machine for machine, report in found.items())
    page = getattr(benchmark, "page", None) or benchmark.PAGE
    assert page(found) == (folder / f"{name}.md").read_text(encoding="utf-8")


def largest(table: str, column: str) -> float:
    """The largest number in a column of a report."""
    lines = (ROOT / "benchmarks" / table).read_text(encoding="utf-8").splitlines()
    head, _, *rows = [[entry.strip() for entry in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return max(float(row[head.index(column)]) for row in rows)


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [("site.md", "total kB", "weighs {:,.0f} kB"), ("site.md", "first paint ms", "came after {:.0f} ms"), ("hover.md", "95th percentile ms", "at most {:.1f} ms")],
)
def test_readme_quotes_what_was_measured(table, column, words):
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert words.format(largest(table, column)) in readme


def test_readme_quotes_what_a_key_costs():
    """The three kinds of keys: the least and the most, in whole milliseconds."""
    lines = (ROOT / "benchmarks" / "keys.md").read_text(encoding="utf-8").splitlines()
    rows = [[entry.strip() for entry in line.strip("|").split("|")] for line in lines if line.startswith("| a letter")]
    thread, drawn = ([float(row[column]) for row in rows] for column in (1, 2))
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert len(rows) == 3 and f"takes {min(thread):.0f} to {max(thread):.0f} ms of that thread" in readme
    assert f"drawn after {min(drawn):.0f} to {max(drawn):.0f} ms" in readme


def test_the_default_of_train_is_the_recipe_of_the_table():
    """At its size, `train` takes the model and the settings of the line in bold; a wider model gets a lower rate."""
    import recipe as benchmark

    size = dataclasses.replace(fit_size(1_100_000), vocab_size=95, d_model=128, layers=4, heads=4, context=64, batch_size=12, steps=2000)
    way = benchmark.WAYS[benchmark.RECIPE]
    assert model_for(size, 95) == benchmark.SIZES["a"].config(95, **way.model)
    settings, wanted = dataclasses.asdict(recipe(size)), benchmark.PUBLISHED | way.training
    assert {name: settings[name] for name in wanted} == wanted
    assert recipe(dataclasses.replace(size, d_model=256)).lr == wanted["lr"] / 2


def test_the_recipe_beats_nanogpt_in_the_table():
    """At both sizes, with each seed, at equal weights and tokens; and a step of it takes at most 5 % longer."""
    import recipe as benchmark

    entries = harness.entries(ROOT / "benchmarks", "recipe")
    runs = next(report["runs"] for report in entries.values() if report["runs"])
    times = next(report["times"] for report in entries.values() if report["times"])
    assert {(run["way"], run["size"], run["text"], run["seed"]) for run in runs} == {tuple(job.values()) for job in benchmark.jobs()}
    weights = {(run["size"], run["way"]): run["weights"] for run in runs}
    for size, least in (("a", 0.05), ("b", 0.0)):
        assert min(benchmark.gains(runs, benchmark.RECIPE, size)) > least
        assert 0.98 < weights[size, benchmark.RECIPE] / weights[size, benchmark.NANOGPT] < 1.001
        assert times[size][benchmark.RECIPE]["median"] < 1.05


def test_nanogpts_architecture_in_our_package():
    """The stand-in for nanoGPT has its architecture: as many weights, and a step moves all of them but the shifts of the layer norms."""
    import recipe as benchmark

    run = benchmark.ours(benchmark.WAYS[benchmark.NANOGPT], benchmark.Size(n=8, batch=2, steps=200), 30, 0, "cpu")
    before = {name: w.detach().clone() for name, w in run.model.named_parameters()}
    x = torch.randint(30, (2, 9), generator=torch.Generator().manual_seed(0))
    run.step(x[:, :-1], x[:, 1:])
    still = {name for name, w in run.model.named_parameters() if torch.equal(w, before[name])}
    assert still == {name for name in before if "norm" in name and name.endswith("bias")}


def test_laws_are_measured_as_the_script_says():
    """src/tlm_book/data/laws.json holds a run for each job of laws.py, of a model of that size."""
    import laws

    found = json.loads((ROOT / "src/tlm_book/data/laws.json").read_text(encoding="utf-8"))
    jobs = laws.jobs()
    assert sorted(map(str, jobs)) == sorted(str({key: run[key] for key in jobs[0]}) for run in found["runs"])
    vocab_size = found["text"]["different"] + 1
    for run in found["runs"]:
        assert run["weights"] == count_parameters(laws.config(run["width"], run["blocks"], vocab_size))
    assert found["text"]["characters"]["learn"] > max(run["tokens"] for run in found["runs"])  # no character twice


def test_prose_is_cut_and_learned_once():
    import small_runs

    sentence = "The tide comes in and goes out again, and nobody who lives by the sea can say why it should be so."
    assert small_runs.is_prose(sentence) and not small_runs.is_prose("x = [f(y) for y in range(10)]; print(x, y)" * 3 + ".")
    tokens, seen = torch.arange(100), []
    for batch in itertools.islice(small_runs.once(tokens, 8, 3, seed=0), 4):
        assert batch.shape == (3, 8)
        seen += batch.flatten().tolist()
    assert len(set(seen)) == 96
    rate = small_runs.trapezium(10, 2, 0.5)
    assert [round(rate(step), 2) for step in (0, 4, 5, 9)] == [0.33, 1.0, 1.0, 0.2]


def test_runs_are_kept_one_by_one(tmp_path, capsys):
    import small_runs

    file, jobs = tmp_path / "runs.jsonl", [{"seed": 0}, {"seed": 1}]
    small_runs.keep(file, jobs[1], {"held_out": 2.0})
    assert list(small_runs.pending(file, jobs)) == [jobs[0]] and small_runs.rows(file) == [{"job": jobs[1], "held_out": 2.0}]


@pytest.mark.parametrize("maximal", [False, True])
@pytest.mark.parametrize("width", [32, 128])
def test_the_parametrizations_begin_and_move_as_the_chapter_on_scaling_defines_them(width, maximal):
    laws = importlib.import_module("laws")
    torch.manual_seed(0)
    model = TransformerLM(laws.config(width, 2, 500))
    optimizer = laws.parametrized(model, 0.01, maximal)
    rate = {id(w): group["lr"] for group in optimizer.param_groups for w in group["params"]}
    share = 32 / width if maximal else 1.0
    for name, w in model.named_parameters():
        matrix = w.dim() == 2 and "embedding.table" not in name
        assert rate[id(w)] == pytest.approx(0.01 * share if matrix else 0.01), name
        if w.dim() == 2:
            m = w.shape[1]
            wanted = 0.02 if not matrix else 32**0.5 / m if maximal and name.startswith("unembedding") else m**-0.5
            assert float(w.detach().std()) == pytest.approx(wanted, rel=0.06), name
