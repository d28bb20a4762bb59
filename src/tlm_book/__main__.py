"""The command line: `python -m tlm_book train …`, `… generate …`, `… export …`, `… page …`, `… audit …` and `… prove …`. Written by hand; it only reads arguments."""

import contextlib
import importlib
import inspect
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from tlm_book import __version__
from tlm_book.arguments import OF_PAIRS, arguments, in_options, refuse_options

if TYPE_CHECKING:
    from torch import nn

    from tlm_book.tokenization import Tokenizer
    from tlm_book.transformer_lm import TransformerLM


def train(options: dict[str, Any]) -> str:
    """Train and save; returns the report, in the first process."""
    from tlm_book.tokenization import Tokenizer
    from tlm_book.training import train_book, train_files

    options["progress"] = not options.pop("quiet")
    if options.pop("book", False):
        return str(train_book(**options))
    if "tokenizer" in options:
        with of_option("tokenizer"):
            options["tokenizer"] = Tokenizer.load(options["tokenizer"])
    if "begin" in options:
        from tlm_book.pretrained.kinds import is_ours

        begin = options["begin"]
        with of_option("from"):
            options["begin"] = begin if is_ours(begin) else decoder_in(begin)
    if (prompt := options.pop("sample", None)) is not None and "WORLD_SIZE" not in os.environ:
        options["watch"] = partial(show_sample, prompt)
    report = train_files(options.pop("data", None), **options)
    return f"{report}\n{sample_of(options['out'], prompt or '')}\n{AFTERWARDS.format(quote(str(options['out'])))}" if report else ""


@contextlib.contextmanager
def of_option(name: str) -> Iterator[None]:
    """Blame this option for whatever is refused inside the block, whatever name the library gives it; what names a file is left as it is."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        argument, _, rest = str(error).partition(": got ")
        if not (rest and argument.isidentifier()):
            raise
        raise ValueError(f"{name}: got {rest}") from error


def sample_of(folder: str, prompt: str) -> str:
    """A line with the prompt as continued by the model in the folder."""
    from tlm_book.inference import complete
    from tlm_book.training import load

    model, tokenizer = load(folder)
    return f"sample: {complete(model, tokenizer, prompt, 60, temperature=0.8, seed=0)!r}"


AFTERWARDS = """next: python -m tlm_book generate --model {0} --prompt "…"
      python -m tlm_book train --resume --out {0} --steps MORE"""


def show_sample(prompt: str, step: int, model: "TransformerLM", tokenizer: "Tokenizer") -> None:
    """Print how the model continues the prompt after this many steps, above the progress bar."""
    from tqdm import tqdm

    from tlm_book.inference import complete

    tqdm.write(f"after {step} steps: {complete(model, tokenizer, prompt, 30, seed=step)!r}", file=sys.stderr)


def decoder_in(folder: str, *tokenizers: type, wants: str = "a tokenizer") -> tuple[Any, Any]:
    """The decoder in the folder and its tokenizer, of one of the kinds named, if any are; ValueError if the folder holds anything else."""
    from tlm_book.checks import expects
    from tlm_book.pretrained import load_model
    from tlm_book.transformer_lm import TransformerLM

    model, tokenizer = load_model(folder)
    kind = type(model).__name__
    expects(isinstance(model, TransformerLM), "model", f"{folder!r}, which holds a model of the kind {kind}", "a decoder: one that train made, a GPT-2 or one of Llama's family")
    has = "no tokenizer" if tokenizer is None else f"a {type(tokenizer).__name__}"
    expects(not tokenizers or isinstance(tokenizer, tokenizers), "model", f"{folder!r}, which has {has}", f"a model with {wants}")
    return model, tokenizer


def generate(options: dict[str, Any]) -> str:
    """Write the prompt and its continuation by the model, piece by piece, then an end of line; returns no further text."""
    from tlm_book.inference.text import stream_text, unread
    from tlm_book.tokenization import HubTokenizer, Tokenizer
    from tlm_book.training import choose_device, shipped

    place, folder = str(choose_device(options.pop("device"))), options.pop("model")
    model, tokenizer = shipped(place) if folder is None else decoder_in(folder, Tokenizer, HubTokenizer)
    model.to(place)
    prompt = options.pop("prompt")
    pieces = stream_text(model, tokenizer, prompt, options.pop("tokens"), **options)  # bad arguments are refused here, before anything is written
    if lost := unread(model, tokenizer, prompt):
        print(f"tlm_book: the model reads {model.config.max_len} tokens: the first {lost} of the prompt are dropped", file=sys.stderr)
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return ""


def export(options: dict[str, Any]) -> str:
    """Write the model's folder for another library; returns a text that says what can be done with it."""
    from tlm_book.pretrained import save_model

    out = options["out"]
    model, tokenizer = decoder_in(options["model"])
    kind = save_model(model, out, tokenizer)
    autos = {"model": "AutoModelForCausalLM"} | ({} if tokenizer is None else {"tokenizer": "AutoTokenizer"})
    lines = [f"from transformers import {', '.join(autos.values())}", *(f"{name} = {auto}.from_pretrained({out!r})" for name, auto in autos.items())]
    has = "without a tokenizer, as it came" if tokenizer is None else "with its tokenizer"
    return "\n    ".join([f"{out} holds a model of the kind {kind!r}, {has}. In Python:", *lines])


def page(options: dict[str, Any]) -> str:
    """Write one HTML file in which the model answers as one types."""
    from tlm_book.tokenization import Tokenizer
    from tlm_book.training import shipped
    from tlm_book.viewer import playground

    folder, out = options["model"], options["out"]
    wants = "a tokenizer that a page can hold: its own, as train makes it, or a GPT-2's"
    model, tokenizer = shipped() if folder is None else decoder_in(folder, Tokenizer, wants=wants)
    playground(model, tokenizer, options["text"], title=options["title"]).save(out)
    return f"{out} holds the model and all it needs: open it in a browser, without a network"


def audit(options: dict[str, Any]) -> tuple[str, int]:
    """The report of the audit and the exit status: 0 if it is ok, 1 otherwise."""
    sys.path.insert(0, "")  # as python -m does for the module that it runs; factory and model may import more from there
    try:
        return _audited(options)
    finally:
        sys.path.remove("")


def _audited(options: dict[str, Any]) -> tuple[str, int]:
    from tlm_book.auditing import audit
    from tlm_book.checks import expects, expects_names

    path, _, name = options.pop("factory").partition(":")
    try:
        factory: Any = getattr(importlib.import_module(path), name, None)
    except (Exception, SystemExit) as error:  # whatever it is, it is no leak
        raise ValueError(f"factory: got {path}:{name} ({type(error).__name__}: {error}), want a module that can be imported") from error
    expects(callable(factory), "factory", f"{path}:{name}", "a function of that module")
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise ValueError(f"factory: got {path}:{name}, which raised {type(error).__name__}: {error}, want (model, inputs)") from error
    expects(isinstance(made, tuple) and len(made) in (2, 3), "factory", type(made).__name__, "(model, inputs) or (model, inputs, options)")
    model, inputs, more = made if len(made) == 3 else (*made, {})
    expects(isinstance(more, Mapping), "factory", f"options of type {type(more).__name__}", "a dictionary of them")
    expects_names(more, [*inspect.signature(audit).parameters][2:])
    given = {"progress": not options.pop("quiet"), **more} | {key: value for key, value in options.items() if value}
    report = audit(model, inputs, **given)
    return str(report), int(not report.ok)


def preset_model(name: str) -> "nn.Module":
    """The model of one of `PRESETS`, in evaluation mode; its weights hold no numbers."""
    import torch

    from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    from tlm_book.transformer_lm import Config, TransformerLM

    decoder = not name.startswith(OF_PAIRS)
    model, config = (TransformerLM, Config) if decoder else (EncoderDecoder, EncoderDecoderConfig)
    with torch.device("meta"):
        return model(getattr(config, name.removeprefix(OF_PAIRS))(1000)).eval()


def prove(options: dict[str, Any]) -> tuple[str, int]:
    """What Coq proves of the model, and the exit status: 0 if it proves that the model is autoregressive, 1 otherwise."""
    from tlm_book.derivation.prove import prove
    from tlm_book.pretrained import load_model

    name, folder, out = options["preset"], options["model"], options["out"]
    model = load_model(folder)[0].eval() if name is None else preset_model(name)
    return prove(model, None if out is None else Path(out))


def import_libraries() -> None:
    """Load the libraries that take a second. Ctrl-C meanwhile ends the process at once: an import may swallow it and leave a library half loaded."""

    def leave(number: int, frame: object) -> None:
        print("\ntlm_book: stopped; nothing was written", file=sys.stderr, flush=True)
        os._exit(130)

    before = signal.getsignal(signal.SIGINT)
    mine = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if mine:
        signal.signal(signal.SIGINT, leave)
    try:
        import numpy
        import torch
    finally:
        if mine:
            signal.signal(signal.SIGINT, before)


def note(command: str, otherwise: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show a warning in one line, in the command's words; warnings that are not meant for its user are shown as usual."""
    if category is not UserWarning:
        return otherwise(message, category, *where, **more)
    print(f"tlm_book: note: {' '.join(in_options(str(message), command).split())}", file=sys.stderr)


def memory_asked_for(error: Exception) -> str | None:
    """The memory that could not be had, as numpy or torch says it ("one object" where nothing is said); None for an error of another kind.

    >>> memory_asked_for(RuntimeError("can't allocate memory: you tried to allocate 119600000000 bytes."))
    '119600000000 bytes'
    """
    said = re.search(r"allocate ([\d.]+ \w+)", str(error))
    return said[1] if said else "one object" if isinstance(error, MemoryError) else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0; 1 when an audit finds a leak or a proof fails; 2, with one line on stderr, for a mistake that
    the user can mend; 130 when interrupted; 141 when nobody reads the output any more.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console that cannot show a character shows a question mark
    parser = arguments()
    parser.add_argument("--version", action="version", version=f"tlm_book {__version__}")
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    options = vars(parser.parse_args(argv))
    command, status = options["command"], 0
    run = {"train": train, "generate": generate, "export": export, "page": page, "audit": audit, "prove": prove}[command]
    try:
        refuse_options(options)
        del options["command"]
        import_libraries()
        with warnings.catch_warnings():
            warnings.showwarning = partial(note, command, warnings.showwarning)
            said = run(options)
        said, status = said if isinstance(said, tuple) else (said, 0)
        if said:
            print(said)
        sys.stdout.flush()
    except BrokenPipeError:  # as in generate … | head -c 5
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest of the output goes there when Python ends
        return 141  # as of other commands then: 128 + SIGPIPE
    except (ValueError, TypeError, OSError, ImportError) as error:
        if isinstance(error, TypeError) and run is not audit:
            raise
        print(f"tlm_book: error: {' '.join(in_options(str(error), command).split())}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not (size := memory_asked_for(error)):
            raise
        print(f"tlm_book: error: memory: got too little for {size} more, want smaller sizes", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        begun = run is train and "out" in options and Path(f"{options['out']}.run").exists()
        again = f"; go on with: python -m tlm_book train --resume --out {quote(str(options['out']))}" if begun else "; nothing was written" if "out" in options else ""
        print(f"\ntlm_book: {str(stopped) or 'stopped'}{again}", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
