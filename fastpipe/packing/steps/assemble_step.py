"""The step "assemble": ranges of spool files -> one shard, in its place, and its entry in the journal."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError
from fastpipe.packing.output.outlet import outlet
from fastpipe.packing.shard_series import Begins, ShardSeries
from fastpipe.packing.source.files import source_path
from fastpipe.packing.spool.record import Record
from fastpipe.packing.spool.spool_file import Blob, Window
from fastpipe.packing.steps.job import Job
from fastpipe.packing.steps.records import record_of_line
from fastpipe.packing.steps.shard_plan import Range, ShardPlan
from fastpipe.packing.steps.store import SpoolStore

_BUFFERS_BYTES = 32 << 20  # of all ranges that are read, each of them within these bounds
_LEAST_BUFFER_BYTES = 1 << 16


class Assembled(NamedTuple):
    """A shard that is done."""

    files: int
    samples: int
    size_bytes: int


def assemble_step(job: Job, shard: ShardPlan) -> Assembled:
    """Makes one shard and publishes it. Note [steps of a pack]

    Raises:
        PackError: the disk refuses, or a spool file is not the one that was planned with.
    """
    store = job.store()
    remote = job.options.source.remote
    with outlet(job.destination, remote) as out:
        series = ShardSeries(
            out,
            job.options.shard_size,
            fail_fast=job.options.fail_fast,
            kinds=shard.kinds,
            sources=lambda _start, _stop: shard.sources,
            root=source_path(shard.root, remote),
            begins=Begins(shard.number, shard.first_sample, shard.start, shard.agreed),
        )
        position = shard.start
        try:
            for record, blob in _samples(store, shard):
                series.add(position, record.name, record.label, record.source_bytes, blob.outcome())
                position += 1
            if position == shard.stop and not series.shards:
                series.finish(position)
        finally:
            series.discard()
        found = position, [each.samples for each in series.shards]
        if found != (shard.stop, [shard.samples]):
            raise PackError(
                f"shard {shard.number} does not fit its plan: expected {shard.samples:,} samples of the sources up to "
                f"{shard.stop:,}, got {found[1]} up to {position:,}. Remove the spool, then run the same command "
                "again: it is made anew"
            )
    return Assembled(shard.stop - shard.start, shard.samples, series.shards[0].size_bytes)


def _samples(store: SpoolStore, shard: ShardPlan) -> Iterator[tuple[Record, Blob]]:
    """The samples of a shard in packing order."""
    share = _BUFFERS_BYTES // max(len(shard.ranges), 1)
    buffer_bytes = min(max(share, _LEAST_BUFFER_BYTES), store.read_bytes)
    streams = [_range(store, each, buffer_bytes) for each in shard.ranges]
    return heapq.merge(*streams, key=lambda sample: sample[0].place)


def _range(store: SpoolStore, of: Range, buffer_bytes: int) -> Iterator[tuple[Record, Blob]]:
    lines = store.read_at(of.file, of.line_at, of.line_bytes).splitlines(keepends=True)
    if sum(map(len, lines)) != of.line_bytes:
        raise PackError(f"{of.file} in the spool is shorter than it was. Remove it, then run the same command again")
    records = [record_of_line(line, of.file) for line in lines]
    end = of.blob_at + sum(record.blob_bytes for record in records)

    def read(at: int, size: int) -> bytes:
        return store.read_at(of.file, at, min(size, end - at))

    window = Window(str(Path(of.file)), read, buffer_bytes)
    at = of.blob_at
    for record in records:
        yield record, Blob(window, at, record)
        at += record.blob_bytes
