"""Which outputs agree: what another processor may print differently, and what may never change unnoticed."""

import base64
import copy
import io
import re
import shutil
import subprocess
import sys

import chapters as book
import nbformat
import numpy as np
import pytest
from agreement import differences, disagreement, kept, near, same_picture
from PIL import Image

AGREE = [
    ("share 0.00", "share 0.01"),
    ("share 0.01", "share 0.00"),
    ("loss 1.57, then 1.56", "loss 1.58, then 1.56"),
    ("-0.0", "0.0"),
    ("-0.00 and 0.01", "0.00 and 0.01"),
    ("error 9.99e-05", "error 1.00e-04"),
    ("error 3e-16", "error 4e-16"),
    ("[0.5, 0.25]", "[0.501, 0.25]"),  # a list of rounded numbers: zeros at the end are not printed
    ("48% of the rate", "49% of the rate"),
    ("100 %", "99 %"),
    (r"48\,\% and 48\% ", r"48\,\% and 47\% "),
    ("≈ 120 and ≈12", "≈ 121 and ≈11"),
    ("  9.99\n 10.00", " 10.00\n 10.00"),  # a column that is padded
    ("1,234.5 tokens", "1,234.6 tokens"),
    ("−0.50 in a formula", "−0.49 in a formula"),
    ("[ 0.12 -0.10]", "[ 0.12 -0.11]"),
    ("0.5–0.7, 0.5-0.7", "0.5–0.8, 0.5-0.6"),
    ('<td style="width: 12.5%">0.125</td>', '<td style="width: 12.6%">0.126</td>'),
    ('<path d="M 12.5 3.0 L 1.0 -2.5"/><text x="1.5">0.50</text>', '<path d="M 12.4 3.0 L 1.0 -2.6"/><text x="1.5">0.51</text>'),
    ("nan and inf and 0.1", "nan and inf and 0.2"),
    ("12.5px, 3.5ms", "12.6px, 3.4ms"),
]

DISAGREE = [
    ("the loss falls", "the loss rises"),  # a word
    ("share 0.20", "share -0.20"),  # a sign
    ("share -0.01", "share 0.01"),  # a sign, two units
    ("share 0.00", "share 0.02"),  # two units
    ("share 0.50", "share 0.52"),
    ("1.5e-05", "1.5e-04"),  # an exponent
    ("1.5e-05", "1.7e-05"),
    ("12 heads", "13 heads"),  # an integer
    ("token 513", "token 514"),
    ("1,234 weights", "1,235 weights"),
    ("3 rows", "3.0 rows"),  # an integer that became a float
    ("torch 2.13.0", "torch 2.13.1"),  # a version
    ("T5 and v1.2", "T6 and v1.2"),
    ("v1.2 of x0.5", "v1.3 of x0.5"),
    ("48% of it", "50% of it"),
    ("#a1b2c3", "#a1b2c4"),  # a colour
    ("rgb(10, 20, 30)", "rgb(10, 20, 31)"),
    ("inf", "1e308"),
    ("nan", "0.0"),
    ("inf", "-inf"),
    ("one\ntwo\nthree", "one\nthree"),  # a line
    ("one\ntwo", "one\ntwo\n"),
    ("0.5 0.5", "0.5"),  # a number
    ("0.5", "0.5 0.5"),
    ("0.5 a b", "0.5 a  b"),  # spaces that pad nothing
    ("1/3", "1/4"),
    ("10^{-5}", "10^{-6}"),
    ("1,234.5", "1,235.5"),
    ("2026-11-22", "2026-11-23"),
    ("[0.5, 0.25]", "[0.502, 0.25]"),
    ("0.693147180560", "0.111111111111"),
    ("n 123456789012", "n 123456789013"),
]


@pytest.mark.parametrize(("committed", "now"), AGREE)
def test_what_another_processor_may_print(committed, now):
    assert disagreement(committed, now) is None and disagreement(now, committed) is None


@pytest.mark.parametrize(("committed", "now"), DISAGREE)
def test_what_may_not_change(committed, now):
    assert disagreement(committed, now) and disagreement(now, committed)
    assert "committed" in disagreement(committed, now)


@pytest.mark.parametrize("places", range(1, 6))
@pytest.mark.parametrize("value", [0.0, 1.0, 9.0, -3.0, 123.0])
def test_one_unit_and_not_two(value, places):
    """In every place and of either sign, also across zero and across a power of ten."""
    for sign in (1, -1):
        one, two = (f"{value + sign * k * 10.0**-places:.{places}f}" for k in (1, 2))
        assert near(f"{value:.{places}f}", one) and not near(f"{value:.{places}f}", two)


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data):
    return {"output_type": "display_data", "metadata": {}, "data": {key.replace("_", "/"): value for key, value in data.items()}}


def test_kinds_and_numbers_of_outputs():
    assert not differences([stream("a 0.1\n"), stream("b\n")], [stream("a 0.2\nb\n")])  # a stream in two pieces
    assert differences([stream("a")], [stream("a", "stderr")])
    assert differences([stream("a")], []) and differences([], [stream("a")])
    assert differences([shown(text_plain="x")], [shown(text_plain="x"), shown(text_plain="x")])
    assert differences([shown(text_html="x 0.1")], [shown(text_html="x 0.3")])
    assert differences([shown(text_latex="$0.10$")], [shown(text_latex="$0.13$")])
    assert not differences([shown(text_plain="x", image_png="one")], [shown(text_plain="x", image_png="other")])
    error = {"output_type": "error", "ename": "ValueError", "evalue": "n: got 3", "traceback": ["one"]}
    assert not differences([error], [error | {"traceback": ["other"]}])
    assert differences([error], [error | {"evalue": "n: got 4"}]) and differences([error], [error | {"ename": "TypeError"}])


def test_what_torch_says_of_one_python_is_no_output_of_a_cell():
    said = "/x/torch/_dynamo/guards.py:1343: RuntimeWarning: Guards may run slower on Python 3.13.0. Consider upgrading to Python 3.13.1+.\n  warnings.warn(\n"
    assert not differences([], [stream(said, "stderr")])
    assert not differences([stream("a\n", "stderr")], [stream("a\n" + said, "stderr")])
    assert differences([], [stream(said + "/x/y.py:1: RuntimeWarning: overflow\n  f()\n", "stderr")])
    assert differences([], [stream(said.replace("Guards", "Others"), "stderr")])


def viewer(weights, name="0123456789ab"):
    packed = base64.b64encode(np.array(weights, np.uint8).tobytes()).decode()
    return f'<div data-tlm-attention="{name}"></div> {{"entropy":[0.5],"weights":["{packed}"]}} [x="{name}"]'


def test_packed_weights_and_names_of_pictures():
    assert disagreement(viewer([1, 2, 3]), viewer([1, 3, 3], "ba9876543210")) is None
    assert disagreement(viewer([1, 2, 3]), viewer([1, 4, 3]))
    assert disagreement(viewer([1, 2, 3]), viewer([1, 2, 3, 0]))
    split = viewer([1, 2]).replace("0123456789ab", "ba9876543210", 1)  # script and picture no longer find one another
    assert disagreement(viewer([1, 2]), split)


def picture(pixels):
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def test_execute_keeps_committed_digits():
    plain = np.full((4, 4, 3), 100)
    other = plain.copy()
    other[0, 0] = 180
    assert same_picture(picture(plain), picture(plain + 3))
    assert not same_picture(picture(plain), picture(other)) and not same_picture(picture(plain), picture(plain[:3]))
    old = [stream("loss 1.57\n"), shown(text_plain="0.10", image_png=picture(plain))]
    new = [stream("loss 1.58\n"), shown(text_plain="0.30", image_png=picture(plain + 1))]
    found = kept(copy.deepcopy(old), copy.deepcopy(new))
    assert found[0] == old[0] and found[1]["data"] == {"text/plain": "0.30", "image/png": old[1]["data"]["image/png"]}
    assert kept(old, new[:1]) == new[:1]
    assert kept(old[:1], [stream("99 ms")], measured=True) == old[:1]
    assert kept(old[:1], [shown(text_plain="x")], measured=True) == [shown(text_plain="x")]


@pytest.fixture(scope="module")
def as_typed(tmp_path_factory):
    """What `pytest --nbval book/` says in a small copy of the book: one notebook differs by one unit from what is committed, one by two."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "book" / "_tools").mkdir(parents=True)
    shutil.copy(book.BOOK / "conftest.py", folder / "book")
    for tool in ("agreement.py", "forked_kernels.py", "workers.py"):
        shutil.copy(book.BOOK / "_tools" / tool, folder / "book" / "_tools")
    kernels = folder / "book" / "_tools" / "forked_kernels.py"
    text = kernels.read_text(encoding="utf-8")
    kernels.write_text(re.sub(r'IMPORTED = """.*?"""', 'IMPORTED = """ipykernel.kernelapp"""', text, flags=re.S), encoding="utf-8")  # enough for a print
    for name, loss in (("agrees", "0.501"), ("differs", "0.502")):
        cell = nbformat.v4.new_code_cell("print('loss 0.500')", execution_count=1, outputs=[nbformat.v4.new_output("stream", text=f"loss {loss}\n")])
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=metadata), folder / "book" / f"{name}.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval", "book/", "-p", "no:cacheprovider", "-rpf"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_in_a_notebook_as_typed(as_typed):
    """One unit passes, two fail and are named."""
    assert as_typed.returncode == 1, as_typed.stdout
    assert "PASSED book/agrees.ipynb::Cell 0" in as_typed.stdout and "FAILED book/differs.ipynb::Cell 0" in as_typed.stdout, as_typed.stdout
    assert "committed 0.502, now 0.500" in as_typed.stdout and "0.501" not in as_typed.stdout
