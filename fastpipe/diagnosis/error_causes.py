"""The text of an error -> the resource that is missing, whatever sample was read.

Note [the words of others]: errors of torch, Python and the C library have no codes. A diagnosis has
to search their texts. The words that it searches for stand here and in ended.py, and each says
whose they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.diagnosis.advice import (
    FEWER_OPEN_FILES,
    LESS_MEMORY,
    MORE_SHARED_MEMORY,
    WHY_FILES_ARE_OPEN,
)
from fastpipe.diagnosis.findings import Code, Finding


@dataclass(frozen=True)
class ErrorCause:
    """A cause that an error's text tells of."""

    code: Code
    signs: tuple[str, ...]  # an error whose text has one of them has this cause
    why: str
    change: str
    section: int  # of docs/reference/failures.md

    def make_finding(self, symptom: str, where: str) -> Finding:
        return Finding(self.code, where, symptom, self.why, self.change, self.section)


SMALL_SHARED_MEMORY = ErrorCause(
    Code.SMALL_SHARED_MEMORY,
    # torch, the C library, names of torch's files.
    signs=("shared memory", "Bus error", "/torch_"),
    why="/dev/shm is full: workers pass batches in files there. No sample is at fault",
    change=MORE_SHARED_MEMORY,
    section=3,
)
_OPEN_FILES = ErrorCause(
    Code.OPEN_FILES,
    # Python's sockets, the C library, Python.
    signs=("ancdata", "Too many open files", "Errno 24"),
    why=WHY_FILES_ARE_OPEN,
    change=FEWER_OPEN_FILES,
    section=4,
)
_OUT_OF_MEMORY = ErrorCause(
    Code.OUT_OF_MEMORY,
    # The first is torch's, the others are Python's and the C library's.
    signs=(
        "can't allocate memory",
        "MemoryError",
        "Cannot allocate memory",
        "Errno 12",
    ),
    why="there is not enough memory",
    change=LESS_MEMORY,
    section=15,
)
_DISK_FULL = ErrorCause(
    Code.DISK_FULL,
    signs=("No space left on device", "Errno 28"),  # the C library, Python
    why="a disk or /dev/shm is full. No sample is at fault",
    change=f"delete files, or write to another disk (TMPDIR=); for /dev/shm: {MORE_SHARED_MEMORY}",
    section=3,
)
NOT_PICKLABLE = ErrorCause(
    Code.NOT_PICKLABLE,
    signs=("pickle", "local object"),  # Python
    why="pickle, by which workers get the dataset with this start method, takes no lambdas and "
    "nothing defined inside a function, no locks and no open files",
    change="define functions and classes at the top level of a module; "
    "make files and locks in the worker, when first used",
    section=10,
)
_CAUSES = (SMALL_SHARED_MEMORY, _OPEN_FILES, _OUT_OF_MEMORY, _DISK_FULL, NOT_PICKLABLE)


def find_error_cause(text: str) -> ErrorCause | None:
    """Returns the cause that an error's text tells of; None if the sample may be at fault."""
    for cause in _CAUSES:
        if any(sign in text for sign in cause.signs):
            return cause
    return None
