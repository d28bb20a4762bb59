"""What a head does. Generated from book/heads.ipynb: edit the notebook, then `make export`."""

import copy
import os
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from tlm_book.checks import expects, expects_positive, expects_shape
from tlm_book.corpora.rhyming import OTHERS, WORDS, rhymes
from tlm_book.files import free_folder
from tlm_book.modes import evaluating
from tlm_book.multi_head import split_heads
from tlm_book.positional_encoding import sinusoidal_table
from tlm_book.tokenization import GPT2_PATTERN, Tokenizer
from tlm_book.training import (
    TrainConfig,
    due,
    encode_corpus,
    iter_steps,
    optimizer_for,
    save,
)
from tlm_book.training.folder import load_data
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = [
    "rhyme_tokenizer",
    "new_rhyme_model",
    "train_rhymes",
    "shipped_rhymes",
    "previous_token_score",
    "duplicate_token_score",
    "induction_score",
    "word_tokens",
    "said_twice",
    "head_scores",
    "knock_out",
    "mean_rows",
    "logit_lens",
    "head_matrices",
]


# --- A model that reads rhymes


def rhyme_tokenizer() -> Tokenizer:
    """A tokenizer for which each word of `rhymes` is one token."""
    words = "".join(f" {word}" for word in WORDS + OTHERS)
    # 387 merges: just enough to make each word one token
    return Tokenizer.train([words] * 2, 644, pattern=GPT2_PATTERN, progress=False)


def new_rhyme_model(vocab_size: int) -> TransformerLM:
    """A small GPT-2 before training: random token rows, short waves as positions."""
    config = Config.gpt2(
        vocab_size, d_model=64, d_ff=128, n_layers=2, n_heads=4, max_len=64
    )
    model = TransformerLM(config)
    waves = sinusoidal_table(3 * config.max_len, config.d_model, base=30.0)
    with torch.no_grad():
        model.embedding.table.weight.normal_(std=0.05)
        model.position.table.copy_(0.05 * waves[::3])
    return model


def train_rhymes(
    out: str | os.PathLike[str],
    *,
    n_steps: int = 4000,
    n_texts: int = 8000,
    progress: bool = True,
) -> Path:
    """Train the model that `shipped_rhymes` loads and save it in the new folder `out`;
    on one CPU thread this takes some three minutes. The log has the scores of all
    heads.

    FileExistsError if the folder exists.
    """
    free_folder(out, "out")
    tokenizer = rhyme_tokenizer()
    tokens = encode_corpus(tokenizer, rhymes(n_texts, seed=0))
    recipe = TrainConfig(
        steps=n_steps,
        batch_size=32,
        lr=3e-3,
        warmup=min(50, n_steps),
        min_lr=0.05,
        eval_every=50,
    )
    log, probe = [], said_twice(word_tokens(tokenizer), 24, 16, tokenizer.start)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = new_rhyme_model(len(tokenizer))
        optimizer = optimizer_for(model, recipe)
        entries = iter_steps(model, optimizer, tokens, 64, tokenizer.start, recipe)
        for entry in tqdm(entries, total=n_steps, disable=not progress, unit="step"):
            if due(int(entry["step"]), recipe):
                scores = head_scores(model, probe)
                log.append(entry | {k: v.tolist() for k, v in scores.items()})
    return save(model.eval(), out, tokenizer, config=recipe, log=log)


def shipped_rhymes(device: str = "cpu") -> tuple[TransformerLM, Tokenizer]:
    """(model, tokenizer): the small model of rhymes that comes with the package,
    trained by `train_rhymes`.
    """
    return load_data("rhymes", device)


# --- Three scores


def previous_token_score(A: Float[Tensor, "*heads n n"]) -> Float[Tensor, "*heads"]:
    """The mean of A[i, i−1] over i = 1, …, n−1, for each head. (T-head-scores)

    ValueError if n < 2, or if A is not square.

    >>> previous_token_score(torch.tensor([[1.0, 0.0], [0.25, 0.75]]))
    tensor(0.2500)
    """
    expects_shape("A", A, (A.shape[-1], "n"))
    expects(A.shape[-1] >= 2, "A", f"{A.shape[-1]} rows", "at least 2")
    return A.diagonal(-1, -2, -1).mean(-1)


def _weight_on(
    places: Bool[Tensor, "n n"], A: Float[Tensor, "*heads n n"]
) -> Float[Tensor, "*heads"]:
    """The mean weight that rows give to their places, over the rows that have any."""
    expects_shape("A", A, places.shape)
    rows = places.any(-1)
    expects(rows.any(), "tokens", "no token that comes twice", "at least one")
    return (A * places).sum(-1)[..., rows].mean(-1)


def duplicate_token_score(
    A: Float[Tensor, "*heads n n"], tokens: Int[Tensor, "n"]
) -> Float[Tensor, "*heads"]:
    """The mean weight on earlier copies of a row's own token, for each head.
    (T-head-scores)

    ValueError if no token comes twice, or if A and tokens do not fit together.
    """
    return _weight_on((tokens[:, None] == tokens).tril(-1), A)


def induction_score(
    A: Float[Tensor, "*heads n n"], tokens: Int[Tensor, "n"]
) -> Float[Tensor, "*heads"]:
    """The mean weight on the places right after earlier copies of a row's own token,
    for each head. (T-head-scores)

    Errors as for `duplicate_token_score`.
    """
    earlier = (tokens[:, None] == tokens).tril(-1)
    return _weight_on(F.pad(earlier[:, :-1], (1, 0)), A)  # one column to the right


def word_tokens(tokenizer: Tokenizer) -> Int[Tensor, "w"]:
    """The tokens of the words of `rhymes`, each with the space before it.

    ValueError if one of them is not one token.
    """
    tokens = [tokenizer.encode(f" {word}") for word in WORDS]
    parts = max(map(len, tokens))
    expects(parts == 1, "tokenizer", f"a word of {parts} tokens", "one for each word")
    return torch.tensor(tokens)[:, 0]


def said_twice(
    pool: Int[Tensor, "w"], m: int, copies: int, start: int, seed: int = 0
) -> Int[Tensor, "copies n"]:
    """Texts of n = 2m + 1 tokens: the start marker, then m different random tokens of
    the pool, then the same m again. (T-said-twice)

    ValueError if the pool, without the start marker, has fewer than m tokens.
    """
    expects_positive(m=m, copies=copies)
    known = pool.unique()
    known = known[known != start]
    expects(
        len(known) >= m, "m", m, f"at most {len(known)}, the number of tokens"
    )
    rng = torch.Generator().manual_seed(seed)
    draw = partial(torch.randperm, len(known), generator=rng, device="cpu")
    said = torch.stack([known[draw()[:m].to(known.device)] for _ in range(copies)])
    return torch.cat([said.new_full((copies, 1), start), said, said], dim=1)


@torch.no_grad()
def head_scores(
    model: TransformerLM, texts: Int[Tensor, "copies n"]
) -> dict[str, Float[Tensor, "L h"]]:
    """The three scores of every head, each the mean over the texts.

    ValueError if there is no text, or one in which no token comes twice.
    """
    right, got = texts.dim() == 2 and len(texts), f"shape {tuple(texts.shape)}"
    expects(right, "texts", got, "at least one text, (copies, n)")
    patterns = model.attention_weights(texts).transpose(0, 1)  # (copies, L, h, n, n)
    scores = {
        "previous": [previous_token_score(A) for A in patterns],
        "duplicate": [duplicate_token_score(A, t) for A, t in zip(patterns, texts)],
        "induction": [induction_score(A, t) for A, t in zip(patterns, texts)],
    }
    return {name: torch.stack(of_texts).mean(0) for name, of_texts in scores.items()}


# --- Without a head


@torch.no_grad()
def knock_out(
    model: TransformerLM,
    *heads: tuple[int, int],
    rows: Float[Tensor, "L h k"] | None = None,
) -> TransformerLM:
    """A copy of the model in which each of the heads (layer, head) has the output
    rows[layer, head] in every row; 0 without `rows`. (T-knock-out)

    IndexError for a head that does not exist, TypeError for anything but a pair of
    whole numbers; ValueError for rows of another shape, and for rows if the attention
    layers have no output bias that could hold them.
    """
    c, other = model.config, copy.deepcopy(model)
    _expects_heads(c, heads, rows)
    for layer, head in {*heads}:
        out = other.blocks[layer].attention.out
        W = out.weight.unflatten(1, (c.n_heads, -1))[:, head]  # (d, k), a view
        if rows is not None:
            out.bias += W @ rows[layer, head].to(W)
        W.zero_()
    return other


def _expects_heads(
    c: Config, heads: tuple[tuple[int, int], ...], rows: Tensor | None
) -> None:
    if rows is not None:
        shape = (c.n_layers, c.n_heads, c.head_width)
        got = f"shape {tuple(rows.shape)}"
        expects(tuple(rows.shape) == shape, "rows", got, f"{shape}")
        expects(c.out_bias, "rows", "rows", "None: this model has no output bias")
    for pair in heads:
        right = isinstance(pair, tuple) and len(pair) == 2
        right = right and all(hasattr(number, "__index__") for number in pair)
        right = right and not any(isinstance(number, bool) for number in pair)
        expects(right, "heads", repr(pair), "a pair (layer, head)", TypeError)
        _expects_head(c, "heads", pair)


def _expects_head(c: Config, argument: str, pair: tuple[int, int]) -> None:
    layer, head = pair
    there = 0 <= layer < c.n_layers and 0 <= head < c.n_heads
    wants = f"a layer below {c.n_layers} and a head below {c.n_heads}"
    expects(there, argument, pair, wants, IndexError)


@torch.no_grad()
def mean_rows(
    model: TransformerLM, texts: Int[Tensor, "copies n"]
) -> Float[Tensor, "L h k"]:
    """The mean of H_i over all rows of the texts, for every head of every block: the
    rows with which `knock_out` removes what varies from row to row. (T-knock-out)

    ValueError if there is no row.
    """
    expects(
        texts.numel(), "texts", f"shape {tuple(texts.shape)}", "at least one row"
    )
    with evaluating(model):
        _, cache = model.run_with_cache(texts, "blocks.*.attention.heads")
    of_rows = [H.transpose(-3, -2).flatten(0, -3) for H in cache.values()]
    return torch.stack([H.mean(0) for H in of_rows])


# --- Looking inside


def logit_lens(
    model: TransformerLM, tokens: Int[Tensor, "*batch n"]
) -> Float[Tensor, "L1 *batch n V"]:
    """Φ(N(X_l)) for l = 0, …, L: the last layers applied to the residual stream before
    each block and after the last. (T-logit-lens)

    Errors as for the model.
    """
    with evaluating(model):
        streams = torch.stack(model.residual_stream(tokens))
    return model.unembedding(model.norm(streams))


# --- A head as two tables of words


def head_matrices(
    model: TransformerLM, layer: int, head: int
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    """(W_QK, W_OV) of one head: W_Q W_Kᵀ times the scale of the scores, and W_V W_O;
    biases are left out. (T-qk-ov, T-token-tables)

    With rotary positions W_QK gives the scores between rows at equal positions; at
    others a rotation stands between W_Q and W_Kᵀ. With normalized queries and keys no
    matrix gives the scores: W_QK leaves the normalization out. IndexError for a head
    that does not exist.
    """
    c = model.config
    _expects_head(c, "layer, head", (layer, head))
    CA = model.blocks[layer].attention
    Q, K, V = split_heads(CA.qkv.weight.detach(), c.n_heads, c.kv_heads)
    shared = head * c.kv_heads // c.n_heads  # the keys and values that this head reads
    W_Q, W_K, W_V = Q[head], K[shared], V[shared]
    W_O = CA.out.weight.detach().T.unflatten(0, (c.n_heads, -1))[head]
    return CA.score_scale * W_Q @ W_K.T, W_V @ W_O
