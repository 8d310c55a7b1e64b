"""A process that does not answer -> its Python stacks, and its state in the kernel."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fastpipe.diagnosis.inject.fastpipe_probe.files import DUMP_SIGNAL
from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own

PROC = Path("/proc")
_PATIENCE_S = 3.0
_QUIET_S = 0.2
_FRAME = re.compile(r'^ *File "(.*)", line (\d+|\?\?\?)(?:,? in (.*))?$', re.MULTILINE)
_OWN = str(Path(__file__).parent)
THIS = "this process"
_WAITS = {
    "R": "on a CPU, or waiting for a CPU",
    "S": "waiting (for a lock, a pipe, a socket or time)",
    "D": "waiting for the disk or the network (cannot be interrupted)",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "ended, but its parent has not collected it yet",
}


class Frame(NamedTuple):
    """A line of a Python stack."""

    file: str
    line: str
    function: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.function} ({self.place})"


def frames_in(text: str) -> list[Frame]:
    """Of a traceback, or a stack as faulthandler writes it, in its order."""
    return [Frame(*found) for found in _FRAME.findall(text)]


def own_frame(innermost_first: Iterable[Frame]) -> Frame | None:
    """The innermost of the user's own."""
    return next((frame for frame in innermost_first if is_own(frame.file)), None)


@dataclass(frozen=True)
class Stack:
    """A process at one moment."""

    pid: int
    role: str  # what it is for
    status: str  # the kernel's word for it, and where in the kernel it waits
    cpu_s: float  # that it has had
    text: str  # the stacks of all its threads as faulthandler writes them; "" where it did not answer

    @cached_property
    def threads(self) -> list[list[Frame]]:
        """Their frames, the innermost first; the main thread's last."""
        return [frames_in(text) for text in self.text.split("(most recent call first):\n")[1:]]

    @cached_property
    def working(self) -> list[Frame]:
        """Those of the thread that does the work: the one that fetches, else the main thread."""
        for frames in self.threads:
            if any(frame.function in ("fetch", "timed_fetch", "_worker_loop") for frame in frames):
                return frames
        return self.threads[-1] if self.threads else []

    @property
    def users(self) -> Frame | None:
        """The innermost line of the user's own."""
        return own_frame(self.working)

    @property
    def line(self) -> Frame | None:
        """Where it is, as a report says it: in a line of the user's own, else in the innermost."""
        return self.users or next(iter(self.working), None)

    @property
    def lines(self) -> list[str]:
        """The stack of the thread that does the work, the innermost first, without our frames and what started it."""
        loop = next((at for at, frame in enumerate(self.working) if frame.function == "_worker_loop"), None)
        return [f"{frame.place} in {frame.function}" for frame in self.working[:loop] if _OWN not in frame.file]


def stack_of(pid: int, role: str, folder: Path) -> Stack:
    """Asks a process for its stacks, if it was armed, and waits for 3 s at most."""
    return Stack(pid, role, status(pid), _cpu_s(pid), _dump(pid, folder))


def dumped(pid: int, folder: Path) -> str:
    """The user's line at which a process was when a signal such as SIGSEGV ended it; "" where it left no stack."""
    text = _read(folder / f"stacks-{pid}.txt").decode("utf-8", "replace")
    users = Stack(pid, "", "", 0.0, text.rpartition("Fatal Python error")[2]).users
    return users.place if users else ""


def catches_dumps(pid: int) -> bool:
    """Whether a process will take DUMP_SIGNAL for what it is: any other would be ended by it. proc(5): SigCgt."""
    caught = re.search(rb"^SigCgt:\s*(\w+)", _read(PROC / f"{pid}/status"), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (DUMP_SIGNAL - 1) & 1)


def status(pid: int) -> str:
    """What a process is at, in words."""
    if pid == os.getpid():
        return THIS
    if not (fields := _stat(pid)):
        return "gone"
    where = _read(PROC / f"{pid}/wchan").decode().strip()
    inside = f", in {where}" if where and where != "0" else ""
    return f"{fields[0]}: {_WAITS.get(fields[0], '')}{inside}"


def _cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has had; 0 where that is not known."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def children(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    parents = {number: parent(number) for number in (int(folder.name) for folder in PROC.glob("[0-9]*"))}
    found = [pid]
    for each in found:  # which grows
        found += [child for child, starter in parents.items() if starter == each]
    return sorted(found[1:])


def parent(pid: int) -> int:
    """The process that started a process; 0 where that is not known."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def started(pid: int) -> str:
    """When a process was started, in the kernel's ticks; "" if there is none of this number."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def command_line(pid: int) -> bytes:
    """The words that a process was started with; empty where they are not known."""
    return _read(PROC / f"{pid}/cmdline")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on: the name before may hold anything. Empty: no such process."""
    return _read(PROC / f"{pid}/stat").rpartition(b")")[2].decode().split()


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def _dump(pid: int, folder: Path) -> str:
    if sys.platform != "linux" or not catches_dumps(pid):
        return ""
    # A file of the process, or of the one that it was forked from and whose handler it still has.
    path, owner = folder / f"stacks-{pid}.txt", pid
    while not path.exists():
        if (owner := parent(owner)) <= 1:
            return ""
        path = folder / f"stacks-{owner}.txt"
    before, text = path.stat().st_size, b""
    with contextlib.suppress(OSError):
        os.kill(pid, DUMP_SIGNAL)
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        time.sleep(_QUIET_S)
        if text == (text := _read(path)[before:]) != b"":
            break
    return text.decode("utf-8", "replace")
