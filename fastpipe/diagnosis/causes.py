"""The text of an error -> a finding about what the machine or an option lacks, where that is what the error tells."""

from __future__ import annotations

from dataclasses import dataclass

from fastpipe.diagnosis.findings import Finding, Severity


@dataclass(frozen=True)
class Cause:
    """What stands behind an error, whatever sample was read: words that tell it, and a finding's fields."""

    name: str
    signs: tuple[str, ...]
    why: str
    change: str
    section: int


_CAUSES = (
    Cause(
        "small-shared-memory",
        ("shared memory", "Bus error", "/torch_"),
        "/dev/shm is full: workers pass batches in files there. No sample is at fault",
        "docker run --shm-size=8g (or --ipc=host); or DataLoader(..., prefetch_factor=1), fewer workers, uint8 batches",
        3,
    ),
    Cause(
        "open-files",
        ("ancdata", "Too many open files", "Errno 24"),
        "each tensor that a worker sent is an open file for as long as the program keeps it; files that the dataset "
        "opens and does not close count, too",
        'torch.multiprocessing.set_sharing_strategy("file_system") at the start of the program; or keep copies '
        "(labels.clone()), not the batches; or ulimit -n 65535",
        4,
    ),
    Cause(
        "out-of-memory",
        ("can't allocate memory", "MemoryError", "Cannot allocate memory", "Errno 12"),
        "there is not enough memory",
        "fewer num_workers, prefetch_factor=1, smaller batches, arrays instead of lists",
        15,
    ),
    Cause(
        "disk-full",
        ("No space left on device", "Errno 28"),
        "a disk or /dev/shm is full. No sample is at fault",
        "delete files, or write to another disk (TMPDIR=); for /dev/shm: docker run --shm-size=8g",
        3,
    ),
    Cause(
        "not-picklable",
        ("pickle", "local object"),
        "with this start method, workers get the dataset by pickle",
        "define functions and classes at the top level of a module; open files, connections and locks in the worker: "
        "set them to None in __init__, and make them when they are first used",
        10,
    ),
)


def cause_of(text: str) -> Cause | None:
    """The first whose signs an error's text has."""
    return next((cause for cause in _CAUSES if any(sign in text for sign in cause.signs)), None)


def caused(cause: Cause, what: str, where: str) -> Finding:
    """The finding."""
    return Finding(cause.name, Severity.BAD, what, cause.why, cause.change, where, cause.section)
