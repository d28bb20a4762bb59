"""How long a run takes on this machine, estimated from a few steps, and how to fit a run to a given time. Written by hand."""

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from tlm_book.checks import expects, expects_numbers
from tlm_book.loss import shift
from tlm_book.training.config import Size, TrainConfig, recipe
from tlm_book.training.cost import flops_per_token
from tlm_book.training.logs import Entry
from tlm_book.training.recorded import StepTaker, library_for
from tlm_book.training.step import (
    corrupt_tokens,
    enable_checkpointing_and_compile,
    optimizer_for,
)
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

__all__ = ["USUAL_MINUTES", "Aim", "Pace", "aim_at", "duration", "fit_time", "outline", "pace_of", "step_seconds"]

USUAL_MINUTES = 10.0  # greatest length of a run without a GPU, unless something else is asked for
LEAST_STEPS = 1000  # a larger model is chosen only if there is time for this many
MEASUREMENTS = 12  # on the held-out text, at most this many
HELD_OUT_BYTES = 200_000  # of text, which are enough to measure on
BYTES_A_TOKEN = 2.5  # about
BEFORE, AFTER = 3e-6, 3e-6  # seconds for each byte of text, for making tokens and for counting tables
AT_THE_END = 2.0  # seconds for the report and a sample


@dataclass(frozen=True)
class Aim:
    """The time that a run is to take, or to take `at_most`, counted from `began` (on the clock `time.perf_counter`), and the device. ValueError
    unless the time is positive and finite.
    """

    minutes: float
    at_most: bool = False
    device: torch.device = torch.device("cpu")
    began: float = dataclasses.field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        expects(0 < self.minutes < math.inf, "minutes", self.minutes, "a number > 0")


def duration(seconds: float) -> str:
    """A duration in words.

    >>> [duration(s) for s in (12, 70, 500, 7000)]
    ['about 12 seconds', 'about 1 minute', 'about 8 minutes', 'about 1.9 hours']
    """
    if seconds < 59.5:
        number, unit = f"{max(1, round(seconds))}", "second"
    elif seconds < 90 * 60:
        number, unit = f"{round(seconds / 60)}", "minute"
    else:
        number, unit = f"{seconds / 3600:,.1f}", "hour"
    return f"about {number} {unit}{'' if number == '1' else 's'}"


def step_seconds(model_config: Config, config: TrainConfig, device: torch.device, patience: float = 3.0) -> float:
    """The seconds that a step takes on this device: the mean over as many steps as `patience` (in seconds) allows, without the first, unless that
    one alone takes ten times as long. Torch's random generator is left as it was.
    """
    took: list[float] = []
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        model = TransformerLM(model_config).to(device).train()
        enable_checkpointing_and_compile(model, config)
        take = StepTaker(model, optimizer_for(model, config), library_for(config, device))
        batch = torch.randint(model_config.vocab_size, (config.batch_size, model_config.max_len), device=device)
        while not took or (len(took) == 1 and took[0] < 10 * patience) or (1 < len(took) < 20 and sum(took[1:]) < patience):
            tick = time.perf_counter()
            take(corrupt_tokens(shift(batch), batch, config.token_noise), batch, config)
            took.append(time.perf_counter() - tick)
    return sum(took[1:] or took) / len(took[1:] or took)


def fit_time(
    n_bytes: int,
    aim: Aim,
    sizes: Sequence[Size],
    model_of: Callable[[Size], Config],
    usual: TrainConfig,
    choices: Mapping[str, Any],
    measure: Callable[[Config, TrainConfig, torch.device, float], float] = step_seconds,
) -> tuple[Size, TrainConfig, bool]:
    """(size, settings, whether they were fitted): the largest of the growing sizes that leaves time for a thousand steps, and as many steps as fit.

    If the time is only a bound and the usual settings of the last size keep within it, they are returned. The same text, time and measured
    seconds give the same result; `choices` are kept.
    """
    whole = 60 * aim.minutes
    left = max(whole / 2, whole - (BEFORE + AFTER) * n_bytes - AT_THE_END)
    own = {field.name: choices[field.name] for field in dataclasses.fields(TrainConfig) if field.name in choices}
    work = lambda size: size.batch_size * size.context * flops_per_token(model_of(size), size.context)
    chosen, seconds = sizes[0], math.inf
    for k, size in enumerate(sizes):
        hopeful = 0.6 * seconds * work(size) / work(chosen) if k else 0.0  # since larger products are more efficient
        if hopeful * LEAST_STEPS > left:
            break
        its = measure(model_of(size), recipe(size, **own), aim.device, min(3.0, whole / 200))
        if k and its * LEAST_STEPS > left:
            break
        chosen, seconds = size, its
    held_out = choices.get("validation", min(usual.validation, max(HELD_OUT_BYTES / n_bytes, 1e-3)))
    of_tokens = lambda size, share: 2 / 3 * share * n_bytes / BYTES_A_TOKEN / (size.batch_size * size.context)  # each is read twice, forwards only
    if aim.at_most and chosen == sizes[-1]:
        often = math.ceil(usual.steps / usual.eval_every)
        if seconds * (usual.steps + often * of_tokens(chosen, usual.validation)) <= left:
            return chosen, usual, False
    measured, steps = of_tokens(chosen, held_out), left / seconds
    often = min(MEASUREMENTS, max(2, int(0.15 * steps / measured)))
    n = max(2, int(max(steps - often * measured, steps / 2)))
    fitted = {"steps": n, "eval_every": math.ceil(n / often), "validation": held_out, "warmup": min(100, n // 10)}
    return dataclasses.replace(chosen, steps=n), recipe(chosen, **fitted | {name: value for name, value in own.items() if name != "steps"}), True


class Pace:
    """An observer, called after each step, that says how long the run will take, and says it again if the estimate was far off. If there is a time to
    keep, it gives the run more or fewer steps, so that the learning rate reaches its end when the time does.
    """

    WARM, ENOUGH = 2, 4  # numbers of steps: left out at first, counted before anything is said

    def __init__(self, aim: Aim | None, n_bytes: int, of_measurement: float, say: Callable[[str], None], clock: Callable[[], float] = time.perf_counter) -> None:
        """For `n_bytes` bytes of text; a measurement is taken to last as long as `of_measurement` steps until one has been timed."""
        self.aim, self.of_measurement, self.say, self.clock = aim, of_measurement, say, clock
        self.whole = 60 * aim.minutes if aim else math.inf
        self.until = aim.began + self.whole - min(AFTER * n_bytes + AT_THE_END, self.whole / 10) if aim else math.inf
        self.last = self.looked = clock()
        self.told: float | None = None  # when the run will be over, as announced
        self.steps_told = 0
        self.steps_done = 0
        self.sums = [0.0]  # seconds of all steps so far except the first ones, without measurements
        self.measured: list[float] = []  # seconds of each measurement
        self.after = False  # whether a measurement has just been made: the time of writing files then counts towards it

    def _count(self, entry: Entry) -> None:
        now = self.clock()
        took, self.last = now - self.last, now
        self.steps_done += 1
        usual = self.seconds_a_step
        if "held_out" in entry:
            self.measured.append(max(0.0, took - usual))
        elif self.after:
            self.measured[-1] += max(0.0, took - usual)
        elif self.steps_done > self.WARM:
            self.sums.append(self.sums[-1] + took)
        self.after = "held_out" in entry

    @property
    def seconds_a_step(self) -> float:
        """The mean time of a step, over the later half of the steps so far."""
        n = len(self.sums) - 1
        return (self.sums[n] - self.sums[n // 2]) / (n - n // 2) if n else 0.0

    @property
    def seconds_a_measurement(self) -> float:
        """The mean time of a measurement, or the time assumed as long as there was none."""
        return sum(self.measured) / len(self.measured) if self.measured else self.of_measurement * self.seconds_a_step

    def _to_go(self, done: int, config: TrainConfig) -> float:
        often = math.ceil(config.steps / config.eval_every) - done // config.eval_every
        return (config.steps - done) * self.seconds_a_step + often * self.seconds_a_measurement

    def __call__(self, log: Sequence[Entry], config: TrainConfig) -> TrainConfig | None:
        """Count the step; returns new settings if the run is to have more or fewer steps, else None."""
        self._count(log[-1])
        done, first = len(log), self.told is None
        if len(self.sums) <= self.ENOUGH or done >= config.steps:
            return None
        changed = None
        if first or self.last - self.looked > self.whole / 50 or (self.aim is None and self.last - self.looked > 10):
            self.looked = self.last
            if self.aim is not None and (steps := self._better(self.aim, done, config)) is not None:
                changed = dataclasses.replace(config, steps=steps, replanned=(*config.replanned, (done, config.steps)))
            self._tell(done, changed or config)
        return changed

    def _better(self, aim: Aim, done: int, config: TrainConfig) -> int | None:
        """The number of steps for which there is time; None if the run keeps to its time as it is."""
        late = self.last + self._to_go(done, config) - self.until
        tolerance = 0.1 if aim.at_most else 0.03
        most = math.inf if not aim.at_most else config.replanned[0][1] if config.replanned else config.steps
        if abs(late) <= tolerance * self.whole or (late < 0 and config.steps >= most):
            return None
        each = self.seconds_a_step + self.seconds_a_measurement / config.eval_every
        steps = int(min(most, max(done + 1, config.warmup, done + (self.until - self.last) / max(each, 1e-9))))
        return None if steps == config.steps else steps

    def _tell(self, done: int, config: TrainConfig) -> None:
        over = self.last + self._to_go(done, config)
        if self.told is None:
            self.say(f"time: {duration(over - self.last)} at {self.seconds_a_step:.2g} s a step")
        elif abs(over - self.told) > max(20.0, 0.25 * (over - self.last)) or abs(config.steps - self.steps_told) > 0.1 * self.steps_told:
            new = f", {config.steps:,} steps in all" if config.steps != self.steps_told else ""
            self.say(f"time: {duration(over - self.last)} more at {self.seconds_a_step:.2g} s a step{new}")
        else:
            return
        self.told, self.steps_told = over, config.steps


def aim_at(minutes: float | None, steps: bool, device: torch.device, began: float) -> Aim | None:
    """The time that a new run aims at, or None. ValueError for a time given with a number of steps, or given for a run that several processes share;
    TypeError for a time that is not a number."""
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if minutes is not None:
        expects_numbers(minutes=minutes)
        expects(not steps, "minutes", minutes, "none beside a number of steps")
        expects(alone, "minutes", minutes, "a number of steps, where several processes share the run")
        return Aim(minutes, False, device, began)
    return Aim(USUAL_MINUTES, True, device, began) if alone and not steps and device.type == "cpu" else None


def outline(config: TrainConfig, model_config: Config, n_known: int, n_held_out: int, minutes: float | None = None) -> str:
    """A text, shown before training starts, that says what will be trained on what."""
    c, tokens = model_config, config.steps * config.batch_size * model_config.max_len
    times = f"{tokens / n_known:.1f}" if tokens < 10 * n_known else f"{tokens / n_known:,.0f}"
    fitted = "" if minutes is None else f", fitted to {minutes:g} minute{'' if minutes == 1 else 's'} (another time: --minutes; a number of steps: --steps)"
    lines = [
        f"text: {n_known:,} tokens to train on, {n_held_out:,} held out",
        f"model: {count_parameters(c):,} weights: {c.n_layers} block{'' if c.n_layers == 1 else 's'} of width {c.d_model}, windows of {c.max_len} tokens out of {c.vocab_size:,}",
        f"run: {config.steps:,} steps of {config.batch_size} windows, which read the text {times} times over{fitted}",
    ]
    return "\n".join(lines)


def pace_of(
    config: TrainConfig,
    model_config: Config,
    n_known: int,
    n_held_out: int,
    progress: bool,
    aim: Aim | None = None,
    n_bytes: int = 0,
    minutes: float | None = None,
) -> Pace:
    """Print what is to be done, and return the observer that prints, during the run, how long it will take."""
    say: Callable[[str], None] = partial(tqdm.write, file=sys.stderr) if progress else lambda words: None
    say(outline(config, model_config, n_known, n_held_out, minutes))
    return Pace(aim, n_bytes, 2 / 3 * n_held_out / (config.batch_size * model_config.max_len), say)
