"""A fault that is wanted -> the environment of a program whose system calls then go wrong (calls.c is preloaded)."""

from __future__ import annotations

import functools
import os
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("calls.c")
# What a packer changes the disk with.
WRITING = (
    "open",
    "write",
    "pwrite",
    "ftruncate",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
)


@dataclass(frozen=True)
class Fault:
    """What goes wrong with which calls on the files of one folder.

    Attributes:
        under: the folder.
        calls: names of system calls; "open" and "pread" stand for their 64-bit and *at forms, too.
        kind: "kill" (SIGKILL before the call), "killed after", "torn" (after half of a write), "short" (half of a
            write or read), "delay" (`number` ms before it), "error" (`number` is the errno).
        at: which of the calls, from 0, counted over all threads; -1: none.
        number: see `kind`.
        each: also every call after that one.
        log: a file that gets a line for each call: number, name, path.
    """

    under: Path
    calls: tuple[str, ...]
    kind: str = "kill"
    at: int = -1
    number: int = 0
    each: bool = False
    log: Path | None = None

    def environment(self) -> dict[str, str]:
        """For the program: this process's own environment, with the fault."""
        return {**os.environ, **preloaded(), **self.settings()}

    def settings(self) -> dict[str, str]:
        """The fault alone, for a program that has calls.c preloaded."""
        return {
            "FAULT_UNDER": str(self.under.resolve()),
            "FAULT_CALLS": "".join(f"{call}," for call in self.calls),
            "FAULT_AT": str(self.at),
            "FAULT_EACH": str(int(self.each)),
            "FAULT_KIND": self.kind,
            "FAULT_NUMBER": str(self.number),
            "FAULT_LOG": str(self.log or ""),
        }


def preloaded() -> dict[str, str]:
    """What makes a program take calls.c along."""
    before = os.environ.get("LD_PRELOAD", "")  # a sanitizer wants to be the first
    return {"LD_PRELOAD": " ".join(filter(None, [before, str(_library())]))}


@functools.cache
def _library() -> Path:
    """Compiled once a process; the folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="fastpipe-faults-")
    _kept.append(folder)
    library = Path(folder.name) / "calls.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    command = [
        compiler,
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        library,
        _SOURCE,
    ]
    subprocess.run([*map(str, command), "-ldl"], check=True, capture_output=True, text=True)
    return library


_kept: list[tempfile.TemporaryDirectory[str]] = []
