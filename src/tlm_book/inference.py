"""Using the model: one token after another. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.checks import expects, expects_length, expects_shape, expects_tokens
from tlm_book.tokenization import Tokenizer
from tlm_book.transformer_lm import TransformerLM

__all__ = [
    "window",
    "distribution",
    "last_scores",
    "quantiles",
    "draw",
    "generate",
    "complete",
]


# inference: The implementation
def window(
    tokens: Int[Tensor, "*batch n"], max_len: int, start: int | None
) -> Int[Tensor, "*batch m"]:
    """What the model reads: the start marker, if any, then the tokens; of too many tokens, the last ones that fit. (T-window)

    Chapter: inference.
    """
    if start is None:
        return tokens[..., -max_len:]
    first = tokens.new_full((*tokens.shape[:-1], 1), start)
    rest = tokens[..., max(0, tokens.shape[-1] - (max_len - 1)) :]
    return torch.cat((first, rest), dim=-1)


@torch.no_grad()
def distribution(
    model: TransformerLM,
    tokens: Int[Tensor, "*batch n"],
    temperature: float = 1.0,
    start: int | None = None,
) -> Float[Tensor, "*batch V"]:
    """P(· | tokens) = softmax(z / τ) in float64, where z is the model's last row for `window(tokens)`. (T-next-token)

    ValueError unless τ > 0, when there is nothing to read, and when a score is NaN.

    Chapter: inference.
    """
    expects(temperature > 0, "temperature", temperature, "a number > 0")
    z = last_scores(model, tokens, start)
    return (z / temperature).softmax(-1)


def last_scores(
    model: TransformerLM, tokens: Int[Tensor, "*batch n"], start: int | None
) -> Float[Tensor, "*batch V"]:
    """The model's scores for the token after the last one, in float64.

    Chapter: inference.
    """
    z = model(window(tokens, model.config.max_len, start))[..., -1, :].double()
    expects(
        bool((z < float("inf")).all()),
        "model",
        "scores that are NaN or +∞",
        "a model whose weights are finite",
    )
    return z


# inference: The implementation
def quantiles(
    p: Float[Tensor, "*batch V"], u: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """The smallest j with u < p_0 + … + p_j, for each row. (T-quantile)

    Chapter: inference.
    """
    F = p.cumsum(-1)
    return (F / F[..., -1:] <= u[..., None]).sum(-1)


def draw(
    z: Float[Tensor, "*batch V"],
    temperature: float,
    generator: torch.Generator | None,
) -> Int[Tensor, "*batch"]:
    """One token for each row of scores: the likeliest at temperature 0, else by `quantiles` of a uniform number.

    Chapter: inference.
    """
    if temperature == 0:
        return z.argmax(-1)
    place = torch.device("cpu") if generator is None else generator.device
    u = torch.rand(
        z.shape[:-1], dtype=torch.float64, generator=generator, device=place
    )
    return quantiles((z / temperature).softmax(-1), u.to(z.device))


# inference: The implementation
@torch.no_grad()
def generate(
    model: TransformerLM,
    tokens: Int[Tensor, "*batch n"],
    n_new: int,
    *,
    temperature: float = 1.0,
    start: int | None = None,
    stop: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch m"]:
    """The tokens, continued by at most n_new of the model's own; prompts of one length, side by side. (T-sampling)

    temperature  0 takes the likeliest token each time; τ > 0 draws from softmax(z / τ)
    start        marker that the model reads before the tokens (it is not returned); with it, n may be 0
    stop         a row that has produced this token is over and filled up with it; when all are over, so is the work
    generator    source of the uniform numbers; None is torch's global one

    The model runs in evaluation mode and is given back in the mode in which it came. What does not fit into max_len is
    forgotten: see `window`. ValueError for an empty prompt without start, n_new < 0, temperature < 0 or not finite;
    IndexError for a token outside the vocabulary; TypeError for tokens that are no integers.

    Chapter: inference.
    """
    expects(
        isinstance(model, TransformerLM),
        "model",
        type(model).__name__,
        "a TransformerLM",
        TypeError,
    )
    V = model.config.vocab_size
    expects_tokens("tokens", tokens, V)
    expects_shape("tokens", tokens, ("n",))
    expects(isinstance(n_new, int), "n_new", n_new, "a whole number", TypeError)
    expects(n_new >= 0, "n_new", n_new, "a number ≥ 0")
    expects(
        isinstance(temperature, int | float),
        "temperature",
        repr(temperature),
        "a number",
        TypeError,
    )
    expects(
        0 <= temperature < float("inf"),
        "temperature",
        temperature,
        "a finite number ≥ 0",
    )
    for name, token in (("start", start), ("stop", stop)):
        expects(
            token is None or isinstance(token, int),
            name,
            token,
            "None or a whole number",
            TypeError,
        )
        expects(
            token is None or 0 <= token < V,
            name,
            token,
            f"None or a token from 0 to {V - 1}",
            IndexError,
        )
    expects(
        tokens.shape[-1] > 0 or start is not None,
        "tokens",
        "an empty prompt",
        "at least 1 token, or a start marker",
    )
    was_training = model.training
    model.eval()
    over = torch.zeros(tokens.shape[:-1], dtype=torch.bool, device=tokens.device)
    try:
        for _ in range(n_new):
            token = draw(last_scores(model, tokens, start), temperature, generator)
            if stop is not None:
                token = token.masked_fill(over, stop)
                over = token == stop
            tokens = torch.cat((tokens, token[..., None].to(tokens.dtype)), dim=-1)
            if stop is not None and bool(over.all()):
                break
    finally:  # also after an error or an interrupt
        model.train(was_training)
    return tokens


# inference: From text to text
def complete(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    max_new: int = 100,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """The prompt and its continuation by at most max_new tokens, up to the end of the document if the model ends it.

    An empty prompt begins a document. The same arguments give the same text. Errors as in `generate`; ValueError when the tokenizer is not the model's.

    Chapter: inference.
    """
    V, start = model.config.vocab_size, tokenizer.start
    expects(
        len(tokenizer) == V,
        "tokenizer",
        f"{len(tokenizer)} tokens",
        f"the model's vocab_size = {V}",
    )
    expects(isinstance(seed, int), "seed", seed, "a whole number", TypeError)
    expects(0 <= seed < 2**63, "seed", seed, "a whole number from 0 to 2^63 − 1")
    place = next(model.parameters()).device
    # no prompt: a new document
    tokens = torch.tensor(
        tokenizer.encode(prompt) or [start], dtype=torch.long, device=place
    )
    chance = torch.Generator().manual_seed(seed)
    written = generate(
        model,
        tokens,
        max_new,
        temperature=temperature,
        start=start,
        stop=start,
        generator=chance,
    )
    new = written[len(tokens) :].tolist()
    return prompt + tokenizer.decode(new[:-1] if new[-1:] == [start] else new)
