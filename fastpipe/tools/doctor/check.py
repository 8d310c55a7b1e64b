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
    """One line of the table."""

    name: str  # of what was looked at
    found: str  # the result, with figures
    verdict: Verdict = Verdict.OK
    advice: str = ""  # what to do; "" if nothing


def make_check(
    name: str, found: str, is_ok: bool, advice: str, otherwise: Verdict = Verdict.NOTE
) -> Check:
    """Makes a check that is OK without advice, or has a verdict and advice."""
    if is_ok:
        return Check(name, found)
    return Check(name, found, otherwise, advice)
