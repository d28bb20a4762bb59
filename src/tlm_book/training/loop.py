"""The run: one step after another, measured, kept, and resumed. Generated from book/training.ipynb: edit the notebook, then `make export`."""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn
from tqdm import tqdm

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_positive,
    expects_text,
    expects_tokens,
    expects_whole,
)
from tlm_book.files import checked_path
from tlm_book.loss import shift, token_log_probs
from tlm_book.modes import evaluating
from tlm_book.training.checkpoint import (
    InMemory,
    OnDisk,
    text_notes,
    with_library,
)
from tlm_book.training.config import TrainConfig
from tlm_book.training.curves import CurvesInFile, CurvesInNotebook, Observer
from tlm_book.training.distributed import DistContext, choose_device, parallelize
from tlm_book.training.folder import with_weights
from tlm_book.training.interrupts import stop_signal
from tlm_book.training.recorded import StepTaker, library_for
from tlm_book.training.step import (
    corrupt_tokens,
    enable_checkpointing_and_compile,
    learning_rate,
    optimizer_for,
    sample_batch,
    set_rate,
    train_step,
)
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = [
    "evaluate",
    "Diverged",
    "step_seed",
    "iter_steps",
    "Result",
    "due",
    "train",
]


# --- The loss on held-out text


@torch.no_grad()
def evaluate(
    model: nn.Module,
    tokens: Int[Tensor, "N"],
    n: int,
    start: int,
    batch_size: int = 32,
    context: int = 0,
) -> float:
    """The mean of −y over all tokens, in nats, for the text cut into windows of n
    tokens.

    Each window begins with the last `context` tokens of the one before it, which are
    not judged again. In a window the model reads (start, x_0, …, x_{n−2}) and is
    judged on (x_0, …, x_{n−1}). The last window may be shorter. The model is in
    evaluation mode during the call and in its former mode afterwards. ValueError
    without tokens, for several rows of them, and for a context that fills the window.
    """
    expects_text("tokens", tokens)
    expects_positive(n=n, batch_size=batch_size)
    expects(len(tokens) >= 1, "tokens", "no tokens", "at least 1")
    expects(0 <= context < n, "context", context, f"from 0 to n − 1 = {n - 1}")
    device = next(model.parameters()).device
    fresh = n - context  # tokens that each window adds
    whole = tokens.unfold(0, n, fresh) if len(tokens) >= n else tokens[:0].view(0, n)
    batches = list(whole.split(batch_size)) if len(whole) else []
    rest = tokens[len(whole) * fresh :]
    if len(rest) > context or not batches:
        batches.append(rest[None])
    total = 0.0
    with evaluating(model):
        for k, x in enumerate(x.long().to(device) for x in batches):
            y = token_log_probs(model(shift(x, start)), x).double()
            # the very first window has no context
            total -= y[:, context:].sum().item() + (
                y[0, :context].sum().item() if k == 0 else 0
            )
    return total / len(tokens)


# --- The whole run


class Diverged(ValueError):
    """A loss or a gradient is not finite at `step`; `result` is what `train` had until
    then, if anything. `what` says which, with its value. (T-diverged)
    """

    def __init__(self, what: str, n: int, config: TrainConfig, step: int) -> None:
        c, self.step = config, step
        self.result: Result | None = None
        batch = f"sample_batch(tokens, {n}, {c.batch_size}, {c.seed}, {step})"
        super().__init__(
            f"{what} at step {step}, batch {batch}; want finite numbers; try a smaller lr"
        )


def step_seed(seed: int, step: int, stream: int = 0) -> int:
    """A seed for torch's generator in this step; each stream has a seed of its own."""
    return int(
        np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0]
    )


def iter_steps(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: Int[Tensor, "N"],
    n: int,
    start: int,
    config: TrainConfig,
    *,
    first: int = 0,
    rank: int = 0,
    world_size: int = 1,
    take: StepTaker | None = None,
) -> Iterator[dict[str, int | float]]:
    """The log entries of steps first, first + 1, … of the run; each step is done when
    its entry is asked for. Seeds torch's generator.

    If `world_size` processes share the work, number `rank` does its share of each
    batch. `take` takes the steps: `train_step` unless it is given. Raises `Diverged`,
    before the update, if the loss or its gradient is not finite; ValueError if the
    processes cannot share the batch equally.
    """
    b, R = config.batch_size, world_size
    expects(b % R == 0, "batch_size", b, f"a multiple of the {R} processes")
    device = next(model.parameters()).device
    step_of = take or partial(train_step, model, optimizer)
    for step in range(first, config.steps):
        for group in optimizer.param_groups:
            set_rate(group, learning_rate(step, config))
        batch = sample_batch(tokens, n, config.batch_size, config.seed, step)
        batch = batch.long().to(device)
        torch.manual_seed(step_seed(config.seed, step))
        read = corrupt_tokens(shift(batch, start), batch, config.token_noise)
        mine = torch.arange(len(batch)).chunk(world_size)[rank]
        torch.manual_seed(step_seed(config.seed, step, 1 + rank))  # of dropout
        loss, grad_norm = step_of(read[mine], batch[mine], config)
        if not math.isfinite(loss + grad_norm):
            what = f"loss: got {loss} with a gradient of norm {grad_norm}"
            raise Diverged(what, n, config, step)
        yield {"step": step + 1, "lr": learning_rate(step, config), "loss": loss}


@dataclass(frozen=True)
class Result:
    """What `train` returns: the model with its best weights, in evaluation mode; the
    log, one dict for each step; the seconds that the steps took; how many steps had been
    done before; and the library for products, where there was a choice.
    """

    model: TransformerLM = field(repr=False)
    log: list[dict[str, int | float]] = field(repr=False)
    seconds: float
    resumed: int = 0
    products: str = "linear"

    @property
    def held_out(self) -> dict[int, float]:
        """{updates done: loss on the held-out text}."""
        return {
            int(entry["step"]): entry["held_out"]
            for entry in self.log
            if "held_out" in entry
        }

    @property
    def best(self) -> tuple[int, float]:
        """(updates done, loss on the held-out text) of the weights that were kept."""
        return min(self.held_out.items(), key=lambda item: item[1])


def due(step: int, config: TrainConfig) -> bool:
    """Whether the held-out loss is measured after this many updates: it is after every
    `eval_every` updates, and at the end.
    """
    return step % config.eval_every == 0 or step == config.steps


def _keeper(
    folder: str | os.PathLike[str] | None,
    keep: int,
    run: dict[str, dict[str, Any]],
    dist: DistContext,
) -> InMemory | OnDisk:
    """Where the run keeps its states; errors as in `train`."""
    b, R = run["training"]["batch_size"], dist.world_size
    expects(b % R == 0, "batch_size", b, f"a multiple of the {R} processes")
    if folder is not None:
        return OnDisk(checked_path(folder, "folder"), run, dist, keep)
    expects(R == 1, "folder", folder, f"one through which {R} processes share a run")
    return InMemory()


def _seen(
    observers: Sequence[Observer],
    log: list[dict[str, int | float]],
    config: TrainConfig,
) -> TrainConfig:
    """The settings when all observers have seen the log: theirs, if one has others."""
    for observer in observers:
        if (revised := observer(log, config)) is not None:
            config = replace(revised, products=config.products)
    return config


def _expects_long(
    argument: str, tokens: Int[Tensor, "N"], least: int, name: str | None = None
) -> None:
    """Check that this is one text of so many tokens at least."""
    expects_text(argument, tokens)
    long, got = len(tokens) >= least, f"{len(tokens) or 'no'} tokens"
    expects(long, argument, got, f"at least {f'{name} = ' if name else ''}{least}")


def _expects_start(start: int, vocab_size: int) -> None:
    """Check that the start marker is a token."""
    expects_whole(start=start)
    wants = f"a token from 0 to {vocab_size - 1}"
    expects(0 <= start < vocab_size, "start", start, wants, IndexError)


def train(
    config: TrainConfig,
    model_config: Config,
    train_tokens: Int[Tensor, "N"],
    validation_tokens: Int[Tensor, "K"],
    *,
    start: int = 0,
    device: str = "auto",
    progress: bool = True,
    watch: Callable[[int, Any], None] | None = None,
    folder: str | os.PathLike[str] | None = None,
    keep: int = 3,
    dist: DistContext | None = None,
    parallel: str = "ddp",
    plot: bool | str | os.PathLike[str] = False,
    observers: Sequence[Observer] = (),
) -> Result:
    """A `Result`, whose `.model` is a new model, trained on windows of max_len tokens,
    with the weights that were best on the held-out tokens. (T-reproducible, T-resume,
    T-data-parallel)

    From files of text to a model in a folder: `train_files`.

    `start` is the start marker that every window begins with, and n // 2 is the
    context with which `evaluate` measures the held-out loss; `watch(step, model)`
    is called after each measurement. With a `folder`, each measurement writes a
    checkpoint there, of which the last `keep` and the best stay, and a run that was
    interrupted continues from the last one. `dist`, from `dist_context`, says which of
    several processes this is, and on which device; each holds the whole model ("ddp")
    or its share ("fsdp"). `plot` draws the curves as they grow, below a notebook's
    cell, or into the SVG file that it names. Each of the `observers` is called after
    every step as `observer(log, config)`; if it returns settings with another number of
    steps, the run continues with these. The same arguments give the same weights on the
    same CPU, with the same library for products (in a folder a run keeps its own).
    No global state is changed: torch's random generators are as before. But they are in
    use meanwhile, by all threads of a process: train in one of them at a time.

    ValueError if a text is shorter than one window (train) or empty (validation), for
    keep below 1, and for a checkpoint that is broken or belongs to another run; OSError if one cannot
    be written; FileExistsError for a folder in which another process is training, or
    with a log that would be lost; KeyboardInterrupt, after a whole step, for Ctrl-C:
    with a folder, that step has a checkpoint. `Diverged`, also a ValueError, if the
    loss is no longer finite: its `.result` holds the best weights until then. Existing
    checkpoints stay. IndexError for a token outside the vocabulary; those of the
    training text are looked at only when they are drawn.
    """
    expects_kind("config", config, TrainConfig, "a TrainConfig")
    expects_kind("model_config", model_config, Config, "a Config")
    _expects_long("train_tokens", train_tokens, model_config.max_len, "max_len")
    _expects_long("validation_tokens", validation_tokens, 1)
    _expects_start(start, model_config.vocab_size)
    expects_tokens("validation_tokens", validation_tokens, model_config.vocab_size)
    expects_positive(keep=keep)
    wants = "a function of step and model"
    expects(watch is None or callable(watch), "watch", repr(watch), wants, TypeError)
    dist = dist or DistContext(device=choose_device(device))
    n, seconds = model_config.max_len, 0.0
    run = {
        "model": dataclasses.asdict(model_config),
        "training": dataclasses.asdict(config),
        "text": {**text_notes(train_tokens, validation_tokens), "start": start},
    }
    generators = torch.random.fork_rng(devices=range(torch.cuda.device_count()))
    keeper = _keeper(folder, keep, run, dist)
    with contextlib.ExitStack() as stack:
        stack.enter_context(keeper.alone())
        stack.enter_context(contextlib.closing(keeper))
        stack.enter_context(generators)
        config = keeper.revise(with_library(config, folder, dist))
        asked_to_stop = stack.enter_context(stop_signal(dist))
        torch.manual_seed(config.seed)  # of the initial weights
        whole = TransformerLM(model_config).to(dist.device).train()
        enable_checkpointing_and_compile(whole, config)
        model = parallelize(whole, dist, parallel)
        optimizer = optimizer_for(model, config)
        log = keeper.begin(model, optimizer)
        resumed, library = len(log), library_for(config, dist.device)
        take = StepTaker(model, optimizer, library)
        steps = partial(iter_steps, model, optimizer, train_tokens, n, start, take=take)
        steps_from = partial(steps, rank=dist.rank, world_size=dist.world_size)
        test = partial(evaluate, model, validation_tokens, n, start, context=n // 2)

        def result() -> Result:
            best = with_weights(model_config, keeper.best()).to(dist.device)
            return Result(best, log, seconds, resumed, library)

        if plot and dist.rank == 0:
            draw = CurvesInNotebook() if plot is True else CurvesInFile(plot)
            observers = [*observers, draw]
        entries = steps_from(config, first=resumed)
        bar = tqdm(initial=resumed, total=config.steps, disable=not progress, unit="step")
        stack.enter_context(bar)
        tick = time.perf_counter()
        try:
            while (entry := next(entries, None)) is not None:
                seconds += time.perf_counter() - tick
                bar.update()
                entry["loss"] = dist.mean(entry["loss"])
                log.append(entry)
                measured = due(len(log), config)
                if measured:
                    loss = take.beside(test)
                    if not math.isfinite(loss):
                        what = f"loss on the held-out text: got {loss}"
                        raise Diverged(what, n, config, len(log) - 1)
                    entry["held_out"] = loss
                    bar.set_postfix_str(f"loss {entry['loss']:.3f}, held out {loss:.3f}")
                if (revised := _seen(observers, log, config)) is not config:
                    config = keeper.revise(revised)
                    bar.total = config.steps
                    entries = steps_from(config, first=len(log))
                if measured:
                    keeper.keep(model, optimizer)
                    if watch:
                        watch(len(log), model)
                if asked_to_stop():
                    keeper.stop(model, optimizer)
                tick = time.perf_counter()
        except Diverged as error:
            error.result = result() if keeper.best() else None
            raise
        return result()
