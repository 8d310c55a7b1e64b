"""`fastpipe` command lines, each with a fault of its own -> how each ended, without starting Python anew for each.

One program imports fastpipe with calls.c preloaded, and forks a child a command. It has no thread of its own, so that
nothing is lost in a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.faults.injector import Fault, preloaded

_TIME_LIMIT_S = 300
HUNG = "hung"


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; -9: SIGKILL.
        out, err: what it printed, each as one line.
    """

    code: int
    out: str
    err: str


class Forks:
    """The program; `forks()` makes and ends it."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def run(self, *command: object, **how: Any) -> Ended:
        """Runs a command to its end; arguments as for `start`."""
        return self.wait(self.start(*command, **how))

    def start(
        self,
        *command: object,
        fault: Fault | None = None,
        setting: dict[str, object] | None = None,
        largest_file: int | None = None,
    ) -> int:
        """Starts a command.

        Args:
            command: what follows `fastpipe` on a command line.
            fault: what goes wrong.
            setting: values that names in modules get before, {"fastpipe.packing.shard.tar._SYNC_BYTES": 1000}.
            largest_file: RLIMIT_FSIZE in bytes.

        Returns:
            A number to wait for.
        """
        asked = {
            "command": [str(argument) for argument in command],
            "fault": fault.settings() if fault else {},
            "setting": setting or {},
            "largest_file": largest_file,
        }
        return int(self._ask(asked))

    def wait(self, child: int) -> Ended:
        """Waits until a command has ended.

        Raises:
            AssertionError: it hangs, or ended with threads at work or by an error that nobody caught.
        """
        status, *printed = self._ask({"wait": child})
        ended = Ended(
            os.waitstatus_to_exitcode(status), *(" ".join(text.split()) for text in printed)
        )
        assert "Traceback" not in ended.err, ended.err
        return ended

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(question) + "\n")
        self._program.stdin.flush()
        answer = json.loads(self._program.stdout.readline())
        assert answer != HUNG, "a command has not ended in time"
        return answer


@contextlib.contextmanager
def forks() -> Iterator[Forks]:
    """A program that runs `fastpipe` commands."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    no_threads = {
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }  # of NumPy, pyarrow
    environment = {**os.environ, **preloaded(), **no_threads, "PYTHONPATH": path, "NO_COLOR": "1"}
    command = [sys.executable, "-W", "error", "-m", "support.faults.forks"]
    with (
        tempfile.TemporaryDirectory(prefix="fastpipe-forks-") as folder,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=folder,
        ) as program,
    ):
        yield Forks(program)
        assert program.stdin is not None
        program.stdin.close()


def _serve() -> None:
    """Answers each line of standard input: starts a child, or waits for one."""
    children: dict[
        int, tuple[int, int]
    ] = {}  # with what they print: pipes, since files may be limited
    for line in sys.stdin:
        question = json.loads(line)
        answer: object
        if "command" in question:
            (out, to_out), (err, to_err) = os.pipe(), os.pipe()
            child = os.fork()
            if child == 0:
                _be_child(question, to_out, to_err)
            os.close(to_out)
            os.close(to_err)
            children[child] = out, err
            answer = child
        else:
            child = question["wait"]
            handle = os.pidfd_open(child)
            in_time, _, _ = select.select([handle], [], [], _TIME_LIMIT_S)
            if not in_time:
                os.kill(child, signal.SIGKILL)
            os.close(handle)
            _, status = os.waitpid(child, 0)
            printed = [_all_of(end) for end in children.pop(child)]
            answer = [status, *printed] if in_time else HUNG
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _all_of(end: int) -> str:
    with open(end, encoding="utf-8") as file:
        return file.read()


def _be_child(question: dict[str, Any], out: int, err: int) -> None:
    """Runs the command, and never returns."""
    code = 70
    try:
        for number, end in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(end, number)
        for name, value in question["setting"].items():
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name
            setattr(importlib.import_module(module), attribute, value)
        if question["largest_file"] is not None:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (question["largest_file"], resource.RLIM_INFINITY)
            )
        from fastpipe.tools.cli.commands import app

        os.environ.update(question["fault"])
        ctypes.CDLL(None).fault_begin()
        try:
            app(question["command"], prog_name="fastpipe")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        os.environ["FAULT_UNDER"] = ""
        if threading.enumerate() != [threading.main_thread()]:
            raise RuntimeError(f"threads are still at work: {threading.enumerate()}")
    except BaseException:
        os.environ["FAULT_UNDER"] = ""
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _warm_up() -> None:
    """Imports what takes time once for all, also what a command imports only when it runs."""
    from fastpipe.tools.cli.commands import app

    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        app(["pack", os.devnull, os.devnull + "-packed"])
    of_pyarrow = "numpy.random", "pandas"
    later = ("fastpipe.sources.tables.parquet_arrow", "pyarrow.parquet", *of_pyarrow)
    for module in later:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in a fork"
    gc.freeze()


if __name__ == "__main__":
    _warm_up()
    _serve()
