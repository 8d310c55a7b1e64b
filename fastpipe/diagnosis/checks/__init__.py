"""The observation of a DataLoader -> findings; one module per kind."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.checks import epochs, inherited, memory, options, randomness, samples, sources, speed, threads
from fastpipe.diagnosis.findings import Finding, ordered
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.surroundings import Surroundings


def check(seen: Observation, around: Surroundings) -> list[Finding]:
    """All that can be found without a look at a process that runs; the worst first."""
    return ordered(list(_all(seen, around)))


def _all(seen: Observation, around: Surroundings) -> Iterator[Finding]:
    yield from inherited.check(seen)
    yield from samples.failures(seen)
    yield from randomness.check(seen)
    yield from epochs.check(seen)
    yield from speed.check(seen, around)
    yield from options.check(seen, around)
    yield from memory.check(seen, around)
    yield from threads.check(seen, around)
    yield from samples.slow(seen)
    yield from sources.check(seen)
