"""A live model on a page: tokens, attention and the next token's probabilities after every keystroke. Written by hand."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from tlm_book.checks import expects_kind
from tlm_book.viewer.base import module, number_between, shown_title, whole_between
from tlm_book.viewer.playground.file import OfModel, checked_name, data_of, prepared
from tlm_book.viewer.playground.still import still

__all__ = ["Playground", "playground"]

LOWEST, HIGHEST = 0.1, 10.0  # of the temperature


class Playground(OfModel):
    """The picture that `playground` returns. The reader's choices: `text`, `temperature`, `top_k`, `top_p`, `seed`, `causal`, and `off`, the
    heads that are switched off, as "block.head"; a value outside its range raises ValueError.
    """

    _esm = module("playground", "tokens", "computer", "asking", "../sampling/choice")
    _word = "playground"
    text = traitlets.Unicode("").tag(sync=True, picture=True)
    temperature = traitlets.Float(0.8).tag(sync=True, picture=True)
    top_k = traitlets.Int(1).tag(sync=True, picture=True)
    top_p = traitlets.Float(1.0).tag(sync=True, picture=True)
    causal = traitlets.Bool(True).tag(sync=True, picture=True)
    seed = traitlets.Int(0).tag(sync=True, picture=True)

    @traitlets.validate("temperature", "top_k", "top_p", "seed")
    def _in_range(self, proposal: Mapping[str, Any]) -> float:
        return self._in(proposal, temperature=(LOWEST, HIGHEST), top_k=(1, len(self.data["vocabulary"]["texts"])), top_p=(0.01, 1.0), seed=(0, 2**32 - 1))

    def __repr__(self) -> str:
        data = self.data
        return f"<playground: {data['blocks']} blocks of {data['heads']} heads, {len(data['vocabulary']['texts'])} tokens>"

    def _fallback(self) -> str:
        if "still" in self.data:
            return str(self.data["still"])
        return f"<p>{html.escape(self.data['title'] or 'A language model.')} With scripts, this page computes it while you type.</p><pre style='white-space:pre-wrap'>{html.escape(self.text)}</pre>"


def playground(
    model: Any,
    tokenizer: Any,
    text: str = "",
    *,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    title: str | None = None,
    begins: bool = True,
    stories: Sequence[str] = (),
    file: str | None = None,
) -> Playground:
    """The model, computed on the page itself after every key: its tokens, the attention of each head, what comes next, what each block makes of it.

    model        a `TransformerLM` of at most 8 million weights. Its matrices are rounded to 8 bits, so the page's scores differ a little from the model's.
    tokenizer    a `Tokenizer` with the model's vocabulary.
    text         the text at first.
    temperature, top_k, top_p   settings for writing, from 0.1 to 10, from 1 to the number of tokens, from 0.01 to 1; None keeps all tokens.
    seed         of the draws, from 0 to 2³² − 1: s ← 1664525·s + 1013904223 modulo 2³², u = s / 2³²; the token is `quantiles` of u.
    title        a line above the picture.
    begins       whether the token that begins a document precedes the text.
    stories      stories of the small world, as `small_world.story` tells them: the reader chooses one, and questions about it are answered at once;
                 without a text, the first story and its first question are shown.
    file         on a site, the page loads its weights from `_static/FILE.js`, which `shared_file` writes, when the reader asks for them; saved pages
                 contain theirs. A name of letters, digits, - and _.

    A click on a head switches it off: it then adds nothing to the residual stream. Without the mask, every row sees all others. The logit lens reads
    the residual stream after each block as if that block were the last. If a text is longer than the model reads, or than 320 tokens, only its end is
    computed, and the page says so. TypeError and ValueError for another kind of model or tokenizer, one that is too large, and choices out of range.
    """
    title = shown_title(title)
    data = {**data_of(model, tokenizer), "title": title, "begins": begins, "stories": prepared(stories) if stories else []}
    expects_kind("text", text, str, "a str")
    tau = number_between("temperature", temperature, LOWEST, HIGHEST)
    p = number_between("top_p", top_p, 0.01, 1.0)
    seed = whole_between("seed", seed, 0, 2**32 - 1)
    k = whole_between("top_k", len(tokenizer) if top_k is None else top_k, 1, len(tokenizer))
    text = text.encode(errors="replace").decode()  # no page can hold a lone surrogate
    if stories:
        first = data["stories"][0]
        data["still"] = still(model, tokenizer, first["story"], *first["asked"][0])
        text = text or "\n".join([first["story"], first["asked"][0][0]])
    view = Playground(data=data, text=text, temperature=tau, top_k=k, top_p=p, seed=seed)
    view._file = checked_name(file)
    return view

