"""Runs measured in turn, fastpipe, peer, fastpipe, peer ... fastpipe -> medians and ratios of neighbours."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """One process's figures.

    Attributes:
        images_per_s: after the warm-up.
        cpus: CPUs' worth of work, of the process and its workers.
        first_batch_s: from asking for the loader to its first batch, imports excluded; None if it makes none.
        memory_mb: of the process and its workers at the end, in MB; None if it is not taken.
    """

    images_per_s: float
    cpus: float
    first_batch_s: float | None = None
    memory_mb: float | None = None

    @property
    def images_per_cpu_s(self) -> float:
        """By CPU time: other work on the machine changes it less."""
        return self.images_per_s / self.cpus


@dataclass(frozen=True)
class Duel:
    """What one peer and fastpipe did in turn; or why the peer did not.

    Attributes:
        name, label: the peer's.
        data, beside: what the peer read, and what fastpipe read.
        ours, theirs: the runs in order; fastpipe's are one more, since it begins and ends.
        missing: why there are none; None if there are.
    """

    name: str
    label: str
    data: str
    beside: str
    ours: Sequence[Run] = ()
    theirs: Sequence[Run] = ()
    missing: str | None = None

    def ratios(self, speed: Callable[[Run], float] = lambda run: run.images_per_s) -> list[float]:
        """fastpipe's speed by the peer's, of every two runs next to each other.

        Each of the peer's counts twice, with the one before and the one after: on a machine that drifts they err in
        opposite directions.
        """
        before, after = self.ours[:-1], self.ours[1:]
        return [
            speed(ours) / speed(theirs)
            for neighbours in (before, after)
            for ours, theirs in zip(neighbours, self.theirs, strict=True)
        ]

    def summary(self) -> dict[str, Any]:
        """For the table and for JSON."""
        row: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "data": self.data,
            "beside": self.beside,
        }
        if self.missing is not None:
            return {**row, "missing": self.missing}
        ratios = self.ratios()
        return {
            **row,
            "ours": figures(self.ours),
            "theirs": figures(self.theirs),
            "ratio": statistics.median(ratios),
            "ratio_lowest": min(ratios),
            "ratio_highest": max(ratios),
            "ratio_by_cpu_time": statistics.median(self.ratios(lambda run: run.images_per_cpu_s)),
        }


def figures(runs: Sequence[Run]) -> dict[str, float | None]:
    """Medians, and the slowest and the fastest run."""
    return {
        "images_per_s": statistics.median(run.images_per_s for run in runs),
        "slowest": min(run.images_per_s for run in runs),
        "fastest": max(run.images_per_s for run in runs),
        "cpus": statistics.median(run.cpus for run in runs),
        "first_batch_s": _median([run.first_batch_s for run in runs]),
        "memory_mb": _median([run.memory_mb for run in runs]),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
