"""Training. Generated from book/training.ipynb: edit the notebook, then `make export`."""

import dataclasses
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm

from tlm_book.checks import expects, expects_one_of, expects_positive
from tlm_book.loss import shift, token_log_probs, weighted_loss
from tlm_book.positional_encoding import PositionalEncoding
from tlm_book.spec.loss import bits_per_byte
from tlm_book.tokenization import Tokenizer, documents
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = [
    "TrainConfig",
    "split_documents",
    "encode_corpus",
    "sample_batch",
    "unigram_log_probs",
    "bigram_log_probs",
    "unigram",
    "bigram",
    "look_up",
    "gram_codes",
    "discount_table",
    "kneser_ney_log_probs",
    "trigram",
    "learning_rate",
    "parameter_groups",
    "disturb",
    "update",
    "switch",
    "optimizer_for",
    "evaluate",
    "choose_device",
    "Diverged",
    "step_seed",
    "steps",
    "Result",
    "due",
    "with_weights",
    "train",
    "Size",
    "fit_size",
    "model_for",
    "recipe",
    "flops_per_token",
    "product_rate",
    "free_folder",
    "save",
    "stored_weights",
    "finite",
    "write_tensors",
    "fitting",
    "load",
    "without_numbers",
    "read_config",
    "read_weights",
    "LEAST_BYTES",
    "read_text",
    "decoded",
    "MARKS",
    "split_text",
    "cut",
    "Report",
    "TOKENIZER_TEXT",
    "learn_tokenizer",
    "train_and_save",
    "COUNTED",
    "report",
    "train_from_file",
    "plan",
    "train_book",
    "shipped",
]


# --- The settings


@dataclass(frozen=True)
class TrainConfig:
    """Every choice that training makes, beside the model's own `Config`.

    steps, batch_size     updates, and windows of text in each
    lr, min_lr, warmup    highest learning rate; the last one as a fraction of it; steps until the highest
    weight_decay, betas   of AdamW
    clip                  longest gradient; longer ones are shortened to this
    noise                 share of the tokens that are replaced by random ones where the model reads them
    seed                  of the split, the initial weights, batches, noise and dropout
    eval_every            steps between two measurements on the held-out text
    validation            fraction of the documents that is held out
    dtype                 "float32", or "bfloat16" for products of matrices in that type (autocast)
    accumulate            parts in which a batch is worked through, one after another
    recompute, compile    save memory (forget what lies inside a block); save time (torch.compile)

    Errors: ValueError or TypeError that names the field.
    """

    steps: int = 1000
    batch_size: int = 8
    lr: float = 1.5e-3
    min_lr: float = 0.1
    warmup: int = 50
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0
    noise: float = 0.0
    seed: int = 0
    eval_every: int = 100
    validation: float = 0.1
    dtype: str = "float32"
    accumulate: int = 1
    recompute: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        expects_positive(
            steps=self.steps,
            batch_size=self.batch_size,
            eval_every=self.eval_every,
            accumulate=self.accumulate,
        )
        expects(
            self.accumulate <= self.batch_size,
            "accumulate",
            self.accumulate,
            f"at most batch_size = {self.batch_size}",
        )
        expects(
            isinstance(self.lr, int | float),
            "lr",
            repr(self.lr),
            "a number",
            TypeError,
        )
        expects(0 < self.lr < math.inf, "lr", self.lr, "a finite number > 0")
        expects(
            0 <= self.min_lr <= 1,
            "min_lr",
            self.min_lr,
            "a fraction of lr, from 0 to 1",
        )
        expects(
            0 <= self.warmup <= self.steps,
            "warmup",
            self.warmup,
            f"from 0 to steps = {self.steps}",
        )
        expects(
            self.weight_decay >= 0, "weight_decay", self.weight_decay, "a number ≥ 0"
        )
        expects(
            len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas),
            "betas",
            self.betas,
            "two numbers in [0, 1)",
        )
        expects(self.clip > 0, "clip", self.clip, "a number > 0")
        expects(0 <= self.noise < 1, "noise", self.noise, "a share in [0, 1)")
        expects(
            isinstance(self.seed, int),
            "seed",
            self.seed,
            "a whole number",
            TypeError,
        )
        expects(
            0 <= self.seed < 2**63,
            "seed",
            self.seed,
            "a whole number from 0 to 2^63 − 1",
        )
        expects(
            0 < self.validation < 1,
            "validation",
            self.validation,
            "a fraction between 0 and 1",
        )
        expects_one_of("dtype", self.dtype, ("float32", "bfloat16"))


# --- Text, held out and cut


def split_documents(
    texts: Sequence[str], fraction: float, seed: int
) -> tuple[list[str], list[str]]:
    """(training, held-out) documents: whole documents, chosen at random, about
    `fraction` of them held out, in their old order.

    At least one on either side. ValueError for fewer than two documents.
    """
    expects(
        not isinstance(texts, str), "texts", "one str", "a list of str", TypeError
    )
    expects(
        len(texts) >= 2,
        "texts",
        f"{len(texts)} documents",
        "at least 2, one to train on and one to hold out",
    )
    expects(0 < fraction < 1, "fraction", fraction, "a number between 0 and 1")
    count = min(max(1, round(fraction * len(texts))), len(texts) - 1)
    held_out = set(
        np.random.default_rng(seed).permutation(len(texts))[:count].tolist()
    )
    return [t for i, t in enumerate(texts) if i not in held_out], [
        t for i, t in enumerate(texts) if i in held_out
    ]


def encode_corpus(tokenizer: Tokenizer, texts: Iterable[str]) -> Int[Tensor, "N"]:
    """All documents as one sequence of tokens, each followed by the separator
    `tokenizer.start`. TypeError for a single text.
    """
    expects(
        not isinstance(texts, str), "texts", "one str", "a list of str", TypeError
    )
    tokens = [
        token
        for text in texts
        for token in [*tokenizer.encode(text), tokenizer.start]
    ]
    return torch.tensor(tokens, dtype=torch.long)


def sample_batch(
    tokens: Int[Tensor, "N"], n: int, batch_size: int, seed: int, step: int
) -> Int[Tensor, "batch n"]:
    """Windows of n consecutive tokens whose first positions are drawn uniformly; the
    same for the same seed and step.

    ValueError when there are fewer than n tokens.
    """
    expects(len(tokens) >= n, "tokens", f"{len(tokens)} tokens", f"at least n = {n}")
    windows = tokens.unfold(0, n, 1)  # (N − n + 1, n), a view: nothing is copied
    first = np.random.default_rng((seed, step)).integers(
        0, len(windows), size=batch_size
    )
    return windows[torch.from_numpy(first).to(tokens.device)]


# --- What to beat


def unigram_log_probs(
    train: Int[np.ndarray, "N"], tokens: Int[np.ndarray, "K"], vocab_size: int
) -> Float[np.ndarray, "K"]:
    """log((c(b) + 1) / (N + V)) for each token b: how often it occurs, whatever
    stands before it.
    """
    counts = np.bincount(train, minlength=vocab_size) + 1
    return np.log(counts / counts.sum())[tokens]


def bigram_log_probs(
    train: Int[np.ndarray, "N"],
    previous: Int[np.ndarray, "K"],
    tokens: Int[np.ndarray, "K"],
    vocab_size: int,
    discount: float,
) -> Float[np.ndarray, "K"]:
    """log p(b | a) for each pair (a, b) of `previous` and `tokens`, counted in
    `train`, by absolute discounting.

    p(b | a) = (max(c(a, b) − D, 0) + D · r(a) · q(b)) / c(a), and q(b) where a never
    occurs; see `spec.training.bigram_table`, which computes the whole table. Here
    only the pairs that occur are stored.
    """
    V, D = vocab_size, discount
    pairs, c = np.unique(train[:-1] * V + train[1:], return_counts=True)
    first, second = np.divmod(pairs, V)
    c_a = np.bincount(train[:-1], minlength=V)
    r = np.bincount(first, minlength=V)
    q = (np.bincount(second, minlength=V) + 1) / (len(pairs) + V)
    wanted = previous * V + tokens
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    c_ab = np.where(pairs[place] == wanted, c[place], 0)
    seen = c_a[previous] > 0
    total = np.where(seen, c_a[previous], 1)
    p = (np.maximum(c_ab - D, 0) + D * r[previous] * q[tokens]) / total
    return np.log(np.where(seen, p, q[tokens]))


def unigram(
    train: Int[Tensor, "N"], held_out: Int[Tensor, "K"], vocab_size: int
) -> float:
    """Loss of the unigram model on the held-out tokens, in nats per token."""
    return float(
        -unigram_log_probs(
            train.cpu().long().numpy(), held_out.cpu().long().numpy(), vocab_size
        ).mean()
    )


def bigram(
    train: Int[Tensor, "N"],
    held_out: Int[Tensor, "K"],
    vocab_size: int,
    start: int = 0,
) -> float:
    """Loss of the bigram model on the held-out tokens, in nats per token, with the
    best of nine discounts.

    The discount is chosen on the last tenth of the training tokens with counts from
    the rest, then everything is counted anew: the held-out text has no part in the
    choice. Before the first held-out token stands `start`. ValueError for fewer than
    20 training tokens.
    """
    expects(len(train) >= 20, "train", f"{len(train)} tokens", "at least 20")
    known, x = train.cpu().long().numpy(), held_out.cpu().long().numpy()
    cut = len(known) * 9 // 10

    def loss(
        counted: np.ndarray, before: int, text: np.ndarray, discount: float
    ) -> float:
        previous = np.concatenate(([before], text[:-1]))
        return float(
            -bigram_log_probs(counted, previous, text, vocab_size, discount).mean()
        )

    discounts = [k / 10 for k in range(1, 10)]
    best = min(
        discounts,
        key=lambda D: loss(known[:cut], int(known[cut - 1]), known[cut:], D),
    )
    return loss(known, start, x, best)


# --- Two tokens back


def look_up(
    keys: Int[np.ndarray, "G"],
    values: Int[np.ndarray, "G"] | Float[np.ndarray, "G"],
    wanted: Int[np.ndarray, "K"],
) -> Int[np.ndarray, "K"] | Float[np.ndarray, "K"]:
    """The value beside each wanted key, 0 where there is no such key; the keys are
    sorted.

    >>> look_up(np.array([2, 5]), np.array([10, 20]), np.array([5, 3]))
    array([20,  0])
    """
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def gram_codes(
    x: Int[np.ndarray, "*batch N"], k: int, V: int
) -> Int[np.ndarray, "*batch M"]:
    """Each k tokens that follow one another, as one number: their digits in base V.

    >>> gram_codes(np.array([1, 2, 3]), 2, 10)
    array([12, 23])
    """
    code = np.zeros((*x.shape[:-1], x.shape[-1] - k + 1), dtype=np.int64)
    for i in range(k):
        code = code * V + x[..., i : i + code.shape[-1]]
    return code


def discount_table(c: Int[np.ndarray, "G"]) -> Float[np.ndarray, "4"]:
    """`spec.training.discounts`, for all counts at once: D(0), D(1), D(2), D(3) from
    the counts c ≥ 1 of one order.
    """
    n, k = np.bincount(np.minimum(c, 5), minlength=6), np.arange(1, 4)
    Y = n[1] / max(n[1] + 2 * n[2], 1)
    D = k - (k + 1) * Y * n[2:5] / np.maximum(n[1:4], 1)
    return np.append(0.0, np.where((D > 0) & (D < k), D, k / 2))


def kneser_ney_log_probs(
    train: Int[np.ndarray, "N"],
    history: Int[np.ndarray, "K m"],
    tokens: Int[np.ndarray, "K"],
    vocab_size: int,
) -> Float[np.ndarray, "K"]:
    """log p(b | h) for each row h of `history` and token b, in the model of order m
    + 1 counted in `train`. (T-kneser-ney)

    See `spec.training.kneser_ney`, which does one history at a time. ValueError for
    a text of no more than m + 1 tokens, or when V^(m + 1) is no 64-bit number.
    """
    V, order = vocab_size, history.shape[1] + 1
    expects(
        len(train) > order, "train", f"{len(train)} tokens", f"more than {order}"
    )
    expects(V**order < 2**63, "vocab_size", V, f"V^{order} below 2^63")
    p = np.full(len(tokens), 1 / V)
    for k in range(1, order + 1):
        if k == order:
            grams, c = np.unique(gram_codes(train, k, V), return_counts=True)
        else:  # how many different tokens stand before each
            longer = np.unique(gram_codes(train, k + 1, V))
            grams, c = np.unique(longer % V**k, return_counts=True)
        D = discount_table(c)
        histories, owner = np.unique(grams // V, return_inverse=True)
        total = np.bincount(owner, c)
        taken = np.bincount(owner, D[np.minimum(c, 3)])
        h = gram_codes(history[:, order - k :], k - 1, V)[:, 0]
        c_hb = look_up(grams, c, h * V + tokens)
        c_h = look_up(histories, total, h)
        new = c_hb - D[np.minimum(c_hb, 3)] + p * look_up(histories, taken, h)
        p = np.where(c_h > 0, new / np.maximum(c_h, 1), p)
    return np.log(p)


def trigram(
    train: Int[Tensor, "N"],
    held_out: Int[Tensor, "K"],
    vocab_size: int,
    start: int = 0,
) -> float:
    """Loss of the Kneser–Ney model of order 3 on the held-out tokens, in nats per
    token; before them stands `start`, twice.
    """
    known, x = train.cpu().long().numpy(), held_out.cpu().long().numpy()
    before = np.concatenate(([start, start], x))
    history = np.stack((before[:-2], before[1:-1]), axis=1)
    return float(-kneser_ney_log_probs(known, history, x, vocab_size).mean())


# --- One step


def learning_rate(step: int, config: TrainConfig) -> float:
    """η(s): a straight line up to lr in `warmup` steps, then half a cosine down to
    min_lr · lr at the last step.

    >>> config = TrainConfig(steps=10, warmup=2, lr=1.0, min_lr=0.0)
    >>> [round(learning_rate(s, config), 4) for s in (0, 1, 5, 9)]
    [0.5, 1.0, 0.5, 0.0]
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    first = max(config.warmup - 1, 0)  # the step at which the rate is highest
    done = (step - first) / max(config.steps - 1 - first, 1)
    low = config.min_lr * config.lr
    return low + (config.lr - low) * (1 + math.cos(math.pi * done)) / 2


def parameter_groups(
    model: nn.Module, weight_decay: float
) -> list[dict[str, object]]:
    """Two groups for the optimizer: matrices, which decay, and vectors (biases,
    gains), which do not.
    """
    parameters = list(model.parameters())  # a tied matrix comes once
    return [
        {
            "params": [p for p in parameters if p.dim() >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def disturb(
    read: Int[Tensor, "batch n"], pool: Int[Tensor, "batch n"], share: float
) -> Int[Tensor, "batch n"]:
    """`read`, with each token but the first replaced with probability `share` by one
    drawn from `pool`. (T-noise)
    """
    if share == 0:
        return read
    replaced = torch.rand(read.shape, device=read.device) < share
    replaced[:, 0] = False  # the start marker stays
    drawn = pool.flatten()[
        torch.randint(pool.numel(), read.shape, device=read.device)
    ]
    return torch.where(replaced, drawn, read)


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    read: Int[Tensor, "batch n"],
    batch: Int[Tensor, "batch n"],
    config: TrainConfig,
    weights: Float[Tensor, "batch n"] | None = None,
) -> tuple[float, float]:
    """One step: the gradient, in `accumulate` parts, clipped, and the optimizer's
    move. (T-accumulate)

    Returns the loss before the move and the length of its gradient; there is no move
    when that length is not finite. `read` is what the model reads, `batch` what it
    is judged on.
    """
    loss: Tensor | float = 0.0
    place = batch.device.type
    optimizer.zero_grad()
    for rows in torch.arange(len(batch)).chunk(config.accumulate):
        x, w = batch[rows], None if weights is None else weights[rows]
        share = (
            len(x) / len(batch)
            if w is None or weights is None
            else (w.sum() / weights.sum()).item()
        )
        if share == 0:
            continue
        with torch.autocast(place, torch.bfloat16, config.dtype == "bfloat16"):
            part = share * weighted_loss(model(read[rows]), x, w)
        part.backward()
        loss += part.detach()
    length = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    if hasattr(length, "full_tensor"):  # of weights that several devices share out
        length = length.full_tensor()
    if length.isfinite():
        optimizer.step()
    return float(loss), float(length)


def switch(model: TransformerLM, config: TrainConfig) -> None:
    """Turn on what the config asks for: recomputation of the blocks, compilation.
    The model's weights and their names stay.
    """
    if config.recompute:
        for block in model.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    if config.compile:
        model.compile()


def optimizer_for(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW in one kernel for all weights, with decay on matrices only."""
    groups = parameter_groups(model, config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


# --- The whole run


@torch.no_grad()
def evaluate(
    model: nn.Module,
    tokens: Int[Tensor, "N"],
    n: int,
    start: int,
    batch_size: int = 32,
    context: int = 0,
) -> float:
    """The mean of −y over all tokens, in nats, when the text is cut into windows of
    n tokens.

    Each window begins with the last `context` tokens of the one before it, which are
    not judged again. In a window the model reads (start, x_0, …, x_{n−2}) and is
    judged on (x_0, …, x_{n−1}). The last window may be shorter. The model is in
    evaluation mode meanwhile and afterwards in the mode in which it came. ValueError
    without tokens, and for a context that fills the window.
    """
    expects(len(tokens) >= 1, "tokens", "no tokens", "at least 1")
    expects(0 <= context < n, "context", context, f"from 0 to n − 1 = {n - 1}")
    was_training, place = model.training, next(model.parameters()).device
    fresh = n - context  # tokens that each window adds
    whole = tokens.unfold(0, n, fresh) if len(tokens) >= n else tokens[:0].view(0, n)
    batches = list(whole.split(batch_size)) if len(whole) else []
    rest = tokens[len(whole) * fresh :]
    if len(rest) > context or not batches:
        batches.append(rest[None])
    total = 0.0
    model.eval()
    try:
        for k, x in enumerate(x.long().to(place) for x in batches):
            y = token_log_probs(model(shift(x, start)), x).double()
            # before the very first window there is none
            total -= y[:, context:].sum().item() + (
                y[0, :context].sum().item() if k == 0 else 0
            )
    finally:  # also after an error or an interrupt
        model.train(was_training)
    return total / len(tokens)


def choose_device(device: str) -> torch.device:
    """The device of that name; "auto" is a GPU when there is one, else the CPU.
    ValueError for one that is not there.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device).item()  # no numbers on "meta"
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:  # torch raises either, by build
        wants = 'a device of this machine, such as "auto", "cpu" or "cuda"'
        raise ValueError(f"device: got {device!r}, want {wants}") from error


class Diverged(ValueError):
    """The loss or its gradient is not finite at `step`; `result` is what `train` had
    until then, if anything.
    """

    def __init__(
        self, loss: float, length: float, n: int, config: TrainConfig, step: int
    ) -> None:
        c, self.step = config, step
        self.result: Result | None = None
        batch = f"sample_batch(tokens, {n}, {c.batch_size}, {c.seed}, {step})"
        super().__init__(
            f"loss: got {loss} with a gradient of length {length} at step {step}, batch {batch}; "
            "want finite numbers; try a smaller lr"
        )


def step_seed(seed: int, step: int, stream: int = 0) -> int:
    """A seed for torch's generator in this step; another stream gives other numbers.
    """
    return int(
        np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0]
    )


def steps(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: Int[Tensor, "N"],
    n: int,
    start: int,
    config: TrainConfig,
    *,
    first: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[dict[str, int | float]]:
    """Do steps first, first + 1, … of the run, one each time the next log entry is
    asked for. Seeds torch's generator.

    Of `ranks` processes that share the work, number `rank` does its share of each
    batch. Raises `Diverged`, before the move, when the loss or its gradient is not
    finite.
    """
    place = next(model.parameters()).device
    for step in range(first, config.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        batch = sample_batch(tokens, n, config.batch_size, config.seed, step)
        batch = batch.long().to(place)
        torch.manual_seed(step_seed(config.seed, step))
        read = disturb(shift(batch, start), batch, config.noise)
        mine = torch.arange(len(batch)).chunk(ranks)[rank]
        torch.manual_seed(step_seed(config.seed, step, 1 + rank))  # of dropout
        loss, length = update(model, optimizer, read[mine], batch[mine], config)
        if not math.isfinite(loss + length):
            raise Diverged(loss, length, n, config, step)
        yield {"step": step + 1, "lr": learning_rate(step, config), "loss": loss}


@dataclass(frozen=True)
class Result:
    """What `train` returns: the model with its best weights, in evaluation mode; the
    log, one dict for each step; the seconds that the steps took.
    """

    model: TransformerLM
    log: list[dict[str, int | float]]
    seconds: float

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
    """Whether the held-out loss is measured after this many updates: every
    `eval_every`, and at the end.
    """
    return step % config.eval_every == 0 or step == config.steps


def with_weights(
    config: Config, weights: Mapping[str, Tensor], device: torch.device
) -> TransformerLM:
    """A model with these weights, in evaluation mode; no random number is drawn that
    anyone could miss.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        model = TransformerLM(config).to(device)
    model.load_state_dict(weights)
    return model.eval()


def train(
    config: TrainConfig,
    model_config: Config,
    train_tokens: Int[Tensor, "N"],
    validation_tokens: Int[Tensor, "K"],
    *,
    start: int = 0,
    device: str = "auto",
    progress: bool = True,
    watch: Callable[[int, TransformerLM], None] | None = None,
) -> Result:
    """A new model, trained on windows of max_len tokens, with the weights that were
    best on the held-out tokens.

    `start` is the start marker that every window begins with; `watch(step, model)`
    is called after each measurement. The same arguments give the same weights on the
    same CPU. No global state is changed: torch's random generators are as before.
    ValueError when a text is shorter than one window (train) or empty (validation);
    `Diverged`, a ValueError too, when the loss is no longer finite: its `.result`
    holds the best weights until then.
    """
    place, n = choose_device(device), model_config.max_len
    log: list[dict[str, int | float]] = []
    best: tuple[float, dict[str, Tensor]] = (math.inf, {})
    seconds = 0.0

    def result() -> Result:
        return Result(with_weights(model_config, best[1], place), log, seconds)

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(config.seed)  # of the initial weights
        model = TransformerLM(model_config).to(place).train()
        switch(model, config)
        optimizer = optimizer_for(model, config)
        entries = steps(model, optimizer, train_tokens, n, start, config)
        bar = tqdm(entries, total=config.steps, disable=not progress, unit="step")
        tick = time.perf_counter()
        try:
            for entry in bar:
                seconds += time.perf_counter() - tick
                log.append(entry)
                step = int(entry["step"])
                if due(step, config):
                    loss = evaluate(
                        model, validation_tokens, n, start, context=n // 2
                    )
                    entry["held_out"] = loss
                    bar.set_postfix(
                        loss=f"{entry['loss']:.3f}", held_out=f"{loss:.3f}"
                    )
                    if loss < best[0]:
                        best = (
                            loss,
                            {
                                k: w.detach().clone()
                                for k, w in model.state_dict().items()
                            },
                        )
                    if watch:
                        watch(step, model)
                tick = time.perf_counter()
        except Diverged as error:
            error.result = result() if best[1] else None
            raise
    return result()


# --- The book's model


@dataclass(frozen=True)
class Size:
    """Sizes that suit an amount of text."""

    vocab_size: int
    d_model: int
    layers: int
    heads: int
    context: int
    batch_size: int
    steps: int
    noise: float


def fit_size(n_bytes: int) -> Size:
    """The sizes that `train_from_file` chooses for a text of that many bytes: rules
    of thumb, each can be overruled.
    """
    if n_bytes < 50_000:
        return Size(
            vocab_size=512,
            d_model=64,
            layers=2,
            heads=2,
            context=64,
            batch_size=8,
            steps=800,
            noise=0.15,
        )
    if n_bytes < 1_000_000:
        return Size(
            vocab_size=1024,
            d_model=128,
            layers=4,
            heads=4,
            context=128,
            batch_size=8,
            steps=1400,
            noise=0.15,
        )
    if n_bytes < 20_000_000:
        return Size(
            vocab_size=4096,
            d_model=256,
            layers=6,
            heads=8,
            context=256,
            batch_size=16,
            steps=4000,
            noise=0.0,
        )
    return Size(
        vocab_size=8192,
        d_model=384,
        layers=6,
        heads=6,
        context=256,
        batch_size=32,
        steps=20000,
        noise=0.0,
    )


def model_for(size: Size, vocab_size: int) -> Config:
    """The model that this chapter trains, in a given size."""
    return Config(
        vocab_size,
        d_model=size.d_model,
        d_ff=4 * size.d_model,
        n_layers=size.layers,
        n_heads=size.heads,
        max_len=size.context,
        embed_scale=True,
        eps=1e-5,
        eps_mode="inside",
        dropout=0.2,
    )


def recipe(size: Size, **changes: Any) -> TrainConfig:
    """How this chapter trains a model of that size; `changes` overrule single fields.
    """
    steps = int(changes.get("steps", size.steps))
    fitted: dict[str, Any] = {
        "steps": steps,
        "batch_size": size.batch_size,
        "noise": size.noise,
        "lr": 1.5e-3,
        "weight_decay": 0.3,
        "warmup": min(50, steps // 10),
        "eval_every": max(1, steps // 12),
    }
    return TrainConfig(**fitted | changes)


def flops_per_token(config: Config, n: int) -> int:
    """Operations of one training step for each token, in windows of n: 3 (2P + 4 L n
    h d_head), P entries of matrices.

    The gradient costs twice the model itself. The mask is not subtracted;
    recomputation is not added.
    """
    c = config
    d, hk = c.d_model, c.n_heads * (c.d_head or c.d_model // c.n_heads)
    P = c.n_layers * (4 * d * hk + 2 * d * c.d_ff) + d * c.vocab_size
    return 3 * (2 * P + 4 * c.n_layers * n * hk)


def product_rate(device: torch.device, dtype: str = "float32") -> float:
    """Operations a second that a product of two large matrices reaches on this
    device: the best of several.
    """
    size = 8192 if device.type == "cuda" else 768
    A = torch.ones(size, size, device=device, dtype=getattr(torch, dtype))
    seconds = []
    for _ in range(6):
        tick = time.perf_counter()
        (A @ A)[0, 0].item()  # a GPU is waited for
        seconds.append(time.perf_counter() - tick)
    return 2 * size**3 / min(seconds)


# --- Files that last


def free_folder(folder: str | os.PathLike[str]) -> Path:
    """The path, when nothing is there yet; FileExistsError otherwise."""
    path = Path(folder)
    expects(
        not path.exists(),
        "folder",
        f"{str(path)!r}, which exists",
        "a folder that does not exist yet",
        FileExistsError,
    )
    return path


def save(
    folder: str | os.PathLike[str],
    model: TransformerLM,
    tokenizer: Tokenizer,
    *,
    config: TrainConfig | None = None,
    log: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write config.json, model.safetensors, tokenizer.json and, when there is a log,
    log.jsonl into a new folder.

    They are written into a folder beside it that is renamed at the end: the folder
    is there complete or not at all. FileExistsError when it exists already;
    ValueError when model and tokenizer do not fit together or a weight is not
    finite.
    """
    path = free_folder(folder)
    V = model.config.vocab_size
    expects(
        len(tokenizer) == V,
        "tokenizer",
        f"{len(tokenizer)} tokens",
        f"the model's vocab_size = {V}",
    )
    for name, w in stored_weights(model).items():
        expects(
            finite(w),
            "model",
            f"{name} with numbers that are not finite",
            "finite weights",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        settings = {
            "model": dataclasses.asdict(model.config),
            "training": dataclasses.asdict(config) if config else None,
        }
        (part / "config.json").write_text(
            json.dumps(settings, indent=2) + "\n", encoding="utf-8"
        )
        write_tensors(part / "model.safetensors", stored_weights(model))
        tokenizer.save(part / "tokenizer.json")
        if log:
            lines = "".join(json.dumps(dict(entry)) + "\n" for entry in log)
            (part / "log.jsonl").write_text(lines, encoding="utf-8")
        part.rename(free_folder(path))
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def stored_weights(model: TransformerLM) -> dict[str, Tensor]:
    """The weights as a file holds them: on the CPU, a tied matrix once."""
    weights = {
        name: w.detach().cpu().contiguous() for name, w in model.state_dict().items()
    }
    if model.config.tied:
        del weights["unembedding.weight"]  # it is the embedding table
    return weights


def finite(w: Float[Tensor, "*shape"]) -> bool:
    """Whether all numbers are finite: their sum tells, unless it overflows."""
    return bool(w.sum().isfinite()) or bool(w.isfinite().all())


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file; OSError when it cannot be written, for instance on a full
    disk.
    """
    try:
        save_file(dict(tensors), file)
    except SafetensorError as error:
        raise OSError(f"{file}: {error}") from error


def fitting(settings: type[Any], fields: Mapping[str, Any], file: Path) -> Any:
    """`settings(**fields)`, for fields read from a file; ValueError that names the
    file and the field that does not fit.
    """
    names = [field.name for field in dataclasses.fields(settings)]
    unknown = [name for name in fields if name not in names]
    missing = [
        f.name
        for f in dataclasses.fields(settings)
        if f.default is dataclasses.MISSING and f.name not in fields
    ]
    expects(
        not missing,
        f"{file}",
        f"no field {missing[:1]}",
        f"the fields of {settings.__name__}: {', '.join(names)}",
    )
    expects(
        not unknown,
        f"{file}",
        f"the unknown field {unknown[:1]}",
        f"the fields of {settings.__name__}: {', '.join(names)}",
    )
    try:
        return settings(**fields)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def load(
    folder: str | os.PathLike[str], device: str = "cpu"
) -> tuple[TransformerLM, Tokenizer]:
    """(model, tokenizer) from a folder that `save` wrote; the model is in evaluation
    mode.

    FileNotFoundError for a missing folder or file; ValueError for a file that is
    broken, has an unknown field, or holds weights of other names or shapes or
    weights that are not finite. No code is run from any file.
    """
    path, place = Path(folder), choose_device(device)
    expects(
        path.is_dir(),
        "folder",
        f"no folder at {str(path)!r}",
        "a folder that `save` wrote",
        FileNotFoundError,
    )
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        expects(
            (path / name).is_file(),
            "folder",
            f"{str(path)!r} without {name}",
            "a folder that `save` wrote",
            FileNotFoundError,
        )
    tokenizer = Tokenizer.load(path / "tokenizer.json")
    config = read_config(path / "config.json")
    V = config.vocab_size
    expects(
        len(tokenizer) == V,
        "tokenizer.json",
        f"{len(tokenizer)} tokens",
        f"vocab_size = {V} of config.json",
    )
    model = without_numbers(config)
    read_weights(model, path / "model.safetensors")
    return model.to(place).eval(), tokenizer


def without_numbers(config: Config) -> TransformerLM:
    """A model whose weights have shapes and no numbers yet, so that none are drawn
    only to be replaced.
    """
    with torch.device("meta"):
        model = TransformerLM(config)
    c = config  # positions that are computed, not stored
    if c.pe in ("sinusoidal", "none"):
        model.position = PositionalEncoding(c.max_len, c.d_model, c.pe, c.pe_start)
    return model


def read_config(file: Path) -> Config:
    """The model's settings in a config.json; ValueError when it is no such file."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{file}: got no JSON ({error}), want what `save` wrote"
        ) from error
    right = isinstance(fields, dict) and isinstance(fields.get("model"), dict)
    expects(right, f"{file}", 'no table "model"', "what `save` wrote")
    return fitting(Config, fields["model"], file)


def read_weights(model: TransformerLM, file: Path) -> None:
    """Give the model the tensors of a safetensors file; ValueError when they do not
    fit or are not finite.
    """
    try:
        weights = load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file}: got no safetensors file ({error}), want what `save` wrote"
        ) from error
    wanted, tied = model.state_dict(), model.config.tied
    if tied:
        del wanted["unembedding.weight"]
    expects(
        weights.keys() == wanted.keys(),
        f"{file}",
        f"other weights: {sorted(weights.keys() ^ wanted.keys())[:3]}",
        "the weights that config.json describes",
    )
    for name, w in weights.items():
        shape = tuple(wanted[name].shape)
        for right, got, want in (
            (w.shape == shape, f"of shape {tuple(w.shape)}", f"{shape}"),
            (w.is_floating_point(), f"of type {w.dtype}", "floating point weights"),
        ):
            expects(right, f"{file}", f"{name} {got}", want)
        bad = f"{name} with numbers that are not finite"
        expects(finite(w), f"{file}", bad, "finite weights")
    if tied:
        weights["unembedding.weight"] = weights["embedding.table.weight"]
    model.load_state_dict(weights, assign=True)
    model.to(next(iter(weights.values())).dtype)  # what is computed, too
    if tied:  # one parameter again, not two of the same numbers
        model.unembedding.weight = model.embedding.table.weight


# --- From a text file to a model


LEAST_BYTES = 4096  # of text; less gives no model worth the name


def read_text(path: str | os.PathLike[str], at_least: int = LEAST_BYTES) -> str:
    """The text of a UTF-8 file, its line ends made "\\n", without a byte order mark.

    FileNotFoundError for no file; ValueError for a folder, for bytes that are no
    UTF-8 (with the place of the first), and for fewer than `at_least` bytes.
    """
    path = Path(path)
    expects(
        path.exists(),
        "path",
        f"no file at {str(path)!r}",
        "a text file",
        FileNotFoundError,
    )
    expects(not path.is_dir(), "path", f"the folder {str(path)!r}", "a text file")
    data = path.read_bytes()
    text = decoded(data, path)
    expects(
        len(data) >= at_least,
        "path",
        f"{len(data)} bytes in {str(path)!r}",
        f"at least {at_least} bytes of text",
    )
    return text


def decoded(data: bytes, path: Path, first: int = 0) -> str:
    """The text of these bytes, which stand at place `first` of the file: errors and
    changes as in `read_text`.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = first + error.start
        bad = f"the byte 0x{data[error.start]:02x} at position {place} of {str(path)!r}, which is not UTF-8"
        raise ValueError(f"path: got {bad}; want a text file in UTF-8") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


MARKS = re.compile(r"<\|endoftext\|>|\f")


def split_text(text: str, size: int = 4000) -> list[str]:
    """One text as documents.

    Where the text holds marks between documents, `<|endoftext|>` or a form feed, it
    is cut there. Otherwise paragraphs (separated by blank lines) are put together
    until a document has `size` characters, or a twentieth of the text if that is
    less; a paragraph longer than this is cut, at a white space where there is one.

    >>> split_text("one\\ftwo")
    ['one', 'two']
    """
    marked = [part.strip() for part in MARKS.split(text) if part.strip()]
    if len(marked) >= 2:
        return marked
    size = max(1, min(size, len(text) // 20))
    grouped: list[str] = []
    group = ""
    for paragraph in re.split(r"\n\s*\n", text):
        for piece in cut(paragraph.strip("\n"), size):
            group = f"{group}\n\n{piece}" if group else piece
            if len(group) >= size:
                grouped, group = [*grouped, group], ""
    return [part for part in [*grouped, group] if part.strip()]


def cut(paragraph: str, size: int) -> list[str]:
    """Pieces of at most `size` characters, cut at the last white space before that
    where there is one.

    >>> cut("to be or not", 6)
    ['to be', 'or not']
    """
    pieces = []
    while len(paragraph) > size:
        space = max(paragraph.rfind(sign, 1, size + 1) for sign in " \n\t")
        end = space if space > 0 else size
        pieces.append(paragraph[:end])
        paragraph = paragraph[end:].lstrip()
    return [*pieces, paragraph] if paragraph else pieces


@dataclass(frozen=True)
class Report:
    """What came out of a training run; `str(report)` is the summary that the command
    prints.
    """

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
    utilisation: float

    def bits_per_byte(self, loss: float) -> float:
        """A loss on this run's held-out text in bits per byte."""
        return bits_per_byte(loss, self.held_out_tokens, self.held_out_bytes)

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
            *(
                f"  {name:38}  {loss:14.3f}  {self.bits_per_byte(loss):13.3f}"
                for name, loss in rows.items()
            ),
            f"speed: {self.tokens_per_second:,.0f} tokens per second, {100 * self.utilisation:.0f} % of what products of large matrices reach here",
            f"files: {self.folder}{os.sep}config.json, model.safetensors, tokenizer.json, log.jsonl",
        ]
        better = [name for name, loss in list(rows.items())[1:] if self.loss >= loss]
        if better:
            note = f"note: the {better[0]} model is as good or better; more text or more steps may help"
            lines.insert(-2, note)
        return "\n".join(lines)


TOKENIZER_TEXT = 5_000_000  # characters at most from which the tokenizer is learned


def learn_tokenizer(texts: Sequence[str], vocab_size: int, seed: int) -> Tokenizer:
    """A tokenizer learned from the texts, or from a random choice of them where they
    are long.
    """
    chosen, length = [], 0
    for i in np.random.default_rng(seed).permutation(len(texts)):
        if length < TOKENIZER_TEXT:
            chosen.append(texts[i])
            length += len(texts[i])
    return Tokenizer.train(chosen, vocab_size)


def train_and_save(
    texts: Sequence[str],
    out: str | os.PathLike[str],
    size: Size,
    config: TrainConfig,
    *,
    device: str = "auto",
    progress: bool = True,
) -> Report:
    """The whole job: split, tokenizer, model, training, files. The tokenizer too
    learns from the training part alone.

    Errors as in `train` and `save`; the folder `out` must not exist.
    """
    # a place that cannot be written is found now, not at the end
    free_folder(out).parent.mkdir(parents=True, exist_ok=True)
    choose_device(device)
    model_for(size, size.vocab_size)  # wrong sizes are found before the work begins
    train_texts, held_out_texts = split_documents(
        texts, config.validation, config.seed
    )
    tokenizer = learn_tokenizer(train_texts, size.vocab_size, config.seed)
    reading = tqdm(
        train_texts,
        desc="tokens",
        unit="document",
        disable=not progress,
        leave=False,
    )
    known, held_out = (
        encode_corpus(tokenizer, reading),
        encode_corpus(tokenizer, held_out_texts),
    )
    V, start = len(tokenizer), tokenizer.start
    result = train(
        config,
        model_for(size, V),
        known,
        held_out,
        start=start,
        device=device,
        progress=progress,
    )
    folder = save(out, result.model, tokenizer, config=config, log=result.log)
    bytes_held_out = sum(len(t.encode()) for t in held_out_texts)
    return report(
        folder, len(texts), known, held_out, bytes_held_out, result, config, start
    )


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
    place, text = next(result.model.parameters()).device, known[:COUNTED]
    read = len(result.log) * config.batch_size * c.max_len
    speed = read / max(result.seconds, 1e-9)
    return Report(
        folder,
        n_documents,
        len(known),
        len(held_out),
        bytes_held_out,
        sum(p.numel() for p in result.model.parameters()),
        config.steps,
        step,
        loss,
        trigram(text, held_out, c.vocab_size, start),
        bigram(text, held_out, c.vocab_size, start),
        unigram(text, held_out, c.vocab_size),
        speed,
        speed * flops_per_token(c, c.max_len) / product_rate(place, config.dtype),
    )


def train_from_file(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    device: str = "auto",
    progress: bool = True,
    **choices: object,
) -> Report:
    """Train a model on a text file and save it in the new folder `out`.

    `choices` overrule `fit_size` (vocab_size, d_model, layers, heads, context) and
    `recipe` (any field of `TrainConfig`). Errors: those of `read_text`, `train` and
    `save`; ValueError for an unknown choice.
    """
    free_folder(out)
    text = read_text(data)
    return train_and_save(
        split_text(text),
        out,
        *plan(len(text.encode()), **choices),
        device=device,
        progress=progress,
    )


def plan(n_bytes: int, **choices: Any) -> tuple[Size, TrainConfig]:
    """The size and the recipe for that much text, with single choices overruled.

    ValueError for a choice with another name, or a size below 1.
    """
    of_size = {field.name for field in dataclasses.fields(Size)}
    of_recipe = {field.name for field in dataclasses.fields(TrainConfig)}
    unknown = sorted(choices.keys() - of_size - of_recipe)
    expects(
        not unknown, "choices", unknown, f"names among {sorted(of_size | of_recipe)}"
    )
    size = dataclasses.replace(
        fit_size(n_bytes), **{k: v for k, v in choices.items() if k in of_size}
    )
    expects_positive(
        **{
            name: value
            for name, value in dataclasses.asdict(size).items()
            if name != "noise"
        }
    )
    return size, recipe(size, **{k: v for k, v in choices.items() if k in of_recipe})


def train_book(
    out: str | os.PathLike[str],
    *,
    device: str = "cpu",
    progress: bool = True,
    **choices: object,
) -> Report:
    """Make the model that the package ships: the book's corpus, the sizes and
    settings that `plan` suggests, seed 0; `choices` as in `train_from_file`.
    """
    texts = documents()
    return train_and_save(
        texts,
        out,
        *plan(sum(len(t.encode()) for t in texts), **choices),
        device=device,
        progress=progress,
    )


def shipped(device: str = "cpu") -> tuple[TransformerLM, Tokenizer]:
    """(model, tokenizer): the small English model that comes with the package, made
    by `train_book`.
    """
    with resources.as_file(resources.files("tlm_book") / "data" / "model") as folder:
        return load(folder, device)
