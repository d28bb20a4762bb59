"""Forward pass and training step beside Hugging Face's GPT2LMHeadModel (sdpa), in one run, with the same weights.

    python benchmarks/speed.py [--device cpu] [--repeats 15] [--out benchmarks]

Each pair of timings is taken in turn, ours and theirs alternating, so that a noisy machine disturbs both alike. Before anything is
timed, the two models must give the same loss. The ratio is their median time over ours: above 1, ours is faster.
GPT-2's default activation there is a formula of several elementwise steps ("gelu_new"); the fused kernel ("gelu_pytorch_tanh") computes
the same function faster, so both are measured. Writes speed.json and speed.md.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tlm_book.loss import shift, weighted_loss
from tlm_book.transformer_lm import Config, TransformerLM

SIZES = {
    "small": {"n_layers": 4, "d_model": 128, "n_heads": 4, "n": 128, "batch": 16, "vocab_size": 1024},
    "medium": {"n_layers": 6, "d_model": 512, "n_heads": 8, "n": 256, "batch": 4, "vocab_size": 4096},
}
ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")


def our_model(size: dict[str, int]) -> TransformerLM:
    config = Config.gpt2(
        size["vocab_size"], d_model=size["d_model"], d_ff=4 * size["d_model"], n_layers=size["n_layers"],
        n_heads=size["n_heads"], max_len=size["n"],
    )
    return TransformerLM(config)


def their_model(size: dict[str, int], activation: str) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=size["vocab_size"], n_positions=size["n"], n_embd=size["d_model"], n_layer=size["n_layers"], n_head=size["n_heads"],
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa",
        activation_function=activation, bos_token_id=None, eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


@torch.no_grad()
def copy_weights(ours: TransformerLM, theirs: GPT2LMHeadModel) -> None:
    """Their Conv1D keeps weights in × out, torch's Linear out × in; otherwise the tensors match one to one."""
    gpt = theirs.transformer
    gpt.wte.weight.copy_(ours.embedding.table.weight)
    gpt.wpe.weight.copy_(ours.position.table)
    pairs = [(gpt.ln_f, ours.norm)]
    for block, layer in zip(gpt.h, ours.blocks):
        pairs += [(block.ln_1, layer.norm_attention), (block.ln_2, layer.norm_feed_forward)]
        for conv, linear in (
            (block.attn.c_attn, layer.attention.qkv), (block.attn.c_proj, layer.attention.out),
            (block.mlp.c_fc, layer.feed_forward.up), (block.mlp.c_proj, layer.feed_forward.down),
        ):
            conv.weight.copy_(linear.weight.T)
            conv.bias.copy_(linear.bias)
    for norm, ours_norm in pairs:
        norm.weight.copy_(ours_norm.weight)
        norm.bias.copy_(ours_norm.bias)


# One loss for both, so that what is compared is the two models.
def our_loss(model: TransformerLM, tokens: torch.Tensor) -> torch.Tensor:
    return weighted_loss(model(shift(tokens)), tokens)


def their_loss(model: GPT2LMHeadModel, tokens: torch.Tensor) -> torch.Tensor:
    return weighted_loss(model(input_ids=shift(tokens)).logits, tokens)


def training_step(loss: Callable, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model, tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def forward_pass(loss: Callable, model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def forward() -> None:
        loss(model, tokens)

    return forward


def seconds(run: Callable[[], None], device: torch.device) -> float:
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def side_by_side(ours: Callable[[], None], theirs: Callable[[], None], device: torch.device, repeats: int) -> dict[str, float]:
    """Medians of alternating timings after two warm-up rounds; the order within a round alternates too."""
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    runs = [("ours", ours), ("theirs", theirs)]
    for round_ in range(-2, repeats):
        for name, run in runs if round_ % 2 else reversed(runs):
            taken = seconds(run, device)
            if round_ >= 0:
                times[name].append(taken)
    ours_ms, theirs_ms = (1000 * statistics.median(times[name]) for name in ("ours", "theirs"))
    return {"ours_ms": round(ours_ms, 2), "theirs_ms": round(theirs_ms, 2), "ratio": round(theirs_ms / ours_ms, 3)}


def measure(name: str, activation: str, device: torch.device, repeats: int) -> list[dict[str, object]]:
    size = SIZES[name]
    torch.manual_seed(0)
    ours, theirs = our_model(size).to(device), their_model(size, activation).to(device)
    copy_weights(ours, theirs)
    tokens = torch.randint(size["vocab_size"], (size["batch"], size["n"]), device=device)
    gap = abs(our_loss(ours, tokens) - their_loss(theirs, tokens)).item()
    if gap > 1e-4:
        raise SystemExit(f"{name}: the two models differ by {gap:.2g} in their loss, so their times cannot be compared")
    rows = []
    for job, make in (("forward", forward_pass), ("training step", training_step)):
        pair = (make(our_loss, ours, tokens), make(their_loss, theirs, tokens))
        rows.append({"size": name, "job": job, "their activation": activation, **side_by_side(*pair, device, repeats)})
        print(rows[-1], flush=True)
    return rows


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine(device: torch.device) -> dict[str, object]:
    return {"device": torch.cuda.get_device_name() if device.type == "cuda" else processor(), "threads": torch.get_num_threads(), "torch": torch.__version__, "python": platform.python_version()}


def table(report: dict[str, object]) -> str:
    columns = ["size", "job", "their activation", "ours_ms", "theirs_ms", "ratio"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in report["rows"]]
    about = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    gpu = "" if report["machine"]["device"] != processor() else " GPU: not measured on this machine."
    return "\n".join(lines) + f"\n\nMedians of {report['repeats']} alternating runs, float32; {about}.{gpu}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    device = torch.device(options.device)
    rows = [row for name in SIZES for activation in ACTIVATIONS for row in measure(name, activation, device, options.repeats)]
    report = {"machine": machine(device), "repeats": options.repeats, "sizes": SIZES, "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "speed.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (options.out / "speed.md").write_text(table(report), encoding="utf-8")
    print("\n" + table(report))


if __name__ == "__main__":
    main()
