"""Training the model of the small world, lesson by lesson; a run that was stopped goes on where it was. Written by hand.

    python -m tlm_book.small_world --out world --compile

The model that comes with the book was made so, in 90 minutes on two cores of an AMD EPYC, beside other work.
"""

import dataclasses
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tlm_book.checks import expects, expects_numbers, expects_positive, expects_whole
from tlm_book.files import free_folder, new_file
from tlm_book.loss import shift
from tlm_book.modes import evaluating
from tlm_book.onednn import quick_products
from tlm_book.small_world.judging import rightly_answered
from tlm_book.small_world.lessons import (
    COPY,
    LESSONS,
    Lesson,
    batch_of,
    copied,
    text_of,
)
from tlm_book.small_world.telling import Level, stories
from tlm_book.tokenization import Tokenizer
from tlm_book.training.config import TrainConfig
from tlm_book.training.distributed import DistContext, choose_device
from tlm_book.training.folder import save
from tlm_book.training.interrupts import stop_signal
from tlm_book.training.muon import Together, muon_for
from tlm_book.training.recorded import RecordedStep
from tlm_book.training.step import set_rate, train_step
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = ["SETTINGS", "RunSettings", "learn_world", "rate", "settings", "share_right", "world_tokenizer"]


class RunSettings(NamedTuple):
    """The settings that do not change from lesson to lesson.

    vocab_size, stories   the size of the tokenizer, and the number of stories from which it is learned
    tokens                the number of tokens that the model reads in all
    lr, lr_beside         the rates of Muon and of AdamW, reached after `warmup` steps; over the last share `cooling` of the tokens
                          they fall linearly to the fraction `lowest` of themselves
    every                 steps from one test on new stories to the next
    """

    vocab_size: int = 1792
    stories: int = 8000
    tokens: int = 54_000_000
    lr: float = 0.005
    lr_beside: float = 0.003
    warmup: int = 200
    cooling: float = 0.3
    lowest: float = 0.03
    seed: int = 0
    every: int = 200


SETTINGS = RunSettings()  # those of the model that comes with the book


def settings(vocab_size: int = SETTINGS.vocab_size) -> Config:
    """The model's settings: 0.96 million weights in eight blocks, with the choices that have become usual since Llama."""
    return Config(
        vocab_size, d_model=112, d_ff=200, n_layers=8, n_heads=4, max_len=352, activation="gelu", norm_kind="rms", eps=1e-5, eps_mode="inside",
        pe="rotary", qk_norm=True, tied=True, embed_scale=True, out_bias=False, unembed_bias=False, ff_bias=False,
    )  # fmt: skip


def world_tokenizer(vocab_size: int, count: int = SETTINGS.stories, seed: int = 0) -> Tokenizer:
    """A tokenizer learned from stories of all levels: nearly every word is one token."""
    return Tokenizer.train(stories(count, seed), vocab_size)


def rate(step: int, tokens: int, s: RunSettings) -> float:
    """The factor of the learning rates at this step, before which `tokens` tokens were read: it rises, stays at 1 and falls."""
    left = max(0, s.tokens - tokens) / (s.cooling * s.tokens)
    return min((step + 1) / s.warmup, 1.0, s.lowest + (1 - s.lowest) * left)


def share_right(kind: Level | str, model: TransformerLM, tokenizer: Tokenizer, count: int = 40) -> float:
    """The share of right answers in `count` new texts of this kind, or of right copies in 16 rows for COPY, whatever `count`; always the same ones.

    ValueError for a count below 1, for an unknown kind, and if none of the texts has a question within the model's context.
    """
    expects_positive(count=count)
    chance = random.Random("held out")
    if kind == COPY:
        found = _rightly_copied(model, tokenizer, chance)
    else:
        found = rightly_answered(model, tokenizer, [text_of(kind, chance) for _ in range(count)])
    expects(found, "kind", f"{kind!r}, without a question within the {model.config.max_len} tokens that the model reads", "texts with questions there")
    return sum(found) / len(found)


@torch.no_grad()
def _rightly_copied(model: TransformerLM, tokenizer: Tokenizer, chance: random.Random) -> list[bool]:
    rows = [copied(64, len(tokenizer), chance) for _ in range(16)]
    device = next(model.parameters()).device
    x, weights = (torch.tensor(part, device=device) for part in zip(*rows))
    with evaluating(model):
        hits = model(shift(x, tokenizer.start)).argmax(-1) == x
    return hits[weights > 0].tolist()


class _Batches(IterableDataset[tuple[Tensor, Tensor]]):
    """The batches of a lesson from a given step on; each of k workers makes every k-th batch."""

    def __init__(self, lesson: Lesson, tokenizer: Tokenizer, seed: int, step: int) -> None:
        self.lesson, self.tokenizer, self.seed, self.step = lesson, tokenizer, seed, step

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for step in count(self.step + first, stride):
            yield batch_of(self.lesson, self.tokenizer, self.seed, step)


class _Course:
    """The state of a run: everything that is kept when it is stopped and taken up again."""

    def __init__(self, s: RunSettings, lessons: Sequence[Lesson], config: Config | None, device: str, compile: bool) -> None:
        self.s, self.lessons = s, lessons
        self.tokenizer = world_tokenizer(s.vocab_size, s.stories, s.seed)
        torch.manual_seed(s.seed)
        self.model = TransformerLM(config or settings(len(self.tokenizer))).to(choose_device(device))
        self.trained = cast(nn.Module, torch.compile(self.model, dynamic=False)) if compile else self.model
        self.optimizer: Together = muon_for(self.model, s.lr, s.lr_beside)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.recorded: dict[torch.Size, RecordedStep] = {}
        self.batches: Iterator[tuple[Tensor, Tensor]] | None = None
        self.step, self.tokens, self.lesson, self.since, self.seconds = 0, 0, 0, 0, 0.0
        self.log: list[dict[str, Any]] = []
        rows = lessons[0].batch
        steps = max(s.warmup, s.tokens // (rows * lessons[0].context))
        self.train_config = TrainConfig(steps=steps, batch_size=rows, lr=s.lr, min_lr=s.lowest, warmup=s.warmup, weight_decay=0.0, seed=s.seed)

    _NUMBERS = ("step", "tokens", "lesson", "since", "seconds", "log")

    def asked_for(self) -> dict[str, Any]:
        """The settings that must be the same when a stopped run is taken up again."""
        return {**self.s._asdict(), "lessons": repr(tuple(self.lessons)), "config": dataclasses.asdict(self.model.config)}

    def keep(self, path: Path) -> None:
        numbers = {name: getattr(self, name) for name in self._NUMBERS}
        states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        with new_file(path) as part:
            torch.save({**numbers, "asked_for": self.asked_for(), **states}, part)

    def take_up(self, path: Path) -> None:
        kept = torch.load(path, weights_only=True, map_location=next(self.model.parameters()).device)
        asked_for = kept["asked_for"]
        asked_for["config"] = dataclasses.asdict(Config(**asked_for["config"]))  # what `Config` did not know then has its default
        for name, wanted in self.asked_for().items():
            expects((begun := asked_for[name]) == wanted, name, wanted, f"{begun}, with which {path} was begun; or another folder")
        self.model.load_state_dict(kept["model"])
        own: list[dict[str, Any]] = [{name: group[name] for name in ("lr", "capturable") if name in group} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(kept["optimizer"])
        for group, here in zip(self.optimizer.param_groups, own):
            group.update(here)  # what this device needs; the run may have begun on another
        for name in self._NUMBERS:
            setattr(self, name, kept[name])

    def advance(self) -> float | Tensor:
        """Take one step; returns its loss."""
        begun = time.perf_counter()
        tokens, weights = self.next_batch()
        read = shift(tokens, self.tokenizer.start)
        self.set_rates(rate(self.step, self.tokens, self.s))
        self.model.train()
        loss: float | Tensor
        if next(self.model.parameters()).is_cuda:
            if tokens.shape not in self.recorded:
                self.recorded[tokens.shape] = RecordedStep(self.model, self.optimizer, (tokens.shape[0], tokens.shape[1]), self.train_config)
            loss = self.recorded[tokens.shape](read, tokens, weights)[0]
        else:
            with quick_products(self.trained, "auto" if self.trained is self.model else "linear"):  # a compiled one is left alone
                loss, _ = train_step(self.trained, self.optimizer, read, tokens, self.train_config, weights)
        self.step, self.tokens = self.step + 1, self.tokens + tokens.numel()
        self.seconds += time.perf_counter() - begun
        return loss

    def set_rates(self, now: float) -> None:
        """Set each rate to the fraction `now` of itself."""
        for group, lr in zip(self.optimizer.param_groups, self.rates):
            set_rate(group, lr * now)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """The next batch of this lesson. A GPU need not wait for it: other processes make batches while it computes."""
        if self.batches is None:
            workers = min(8, (os.cpu_count() or 2) - 1) if next(self.model.parameters()).is_cuda else 0
            source = _Batches(self.lessons[self.lesson], self.tokenizer, self.s.seed, self.step)
            self.batches = iter(DataLoader(source, batch_size=None, num_workers=workers, prefetch_factor=8 if workers else None))
        tokens, weights = next(self.batches)
        return tokens, weights

    def look(self, loss: float) -> str:
        """Test the model on new rows of this lesson, the earlier ones and the next, and end the lesson if it is over; returns a line to print."""
        begun, lesson = time.perf_counter(), self.lessons[self.lesson]
        kinds = dict.fromkeys(one.kinds[-1] for one in self.lessons[: self.lesson + 2])
        right = {kind: share_right(kind, self.model, self.tokenizer) for kind in kinds}
        self.seconds += time.perf_counter() - begun
        self.log.append({"step": self.step, "tokens": self.tokens, "lesson": self.lesson, "loss": loss, "right": list(right.values()), "seconds": round(self.seconds)})
        said = f"step {self.step:6,}  {self.tokens / 1e6:5.2f} M tokens  lesson {self.lesson}  loss {loss:.3f}  right {' '.join(f'{r:.2f}' for r in right.values())}"
        if (right[lesson.kinds[-1]] >= lesson.enough or self.step - self.since >= lesson.most) and self.lesson + 1 < len(self.lessons):
            self.lesson, self.since, self.batches = self.lesson + 1, self.step, None
        return f"{said}  {self.seconds / 60:.1f} min"


def _expects_settings(s: RunSettings) -> None:
    """Check for counts of 1 or more, rates above 0, shares from 0 to 1, and a whole number as seed; ValueError or TypeError otherwise."""
    expects_positive(vocab_size=s.vocab_size, stories=s.stories, tokens=s.tokens, warmup=s.warmup, every=s.every)
    expects_numbers(lr=s.lr, lr_beside=s.lr_beside, cooling=s.cooling, lowest=s.lowest)
    expects_whole(seed=s.seed)
    for name, rate_ in (("lr", s.lr), ("lr_beside", s.lr_beside)):
        expects(0 < rate_ < math.inf, name, rate_, "a finite number > 0")
    expects(0 < s.cooling <= 1, "cooling", s.cooling, "a share above 0, at most 1")
    expects(0 <= s.lowest <= 1, "lowest", s.lowest, "a share from 0 to 1")


def learn_world(
    out: str | os.PathLike[str],
    s: RunSettings = SETTINGS,
    lessons: Sequence[Lesson] = LESSONS,
    config: Config | None = None,
    progress: bool = True,
    device: str = "cpu",
    compile: bool = False,
) -> Path:
    """Train the model of the small world and write it to the folder `out`, which does not exist yet.

    It seeds torch's random generator. While it trains, the file `out`.state beside the folder holds the state; if it exists, the run goes on from there. Ctrl-C keeps it.
    If `config` is None, it is `settings` for the size of the tokenizer. On a GPU each lesson's step is recorded once (`RecordedStep`) and `compile`
    has no effect; on a CPU, `compile` compiles the step by torch.compile, which needs a C++ compiler. FileExistsError if the folder exists,
    ValueError for settings out of range, for no lessons, for a lesson whose rows are longer than the model reads, and for a run that was begun
    with other settings.
    """
    _expects_settings(s)
    expects(len(lessons) > 0, "lessons", "none", "at least one")
    out = free_folder(out, "out")
    course, kept = _Course(s, lessons, config, device, compile), out.with_name(out.name + ".state")
    longest, fits = max(lesson.context for lesson in lessons), course.model.config.max_len
    expects(longest <= fits, "lessons", f"rows of {longest} tokens", f"rows of at most {fits}, the model's max_len")
    if kept.exists():
        course.take_up(kept)
    out.parent.mkdir(parents=True, exist_ok=True)  # before the first step, not after two hundred
    with stop_signal(DistContext()) as stopped:
        while course.tokens < s.tokens:
            loss = course.advance()
            if course.step % s.every == 0 or course.tokens >= s.tokens:
                said = course.look(float(loss))
                course.keep(kept)
                if progress:
                    print(said, flush=True)
            if stopped():
                course.keep(kept)
                raise KeyboardInterrupt
    save(course.model.eval().cpu(), out, course.tokenizer, config=course.train_config, log=course.log)
    kept.unlink(missing_ok=True)
    return out
