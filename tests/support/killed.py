"""Runs that are killed. A parent that has imported torch forks children, so that fifty starts cost little: `python killed.py JOB …`.

`random N`: kill with SIGKILL at N random moments; `events N`: at N of the moments just before a file is touched (0: at each of them).
Each run is resumed after every kill until it is complete; its files must then be those of a run that was never killed.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch._dynamo  # noqa: F401  the first step of an optimizer imports it: here once, and not in every child

from tlm_book.tokenization import documents
from tlm_book.training import run_folder, train_files

TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}
CHOICES = {"steps": 24, "vocab_size": 280, "d_model": 16, "layers": 2, "heads": 2, "context": 16, "batch_size": 4, "eval_every": 2, "token_noise": 0.2, "lr": 3e-3}


def run(home: Path, name: str) -> None:
    """The run `name`, begun or taken up; nothing when it is complete."""
    if not (home / name).exists():
        train_files(home / "text.txt", home / name, resume=True, keep=2, device="cpu", progress=False, **CHOICES)


def fork(work: Callable[[], object]) -> int:
    """A child that does the work and exits with 0, or with 1 after an error."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def ended(child: int) -> bool:
    """Waits for the child. True when it was killed, False when it was done."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a run failed")
    return os.WIFSIGNALED(status)


def files(folder: Path) -> dict[str, bytes]:
    """Names and contents."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def compare(home: Path, name: str) -> None:
    """The files of this run are those of the run that was never killed, bit for bit; then it is removed."""
    assert files(home / name) == files(home / "whole"), "a run that was killed ended otherwise"
    shutil.rmtree(home / name)
    shutil.rmtree(run_folder(home / name), ignore_errors=True)  # killed between the last two acts


def duration(home: Path, name: str) -> float:
    """Seconds that this run takes, never killed."""
    begun = time.monotonic()
    assert not ended(fork(lambda: run(home, name)))
    return time.monotonic() - begun


def at_random(home: Path, kills: int, length: float) -> str:
    """Kill at random moments, run after run, until there were so many kills."""
    chance, done, runs, halves = random.Random(0), 0, 0, 0
    while done < kills:
        runs += 1
        killed = True
        while killed:
            child = fork(lambda: run(home, f"run{runs}"))
            if done < kills:  # what was resumed has less than the whole before it
                time.sleep(chance.uniform(0, 2 / 3 * length))
                os.kill(child, signal.SIGKILL)
            killed = ended(child)
            done += killed
            halves += killed and any(run_folder(home / f"run{runs}").glob(".step-*.part"))
        compare(home, f"run{runs}")
    return f"{done} kills, {halves} of them while a checkpoint was written, in {runs} runs"


def at_events(home: Path, wanted: int) -> str:
    """Kill just before a file of the run is touched for the k-th time, for many k or all."""

    def die_at(k: int) -> None:
        seen = 0

        def look(event: str, arguments: tuple) -> None:
            nonlocal seen
            if event in TOUCHES and str(home) in str(arguments):
                seen += 1
                if seen == k:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)
        run(home, "events")
        (home / "seen").write_text(str(seen))

    assert not ended(fork(lambda: die_at(0)))
    compare(home, "events")
    total = int((home / "seen").read_text())
    assert total > 100
    moments = range(1, total) if wanted == 0 else sorted(random.Random(1).sample(range(1, total), wanted))
    for k in moments:
        assert ended(fork(lambda: die_at(k)))
        assert not ended(fork(lambda: run(home, "events")))
        compare(home, "events")
    return f"killed before {len(moments)} of {total} touches"


def main(*jobs: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        (home / "text.txt").write_text("\f".join(text[:550] for text in documents()[:8]), encoding="utf-8")
        length = min(duration(home, "whole"), duration(home, "again"))  # one alone may have had to wait
        compare(home, "again")
        for job, number in zip(jobs[::2], map(int, jobs[1::2])):
            print(at_random(home, number, length) if job == "random" else at_events(home, number))


if __name__ == "__main__":
    main(*sys.argv[1:])
