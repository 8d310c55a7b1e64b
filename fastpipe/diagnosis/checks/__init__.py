"""The observation of a DataLoader -> findings: all that needs no look at a process that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastpipe.diagnosis.checks import memory, options, samples, speed
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import stages

_CHECKS = (samples.check, speed.check, options.check, memory.check)


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """In no order. The evidence of each: all that is known of the loader and the machine, then what its check found."""
    time = stages(seen)
    known = {**seen.facts, **vars(around), **(time.as_dict() if time else {}), "fetch_s": time and time.fetch_s}
    for each in _CHECKS:
        for finding in each(seen, around, time):
            yield replace(finding, evidence={**known, **finding.evidence})
