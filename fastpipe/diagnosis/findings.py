"""The findings of a diagnosis: the problem with figures, its cause, and the line to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

PAGE = "docs/failures.md"


class Severity(StrEnum):
    """How bad a finding is."""

    STUCK = "stuck"  # no batch comes any more
    BAD = "bad"  # costs time or memory now
    NOTE = "note"  # will, elsewhere or later


@dataclass(frozen=True)
class Finding:
    """One thing that makes a loader slow or stuck.

    Attributes:
        name: of this kind of finding, such as "too-many-workers".
        severity: how bad it is.
        what: what was seen, with figures.
        why: the mechanism.
        change: what to write instead.
        where: file:line to change; "" where it is not known.
        section: of docs/failures.md that tells more; 0: of none.
    """

    name: str
    severity: Severity
    what: str
    why: str
    change: str
    where: str = ""
    section: int = 0

    @property
    def more(self) -> str:
        """Where to read on; "" if nowhere."""
        return f"{PAGE}, {self.section}" if self.section else ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "severity": self.severity.value}


# What ends a training, then what makes its samples wrong: the rest costs time or memory.
_FIRST = (
    "no-main-guard",
    "worker-killed",
    "small-shared-memory",
    "open-files",
    "shared-file",
    "bad-sample",
    "error",
    "too-many-workers",  # makes all else slow
)


def ordered(findings: list[Finding]) -> list[Finding]:
    """The worst first; of each name the first."""
    ranks = list(Severity)
    by_name: dict[str, Finding] = {}
    for finding in findings:
        by_name.setdefault(finding.name, finding)
    return sorted(by_name.values(), key=lambda finding: (ranks.index(finding.severity), _rank(finding)))


def _rank(finding: Finding) -> int:
    return _FIRST.index(finding.name) if finding.name in _FIRST else len(_FIRST)
