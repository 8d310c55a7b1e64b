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
from fastpipe.diagnosis.inject.fastpipe_probe.user_code import is_user_file
from fastpipe.diagnosis.processes import (
    read_bytes,
    read_cpu_s,
    read_parent,
    read_status,
)

_PROC = Path("/proc")
# A process that is stuck in the kernel may never write its stacks.
_PATIENCE_S = 3.0
# A dump that has not grown for so long is complete.
_QUIET_S = 0.2
# File "train.py", line 7 in step (faulthandler), or: line 7, in step (a traceback).
_FRAME = re.compile(r'^ *File "(.*)", line (\d+|\?\?\?)(?:,? in (.*))?$', re.MULTILINE)
_THIS_FOLDER = str(Path(__file__).parent)
# The functions of torch and of the probe that make a batch.
_FETCHING = ("fetch", "timed_fetch", "_worker_loop")


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


def parse_frames(text: str) -> list[Frame]:
    """Parses a traceback, or a stack as faulthandler writes it, in its order."""
    return [Frame(*match) for match in _FRAME.findall(text)]


def find_user_frame(innermost_first: Iterable[Frame]) -> Frame | None:
    """Finds the innermost frame in the user's own code."""
    for frame in innermost_first:
        if is_user_file(frame.file):
            return frame
    return None


@dataclass(frozen=True)
class Stack:
    """The stacks of a process at one moment."""

    pid: int
    role: str  # the process in words, such as "worker 1"
    status: str  # the kernel's state of it, and where in the kernel it waits
    cpu_s: float  # CPU time that it has used
    # The stacks of all its threads as faulthandler writes them; "" if it did not answer.
    text: str

    @cached_property
    def threads(self) -> list[list[Frame]]:
        """The frames of each thread, the innermost first. The main thread is the last."""
        parts = self.text.split("(most recent call first):\n")
        return [parse_frames(part) for part in parts[1:]]

    @cached_property
    def working(self) -> list[Frame]:
        """The frames of the thread that makes a batch, else of the main thread."""
        for frames in self.threads:
            if any(frame.function in _FETCHING for frame in frames):
                return frames
        return self.threads[-1] if self.threads else []

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame in the user's own code."""
        return find_user_frame(self.working)

    @property
    def line(self) -> Frame | None:
        """The frame that a report names: the user's, else the innermost."""
        if self.user_frame is not None:
            return self.user_frame
        return self.working[0] if self.working else None

    @property
    def lines(self) -> list[str]:
        """The working thread's stack as text, without the probe and the start of a worker."""
        lines = []
        for frame in self.working:
            if frame.function == "_worker_loop":
                break
            if _THIS_FOLDER not in frame.file:
                lines.append(f"{frame.place} in {frame.function}")
        return lines


def read_stack(pid: int, role: str, folder: Path) -> Stack:
    """Asks a process for its stacks, if it has installed the handler, and waits 3 s at most."""
    return Stack(
        pid, role, read_status(pid), read_cpu_s(pid), _request_dump(pid, folder)
    )


def find_fatal_line(pid: int, folder: Path) -> str:
    """Finds the user's line at which a signal such as SIGSEGV ended a process; else ""."""
    text = read_bytes(folder / f"stacks-{pid}.txt").decode("utf-8", "replace")
    _, _, fatal = text.rpartition("Fatal Python error")
    frame = Stack(pid, role="", status="", cpu_s=0.0, text=fatal).user_frame
    return frame.place if frame is not None else ""


def catches_dumps(pid: int) -> bool:
    """Whether a process has a handler for DUMP_SIGNAL, which would end any other process. proc(5):

    SigCgt.
    """
    status = read_bytes(_PROC / f"{pid}/status")
    match = re.search(rb"^SigCgt:\s*(\w+)", status, re.MULTILINE)
    if match is None:
        return False
    caught_mask = int(match[1], 16)
    return bool(caught_mask >> (DUMP_SIGNAL - 1) & 1)


def _request_dump(pid: int, folder: Path) -> str:
    """Has a process append its stacks to its file, and returns them; "" if it does not."""
    if sys.platform != "linux" or not catches_dumps(pid):
        return ""
    # A forked process has the handler of its parent, which writes into the parent's file.
    owner = pid
    path = folder / f"stacks-{owner}.txt"
    while not path.exists():
        owner = read_parent(owner)
        if owner <= 1:
            return ""
        path = folder / f"stacks-{owner}.txt"

    before_bytes = path.stat().st_size
    with contextlib.suppress(OSError):  # it may have ended
        os.kill(pid, DUMP_SIGNAL)
    until_s = time.monotonic() + _PATIENCE_S
    text = b""
    # The dump is complete when it stops growing.
    while time.monotonic() < until_s:
        time.sleep(_QUIET_S)
        previous = text
        text = read_bytes(path)[before_bytes:]
        if text and text == previous:
            break
    return text.decode("utf-8", "replace")
