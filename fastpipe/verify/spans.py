"""The records of a shard, or its tar headers if the records are damaged -> where its samples begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.format import tar_writer as tar
from fastpipe.format.layout import sample_key
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.verify.shard_facts import ShardFacts

SPAN_BYTES = 4 << 20

_SIZE_FIELD = slice(124, 135)  # of a ustar header: octal digits


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


def starts_in_tar(shard: ShardFacts) -> list[int] | None:
    """Where samples begin by the headers in the shard; None if they do not lead through it either."""
    starts: list[int] = []
    at = 0
    try:
        with open(shard.path, "rb", buffering=0) as file:
            for sample in range(shard.first_sample, shard.first_sample + shard.samples):
                starts.append(at)
                for ending in (".cls", ".jpg", ".json"):
                    head = read_at(file.fileno(), tar.BLOCK, at)
                    size_bytes = size_in_header(head)
                    if head != tar.header(sample_key(sample) + ending, size_bytes):
                        return None
                    at += tar.BLOCK + tar.padded(size_bytes, tar.BLOCK)
    except (OSError, ValueError):
        return None
    return starts


def size_in_header(head: bytes) -> int:
    """The member's size by its tar header.

    Raises:
        ValueError: there is no number.
    """
    return int(head[_SIZE_FIELD], 8)


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
