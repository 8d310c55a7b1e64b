"""A program -> how it ended, as `python` would run it, but without the seconds in which it imports torch.

One process, which has imported torch and has no thread, forks them all; see warm_server.py. Tests of the start of a
program, of all of its memory, or of what happens while torch is imported want a Python of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

_SERVER = Path(__file__).with_name("warm_server.py")
_LOOK_S = 0.005
_lock = threading.Lock()
cpu_s = 0.0  # of all programs that have ended


class Started:
    """A program that runs: what is used of subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, as of subprocess; None while it runs."""
        if self.returncode is None:
            ended = _ask({"wait": self.pid})
            if ended is not None:
                status, used_s = ended
                self.returncode = os.waitstatus_to_exitcode(status)
                _count(used_s)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Raises:
            subprocess.TimeoutExpired: it has not come.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(_LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        """To it alone, if it is still there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it, and what is left of its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def start(
    *words: object,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> Started:
    """Starts `python WORDS...` in a session of its own, without input; arguments as of subprocess.Popen."""
    request = {
        "start": [str(word) for word in words],
        "environment": dict(os.environ if environment is None else environment),
        "folder": str(folder or Path.cwd()),
    }
    outputs = [number if given is None else given for number, given in ((1, stdout), (2, stderr))]
    with open(os.devnull, "rb") as nothing:
        handles = [one if isinstance(one, int) else one.fileno() for one in (nothing, *outputs)]
        pid = _ask(request, handles)
    assert pid is not None
    return Started(pid)


def run(*words: object, timeout_s: float, **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS...` to its end, and keeps what it prints; arguments as for `start`."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        program = start(*words, stdout=out, stderr=errors, **how)
        try:
            code = program.wait(timeout_s)
        finally:
            program.kill()
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), errors.read())


def run_script(
    code: str, *arguments: object, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs Python as scripts.run_script does: with warnings as errors; one that hangs fails the test."""
    return run("-W", "error", "-c", textwrap.dedent(code), *arguments, timeout_s=timeout_s)


def ready() -> None:
    """Starts the process that forks: afterwards, what a test starts are children that were not there before."""
    assert start("-c", "").wait(300) == 0


def _ask(request: dict[str, Any], handles: list[int] | None = None) -> Any:
    with _lock:
        server = _server(os.getpid())
        socket.send_fds(server, [json.dumps(request).encode() + b"\n"], handles or [])
        answer = server.recv(100)
    assert answer, "the process that forks programs has ended"
    return json.loads(answer)


def _count(used_s: float) -> None:
    global cpu_s
    with _lock:
        cpu_s += used_s


@functools.cache
def _server(process: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, str(_SERVER), str(theirs.fileno()), "torch.utils.data", "numpy"],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
            },  # programs whose threads wait for each other take longer
            start_new_session=True,
        )

    def end() -> None:
        if os.getpid() == process:
            ours.close()
            server.wait()

    atexit.register(end)
    return ours
