"""A shard, and where its samples begin -> the runs of bytes that are read at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.verify.shard_facts import ShardFacts

SPAN_BYTES = 4 << 20


@dataclass(frozen=True)
class ShardSpan:
    """A run of bytes of a shard that is read at once, and the samples in it.

    Attributes:
        shard: which.
        start, stop: bytes of the file.
        first: number of its first sample, counted in the shard.
        starts: where its samples begin (their KEY.cls); each ends where the next one does or at `stop`.
        records: (samples,) their index records.
        last: the shard's last span: its last sample is followed by the end of the archive.
    """

    shard: ShardFacts
    start: int
    stop: int
    first: int
    starts: list[int]
    records: NDArray[np.void]
    last: bool


def starts_in_records(records: NDArray[np.void]) -> list[int]:
    """Where samples begin by the index, whose records are possible."""
    starts: list[int] = (records["offset"].astype(np.int64) - BEFORE_BYTES).tolist()
    return starts


def shard_spans(
    shard: ShardFacts, size_bytes: int, starts: list[int], records: NDArray[np.void]
) -> Iterator[ShardSpan]:
    """Cuts a shard between samples.

    Args:
        shard: which.
        size_bytes: to be read of it.
        starts: where its samples begin, rising.
        records: (samples,) their index records.
    """
    if not starts:
        yield from bare_spans(shard, size_bytes, records)
        return
    first, start = 0, 0
    for sample in range(1, len(starts)):
        if starts[sample] - start >= SPAN_BYTES:
            yield ShardSpan(
                shard, start, starts[sample], first, starts[first:sample], records[first:sample], last=False
            )
            first, start = sample, starts[sample]
    yield ShardSpan(shard, start, size_bytes, first, starts[first:], records[first:], last=True)


def bare_spans(shard: ShardFacts, size_bytes: int, records: NDArray[np.void]) -> Iterator[ShardSpan]:
    """Cuts a shard whose samples cannot be told apart."""
    for start in range(0, max(size_bytes, 1), SPAN_BYTES):
        stop = min(start + SPAN_BYTES, size_bytes)
        yield ShardSpan(shard, start, stop, 0, [], records[:0], last=stop == size_bytes)
