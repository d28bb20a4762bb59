"""Fill .venv with what requirements.txt pins, and say what happens: `.venv/bin/python book/_tools/install.py` (the Makefile's second step).

pip alone says nothing with --quiet and some four hundred lines without. Here a line every ten seconds says how many packages have been looked up,
fetched and installed. pip's errors are shown as they come, as are the first three of its warnings (all of them if it fails), and its exit status is
kept. Only whole lines are printed, so that logs and dumb terminals can show them.
"""

import compileall
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERY = 10.0  # seconds between two signs of life
SIZE = re.compile(r"\(([\d.]+) (bytes|kB|MB|GB)\)")
UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
LAST = 15  # lines of pip's own that are shown if it fails
WARNINGS = 3  # shown at once


class Progress:
    """What pip has done so far, read from its lines."""

    def __init__(self) -> None:
        self.found = self.fetched = self.wanted = 0
        self.megabytes = 0.0
        self.last: deque[str] = deque(maxlen=LAST)

    def read(self, lines: Iterable[str]) -> None:
        for line in map(str.rstrip, lines):
            self.last.append(line)
            first, *rest = line.split() or [""]
            if first in ("Collecting", "Requirement", "Obtaining"):
                self.found += 1
            elif first in ("Downloading", "Using") and ".metadata" not in line and (size := SIZE.search(line)):
                self.fetched += 1
                self.megabytes += float(size[1]) * UNITS[size[2]]
            elif line.startswith("Installing collected packages:"):
                self.wanted = len(rest) - 2

    def words(self, installed: int) -> str:
        if self.wanted:
            return f"{min(installed, self.wanted)} of {self.wanted} installed"
        if self.fetched:
            return f"{self.found} looked up, {self.fetched} fetched ({self.megabytes:,.0f} MB)"
        return f"{self.found} looked up"


def pass_on(lines: Iterable[str], held: list[str]) -> None:
    """Print what pip writes to its error stream; warnings beyond the first few are held back."""
    warnings = 0
    for line in lines:
        warnings += line.startswith("WARNING:")
        if line.startswith("WARNING:") and warnings > WARNINGS:
            held.append(line)
        else:
            print(line, end="", file=sys.stderr, flush=True)


def installed() -> int:
    """How many packages stand in the environment now."""
    return len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))


def pinned(text: str) -> int:
    """How many packages a file of requirements pins."""
    return len(re.findall(r"^[\w.\-]+==", text, re.MULTILINE))


def install(command: list[str], every: float = EVERY) -> int:
    """Run pip, print how far it is every so many seconds, return its exit status."""
    begun, before, progress, held = time.monotonic(), installed(), Progress(), list[str]()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace") as pip:
        readers = [threading.Thread(target=progress.read, args=(pip.stdout,)), threading.Thread(target=pass_on, args=(pip.stderr, held))]
        for reader in readers:
            reader.start()
        status = None
        while status is None:
            try:
                status = pip.wait(every)
            except subprocess.TimeoutExpired:
                print(f"  {time.monotonic() - begun:4.0f} s: {progress.words(installed() - before)}", flush=True)
        for reader in readers:
            reader.join()
    if status:
        print(*held, "pip failed. The last that it said:\n", *(f"  {line}\n" for line in progress.last), sep="", end="", file=sys.stderr)
    else:
        more = f" {len(held)} more warnings of pip were not shown." if held else ""
        print(f"  {time.monotonic() - begun:4.0f} s: all of them are there.{more}", flush=True)
    return status


def compiled() -> None:
    """Have Python compile every module but the packages' own tests, on all cores; pip would use one, and compile those, too."""
    print("  Python compiles them (up to a minute)", flush=True)
    with suppress(OSError):  # where no processes can be started: then each module is compiled when it is first imported
        compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=0, rx=re.compile(r"site-packages.*[/\\]tests[/\\]"))


def main() -> int:
    count = pinned((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    print(f"Step 2 of 2: the {count} packages of requirements.txt (1.3 GB; one to three minutes, the first time)", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile", "-r", "requirements.txt"]
    status = install(pip)
    if status == 0:
        compiled()
    return status


if __name__ == "__main__":
    sys.exit(main())
