"""Shards, which are read and hashed in order while threads check their samples, and the index -> their damage."""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, JPEG_STORAGE, WITHOUT_HASHES
from fastpipe.format.pixel_form import PixelForm, count_forms, describe_forms, possible_forms
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.machine.progress import HowFar
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.verify.check_sample import Mismatch, ShardSpan, check_span, starts_in_tar
from fastpipe.verify.damage import Damage
from fastpipe.verify.shard_facts import ShardFacts

_CHUNK_ROWS = 1 << 17


@dataclass(frozen=True)
class IndexPart:
    """Index records of samples that follow one another."""

    records: NDArray[np.void]
    first: int  # number of the first sample
    rows_at: int  # byte of index.npy where the row of sample 0 begins
    least_label: int  # that is possible
    classes: int  # how many there are; a label is below it

    def of(self, shard: ShardFacts) -> NDArray[np.void]:
        """(samples,) a copy of the records of a shard's samples."""
        start = shard.first_sample - self.first
        return np.array(self.records[start : start + shard.samples])

    def cut(self, shards: Sequence[ShardFacts]) -> IndexPart:
        """The part for shards that follow one another, in memory."""
        first, stop = shards[0].first_sample, shards[-1].first_sample + shards[-1].samples
        return replace(self, records=np.array(self.records[first - self.first : stop - self.first]), first=first)


def check_index(index: Index) -> Iterator[Damage]:
    """Sums of an index that has not changed, in a pass that keeps a few MB."""
    counts = np.zeros(len(index.classes), dtype=np.int64)
    stored_bytes, forms = 0, Counter[PixelForm]()
    for start in range(0, len(index), _CHUNK_ROWS):
        records = np.array(index.records[start : start + _CHUNK_ROWS])
        stored_bytes += int(records["size"].sum(dtype=np.int64))
        forms += count_forms(records)
        labels = records["label"][(records["label"] >= 0) & (records["label"] < len(counts))]
        counts += np.bincount(labels, minlength=len(counts))
    for name in ("stored_bytes", *(["jpeg_bytes"] if index.storage == JPEG_STORAGE else [])):
        if stored_bytes != getattr(index, name):
            problem = f"{name} differs from the sum of the sizes in the index"
            yield Damage(DATASET_FILE, problem, f"{stored_bytes:,}", f"{getattr(index, name):,}")
    if counts.tolist() != index.class_counts:
        label = int(np.flatnonzero(counts != index.class_counts)[0])
        values = f"{counts[label]:,}", f"{index.class_counts[label]:,}"
        yield Damage(DATASET_FILE, f"class_counts of label {label} differs from the index", *values)
    if forms != index.form_counts:
        values = json.dumps(describe_forms(forms)), json.dumps(describe_forms(index.form_counts))
        yield Damage(DATASET_FILE, "forms differs from the index", *values)


def impossible(records: NDArray[np.void], shard: ShardFacts, index: IndexPart) -> NDArray[np.bool_]:
    """(samples,) which records cannot be true: of another shard, outside it, or running into the sample before."""
    # No sum of two unsigned numbers that could wrap: offsets up to the size first.
    inside = (records["offset"] >= BEFORE_BYTES) & (records["offset"] <= shard.size_bytes)
    offset = np.where(inside, records["offset"], 0).astype(np.int64)
    end = offset + records["size"]
    inside &= end <= shard.size_bytes
    apart = np.ones(len(records), dtype=np.bool_)
    apart[1:] = offset[1:] - BEFORE_BYTES >= end[:-1]
    real = (records["width"] > 0) & (records["height"] > 0) & (records["size"] > 0) & possible_forms(records)
    labelled = (records["label"] >= index.least_label) & (records["label"] < index.classes)
    return np.asarray(~((records["shard"] == shard.number) & inside & apart & real & labelled))


def impossible_records(shard: ShardFacts, index: IndexPart) -> Iterator[Damage]:
    """A finding for each record of a shard that cannot be true."""
    records = index.of(shard)
    expected = (
        f"shard {shard.number}, a range inside its {shard.size_bytes:,} bytes and after the previous sample, at "
        f"least 1 x 1 pixels, 1, 3 or 4 channels of 8 or 16 bits, a label below {index.classes}"
    )
    for place in np.flatnonzero(impossible(records, shard, index)).tolist():
        values = ", ".join(f"{name} {records[name][place]}" for name in WITHOUT_HASHES)
        yield Damage(INDEX_FILE, "the row has impossible values", expected, values, shard.first_sample + place, 1)


SPAN_BYTES = 2 << 20  # about so much is read at once


@dataclass
class ShardFindings:
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


def check_quickly(shards: Sequence[ShardFacts], index: IndexPart | None) -> Iterator[Damage]:
    """Checks shards by their sizes, and their records, if `index` has them; reads no shard."""
    for shard in shards:
        yield from check_size(shard, None if index is None else index.of(shard))
        yield from () if index is None else impossible_records(shard, index)


def check_shards(
    shards: Sequence[ShardFacts],
    index: IndexPart | None,
    *,
    whole_index: bool,
    threads: int,
    on_progress: Callable[[HowFar], None] = lambda _: None,
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
            on_progress(HowFar(samples, totals[0], bytes_done, totals[1], len(found.damages)))
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
    with suppress(OSError):
        return min(shard.size_bytes, _size_of(shard)[0])
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
