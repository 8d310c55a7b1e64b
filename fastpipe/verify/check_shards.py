"""Shards -> their damage: read and hashed in order, their samples checked in threads."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.format.layout import INDEX_DTYPE, INDEX_FILE
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.verify.check_index import IndexPart, impossible, impossible_records
from fastpipe.verify.check_sample import Mismatch, ShardSpan, check_span
from fastpipe.verify.damage import Damage
from fastpipe.verify.shard_facts import ShardFacts
from fastpipe.verify.tar_members import starts_in_tar

SPAN_BYTES = 2 << 20  # about so much is read at once


@dataclass(frozen=True)
class VerifyProgress:
    """How far a check is: samples and bytes of the shards, done and in all, and findings so far."""

    samples: int
    total_samples: int
    bytes: int
    total_bytes: int
    findings: int


@dataclass
class ShardFindings:
    """What a check of shards has found."""

    of_sizes: list[Damage] = field(default_factory=list)  # shards that are missing or of another size, in order
    of_contents: list[Damage] = field(default_factory=list)  # everything else, shard by shard
    bytes_read: int = 0

    @property
    def damages(self) -> list[Damage]:
        """All, in the order of a report."""
        return self.of_sizes + self.of_contents


def check_size(shard: ShardFacts, records: NDArray[np.void] | None = None) -> Iterator[Damage]:
    """Whether a shard is there and of its packed size; its records tell which samples one lost that is too short."""
    try:
        size_bytes, regular = _size_of(shard)
        problem = "" if regular else "is not a regular file"
    except OSError as refused:
        problem = f"cannot be opened: {refused.strerror or refused}"
    if problem:
        yield Damage(shard.name, problem, sample=shard.first_sample, samples=shard.samples)
    elif size_bytes != shard.size_bytes:
        sizes = f"{shard.size_bytes:,} bytes", f"{size_bytes:,} bytes"
        lost = 0
        if records is not None:
            start = np.minimum(records["offset"], np.uint64(size_bytes))  # no sum that could wrap
            lost = int((records["size"] > size_bytes - start).sum())
        first = shard.first_sample + shard.samples - lost if lost else None
        yield Damage(shard.name, "has a different size than when it was packed", *sizes, first, lost)


def _size_of(shard: ShardFacts) -> tuple[int, bool]:
    """A shard's size now, and whether it is a regular file; raises OSError."""
    if shard.direct is not None:
        return shard.direct.fetched(shard.name, 0, 1).state.size_bytes, True
    status = shard.path.stat()
    return status.st_size, stat.S_ISREG(status.st_mode)


def check_shards(
    shards: Sequence[ShardFacts],
    index: IndexPart | None,
    *,
    whole_index: bool,
    threads: int,
    on_progress: Callable[[VerifyProgress], None] = lambda _: None,
) -> ShardFindings:
    """Reads and checks shards, which are in order, in so many threads; `on_progress` is called in this one.

    `index` has their records, None: index.npy cannot be opened; `whole_index`: it has not changed.
    """
    sizes = {shard.number: list(check_size(shard)) for shard in shards}
    found = ShardFindings([damage for wrong in sizes.values() for damage in wrong])
    there = [shard for shard in shards if not any(wrong.samples for wrong in sizes[shard.number])]
    totals = sum(shard.samples for shard in there), sum(map(_readable_bytes, there))
    samples, bytes_done = 0, 0
    digest, mismatches, told_apart = xxhash.xxh3_64(), list[Mismatch](), False
    with closing(Ahead(check_span, threads)) as ahead:
        for span, checked in ahead.each(_planned(there, index, whole_index=whole_index)):
            if span.start == 0:
                digest, mismatches, told_apart = xxhash.xxh3_64(), [], bool(span.starts)
            digest.update(checked.data)
            mismatches += checked.mismatches
            if checked.unreadable is not None:
                unread = Damage(span.shard.name, f"cannot be read: {checked.unreadable}", offset=span.start)
                sizes[span.shard.number].append(unread)
                found.of_contents.append(unread)
            if span.last:
                known = bool(sizes[span.shard.number])
                by = index if told_apart else None
                if index is not None and by is None:
                    found.of_contents += impossible_records(span.shard, index)
                found.of_contents += _judge(span.shard, by, digest.hexdigest(), mismatches, known_bad=known)
            samples += len(span.starts)
            bytes_done += span.stop - span.start
            found.bytes_read += len(checked.data)
            on_progress(VerifyProgress(samples, totals[0], bytes_done, totals[1], len(found.damages)))
    return found


def _planned(shards: list[ShardFacts], index: IndexPart | None, *, whole_index: bool) -> Iterator[ShardSpan]:
    """The spans of all shards. Where the index is damaged, the shards' own headers tell the samples apart."""
    for shard in shards:
        records, starts = np.empty(0, dtype=INDEX_DTYPE), list[int]()
        if index is not None:
            records = index.of(shard)
            possible = not impossible(records, shard, index).any()
            if not (possible and whole_index):
                starts = starts_in_tar(shard)
            if possible and not starts:
                starts = (records["offset"].astype(np.int64) - BEFORE_BYTES).tolist()
        yield from _spans(shard, starts, records)


def _spans(shard: ShardFacts, starts: list[int], records: NDArray[np.void]) -> Iterator[ShardSpan]:
    """Cuts a shard where its samples start, or anywhere if they cannot be told apart."""
    size_bytes = _readable_bytes(shard)
    edges = starts or range(0, size_bytes, SPAN_BYTES)
    first, start = 0, 0
    for place in range(1, len(edges)):
        stop = edges[place]
        if stop - start >= SPAN_BYTES:
            yield ShardSpan(shard, start, stop, first, starts[first:place], records[first:place], last=False)
            first, start = place, stop
    yield ShardSpan(shard, start, size_bytes, first, starts[first:], records[first:], last=True)


def _readable_bytes(shard: ShardFacts) -> int:
    """How much of a shard there is to read. dataset.json may name a size of any length."""
    try:
        return min(shard.size_bytes, _size_of(shard)[0])
    except OSError:
        return 0


def _judge(
    shard: ShardFacts, index: IndexPart | None, digest: str, mismatches: list[Mismatch], *, known_bad: bool
) -> Iterator[Damage]:
    """What is wrong with a shard that was read to its end, and with its records in the index; None: its samples could
    not be told apart. If it is of another size or unreadable, its hash says nothing more: `known_bad`.
    """
    whole_shard = not known_bad and digest == shard.xxh3_64
    for damage, of_shard in mismatches:
        if whole_shard and not of_shard and index is not None and damage.sample is not None:
            problem = f"the row is wrong, because {shard.name} is intact: {damage.problem}"
            at = index.rows_at + damage.sample * INDEX_DTYPE.itemsize
            yield replace(damage, file=INDEX_FILE, problem=problem, offset=at)
        else:
            yield damage
    if known_bad or whole_shard:
        return
    changed = Damage(shard.name, "its content has changed since it was packed: hash", shard.xxh3_64, digest)
    if index is None:
        yield replace(changed, sample=shard.first_sample, samples=shard.samples)
    elif mismatches:
        yield changed
    else:
        yield replace(changed, problem=f"its images and labels are intact, but {changed.problem}")
