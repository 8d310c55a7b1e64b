"""Figures of one process -> files in a folder that another process reads, even while the first hangs.

    loader-<loader>.jsonl            facts, then fields of an Observation, by the process that iterates
    worker-<loader>-<id>-<pid>.jsonl number, pid and start, then fields of a Worker (id -1: the process that iterates)
    loader-*.state, worker-*.state   what that process is at
    stacks-<pid>.txt                 Python stacks, dumped when asked by DUMP_SIGNAL
    program-<pid>.jsonl              pid, then fields of a Program
    trouble.txt                      what went wrong in the watching

<loader> is the number of the process that iterates and a count: 4711.0. Items of lists are the dataclasses below.
Times are seconds of time.monotonic().
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

# One that no program uses: SIGUSR1 and SIGUSR2 are often taken, by job managers for example.
DUMP_SIGNAL: int = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_MOST_BYTES = 32 << 20
_STATE = struct.Struct("<d24s224s")  # since when (time.monotonic), stage, sample


@dataclass(frozen=True)
class Batch:
    """A batch as the loop saw it."""

    epoch: int
    number: int
    asked_s: float  # when it was asked for
    came_s: float
    size_bytes: int  # of its tensors
    sampler_s: float = 0.0  # that the sampler took since the batch before, in the process that iterates

    @property
    def wait_s(self) -> float:
        return self.came_s - self.asked_s


@dataclass(frozen=True)
class Fetch:
    """A batch as the process saw it that made it."""

    at_s: float  # when it was made
    seconds: float  # that it took; of these in the dataset and in collate_fn:
    dataset_s: float
    collate_s: float
    cpu_s: float  # of CPU, over all threads
    delayed_s: float | None  # that the process waited for a CPU; None where the kernel does not say
    samples: int
    times_us: Sequence[int]  # of each sample; empty where the dataset reads whole batches
    worst: Sequence[tuple[str, float, str]]  # the slowest samples: number, seconds, name


@dataclass(frozen=True)
class Snapshot:
    """A process at one moment: memory of its own, threads, and what its libraries are set to; None: not known."""

    batch: int
    private_bytes: int | None
    threads: int | None
    torch_threads: int | None = None
    cv2_threads: int | None = None
    used_bytes: int | None = None  # memory in use: *Note [memory in use]* in machine.py
    files: int | None = None  # that are open


@dataclass(frozen=True)
class Epoch:
    """An epoch that was asked for."""

    at_s: float
    place: str = ""  # the user's line that asked; "" where that is not known
    sampler: dict[str, Any] | None = None  # name and epoch of a sampler that shuffles by its epoch
    made: int = 0  # which of the DataLoaders made at the same line it is of
    changed: Sequence[str] = ()  # attributes of the dataset that workers that persist have with other values
    ranks: int = 1  # processes that train together


# torch's words, in a RuntimeError as others, where no batch came in the DataLoader's own `timeout`.
_TIMED_OUT = "RuntimeError: DataLoader timed out after"


@dataclass(frozen=True)
class Ending:
    """An error with which asking for a batch, or the program, ended."""

    text: str  # type and message
    place: str = ""  # the user's line that it came through; "" where there is none
    exits: Sequence[Sequence[int]] = ()  # workers that had ended with an error: number, process, exit code
    refused: Sequence[dict[str, str]] = ()  # attributes of the dataset that pickle refuses, where it refused

    @property
    def timed_out(self) -> bool:
        return self.text.startswith(_TIMED_OUT)


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


def leave(folder: str, line: dict[str, Any]) -> None:
    """Adds a line to the file of this program."""
    log = Log(os.path.join(folder, f"program-{os.getpid()}.jsonl"))
    log.write({"pid": os.getpid(), **line})
    log.close()


@contextlib.contextmanager
def noted(folder: str) -> Iterator[None]:
    """Leaves word of what goes wrong in the watching, and lets nothing of it through."""
    try:
        yield
    except Exception as problem:
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
