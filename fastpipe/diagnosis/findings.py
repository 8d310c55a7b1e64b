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


def ordered(findings: list[Finding]) -> list[Finding]:
    """The worst first."""
    ranks = list(Severity)
    return sorted(findings, key=lambda finding: ranks.index(finding.severity))
