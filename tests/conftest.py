"""Tests run with the runtime checker on: every signature of the package is enforced by jaxtyping and beartype."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TLM_BOOK_TYPECHECK", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_tools"))


def pytest_addoption(parser):
    parser.addoption("--colab", action="store_true", help="run the chapters in an environment of their own (tests/test_colab.py)")
    parser.addoption("--thorough", action="store_true", help="kill runs at every moment, not at some (tests/test_resume.py)")
