"""A model's weights in a file of their own, which several pictures of a site share and which is loaded when a reader asks for it. Written by hand."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from tlm_book.checks import expects, expects_kind
from tlm_book.viewer.base import Picture, framed, shown_token
from tlm_book.viewer.playground.pack import pack

__all__ = ["OfModel", "checked_name", "data_of", "prepared"]

MOST_WEIGHTS = 8_000_000  # which make some 11 MB on the page
LONGEST = 320  # the most tokens with which the page computes
SHARED = ("settings", "file", "vocabulary", "blocks", "heads", "longest")  # the parts of a picture's data that are in the file

# What a page has in place of the weights. If scripts run, a button appears that loads the file, whose functions draw as a page's own host does.
STARTER = """
for (const el of document.querySelectorAll('[data-tlm-{kind}="{name}"]:not([data-drawn])')) {{
  const wake = document.createElement("button"), said = document.createElement("span"), load = () => ((globalThis.tlmLoading ??= {{}})["{file}"] ??= new Promise((done, failed) => {{
    const script = document.createElement("script");
    script.src = `${{document.documentElement.dataset.content_root ?? ""}}_static/{file}.js`;
    Object.assign(script, {{ onload: done, onerror: failed }});
    document.head.append(script);
  }}));
  Object.assign(wake, {{ type: "button", className: "tlm-wake", textContent: "{label}" }});
  wake.style = "font:inherit;color:inherit;background:none;border:1px solid;border-radius:4px;min-height:32px;padding:.1rem .8rem;cursor:pointer";
  wake.addEventListener("click", () => {{
    wake.textContent = "One moment …";
    said.textContent = "";
    load().then(() => {{
      tlmPictures["{file}"]["{kind}"]("{name}", {state});
      el.firstChild.shadowRoot.querySelector("button").focus({{ preventScroll: true }});
    }}, () => {{
      delete tlmLoading["{file}"];
      wake.textContent = "{label}";
      said.textContent = " The model did not load. On a site, try again; in a notebook, run this cell to wake it.";
    }});
  }});
  said.setAttribute("role", "status");
  el.append(wake, said);
}}
"""


class OfModel(Picture):
    """A picture that computes a model; `off` holds the heads that are switched off, as "block.head". With `_file`, a notebook's output for a site has
    no weights: they are in `_static/FILE.js`.
    """

    _file: str | None = None
    off = traitlets.List(traitlets.Unicode()).tag(sync=True, picture=True)

    @traitlets.validate("off")
    def _heads(self, proposal: Mapping[str, Any]) -> list[str]:
        L, h = self.data["blocks"], self.data["heads"]
        known = {f"{block}.{head}" for block in range(L) for head in range(h)}
        for name in proposal["value"]:
            expects(name in known, "off", repr(name), f'"block.head" with blocks from 0 to {L - 1} and heads from 0 to {h - 1}')
        return list(proposal["value"])

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": self._lazily() if self._file else bundle["text/html"]}, metadata

    def _lazily(self) -> str:
        state = self._state()
        state["data"] = {key: value for key, value in self.data.items() if key not in (*SHARED, "still")}
        label = f"Wake the model ({len(self.data['file']['bytes']) / 1e6:.1f} MB)"
        starter = lambda name, text: STARTER.format(kind=self._word, name=name, file=self._file, state=text, label=label)
        return framed(self._word, state, self._fallback(), lambda name, text: f"<script>{{{starter(name, text)}}}</script>")


def checked_name(file: str | None) -> str | None:
    """The name of a site's file, without its ending, or None. TypeError for another kind, ValueError for signs that a page could read as its own."""
    if file is not None:
        expects_kind("file", file, str, "a name, or None")
        expects(re.fullmatch(r"[\w-]+", file, re.ASCII), "file", repr(file), "a name of letters, digits, - and _")
    return file


def data_of(model: Any, tokenizer: Any) -> dict[str, Any]:
    """The data of a model and its tokenizer that a page is given. TypeError and ValueError for another kind, and for a model that is too large."""
    _expects_model(model, tokenizer)
    return {
        "settings": model.spec_settings(), "file": pack(model.spec_weights()), "vocabulary": _vocabulary(tokenizer),
        "blocks": model.config.n_layers, "heads": model.config.n_heads, "longest": min(model.config.max_len, LONGEST),
    }  # fmt: skip


def prepared(stories: Sequence[str]) -> list[dict[str, Any]]:
    """Each story with its questions and answers. TypeError for anything but a list of str, ValueError for a story without a question, or a question without its answer."""
    wants = "a list of str, each a story with its questions"
    expects(not isinstance(stories, str), "stories", "a single str", wants, TypeError)
    expects_kind("stories", stories, Sequence, wants)
    expects(len(stories) > 0, "stories", "none", "at least one")
    found = []
    for i, text in enumerate(stories):
        expects_kind(f"stories[{i}]", text, str, wants)
        lines = [line for line in text.splitlines() if line.strip()]
        asked = [re.match(r"([^?]*\?)\s*(\S.*)", line) for line in lines[1:]]
        right = bool(asked) and all(asked)
        expects(right, f"stories[{i}]", repr(text[:40]), "a line of prose, then a line for each question and its answer: 'Who had the key? Anna.'")
        found.append({"story": lines[0], "asked": [[line[1], line[2].strip()] for line in asked if line]})
    return found


def _expects_model(model: Any, tokenizer: Any) -> None:
    for name, got, methods in (("model", model, ("spec_weights", "spec_settings")), ("tokenizer", tokenizer, ("merges", "pattern"))):
        wants = "a TransformerLM" if name == "model" else "a Tokenizer: bytes, merges and a pattern"
        expects(all(hasattr(got, method) for method in methods), name, type(got).__name__, wants, TypeError)
    count = sum(weight.numel() for weight in model.parameters())
    expects(count <= MOST_WEIGHTS, "model", f"{count:,} weights", f"at most {MOST_WEIGHTS:,}: a page holds them all")
    V = model.config.vocab_size
    expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", f"the model's vocab_size = {V}")
    sound = all(not weight.is_meta and bool(weight.isfinite().all()) for weight in model.parameters())
    expects(sound, "model", "weights that are not finite, or hold no numbers", "finite weights")
    plain = tokenizer.ids == list(range(len(tokenizer)))
    expects(plain, "tokenizer", "tokens numbered in another order", "bytes, merges and specials in the order of their numbers")


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    texts = [tokenizer.token_bytes(token).decode("latin-1") for token in range(len(tokenizer))]
    shown = [shown_token(tokenizer.token_bytes(token)) for token in range(len(tokenizer))]
    return {"pattern": tokenizer.pattern, "merges": [list(pair) for pair in tokenizer.merges], "texts": texts, "shown": shown, "start": tokenizer.start}
