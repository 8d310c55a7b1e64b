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
    """One line of the table.

    Attributes:
        name: what was looked at.
        found: what there is.
        verdict: how that is.
        advice: what to do; empty where nothing is to be done.
    """

    name: str
    found: str
    verdict: Verdict
    advice: str = ""
