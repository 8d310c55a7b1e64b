"""A process that does not answer -> its Python stacks, and its state in the kernel."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fastpipe.diagnosis.inject.fastpipe_probe.files import DUMP_SIGNAL
from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own

PROC = Path("/proc")
_PATIENCE_S = 3.0
_QUIET_S = 0.2
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_OWN = str(Path(__file__).parent)
THIS = "this process"
_WAITS = {
    "R": "on a CPU, or waiting for a CPU",
    "S": "waiting (for a lock, a pipe, a socket or time)",
    "D": "waiting for the disk or the network (cannot be interrupted)",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "ended, but its parent has not collected it yet",
    "X": "dead",
}


@dataclass(frozen=True)
class Frame:
    """A line of a Python stack."""

    file: str
    line: str
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


@dataclass(frozen=True)
class Stack:
    """A process at one moment.

    Attributes:
        pid: the process.
        role: what it is for.
        status: the kernel's word for it, and where in the kernel it waits.
        cpu_s: seconds of CPU that it has had.
        text: the stacks of all its threads as faulthandler writes them; "" where it did not answer.
        threads: their frames, the innermost first; the main thread's last.
    """

    pid: int
    role: str
    status: str
    cpu_s: float
    text: str
    threads: tuple[tuple[Frame, ...], ...]

    @property
    def state(self) -> str:
        """The kernel's letter for it, such as D; "" where there is none."""
        return self.status[0] if self.status[1:2] == ":" else ""

    @property
    def innermost(self) -> Frame | None:
        """Where the thread is that does the work: the one that fetches, else the main thread."""
        frames = self.working
        return frames[0] if frames else None

    @property
    def users(self) -> Frame | None:
        """The innermost line of the user's own."""
        return next((frame for frame in self.working if is_own(frame.file)), None)

    @property
    def lines(self) -> tuple[str, ...]:
        """The stack of the thread that does the work, the innermost first, without our frames and what started it."""
        found = []
        for frame in self.working:
            if frame.function == "_worker_loop":
                break
            if _OWN not in frame.file:
                found.append(f"{frame.file}:{frame.line} in {frame.function}")
        return tuple(found)

    @property
    def working(self) -> tuple[Frame, ...]:
        for frames in self.threads:
            if any(frame.function in ("fetch", "timed_fetch", "_worker_loop") for frame in frames):
                return frames
        return self.threads[-1] if self.threads else ()


def stack_of(pid: int, role: str, folder: Path) -> Stack:
    """Asks a process for its stacks, if it was armed, and waits for 3 s at most."""
    return Stack(pid, role, status(pid), cpu_s(pid), text := _dump(pid, folder), _threads(text))


def dumped(pid: int, folder: Path) -> str:
    """The user's line at which a process was when a signal such as SIGSEGV ended it; "" where it left no stack."""
    path = folder / f"stacks-{pid}.txt"
    if not path.exists():
        return ""
    text = path.read_text(errors="replace").rpartition("Fatal Python error")[2]
    stack = Stack(pid, "", "", 0.0, text, _threads(text))
    return f"{stack.users.file}:{stack.users.line}" if stack.users else ""


def catches_dumps(pid: int) -> bool:
    """Whether a process will take DUMP_SIGNAL for what it is: any other would be ended by it. proc(5): SigCgt."""
    caught = re.search(rb"^SigCgt:\s*(\w+)", _proc(pid, "status"), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (DUMP_SIGNAL - 1) & 1)


def status(pid: int) -> str:
    """What a process is at, in words."""
    if pid == os.getpid():
        return THIS
    if not (fields := _stat(pid)):
        return "gone"
    where = _proc(pid, "wchan").decode().strip()
    inside = f", in {where}" if where and where != "0" else ""
    return f"{fields[0]}: {_WAITS.get(fields[0], '')}{inside}"


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has had; 0 where that is not known."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def children(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        parents.setdefault(parent(int(folder.name)), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        inner = parents.get(waiting.pop(), [])
        found += inner
        waiting += inner
    return sorted(found)


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
    return _proc(pid, "cmdline")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on: the name before may hold anything. Empty: no such process."""
    return _proc(pid, "stat").rpartition(b")")[2].decode().split()


def _proc(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / name).read_bytes()
    return b""


def _dump(pid: int, folder: Path) -> str:
    if sys.platform != "linux" or not catches_dumps(pid):
        return ""
    path = _stacks_file(pid, folder)
    if path is None:
        return ""
    before = path.stat().st_size
    with contextlib.suppress(OSError):
        os.kill(pid, DUMP_SIGNAL)
    began_s = last_s = time.monotonic()
    size = before
    while time.monotonic() - began_s < _PATIENCE_S:
        time.sleep(0.02)
        now = path.stat().st_size
        if now != size:
            size, last_s = now, time.monotonic()
        elif size > before and time.monotonic() - last_s > _QUIET_S:
            break
    with path.open("rb") as file:
        file.seek(before)
        return file.read().decode("utf-8", "replace")


def _stacks_file(pid: int, folder: Path) -> Path | None:
    """That of the process, or of the one that it was forked from and whose handler it still has."""
    while pid > 1:
        path = folder / f"stacks-{pid}.txt"
        if path.exists():
            return path
        pid = parent(pid)
    return None


def _threads(text: str) -> tuple[tuple[Frame, ...], ...]:
    found: list[list[Frame]] = []
    for line in text.splitlines():
        if line.endswith("(most recent call first):"):
            found.append([])
        elif (frame := _FRAME.match(line)) and found:
            found[-1].append(Frame(*frame.groups()))
    return tuple(tuple(frames) for frames in found)
