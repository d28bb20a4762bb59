"""The options of the command line, and the checks that can be made before torch is loaded. Written by hand."""

import argparse
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

from tlm_book.checks import did_you_mean

__all__ = ["OF_PAIRS", "PRESETS", "arguments", "in_options", "refuse_options"]

_DECODERS = ("wojcik", "lelarge", "becker_kahn", "agarwal", "lei_mao", "gpt2", "vaswani", "llama", "qwen2", "qwen3", "mistral", "mixtral", "gemma")
_PAIRS = ("lei_mao", "pre_norm", "agarwal", "vaswani")
OF_PAIRS = "encoder-decoder-"  # with which the names of pairs begin
PRESETS = (*_DECODERS, *(OF_PAIRS + name for name in _PAIRS))


class _Parser(argparse.ArgumentParser):
    """A parser that prints one line for a refused value, and the usage as well for options that it cannot read."""

    def error(self, message: str) -> NoReturn:
        if refused := re.fullmatch(r"argument (.+?): (got .*)", message, re.DOTALL):
            self.exit(2, f"tlm_book: error: {refused[1]}: {refused[2]}\n")
        super().error(message)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As usual, but an unknown option is answered with the nearest known one."""
        found, left = self.parse_known_args(args, namespace)
        if odd := [word for word in left if word.startswith("-")] or left:
            if found.command == "generate" and not odd[0].startswith("-"):
                self.exit(2, f"tlm_book: error: --prompt: got {odd[0]!r} without the option, want generate --prompt {' '.join(left)!r}\n")
            known = sorted(name for name in _options_of(found.command) if name.startswith("--"))
            wants = f"an option of {found.command}, which --help lists"
            self.exit(2, f"tlm_book: error: {odd[0]}: got no such option, want {wants}{did_you_mean(odd[0].split('=')[0], known)}\n")
        return found


def _expects(condition: object, got: object, wants: str) -> None:
    if not condition:
        raise argparse.ArgumentTypeError(f"got {got}, want {wants}")


def _number(kind: type[int] | type[float], wants: str, right: Callable[[Any], bool]) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        _expects(right(value), text, wants)
        return value

    return read


_POSITIVE = _number(int, "a whole number from 1 to 10^9", lambda n: 1 <= n <= 10**9)
_VOCABULARY = _number(int, "a whole number ≥ 257, for 256 bytes and a marker", lambda n: n >= 257)
_SEED = _number(int, "a whole number from 0 to 2^63 − 1", lambda n: 0 <= n < 2**63)
_NATURAL = _number(int, "a whole number ≥ 0", lambda n: n >= 0)
_RATE = _number(float, "a number > 0", lambda x: 0 < x < math.inf)
_NOT_NEGATIVE = _number(float, "a number ≥ 0", lambda x: 0 <= x < math.inf)
_SHARE = _number(float, "a number in (0, 1]", lambda x: 0 < x <= 1)
_FRACTION = _number(float, "a number in [0, 1]", lambda x: 0 <= x <= 1)


def _text(text: str) -> str:
    _expects(not any("\ud800" <= sign <= "\udfff" for sign in text), repr(text), "text in UTF-8")  # so Python reads bytes that are not
    return text


def _there(wants: str, right: Callable[[Path], bool]) -> Callable[[str], str]:
    def read(text: str) -> str:
        got = f"{text!r}, which is another thing" if Path(text).exists() else f"nothing at {text!r}"
        _expects(right(Path(text)), got, wants)
        return text

    return read


def _model(text: str) -> str:
    path = Path(text)
    run = path if (path / "run.json").exists() and not (path / "config.json").exists() else Path(f"{path}.run")
    unfinished, out = run.is_dir() and (run == path or not path.exists()), str(run).removesuffix(".run")
    _expects(not unfinished, f"a run that is not finished, in {str(run)!r}", f"it finished: python -m tlm_book train --resume --out {quote(out)}")
    return _there("a folder with a model", Path.is_dir)(text)


def _place(text: str) -> str:
    file = next((path for path in Path(text).parents if os.path.isfile(path)), None)
    _expects(file is None, f"{text!r}, and {str(file)!r} is a file", "a folder that can be made")
    return text


def _new_folder(text: str) -> str:
    _expects(not os.path.lexists(Path(text)), f"{text!r}, which exists", "a folder that does not exist yet")
    return _place(text)


def _new_file(text: str) -> str:
    _expects(not os.path.lexists(Path(text)), f"{text!r}, which exists", "a file that does not exist yet")
    folder = Path(text).parent
    _expects(folder.is_dir(), f"{text!r}, and no folder {str(folder)!r}", "a file in a folder that exists")
    return text


def _page(text: str) -> str:
    _expects(Path(text).suffix == ".html", repr(text), "a name that ends in .html")
    return _new_file(text)


def _factory(text: str) -> str:
    path, _, name = text.partition(":")
    _expects(path and name and not path.startswith(".") and not os.path.isfile(path), repr(text), "package.module:factory")
    return text


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        _expects(text in names, repr(text), f"one of {', '.join(names)}{did_you_mean(text, names)}")
        return text

    return read


_preset, _decoder = _one_of(PRESETS), _one_of(_DECODERS)


_EXAMPLES = """examples:
  python -m tlm_book generate --prompt "The tide"                      the small model that comes with the package
  python -m tlm_book train --data essays.txt --out my-model            train one on a text
  python -m tlm_book train --data essays.txt --out mine --minutes 30 --plot   in a given time, with a picture of the curves
  python -m tlm_book train --resume --out my-model                     resume after Ctrl-C or a power cut
  python -m tlm_book train --resume --out my-model --steps 5000        continue a finished run
  python -m tlm_book generate --model my-model --prompt "The tide"
  python -m tlm_book train --preset gpt2 --data essays.txt --out mine  a model of GPT-2's kind
  python -m tlm_book export --model mine --out mine-hf                 write it for transformers
  python -m tlm_book page --model mine --out mine.html                 a page on which it answers as you type
  python -m tlm_book train --from mine --data letters.txt --out tuned  continue training a model
Each command has more to say: python -m tlm_book train --help"""


def _of_train(train: argparse.ArgumentParser) -> None:
    source = train.add_mutually_exclusive_group()
    source.add_argument("--data", metavar="PATH", nargs="+", type=_there("a text file", Path.exists), help="text files in UTF-8, or folders of them")
    source.add_argument("--book", action="store_true", help="the book's own corpus and settings, which make the shipped model")
    train.add_argument("--out", metavar="DIR", required=True, type=_place, help="the model's folder, which must not exist yet; with --resume, that of the run")
    kind = train.add_mutually_exclusive_group()
    kind.add_argument("--preset", metavar="NAME", type=_decoder, help=f"a model of this kind, with its tokenizer: {', '.join(_DECODERS)} (default: the book's own choice)")
    kind.add_argument("--from", metavar="DIR", dest="begin", type=_model, help="start from this model: one that train made, a GPT-2 or one of Llama's family; keeps its tokenizer, and without --data the text of its run")
    train.add_argument("--device", default="auto", help='"auto" (a GPU if there is one), "cpu", "cuda", …')
    train.add_argument("--quiet", action="store_true", default=False, help="no progress bar")
    train.add_argument("--resume", action="store_true", help="continue an interrupted run, if there is one; only --out is needed. A finished run continues with larger --steps")
    train.add_argument("--tensorboard", action="store_true", help="also write the log for TensorBoard, into the folder tensorboard beside log.jsonl and log.csv (pip install 'tlm_book[tensorboard]')")
    train.add_argument("--tokenizer", metavar="FILE", type=_there("a tokenizer.json", Path.is_file), help="a tokenizer.json (default: learn one from the text)")
    train.add_argument("--plot", action="store_true", help="draw the curves as they grow: curves.svg in the run's folder (DIR.run), at the end in the model's")
    train.add_argument("--sample", metavar="PROMPT", type=_text, help="show how the model continues this text, at each measurement (not under torchrun) and at the end")
    train.add_argument("--parallel", choices=["ddp", "fsdp"], help="under torchrun: all weights on each device (ddp), or a share of them (fsdp; default: ddp)")
    train.add_argument("--keep", type=_POSITIVE, metavar="N", help="checkpoints to keep besides the best (default: 3)")
    chosen = train.add_argument_group("settings (those not given are fitted to the amount of text and, without a GPU and without --steps, to ten minutes)")
    chosen.add_argument("--steps", type=_POSITIVE, help="updates of the weights")
    chosen.add_argument("--minutes", type=_RATE, help="time for the whole run: after a few timed steps, the model (unless a size is given), the number of steps and the schedule are fitted to it")
    chosen.add_argument("--vocab-size", type=_VOCABULARY, help="number of tokens, at most")
    chosen.add_argument("--d-model", type=_POSITIVE, help="width of the rows")
    chosen.add_argument("--layers", type=_POSITIVE, help="number of decoder blocks")
    chosen.add_argument("--heads", type=_POSITIVE, help="attention heads in a block")
    chosen.add_argument("--context", type=_POSITIVE, help="tokens that the model reads at most")
    chosen.add_argument("--batch-size", type=_POSITIVE, help="windows of text in one step")
    chosen.add_argument("--lr", type=_RATE, help="highest learning rate")
    chosen.add_argument("--seed", type=_SEED, help="seed of everything random")
    chosen.add_argument("--dtype", choices=["float32", "bfloat16"], help="number type of the matrix products")
    chosen.add_argument("--products", choices=["auto", "linear", "onednn"], help="torch's library for products on a CPU: the quicker one (auto), the usual one (linear), or oneDNN (default: auto)")
    chosen.add_argument("--eval-every", type=_POSITIVE, metavar="STEPS", help="steps between two measurements, each with a checkpoint")
    chosen.add_argument("--grad-accum-steps", type=_POSITIVE, metavar="PARTS", help="number of parts in which a batch is processed, to save memory")
    chosen.add_argument("--activation-checkpointing", action="store_true", help="recompute the inside of the blocks, to save memory")
    chosen.add_argument("--compile", action="store_true", help="compile the model")


def _of_generate(generate: argparse.ArgumentParser) -> None:
    generate.add_argument("--model", metavar="DIR", type=_model, help="a folder that train made, or one with a GPT-2 or a model of Llama's family (default: the shipped model of the essays)")
    generate.add_argument("--prompt", type=_text, default="", help="the text to continue (default: none)")
    generate.add_argument("--tokens", type=_NATURAL, default=100, help="new tokens at most (default: 100)")
    generate.add_argument("--temperature", type=_NOT_NEGATIVE, default=0.8, help="0 takes the likeliest token each time (default: 0.8)")
    generate.add_argument("--top-k", type=_POSITIVE, metavar="K", help="draw only from the K likeliest tokens")
    generate.add_argument("--top-p", type=_SHARE, metavar="P", help="draw only from the fewest likeliest tokens whose probabilities add up to at least P")
    generate.add_argument("--min-p", type=_FRACTION, metavar="M", help="draw only from tokens at least M times as likely as the likeliest")
    generate.add_argument("--repetition-penalty", type=_RATE, default=1.0, metavar="T", help="above 1: lower the scores of tokens that occur in the text")
    generate.add_argument("--on-overflow", choices=["slide", "error"], default="slide", help="if the text gets longer than the model reads: forget its beginning, or stop with an error")
    generate.add_argument("--seed", type=_SEED, default=0, help="seed of the choice of tokens (default: 0)")
    generate.add_argument("--device", default="auto", help='"auto" (a GPU if there is one), "cpu", "cuda", …')


def _of_export(export: argparse.ArgumentParser) -> None:
    export.add_argument("--model", metavar="DIR", required=True, type=_model, help="a folder that train made, or one with a GPT-2 or a model of Llama's family")
    export.add_argument("--to", choices=["hf"], default="hf", help="hf: Hugging Face's files, which transformers loads (default)")
    export.add_argument("--out", metavar="DIR", required=True, type=_new_folder, help="a folder that does not exist yet")


def _of_page(page: argparse.ArgumentParser) -> None:
    page.add_argument("--model", metavar="DIR", type=_model, help="a folder that train made, or one with a small GPT-2 and its tokenizer (default: the shipped model of the essays)")
    page.add_argument("--out", metavar="FILE", required=True, type=_page, help="the file, which ends in .html and does not exist yet")
    page.add_argument("--text", type=_text, default="", help="the text at first (default: none)")
    page.add_argument("--title", type=_text, help="the page's title")


def _of_audit(audit: argparse.ArgumentParser) -> None:
    audit.add_argument("factory", metavar="MODULE:FACTORY", type=_factory, help="called without arguments; returns (model, inputs), or (model, inputs, options) with a dictionary of further arguments of tlm_book.audit")
    audit.add_argument("--back-end", action="append", dest="back_ends", metavar="NAME", help="a further attention back end to try; may be repeated")
    audit.add_argument("--length", action="append", type=_POSITIVE, dest="lengths", metavar="N", help="a number of rows to try; may be repeated")
    audit.add_argument("--mode", action="append", choices=["eval", "train"], dest="modes", help="only this mode (default: both)")
    audit.add_argument("--quiet", action="store_true", help="no progress bar")


def _of_prove(prove: argparse.ArgumentParser) -> None:
    proved = prove.add_mutually_exclusive_group(required=True)
    proved.add_argument("--model", metavar="DIR", type=_model, help="a folder that train made, or one with a GPT-2 or a model of Llama's family")
    proved.add_argument("--preset", metavar="NAME", type=_preset, help=f"one of the book's settings, with 1,000 tokens: {', '.join(PRESETS)}")
    prove.add_argument("--out", metavar="FILE", type=_new_file, help="write the certificate here: a file that does not exist yet")


def arguments() -> argparse.ArgumentParser:
    """The six commands and their options."""
    parser = _Parser(prog="tlm_book", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter, description="Train a transformer language model on a text, make it write, export it for another library or as a page, test whether a model sees the future, or prove that it does not.")
    commands = parser.add_subparsers(dest="command", required=True)
    _of_train(commands.add_parser("train", help="train a model on text; under torchrun, with several processes", argument_default=argparse.SUPPRESS))
    _of_generate(commands.add_parser("generate", help="continue a text"))
    _of_export(commands.add_parser("export", help="write a model for another library", description="Write a model for another library: one of the kinds gpt2, llama, qwen2, qwen3, mistral, mixtral or gemma."))
    _of_page(commands.add_parser("page", help="make a page on which a model answers as you type", description="One HTML file that contains the model and computes its scores, its attention and its next token at every keystroke; it needs no network."))
    _of_audit(commands.add_parser("audit", help="test whether a model sees the future; status 1 if it does"))
    _of_prove(commands.add_parser("prove", help="prove that a model never looks ahead, checked by Coq; status 1 if there is no proof"))
    return parser


def refuse_options(options: dict[str, Any]) -> None:
    """Refuse what single values do not show: heads that do not divide the width, a run that exists already, a missing module.
    Raises ValueError or FileExistsError.
    """
    d, h = options.get("d_model"), options.get("heads")
    if d and h and d % h:
        raise ValueError(f"--heads: got {h}, want a divisor of --d-model = {d}")
    if options["command"] == "train":
        _refuse_run(options)
    if options["command"] == "audit":
        _expects_module(options["factory"].partition(":")[0])


_OF_FILES = ("begin", "preset", "resume", "tensorboard", "plot", "minutes", "tokenizer", "sample", "parallel", "keep")
_OF_A_MODEL = ("vocab_size", "d_model", "layers", "heads", "tokenizer")


def _refuse_run(options: dict[str, Any]) -> None:
    out, resume = Path(options["out"]), options.get("resume", False)
    run, begin = Path(f"{out}.run"), options.get("begin")
    given = lambda names: next((name for name in names if name in options), None)
    option = lambda name: "--from" if name == "begin" else f"--{name.replace('_', '-')}"
    if run.exists() and not resume:
        raise FileExistsError(f"--out: got an interrupted run in {str(run)!r}, want --resume to take it up, or another folder")
    if out.exists() and not resume:
        raise FileExistsError(f"--out: got {str(out)!r}, which exists, want a folder that does not exist yet, or --resume with larger --steps to go further")
    if options.get("book") and (name := given(_OF_FILES)):
        raise ValueError(f"{option(name)}: got it with --book, which makes the model that is shipped; want --data, or to leave it out")
    if "minutes" in options and "steps" in options:
        raise ValueError("--minutes: got it with --steps, want one of them")
    if "minutes" in options and resume and (run.exists() or out.exists()):
        raise ValueError(f"--minutes: got it with --resume, want to leave it out: the run in {str(run if run.exists() else out)!r} has its number of steps")
    if "tokenizer" in options and "vocab_size" in options:
        raise ValueError("--vocab-size: got it with --tokenizer, want to leave it out: the tokenizer has its number of tokens")
    if begin and (name := given(_OF_A_MODEL)):
        raise ValueError(f"{option(name)}: got it with --from, want to leave it out: the model in {begin!r} has its own")
    if not ("data" in options or options.get("book") or begin or run.exists() or (out / "run.json").exists()):
        none = f", and no run in {str(run)!r} to go on with" if resume else ""
        raise ValueError(f"--data: got none{none}, want text files, or --book, or --from with a model that train made")


def _expects_module(path: str) -> None:
    sys.path.insert(0, "")  # as python -m does for the module that it runs
    try:
        found, why = importlib.util.find_spec(path) is not None, ""
    except (Exception, SystemExit) as error:  # of a package, which is imported
        found, why = False, f" ({type(error).__name__}: {error})"
    finally:
        sys.path.remove("")
    if not found:
        raise ValueError(f"MODULE:FACTORY: got {path}{why}, want a module that can be imported")


# {what the library calls it: the option}, where the two differ by more than dashes
_OPTION = {
    "path": "--data",
    "texts": "--data",
    "n_heads": "--heads",
    "n_layers": "--layers",
    "max_len": "--context",
    "n_new": "--tokens",
    "max_new": "--tokens",
    "begin": "--from",
    "back_ends": "--back-end",
    "lengths": "--length",
    "factory": "MODULE:FACTORY",
}


def in_options(message: str, command: str) -> str:
    """The library's message "name: got …", with the option that gave the value in place of the name.

    >>> in_options("n_new: got -1, want at least 0", "generate")
    '--tokens: got -1, want at least 0'
    """
    name, colon, rest = message.partition(":")
    usual = {"folder": "--out" if command == "train" else "--model", **_OPTION}
    option = usual.get(name, f"--{name.replace('_', '-')}")
    if command == "export" and name.startswith("model."):  # a setting of the model, not an option
        return f"--model: got one with {name.removeprefix('model.config.')} = {rest.removeprefix(' got ')}"
    known = option in _options_of(command)
    rest = rest.replace('on_overflow="slide"', "--on-overflow slide")
    return f"{option}{colon}{rest}" if known and rest.startswith(" got ") else message


def _options_of(command: str) -> set[str]:
    (commands,) = (action for action in arguments()._actions if isinstance(action, argparse._SubParsersAction))
    actions = commands.choices[command]._actions
    return {name for action in actions for name in (*action.option_strings, str(action.metavar))}
