"""How the loss of small models falls with their weights and their tokens, and how the best learning rate moves with their width.

    OMP_NUM_THREADS=1 python benchmarks/laws.py        # about ten minutes of one core; what is done is kept in _build/laws.jsonl
    python benchmarks/laws.py --write                  # measures nothing

Three groups of runs, all on prose from documentation, character by character, each character seen at most once:
"rate": four widths, up to seven rates, the ordinary parametrization and the maximal update parametrization;
"law": five sizes from six thousand to two hundred thousand weights, four amounts of text, three seeds at the ends (the largest with a quarter of the text);
"next": a larger model on more text than any of these, to compare with what they predict.
The chapter on scaling reads what this writes, src/tlm_book/data/laws.json.
"""

import argparse
import json
import math
from typing import Any

import harness
import torch
from small_runs import (
    KEPT,
    ROOT,
    Text,
    held_out,
    keep,
    learned,
    once,
    pending,
    rows,
    trapezium,
)
from torch import nn

from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

PACKAGES = ("numpy", "matplotlib", "networkx", "xarray", "sympy")
FILE, OUT = KEPT / "laws.jsonl", ROOT / "src/tlm_book/data/laws.json"
WINDOW, BATCH, BASE = 64, 8, 32  # BASE: the width at which both parametrizations are the same
SIZES = ((16, 1), (24, 2), (32, 3), (48, 3), (64, 4))  # width, blocks
NEXT = (96, 4)
TOKENS = (64_000, 128_000, 256_000, 512_000)
NEXT_TOKENS = 1_024_000
RATES = tuple(2.0**-k for k in range(10, 3, -1))
WIDTHS = (32, 64, 128, 256)
RATE_TOKENS = 51_200
JUDGED = 48_000  # characters
BEST = 2.0**-7  # for the runs of the law, at BASE


def config(width: int, blocks: int, vocab_size: int) -> Config:
    """Rotary, RMS norm, heads of eight entries or more: nothing in it depends on the width but the width."""
    heads = max(2, width // 16)
    return Config(
        vocab_size, d_model=width, d_ff=4 * width, n_layers=blocks, n_heads=heads, max_len=WINDOW, activation="gelu", norm_kind="rms", eps=1e-5,
        eps_mode="inside", pe="rotary", out_bias=False, unembed_bias=False, ff_bias=False,
    )  # fmt: skip


def parametrized(model: TransformerLM, lr: float, maximal: bool) -> torch.optim.AdamW:
    """Draws the first weights anew and gives each matrix its rate.

    Ordinary: a matrix with m inputs begins with standard deviation 1/√m, and all weights share one rate. Maximal update (Yang and others, 2022,
    table 3): the unembedding begins as √BASE/m, and the rate of matrices, but not of the embedding and the vectors, is multiplied by BASE/width.
    """
    matrices, others = [], []
    for name, w in model.named_parameters():
        (matrices if w.dim() == 2 and "embedding.table" not in name else others).append(w)
        if w.dim() == 2:
            m = w.shape[1]
            std = math.sqrt(BASE) / m if maximal and name.startswith("unembedding") else 1 / math.sqrt(m)
            nn.init.normal_(w, std=0.02 if "embedding.table" in name else std)
    scale = BASE / model.config.d_model if maximal else 1.0
    groups = [{"params": matrices, "lr": lr * scale}, {"params": others, "lr": lr}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0.0, fused=True)


def run(job: dict[str, Any], text: Text) -> dict[str, Any]:
    torch.manual_seed(job["seed"])
    model = TransformerLM(config(job["width"], job["blocks"], text.vocab_size))
    optimizer = parametrized(model, job["rate"], job["parametrization"] == "maximal update")
    steps = round(job["tokens"] / (BATCH * WINDOW))
    cooling = 0.4 if job["group"] != "rate" else 0.2
    batches = once(text.learn, WINDOW, BATCH, job["seed"])
    found = learned(model, optimizer, batches, steps, trapezium(steps, max(1, steps // 10), cooling))
    return {"weights": count_parameters(model.config), "held_out": held_out(model, text.judge[:JUDGED]), **found}


def jobs() -> list[dict[str, Any]]:
    def job(group: str, width: int, blocks: int, tokens: int, rate: float, parametrization: str, seed: int) -> dict[str, Any]:
        return {"group": group, "width": width, "blocks": blocks, "tokens": tokens, "rate": rate, "parametrization": parametrization, "seed": seed}

    both = ("ordinary", "maximal update")
    rates = lambda d, kind: RATES if d < WIDTHS[-1] else RATES[:3] if kind == "ordinary" else RATES[2:5]  # around the best, where runs are costly
    narrow, wide = ([job("rate", d, 2, RATE_TOKENS, lr, kind, 0) for d in some for kind in both for lr in rates(d, kind)] for some in (WIDTHS[:3], WIDTHS[3:]))
    again = [job("rate", WIDTHS[1], 2, RATE_TOKENS, lr, kind, 1) for kind in both for lr in RATES[1:5]]
    law = lambda sizes, tokens, seeds: [job("law", d, L, D, BEST, "maximal update", seed) for seed in seeds for d, L in sizes for D in tokens]
    ends = law(SIZES[:1], TOKENS[1::2], (1, 2)) + law(SIZES[-1:], TOKENS[1:2], (1, 2))
    return narrow + law(SIZES, TOKENS, [0]) + [job("next", *NEXT, NEXT_TOKENS, BEST, "maximal update", 0)] + ends + wide + again


def write(text: Text) -> None:
    """Writes what has been kept so far into the file that the chapter reads."""
    done = [row for row in rows(FILE) if row["job"] in jobs()]
    runs = [{**row["job"], "weights": row["weights"], "held_out": row["held_out"]} for row in done]
    command = "OMP_NUM_THREADS=1 python benchmarks/laws.py"
    lines = ",\n  ".join(json.dumps(run) for run in sorted(runs, key=lambda run: [str(value).zfill(9) for value in list(run.values())[:7]]))
    head = json.dumps({"command": command, "machine": harness.torch_machine(), "text": text.facts(), "window": WINDOW, "batch": BATCH, "judged": JUDGED}, indent=1)
    OUT.write_text(f"{head[:-2]},\n \"processor_s\": {sum(row['processor_s'] for row in done):.0f},\n \"runs\": [\n  {lines}\n ]\n}}\n", encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--write", action="store_true", help="measure nothing: write the file from the runs that are kept")
    torch.set_num_threads(1)
    text = Text.of(PACKAGES)
    if not options.parse_args().write:
        for job in pending(FILE, jobs()):
            keep(FILE, job, run(dict(job), text))
    write(text)


if __name__ == "__main__":
    main()
