"""A command that runs in its own session -> the command and all its children ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from fastpipe.diagnosis.stacks import children, started

_PATIENCE_S = 5.0


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks by SIGINT, as Ctrl-C does, then by SIGTERM, 5 s each; then the kernel ends what is left of it.

    Args:
        process: that was started with start_new_session.
    """
    family = [(pid, started(pid)) for pid in children(process.pid)]  # some may have left the group, as torchrun's do
    # Only the command itself is interrupted: a training that saves its state on Ctrl-C needs its workers for it.
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    if not _gone(process):
        _signal(process.pid, signal.SIGTERM)
        _gone(process)
    _signal(process.pid, signal.SIGKILL)
    for pid, since in family:
        with contextlib.suppress(OSError):
            if since and started(pid) == since:  # its number was not given to another
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _gone(process: subprocess.Popen[bytes]) -> bool:
    until_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    return process.poll() is not None


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
