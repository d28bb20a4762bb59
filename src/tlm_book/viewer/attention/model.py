"""Where a model looks when it reads a text, for our models and those of `transformers`."""

from typing import Any

from tlm_book.checks import expects, expects_kind
from tlm_book.libraries import library
from tlm_book.viewer.attention.view import View, attention
from tlm_book.viewer.reading import reading

__all__ = ["show"]


def show(model: Any, tokenizer: Any, text: str, *, title: str | None = None) -> View:
    """The attention weights of a model that reads a text, as an interactive picture.

    model      one of ours, or any model of `transformers` that returns attentions. It is run in evaluation mode, and is then
               put back into the mode in which it came.
    tokenizer  its tokenizer; ours puts its start marker first.
    text       any text that is not too long for the model.
    title      a line above the picture.

    TypeError for a text that is not a string, and for a model that has no attention weights to show; otherwise the errors of model
    and tokenizer, and those of `attention`.

    >>> from tlm_book.training import shipped
    >>> show(*shipped(), "The tide")
    <attention weights: 4 × 4 heads, 4 × 4 tokens; block 0, head 0>
    """
    expects_kind("text", text, str, "a str")
    expects(hasattr(model, "eval") and hasattr(model, "parameters"), "model", type(model).__name__, "a model: show(model, tokenizer, text)", TypeError)
    expects(hasattr(tokenizer, "decode"), "tokenizer", type(tokenizer).__name__, "the model's tokenizer: show(model, tokenizer, text)", TypeError)
    read = _ours if hasattr(model, "attention_weights") else _theirs
    with reading(model) as place:
        names, weights = read(model, tokenizer, text, place)
    return attention(names, weights, title=title)


def _ours(model: Any, tokenizer: Any, text: str, place: Any) -> tuple[list[str], Any]:
    expects(hasattr(tokenizer, "start"), "tokenizer", f"a {type(tokenizer).__name__}", "a Tokenizer, which knows the start marker", TypeError)
    tokens = [tokenizer.start, *tokenizer.encode(text)]
    weights = model.attention_weights(library("torch", "viewer").tensor(tokens, device=place))
    return [tokenizer.token_text(token) for token in tokens], weights


def _theirs(model: Any, tokenizer: Any, text: str, place: Any) -> tuple[list[str], Any]:
    wants = "one that returns attentions with output_attentions=True"
    expects(hasattr(model, "config") and hasattr(model, "device"), "model", f"a {type(model).__name__}, which is none of transformers", wants, TypeError)
    expects(callable(tokenizer), "tokenizer", f"a {type(tokenizer).__name__}", "the tokenizer of transformers that belongs to the model", TypeError)
    batch = tokenizer(text, return_tensors="pt").to(model.device)
    chosen = getattr(model.config, "_attn_implementation", None)
    if chosen not in (None, "eager"):  # fused kernels do not form the weights
        model.set_attn_implementation("eager")
    try:
        found = getattr(model(**batch, output_attentions=True), "attentions", None)
    finally:
        if chosen not in (None, "eager"):
            model.set_attn_implementation(chosen)
    expects(found, "model", f"a {type(model).__name__}, which returns none", wants, TypeError)
    return [_name(tokenizer, token) for token in batch["input_ids"][0].tolist()], found


def _name(tokenizer: Any, token: int) -> str:
    """The token as text, with the space before it, which some tokenizers drop when they decode a single token."""
    name = str(tokenizer.decode([token]))
    lost = str(tokenizer.convert_ids_to_tokens(token)).startswith("▁") and not name.startswith(" ")
    return f" {name}" if lost else name
