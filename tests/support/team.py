"""One process of a team, in double precision: `torchrun … team.py FOLDER PARALLEL LAST`. It stops after step LAST, if that is not 0.

`python team.py FOLDER PARALLEL LAST PROCESSES` is the whole team without torchrun: forked from one process, so that torch is imported once. With
`tied` at the end, the model has one matrix for both tables.
"""

import os
import sys
import traceback
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


def forked(processes: int, folder: Path, parallel: str, last: int, model: Config) -> None:
    """The processes that torchrun would start, with the environment and the common store that it would give them."""
    import torch._dynamo
    import torch.distributed.fsdp  # all of them need both

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    given = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
             "TORCHELASTIC_RESTART_COUNT": "0"}  # fmt: skip
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            os.environ.update(given, RANK=str(rank), LOCAL_RANK=str(rank))
            try:
                run(folder, parallel, last, model)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit("a process of the team failed")


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    folder, parallel, last, *more = sys.argv[1:]
    what = Path(folder), parallel, int(last), MODEL.replace(tied="tied" in more)
    if more and more[0].isdigit():
        forked(int(more[0]), *what)
    else:
        run(*what)
