"""The result of one check of the machine or of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    BAD = "bad"  # will hurt


@dataclass(frozen=True)
class Check:
    """One line of the table: what was looked at, what there is, how that is, and what to do, if anything."""

    name: str
    found: str
    verdict: Verdict = Verdict.OK
    advice: str = ""


def judged(name: str, found: str, well: bool, advice: str, otherwise: Verdict = Verdict.NOTE) -> Check:
    return Check(name, found) if well else Check(name, found, otherwise, advice)
