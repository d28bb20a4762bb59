"""From text to a saved model: the whole job, in memory or resumable, and its report. Written by hand."""

import contextlib
import dataclasses
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor
from tqdm import tqdm

from tlm_book.checks import expects, expects_kind, expects_one_of, expects_several
from tlm_book.files import checked_path, clear_parts, free_folder, held, new_file
from tlm_book.tokenization import GPT2_PATTERN, PATTERN, Tokenizer, documents
from tlm_book.training.checkpoint import BEGIN, as_replanned, checkpoints
from tlm_book.training.config import Size, TrainConfig, essays_model, model_for, plan
from tlm_book.training.cost import flops_per_token, peak_matmul_flops
from tlm_book.training.curves import CURVES
from tlm_book.training.data import (
    TOKENIZER_TEXT,
    encode_corpus,
    is_held_out,
    learn_tokenizer,
    read_tokens,
    split_documents,
    write_tokens,
)
from tlm_book.training.distributed import (
    PARALLEL,
    DistContext,
    choose_device,
    dist_context,
)
from tlm_book.training.folder import TOKENIZER, save, tokenizer_in
from tlm_book.training.job import (
    JOB,
    STATE,
    Begin,
    Job,
    begin_with,
    begun_with,
    carry_over,
    further,
    has_same_text,
    left_behind,
    new_job,
    read_job,
)
from tlm_book.training.logs import BOARD, board_writer
from tlm_book.training.loop import Result, train
from tlm_book.training.ngrams import bigram, trigram, unigram
from tlm_book.training.pace import Aim, aim_at, pace_of
from tlm_book.training.text import (
    Paths,
    read_text,
    split_text,
    stream_documents,
)
from tlm_book.transformer_lm import Config

__all__ = ["RunReport", "prepare", "report", "run_folder", "train_and_save", "train_book", "train_files", "train_from_file"]


@dataclass(frozen=True)
class RunReport:
    """The results of a training run; `str(report)` is the summary that the command prints."""

    folder: Path
    documents: int
    train_tokens: int
    held_out_tokens: int
    held_out_bytes: int
    parameters: int
    steps: int
    best_step: int
    loss: float
    trigram: float
    bigram: float
    unigram: float
    tokens_per_second: float
    mfu: float
    n_files: int | None = None  # text files; None: the text came from memory, or is gone
    held_out_characters: int | None = None  # None: the run was begun before they were counted

    def bits_per_byte(self, loss: float) -> float:
        """A loss on this run's held-out text, in bits per byte."""
        return loss * self.held_out_tokens / (self.held_out_bytes * math.log(2))

    def bits_per_character(self, loss: float) -> float:
        """A loss on this run's held-out text, in bits per character; ValueError if the characters were not counted."""
        expects(self.held_out_characters, "held_out_characters", self.held_out_characters, "their number")
        return self.bits_per_byte(loss) * self.held_out_bytes / (self.held_out_characters or 1)

    def __str__(self) -> str:
        rows = {
            f"this model, {self.parameters:,} weights": self.loss,
            "trigram (Kneser–Ney)": self.trigram,
            "bigram": self.bigram,
            "unigram": self.unigram,
        }
        lines = [
            f"text: {self.documents} documents; {self.train_tokens:,} tokens to train on, {self.held_out_tokens:,} held out",
            *self._cut(),
            f"weights: after {self.best_step} of {self.steps} steps, where the loss on the held-out text was lowest",
            f"{'loss on the held-out text':40}  nats per token  bits per byte" + ("  per character" if self.held_out_characters else ""),
            *(f"  {name:38}  {loss:14.3f}  {self.bits_per_byte(loss):13.3f}{self._of_characters(loss)}" for name, loss in rows.items()),
            f"speed: {self.tokens_per_second:,.0f} tokens per second, {100 * self.mfu:.0f} % of what products of large matrices reach here",
            f"files: {self.folder}{os.sep}config.json, model.safetensors, tokenizer.json, log.jsonl, log.csv"
            + "".join(f", {name}" for name in (JOB, STATE, CURVES) if (self.folder / name).exists()),
        ]
        better = [name for name, loss in list(rows.items())[1:] if self.loss >= loss]
        if better:
            note = f"note: the {better[0]} model is as good or better; more text or more steps may help"
            lines.insert(-2, note)
        return "\n".join(lines)

    def _of_characters(self, loss: float) -> str:
        return f"  {self.bits_per_character(loss):13.3f}" if self.held_out_characters else ""

    def _cut(self) -> list[str]:
        """Why there are more documents than files, in a list with one line; an empty list if there are not."""
        if self.n_files is None or self.n_files == self.documents:
            return []
        files = "one file" if self.n_files == 1 else f"{self.n_files} files"
        return [f"      ({files}, cut into documents at <|endoftext|> or form feeds where there are any, else between paragraphs, long ones at line ends)"]


COUNTED = 20_000_000  # the tables count at most this many tokens


def report(
    folder: Path,
    result: Result,
    config: TrainConfig,
    known: Int[Tensor, "N"],
    held_out: Int[Tensor, "K"],
    start: int,
    *,
    documents: int,
    held_out_bytes: int,
    held_out_characters: int | None = None,
    n_files: int | None = None,
) -> RunReport:
    """The report of a run, with its rivals on the same split and its speed. Keywords: the fields of `RunReport` that are counted in the text."""
    c, (step, loss) = result.model.config, result.best
    device, text = next(result.model.parameters()).device, known[:COUNTED]
    read = (len(result.log) - result.resumed) * config.batch_size * c.max_len
    speed = read / max(result.seconds, 1e-9)
    return RunReport(
        folder=folder,
        documents=documents,
        train_tokens=len(known),
        held_out_tokens=len(held_out),
        held_out_bytes=held_out_bytes,
        parameters=sum(p.numel() for p in result.model.parameters()),
        steps=config.steps,
        best_step=step,
        loss=loss,
        trigram=trigram(text, held_out, c.vocab_size, start),
        bigram=bigram(text, held_out, c.vocab_size, start),
        unigram=unigram(text, held_out, c.vocab_size),
        tokens_per_second=speed,
        mfu=speed * flops_per_token(c, c.max_len) / peak_matmul_flops(device, config.dtype),
        n_files=n_files,
        held_out_characters=held_out_characters,
    )


# In memory


def train_and_save(
    texts: Sequence[str],
    out: str | os.PathLike[str],
    size: Size,
    config: TrainConfig,
    *,
    device: str = "auto",
    progress: bool = True,
    model_of: Callable[[Size, int], Config] = model_for,
) -> RunReport:
    """The whole job: split, tokenizer, model, training, files. The tokenizer, too, learns from the training part alone.

    Errors as in `train` and `save`; the folder `out` must not exist.
    """
    # fails now, and not at the end, if the place cannot be written to
    free_folder(out, "out").parent.mkdir(parents=True, exist_ok=True)
    choose_device(device)
    model_of(size, size.vocab_size)  # raises for wrong sizes before the work begins
    train_texts, held_out_texts = split_documents(texts, config.validation, config.seed)
    tokenizer = learn_tokenizer(train_texts, size.vocab_size, config.seed)
    reading = tqdm(train_texts, desc="tokens", unit="document", disable=not progress, leave=False)
    known, held_out = encode_corpus(tokenizer, reading), encode_corpus(tokenizer, held_out_texts)
    model_config, start = model_of(size, len(tokenizer)), tokenizer.start
    pace = pace_of(config, model_config, len(known), len(held_out), progress)
    result = train(config, model_config, known, held_out, start=start, device=device, progress=progress, observers=[pace])
    folder = save(result.model, out, tokenizer, config=dataclasses.replace(config, products=result.products), log=result.log)
    n_bytes, n_characters = sum(len(t.encode()) for t in held_out_texts), sum(map(len, held_out_texts))
    return report(
        folder, result, config, known, held_out, start,
        documents=len(texts), held_out_bytes=n_bytes, held_out_characters=n_characters,
    )


def train_from_file(
    data: str | os.PathLike[str], out: str | os.PathLike[str], *, device: str = "auto", progress: bool = True, **choices: object
) -> RunReport:
    """Train a model on a text file and save it in the new folder `out`.

    `choices` overrule `fit_size` (vocab_size, d_model, layers, heads, context) and `recipe` (any field of `TrainConfig`).
    Errors: those of `read_text`, `train` and `save`; ValueError for an unknown choice.
    """
    free_folder(out, "out")
    text = read_text(data)
    size, config = plan(len(text.encode()), **choices)
    return train_and_save(split_text(text), out, size, config, device=device, progress=progress)


def train_book(out: str | os.PathLike[str], *, device: str = "cpu", progress: bool = True, **choices: object) -> RunReport:
    """Train the model that the package ships: on the book's corpus, in the sizes that `fit_size` suggests, of the kind that the overview defines,
    with seed 0; `choices` as in `train_from_file`.

    Its learning rate is the one with which the shipped model was made; that of `recipe` was found for its own kind of model.
    """
    texts = documents()
    size, config = plan(sum(len(t.encode()) for t in texts), **choices)
    its: dict[str, Any] = {"lr": 1.5e-3, "min_lr": 0.1, "schedule": "cosine", "warmup": min(50, config.steps // 10)}
    config = dataclasses.replace(config, **its | {name: value for name, value in choices.items() if name in its})
    return train_and_save(texts, out, size, config, device=device, progress=progress, model_of=essays_model)


# In a folder, resumable, in one process or several

OF_A_RUN = re.compile(r"(train|held_out)\.tokens|tokenizer\.json|log\.(jsonl|csv)|run\.json|curves\.svg|begin|tensorboard|step-\d{8,}|\..*")
FORMER = ".former"  # where the former model is kept while a run that is taken further replaces it


def run_folder(out: str | os.PathLike[str]) -> Path:
    """The folder with the work of a run that will end in `out`."""
    return Path(f"{Path(out)}.run")


def expects_own(folder: Path) -> None:
    """ValueError if the folder, which is deleted when the run is complete, holds anything but the work of a run."""
    other = [f.name for f in folder.glob("*") if not OF_A_RUN.fullmatch(f.name)]
    expects(not other, "folder", f"{str(folder)!r} with {other[:1]} in it", "a folder that holds a run and nothing else")


def prepare(folder: Path, job: Job, given: Tokenizer | None, begin: Begin | None = None, board: bool = False) -> None:
    """Write the model from which the run begins, run.json, tokenizer.json, held_out.tokens and train.tokens, in this order, unless they exist.

    The tokenizer is learned from the documents of the training part: from all, or from a random choice if the text is long. ValueError if
    the folder holds anything else, and for another text or tokenizer than before.
    """
    expects_own(folder)
    clear_parts(folder)
    if not (folder / JOB).exists():
        shutil.rmtree(folder / BEGIN, ignore_errors=True)
        if begin is not None:
            begin_with(folder, begin, job.size.context)
        job.write(folder / JOB)
    if board:
        (folder / BOARD).mkdir(exist_ok=True)
    begun = begun_with(folder)
    expects(begun is None or given is None, "tokenizer", "one", "none: the model that is gone on from has its own")
    own: Any = begun[1] if begun else given
    config = job.config
    out = lambda i: is_held_out(i, config.validation, config.seed)
    part = lambda held_out: (text for i, text in enumerate(stream_documents(job.files(folder))) if out(i) == held_out)
    if not (folder / TOKENIZER).exists():
        share = TOKENIZER_TEXT / sum(file.stat().st_size for file in job.files(folder))
        chance = np.random.default_rng(config.seed)
        some = (text for text in part(False) if share > 1 or chance.random() < share)
        pattern = GPT2_PATTERN if job.preset == "gpt2" else PATTERN  # GPT-2's files imply its own pattern
        with new_file(folder / TOKENIZER) as file:
            (own or Tokenizer.train(some, job.size.vocab_size, pattern=pattern)).save(file)
    elif given is not None:
        tokenizer_in(folder / TOKENIZER).check_same(given, "tokenizer")
    words: Any = begun[1] if begun else tokenizer_in(folder / TOKENIZER)
    for name in ("held_out", "train"):
        if not (folder / f"{name}.tokens").exists():
            write_tokens(folder / f"{name}.tokens", part(name == "held_out"), words)
    if not (same := has_same_text(folder)):
        for name in ("held_out", "train"):
            (folder / f"{name}.tokens").unlink()
    expects(same, "path", f"another text than before in {job.data} (a file named twice is read once)", "the one with which the run was begun")


def train_files(
    data: Paths | None,
    out: str | os.PathLike[str],
    *,
    begin: Begin | None = None,
    preset: str | None = None,
    tokenizer: Tokenizer | None = None,
    resume: bool = False,
    parallel: str = "ddp",
    keep: int = 3,
    device: str = "auto",
    progress: bool = True,
    tensorboard: bool = False,
    plot: bool = False,
    minutes: float | None = None,
    watch: Callable[[int, Any, Any], None] | None = None,
    **choices: Any,
) -> RunReport | None:
    """Train on text files or folders of any size, each file read once, and save the model in the new folder `out`; the report, from the first process.

    Meanwhile, the work is kept in the folder `out`.run. With `resume`, an interrupted run is taken up from there, and no other argument is needed;
    `data`, `preset`, `begin`, `tokenizer` and `choices` (except `products`), if given, must be as before. A finished run is taken further if `steps`
    is larger: it goes on after its last step, at the learning rate that a run of that many steps has there. Other files in `out` stay there.

    `preset` makes a model of that kind (see `model_for`) with the tokenizer that belongs to it. `begin` is a model to start from: a folder that
    this function or `save` made, or (model, tokenizer), as `load_model` returns them; its tokenizer is kept, and without `data` the text is that
    of the run that made the folder. `tensorboard` also writes the log for TensorBoard, and `plot` draws the curves as they grow, in curves.svg
    beside the log. `choices` overrule what suits the text: vocab_size, d_model, layers, heads, context, and any field of `TrainConfig`.
    `device`, `keep`, `parallel` and `progress` are as in `train`; `watch(step, model, tokenizer)` is called after each measurement.

    `minutes` fits the model (unless a choice says its size), the number of steps and the schedule to a time that includes tokenizer and report: a few
    steps are tried first, and the number of steps is adjusted to the machine's speed during the run. Without it, a run on a CPU takes ten minutes at
    most, unless `steps` is given. The fitted values are kept in run.json and in each checkpoint, and a resumed run uses them unchanged.

    Errors: those of `read_text`, `train`, `save` and `load`; FileExistsError if `out` exists, or work that is not to be resumed; ImportError
    if the package tensorboard is asked for and missing.
    """
    began, out, folder = time.perf_counter(), checked_path(out, "out"), run_folder(out)
    if data is not None and not isinstance(data, str | os.PathLike):
        expects_several("data", data, "a path, or several")
        data = [*data]  # since it is read more than once
    expects_kind("tokenizer", tokenizer, Tokenizer | None, "a Tokenizer")
    expects(tokenizer is None or "vocab_size" not in choices, "vocab_size", choices.get("vocab_size"), "none: the tokenizer has its own")
    expects_one_of("parallel", parallel, PARALLEL)
    expects(watch is None or callable(watch), "watch", repr(watch), "a function of step, model and tokenizer", TypeError)
    if tensorboard:
        board_writer()  # raises if the package is missing
    known = next((place for place in (folder, out) if resume and (place / JOB).is_file()), None)  # where the run to go on with has left its job
    if known is not None:
        expects(minutes is None, "minutes", minutes, f"none: the run in {str(known)!r} has its number of steps")
        job, aim = _job_again(known, out, data, preset, begin, choices), None
    else:
        aim = aim_at(minutes, "steps" in choices, choose_device(device), began)
        free_folder(out, "out")
        none = "none" if not resume else f"none, and no run in {str(folder)!r} or {str(out)!r} to go on with"
        expects(data is not None or begin is not None, "path", none, "a text file")
        job = new_job(data, preset, begin, choices, aim)
        if tokenizer is not None:
            job = dataclasses.replace(job, size=dataclasses.replace(job.size, vocab_size=len(tokenizer)))
    with dist_context(device) as dist, _nothing_left_if_new(folder, dist):
        if dist.rank == 0:
            work = f"{str(folder)!r}, an interrupted run"
            expects(resume or not folder.exists(), "folder", work, "none, or resume=True to go on with it", FileExistsError)
            if known == out:
                expects_own(folder)
                shutil.rmtree(folder, ignore_errors=True)  # only the run's own files are left in it
                job = further(out, folder, choices.get("steps"))
            folder.mkdir(parents=True, exist_ok=True)
            with held(folder):
                prepare(folder, job, tokenizer, begin, tensorboard)
            if plot:
                (folder / CURVES).touch()
        dist.wait()
        job = read_job(folder).changed(choices)
        return _train_prepared(folder, out, job, dist, parallel=parallel, keep=keep, progress=progress, watch=watch, aim=aim)


def _job_again(known: Path, out: Path, data: Paths | None, preset: str | None, begin: Begin | None, choices: dict[str, Any]) -> Job:
    """The job that a run has left in the folder `known`: its work, or its model `out` if it is finished (then `steps` may differ). Errors as in `train_files`."""
    job, finished = read_job(known), known == out
    job.expects_same(known, data, preset, begin, {name: value for name, value in choices.items() if not (finished and name == "steps")})
    if not finished and not job.further:
        free_folder(out, "out")
    return job


@contextlib.contextmanager
def _nothing_left_if_new(folder: Path, dist: DistContext) -> Iterator[None]:
    """After an error, remove a folder that did not exist before, unless it holds a state from which the run can be resumed, and its text."""
    new = dist.rank == 0 and not folder.exists()
    try:
        yield
    except BaseException:
        if new and not (checkpoints(folder) and (folder / "train.tokens").exists()):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _train_prepared(
    folder: Path,
    out: Path,
    job: Job,
    dist: DistContext,
    *,
    parallel: str,
    keep: int,
    progress: bool,
    watch: Callable[[int, Any, Any], None] | None,
    aim: Aim | None,
) -> RunReport | None:
    """Train in a folder that `prepare` has filled, save, and remove the folder."""
    begun, lead, config = begun_with(folder), dist.rank == 0, as_replanned(folder, job.config)
    words: Any = begun[1] if begun else tokenizer_in(folder / TOKENIZER)
    known, held_out = (read_tokens(folder / f"{name}.tokens") for name in ("train", "held_out"))
    model_config = begun[0].config if begun else model_for(job.size, len(words), job.preset)
    most, n = len(known.tokens), job.size.context
    expects(n <= most, "context", n, f"at most {most}, the number of tokens to train on")
    progress, curves, n_bytes = progress and lead, folder / CURVES, known.head["bytes"] + held_out.head["bytes"]
    pace = pace_of(config, model_config, len(known.tokens), len(held_out.tokens), progress, aim, n_bytes, job.minutes)
    result = train(
        config,
        model_config,
        known.tokens,
        held_out.tokens,
        start=words.start,
        progress=progress,
        watch=(lambda step, model: watch(step, model, words)) if watch else None,
        folder=folder,
        keep=keep,
        dist=dist,
        parallel=parallel,
        plot=curves if curves.exists() else False,
        observers=[pace],
    )
    if not lead:
        return None
    config = as_replanned(folder, config)
    more = left_behind(folder, dataclasses.replace(job, config=config))
    former = folder / FORMER
    if out.exists():  # the model of the run that was taken further
        carry_over(former, out)  # if a process was killed before it had done so
        shutil.rmtree(former, ignore_errors=True)
        out.rename(former)
    saved = save(result.model, out, words, config=dataclasses.replace(config, products=result.products), log=result.log, more=more)
    carry_over(former, out)
    there = all(os.path.exists(path) for path in job.data)  # the text may exist only as tokens by now
    said = report(
        saved, result, config, known.tokens, held_out.tokens, words.start,
        documents=known.head["documents"] + held_out.head["documents"], held_out_bytes=held_out.head["bytes"],
        held_out_characters=held_out.head.get("characters"), n_files=len(job.files(folder)) if there else None,
    )
    del known, held_out
    shutil.rmtree(folder)
    return said
