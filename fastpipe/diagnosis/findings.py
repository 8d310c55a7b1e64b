"""The findings of a diagnosis: a code for programs, and the sentences for people.

The check that finds something also writes its sentences. Nothing in the package reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fastpipe.pages import name_page


class Severity(StrEnum):
    """How bad a finding is."""

    STUCK = "stuck"  # no batch comes any more
    BAD = "bad"  # it costs time or memory now
    NOTE = "note"  # it costs something elsewhere, or later


class Code(StrEnum):
    """The kinds of finding. A report sorts the findings of one severity in this order."""

    # These end a training, or make its samples wrong.
    STUCK = "stuck"
    NO_MAIN_GUARD = "no-main-guard"
    WORKER_KILLED = "worker-killed"
    SMALL_SHARED_MEMORY = "small-shared-memory"
    OPEN_FILES = "open-files"
    SHARED_FILE = "shared-file"
    REUSED_BUFFER = "reused-buffer"
    BAD_SAMPLE = "bad-sample"
    ERROR = "error"
    BOUND_WORKERS = "bound-workers"  # this and the next make everything else slow
    TOO_MANY_WORKERS = "too-many-workers"
    OUT_OF_MEMORY = "out-of-memory"
    DISK_FULL = "disk-full"
    NOT_PICKLABLE = "not-picklable"
    PASSING_ERROR = "passing-error"
    UNEQUAL_SAMPLES = "unequal-samples"
    BAD_COLLATE = "bad-collate"
    REFUSED_OPTIONS = "refused-options"
    SAME_RANDOM_NUMBERS = "same-random-numbers"
    EVERY_SAMPLE_PER_WORKER = "every-sample-per-worker"
    # These cost time or memory.
    ITERATOR_EACH_STEP = "iterator-each-step"
    SAME_ORDER_EACH_EPOCH = "same-order-each-epoch"
    STALE_DATASET = "stale-dataset"
    SLOW_EPOCH_START = "slow-epoch-start"
    MEMORY_GROWS = "memory-grows"
    SLOW_SAMPLES = "slow-samples"
    SLOW_SAMPLER = "slow-sampler"
    IDLE_WORKERS = "idle-workers"
    NO_WORKERS = "no-workers"
    SLOW_DATASET = "slow-dataset"
    SLOW_COLLATE = "slow-collate"
    SLOW_TRANSFER = "slow-transfer"
    LATE_BATCHES = "late-batches"
    NO_BATCHES = "no-batches"
    OPTIONS_WITHOUT_WORKERS = "options-without-workers"
    PIN_WITHOUT_GPU = "pin-without-gpu"
    GPU_WITHOUT_PIN = "gpu-without-pin"
    PREFETCH_MEMORY = "prefetch-memory"
    COPY_ON_WRITE = "copy-on-write"
    OBJECTS_IN_EACH_WORKER = "objects-in-each-worker"
    OPENCV_THREADS = "opencv-threads"
    TORCH_THREADS = "torch-threads"
    TOO_MANY_THREADS = "too-many-threads"


@dataclass(frozen=True)
class Finding:
    """One thing that makes a loader slow or stuck, or its samples wrong."""

    code: Code
    where: str  # the line to change, as file:line; "" if it is not known
    what: str  # what was seen, with figures
    why: str  # the mechanism
    change: str  # what to write instead
    section: int = 0  # its section in docs/reference/failures.md; 0 if it has none
    severity: Severity = Severity.BAD
    # One clause for the report's first lines; only a stuck loader has one.
    headline: str = ""

    @property
    def name(self) -> str:
        """The code as text, such as "too-many-workers"."""
        return self.code.value

    @property
    def more(self) -> str:
        """Where to read on; "" if nowhere."""
        if self.section == 0:
            return ""
        return name_page("failures", self.section)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "severity": self.severity,
            "what": self.what,
            "why": self.why,
            "change": self.change,
            "where": self.where,
            "section": self.section,
        }


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Sorts the findings, the worst first, and keeps only the first one of each code."""
    severities = list(Severity)
    codes = list(Code)
    first_by_code: dict[Code, Finding] = {}
    for finding in findings:
        first_by_code.setdefault(finding.code, finding)

    def rank(finding: Finding) -> tuple[int, int]:
        return severities.index(finding.severity), codes.index(finding.code)

    return sorted(first_by_code.values(), key=rank)
