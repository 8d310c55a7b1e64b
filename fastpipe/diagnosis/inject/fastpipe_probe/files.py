"""Figures of one process -> files in a folder that another process reads, even while the first hangs.

    loader-<loader>.jsonl            facts, then a line an epoch and a batch, by the process that iterates
    loader-<loader>.state            what that process is at
    worker-<loader>-<id>-<pid>.jsonl facts, then a line a batch, by a worker (id -1: the process that iterates)
    worker-<loader>-<id>-<pid>.state what it is at
    stacks-<pid>.txt                 Python stacks, dumped when asked by DUMP_SIGNAL
    trouble.txt                      what went wrong in the watching

<loader> is the number of the process that iterates and a count: 4711.0.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import signal
import struct
import time
from typing import Any, TextIO

# One that no program uses: SIGUSR1 and SIGUSR2 are often taken, by job managers for example.
DUMP_SIGNAL: int = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_MOST_BYTES = 32 << 20
_STATE = struct.Struct("<d24s224s")  # since when (time.monotonic), stage, sample


class Log:
    """Appends JSON lines to a file, at most 32 MB; a disk that is full costs lines and nothing else."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = _MOST_BYTES

    def write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(data) <= self._left:
            self._left -= len(data)
            with contextlib.suppress(OSError):
                os.write(self._handle, data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handle)


class State:
    """What a process is at, in memory that another process can map: to set it costs a microsecond."""

    def __init__(self, path: str) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, _STATE.size)
            self._map = mmap.mmap(handle, _STATE.size)
        finally:
            os.close(handle)

    def set(self, stage: str, sample: object = None) -> None:
        text = "" if sample is None else str(sample) if isinstance(sample, int) else safe_repr(sample)
        self._map[:] = _STATE.pack(time.monotonic(), stage.encode(), text.encode("utf-8", "replace")[:224])


def read_state(path: str) -> tuple[float, str, str] | None:
    """Since when (time.monotonic), stage and sample; None before the first was set."""
    try:
        with open(path, "rb") as file:
            since, stage, sample = _STATE.unpack(file.read(_STATE.size))
    except (OSError, struct.error):
        return None
    name = stage.rstrip(b"\0").decode("utf-8", "replace")
    return (since, name, sample.rstrip(b"\0").decode("utf-8", "replace")) if name else None


def note(folder: str, problem: BaseException) -> None:
    """Leaves word of what went wrong in the watching."""
    with contextlib.suppress(OSError), open(os.path.join(folder, "trouble.txt"), "a", encoding="utf-8") as file:
        file.write(f"{type(problem).__name__}: {problem}\n")


def safe_repr(value: object) -> str:
    """At most 200 letters, of any object."""
    try:
        text = repr(value[:20] if isinstance(value, (list, tuple, str, bytes)) else value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 200 else text[:197] + "..."


_STACKS: list[TextIO] = []  # faulthandler keeps the number of a file, not the file


def arm(folder: str, *, fatal: bool = False) -> None:
    """From now on DUMP_SIGNAL has this process, and those forked from it, append all Python stacks to a file.

    The signal's handler needs no GIL: it works while a thread holds it and does not let go. With `fatal`, SIGSEGV and
    the like leave the stack of their thread there, too, if the program has not asked faulthandler for it.
    """
    file = open(os.path.join(folder, f"stacks-{os.getpid()}.txt"), "a", encoding="utf-8")  # noqa: SIM115 (kept open)
    faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True, chain=False)
    if fatal and not faulthandler.is_enabled():
        faulthandler.enable(file, all_threads=False)
    for old in _STACKS:
        old.close()
    _STACKS[:] = [file]


def disarm() -> None:
    """Undoes `arm`."""
    faulthandler.unregister(DUMP_SIGNAL)
    for file in _STACKS:
        file.close()
    _STACKS.clear()
