"""Training at scale. Generated from book/scaling.ipynb: edit the notebook, then `make export`."""

import contextlib
import dataclasses
import hashlib
import json
import mmap
import os
import re
import shutil
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from tlm_book.checks import expects, expects_one_of, expects_positive
from tlm_book.tokenization import Tokenizer
from tlm_book.training import (
    LEAST_BYTES,
    MARKS,
    TOKENIZER_TEXT,
    Report,
    Result,
    Size,
    TrainConfig,
    choose_device,
    decoded,
    due,
    evaluate,
    finite,
    flops_per_token,
    free_folder,
    model_for,
    optimizer_for,
    plan,
    report,
    save,
    split_text,
    steps,
    switch,
    with_weights,
    write_tensors,
)
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

__all__ = [
    "Cost",
    "kept_per_token",
    "PARALLEL",
    "training_cost",
    "Paths",
    "text_files",
    "PLACES",
    "blocks",
    "has_marks",
    "stream_documents",
    "TokenFile",
    "write_tokens",
    "read_tokens",
    "is_held_out",
    "state_of",
    "put_state",
    "checkpoints",
    "write_checkpoint",
    "read_notes",
    "read_checkpoint",
    "drop_old",
    "best_checkpoint",
    "Team",
    "spread",
    "read_log",
    "continue_run",
    "team_of",
    "OF_A_RUN",
    "prepare",
    "run_folder",
    "train_files",
]


# --- What a run costs


@dataclass(frozen=True)
class Cost:
    """What a run takes: weights, operations, seconds, and bytes on each device by
    purpose.
    """

    parameters: int
    flops: float
    seconds: float
    memory: dict[str, float]

    def __str__(self) -> str:
        lines = [
            f"{self.parameters:,} weights, {self.flops:.3g} operations, {self.seconds / 3600:,.1f} hours",
            *(
                f"  {name:12}{size / 1e9:10.2f} GB"
                for name, size in self.memory.items()
            ),
        ]
        return "\n".join(lines)


def kept_per_token(config: Config, recompute: bool = False) -> int:
    """Numbers that a step keeps for the way back, for each token. (T-training-memory)
    """
    c = config
    d, e = c.d_model, c.n_heads * (c.d_head or c.d_model // c.n_heads)
    hidden = c.d_ff * (1 if c.activation == "relu" else 2)
    norms = 4 * d if c.norm != "none" else 2 * d
    block = norms + 4 * e + hidden
    ends = (2 if c.final_norm else 1) * d + c.vocab_size
    return c.n_layers * d + block + ends if recompute else c.n_layers * block + ends


PARALLEL = ("ddp", "fsdp")


def training_cost(
    config: Config,
    tokens: float,
    *,
    batch_size: int = 8,
    devices: int = 1,
    parallel: str = "ddp",
    rate: float = 1e11,
    utilisation: float = 0.4,
    recompute: bool = False,
) -> Cost:
    """What it takes to train a model on that many tokens, in windows of max_len.
    (T-training-cost, T-training-memory)

    `rate` is what one device does in a second at best, `utilisation` the share of it
    that is reached. On each of several devices stand all weights ("ddp") or its
    share of them and one gathered block ("fsdp"). ValueError for numbers that make
    no sense.

    >>> cost = training_cost(Config.gpt2(), tokens=1e9, rate=1e14)
    >>> cost.parameters, round(cost.seconds / 60)
    (124439808, 356)
    """
    expects_positive(batch_size=batch_size, devices=devices)
    expects_one_of("parallel", parallel, PARALLEL)
    expects(tokens > 0, "tokens", tokens, "a number > 0")
    expects(rate > 0, "rate", rate, "a number > 0")
    expects(0 < utilisation <= 1, "utilisation", utilisation, "a share in (0, 1]")
    N, n = count_parameters(config), config.max_len
    flops = tokens * flops_per_token(config, n) * (4 / 3 if recompute else 1)
    rows = batch_size * n / devices  # of the batch, on one device
    share = devices if parallel == "fsdp" else 1
    memory = {
        "weights": 4 * N / share,
        "gradients": 4 * N / share,
        "optimizer": 8 * N / share,
    }
    if parallel == "fsdp" and devices > 1:
        bare = dataclasses.replace(config, n_layers=1)
        block = count_parameters(
            dataclasses.replace(config, n_layers=2)
        ) - count_parameters(bare)
        memory["gathered"] = 4 * max(block, N - config.n_layers * block)
    memory["activations"] = 4 * rows * kept_per_token(config, recompute)
    seconds = flops / (devices * rate * utilisation)
    return Cost(N, flops, seconds, memory)


# --- A text larger than memory


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def text_files(data: Paths) -> list[Path]:
    """The files, folders replaced by the files in them (hidden ones left out), in
    order of their names.

    FileNotFoundError for nothing there, ValueError for a folder without files.
    """
    found = []
    for path in map(Path, [data] if isinstance(data, str | os.PathLike) else data):
        expects(
            path.exists(),
            "path",
            f"no file at {str(path)!r}",
            "a text file",
            FileNotFoundError,
        )
        inside = [path]
        if path.is_dir():
            parts = lambda file: file.relative_to(path).parts
            inside = [
                f
                for f in sorted(path.rglob("*"))
                if f.is_file() and not any(p.startswith(".") for p in parts(f))
            ]
            expects(
                inside,
                "path",
                f"the folder {str(path)!r} without files",
                "text files in it",
            )
        found += inside
    return found


PLACES = (b"<|endoftext|>", b"\f", b"\n\n", b"\n", b" ")  # to cut, the best first


def blocks(file: Path, size: int = 2**24) -> Iterator[str]:
    """The text of a file in blocks of about `size` bytes, cut at the best place
    there is: a mark, a blank line, a line, a space.

    Errors for bytes that are no UTF-8 as in `read_text`.
    """
    rest, done = b"", 0
    with file.open("rb") as source:
        while piece := source.read(size):
            data = rest + piece
            ends = (data.rfind(mark) + len(mark) for mark in PLACES if mark in data)
            cut = next(ends, 0) if len(piece) == size else len(data)
            yield decoded(data[:cut], file, done)
            rest, done = data[cut:], done + cut
    yield decoded(rest, file, done)


def has_marks(file: Path) -> bool:
    """Whether the file marks where a document ends and another begins."""
    if file.stat().st_size == 0:
        return False
    with (
        file.open("rb") as source,
        mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return re.search(rb"\S\s*(\f|<\|endoftext\|>)\s*[^\s\f<]", data) is not None


def stream_documents(files: Sequence[Path], block: int = 2**24) -> Iterator[str]:
    """The documents of the files, one after another: a single file is cut as by
    `split_text`; of several, each is one document unless marks cut it. A file of
    several blocks is cut block by block.
    """
    for file in files:
        whole = has_marks(file) or (len(files) > 1 and file.stat().st_size <= block)
        for text in blocks(file, block):
            parts = MARKS.split(text) if whole else split_text(text)
            yield from (part.strip() for part in parts if part.strip())


MAGIC, HEAD = b"tlm_book tokens\n", 4096


@dataclass(frozen=True)
class TokenFile:
    """A mapped token file: all tokens, the end of each document, and what the head
    says.
    """

    tokens: Int[Tensor, "N"]
    ends: Int[np.ndarray, "documents"]
    head: dict[str, Any]

    def document(self, i: int) -> Int[Tensor, "n"]:
        """The tokens of document i, its separator included."""
        return self.tokens[self.ends[i - 1] if i else 0 : self.ends[i]]


def write_tokens(
    file: str | os.PathLike[str], texts: Iterable[str], tokenizer: Tokenizer
) -> TokenFile:
    """Write the documents' tokens, each document followed by the separator, and map
    the file.

    The texts are read once, one at a time. ValueError when there is none.
    """
    path = Path(file)
    part, sha = path.with_name(f".{path.name}.part"), hashlib.sha256()
    dtype = np.dtype("<i2" if len(tokenizer) <= 2**15 else "<i4")
    ends, n_bytes, N = array("q"), 0, 0
    try:
        with part.open("wb") as out:
            out.write(bytes(HEAD))
            for text in texts:
                tokens = np.array([*tokenizer.encode(text), tokenizer.start], dtype)
                out.write(tokens.tobytes())
                sha.update(tokens.data)
                N, n_bytes = N + len(tokens), n_bytes + len(text.encode())
                ends.append(N)
            expects(N > 0, "texts", "no document", "at least one")
            out.write(
                bytes(-N * dtype.itemsize % 8) + np.array(ends, "<i8").tobytes()
            )
            head = {
                "vocab_size": len(tokenizer),
                "dtype": dtype.str,
                "tokens": N,
                "documents": len(ends),
                "bytes": n_bytes,
                "sha256": sha.hexdigest(),
            }
            out.seek(0)
            out.write(MAGIC + json.dumps(head).encode())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return read_tokens(path)


def read_tokens(file: str | os.PathLike[str], verify: bool = False) -> TokenFile:
    """Map a token file. ValueError when it is none, or cut short; with `verify` also
    when its tokens are not those that were written.
    """
    path = Path(file)
    expects(
        path.is_file(),
        "file",
        f"no file at {str(path)!r}",
        "a token file",
        FileNotFoundError,
    )
    with path.open("rb") as source:
        first = source.read(HEAD)
    expects(
        first.startswith(MAGIC),
        "file",
        f"{str(path)!r}, which begins otherwise",
        "a token file",
    )
    try:
        head = json.loads(first[len(MAGIC) :].rstrip(b"\0"))
        N, D, dtype = head["tokens"], head["documents"], np.dtype(head["dtype"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"file: got {str(path)!r} with a broken head, want a token file"
        ) from error
    tail = HEAD + (N * dtype.itemsize + 7) // 8 * 8
    size = path.stat().st_size
    expects(
        size == tail + 8 * D,
        "file",
        f"{size} bytes in {str(path)!r}",
        f"{tail + 8 * D} bytes",
    )
    mapped = np.memmap(
        path, dtype, mode="c", offset=HEAD, shape=(N,)
    )  # a change would stay in memory
    if verify:
        same = hashlib.sha256(mapped.data).hexdigest() == head["sha256"]
        expects(
            same, "file", f"other tokens in {str(path)!r}", "those of its check sum"
        )
    ends = np.fromfile(path, "<i8", offset=tail)
    return TokenFile(torch.from_numpy(mapped), ends, head)


def is_held_out(i: int, fraction: float, seed: int) -> bool:
    """Whether document i is held out: with probability `fraction`, always the same
    for the same seed.

    Document 0 is trained on and document 1 held out, so that there is one of each.
    """
    return i == 1 if i < 2 else np.random.default_rng((seed, i)).random() < fraction


# --- Killed, and taken up again


def _whole(on_cpu: bool) -> StateDictOptions:
    """Tensors gathered whole: on each process's device, or on the first one's CPU
    alone.
    """
    return StateDictOptions(full_state_dict=True, cpu_offload=on_cpu)


def state_of(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Weights and means by name, gathered from all processes onto the first one's
    CPU; a tied matrix once.
    """
    both: Any = get_state_dict(model, optimizer, options=_whole(on_cpu=True))
    weights, rest = both
    tensors = {f"model.{name}": w for name, w in weights.items()}
    for name, means in rest.get("state", {}).items():
        tensors |= {f"optimizer.{name}.{key}": m for key, m in means.items()}
    inner: Any = getattr(model, "module", model)
    if inner.config.tied:
        tensors.pop("model.unembedding.weight", None)  # it is the embedding table
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def put_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Give model and optimizer the state that `state_of` returned, here or in a run
    with other processes.
    """
    whole = _whole(on_cpu=False)
    both: Any = get_state_dict(model, optimizer, options=whole)
    rest = both[1]
    saved: dict[str, Any] = {
        name.removeprefix("model."): w
        for name, w in tensors.items()
        if name.startswith("model.")
    }
    saved.setdefault("unembedding.weight", saved["embedding.table.weight"])  # tied
    for name, means in rest["state"].items():
        rest["state"][name] = {
            key: tensors[f"optimizer.{name}.{key}"] for key in means
        }
    set_state_dict(
        model,
        optimizer,
        model_state_dict=saved,
        optim_state_dict=rest,
        options=whole,
    )


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


def write_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    notes: Mapping[str, object],
) -> Path:
    """Write the state after `step` steps: beside, then renamed. OSError when there
    is no room; older ones are untouched.

    ValueError for numbers that are not finite: no state to come back to.
    """
    bad = [name for name, tensor in tensors.items() if not finite(tensor)]
    expects(
        not bad,
        "tensors",
        f"{bad[:1]} with numbers that are not finite",
        "a state to come back to",
    )
    path, part = folder / f"step-{step:08}", folder / f".part-{step:08}"
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
    part.mkdir(parents=True)
    try:
        write_tensors(part / "state.safetensors", tensors)
        (part / "state.json").write_text(
            json.dumps({"step": step, **notes}), encoding="utf-8"
        )
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def read_notes(path: Path) -> dict[str, Any]:
    """The notes of a checkpoint; ValueError when they are broken."""
    try:
        notes = json.loads((path / "state.json").read_text(encoding="utf-8"))
        right = (
            isinstance(notes, dict) and {"step", "run", "held_out"} <= notes.keys()
        )
    except (ValueError, OSError):
        right = False
    expects(
        right,
        f"{path / 'state.json'}",
        "no notes of a run",
        "what `write_checkpoint` wrote",
    )
    return notes


def read_checkpoint(
    path: Path, run: Mapping[str, Any], wanted: Mapping[str, Tensor]
) -> tuple[int, dict[str, Tensor]]:
    """(step, tensors) of a checkpoint of this very run. ValueError that names what
    is broken, foreign or changed.
    """
    notes = read_notes(path)
    for part, fields in run.items():
        theirs = notes["run"].get(part, {})
        for name, value in fields.items():
            same = theirs.get(name) == json.loads(json.dumps(value))
            expects(
                same,
                f"{part}.{name}",
                repr(value),
                f"{theirs.get(name)!r}, with which the run in {str(path.parent)!r} was begun",
            )
    try:
        tensors = load_file(path / "state.safetensors")
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path}: got a broken checkpoint ({error}); want one to come back to: remove it, and the one before it is taken"
        ) from error
    for name, tensor in wanted.items():
        fits = (
            name in tensors
            and tensors[name].shape == tensor.shape
            and finite(tensors[name])
        )
        expects(fits, f"{path}", f"no {name} that fits", "the state of this run")
    return notes["step"], tensors


def drop_old(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep` and the best on the held-out text.
    """
    for path in checkpoints(folder)[:-keep]:
        if path != best_checkpoint(folder):
            gone = path.rename(
                path.with_name(f".old-{path.name}")
            )  # no half of it under its name
            shutil.rmtree(gone)


def best_checkpoint(folder: Path) -> Path:
    """The checkpoint whose loss on the held-out text was lowest, the first of them.
    """
    return min(
        checkpoints(folder), key=lambda path: float(read_notes(path)["held_out"])
    )


@dataclass(frozen=True)
class Team:
    """The processes that share a run: which one this is, of how many, on which device.
    """

    rank: int = 0
    ranks: int = 1
    device: torch.device = torch.device("cpu")

    def mean(self, number: float) -> float:
        """The mean of every process's number."""
        if self.ranks == 1:
            return number
        total = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.item() / self.ranks

    def wait(self) -> None:
        """Until every process has come here."""
        if self.ranks > 1:
            dist.barrier()


def spread(model: TransformerLM, team: Team, parallel: str) -> nn.Module:
    """The model as this process of the team holds it: whole ("ddp") or its share of
    each block ("fsdp"). ValueError for another choice.
    """
    expects_one_of("parallel", parallel, PARALLEL)
    if team.ranks == 1:
        return model
    if parallel == "ddp":
        return DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)  # changes the model, and returns it
    return model


def read_log(file: Path, step: int) -> list[dict[str, int | float]]:
    """The first `step` entries of a log; what was written after the checkpoint,
    perhaps by half, is left out.
    """
    lines = file.read_text(encoding="utf-8").splitlines()[:step] if step else []
    return [json.loads(line) for line in lines]


def continue_run(
    folder: str | os.PathLike[str],
    config: TrainConfig,
    model_config: Config,
    train_tokens: Int[Tensor, "N"],
    validation_tokens: Int[Tensor, "K"],
    *,
    start: int = 0,
    team: Team = Team(),
    parallel: str = "ddp",
    keep: int = 3,
    progress: bool = False,
    watch: Callable[[int, nn.Module], None] | None = None,
) -> Result:
    """As `train`, with a checkpoint in `folder` after each measurement; takes up the
    last one that is there. (T-resume)

    Errors as in `train`, and ValueError for a checkpoint that is broken or of
    another run. OSError when one cannot be written. In each case the checkpoints
    that were there are still there.
    """
    expects_positive(keep=keep)
    even = config.batch_size % team.ranks == 0
    expects(
        even,
        "batch_size",
        config.batch_size,
        f"a multiple of the {team.ranks} processes",
    )
    folder, n, place = Path(folder), model_config.max_len, team.device
    run = {
        "model": dataclasses.asdict(model_config),
        "training": dataclasses.asdict(config),
    }
    run["text"] = {
        "tokens": len(train_tokens),
        "held out": len(validation_tokens),
        "start": start,
    }
    seconds = 0.0
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(config.seed)
        whole = TransformerLM(model_config).to(place).train()
        switch(whole, config)
        model = spread(whole, team, parallel)
        optimizer = optimizer_for(model, config)
        first = 0
        if found := checkpoints(folder):
            first, tensors = read_checkpoint(
                found[-1], run, state_of(model, optimizer)
            )
            put_state(model, optimizer, tensors)
        team.wait()
        log = read_log(folder / "log.jsonl", first)
        with _log_file(folder, log, team) as out:
            entries = steps(
                model,
                optimizer,
                train_tokens,
                n,
                start,
                config,
                first=first,
                rank=team.rank,
                ranks=team.ranks,
            )
            bar = tqdm(
                entries,
                initial=first,
                total=config.steps,
                unit="step",
                disable=not progress,
            )
            tick = time.perf_counter()
            for entry in bar:
                seconds += time.perf_counter() - tick
                entry["loss"] = team.mean(entry["loss"])
                step = int(entry["step"])
                if due(step, config):
                    entry["held_out"] = evaluate(
                        model, validation_tokens, n, start, context=n // 2
                    )
                    read = (entry["step"] - first) * config.batch_size * n
                    bar.set_postfix_str(
                        f"loss {entry['loss']:.3f}, held out {entry['held_out']:.3f}, "
                        f"{read / seconds:,.0f} tokens/s"
                    )
                log.append(entry)
                out.write(json.dumps(entry) + "\n")
                if due(step, config):
                    out.flush()  # the log first: it is never behind a checkpoint
                    _note_state(folder, entry, run, model, optimizer, team, keep)
                    if watch:
                        watch(step, model)
                tick = time.perf_counter()
    weights = load_file(best_checkpoint(folder) / "state.safetensors")
    best = {
        name.removeprefix("model."): w
        for name, w in weights.items()
        if name.startswith("model.")
    }
    best.setdefault("unembedding.weight", best["embedding.table.weight"])
    return Result(with_weights(model_config, best, place), log, seconds)


@contextlib.contextmanager
def _log_file(
    folder: Path, log: Sequence[Mapping[str, object]], team: Team
) -> Iterator[TextIO]:
    """The log, open at its end, with these entries in it; all processes but the
    first write to nowhere.
    """
    file = Path(os.devnull)
    if team.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        file, part = folder / "log.jsonl", folder / ".log.part"
        part.write_text(
            "".join(json.dumps(entry) + "\n" for entry in log), encoding="utf-8"
        )
        part.replace(file)
    with file.open("a", encoding="utf-8") as out:
        yield out


def _note_state(
    folder: Path,
    entry: Mapping[str, Any],
    run: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    team: Team,
    keep: int,
) -> None:
    """One checkpoint: all processes gather, the first one writes."""
    tensors = state_of(model, optimizer)
    if team.rank == 0:
        write_checkpoint(
            folder,
            entry["step"],
            tensors,
            {"run": run, "held_out": entry["held_out"]},
        )
        drop_old(folder, keep)
    team.wait()


# --- More than one device


@contextlib.contextmanager
def team_of(device: str) -> Iterator[Team]:
    """The team that `torchrun` started, this process alone without it. On GPUs they
    speak through NCCL, else through gloo.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        yield Team(device=choose_device(device))
        return
    place = choose_device(device)
    if (
        place.type == "cuda"
    ):  # each process takes the GPU of its number on this machine
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), ranks, place)
    finally:
        dist.destroy_process_group()


# --- The command


OF_A_RUN = re.compile(
    r"(train|held_out)\.tokens|tokenizer\.json|log\.jsonl|step-\d+|\..*"
)


def prepare(
    folder: Path,
    files: Sequence[Path],
    vocab_size: int,
    config: TrainConfig,
    given: Tokenizer | None,
) -> None:
    """Write tokenizer.json, held_out.tokens and train.tokens, in this order, where
    they are missing.

    The tokenizer is learned from documents of the training part: all, or some by
    chance when the text is long. ValueError when anything else stands in the folder,
    which goes when the run is complete.
    """
    other = [f.name for f in folder.glob("*") if not OF_A_RUN.fullmatch(f.name)]
    got = f"{str(folder)!r} with {other[:1]} in it"
    expects(not other, "folder", got, "a folder that holds a run and nothing else")
    size = sum(file.stat().st_size for file in files)
    out = lambda i: is_held_out(i, config.validation, config.seed)
    part = lambda held_out: (
        text for i, text in enumerate(stream_documents(files)) if out(i) == held_out
    )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tokenizer.json").exists():
        chance = np.random.default_rng(config.seed)
        some = (
            text
            for text in part(False)
            if size < TOKENIZER_TEXT or chance.random() < TOKENIZER_TEXT / size
        )
        (given or Tokenizer.train(some, vocab_size)).save(folder / ".tokenizer.part")
        (folder / ".tokenizer.part").replace(folder / "tokenizer.json")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    for name in ("held_out", "train"):
        if not (folder / f"{name}.tokens").exists():
            write_tokens(
                folder / f"{name}.tokens", part(name == "held_out"), tokenizer
            )


def run_folder(out: str | os.PathLike[str]) -> Path:
    """Where a run that will end in `out` keeps its work."""
    return Path(out).with_name(Path(out).name + ".run")


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
    watch: Callable[[int, nn.Module, Tokenizer], None] | None = None,
    **choices: object,
) -> Report | None:
    """Train on text files or folders of any size and save the model in the new
    folder `out`; the report, from the first process.

    The work stands in `out`.run meanwhile: with `resume` a run that was interrupted
    is taken up there. `choices` as in `train_from_file`. Errors: those of
    `read_text`, `continue_run` and `save`; FileExistsError when `out` exists, or
    work that is not to be resumed.
    """
    folder, files = run_folder(free_folder(out)), text_files(data)
    n_bytes = sum(file.stat().st_size for file in files)
    few = f"{n_bytes} bytes in {', '.join(repr(str(f)) for f in files[:3])}"
    expects(
        n_bytes >= LEAST_BYTES, "path", few, f"at least {LEAST_BYTES} bytes of text"
    )
    expects_one_of("parallel", parallel, PARALLEL)
    size, config = plan(n_bytes, **choices)
    model_for(size, size.vocab_size)  # wrong sizes are found before the work begins
    with team_of(device) as team:
        new = team.rank == 0 and not folder.exists()
        try:
            if team.rank == 0:
                work = f"{str(folder)!r}, an interrupted run"
                want = "none, or to resume it"
                expects(new or resume, "folder", work, want, FileExistsError)
                prepare(folder, files, size.vocab_size, config, tokenizer)
            team.wait()
            return _train_prepared(
                folder, out, size, config, team, parallel, keep, progress, watch
            )
        except BaseException:
            if new and not checkpoints(folder):  # nothing to come back to
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _train_prepared(
    folder: Path,
    out: str | os.PathLike[str],
    size: Size,
    config: TrainConfig,
    team: Team,
    parallel: str,
    keep: int,
    progress: bool,
    watch: Callable[[int, nn.Module, Tokenizer], None] | None,
) -> Report | None:
    words = Tokenizer.load(folder / "tokenizer.json")
    known, held_out = (
        read_tokens(folder / "train.tokens"),
        read_tokens(folder / "held_out.tokens"),
    )
    lead = team.rank == 0
    result = continue_run(
        folder,
        config,
        model_for(size, len(words)),
        known.tokens,
        held_out.tokens,
        start=words.start,
        team=team,
        parallel=parallel,
        keep=keep,
        progress=progress and lead,
        watch=watch and (lambda step, model: watch(step, model, words)),
    )
    if not lead:
        return None
    saved = save(out, result.model, words, config=config, log=result.log)
    n_documents = known.head["documents"] + held_out.head["documents"]
    said = report(
        saved,
        n_documents,
        known.tokens,
        held_out.tokens,
        held_out.head["bytes"],
        result,
        config,
        words.start,
    )
    del known, held_out
    shutil.rmtree(folder)
    return said
