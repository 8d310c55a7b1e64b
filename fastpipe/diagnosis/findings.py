"""What a diagnosis finds: a code and its evidence; words.py makes sentences of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fastpipe.diagnosis.words import WORDS, say


class Severity(StrEnum):
    """How bad a finding is."""

    STUCK = "stuck"  # no batch comes any more
    BAD = "bad"  # costs time or memory now
    NOTE = "note"  # will, elsewhere or later


class Code(StrEnum):
    """Every kind of finding, in the order in which a report has those of one severity."""

    # What ends a training, or makes its samples wrong.
    STUCK = "stuck"
    NO_MAIN_GUARD = "no-main-guard"
    WORKER_KILLED = "worker-killed"
    SMALL_SHARED_MEMORY = "small-shared-memory"
    OPEN_FILES = "open-files"
    SHARED_FILE = "shared-file"
    REUSED_BUFFER = "reused-buffer"
    BAD_SAMPLE = "bad-sample"
    ERROR = "error"
    BOUND_WORKERS = "bound-workers"  # makes all else slow, as does the next
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
    # What costs time or memory.
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
    """One thing that makes a loader slow or stuck."""

    code: Code
    where: str = ""  # file:line to change; "" where it is not known
    evidence: Mapping[str, Any] = field(default_factory=dict)  # for the places in the words; None: nothing to tell
    cause: str = ""  # which one, of a kind that has several
    severity: Severity = Severity.BAD

    @property
    def name(self) -> str:
        """Its code as text, such as "too-many-workers"."""
        return self.code.value

    @property
    def what(self) -> str:
        """What was seen, with figures."""
        return self._words("seen")

    @property
    def why(self) -> str:
        """The mechanism."""
        return self._words("why")

    @property
    def change(self) -> str:
        """What to write instead."""
        return self._words("change")

    @property
    def section(self) -> int:
        """Of docs/failures.md that tells more; 0: of none."""
        return int(self._words("section") or 0)

    @property
    def more(self) -> str:
        """Where to read on; "" if nowhere."""
        return f"docs/failures.md, {self.section}" if self.section else ""

    def _words(self, text: str) -> str:
        return say(WORDS[f"{self.code} {self.cause}".rstrip()][text], self.evidence)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {key: getattr(self, key) for key in ("name", "severity", "what", "why", "change", "where", "section")}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; of each kind the first."""
    severities, codes = list(Severity), list(Code)
    by_code: dict[Code, Finding] = {}
    for finding in findings:
        by_code.setdefault(finding.code, finding)
    return sorted(by_code.values(), key=lambda each: (severities.index(each.severity), codes.index(each.code)))
