"""One process or several: the device, the rank of this process, and how the model is distributed over all of them. Written by hand."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import distributed, nn

from tlm_book.checks import expects, expects_one_of
from tlm_book.transformer_lm import TransformerLM

__all__ = ["PARALLEL", "DistContext", "choose_device", "parallelize", "dist_context"]

PARALLEL = ("ddp", "fsdp")  # all weights on each device; each device its share


def choose_device(device: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one, else the CPU. ValueError for a device that this machine lacks."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device).item()  # refuses "meta", whose tensors hold no numbers
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:  # torch raises one or the other, depending on its build
        names = '"auto", "cpu" or "cuda"' if torch.cuda.is_available() else '"auto" or "cpu"'
        wants = f"a device of this machine, such as {names}"
        raise ValueError(f"device: got {device!r}, want {wants}") from error


@dataclass(frozen=True)
class DistContext:
    """The processes that share a run: which one this is, of how many, on which device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")

    def mean(self, number: float) -> float:
        """The mean of this number over all processes."""
        if self.world_size == 1:
            return number
        total = torch.tensor(number, dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        return total.item() / self.world_size

    def from_first(self, text: str) -> str:
        """This text as the first process has it."""
        if self.world_size == 1:
            return text
        texts = [text]
        distributed.broadcast_object_list(texts, src=0)
        return texts[0]

    def wait(self) -> None:
        """Wait until every process has reached this point."""
        if self.world_size > 1:
            distributed.barrier()


@contextlib.contextmanager
def dist_context(device: str) -> Iterator[DistContext]:
    """The processes that `torchrun` started, or this process alone. On GPUs they communicate through NCCL, otherwise through gloo.
    ValueError as in `choose_device`.
    """
    world_size, chosen = int(os.environ.get("WORLD_SIZE", "1")), choose_device(device)
    if world_size == 1:
        yield DistContext(device=chosen)
        return
    if chosen.type == "cuda":  # each process takes the GPU with its own number on this machine
        chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(chosen)
    distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield DistContext(distributed.get_rank(), world_size, chosen)
    finally:
        distributed.destroy_process_group()


def parallelize(model: TransformerLM, dist: DistContext, parallel: str) -> nn.Module:
    """The model as this process holds it: whole ("ddp") or its share of each block ("fsdp", from torch 2.6 on). ValueError for another choice."""
    expects_one_of("parallel", parallel, PARALLEL)
    if dist.world_size == 1:
        return model
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed import fsdp  # takes two seconds to import

    expects(hasattr(fsdp, "fully_shard"), "parallel", f"'fsdp' with torch {torch.__version__}", "torch 2.6 or newer")
    for block in model.blocks:
        fsdp.fully_shard(block)
    fsdp.fully_shard(model)  # changes the model in place, and returns it
    return model
