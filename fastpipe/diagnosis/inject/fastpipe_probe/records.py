"""The records that a watched process writes and the diagnosis reads, as JSON.

Times are seconds of time.monotonic().
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# torch's words, in a RuntimeError like others, if no batch came within the DataLoader's own
# `timeout`.
_TIMED_OUT = "RuntimeError: DataLoader timed out after"


@dataclass(frozen=True)
class Batch:
    """A batch as the loop saw it."""

    epoch: int
    number: int
    asked_s: float  # when the loop asked for it
    came_s: float
    size_bytes: int  # of its tensors
    # Time of the sampler since the batch before, in the process that iterates.
    sampler_s: float = 0.0

    @property
    def wait_s(self) -> float:
        return self.came_s - self.asked_s


@dataclass(frozen=True)
class Fetch:
    """A batch as the process saw it that made it."""

    finished_s: float  # when it was finished
    seconds: float  # that it took; the next two are parts of it
    dataset_s: float
    collate_s: float
    cpu_s: float  # CPU time of all threads
    # How long the process waited for a CPU; None if the kernel does not say.
    delayed_s: float | None
    samples: int
    times_us: Sequence[int]  # of each sample; empty if the dataset reads whole batches
    # The slowest samples: number, seconds, name.
    worst: Sequence[tuple[str, float, str]]


@dataclass(frozen=True)
class Snapshot:
    """A process at one moment. None: not known."""

    batch: int
    private_bytes: int | None  # memory that no other process shares
    threads: int | None
    torch_threads: int | None = None
    cv2_threads: int | None = None
    used_bytes: int | None = None  # *Note [memory in use]* in machine.py
    files: int | None = None  # that are open


@dataclass(frozen=True)
class Epoch:
    """An epoch that the program began."""

    at_s: float
    place: str = ""  # the user's line that began it; "" if it is not known
    # Name and epoch of a sampler that shuffles by its epoch.
    sampler: dict[str, Any] | None = None
    loader_index: int = 0  # the index of the DataLoader, of those made at the same line
    # Attributes of the dataset of which persistent workers have old values.
    changed: Sequence[str] = ()
    ranks: int = 1  # processes that train together


@dataclass(frozen=True)
class Ending:
    """An error with which a request for a batch, or the program, ended."""

    text: str  # type and message
    place: str = ""  # the user's line that it came through; "" if there is none
    # Workers that ended with an error: number, process, exit code.
    exits: Sequence[Sequence[int]] = ()
    # The attributes of the dataset that cannot be pickled, where this was the error: "path",
    # "kind" (pickle's message) and "place" of each.
    unpicklable: Sequence[dict[str, str]] = ()

    @property
    def is_timeout(self) -> bool:
        return self.text.startswith(_TIMED_OUT)
