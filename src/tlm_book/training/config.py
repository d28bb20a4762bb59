"""Every choice that training makes, and the choices that suit an amount of text. Written by hand."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any

from tlm_book.checks import (
    did_you_mean,
    expects,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_switches,
    expects_whole,
    is_whole,
    plain_fields,
    with_suggestions,
)
from tlm_book.onednn import LIBRARIES
from tlm_book.transformer_lm import Config

__all__ = ["PRESETS_RATE", "Size", "TrainConfig", "essays_model", "fit_size", "model_for", "pairs_of", "plan", "recipe", "sizes_up_to"]


_NUMBERS = ("lr", "min_lr", "weight_decay", "clip", "token_noise", "validation")


@with_suggestions
@dataclass(frozen=True)
class TrainConfig:
    """Every choice that training makes, beside the model's own `Config`.

    steps, batch_size     updates, and windows of text in each
    lr, min_lr, warmup    highest learning rate; the last one, as a fraction of the highest; steps until the highest
    schedule              how the rate falls: "cosine" or "linear"
    weight_decay, betas   of AdamW
    clip                  greatest length of the gradient; longer ones are shortened to it
    token_noise           share of the tokens that are replaced by random ones in what the model reads
    seed                  seed of the split, the initial weights, the batches, the noise and dropout
    eval_every            steps between two measurements on the held-out text
    validation            fraction of the documents that is held out; of a few documents in a file it may be more
    dtype                 "float32", or "bfloat16" for matrix products, and the rows between the blocks, in that type (autocast)
    grad_accum_steps      number of parts of a batch, which are processed one after another
    products              torch's library for products of matrices in float32 on a CPU (not compiled): "linear", the usual one; "onednn"; "auto", onednn
                          where a trial finds it clearly quicker
    activation_checkpointing, compile    save memory (intermediate results of a block are recomputed); save time (torch.compile)
    replanned             ((u, S), …): before step u the learning rate is that of a run of S steps; for a run whose length was changed on the way

    Numbers of numpy and torch become Python's own. Errors: ValueError or TypeError, which names the field.
    """

    steps: int = 1000
    batch_size: int = 8
    lr: float = 1.5e-3
    min_lr: float = 0.1
    warmup: int = 50
    schedule: str = "cosine"
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0
    token_noise: float = 0.0
    seed: int = 0
    eval_every: int = 100
    validation: float = 0.1
    dtype: str = "float32"
    products: str = "auto"
    grad_accum_steps: int = 1
    activation_checkpointing: bool = False
    compile: bool = False
    replanned: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        plain_fields(self)
        expects_positive(steps=self.steps, batch_size=self.batch_size, eval_every=self.eval_every, grad_accum_steps=self.grad_accum_steps)
        expects_whole(warmup=self.warmup, seed=self.seed)
        expects_numbers(**{name: getattr(self, name) for name in _NUMBERS})
        expects_switches(activation_checkpointing=self.activation_checkpointing, compile=self.compile)
        for name, right, wants in (
            ("grad_accum_steps", self.grad_accum_steps <= self.batch_size, f"at most batch_size = {self.batch_size}"),
            ("lr", 0 < self.lr < math.inf, "a finite number > 0"),
            ("min_lr", 0 <= self.min_lr <= 1, "a fraction of lr, from 0 to 1"),
            ("warmup", 0 <= self.warmup <= self.steps, f"from 0 to steps = {self.steps} (without a choice it is 50)"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "a finite number ≥ 0"),
            ("betas", _two_shares(self.betas), "two numbers in [0, 1)"),
            ("clip", self.clip > 0, "a number > 0"),
            ("token_noise", 0 <= self.token_noise < 1, "a share in [0, 1)"),
            ("seed", 0 <= self.seed < 2**63, "a whole number from 0 to 2^63 − 1"),
            ("validation", 0 < self.validation < 1, "a fraction between 0 and 1"),
            ("replanned", _ascending(self.replanned, self.steps), f"pairs (step, steps) with steps that grow, below {self.steps}"),
        ):
            expects(right, name, getattr(self, name), wants)
        object.__setattr__(self, "betas", tuple(map(float, self.betas)))  # since torch's optimizers take no whole number beside another
        expects_one_of("dtype", self.dtype, ("float32", "bfloat16"))
        expects_one_of("products", self.products, LIBRARIES)
        expects_one_of("schedule", self.schedule, ("cosine", "linear"))

    def steps_at(self, step: int) -> int:
        """The planned length of the run when this step was done, which determined its learning rate.

        >>> TrainConfig(steps=80, replanned=((40, 100),)).steps_at(39)
        100
        """
        return next((steps for until, steps in self.replanned if step < until), self.steps)


def _is_pair(got: Any) -> bool:
    return isinstance(got, tuple | list) and len(got) == 2


def _two_shares(betas: Any) -> bool:
    return _is_pair(betas) and all(isinstance(b, int | float) and 0 <= b < 1 for b in betas)


def _ascending(pairs: Any, steps: int) -> bool:
    """Whether these are pairs (u, S) of whole numbers with 0 < u ≤ S, the u growing and below `steps`."""
    right = isinstance(pairs, tuple | list)
    right = right and all(_is_pair(pair) and all(map(is_whole, pair)) and 0 < pair[0] <= pair[1] for pair in pairs)
    return right and all(a < b for a, b in itertools.pairwise([*(u for u, _ in pairs), steps]))


def pairs_of(listed: Any) -> tuple[tuple[int, int], ...]:
    """`TrainConfig.replanned` as it comes back from a file."""
    return tuple((int(until), int(steps)) for until, steps in listed)


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
    token_noise: float


# From small to large
LADDER = (
    Size(512, 64, layers=2, heads=2, context=64, batch_size=8, steps=800, token_noise=0.15),
    Size(1024, 96, layers=3, heads=3, context=96, batch_size=8, steps=1100, token_noise=0.15),
    Size(1024, 128, layers=4, heads=4, context=128, batch_size=8, steps=1400, token_noise=0.15),
    Size(2048, 192, layers=4, heads=6, context=128, batch_size=12, steps=2000, token_noise=0.0),
    Size(2048, 256, layers=4, heads=8, context=128, batch_size=16, steps=3000, token_noise=0.0),
    Size(4096, 256, layers=6, heads=8, context=256, batch_size=16, steps=4000, token_noise=0.0),
    Size(8192, 384, layers=6, heads=6, context=256, batch_size=32, steps=20000, token_noise=0.0),
)

# {upper bound on the bytes of text: the size that suits less text than that}
SIZES = {50_000: LADDER[0], 1_000_000: LADDER[2], 20_000_000: LADDER[5], math.inf: LADDER[6]}


def fit_size(n_bytes: int) -> Size:
    """The sizes that `train_from_file` chooses for a text of that many bytes: rules of thumb, each of which can be overruled."""
    return next(size for bound, size in SIZES.items() if n_bytes < bound)


def sizes_up_to(n_bytes: int) -> list[Size]:
    """The sizes to choose from for this much text if time is short, from small to large: the last is that of `fit_size`, and all have its noise.

    >>> [size.d_model for size in sizes_up_to(200_000)]
    [64, 96, 128]
    """
    most = fit_size(n_bytes)
    below = [size for size in LADDER if (size.d_model, size.layers) < (most.d_model, most.layers)]
    return [*(dataclasses.replace(size, token_noise=most.token_noise) for size in below), most]


MODELS = tuple(name for name, method in vars(Config).items() if isinstance(method, classmethod) and not name.startswith("_"))


def model_for(size: Size, vocab_size: int, preset: str | None = None) -> Config:
    """The model that `train_from_file` trains, in a given size: ours, or one of the preset's kind.

    Ours has rotary positions, gated layers 8/3 as wide inside (so that they have as many weights as plain ones), tied embeddings, no biases
    except in the normalization, and dropout if the text is so short that it is read often. benchmarks/recipe.py shows what each of these gains.

    The sizes of a preset are scaled: heads d/h wide, as many queries to a key, layers 8/3 as wide inside if they are gated, a window of half
    the context. Its dropout is that of ours. ValueError for another preset.
    """
    if preset is not None:
        expects_one_of("preset", preset, MODELS)
        return _of_kind(getattr(Config, preset)(vocab_size), size)
    return Config(
        vocab_size, d_model=size.d_model, d_ff=8 * max(1, round(size.d_model / 3)), n_layers=size.layers, n_heads=size.heads, max_len=size.context,
        pe="rotary", rope_layout="interleaved", pe_start=0, gated=True, activation="silu", ff_bias=False, out_bias=False, unembed_bias=False, tied=True,
        eps=1e-5, eps_mode="inside", dropout=0.2 if size.token_noise else 0.0,
    )  # fmt: skip


def essays_model(size: Size, vocab_size: int) -> Config:
    """The model of the essays that the package ships, in a given size: the one that the overview defines and shows, with dropout.

    It is thus Wojcik's model, with scaled embeddings and ε inside the root; that of `model_for`, in the same size, learns the essays better.
    """
    return Config(
        vocab_size, d_model=size.d_model, d_ff=4 * size.d_model, n_layers=size.layers, n_heads=size.heads, max_len=size.context,
        embed_scale=True, eps=1e-5, eps_mode="inside", dropout=0.2,
    )  # fmt: skip


def _of_kind(usual: Config, size: Size) -> Config:
    """The preset's model in this size."""
    d, h = size.d_model, size.heads
    most = max(1, h * usual.kv_heads // usual.n_heads)  # the number of key heads, in the preset's proportion
    kv_heads = next(g for g in range(most, 0, -1) if h % g == 0)
    return usual.replace(
        d_model=d, d_ff=16 * max(1, round(d / 6)) if usual.gated else 4 * d, n_layers=size.layers, n_heads=h, max_len=size.context,
        d_head=None, n_kv_heads=None if usual.n_kv_heads is None else kv_heads, dropout=0.2 if size.token_noise else 0.0,
        window=None if usual.window is None else max(1, size.context // 2),
    )  # fmt: skip


BEST_RATE, ITS_WIDTH = 4e-3, 128  # for wider models the best rate is lower
PRESETS_RATE = 1.5e-3  # the highest rate that all presets tolerate


def recipe(size: Size, **changes: Any) -> TrainConfig:
    """The settings for training a model of that size; `changes` overrule single fields. benchmarks/recipe.py shows what each choice gains.
    Errors as in `TrainConfig`.
    """
    expects_positive(steps=changes.get("steps", size.steps))
    steps = int(changes.get("steps", size.steps))
    fitted: dict[str, Any] = {
        "steps": steps,
        "batch_size": size.batch_size,
        "token_noise": size.token_noise,
        "lr": BEST_RATE * min(1.0, ITS_WIDTH / size.d_model),
        "min_lr": 0.0,
        "schedule": "linear",
        "weight_decay": 0.3,
        "warmup": min(100, steps // 10),
        "eval_every": max(1, steps // 12),
    }
    return TrainConfig(**fitted | changes)


def plan(n_bytes: int, **choices: Any) -> tuple[Size, TrainConfig]:
    """The size and the settings for that much text, with single choices overruled.

    ValueError for an unknown choice, or a size below 1.
    """
    of_size, of_recipe = ({field.name for field in dataclasses.fields(kind)} for kind in (Size, TrainConfig))
    unknown = sorted(choices.keys() - of_size - of_recipe)
    known = sorted(of_size | of_recipe)
    nearest = did_you_mean(unknown[0], known) if unknown else ""
    expects(not unknown, "choices", unknown, f"names among {known}{nearest}")
    size = dataclasses.replace(fit_size(n_bytes), **{k: v for k, v in choices.items() if k in of_size})
    expects_positive(**{name: value for name, value in dataclasses.asdict(size).items() if name != "token_noise"})
    return size, recipe(size, **{k: v for k, v in choices.items() if k in of_recipe})
