"""Types and style: mypy, strictly, over the package; ruff over all Python files. Both are set up in pyproject.toml."""

import subprocess
import sys

import chapters as book


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", *command], cwd=book.ROOT, capture_output=True, text=True)


def test_types_hold_strictly():
    found = run("mypy")
    assert found.returncode == 0, found.stdout + found.stderr


def test_ruff_is_clean():
    found = run("ruff", "check", "--output-format", "concise", ".")
    assert found.returncode == 0, found.stdout + found.stderr


WRONG = """import tlm_book
from tlm_book.inference import Sampler
from tlm_book.spec.operators import softmax
from tlm_book.transformer_lm import Config


def returns(x: int) -> str:
    return x  # return-value


def untyped(x):  # no-untyped-def
    return x


softmax("x")  # arg-type
Config(5).replace(d_ff=3).nonsense  # attr-defined
Config(5, widht=4)  # call-arg
Sampler(top_k=5).nonsense  # attr-defined
tlm_book.Config(5, widht=4)  # call-arg
tlm_book.Confg  # attr-defined
undefined  # name-defined
"""


def test_the_type_checker_sees(tmp_path):
    """With the project's settings, also through the package's own signatures: each of these lines, and no other, is wrong."""
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    found = run("mypy", "--no-error-summary", str(tmp_path / "wrong.py")).stdout.splitlines()
    seen = {(line.split(":")[1], line.split("[")[-1][:-1]) for line in found if ": error: " in line}
    wrong = {(str(k), line.split("# ")[1]) for k, line in enumerate(WRONG.splitlines(), 1) if "# " in line}
    assert seen == wrong
