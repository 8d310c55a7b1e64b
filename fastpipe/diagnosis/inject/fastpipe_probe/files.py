"""Figures of one process -> files that another process reads, even while the first hangs.

    loader-<loader>.jsonl            facts, then fields of an Observation, by the process that
        iterates
    worker-<loader>-<id>-<pid>.jsonl number, pid and start, then fields of a Worker (id -1: the
        process that iterates)
    loader-*.state, worker-*.state   the present activity of that process
    stacks-<pid>.txt                 Python stacks, dumped at each DUMP_SIGNAL
    program-<pid>.jsonl              pid, then fields of a Program
    trouble.txt                      errors of the watching itself

<loader> is the number of the process that iterates and a count: 4711.0. Items of lists are the
dataclasses of records.py.
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
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

# Programs leave the real-time signals alone. SIGUSR1 and SIGUSR2 are often in use, by job managers
# for example.
DUMP_SIGNAL: int = (
    signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
)
_MAX_BYTES = 32 << 20
_STATE = struct.Struct("<d24s224s")  # time.monotonic() of its begin, stage, sample
_SAMPLE_BYTES = 224
_MAX_LETTERS = 200
_MAX_ITEMS = 20


class Log:
    """Appends JSON lines to a file, at most 32 MB.

    If the disk is full, lines are lost and nothing else happens.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        self._free_bytes = _MAX_BYTES

    def write(self, line: dict[str, Any]) -> None:
        # One write a line: a process that is killed leaves at most its last line incomplete.
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(data) <= self._free_bytes:
            self._free_bytes -= len(data)
            with contextlib.suppress(OSError):
                os.write(self._handle, data)

    def close(self) -> None:
        os.close(self._handle)


class Activity(NamedTuple):
    """The present activity of a process."""

    since_s: float  # time.monotonic()
    stage: str
    sample: str


class State:
    """The present activity, in a mapped file. Setting it costs a microsecond."""

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        try:
            os.ftruncate(handle, _STATE.size)
            self._map = mmap.mmap(handle, _STATE.size)
        finally:
            os.close(handle)

    def set(self, stage: str, sample: object = None) -> None:
        if sample is None:
            text = ""
        elif isinstance(sample, int):
            text = str(sample)
        else:
            text = safe_repr(sample)
        data = text.encode("utf-8", "replace")[:_SAMPLE_BYTES]
        self._map[:] = _STATE.pack(time.monotonic(), stage.encode(), data)


def read_state(path: str) -> Activity | None:
    """Reads the activity of another process; None before it has set the first."""
    try:
        with open(path, "rb") as file:
            content = file.read(_STATE.size)
            since_s, stage, sample = _STATE.unpack(content)
    except (OSError, struct.error):
        return None
    name = _decode_field(stage)
    if not name:
        return None
    return Activity(since_s, name, _decode_field(sample))


def _decode_field(field: bytes) -> str:
    """Decodes a field of a State, which is padded with zeros and may be cut in a letter."""
    return field.rstrip(b"\0").decode("utf-8", "replace")


def write_program_line(folder: str, line: dict[str, Any]) -> None:
    """Adds a line to the file of this program."""
    pid = os.getpid()
    log = Log(os.path.join(folder, f"program-{pid}.jsonl"))
    log.write({"pid": pid, **line})
    log.close()


@contextlib.contextmanager
def contain_errors(folder: str) -> Iterator[None]:
    """Writes an error of the watching into trouble.txt, so that none reaches the program."""
    try:
        yield
    except Exception as problem:
        path = os.path.join(folder, "trouble.txt")
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{type(problem).__name__}: {problem}\n")


def safe_repr(value: object) -> str:
    """The repr of any object, at most 200 letters."""
    try:
        if isinstance(value, (list, tuple, str, bytes)):
            value = value[:_MAX_ITEMS]
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    if len(text) > _MAX_LETTERS:
        return text[: _MAX_LETTERS - 3] + "..."
    return text


# faulthandler keeps the number of a file and not the file, so the file has to be kept here.
_open_stacks: list[TextIO] = []


def install_dump_handler(folder: str, *, fatal: bool = False) -> None:
    """Lets this process, and its forks, append their Python stacks to a file at DUMP_SIGNAL.

    The handler needs no GIL, so it works while a thread holds the GIL and does not let go. With
    `fatal`, SIGSEGV and the like leave the stack of their thread there, too, unless the program
    uses faulthandler itself.
    """
    path = os.path.join(folder, f"stacks-{os.getpid()}.txt")
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (it stays open)
    faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True, chain=False)
    if fatal and not faulthandler.is_enabled():
        faulthandler.enable(file, all_threads=False)
    for old in _open_stacks:
        old.close()
    _open_stacks[:] = [file]


def remove_dump_handler() -> None:
    """Undoes `install_dump_handler`."""
    faulthandler.unregister(DUMP_SIGNAL)
    for file in _open_stacks:
        file.close()
    _open_stacks.clear()
