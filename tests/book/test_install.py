"""The first two minutes of `make book`: lines that say how far pip is, its errors and its exit status."""

import re
import sys

import install
import pytest

PIP = """import sys, time
print("Obtaining file:///somewhere (from -r requirements.txt (line 3))")
print("Collecting torch==2.13.0 (from -r requirements.txt (line 1))", "  Downloading torch-2.13.0.metadata (30 kB)", sep="\\n")
print("Collecting numpy==2.4.6 (from -r requirements.txt (line 2))", flush=True)
time.sleep(PAUSE)
print("Downloading torch-2.13.0-cp311.whl (899.7 MB)", "Using cached numpy-2.4.6-cp311.whl (16.3 MB)", sep="\\n", flush=True)
time.sleep(PAUSE)
for k in range(5):
    print(f"WARNING: number {k}", file=sys.stderr, flush=True)
print("Installing collected packages: numpy, torch", flush=True)
time.sleep(PAUSE)
sys.stderr.write("ERROR: what went wrong\\n" if STATUS else "")
sys.exit(STATUS)
"""


STAGES = ["3 looked up", "3 looked up, 2 fetched (916 MB)", "0 of 2 installed", "all of them are there. 2 more warnings of pip were not shown."]


def run(capfd, status, pause=0.1):
    assert install.install([sys.executable, "-c", PIP.replace("STATUS", str(status)).replace("PAUSE", str(pause))], every=0.1) == status
    return capfd.readouterr()


def test_signs_of_life(capfd):
    for pause in (0.6, 5.0):  # on a busy machine a line may come too late for a short stage
        out, err = run(capfd, 0, pause)
        said = [line.split(": ", 1)[1] for line in out.splitlines()]
        if (stages := list(dict.fromkeys(said))[-4:]) == STAGES:
            break
    assert stages == STAGES
    assert err == "WARNING: number 0\nWARNING: number 1\nWARNING: number 2\n"
    assert re.fullmatch(r"( +\d+ s: [\w ,.()]+\n)+", out)  # lines alone: nothing that a log could not hold


@pytest.mark.parametrize("status", [1, 3])
def test_a_failure_is_shown_and_kept(capfd, status):
    out, err = run(capfd, status)
    assert "ERROR: what went wrong\n" in err and all(f"WARNING: number {k}\n" in err for k in range(5))
    assert "Installing collected packages: numpy, torch" in err
    assert "all of them" not in out


def test_pins_are_counted():
    assert install.pinned("# a==1\na==1\nb-c==2.0\n\n-e .\n") == 2


def test_packages_that_cannot_be_compiled_beforehand_are_no_failure(monkeypatch):
    tried = []

    def refuse(*_, **options):
        tried.append(options["workers"])
        raise PermissionError("no semaphores")

    monkeypatch.setattr(install.compileall, "compile_dir", refuse)
    install.compiled()
    assert tried == [0]
