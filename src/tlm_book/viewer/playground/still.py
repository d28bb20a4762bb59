"""What a page shows before the model of the small world wakes: a story, a question, an answer, and where the head that found it looked. Written
by hand."""

import html
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from tlm_book.libraries import library
from tlm_book.viewer.playground.file import LONGEST
from tlm_book.viewer.reading import reading

__all__ = ["Looked", "looked", "still"]

LONGEST_ANSWER = 40  # tokens, for which a long text gives way at its beginning; at most half of what the page computes
PLAIN = {"the", "and", "had", "was", "in", "on", "at", "by", "with", "it"}  # words of an answer without a meaning of their own; also in asking.js


class Looked(NamedTuple):
    """The answer of a model: the tokens, how many of them were given and how many of these belong to the story, where the head that found the answer
    looked, and whether only the end of the text was read.
    """

    tokens: list[int]
    asked: int
    story: int
    word: str = ""
    block: int = 0
    head: int = 0
    weights: Sequence[float] = ()
    share: float = 0.0
    cut: bool = False


def looked(model: Any, tokenizer: Any, story: str, question: str, off: Collection[tuple[int, int]] = ()) -> Looked:
    """The likeliest answer, token by token, up to a full stop or the end of the line. The heads (block, head) in `off`, which the caller has switched
    off, are never named.

    Only the end of a long text is read, so that there is room for the answer, as on the page.
    """
    torch, longest = library("torch", "viewer"), min(model.config.max_len, LONGEST)
    asking = tokenizer.encode(question)
    text, most = [*tokenizer.encode(story + "\n"), *asking], longest - 1 - min(LONGEST_ANSWER, longest // 2)
    tokens, cut = [tokenizer.start, *text[max(0, len(text) - most) :]], len(text) > most
    asked = len(tokens)
    told = max(1, asked - len(asking))
    with reading(model) as place:
        while len(tokens) < min(asked + LONGEST_ANSWER, longest):
            following = int(model(torch.tensor(tokens, device=place))[-1].argmax())
            if following == tokenizer.start or b"\n" in tokenizer.token_bytes(following):
                break
            tokens.append(following)
            if b"." in tokenizer.token_bytes(following):
                break
        A = model.attention_weights(torch.tensor(tokens, device=place)).cpu()
    words = [tokenizer.token_bytes(token).decode(errors="replace").strip().lower() for token in tokens]
    wanted = max((word for word in words[asked:] if word in words[:asked] and word not in PLAIN), key=len, default="")
    if len(wanted) < 2 or len(set(off)) == A.shape[0] * A.shape[1]:
        return Looked(tokens, asked, told, cut=cut)
    row = asked - 1 + words[asked:].index(wanted)
    shares = A[:, :, row, [j for j in range(asked) if words[j] == wanted]].sum(-1)
    for silent in off:
        shares[silent] = -1.0
    block, head = divmod(int(shares.argmax()), shares.shape[1])
    return Looked(tokens, asked, told, tokenizer.decode([tokens[row + 1]]).strip(), block, head, A[block, head, row].tolist(), float(shares.max()), cut)


def still(model: Any, tokenizer: Any, story: str, question: str, right: str) -> str:
    """HTML for what is seen before the reader does anything: the story, with the words shaded at which the head looked, the question, the answer."""
    found = looked(model, tokenizer, story, question)
    shaded = []
    for j, token in enumerate(found.tokens[1 : found.story], start=1):
        word, weight = html.escape(tokenizer.decode([token])), found.weights[j] if found.weights else 0.0
        shade = f"background:rgba(0,114,178,{0.55 * weight**0.5:.2f});border-radius:3px"
        shaded.append(f'<span style="{shade}">{word}</span>' if weight >= 0.01 else word)
    answer = tokenizer.decode(found.tokens[found.asked :]).strip()
    answers = f"The model answers: <b>{html.escape(answer)}</b>" if any(map(str.isalnum, answer)) else "The model answers nothing."
    cut = f"Only the last {found.asked - 1} tokens are read." if found.cut else ""
    where = f"When it wrote “{html.escape(found.word)}”, head {found.head} of block {found.block} gave {100 * found.share:.0f}% of its attention to that word in the text."
    return (
        f'<p style="font:16px/1.7 system-ui,sans-serif;max-width:44rem;white-space:pre-wrap;overflow-wrap:anywhere">{"".join(shaded).strip()}</p>'
        + (f'<p style="font:14px/1.5 system-ui,sans-serif">{cut}</p>' if cut else "")
        + f'<p style="font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere"><i>{html.escape(question)}</i> {answers} The story says: {html.escape(right)}</p>'
        + (f'<p style="font:14px/1.5 system-ui,sans-serif">{where}</p>' if found.word else "")
    )
