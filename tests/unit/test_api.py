"""The front door: what `import tlm_book` costs and offers; and every example in a docstring gives what it says."""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import os
import pkgutil
import re
import subprocess
import sys

import pytest

import tlm_book

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(tlm_book.__path__, "tlm_book.") if not module.name.endswith("__main__")
)


def fresh(code: str) -> None:
    """Run code in a new interpreter, as a user would: without the runtime type checker."""
    environment = {name: value for name, value in os.environ.items() if name != "TLM_BOOK_TYPECHECK"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment)


def test_import_is_light():
    fresh("import sys, tlm_book; assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules), 'import tlm_book loads too much'")


def test_the_specification_needs_no_torch():
    fresh("import sys, tlm_book.spec.operators, tlm_book.spec.loss; assert 'torch' not in sys.modules")


def test_looking_around_loads_nothing():
    fresh("import sys, tlm_book; dir(tlm_book); assert not hasattr(tlm_book, 'nonsense'); assert 'torch' not in sys.modules")


@pytest.mark.parametrize("name", tlm_book.__all__)
def test_front_door_names_resolve(name):
    thing = getattr(tlm_book, name)
    assert thing is getattr(tlm_book, name) and name in dir(tlm_book)
    if name != "__version__":
        assert thing.__module__.startswith("tlm_book.") and thing.__name__ == name and name in importlib.import_module(thing.__module__).__all__


OF_NUMPY_AND_TORCH = """
import dataclasses, json
import numpy as np, torch
from tlm_book.encoder_decoder import EncoderDecoderConfig as Pair
from tlm_book.inference import Sampler
from tlm_book.positional_encoding import RopeScaling
from tlm_book.training import TrainConfig
from tlm_book.transformer_lm import Config

odd = {"d_model": np.uint8(8), "n_heads": torch.tensor(2), "eps": np.float32(0.5), "tied": np.bool_(True), "rope_scaling": {"kind": "linear", "factor": np.int32(2)}}
plain = {"d_model": 8, "n_heads": 2, "eps": 0.5, "tied": True, "rope_scaling": RopeScaling("linear", 2)}
for made, wanted in (
    (Config(np.int64(9), **odd), Config(9, **plain)),
    (Pair(np.int64(9), d_value=np.int16(3)), Pair(9, d_value=3)),
    (Sampler(np.float32(0.5), top_k=np.int64(3), top_p=torch.tensor(0.5)), Sampler(0.5, top_k=3, top_p=0.5)),
    (
        TrainConfig(steps=np.int64(90), lr=np.float32(0.5), betas=(np.float32(0.5), np.float64(0.75)), replanned=((np.int64(4), np.int64(5)),)),
        TrainConfig(steps=90, lr=0.5, betas=(0.5, 0.75), replanned=((4, 5),)),
    ),
):
    assert made == wanted and json.dumps(dataclasses.asdict(made)) == json.dumps(dataclasses.asdict(wanted))
"""


def test_numbers_of_numpy_and_torch_become_pythons_own():
    fresh(OF_NUMPY_AND_TORCH)


def test_front_door_is_the_design():
    assert {"Config", "TransformerLM", "Tokenizer", "train", "load", "generate", "derive", "__version__"} <= set(tlm_book.__all__)
    assert len(set(tlm_book.__all__)) == len(tlm_book.__all__)
    names: dict = {}
    exec("from tlm_book import *", names)
    assert set(tlm_book.__all__) <= set(names)


def test_a_type_checker_reads_the_same_front_door():
    (front,) = [node for node in ast.parse(inspect.getsource(tlm_book)).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    lines = [(alias.name, alias.asname, node.module) for node in front.body for alias in node.names]
    assert sorted(lines) == sorted((name, name, f"tlm_book.{home}") for name, home in tlm_book._HOME.items())


@pytest.mark.parametrize(("package", "name"), [("transformer_lm", "TransformerLM"), ("encoder_decoder", "EncoderDecoder"), ("training", "train"),
                                               ("tokenization", "PATTERN"), ("inference", "Sampler")])  # fmt: skip
def test_a_star_brings_what_the_chapter_exports(package, name):
    names: dict = {}
    exec(f"from tlm_book.{package} import *", names)
    assert name in names


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tlm_book' has no attribute 'Transformer'"):
        tlm_book.Transformer


def test_version_is_that_of_the_project():
    from importlib import metadata

    assert tlm_book.__version__ == metadata.version("tlm_book")


@pytest.mark.parametrize("name", MODULES)
def test_all_names_exist_and_stand_once(name):
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert len(set(names)) == len(names)
    assert all(hasattr(module, key) for key in names)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        result = doctest.testmod(module)
    assert result.failed == 0, report.getvalue()
    written = len(re.findall(r"^\s*>>> ", inspect.getsource(module), re.M))
    assert result.attempted == written, f"{written} examples are written, {result.attempted} ran"


def test_command_line_says_what_is_wrong_in_one_line(tmp_path):
    from tlm_book.__main__ import main

    refused = {
        "--data: got nothing at .*, want a text file": ["train", "--data", str(tmp_path / "none.txt"), "--out", str(tmp_path / "out"), "--quiet"],
        "--model: got nothing at .*, want a folder with a model": ["generate", "--model", str(tmp_path / "none"), "--prompt", "x"],
        "--model: got .* without config.json, want .*": ["prove", "--model", str(tmp_path)],
    }
    for message, argv in refused.items():
        report = io.StringIO()
        with contextlib.redirect_stderr(report):
            try:
                status: object = main(argv)
            except SystemExit as stop:  # what argparse refuses
                status = stop.code
        assert status == 2 and re.fullmatch(rf"tlm_book: error: {message}\n", report.getvalue()), report.getvalue()
    assert not (tmp_path / "out").exists()
