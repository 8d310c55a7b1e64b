"""A process's number -> what the kernel says of it, by proc(5)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")
THIS_PROCESS = "this process"
_STATES = {
    "R": "on a CPU, or waiting for a CPU",
    "S": "waiting (for a lock, a pipe, a socket or time)",
    "D": "waiting for the disk or the network (cannot be interrupted)",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "ended, but its parent has not collected it yet",
}
# Positions in /proc/PID/stat, counted from the state, which is field 3 of proc(5).
_STATE = 0
_PARENT = 1
_USER_TICKS = 11
_SYSTEM_TICKS = 12
_START_TICKS = 19


def read_status(pid: int) -> str:
    """Reads the state of a process, in words."""
    if pid == os.getpid():
        return THIS_PROCESS
    fields = _read_stat(pid)
    if not fields:
        return "gone"
    state = fields[_STATE]
    status = f"{state}: {_STATES.get(state, '')}"
    kernel_function = read_bytes(_PROC / f"{pid}/wchan").decode().strip()
    if kernel_function and kernel_function != "0":
        status += f", in {kernel_function}"
    return status


def read_cpu_s(pid: int) -> float:
    """Reads the seconds of CPU that a process has used; 0 if they are not known."""
    fields = _read_stat(pid)
    if not fields:
        return 0.0
    user_ticks = int(fields[_USER_TICKS])
    system_ticks = int(fields[_SYSTEM_TICKS])
    ticks = user_ticks + system_ticks
    return ticks / os.sysconf("SC_CLK_TCK")


def list_children(pid: int) -> list[int]:
    """Lists the processes that a process has started, those that they have started, and so on."""
    children_of: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        child = int(folder.name)
        children_of.setdefault(read_parent(child), []).append(child)
    family = []
    waiting = [pid]
    while waiting:
        children = children_of.get(waiting.pop(), [])
        family += children
        waiting += children
    return sorted(family)


def read_parent(pid: int) -> int:
    """Reads the number of the parent; 0 if it is not known."""
    fields = _read_stat(pid)
    return int(fields[_PARENT]) if fields else 0


def read_start_ticks(pid: int) -> str:
    """Reads when a process was started, in the kernel's ticks; "" if there is no such process."""
    fields = _read_stat(pid)
    return fields[_START_TICKS] if fields else ""


def read_command_line(pid: int) -> bytes:
    """Reads the command line of a process, separated by zeros; empty if it is not known."""
    return read_bytes(_PROC / f"{pid}/cmdline")


def _read_stat(pid: int) -> list[str]:
    """Reads the fields of /proc/PID/stat from the state on; empty if there is no such process.

    The name of the program stands before, in brackets, and may hold any character.
    """
    content = read_bytes(_PROC / f"{pid}/stat")
    _, _, fields = content.rpartition(b")")
    return fields.decode().split()


def read_bytes(path: Path) -> bytes:
    """Reads a file; empty if it cannot be read: processes end at any moment."""
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""
