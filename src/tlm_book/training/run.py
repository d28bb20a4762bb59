"""From text to a saved model: the whole job, in memory or resumable, and its report. Written by hand."""

import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor
from tqdm import tqdm

from tlm_book.checks import expects, expects_one_of
from tlm_book.files import clear_parts, free_folder, new_file
from tlm_book.tokenization import Tokenizer, documents
from tlm_book.training.checkpoint import checkpoints
from tlm_book.training.config import Size, TrainConfig, model_for, plan
from tlm_book.training.cost import flops_per_token, peak_matmul_flops
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
from tlm_book.training.folder import save
from tlm_book.training.loop import Result, train
from tlm_book.training.ngrams import bigram, trigram, unigram
from tlm_book.training.text import (
    LEAST_BYTES,
    Paths,
    read_text,
    split_text,
    stream_documents,
    text_files,
)
from tlm_book.transformer_lm import Config, count_parameters

__all__ = ["Report", "prepare", "report", "run_folder", "train_and_save", "train_book", "train_files", "train_from_file"]


@dataclass(frozen=True)
class Report:
    """What came out of a training run; `str(report)` is the summary that the command prints."""

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

    def bits_per_byte(self, loss: float) -> float:
        """A loss on this run's held-out text in bits per byte."""
        return loss * self.held_out_tokens / (self.held_out_bytes * math.log(2))

    def __str__(self) -> str:
        rows = {
            f"this model, {self.parameters:,} weights": self.loss,
            "trigram (Kneser–Ney)": self.trigram,
            "bigram": self.bigram,
            "unigram": self.unigram,
        }
        lines = [
            f"text: {self.documents} documents; {self.train_tokens:,} tokens to train on, {self.held_out_tokens:,} held out",
            f"weights: after {self.best_step} of {self.steps} steps, where the loss on the held-out text was lowest",
            f"{'loss on the held-out text':40}  nats per token  bits per byte",
            *(f"  {name:38}  {loss:14.3f}  {self.bits_per_byte(loss):13.3f}" for name, loss in rows.items()),
            f"speed: {self.tokens_per_second:,.0f} tokens per second, {100 * self.mfu:.0f} % of what products of large matrices reach here",
            f"files: {self.folder}{os.sep}config.json, model.safetensors, tokenizer.json, log.jsonl",
        ]
        better = [name for name, loss in list(rows.items())[1:] if self.loss >= loss]
        if better:
            note = f"note: the {better[0]} model is as good or better; more text or more steps may help"
            lines.insert(-2, note)
        return "\n".join(lines)


COUNTED = 20_000_000  # tokens at most from which the tables count


def report(
    folder: Path,
    n_documents: int,
    known: Int[Tensor, "N"],
    held_out: Int[Tensor, "K"],
    bytes_held_out: int,
    result: Result,
    config: TrainConfig,
    start: int,
) -> Report:
    """The summary of a run, with the rivals on the same split, and the speed."""
    c, (step, loss) = result.model.config, result.best
    device, text = next(result.model.parameters()).device, known[:COUNTED]
    read = (len(result.log) - result.resumed) * config.batch_size * c.max_len
    speed = read / max(result.seconds, 1e-9)
    return Report(
        folder=folder,
        documents=n_documents,
        train_tokens=len(known),
        held_out_tokens=len(held_out),
        held_out_bytes=bytes_held_out,
        parameters=sum(p.numel() for p in result.model.parameters()),
        steps=config.steps,
        best_step=step,
        loss=loss,
        trigram=trigram(text, held_out, c.vocab_size, start),
        bigram=bigram(text, held_out, c.vocab_size, start),
        unigram=unigram(text, held_out, c.vocab_size),
        tokens_per_second=speed,
        mfu=speed * flops_per_token(c, c.max_len) / peak_matmul_flops(device, config.dtype),
    )


USUAL_MFU = 0.4  # the share of the best rate that training reaches where models are not tiny


def forecast(config: TrainConfig, model_config: Config, dist: DistContext) -> str:
    """What is about to be trained, and how long the whole run may take: said before it starts."""
    c, tokens = model_config, config.steps * config.batch_size * model_config.max_len
    rate = dist.world_size * USUAL_MFU * peak_matmul_flops(dist.device, config.dtype)
    minutes = tokens * flops_per_token(c, c.max_len) / rate / 60
    time = "about a minute or less" if minutes < 1 else f"about {minutes:,.0f} minutes" if minutes < 90 else f"about {minutes / 60:,.1f} hours"
    size = f"{count_parameters(c):,} weights, {config.steps:,} steps of {config.batch_size} windows of {c.max_len} tokens"
    return f"{size}: {time} here"


# In memory


def train_and_save(
    texts: Sequence[str],
    out: str | os.PathLike[str],
    size: Size,
    config: TrainConfig,
    *,
    device: str = "auto",
    progress: bool = True,
) -> Report:
    """The whole job: split, tokenizer, model, training, files. The tokenizer too learns from the training part alone.

    Errors as in `train` and `save`; the folder `out` must not exist.
    """
    # a place that cannot be written is found now, not at the end
    free_folder(out).parent.mkdir(parents=True, exist_ok=True)
    choose_device(device)
    model_for(size, size.vocab_size)  # wrong sizes are found before the work begins
    train_texts, held_out_texts = split_documents(texts, config.validation, config.seed)
    tokenizer = learn_tokenizer(train_texts, size.vocab_size, config.seed)
    reading = tqdm(train_texts, desc="tokens", unit="document", disable=not progress, leave=False)
    known, held_out = encode_corpus(tokenizer, reading), encode_corpus(tokenizer, held_out_texts)
    model_config, start = model_for(size, len(tokenizer)), tokenizer.start
    if progress:
        tqdm.write(forecast(config, model_config, DistContext(device=choose_device(device))), file=sys.stderr)
    result = train(config, model_config, known, held_out, start=start, device=device, progress=progress)
    folder = save(out, result.model, tokenizer, config=config, log=result.log)
    bytes_held_out = sum(len(t.encode()) for t in held_out_texts)
    return report(folder, len(texts), known, held_out, bytes_held_out, result, config, start)


def train_from_file(
    data: str | os.PathLike[str], out: str | os.PathLike[str], *, device: str = "auto", progress: bool = True, **choices: object
) -> Report:
    """Train a model on a text file and save it in the new folder `out`.

    `choices` overrule `fit_size` (vocab_size, d_model, layers, heads, context) and `recipe` (any field of `TrainConfig`).
    Errors: those of `read_text`, `train` and `save`; ValueError for an unknown choice.
    """
    free_folder(out)
    text = read_text(data)
    size, config = plan(len(text.encode()), **choices)
    return train_and_save(split_text(text), out, size, config, device=device, progress=progress)


def train_book(out: str | os.PathLike[str], *, device: str = "cpu", progress: bool = True, **choices: object) -> Report:
    """Make the model that the package ships: the book's corpus, the sizes and settings that `plan` suggests, seed 0; `choices` as
    in `train_from_file`.
    """
    texts = documents()
    size, config = plan(sum(len(t.encode()) for t in texts), **choices)
    return train_and_save(texts, out, size, config, device=device, progress=progress)


# In a folder, resumable, in one process or several

OF_A_RUN = re.compile(r"(train|held_out)\.tokens|tokenizer\.json|log\.jsonl|step-\d+|\..*")


def run_folder(out: str | os.PathLike[str]) -> Path:
    """Where a run that will end in `out` keeps its work."""
    return Path(out).with_name(Path(out).name + ".run")


def prepare(folder: Path, files: Sequence[Path], vocab_size: int, config: TrainConfig, given: Tokenizer | None) -> None:
    """Write tokenizer.json, held_out.tokens and train.tokens, in this order, where they are missing.

    The tokenizer is learned from documents of the training part: all, or some by chance when the text is long. ValueError when
    anything else stands in the folder, which goes when the run is complete.
    """
    other = [f.name for f in folder.glob("*") if not OF_A_RUN.fullmatch(f.name)]
    expects(not other, "folder", f"{str(folder)!r} with {other[:1]} in it", "a folder that holds a run and nothing else")
    folder.mkdir(parents=True, exist_ok=True)
    clear_parts(folder)
    out = lambda i: is_held_out(i, config.validation, config.seed)
    part = lambda held_out: (text for i, text in enumerate(stream_documents(files)) if out(i) == held_out)
    if not (folder / "tokenizer.json").exists():
        share = TOKENIZER_TEXT / sum(file.stat().st_size for file in files)
        chance = np.random.default_rng(config.seed)
        some = (text for text in part(False) if share > 1 or chance.random() < share)
        with new_file(folder / "tokenizer.json") as file:
            (given or Tokenizer.train(some, vocab_size)).save(file)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    for name in ("held_out", "train"):
        if not (folder / f"{name}.tokens").exists():
            write_tokens(folder / f"{name}.tokens", part(name == "held_out"), tokenizer)


def train_files(
    data: Paths,
    out: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | None = None,
    resume: bool = False,
    parallel: str = "ddp",
    keep: int = 3,
    device: str = "auto",
    progress: bool = True,
    watch: Callable[[int, Any, Tokenizer], None] | None = None,
    **choices: object,
) -> Report | None:
    """Train on text files or folders of any size and save the model in the new folder `out`; the report, from the first process.

    The work stands in `out`.run meanwhile: with `resume` a run that was interrupted is taken up there. `choices` as in
    `train_from_file`. Errors: those of `read_text`, `train` and `save`; FileExistsError when `out` exists, or work that is not
    to be resumed.
    """
    folder, files = run_folder(free_folder(out)), text_files(data)
    n_bytes = sum(file.stat().st_size for file in files)
    few = f"{n_bytes} bytes in {', '.join(repr(str(f)) for f in files[:3])}"
    expects(n_bytes >= LEAST_BYTES, "path", few, f"at least {LEAST_BYTES} bytes of text")
    expects_one_of("parallel", parallel, PARALLEL)
    size, config = plan(n_bytes, **choices)
    model_for(size, size.vocab_size)  # wrong sizes are found before the work begins
    with dist_context(device) as dist:
        new = dist.rank == 0 and not folder.exists()
        try:
            if dist.rank == 0:
                work = f"{str(folder)!r}, an interrupted run"
                expects(new or resume, "folder", work, "none, or to resume it", FileExistsError)
                prepare(folder, files, size.vocab_size, config, tokenizer)
            dist.wait()
            return _train_prepared(folder, out, size, config, dist, parallel, keep, progress, watch)
        except BaseException:
            if new and not checkpoints(folder):  # nothing to come back to
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _with_words(watch: Callable[[int, Any, Tokenizer], None], words: Tokenizer, step: int, model: Any) -> None:
    watch(step, model, words)


def _train_prepared(
    folder: Path,
    out: str | os.PathLike[str],
    size: Size,
    config: TrainConfig,
    dist: DistContext,
    parallel: str,
    keep: int,
    progress: bool,
    watch: Callable[[int, Any, Tokenizer], None] | None,
) -> Report | None:
    """Train in a folder that `prepare` has filled, save, and remove the folder."""
    words, lead = Tokenizer.load(folder / "tokenizer.json"), dist.rank == 0
    known, held_out = (read_tokens(folder / f"{name}.tokens") for name in ("train", "held_out"))
    model_config, progress = model_for(size, len(words)), progress and lead
    if progress:
        tqdm.write(forecast(config, model_config, dist), file=sys.stderr)
    result = train(
        config,
        model_config,
        known.tokens,
        held_out.tokens,
        start=words.start,
        progress=progress,
        watch=partial(_with_words, watch, words) if watch else None,
        folder=folder,
        keep=keep,
        dist=dist,
        parallel=parallel,
    )
    if not lead:
        return None
    saved = save(out, result.model, words, config=config, log=result.log)
    n_documents, n_bytes = known.head["documents"] + held_out.head["documents"], held_out.head["bytes"]
    said = report(saved, n_documents, known.tokens, held_out.tokens, n_bytes, result, config, words.start)
    del known, held_out
    shutil.rmtree(folder)
    return said
