"""The samples that a loader reads -> a small key, to find epochs of the same ones."""

from __future__ import annotations

from typing import NamedTuple

from fastpipe.plan.content import Content

_MAX_SAMPLES = 1 << 21  # of a part: a hash of more takes too long


class Samples(NamedTuple):
    """Which samples of which dataset."""

    dataset: str  # the hash of its content
    part: int | None  # a hash of the numbers of its samples; None: all of them


def samples_of(content: Content) -> Samples | None:
    """None: a part has too many samples for a hash."""
    if content.samples is not None and len(content.samples) > _MAX_SAMPLES:
        return None
    return Samples(content.index.content, content.samples_hash)
