"""Kernels without a new interpreter for each: one process imports what the chapters import, and forks a kernel for every notebook.

    use_forks()   # from now on jupyter_client starts kernels this way

An interpreter, IPython, torch and matplotlib need a few seconds before the first cell runs, and each chapter has a kernel. A forked kernel is a
process of its own, with its own folder, streams and variables: nothing that a notebook does reaches the next. What has been imported is found
sooner, but no name is bound by that. Each environment (other vector instructions, another number of threads) has a process of its own to fork from.
A kernel that is not a plain ipykernel starts as usual, and so do all kernels where there is no safe fork.

All kernels communicate through files in a folder of their own, not through numbered ports: a port that is free when it is chosen may be taken when
it is used.
"""

import functools
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

FORKS = sys.platform == "linux"  # elsewhere there is no fork, or one that the libraries of linear algebra do not survive
PLAIN = [sys.executable, "-m", "ipykernel_launcher"]
LONGEST = 90  # characters in the name of a socket's file; systems allow a hundred or so
OF_ONE_KERNEL = ("JPY_", "PYTEST_")  # variables that differ from kernel to kernel and that no import looks at
# Not pyplot: it looks for a shell when it is imported.
IMPORTED = """
    ipykernel.kernelapp ipykernel.ipkernel ipykernel.zmqshell ipywidgets
    numpy torch torch._dynamo sympy networkx xarray safetensors.torch jaxtyping hypothesis
    matplotlib.figure matplotlib.backends.backend_agg matplotlib.font_manager
    tlm_book.auditing tlm_book.derivation tlm_book.exercises tlm_book.graph_networks tlm_book.heads tlm_book.inference tlm_book.pretrained
    tlm_book.linear_attention tlm_book.rewards tlm_book.scaling tlm_book.training tlm_book.translation tlm_book.viewer tlm_book.word_vectors
""".split()


def use_forks() -> None:
    """In this process, kernels are forked from now on where that is possible."""
    if FORKS:
        KernelProvisionerFactory.provisioners["forked"] = EntryPoint("forked", f"{__name__}:Forked", KernelProvisionerFactory.GROUP_NAME)
        KernelProvisionerFactory.instance().default_provisioner_name = "forked"


def lasting(environment: dict[str, str]) -> dict[str, str]:
    """What an import can see of the environment."""
    return {name: value for name, value in environment.items() if not name.startswith(OF_ONE_KERNEL)}


class Forked(LocalProvisioner):
    """Starts a kernel by a fork if it can be done, else as its parent class does."""

    folder: str | None = None

    async def pre_launch(self, **options: Any) -> dict[str, Any]:
        if self.folder is None and self.parent and not self.parent.shell_port:
            self.folder = tempfile.mkdtemp(prefix="kernel-")
            if len(self.folder) < LONGEST:
                self.parent.transport, self.parent.ip = "ipc", os.path.join(self.folder, "socket")
        return await super().pre_launch(**options)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart)
        if self.folder and not restart:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def launch_kernel(self, cmd: list[str], **options: Any) -> dict[str, Any]:
        environment = dict(options.get("env") or os.environ)
        if cmd[:3] != PLAIN or options.get("independent"):
            return await super().launch_kernel(cmd, **options)
        parent = warm_process(frozenset(lasting(environment).items()))
        self.cwd = options.get("cwd") or os.getcwd()
        self.process = parent.fork(cmd[3:], environment, str(self.cwd), options.get("stdout"), options.get("stderr"))
        self.pid = self.pgid = self.process.pid  # each leads a group of its own
        return self.connection_info


class WarmProcess:
    """The process that has imported everything, as seen from this one. It answers one question at a time, and ends with this process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.line, theirs = socket.socketpair()
        command = [sys.executable, __file__, str(theirs.fileno()), *IMPORTED]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self.answers, self.lock = self.line.makefile("r", encoding="utf-8"), threading.Lock()

    def ask(self, question: dict[str, Any], files: list[int]) -> int | None:
        with self.lock:
            socket.send_fds(self.line, [b"?"], files)
            self.line.sendall(json.dumps(question).encode() + b"\n")
            return json.loads(self.answers.readline())

    def fork(self, arguments: list[str], environment: dict[str, str], folder: str, stdout: Any, stderr: Any) -> "Kernel":
        files = [given if isinstance(given, int) else given.fileno() for given in (stdout or 1, stderr or 2)]
        pid = self.ask({"arguments": arguments, "environment": environment, "folder": folder}, files)
        return Kernel(self, pid)


@functools.lru_cache(maxsize=3)  # some 600 MB each; one that is dropped ends with its last kernel
def warm_process(environment: frozenset[tuple[str, str]]) -> WarmProcess:
    return WarmProcess(dict(environment))


class Kernel:
    """A forked kernel; jupyter_client treats it as a subprocess.Popen."""

    stdin = stdout = stderr = None

    def __init__(self, parent: WarmProcess, pid: int) -> None:
        self.parent, self.pid, self.returncode = parent, pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                self.returncode = self.parent.ask({"ended": self.pid}, [])
            except (OSError, ValueError):  # the process that could tell has ended, and its kernels with it
                self.returncode = 1
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.02)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def import_all(names: list[str]) -> None:
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # ipykernel reads it when it is imported: a kernel ends when its parent does
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as ipykernel does; matplotlib reads it when it is imported
    for name in names:
        with suppress(Exception):  # a chapter that needs what is missing or broken says so itself
            importlib.import_module(name)


def forget_chance() -> None:
    """Random numbers that no cell has seeded differ from kernel to kernel, as in new interpreters."""
    for name, seed in (("numpy.random", "seed"), ("torch", "seed")):
        if name in sys.modules:
            getattr(sys.modules[name], seed)()


def serve(line: socket.socket) -> list[str] | None:
    """Answer questions until the line is cut. In a forked process: return the kernel's arguments."""
    asked = line.makefile("r", encoding="utf-8")
    while True:
        mark, files, _, _ = socket.recv_fds(line, 1, 2)
        if not mark:
            return None
        question = json.loads(asked.readline())
        if "ended" in question:
            pid, status = os.waitpid(question["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            with warnings.catch_warnings(action="ignore"):  # threads of libraries, which look after themselves at a fork
                answer = os.fork()
            if answer == 0:
                os.setsid()
                for number, file in enumerate(files, start=1):
                    os.dup2(file, number)
                    os.close(file)
                asked.close()
                line.close()
                os.chdir(question["folder"])
                os.environ.clear()
                os.environ.update(question["environment"], JPY_PARENT_PID=str(os.getppid()))
                return question["arguments"]
        for file in files:
            os.close(file)
        line.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # this folder; a kernel has its own there
    import_all(sys.argv[2:])
    arguments = serve(line)
    if arguments is not None:
        from ipykernel import kernelapp

        forget_chance()
        sys.argv = ["ipykernel_launcher.py", *arguments]
        kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
