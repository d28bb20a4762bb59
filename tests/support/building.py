"""`jupyter-book build` in a folder, without a new interpreter for each: one process imports Sphinx once and forks.

    status, said = build(folder)

Each build has its own process, folder and exit status, and knows nothing of other builds. Where there is no fork, each is the program itself.
"""

import atexit
import functools
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

OPTIONS = ("build", ".", "-W", "-n", "--keep-going")


def program(folder: Path) -> tuple[int, str]:
    """The build as `make book` runs it: its exit status, and what it said."""
    command = [Path(sys.executable).with_name("jupyter-book"), *OPTIONS]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
    return done.returncode, done.stdout


def build(folder: Path) -> tuple[int, str]:
    """The same in a process forked from one that has imported what the first build needed."""
    if not hasattr(os, "fork"):
        return program(folder)
    with tempfile.TemporaryDirectory() as notes:
        said = Path(notes, "said")
        server = _server()
        server.stdin.write(json.dumps({"folder": str(folder), "said": str(said), "modules": str(Path(notes, "modules"))}) + "\n")
        server.stdin.flush()
        status = json.loads(server.stdout.readline())
        return status, said.read_text(encoding="utf-8")


@functools.cache
def _server() -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(server.terminate)
    return server


def _child(wanted: dict[str, str]) -> None:
    """Runs one build with its own folder and streams, and notes what it has imported. Never returns."""
    from jupyter_book.cli.main import main

    status = 1
    try:
        os.chdir(wanted["folder"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        said = os.open(wanted["said"], os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["jupyter-book", *OPTIONS]
        status = main(list(OPTIONS), standalone_mode=False) or 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    Path(wanted["modules"]).write_text(json.dumps(list(sys.modules)), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _import_installed(names: list[str]) -> None:
    """Import what a build has imported, but for the book's own extension, which each build takes from its own folder."""
    installed = sysconfig.get_path("purelib")
    for name in names:
        with suppress(Exception):
            spec = importlib.util.find_spec(name) if name not in sys.modules else None
            if spec and (spec.origin or "").startswith(installed):
                importlib.import_module(name)


def serve() -> None:
    """Reads folders from standard input, one a line, and answers each with the exit status of its build."""
    import jupyter_book.cli.main  # noqa: F401

    for count, line in enumerate(sys.stdin):
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            _child(wanted)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if count == 0:
            _import_installed(json.loads(Path(wanted["modules"]).read_text(encoding="utf-8")))
        print(status, flush=True)


if __name__ == "__main__":
    serve()
