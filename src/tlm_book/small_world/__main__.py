"""`python -m tlm_book.small_world --out DIR`: train the model of the small world. Written by hand."""

import argparse
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tlm_book.small_world",
        description="Train the model of the small world, which answers what is asked of its stories: some 90 minutes on two cores with --compile, a few on a GPU. Stopped, the same command goes on.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the model goes: a folder that does not exist yet")
    parser.add_argument("--tokens", type=int, metavar="N", help="how many tokens to read in all (default: as many as the model that comes with the book)")
    parser.add_argument("--device", default="auto", help='"auto" (a GPU when there is one), "cpu", "cuda", …')
    parser.add_argument("--compile", action="store_true", help="on a CPU, compile the step: it wants a compiler for C++ and then does in two minutes what takes three without")
    given = parser.parse_args(arguments)
    if given.out.exists():
        parser.error(f"--out: got {given.out}, which exists; want a folder that does not")
    if given.tokens is not None and given.tokens < 1:
        parser.error(f"--tokens: got {given.tokens}, want at least 1")
    from tlm_book.small_world.learning import (  # imported here, since only this needs torch
        RunSettings,
        learn_world,
    )
    from tlm_book.training import choose_device

    try:
        choose_device(given.device)
    except ValueError as error:
        parser.error(f"--{error}")
    settings = RunSettings() if given.tokens is None else RunSettings(tokens=given.tokens)
    try:
        learn_world(given.out, settings, device=given.device, compile=given.compile)
    except KeyboardInterrupt:
        sys.exit(f"stopped; kept in {given.out}.state: the same command goes on")


if __name__ == "__main__":
    main(sys.argv[1:])
