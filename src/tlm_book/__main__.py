"""The command line: `python -m tlm_book train …`, `… generate …`, `… audit …` and `… prove …`. Written by hand; it only reads arguments."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from tlm_book.tokenization import Tokenizer
    from tlm_book.transformer_lm import TransformerLM


def arguments() -> argparse.ArgumentParser:
    """The four commands and their options."""
    parser = argparse.ArgumentParser(prog="tlm_book", description="Train a transformer language model on a text, let one write, ask whether a model sees the future, or prove that it does not.")
    commands = parser.add_subparsers(dest="command", required=True)

    train = commands.add_parser("train", help="train a model on text; under torchrun, with several processes", argument_default=argparse.SUPPRESS)
    source = train.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="PATH", nargs="+", help="text files in UTF-8, or folders of them")
    source.add_argument("--book", action="store_true", help="the book's own corpus and settings: makes the model that is shipped")
    train.add_argument("--out", metavar="DIR", required=True, help="a folder that does not exist yet")
    train.add_argument("--device", default="auto", help='"auto" (a GPU when there is one), "cpu", "cuda", …')
    train.add_argument("--quiet", action="store_true", default=False, help="no progress bar")
    train.add_argument("--resume", action="store_true", help="take up the run that was interrupted, if there is one")
    train.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json (default: one is learned from the text)")
    train.add_argument("--sample", metavar="PROMPT", help="show how the model continues this, at each measurement (not under torchrun)")
    train.add_argument("--parallel", choices=["ddp", "fsdp"], help="under torchrun: weights on each device, or shared out (default: ddp)")
    train.add_argument("--keep", type=int, metavar="N", help="checkpoints to keep, beside the best (default: 3)")
    chosen = train.add_argument_group("choices (those left out are fitted to the amount of text)")
    chosen.add_argument("--steps", type=int, help="updates of the weights")
    chosen.add_argument("--vocab-size", type=int, help="tokens, at most")
    chosen.add_argument("--d-model", type=int, help="numbers in a row")
    chosen.add_argument("--layers", type=int, help="decoder blocks")
    chosen.add_argument("--heads", type=int, help="attention heads in a block")
    chosen.add_argument("--context", type=int, help="tokens that the model sees at most")
    chosen.add_argument("--batch-size", type=int, help="windows of text in one step")
    chosen.add_argument("--lr", type=float, help="highest learning rate")
    chosen.add_argument("--seed", type=int, help="of everything random")
    chosen.add_argument("--dtype", choices=["float32", "bfloat16"], help="type of the products of matrices")
    chosen.add_argument("--eval-every", type=int, metavar="STEPS", help="between two measurements, each with a checkpoint")
    chosen.add_argument("--grad-accum-steps", type=int, metavar="PARTS", help="in which a batch is worked through, to save memory")
    chosen.add_argument("--activation-checkpointing", action="store_true", help="forget what lies inside the blocks, to save memory")
    chosen.add_argument("--compile", action="store_true", help="compile the model")

    generate = commands.add_parser("generate", help="continue a text")
    generate.add_argument("--model", metavar="DIR", help="a folder that train made, or one with a GPT-2 (default: the shipped model)")
    generate.add_argument("--prompt", default="", help="the text to continue (default: none)")
    generate.add_argument("--tokens", type=int, default=100, help="new tokens at most (default: 100)")
    generate.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest token each time (default: 0.8)")
    generate.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens only")
    generate.add_argument("--top-p", type=float, metavar="P", help="draw from the fewest likeliest tokens with probability P together")
    generate.add_argument("--min-p", type=float, metavar="M", help="draw from tokens at least M times as likely as the likeliest")
    generate.add_argument("--repetition-penalty", type=float, default=1.0, metavar="T", help="above 1: lower the scores of tokens that the text holds")
    generate.add_argument("--on-overflow", choices=["slide", "error"], default="slide", help="a text longer than the model reads: forget its beginning, or refuse")
    generate.add_argument("--seed", type=int, default=0, help="of the choice of tokens (default: 0)")
    generate.add_argument("--device", default="auto", help='"auto" (a GPU when there is one), "cpu", "cuda", …')

    audit = commands.add_parser("audit", help="does a model see the future? status 1 when it does")
    audit.add_argument("factory", metavar="MODULE:FACTORY", help="called without arguments; returns (model, inputs) or (model, inputs, options)")
    audit.add_argument("--back-end", action="append", dest="back_ends", metavar="NAME", help="an attention back end to try, too; may be repeated")
    audit.add_argument("--length", action="append", type=int, dest="lengths", metavar="N", help="a number of rows to try; may be repeated")
    audit.add_argument("--mode", action="append", choices=["eval", "train"], dest="modes", help="only this mode (default: both)")
    audit.add_argument("--quiet", action="store_true", help="no progress bar")

    prove = commands.add_parser("prove", help="a proof, checked by Coq, that a model never looks ahead; status 1 when there is none")
    proved = prove.add_mutually_exclusive_group(required=True)
    proved.add_argument("--model", metavar="DIR", help="a folder that train made")
    proved.add_argument("--preset", metavar="NAME", help='one of the book\'s settings, such as "gpt2" or "encoder-decoder-vaswani"')
    prove.add_argument("--out", metavar="FILE", help="write the certificate here")
    return parser


def train(options: dict[str, Any]) -> str:
    """Train and save; the report, from the first process."""
    from tlm_book.tokenization import Tokenizer
    from tlm_book.training import train_book, train_files

    options["progress"] = not options.pop("quiet")
    if options.pop("book", False):
        return str(train_book(**options))
    if "tokenizer" in options:
        options["tokenizer"] = Tokenizer.load(options["tokenizer"])
    if (prompt := options.pop("sample", None)) is not None and "WORLD_SIZE" not in os.environ:
        options["watch"] = partial(show_sample, prompt)
    report = train_files(options.pop("data"), **options)
    return str(report or "")


def show_sample(prompt: str, step: int, model: "TransformerLM", tokenizer: "Tokenizer") -> None:
    """What the model makes of the prompt after so many steps, above the progress bar."""
    from tqdm import tqdm

    from tlm_book.inference import complete

    tqdm.write(f"after {step} steps: {complete(model, tokenizer, prompt, 30, seed=step)!r}", file=sys.stderr)


def generate(options: dict[str, Any]) -> str:
    """Write the prompt and what the model makes of it, piece by piece; the rest is an end of line."""
    from tlm_book.inference import stream_text
    from tlm_book.training import choose_device, load, shipped

    place, folder = str(choose_device(options.pop("device"))), options.pop("model")
    if folder is not None and (Path(folder) / "vocab.json").is_file():  # Hugging Face's files
        from tlm_book.pretrained import load_gpt2

        model, tokenizer = load_gpt2(folder)
        assert tokenizer is not None
        model.to(place)
    else:
        model, tokenizer = shipped(place) if folder is None else load(folder, place)
    prompt = options.pop("prompt")
    pieces = stream_text(model, tokenizer, prompt, options.pop("tokens"), **options)  # refuses here, before anything is written
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    return ""


def audit(options: dict[str, Any]) -> tuple[str, int]:
    """The report, and 1 unless it is ok."""
    from tlm_book.auditing import audit
    from tlm_book.checks import expects

    path, _, name = options.pop("factory").partition(":")
    expects(path and name and not path.startswith("."), "factory", repr(path), "package.module:factory")
    sys.path.insert(0, "")  # as python -m does with the module that it runs
    try:
        factory: Any = getattr(importlib.import_module(path), name, None)
    except ModuleNotFoundError as error:
        raise ValueError(f"factory: got {path}:{name} ({error}), want a module that can be imported") from error
    finally:
        sys.path.remove("")
    expects(callable(factory), "factory", f"{path}:{name}", "a function of that module")
    made = factory()
    expects(isinstance(made, tuple) and len(made) in (2, 3), "factory", type(made).__name__, "(model, inputs) or (model, inputs, options)")
    quiet = options.pop("quiet")
    given = {key: value for key, value in options.items() if value}
    report = audit(made[0], made[1], **({"progress": not quiet} | (made[2] if len(made) == 3 else {}) | given))
    return str(report), int(not report.ok)


def presets() -> "dict[str, Callable[[], nn.Module]]":
    """The models of the book's settings by their names, in evaluation mode, without numbers in their weights."""
    import torch

    from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    from tlm_book.transformer_lm import Config, TransformerLM

    def made(model: Any, config: Any, name: str) -> "Callable[[], nn.Module]":
        def make() -> "nn.Module":
            with torch.device("meta"):
                return model(getattr(config, name)(1000)).eval()

        return make

    kinds = ("", TransformerLM, Config), ("encoder-decoder-", EncoderDecoder, EncoderDecoderConfig)
    return {
        before + name: made(model, config, name)
        for before, model, config in kinds
        for name, method in vars(config).items()
        if isinstance(method, classmethod) and not name.startswith("_")
    }


def prove(options: dict[str, Any]) -> tuple[str, int]:
    """What Coq proves of the model, and 1 unless it proves that the model is autoregressive."""
    from tlm_book.checks import expects_one_of
    from tlm_book.derivation.prove import prove
    from tlm_book.training import load

    name, folder, out = options["preset"], options["model"], options["out"]
    if name is not None:
        expects_one_of("preset", name, tuple(presets()))
    model = load(folder)[0].eval() if name is None else presets()[name]()
    return prove(model, None if out is None else Path(out))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Status 0; 1 when an audit finds a leak or a proof fails; 2 with one line on stderr when the user can mend it; 130 when interrupted."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks a character shows a question mark
    options = vars(arguments().parse_args(argv))
    run = {"train": train, "generate": generate, "audit": audit, "prove": prove}[options.pop("command")]
    status = 0
    try:
        said = run(options)
        said, status = said if isinstance(said, tuple) else (said, 0)
        if said:
            print(said)
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, TypeError) and run is not audit:
            raise
        print(f"tlm_book: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        begun = run is train and "out" in options and Path(f"{options['out']}.run").exists()
        print(f"tlm_book: stopped; {'take it up with --resume' if begun else 'nothing was written'}", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
