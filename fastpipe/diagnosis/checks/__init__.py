"""The observation of a DataLoader -> findings: all that needs no look at a process that runs."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.checks import epochs, memory, options, randomness, samples, speed
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.observation import Observation, Surroundings

_CHECKS = (samples.check, randomness.check, epochs.check, speed.check, options.check, memory.check)


def check(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    """In no order."""
    return (finding for each in _CHECKS for finding in each(seen, around))
