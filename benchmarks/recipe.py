"""A recipe beside nanoGPT's, at equal weights, tokens and time per step: what was tried, and what it gains on text that had no part in the choice.

    OMP_NUM_THREADS=1 python benchmarks/recipe.py --workers 2 [--nanogpt DIR]     # about two hours of one core; what is done is kept in _build/recipe.jsonl
    python benchmarks/recipe.py --only losses --device cuda --workers 3 --together 7     # a minute: the losses need no particular processor
    python benchmarks/recipe.py --only times [--nanogpt DIR] [--rounds 40]        # and the times need no losses
    python benchmarks/recipe.py --write                                          # measures nothing

The rival is nanoGPT's model with the settings that its README publishes for a CPU. `--nanogpt` takes its own model.py, loop and optimizer; else its architecture
in our package stands for them. Every run reads the same text, windows at the same random places for the same seed, and is judged on the same held-out part.
Sizes: "a" (4 layers, 4 heads, d 128, windows of 64 characters, batches of 12, 2,000 steps) and "b" (size S of speed.py with windows of 128 of 2,000 tokens,
batches of 16, 1,000 steps). Settings were chosen on the prose of some packages and are judged on that of others, and the essays (PROSE).
"""

import argparse
import concurrent.futures
import contextlib
import functools
import importlib.util
import io
import multiprocessing
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from harness import ratio
from small_runs import KEPT, keep, pending, prose, rows
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.loss import weighted_loss
from tlm_book.normalization import Normalization
from tlm_book.tokenization import Tokenizer
from tlm_book.training import TrainConfig, learning_rate, optimizer_for, train_step
from tlm_book.training.muon import muon_for
from tlm_book.transformer_lm import Config, TransformerLM

PROSE = {"choose": (("torch", "transformers"), False), "judge": (("numpy", "matplotlib", "networkx", "xarray", "sympy"), True)}  # packages; the essays too?
HELD_OUT, LEARNED = 90_000, 1_000_000  # characters
SEEDS = (0, 1, 2)


# What is compared


@dataclass(frozen=True)
class Size:
    n: int
    batch: int
    steps: int

    def config(self, vocab_size: int, **changes: Any) -> Config:
        """nanoGPT's architecture, with changes."""
        sizes = {"n_layers": 4, "n_heads": 4, "d_model": 128, "d_ff": 512, "max_len": self.n}
        biases = {"qkv_bias": False, "out_bias": False, "ff_bias": False}
        return Config.gpt2(vocab_size, **sizes | biases | {"activation": "gelu"} | changes)


SIZES = {"a": Size(n=64, batch=12, steps=2000), "b": Size(n=128, batch=16, steps=1000)}
PUBLISHED: dict[str, Any] = {"lr": 1e-3, "min_lr": 0.1, "warmup": 100, "weight_decay": 0.1, "betas": (0.9, 0.99), "clip": 1.0}


# The text


@dataclass(frozen=True)
class Text:
    """Tokens to learn from and to judge by, how many kinds there are, and how many characters a token stands for."""

    learn: Tensor
    judge: Tensor
    vocab_size: int
    characters: float


def parts(packages: Sequence[str], essays: bool) -> tuple[list[str], list[str]]:
    """(to learn from, held out): whole documents, in random order."""
    documents, held, learn = prose(packages, essays), [], []
    for i in np.random.default_rng(0).permutation(len(documents)):
        (held if sum(map(len, held)) < HELD_OUT else learn).append(documents[i])
    return learn, held


def joined(documents: Sequence[str]) -> str:
    return "".join(document + "\n\n" for document in documents)


def characters(learn: list[str], held: list[str]) -> Text:
    number = {sign: i for i, sign in enumerate(sorted(set(joined(learn + held))))}
    tokens = lambda text: torch.tensor([number[sign] for sign in text])
    return Text(tokens(joined(learn)[:LEARNED]), tokens(joined(held)), len(number), 1.0)


def subwords(learn: list[str], held: list[str]) -> Text:
    words = Tokenizer.train(learn, 2000)
    tokens = lambda documents: torch.tensor([token for text in documents for token in (*words.encode(text), words.start)])
    judge = tokens(held)
    return Text(tokens(learn), judge, len(words), len(joined(held)) / len(judge))


@functools.cache
def texts(kind: str, folder: Path) -> dict[str, Text]:
    """{size: the text for it} out of the packages that serve to choose or to judge; kept in the folder for the next time."""
    file = folder / f"recipe-{kind}.npz"
    if not file.is_file():
        learn, held = parts(*PROSE[kind])
        made = {"a": characters(learn, held), "b": subwords(learn, held)}
        folder.mkdir(exist_ok=True)
        np.savez_compressed(file, **{f"{size}_{name}": np.asarray(value) for size, text in made.items() for name, value in vars(text).items()})
    there = np.load(file)
    tokens = lambda size: (torch.from_numpy(there[f"{size}_{name}"]) for name in ("learn", "judge"))
    return {size: Text(*tokens(size), int(there[f"{size}_vocab_size"]), float(there[f"{size}_characters"])) for size in SIZES}


# The ways to train


@dataclass(frozen=True)
class Way:
    """What differs from nanoGPT's: settings of the model, and of the training."""

    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    init: Callable[[TransformerLM], None] | None = None  # draws first weights anew
    muon: float | None = None  # its rate, where it moves the matrices inside the blocks

    def __or__(self, more: "Way") -> "Way":
        return Way(self.model | more.model, self.training | more.training, more.init or self.init, more.muon or self.muon)


@dataclass(frozen=True)
class Trained:
    """A model, its loss on (what it reads, what it is judged on), its optimizer, and the settings of the run."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    settings: TrainConfig

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        loss = self.loss(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


def ours(way: Way, size: Size, vocab_size: int, seed: int, device: str) -> Trained:
    settings = TrainConfig(steps=size.steps, batch_size=size.batch, seed=seed, **PUBLISHED | way.training)
    torch.manual_seed(seed)
    model = TransformerLM(size.config(vocab_size, **way.model))
    if way.init is not None:
        way.init(model)
    model.to(device)
    optimizer: torch.optim.Optimizer = optimizer_for(model, settings)
    if way.muon is not None:
        optimizer = muon_for(model, way.muon, settings.lr)
    return Trained(model, lambda x, y: weighted_loss(model(x), y), optimizer, settings)


def nanogpt(folder: Path, size: Size, vocab_size: int, seed: int, device: str) -> Trained:
    """Its own model and its own optimizer."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    settings = TrainConfig(steps=size.steps, batch_size=size.batch, seed=seed, **PUBLISHED)
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": size.n, "vocab_size": vocab_size}
        model = module.GPT(module.GPTConfig(**sizes, dropout=0.0, bias=False)).to(device)
        optimizer = model.configure_optimizers(settings.weight_decay, settings.lr, settings.betas, device)
    return Trained(model, lambda x, y: model(x, y)[1], optimizer, settings)


# A run


class Run:
    """A run that proceeds one step at a time. On a GPU its step is captured once and then replayed, several runs side by side."""

    def __init__(self, job: Mapping[str, Any], device: str, folder: Path | None, of_texts: Path) -> None:
        self.job, self.size, self.text = job, SIZES[job["size"]], texts(job["text"], of_texts)[job["size"]]
        make = functools.partial(nanogpt, folder) if job["way"] == NANOGPT and folder is not None else functools.partial(ours, WAYS[job["way"]])
        self.trained = make(self.size, self.text.vocab_size, job["seed"], device)
        settings, n, learn = self.trained.settings, self.size.n, self.text.learn
        first = [np.random.default_rng((job["seed"], step)).integers(0, len(learn) - n, self.size.batch) for step in range(self.size.steps)]  # as `sample_batch`
        self.learn, self.first = learn.to(device), torch.from_numpy(np.stack(first)).to(device)
        self.reach = torch.arange(n + 1, device=device)
        self.shares = torch.tensor([learning_rate(step, settings) / settings.lr for step in range(settings.steps)], device=device)
        self.highest = [float(group["lr"]) for group in self.trained.optimizer.param_groups]
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.done = 0
        self.replay: Callable[[], None] = self.step
        if device.startswith("cuda"):
            self.capture()

    def step(self) -> None:
        share = self.shares.index_select(0, self.at)[0]
        for group, high in zip(self.trained.optimizer.param_groups, self.highest, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(high * share)
            else:
                group["lr"] = high * share.item()
        windows = self.learn[self.first.index_select(0, self.at)[0, :, None] + self.reach]
        self.trained.step(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())
        self.at += 1
        self.done += 1

    def capture(self) -> None:
        """Three ordinary steps, then one that is recorded but not carried out."""
        for group in self.trained.optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=self.at.device)
            if "capturable" in group:
                group["capturable"] = True
        self.stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(self.stream)
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        self.done -= 1

        def replay() -> None:
            with torch.cuda.stream(self.stream):
                graph.replay()
            self.done += 1

        self.replay = replay

    @torch.no_grad()
    def judged(self) -> float:
        """Nats for each character of the held-out part, in windows that lie side by side."""
        n, device = self.size.n, self.at.device
        windows = (len(self.text.judge) - 1) // n
        x, y = (self.text.judge[k : k + windows * n].view(-1, n).to(device) for k in (0, 1))
        total = sum(self.trained.loss(a, b).item() * len(a) for a, b in zip(x.split(256), y.split(256), strict=True))
        return total / len(x) / self.text.characters


def carried_out(some: Sequence[Mapping[str, Any]], device: str, folder: Path | None, of_texts: Path) -> list[dict[str, Any]]:
    """Some runs, side by side: the loss of each on the held-out part, and how many weights it moved."""
    torch.set_num_threads(1)
    runs = [Run(job, device, folder, of_texts) for job in some]
    while any(run.done < run.size.steps for run in runs):
        for run in runs:
            if run.done < run.size.steps:
                run.replay()
    harness.waiter(device)()
    moved = lambda run: sum(w.numel() for w in run.trained.model.parameters() if w.requires_grad)
    return [{"nats": round(run.judged(), 5), "weights": moved(run)} for run in runs]


# What is tried


def without_shifts(model: TransformerLM) -> None:
    """Without the rows that a layer norm adds, as nanoGPT has it."""
    for part in model.modules():
        if isinstance(part, Normalization):
            part.bias.requires_grad_(False)


def squared(model: TransformerLM) -> None:
    """The square of ReLU as the activation of its layers."""
    for block in model.blocks:
        layer = block.feed_forward
        layer.forward = lambda x, layer=layer: layer.down(F.relu(layer.up(x)).square())


def wide(model: TransformerLM) -> None:
    """Matrices of m inputs begin with standard deviation 1/√m, those that write to the stream 1/√(2L) smaller."""
    for name, layer in model.blocks.named_modules():
        if isinstance(layer, nn.Linear):
            small = (2 * model.config.n_layers) ** -0.5 if name.endswith(("attention.out", "feed_forward.down")) else 1.0
            nn.init.normal_(layer.weight, std=small * layer.in_features**-0.5)


NANOGPT = "nanoGPT"
ROTARY = {"pe": "rotary", "rope_layout": "interleaved"}
GATED = {"gated": True, "activation": "silu", "d_ff": 344}
TAKEN = {  # one after another
    "rate 0.004, not 0.001": Way(training={"lr": 4e-3}),
    "linear decay to 0; weight decay 0.3": Way(training={"schedule": "linear", "min_lr": 0.0, "weight_decay": 0.3}),
    "rotary positions": Way(ROTARY),
    "gated layers": Way(GATED),
}
LEFT = {  # each on top of the recipe
    "normalized queries and keys": Way({"qk_norm": True}),
    "RMS norm": Way({"norm_kind": "rms"}),
    "ReLU², not gated": Way({"gated": False, "activation": "relu", "d_ff": 512}, init=squared),
    "first weights of deviation 1/√m": Way(init=wide),
    "Muon": Way(muon=0.02),
}
RECIPE = [*TAKEN][-1]


def ways() -> dict[str, Way]:
    """Every line of the table: nanoGPT's; what was taken, all lines before it included; the recipe with one more change each."""
    found = {NANOGPT: Way(init=without_shifts)}
    way = Way()
    for what, change in TAKEN.items():
        found[what] = way = way | change
    return found | {what: way | change for what, change in LEFT.items()}


WAYS = ways()


def jobs() -> list[dict[str, Any]]:
    """All runs on the text that judges, and on the one that chose those of nanoGPT's settings and of the recipe."""
    ends = [NANOGPT, RECIPE]
    some = [("judge", "a", [NANOGPT, *TAKEN]), ("judge", "b", ends), ("judge", "a", [*LEFT]), ("choose", "a", ends)]
    return [{"way": way, "size": size, "text": text, "seed": seed} for text, size, ways in some for seed in SEEDS for way in ways]


# The time of a step


def times(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """{size: {way: processor time of a step over that of nanoGPT's}}, all in turn, one thread."""
    torch.set_num_threads(1)
    found = {}
    for name, size in SIZES.items():
        vocab_size = {"a": 95, "b": 2000}[name]
        windows = torch.randint(vocab_size, (size.batch, size.n + 1), generator=torch.Generator().manual_seed(0))
        x, y = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        steps: dict[str, Callable[[], object]] = {}
        for way in WAYS:
            run = ours(WAYS[way], size, vocab_size, 0, "cpu")
            steps[way] = functools.partial(train_step, run.model, run.optimizer, x, y, run.settings)
        if options.nanogpt:
            steps[NANOGPT] = functools.partial(nanogpt(options.nanogpt, size, vocab_size, 0, "cpu").step, x, y)
        took = harness.side_by_side(steps, options.rounds)
        found[name] = {way: vars(ratio(took[way], took[NANOGPT], "processor")) | {"ms": took[way].json()["processor_ms"]["median"]} for way in WAYS}
    return found


# The report


def gains(runs: Sequence[Mapping[str, Any]], way: str, size: str) -> list[float]:
    """How many nats per character a way ends below nanoGPT's, for each seed."""
    of = {(run["way"], run["seed"]): run["nats"] for run in runs if (run["size"], run["text"]) == (size, "judge")}
    return [of[NANOGPT, seed] - of[way, seed] for seed in SEEDS if (way, seed) in of]


def lines(runs: Sequence[Mapping[str, Any]], took: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    found = []
    for way in WAYS:
        named = way if way == NANOGPT else f"recipe + {way}" if way in LEFT else f"+ {way}"
        row = {"what": f"{named}: **the recipe**" if way == RECIPE else named}
        for size in SIZES:
            nats = [run["nats"] for run in runs if (run["way"], run["size"], run["text"]) == (way, size, "judge")]
            more = gains(runs, way, size) if way != NANOGPT else []
            row[f"{size}: nats"] = f"{statistics.mean(nats):.3f}" if nats else ""
            row[f"{size}: gain"] = f"{statistics.mean(more):.3f} ({min(more):.3f} to {max(more):.3f})" if more else ""
            row[f"{size}: time"] = f"{took[size][way]['median']:.2f}" if size in took and nats else ""
        found.append(row)
    return found


def page(entries: harness.Entries) -> str:
    """The losses of the machine that has them and the times of the one that has those."""
    runs = next((report["runs"] for report in entries.values() if report["runs"]), [])
    took = next((report["times"] for report in entries.values() if report["times"]), {})
    about = {name: harness.about(report["machine"]) for name, report in entries.items()}
    said = [f"{'losses' * bool(report['runs'])}{' and ' * bool(report['runs'] and report['times'])}{'times' * bool(report['times'])}: {about[name]}." for name, report in entries.items()]
    return f"{TITLE}\n\n{harness.table(lines(runs, took))}\n\n{harness.measured(entries)}\n\n" + "\n\n".join(said) + "\n"


TITLE = """# A recipe beside nanoGPT's

Written by recipe.py. Nats per character of text that chose nothing, means over three seeds; gain over nanoGPT's with the same seed, its mean, lowest and highest;
processor time of a step over that of nanoGPT's."""


def carry_out(todo: Sequence[Mapping[str, Any]], file: Path, options: argparse.Namespace) -> None:
    """All runs, each kept as it ends; failures are reported, and the next call tries them again."""
    for kind in {job["text"] for job in todo}:
        texts(kind, options.kept)
    some = [todo[i : i + options.together] for i in range(0, len(todo), options.together)]
    run = functools.partial(carried_out, device=options.device, folder=options.nanogpt, of_texts=options.kept)
    with concurrent.futures.ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        of = {pool.submit(run, jobs): jobs for jobs in some}
        for future in concurrent.futures.as_completed(of):
            if error := future.exception():
                print(f"left undone: {of[future]}: {error!r}", flush=True)
                continue
            for job, found in zip(of[future], future.result(), strict=True):
                keep(file, job, found)


def main() -> None:
    parser = harness.parser(__doc__, rounds=40)
    parser.add_argument("--nanogpt", type=Path, metavar="DIR", help="a checkout of nanoGPT, whose own model, loop and optimizer then run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--together", type=int, default=1, help="runs of a process beside one another, for a GPU")
    parser.add_argument("--kept", type=Path, default=KEPT, help="folder for the texts, and for what is done")
    parser.add_argument("--only", nargs="+", choices=("losses", "times"), default=("losses", "times"))
    options = parser.parse_args()
    if options.write:
        return harness.rewrite(options.out, "recipe", page)
    file = options.kept / "recipe.jsonl"
    if "losses" in options.only:
        carry_out(list(pending(file, jobs())), file, options)
    machine = harness.torch_machine(options.device)
    report = {"runs": [], "times": {}} | harness.entries(options.out, "recipe").get(harness.entry_name(machine), {}) | {"machine": machine, "rounds": options.rounds}
    if "losses" in options.only:
        report["runs"] = [{**row["job"], "nats": row["nats"], "weights": row["weights"]} for row in rows(file) if row["job"] in jobs()]
    if "times" in options.only:
        report["times"] = times(options)
    harness.write(options.out, "recipe", report, page)


if __name__ == "__main__":
    main()
