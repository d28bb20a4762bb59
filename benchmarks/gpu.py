"""A GPU, in one command: GPT-2 124M trains and writes, beside Hugging Face's, and the results are compared with the specification.

    make gpu          (or: python benchmarks/gpu.py [--rounds 5] [--batch 48] [--nanogpt DIR] [--only PART …] [--out benchmarks])

Training: windows of 1,024 tokens, bfloat16 autocast, torch.compile, ours recorded, ours and theirs in turn: tokens a second, and the operations of their products of matrices
as a share of the dense bfloat16 peak, by the data sheet if it is known, and of what one large product reaches here. Decoding: 256 tokens after 16,
greedily, 1 and 64 texts, float32 and bfloat16, ours compiled, theirs with its cache, not compiled; the limit is that of reading the weights once and what is kept of every text, by the data sheet. Memory: the most that is allocated on the GPU, weights and states included.
Agreement: presets with small random weights, in float32 and bfloat16, beside the specification in float64 with the same weights.

Writes gpu.json with one entry for each GPU, and gpu.md. With --only, what else was measured in the same way is kept, with its date. Status 1 without a GPU.
"""

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import torch

DEVICE = "cuda"
SIZE = "GPT-2 124M"
GOALS = {"nanoGPT": 1.1, "share of the peak": 0.45, "decoding at batch 1": 5.0}
PEERS = ("nanoGPT", "Hugging Face, fused GELU")  # the fastest of each activation
PROMPT, NEW, BATCHES = 16, 256, (1, 64)
BANDWIDTHS = {"H100 80GB HBM3": 3.35e12, "H200": 4.8e12, "A100-SXM4-80GB": 2.04e12}  # bytes a second from memory, by the data sheets
SMALL = {"d_model": 32, "d_ff": 48, "n_layers": 2, "n_heads": 4, "max_len": 16}
FAMILY = {"qwen2": {"n_kv_heads": 2}, "qwen3": {"n_kv_heads": 2}, "mistral": {"n_kv_heads": 2, "window": 3}, "mixtral": {"n_kv_heads": 2, "n_experts": 3}, "gemma": {"n_kv_heads": 1}}


def most_memory(job: Callable[[], object]) -> float:
    """The most MB that are allocated on the GPU while the job runs."""
    torch.cuda.reset_peak_memory_stats()
    job()
    torch.cuda.synchronize()
    return round(torch.cuda.max_memory_allocated() / 1e6)


def agreement(device: str) -> list[dict[str, object]]:
    """For each preset and type the largest distance from the specification, as a part of its largest result."""
    import numpy as np

    from tlm_book.spec.transformer_lm import transformer_lm as specification
    from tlm_book.transformer_lm import Config, TransformerLM

    rows = []
    for name in (key for key, value in vars(Config).items() if isinstance(value, classmethod)):
        row: dict[str, object] = {"preset": name}
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            model = TransformerLM(getattr(Config, name)(50, **SMALL | FAMILY.get(name, {}))).to(dtype).eval()
            x = torch.randint(50, (2, 12))
            wanted = np.stack([specification(row.numpy(), **model.spec_weights(), **model.spec_settings()) for row in x])
            with torch.no_grad():
                found = model.to(device)(x.to(device)).double().cpu().numpy()
            row[str(dtype).removeprefix("torch.")] = f"{np.abs(found - wanted).max() / np.abs(wanted).max():.1e}"
        rows.append(row)
    return rows


def training(options: argparse.Namespace) -> list[dict[str, object]]:
    """Ours beside each peer: times in turn, tokens a second, shares of the peak, memory."""
    import dataclasses

    import speed

    size = dataclasses.replace(speed.SIZES[SIZE], batch=options.batch)
    name = torch.cuda.get_device_name(DEVICE)
    sheet = next((value for key, value in speed.PEAKS.items() if key in name), None)
    reached = speed.peak_speed(DEVICE, torch.bfloat16)
    rows = []
    for activation, all_peers in speed.groups(options.nanogpt).items():
        peers = {peer: make for peer, make in all_peers.items() if peer in PEERS}
        if not peers:
            continue
        made = speed.players(size, activation, peers, DEVICE, "bfloat16", True)
        memory = {who: most_memory(player.step) for who, player in made.items()}
        times = harness.side_by_side({who: player.step for who, player in made.items()}, options.rounds, warmup=3, device=DEVICE)
        operations = size.products() / statistics.median(times["ours"].wall)
        for peer in peers:
            rows.append({
                "beside": peer, "ours, ms": times["ours"].ms(), "theirs, ms": times[peer].ms(), "theirs / ours": harness.ratio(times[peer], times["ours"]).text(),
                "tokens a second": f"{size.batch * size.n / statistics.median(times['ours'].wall):,.0f}",
                "share of the peak": f"{operations / sheet:.1%}" if sheet else "not known", "of one large product": f"{operations / reached:.1%}",
                "ours, MB": memory["ours"], "theirs, MB": memory[peer],
            })  # fmt: skip
            print(rows[-1], flush=True)
        del made
        free()
    return rows


def decoding() -> Iterator[tuple[int, str, Callable[[], torch.Tensor], Callable[[], torch.Tensor]]]:
    """(texts, type, ours, theirs): each writes the same tokens as the other, as far as rounding lets it."""
    import decoding as beside

    from tlm_book.inference import generate

    size = {"n_layers": 12, "n_heads": 12, "d_model": 768, "vocab_size": 50304}
    for dtype in (torch.float32, torch.bfloat16):
        ours, theirs = (model.to(dtype) for model in beside.models(size, "gelu_pytorch_tanh", DEVICE))
        for batch in BATCHES:
            x = torch.randint(size["vocab_size"], (batch, PROMPT), device=DEVICE)
            their_text = lambda x=x, theirs=theirs: theirs.generate(
                x, attention_mask=torch.ones_like(x), max_new_tokens=NEW, do_sample=False, use_cache=True, pad_token_id=0
            )
            yield batch, str(dtype).removeprefix("torch."), lambda x=x, ours=ours: generate(ours, x, NEW, temperature=0, compile=True), their_text
        del ours, theirs
        free()


def limit(gpu: str, texts: int, dtype: str) -> str:
    """Tokens a second if a step took as long as reading, at the data sheet's bandwidth, every weight once and the keys and values of all texts (half-way)."""
    from tlm_book.transformer_lm import Config, count_parameters

    bandwidth = next((value for key, value in BANDWIDTHS.items() if key in gpu), None)
    c = Config.gpt2(50304)
    weights = count_parameters(c) - c.max_len * c.d_model  # of the positions' table a step reads one row
    kept = texts * (PROMPT + NEW // 2) * 2 * c.n_layers * c.d_model
    return f"{texts * bandwidth / (getattr(torch, dtype).itemsize * (weights + kept)):,.0f}" if bandwidth else "not known"


def writing(options: argparse.Namespace) -> list[dict[str, object]]:
    """One row for each number of texts and each type."""
    rows = []
    for batch, dtype, our_text, their_text in decoding():
        same = (our_text() == their_text()).long().cumprod(1).sum(1) - PROMPT
        if dtype == "float32" and int(same.max()) < 32:
            raise SystemExit(f"the two write the same only for {same.tolist()} tokens, so their times cannot be compared")
        memory = {"ours": most_memory(our_text), "theirs": most_memory(their_text)}
        found = harness.side_by_side({"ours": our_text, "theirs": their_text}, options.rounds, warmup=1, device=DEVICE)
        rows.append({
            "texts": batch, "type": dtype, "ours, ms": found["ours"].ms(), "theirs, ms": found["theirs"].ms(),
            "theirs / ours": harness.ratio(found["theirs"], found["ours"]).text(),
            "tokens a second": f"{batch * NEW / statistics.median(found['ours'].wall):,.0f}", "limit": limit(torch.cuda.get_device_name(DEVICE), batch, dtype),
            "ours, MB": memory["ours"], "theirs, MB": memory["theirs"],
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def free() -> None:
    """Releases what is no longer used, so that one job does not take another's memory."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def text_of(report: harness.Report) -> str:
    """What was measured, part by part; a part that was not is left out."""
    about = {
        "training": f"{SIZE}, one training step of {report['batch']} windows of 1,024 tokens, bfloat16 (in ours also the rows between the blocks, which the others keep in float32), compiled, ours recorded as a CUDA graph. Goals: {GOALS['nanoGPT']} × nanoGPT, {GOALS['share of the peak']:.0%} of the dense peak.",
        "decoding": f"{NEW} tokens after {PROMPT}, greedily; tokens a second, and their limit if a step took as long as reading, at the data sheet's bandwidth, every weight once and the keys and values of all texts (half-way). Goal: {GOALS['decoding at batch 1']:.0f} × Hugging Face for one text.",
        "agreement": "Distance from the specification, as a part of its largest result.",
    }  # fmt: skip
    where = {part: harness.measured({harness.entry_name(report["machine"]): dated(report, part)}) for part in report["dates"]}
    parts = [f"{said}\n\n{harness.table(report[part])}\n\n{where[part]}" for part, said in about.items() if report.get(part)]
    ends = f"Medians of {report['rounds']} rounds in turn, ± half the distance of the quartiles; {harness.about(report['machine'])}."
    return "\n\n".join([*parts, *report.get("notes", []), ends]) + "\n"


PARTS = {"agreement": lambda options: agreement(DEVICE), "training": training, "decoding": writing}


def dated(report: harness.Report, part: str) -> harness.Report:
    """The report with the date of one of its parts."""
    return report | {"machine": report["machine"] | {"date": report["dates"][part]}}


def together(found: harness.Entries, title: str, part: str, columns: tuple[str, ...]) -> str:
    """A part's rows on all GPUs as one table, with where and when they were measured."""
    those = {gpu: report for gpu, report in found.items() if report.get(part)}
    models = {gpu: gpu.removeprefix("NVIDIA ").split()[0] for gpu in found}  # "H100" of "NVIDIA H100 80GB HBM3"
    models = models if len(set(models.values())) == len(found) else {gpu: gpu for gpu in found}
    rows = [{"GPU": models[gpu]} | {key: row.get(key) for key in columns} for gpu, report in those.items() for row in report[part]]
    where = harness.measured({gpu: dated(report, part) for gpu, report in those.items()})
    return f"{SIZE}: {title}.\n\n{harness.table(rows)}\n\n{where}\n\n" if rows else ""


def page(found: harness.Entries) -> str:
    """The GPUs in one table for training and one for writing, and then everything, GPU by GPU."""
    both = together(found, "a training step", "training", ("beside", "ours, ms", "theirs, ms", "theirs / ours", "share of the peak"))
    both += together(found, "writing", "decoding", ("texts", "type", "tokens a second", "limit", "theirs / ours"))
    return both + harness.sections(found, text_of)


def begun(report: harness.Report, folder: Path) -> harness.Report:
    """The report with those parts that were measured in the same way before, and their dates."""
    undated = lambda report: report | {"machine": report["machine"] | {"date": None}}
    kept = harness.entries(folder, "gpu").get(harness.entry_name(report["machine"]))
    if kept is None or undated(report) != undated({name: kept.get(name) for name in report}):
        return report | {"dates": {}}
    return report | {name: kept[name] for name in (*PARTS, "dates") if name in kept}


def main() -> int:
    parser = harness.parser(__doc__, rounds=5)
    parser.add_argument("--batch", type=int, default=48, help="windows in a training step (48; fewer where memory is short)")
    parser.add_argument("--nanogpt", type=Path, metavar="DIR", help="a checkout of nanoGPT, whose model.py is then a peer")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured (all three parts)")
    options = parser.parse_args()
    if options.write:
        harness.rewrite(options.out, "gpu", page)
        return 0
    if not torch.cuda.is_available():
        print(f"There is no GPU that torch {torch.__version__} can use on this machine, so nothing was measured.", file=sys.stderr)
        return 1
    import transformers

    transformers.logging.set_verbosity_error()
    machine = harness.torch_machine(DEVICE, transformers=transformers.__version__, cuda=torch.version.cuda)
    report = begun({"machine": machine, "rounds": options.rounds, "batch": options.batch, "goals": GOALS}, options.out)
    for part in options.only:
        report[part], report["dates"] = PARTS[part](options), report["dates"] | {part: machine["date"]}
        harness.write(options.out, "gpu", report, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
