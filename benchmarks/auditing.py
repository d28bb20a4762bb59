"""The audit of models from a large library, with random weights: two layers of width 32, and the sizes of GPT-2 small with 128 rows; beside it the
sweep of replaced rows that would decide every cut.

    python benchmarks/auditing.py [--threads 2] [--rows 128]

Prints processor and wall time. The goals on two cores: 2 s and 20 s. Status 1 when one is missed or a verdict is wrong.
"""

import argparse
import sys
import warnings

import torch
from harness import timed
from transformers import GPT2Config, GPT2LMHeadModel

from tlm_book.auditing import Report, audit

GOALS = {"two layers": 2.0, "GPT-2 small": 20.0}  # seconds by the clock, on two cores


@torch.no_grad()
def sweep(model: GPT2LMHeadModel, ids: torch.Tensor) -> None:
    """n − 1 sequences of n rows, two at a time."""
    for _ in range(0, ids.shape[1] - 1, 2):
        model(ids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=128)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    small = GPT2Config(vocab_size=1000, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
    missed = False
    for name, config, n in (("two layers", small, 16), ("GPT-2 small", GPT2Config(), options.rows)):
        model = GPT2LMHeadModel(config).eval()
        ids = torch.randint(model.config.vocab_size, (2, n))
        reports: list[Report] = []
        least = timed(lambda model=model, ids=ids: sweep(model, ids))
        whole = timed(lambda model=model, ids=ids, reports=reports: reports.append(audit(model, ids)))
        print(*reports)
        for what, (wall, processor) in (("sweep", least), ("audit", whole)):
            print(f"{name}, n = {n}, {what}: {processor:.1f} s of processor time, {wall:.1f} s on {options.threads} threads")
        missed |= not reports[0].ok or whole[0] > GOALS[name]
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
