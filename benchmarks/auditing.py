"""The audit of a model with the sizes of GPT-2 small (random weights, 128 rows), and the sweep that it cannot do without.

    python benchmarks/auditing.py [--threads 2] [--rows 128]

Prints processor and wall time. The goal: a minute on two cores. Status 1 when the goal is missed or the verdict is wrong.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tlm_book.auditing import audit

GOAL = 60.0


def timed(run: Callable[[], object]) -> tuple[object, float, float]:
    """What it returns, and its processor and wall time in seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return result, time.process_time() - processor, time.perf_counter() - wall


@torch.no_grad()
def sweep(model: GPT2LMHeadModel, ids: torch.Tensor) -> None:
    """n − 1 sequences of n rows, two at a time: the least that decides every cut."""
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
    model = GPT2LMHeadModel(GPT2Config()).eval()
    ids = torch.randint(model.config.vocab_size, (2, options.rows))
    _, *least = timed(lambda: sweep(model, ids))
    report, *whole = timed(lambda: audit(model, ids))
    print(report)
    for name, (processor, wall) in (("sweep", least), ("audit", whole)):
        print(f"{name}: {processor:.1f} s of processor time, {wall:.1f} s on {options.threads} threads")
    return int(not report.ok or whole[1] > GOAL)


if __name__ == "__main__":
    sys.exit(main())
