"""The observation of a DataLoader -> findings: all checks that need no process that still runs."""

from __future__ import annotations

from collections.abc import Iterator

from fastpipe.diagnosis.checks import (
    epochs,
    errors,
    memory,
    options,
    randomness,
    repeats,
    samples,
    speed,
)
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.observation import Observation, Surroundings
from fastpipe.diagnosis.stages import measure_stages


def check(observation: Observation, surroundings: Surroundings) -> Iterator[Finding]:
    """Yields the findings in no particular order."""
    stages = measure_stages(observation)
    yield from errors.check(observation)
    yield from samples.check(observation, stages)
    yield from randomness.check(observation)
    yield from repeats.check(observation)
    yield from epochs.check(observation, stages)
    yield from speed.check(observation, surroundings, stages)
    yield from options.check(observation, surroundings, stages)
    yield from memory.check(observation, surroundings)
