"""Looking inside a model while it runs: every intermediate result can be read by its name, or replaced. Written by hand.

The result of a module is read by torch's own hooks, which are there only during the run. Other results are handed to the
`watch` of their layer, while it is set: a block hands over the stream between its layers; attention and the mixture of
experts, which compute theirs in one fused step, then go step by step.
"""

import difflib
import fnmatch
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.checks import expects, expects_kind, expects_several, refuse

__all__ = ["names_inside", "run_with_cache", "run_with_hooks"]

Hook = Callable[[Tensor], Tensor | None]
Place = tuple[nn.Module, str]  # a module, and which of its results: READ, RESULT, or a word that its watch is given


class Cache(dict[str, Tensor]):
    """{name: result}; the error for a missing name suggests the nearest."""

    def __missing__(self, name: object) -> NoReturn:
        near = difflib.get_close_matches(str(name), list(self), n=1, cutoff=0.0)
        raise KeyError(f"name: got {name!r}, want one that was kept{', such as ' + repr(near[0]) if near else ''}")


class Watch(dict[str, Callable[[Tensor], Tensor]]):
    """What a layer calls at each of its steps: (word, result) ↦ the result, or its replacement."""

    def __call__(self, word: str, result: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return self[word](result) if word in self else result


READ, RESULT = "what it reads", "its result"
OF_ATTENTION = ("queries", "keys", "values", "scores", "masked_scores", "weights", "heads")


def _places(model: Any) -> dict[str, Place]:
    """{name: the place of that result}, in the order of the run; TypeError for another kind of model."""
    ours = all(hasattr(model, part) for part in ("embedding", "position", "blocks", "norm", "unembedding"))
    expects(ours, "model", type(model).__name__, "a TransformerLM", TypeError)
    found: dict[str, Place] = {"embedding": (model.embedding, RESULT), "position": (model.position, RESULT)}
    for l, block in enumerate(model.blocks):
        of_block = _places_of_block(block)
        found |= {f"blocks.{l}.{name}": place for name, place in of_block.items()}
    return found | {"norm": (model.norm, RESULT), "logits": (model.unembedding, RESULT)}


def _places_of_block(block: Any) -> dict[str, Place]:
    """The same within a block; a block, an attention or a feed-forward layer of another kind shows only what goes in and comes out."""
    first: dict[str, Place] = {"residual_pre": (block, READ)}
    last: dict[str, Place] = {"residual_post": (block, RESULT)}
    if not hasattr(block, "watch"):
        return first | last
    CA, FF, post = block.attention, block.feed_forward, block.norm == "post"
    words, down = OF_ATTENTION if hasattr(CA, "watch") else (), getattr(FF, "down", None)
    normed: dict[str, Place] = {"norm_attention": (block.norm_attention, RESULT)}
    attended: dict[str, Place] = {f"attention.{word}": (CA, word) for word in words} | {"attention": (CA, RESULT)}
    between: dict[str, Place] = {"residual_mid": (block.norm_attention, RESULT) if post else (block, "residual_mid")}
    ff_normed: dict[str, Place] = {"norm_feed_forward": (block.norm_feed_forward, RESULT)}
    experts = isinstance(down, Tensor)  # the matrices of all experts in one tensor
    parts = ("router",) if experts else ("gate", "up")
    fed: dict[str, Place] = {f"feed_forward.{part}": (getattr(FF, part), RESULT) for part in parts if hasattr(FF, part)}
    if down is not None:
        fed["feed_forward.hidden"] = (FF, "hidden") if experts else (down, READ)
    fed["feed_forward"] = (FF, RESULT)
    if post:
        return first | attended | normed | between | fed | ff_normed | last
    return first | normed | attended | ({} if block.variant == "parallel" else between) | ff_normed | fed | last


def names_inside(model: nn.Module) -> list[str]:
    """The names of all intermediate results of a `TransformerLM`, in the order of the run."""
    return list(_places(model))


def _chosen(argument: str, patterns: Iterable[str], known: Iterable[str]) -> dict[str, list[str]]:
    """{name: the patterns that chose it, in their order}; ValueError for a pattern that chooses nothing."""
    found: dict[str, list[str]] = {}
    for pattern in patterns:
        expects_kind(argument, pattern, str, "names")
        names = fnmatch.filter(known, pattern)
        if not names:
            near = difflib.get_close_matches(pattern, list(known), n=1, cutoff=0.0)
            refuse(argument, repr(pattern), f"a name inside the model, such as {', '.join(map(repr, near))}")
        for name in names:
            found.setdefault(name, []).append(pattern)
    return found


def run_with_cache(
    model: nn.Module,
    tokens: Int[Tensor, "*batch n"],
    names: str | Iterable[str] | None = None,
    hooks: Mapping[str, Hook] | None = None,
) -> tuple[Float[Tensor, "*batch n V"], dict[str, Float[Tensor, "..."]]]:
    """Run the model and keep what it computes: (logits, cache), where the cache holds intermediate results by name, in the order of the run.

    model   a `TransformerLM`.
    names   the results to keep: one name or several, in which `*` stands for anything: "blocks.*.attention.weights". None: all.
    hooks   {name: f}: the run goes on with f(result) in place of this result, or with the result itself if f returns None.
            Of several f for one result, each gets what the one before it made.

    The results kept are not copied, and gradients flow through them as usual; of a result that a hook replaces, the replacement is kept.
    A watched layer computes its attention step by step, and may round differently from the fused kernel. ValueError for a name that the model
    does not have and for a hook that returns another shape, TypeError for one that does not return a tensor; otherwise the errors of the model.

    Of a layer that you have put in the place of one of the book's there is only what comes out; ValueError for a name inside it, if
    its own forward does not hand that result over, after the run.
    """
    places, hooks = _places(model), _hooks(hooks)
    wanted = ["*"] if names is None else [names] if isinstance(names, str) else names
    expects_several("names", wanted, "a name or several, or None")
    kept = _chosen("names", wanted, places)
    hooked = _chosen("hooks", hooks, places)
    cache, seen = Cache(), set()

    def see(name: str, result: Tensor) -> Tensor:
        seen.add(name)
        for pattern in hooked.get(name, ()):
            result = _replaced(name, result, hooks[pattern])
        if name in kept:
            cache[name] = result
        return result

    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):  # a compiled part is run as it was written; since torch 2.6
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        _watch({name: place for name, place in places.items() if name in kept or name in hooked}, see, stack)
        logits = model.forward(tokens)
    for argument, asked in (("names", {} if names is None else kept), ("hooks", hooked)):
        unseen = [name for name in asked if name not in seen]
        if unseen:
            refuse(argument, repr(unseen[0]), "a result that is handed over: a layer with a forward of its own does not do so")
    return logits, cache


def run_with_hooks(
    model: nn.Module, tokens: Int[Tensor, "*batch n"], hooks: Mapping[str, Hook]
) -> Float[Tensor, "*batch n V"]:
    """The logits of a run in which `hooks` replace results, as in `run_with_cache`. Errors as in that function."""
    return run_with_cache(model, tokens, (), hooks)[0]


def _hooks(hooks: Any) -> Mapping[str, Hook]:
    """The hooks, checked: {name: a function of the result alone}; TypeError for anything else."""
    if hooks is None:
        return {}
    expects_kind("hooks", hooks, Mapping, "a mapping {name: f}, where f(result) takes the result's place")
    for name, hook in hooks.items():
        wants = "a function of one argument, the result"
        expects(callable(hook), f"hooks[{name!r}]", type(hook).__name__, wants, TypeError)
        try:
            inspect.signature(hook).bind(None)
        except TypeError as error:
            raise TypeError(f"hooks[{name!r}]: got a function of other arguments ({error}), want {wants}") from None
        except ValueError:  # some of torch's own functions do not tell their parameters
            pass
    return hooks


def _replaced(name: str, result: Tensor, hook: Hook) -> Tensor:
    other = hook(result)
    if other is None:
        return result
    wants = f"a tensor of shape {tuple(result.shape)} or None"
    expects(isinstance(other, Tensor), f"hooks[{name!r}]", f"a {type(other).__name__}", wants, TypeError)
    expects(other.shape == result.shape, f"hooks[{name!r}]", f"shape {tuple(other.shape)}", wants)
    return other


def _watch(places: Mapping[str, Place], see: Callable[[str, Tensor], Tensor], stack: ExitStack) -> None:
    """Until the stack is closed, call `see` with the name and the result at each of these places, and use what it returns."""
    watches: dict[nn.Module, Watch] = {}
    for name, (module, what) in places.items():
        if what == RESULT:
            stack.enter_context(module.register_forward_hook(lambda _, __, result, name=name: see(name, result)))
        elif what == READ:
            stack.enter_context(module.register_forward_pre_hook(lambda _, args, name=name: (see(name, args[0]), *args[1:])))
        else:
            watches.setdefault(module, Watch())[what] = partial(see, name)
    for module, watch in watches.items():
        if "watch" in vars(module):  # a hook runs the model
            stack.callback(vars(module).__setitem__, "watch", vars(module)["watch"])
        else:
            stack.callback(vars(module).pop, "watch")  # anything left behind, even None, would make a compiled model compile again
        vars(module)["watch"] = watch
