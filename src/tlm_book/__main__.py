"""The command line: `python -m tlm_book train …`, `… generate …` and `… audit …`. Written by hand; it only reads arguments."""

import argparse
import importlib
import sys
from collections.abc import Sequence


def arguments() -> argparse.ArgumentParser:
    """The three commands and their options."""
    parser = argparse.ArgumentParser(prog="tlm_book", description="Train a transformer language model on a text, let one write, or ask whether a model sees the future.")
    commands = parser.add_subparsers(dest="command", required=True)

    train = commands.add_parser("train", help="train a model on a text file", argument_default=argparse.SUPPRESS)
    source = train.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="FILE", help="a text file in UTF-8")
    source.add_argument("--book", action="store_true", help="the book's own corpus and settings: makes the model that is shipped")
    train.add_argument("--out", metavar="DIR", required=True, help="a folder that does not exist yet")
    train.add_argument("--device", default="auto", help='"auto" (a GPU when there is one), "cpu", "cuda", …')
    train.add_argument("--quiet", action="store_true", default=False, help="no progress bar")
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

    generate = commands.add_parser("generate", help="continue a text")
    generate.add_argument("--model", metavar="DIR", help="a folder that train made (default: the shipped model)")
    generate.add_argument("--prompt", default="", help="the text to continue (default: none)")
    generate.add_argument("--tokens", type=int, default=100, help="new tokens at most (default: 100)")
    generate.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest token each time (default: 0.8)")
    generate.add_argument("--seed", type=int, default=0, help="of the choice of tokens (default: 0)")
    generate.add_argument("--device", default="auto", help='"auto" (a GPU when there is one), "cpu", "cuda", …')

    audit = commands.add_parser("audit", help="does a model see the future? status 1 when it does")
    audit.add_argument("factory", metavar="MODULE:FACTORY", help="called without arguments; returns (model, inputs) or (model, inputs, options)")
    audit.add_argument("--back-end", action="append", dest="back_ends", metavar="NAME", help="an attention back end to try, too; may be repeated")
    audit.add_argument("--length", action="append", type=int, dest="lengths", metavar="N", help="a number of rows to try; may be repeated")
    audit.add_argument("--mode", action="append", choices=["eval", "train"], dest="modes", help="only this mode (default: both)")
    audit.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def train(options: dict[str, object]) -> str:
    """Train and save; the report."""
    from tlm_book.training import train_book, train_from_file

    source, quiet = options.pop("data", None), options.pop("quiet")
    options["progress"] = not quiet
    if options.pop("book", False):
        return str(train_book(**options))
    return str(train_from_file(source, **options))


def generate(options: dict[str, object]) -> str:
    """The prompt and what the model makes of it."""
    from tlm_book.inference import complete
    from tlm_book.training import choose_device, load, shipped

    place, folder = str(choose_device(options["device"])), options["model"]
    model, tokenizer = shipped(place) if folder is None else load(folder, place)
    return complete(
        model, tokenizer, options["prompt"], options["tokens"], temperature=options["temperature"], seed=options["seed"]
    )


def audit(options: dict[str, object]) -> tuple[str, int]:
    """The report, and 1 unless it is ok."""
    from tlm_book.auditing import audit
    from tlm_book.checks import expects

    path, _, name = options.pop("factory").partition(":")
    expects(path and name, "factory", repr(path), "package.module:factory")
    sys.path.insert(0, "")  # as python -m does with the module that it runs
    try:
        factory = getattr(importlib.import_module(path), name, None)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Status 0; 1 when an audit finds a leak; 2 with one line on stderr when the user can mend it; 130 when interrupted."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks a character shows a question mark
    options = vars(arguments().parse_args(argv))
    run = {"train": train, "generate": generate, "audit": audit}[options.pop("command")]
    status = 0
    try:
        said = run(options)
        said, status = said if isinstance(said, tuple) else (said, 0)
        print(said)
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, TypeError) and run is not audit:
            raise
        print(f"tlm_book: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tlm_book: stopped; nothing was written", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
