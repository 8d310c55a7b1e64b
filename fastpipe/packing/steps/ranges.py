"""Which runs of the spool files' samples each shard is made of: columns, for there may be as many runs as samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.packing.steps.shard_plan import Range

# A run of samples in a spool file: number of its part; where its records begin, their bytes; where its blobs begin.
RANGE = np.dtype([("part", "<u4"), ("line_at", "<i8"), ("line_bytes", "<i8"), ("blob_at", "<i8")])


class Ranges(NamedTuple):
    """The runs of all shards, one shard after the other, those of a shard by part.

    Attributes:
        rows: of RANGE.
        ends: (S,) int64, where the rows of each shard end.
    """

    rows: NDArray[np.void]
    ends: NDArray[np.int64]

    def of(self, shard: int, files: Sequence[str]) -> tuple[Range, ...]:
        """Those of a shard; `files` are the spool files of the parts."""
        rows = self.rows[self.ends[shard - 1] if shard else 0 : self.ends[shard]]
        return tuple(Range(files[part], *rest) for part, *rest in rows.tolist())


def ranges_of(parts: Iterable[NDArray[np.void]], stops: Sequence[int], start: int = 0) -> Ranges:
    """Finds the runs.

    Args:
        parts: the columns of all parts, in order.
        stops: for each shard the position after its last sample.
        start: position of the first sample of the first shard.
    """
    edges = np.array([start, *stops], np.int64)
    found = [_runs(number, columns, edges) for number, columns in enumerate(parts)]
    counts = np.zeros(len(stops), np.int64)
    for shards, _ in found:
        counts[shards] += 1
    ends = np.cumsum(counts)
    at = ends - counts
    rows = np.empty(int(counts.sum()), RANGE)
    for shards, runs in found:
        rows[at[shards]] = runs
        at[shards] += 1
    return Ranges(rows, ends)


def _runs(part: int, columns: NDArray[np.void], edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """The shards that have samples of a part, and their runs in it."""
    places = np.searchsorted(columns["position"], edges)
    blobs = np.concatenate(([0], np.cumsum(columns["blob"])))
    lines = np.concatenate((blobs[-1:], blobs[-1] + np.cumsum(columns["line"], dtype=np.int64)))
    shards = np.flatnonzero(np.diff(places))
    first, last = places[shards], places[shards + 1]
    runs = np.empty(len(shards), RANGE)
    runs["part"], runs["line_at"], runs["blob_at"] = part, lines[first], blobs[first]
    runs["line_bytes"] = lines[last] - lines[first]
    return shards, runs
