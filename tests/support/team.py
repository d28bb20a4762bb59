"""One process of a team, in double precision: `torchrun … team.py FOLDER PARALLEL LAST`. It stops after step LAST, if that is not 0."""

import sys
from pathlib import Path

import torch

from tlm_book.training import TrainConfig, dist_context, train
from tlm_book.transformer_lm import Config

MODEL = Config(50, d_model=16, d_ff=32, n_layers=2, n_heads=2, max_len=8, pe="learned")  # without dropout: each process drops by itself
TRAIN = TrainConfig(steps=8, warmup=2, batch_size=6, eval_every=2, token_noise=0.2, clip=0.5, grad_accum_steps=2)


def run(folder: Path, parallel: str = "ddp", last: int = 0, model: Config = MODEL) -> list[dict[str, float]]:
    """The run in this folder, begun or taken up, until after step `last`; its log."""
    tokens = torch.randint(0, 50, (400,), generator=torch.Generator().manual_seed(0)) // 3

    def watch(step: int, model: torch.nn.Module) -> None:
        if step == last:
            raise StopIteration

    try:
        with dist_context("cpu") as dist:
            return train(TRAIN, model, tokens[:300], tokens[300:], progress=False, folder=folder, dist=dist, parallel=parallel, watch=watch, keep=9).log
    except StopIteration:
        return []


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), MODEL.replace(tied="tied" in sys.argv[4:]))
