"""Commands as a user gives them, `python -m tlm_book …`, without a new interpreter for each: one process imports the package once and forks.

    run("generate", "--prompt", "The tide").stdout
    run_code("import sys; print(sys.argv)", "what it is given").stdout

Each command has its own process, folder, streams and exit status, on one thread and without the runtime checker, as for a user. It is killed when
it takes too long. Where there is no fork, each has an interpreter of its own.
"""

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LONGEST = 300  # seconds
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}


def environment(**more: str) -> dict[str, str]:
    """This process's environment on one thread, without the runtime checker, and with the first seed of every measurement."""
    return {name: value for name, value in os.environ.items() if name not in ("TLM_BOOK_TYPECHECK", "TLM_BOOK_ALL_SEEDS")} | ENVIRONMENT | more


def fresh(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter of its own."""
    command = [sys.executable, "-m", "tlm_book", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment(), cwd=cwd, timeout=LONGEST)


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process forked from one that has imported the package; what it printed, and its exit status."""
    if not hasattr(os, "fork"):
        return fresh(*arguments, cwd=cwd)
    return _asked(list(map(str, arguments)), cwd, None)


def run_code(
    code: str, *arguments: object, cwd: Path | None = None, imported: Sequence[str] = (), longest: int = LONGEST
) -> subprocess.CompletedProcess[str]:
    """The same for a program. The modules `imported` are imported before the fork, so that only the first program waits for them."""
    argv = list(map(str, arguments))
    if not hasattr(os, "fork"):
        command = [sys.executable, "-c", code, *argv]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment(), cwd=cwd, timeout=longest)
    return _asked(argv, cwd, code, imported, longest)


def run_script(file: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The same for a program in a file."""
    return run_code(f"import runpy; runpy.run_path({str(file)!r}, run_name='__main__')", *arguments)


def _asked(
    argv: list[str], cwd: Path | None, code: str | None, imported: Sequence[str] = (), longest: int = LONGEST
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        wanted = {
            "argv": argv, "cwd": str(cwd or Path.cwd()), "out": str(out), "err": str(err),
            "code": code, "imported": list(imported), "longest": longest,
        }
        server = _server(threading.get_ident())
        server.stdin.write(json.dumps(wanted) + "\n")
        server.stdin.flush()
        status = json.loads(server.stdout.readline())
        return subprocess.CompletedProcess(argv, status, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


@functools.cache
def _server(thread: int) -> subprocess.Popen[str]:
    """One for each thread, for it answers one question at a time."""
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    atexit.register(server.terminate)
    return server


def _child(wanted: dict) -> None:
    """Runs one command with its own folder and streams. Never returns."""
    from tlm_book.__main__ import main

    status = 1
    signal.alarm(wanted["longest"])
    try:
        os.chdir(wanted["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(wanted[name], os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["tlm_book", *wanted["argv"]]
        status = main() if wanted["code"] is None else exec(wanted["code"], {"__name__": "__main__"}) or 0
    except SystemExit as stop:
        if isinstance(stop.code, str):  # as Python does it
            print(stop.code, file=sys.stderr)
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve() -> None:
    """Reads commands from standard input, one a line, and answers each with its exit status."""
    import torch._dynamo  # noqa: F401  the first step of an optimizer imports it

    import tlm_book.auditing
    import tlm_book.derivation.prove
    import tlm_book.inference
    import tlm_book.training  # noqa: F401

    for line in sys.stdin:
        wanted = json.loads(line)
        for name in wanted["imported"]:
            with suppress(ImportError):  # a program that needs it says so itself
                importlib.import_module(name)
        child = os.fork()
        if child == 0:
            _child(wanted)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
