"""Forked kernels are kernels like others: each with its own variables, folder, environment and chance. They need no ports."""

import os
import signal
import stat

import forked_kernels
import pytest
from jupyter_client.manager import KernelManager

IMPORTED = ["ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "torch"]  # enough here; every chapter runs with all

pytestmark = pytest.mark.skipif(not forked_kernels.FORKS, reason="kernels are not forked on this system")


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """kernel(folder, **variables): a manager whose kernel has started, and a function that runs code in it and returns what it prints."""
    monkeypatch.setattr(forked_kernels, "IMPORTED", IMPORTED)
    forked_kernels.use_forks()
    begun = []

    def start(folder=tmp_path, **variables):
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(cwd=str(folder), env=os.environ | variables)
        client = manager.client()
        begun.append((manager, client))
        client.start_channels()
        client.wait_for_ready(timeout=60)

        def run(code: str) -> str:
            said: list[str] = []
            client.execute_interactive(code, timeout=60, output_hook=lambda message: said.append(message["content"].get("text", "")))
            return "".join(said).strip()

        run.client = client
        return manager, run

    yield start
    for manager, client in begun:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_kernels_know_nothing_of_one_another(kernel, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (_, first), (_, second) = kernel(tmp_path / "a"), kernel(tmp_path / "b", JPY_ANYTHING="b")
    first("import os, random, sys, torch, numpy\nnumpy.left = torch.left = os.environ['LEFT'] = sys.left = 'behind'\nos.chdir('/')")
    assert first("torch.left, 'torch' in dir()\nprint(torch.left)") == "behind"
    assert second("print('torch' in dir())") == "False"  # no name is bound by what has been imported
    assert second("import os, sys, torch\nprint(hasattr(torch, 'left'), hasattr(sys, 'left'), 'LEFT' in os.environ)") == "False False False"
    assert second("print(os.getcwd(), os.environ['JPY_ANYTHING'], __name__)") == f"{tmp_path / 'b'} b __main__"
    chance = "import random, numpy, torch\nprint(random.random(), numpy.random.random(), torch.rand(1).item())"
    assert not set(first(chance).split()) & set(second(chance).split())


def test_each_environment_has_a_process_to_fork_from(kernel):
    other = "avx2" if os.environ.get("ATEN_CPU_CAPABILITY") == "default" else "default"
    manager, run = kernel(ATEN_CPU_CAPABILITY=other)
    assert run("import torch\nprint(torch.backends.cpu.get_cpu_capability().lower())") == other
    as_here = kernel()[0].provisioner.process
    assert isinstance(as_here, forked_kernels.Kernel) and as_here.parent is not manager.provisioner.process.parent
    assert kernel()[0].provisioner.process.parent is as_here.parent


def test_kernels_speak_through_files(kernel):
    manager, run = kernel()
    folder = manager.provisioner.folder
    assert run("print(6 * 7)") == "42" and manager.transport == "ipc"
    assert all(stat.S_ISSOCK(file.stat().st_mode) for file in os.scandir(folder)) and len(os.listdir(folder)) == 5
    run.client.stop_channels()
    manager.shutdown_kernel(now=True)
    assert not os.path.exists(folder)


def test_a_kernel_that_ends_is_seen_to_end(kernel):
    manager, run = kernel()
    assert manager.is_alive() and run("print(6 * 7)") == "42"
    process = manager.provisioner.process
    assert os.getpgid(process.pid) == process.pid  # so that its own processes end with it
    process.kill()
    assert process.wait() == -signal.SIGKILL and not manager.is_alive()


def test_a_cell_can_be_interrupted(kernel):
    manager, run = kernel()
    client = run.client
    asked = client.execute("import time\nprint('begun', flush=True)\ntime.sleep(60)", stop_on_error=False)  # what is asked next is not dropped
    while client.get_iopub_msg(timeout=60)["msg_type"] != "stream":  # an interrupt before the cell has begun would be lost
        pass
    manager.interrupt_kernel()
    while (answer := client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != asked:  # on a busy machine a second answer to "are you ready?"
        pass
    assert answer["content"]["ename"] == "KeyboardInterrupt"
    assert run("print('here')") == "here"
