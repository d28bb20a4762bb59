"""Graders for the exercises of the chapter pretrained."""

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.spec.multi_head import multi_head
from tlm_book.spec.operators import agree
from tlm_book.transformer_lm import Config, count_parameters


def taken_apart(C: np.ndarray, h: int) -> np.ndarray:
    """The columns in order: first all queries, then all keys, then all values, each with the heads one after the other."""
    d = len(C)
    k = d // h
    W = np.zeros((3, h, d, k))
    for part in range(3):
        for i in range(h):
            for j in range(k):
                W[part, i, :, j] = C[:, part * d + i * k + j]
    return W


def needless() -> set[str]:
    """The biases that can be left out, found by leaving out each one in a layer with random weights."""
    rng = np.random.default_rng(0)
    w = {"W_Q": rng.normal(size=(2, 6, 3)), "W_K": rng.normal(size=(2, 6, 3)), "W_V": rng.normal(size=(2, 6, 3))}
    b = {"b_Q": rng.normal(size=(2, 3)), "b_K": rng.normal(size=(2, 3)), "b_V": rng.normal(size=(2, 3))}
    X, W_O, b_O = rng.normal(size=(5, 6)), rng.normal(size=(6, 6)), rng.normal(size=6)
    layer = lambda b: multi_head(X, w["W_Q"], w["W_K"], w["W_V"], W_O, b_O, **b)
    return {name for name, kind in (("query", "b_Q"), ("key", "b_K"), ("value", "b_V")) if agree(layer(b | {kind: 0 * b[kind]}), layer(b), 1e-9)}


def size_and_share() -> tuple[int, float]:
    count = count_parameters(Config.gpt2(d_model=1600, d_ff=6400, n_layers=48, n_heads=25))
    return 4 * count, 50_257 * 1600 / count


EXERCISES = [
    function(
        "a function `apart(C, h)` that cuts an array like `c_attn.weight`, of shape (d, 3d), as GPT-2 does, into W_Q, W_K and W_V, each of shape"
        " (h, d, k) with k = d / h",
        [(np.random.default_rng(h).normal(size=(4 * h, 12 * h)), h) for h in (3, 1, 2)],
        taken_apart,
        {
            "Here the heads come first and the kinds second, which is right for one head only.":
                lambda C, h: C.reshape(len(C), h, 3, -1).transpose(2, 1, 0, 3),
            "The columns of one head stand side by side: h first, then k.": lambda C, h: C.reshape(len(C), 3, -1, h).transpose(1, 3, 0, 2),
            "Keys and queries are exchanged.": lambda C, h: taken_apart(C, h)[[1, 0, 2]],
            "The pieces of the transpose are k × d: transpose each to d × k, do not reshape it.": lambda C, h: C.T.reshape(3, h, len(C), -1),
        },
        through=lambda out, C, h: np.stack([np.asarray(W) for W in out]),
    ),
    value(
        'the set of those of "query", "key", "value" whose biases can be dropped',
        needless,
        {
            "A query bias b adds b·k to the score of each key k: that is not the same for all keys.": {"query", "key"},
            "The weights sum to 1, so a value bias comes out as it is, and is not lost.": {"key", "value"},
            "Look at row i of the scores: what in it is the same for all keys?": {"query"},
            "One can be dropped: softmax sees only differences.": set(),
        },
    ),
    value(
        "a pair: the number of bytes, and the share that is the table of tokens (to three decimals)",
        size_and_share,
        {
            "Embedding and unembedding are one table.": (4 * (1_557_611_200 + 50_257 * 1600), 50_257 * 1600 / (1_557_611_200 + 50_257 * 1600)),
            "A float32 has four bytes.": (2 * 1_557_611_200, 50_257 * 1600 / 1_557_611_200),
            "This is the number of weights; bytes are wanted.": (1_557_611_200, 50_257 * 1600 / 1_557_611_200),
            "The share is in per cent; a number between 0 and 1 is wanted.": (4 * 1_557_611_200, 100 * 50_257 * 1600 / 1_557_611_200),
        },
        tol=5e-4,
    ),
    function(
        "a function `inside(sigma, eps)`: the ε inside the root that does to a row of spread sigma what eps does outside",
        [(1.0, 0.1), (2.0, 1e-3), (0.1, 0.5), (10.0, 1e-5)],
        lambda sigma, eps: 1 / (sigma + eps),
        {
            "This does not depend on the spread; what is wanted does.": lambda sigma, eps: eps,
            "The square of a sum has a middle term.": lambda sigma, eps: eps**2,
            "The square of eps is missing: this is nearly right when eps is small.": lambda sigma, eps: 2 * sigma * eps,
            "This is all that stands under the root, σ² included.": lambda sigma, eps: (sigma + eps) ** 2,
        },
        through=lambda out, sigma, eps: 1 / np.sqrt(sigma**2 + out),
    ),
    value(
        "a pair, in bytes: where the numbers begin, the length of the file",
        lambda: (8 + 64, 8 + 64 + 3 * 4 * 4),
        {
            "Eight bytes before the table of contents say how long it is.": (64, 112),
            "A number in single precision takes four bytes.": (72, 168),
            "The length is wanted in bytes: each of the twelve numbers takes several.": (72, 84),
            "The numbers begin right after the table of contents. Count from 0.": (73, 121),
        },
    ),
    value(
        "the list of the columns",
        lambda: [20, 21, 22, 23],
        {
            "These belong to head 0: among the values, too, the heads stand side by side.": [16, 17, 18, 19],
            "These are keys: the queries come first, then the keys, then the values.": [12, 13, 14, 15],
            "The columns of one head stand together.": [17, 19, 21, 23],
        },
    ),
    value(
        'the set of those of "c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"',
        lambda: {"attn.c_proj"},
        {
            "Compare the numbers of rows and columns: c_attn has three times as many columns.": {"c_attn", "attn.c_proj"},
            "The feed-forward layer is four times as wide inside.": {"attn.c_proj", "mlp.c_proj"},
            "One of them is square.": set(),
        },
    ),
    function(
        "a function `reads(W, R)`: what becomes of a matrix that reads rows, such as $W_Q$",
        lambda rng, n: (rng.normal(size=(3, n)), np.linalg.qr(rng.normal(size=(3, 3)))[0]),
        lambda W, R: R.T @ W,
        {
            "It now reads xR. What must stand in front of W to cancel R?": lambda W, R: R @ W,
            "The rows are turned, but what is computed from them must stay: W has to undo the turn.": lambda W, R: W,
            "This is the transpose of what is wanted: rows stand on the left.": lambda W, R: (R.T @ W).T,
        },
    ),
]
