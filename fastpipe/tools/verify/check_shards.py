"""Shards, read and hashed in order while threads check their samples, and the index -> damage."""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import xxhash

from fastpipe.arrays import Bools, Records
from fastpipe.dataset.format.fields import LARGE_KINDS
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_DTYPE,
    INDEX_FILE,
    JPEG_STORAGE,
    WITHOUT_HASHES,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.dataset.format.pixel_form import (
    PixelForm,
    count_forms,
    describe_forms,
    has_images,
    possible_forms,
)
from fastpipe.dataset.format.sample_layout import BEFORE_BYTES
from fastpipe.machine.progress import WorkProgress
from fastpipe.packing.pipeline.ahead import Ahead
from fastpipe.tools.verify.check_sample import (
    Mismatch,
    ShardSpan,
    SpanResult,
    check_span,
    starts_in_tar,
)
from fastpipe.tools.verify.damage import Damage
from fastpipe.tools.verify.shard_facts import ShardFacts

# A thread reads and checks about so many bytes at once.
SPAN_BYTES = 2 << 20
# So many rows of the index, of 54 bytes each, are in memory at once.
_CHUNK_ROWS = 1 << 17


@dataclass(frozen=True)
class IndexPart:
    """Index records of samples that follow one another."""

    records: Records
    first_sample: int  # number of the first of the samples
    rows_at: int  # byte of index.npy where the row of sample 0 begins
    least_label: int  # that is possible
    classes: int  # how many there are; a label is below it

    def row_at(self, sample: int) -> int:
        """The byte of index.npy where the row of a sample begins."""
        return self.rows_at + sample * self.records.dtype.itemsize

    def records_of(self, shard: ShardFacts) -> Records:
        """(samples,) a copy of the records of a shard's samples."""
        start = shard.first_sample - self.first_sample
        end = start + shard.samples
        return np.array(self.records[start:end])

    def cut(self, shards: Sequence[ShardFacts]) -> IndexPart:
        """The part for shards that follow one another, in memory."""
        first = shards[0].first_sample
        last = shards[-1]
        stop = last.first_sample + last.samples
        records = np.array(
            self.records[first - self.first_sample : stop - self.first_sample]
        )
        return replace(self, records=records, first_sample=first)


def check_index(index: PackedIndex) -> Iterator[Damage]:
    """Compares dataset.json with sums of an index that has not changed.

    The caller has compared the hash of index.npy, so a sum that differs is an error of dataset.json.
    The index is gone through in one pass, which keeps a few MB in memory.
    """
    class_counts = np.zeros(len(index.classes), dtype=np.int64)
    stored_bytes = 0
    forms = Counter[PixelForm]()
    for start in range(0, len(index), _CHUNK_ROWS):
        end = start + _CHUNK_ROWS
        records = np.array(index.records[start:end])
        sizes_of_images = records["size"][has_images(records)]
        stored_bytes += int(sizes_of_images.sum(dtype=np.int64))
        forms += count_forms(records)
        labels = records["label"]
        # Impossible labels are reported with their shards. Samples without a label have -1.
        is_class = (labels >= 0) & (labels < len(class_counts))
        labels = labels[is_class]
        class_counts += np.bincount(labels, minlength=len(class_counts))

    described_sizes = {"stored_bytes": index.stored_bytes}
    # `jpeg_bytes` is known by the index only where images are stored as JPEGs, since coefficients have
    # another size, and where no large field adds its bytes.
    kinds = {field.kind for field in index.fields.values()}
    has_large_fields = not kinds.isdisjoint(LARGE_KINDS)
    if index.storage == JPEG_STORAGE and not has_large_fields:
        described_sizes["jpeg_bytes"] = index.jpeg_bytes
    for name, described in described_sizes.items():
        if stored_bytes != described:
            problem = f"{name} differs from the sum of the sizes in the index"
            yield Damage(DATASET_FILE, problem, f"{stored_bytes:,}", f"{described:,}")
    if class_counts.tolist() != index.class_counts:
        differing = np.flatnonzero(class_counts != index.class_counts)
        label = int(differing[0])
        problem = f"class_counts of label {label} differs from the index"
        expected = f"{class_counts[label]:,}"
        actual = f"{index.class_counts[label]:,}"
        yield Damage(DATASET_FILE, problem, expected, actual)
    if forms != index.form_counts:
        expected = json.dumps(describe_forms(forms))
        actual = json.dumps(describe_forms(index.form_counts))
        yield Damage(DATASET_FILE, "forms differs from the index", expected, actual)


def find_impossible(records: Records, shard: ShardFacts, index: IndexPart) -> Bools:
    """(samples,) which records cannot be true.

    They are of another shard, outside it, or overlap the sample before.
    """
    # Offsets up to the size first: no sum of two unsigned numbers may wrap.
    offset = records["offset"]
    is_inside = (offset >= BEFORE_BYTES) & (offset <= shard.size_bytes)
    offset = np.where(is_inside, offset, 0)
    offset = offset.astype(np.int64)
    end = offset + records["size"]
    is_inside &= end <= shard.size_bytes
    # KEY.cls and a header stand between the end of an image and the start of the next one.
    is_apart = np.ones(len(records), dtype=np.bool_)
    first_bytes = offset - BEFORE_BYTES  # of KEY.cls
    is_apart[1:] = first_bytes[1:] >= end[:-1]
    has_bytes = records["size"] > 0
    is_picture = has_bytes & possible_forms(records)
    label = records["label"]
    has_label = (label >= index.least_label) & (label < index.classes)
    is_of_shard = records["shard"] == shard.number
    is_placed = is_of_shard & is_inside & is_apart
    is_possible = is_placed & is_picture & has_label
    return np.asarray(~is_possible)


def report_impossible(shard: ShardFacts, index: IndexPart) -> Iterator[Damage]:
    """A finding for each record of a shard that cannot be true."""
    records = index.records_of(shard)
    expected = (
        f"shard {shard.number}, a range inside its {shard.size_bytes:,} bytes and after the "
        "previous sample, at least 1 x 1 pixels, 1, 3 or 4 channels of 8 or 16 bits, a label below "
        f"{index.classes}"
    )
    for row in np.flatnonzero(find_impossible(records, shard, index)).tolist():
        record = records[row]
        values = ", ".join(f"{name} {record[name]}" for name in WITHOUT_HASHES)
        yield Damage(
            INDEX_FILE,
            "the row has impossible values",
            expected,
            values,
            sample=shard.first_sample + row,
            samples=1,
        )


@dataclass
class ShardFindings:
    """The damage of some shards."""

    # Shards that are missing or of another size, in order.
    of_sizes: list[Damage] = field(default_factory=list)
    # Everything else, shard by shard.
    of_contents: list[Damage] = field(default_factory=list)
    bytes_read: int = 0
    samples_unread: int = 0

    @property
    def damages(self) -> list[Damage]:
        """All, in the order of a report."""
        return self.of_sizes + self.of_contents


class ShardSize(NamedTuple):
    """What lies at a shard's path."""

    size_bytes: int  # 0 if it cannot be opened
    problem: str = ""  # why it cannot be read; "" if it can


def measure_shard(shard: ShardFacts) -> ShardSize:
    """Looks a shard's size up. Behind a URL this is a request."""
    try:
        if shard.direct is not None:
            state = shard.direct.fetched(shard.name, 0, 1).state
            return ShardSize(state.size_bytes)
        status = shard.path.stat()
    except OSError as error:
        return ShardSize(0, f"cannot be opened: {error.strerror or error}")
    if not stat.S_ISREG(status.st_mode):
        return ShardSize(status.st_size, "is not a regular file")
    return ShardSize(status.st_size)


def check_size(
    shard: ShardFacts, size: ShardSize, records: Records | None = None
) -> Iterator[Damage]:
    """Whether a shard exists and has its packed size.

    Args:
        shard: the shard.
        size: what lies at its path.
        records: of its samples; they tell which are lost of a shard that is too short.
    """
    size_bytes = size.size_bytes
    if size.problem:
        yield Damage(
            shard.name, size.problem, sample=shard.first_sample, samples=shard.samples
        )
    elif size_bytes != shard.size_bytes:
        lost = 0
        if records is not None:
            # No sum that could wrap.
            start = np.minimum(records["offset"], np.uint64(size_bytes))
            is_lost = records["size"] > size_bytes - start
            lost = int(is_lost.sum())
        first_lost = shard.first_sample + shard.samples - lost
        yield Damage(
            shard.name,
            "has a different size than when it was packed",
            f"{shard.size_bytes:,} bytes",
            f"{size_bytes:,} bytes",
            sample=first_lost if lost else None,
            samples=lost,
        )


def check_quickly(
    shards: Sequence[ShardFacts], index: IndexPart | None
) -> Iterator[Damage]:
    """Checks shards by their sizes, and their records, if `index` has them; reads no shard."""
    for shard in shards:
        size = measure_shard(shard)
        if index is None:
            yield from check_size(shard, size)
        else:
            yield from check_size(shard, size, index.records_of(shard))
            yield from report_impossible(shard, index)


def check_shards(
    shards: Sequence[ShardFacts],
    index: IndexPart | None,
    *,
    is_index_intact: bool,
    threads: int,
    on_progress: Callable[[WorkProgress], None] = lambda _: None,
) -> ShardFindings:
    """Reads and checks shards.

    Args:
        shards: in order.
        index: their records; None: index.npy cannot be opened.
        is_index_intact: index.npy has not changed.
        threads: how many check samples.
        on_progress: called in this thread.
    """
    findings = ShardFindings()
    size_is_wrong: set[int] = set()  # numbers of shards of another size
    readable: list[ShardFacts] = []
    # By the number of the shard.
    readable_bytes: dict[int, int] = {}
    for shard in shards:
        size = measure_shard(shard)
        damages = list(check_size(shard, size))
        findings.of_sizes += damages
        if damages:
            size_is_wrong.add(shard.number)
        # Without records, `check_size` names lost samples only where the shard cannot be opened.
        are_all_lost = any(damage.samples for damage in damages)
        if are_all_lost:
            findings.samples_unread += shard.samples
        else:
            readable.append(shard)
            # dataset.json may name a size of any length.
            readable_bytes[shard.number] = min(shard.size_bytes, size.size_bytes)

    # Threads check spans, in any order. `Ahead` returns them in the order of the shards, so that
    # each shard's bytes are hashed here one after the other, while they are in the cache.
    total_samples = sum(shard.samples for shard in readable)
    total_bytes = sum(readable_bytes.values())
    samples_done = 0
    bytes_done = 0
    spans = _plan_spans(
        readable, readable_bytes, index, is_index_intact=is_index_intact
    )
    reading: _ShardReading | None = None
    with closing(Ahead(check_span, threads)) as ahead:
        for span, checked in ahead.map(spans):
            # The first span of a shard.
            if reading is None or span.start == 0:
                reading = _ShardReading(
                    span.shard,
                    index,
                    has_samples=bool(span.starts),
                    fault_is_known=span.shard.number in size_is_wrong,
                )
            findings.of_contents += reading.add(span, checked)
            if span.last:
                findings.of_contents += reading.judge()
            samples_done += len(span.starts)
            bytes_done += span.stop - span.start
            findings.bytes_read += len(checked.data)
            findings.samples_unread += checked.num_unread
            problems = len(findings.of_sizes) + len(findings.of_contents)
            on_progress(
                WorkProgress(
                    samples_done, total_samples, bytes_done, total_bytes, problems
                )
            )
    return findings


class _ShardReading:
    """A shard that is read span by span, in order.

    Args:
        shard: the shard.
        index: its records; None: index.npy cannot be opened.
        has_samples: whether its samples could be told apart, by the index or by its headers.
        fault_is_known: a finding says already that it has another size or cannot be read, so that
            its hash says nothing new.
    """

    def __init__(
        self,
        shard: ShardFacts,
        index: IndexPart | None,
        has_samples: bool,
        fault_is_known: bool,
    ) -> None:
        self._shard = shard
        self._index = index
        self._has_samples = has_samples
        self._fault_is_known = fault_is_known
        self._digest = xxhash.xxh3_64()
        self._mismatches: list[Mismatch] = []

    def add(self, span: ShardSpan, checked: SpanResult) -> Iterator[Damage]:
        """Takes the next span; yields a finding if it cannot be read."""
        self._digest.update(checked.data)
        self._mismatches += checked.mismatches
        if checked.unreadable is not None:
            self._fault_is_known = True
            problem = f"cannot be read: {checked.unreadable}"
            yield Damage(self._shard.name, problem, offset=span.start)

    def judge(self) -> Iterator[Damage]:
        """The findings about a shard that was read to its end, and about its records."""
        shard = self._shard
        usable_index = self._index if self._has_samples else None
        if self._index is not None and usable_index is None:
            yield from report_impossible(shard, self._index)

        digest = self._digest.hexdigest()
        # If the bytes of the shard are those that were packed, a record that does not fit them is
        # wrong. Otherwise the shard is to blame.
        is_intact = not self._fault_is_known and digest == shard.xxh3_64
        for damage, of_shard in self._mismatches:
            is_of_index = is_intact and not of_shard
            if is_of_index and usable_index is not None and damage.sample is not None:
                yield replace(
                    damage,
                    file=INDEX_FILE,
                    problem=f"the row is wrong, because {shard.name} is intact: {damage.problem}",
                    offset=usable_index.row_at(damage.sample),
                )
            else:
                yield damage
        if self._fault_is_known or is_intact:
            return

        problem = "its content has changed since it was packed: hash"
        changed = Damage(shard.name, problem, shard.xxh3_64, digest)
        if usable_index is None:
            yield replace(changed, sample=shard.first_sample, samples=shard.samples)
        elif self._mismatches:
            # The findings before this one name the samples. This one says that the shard is to
            # blame.
            yield changed
        else:
            yield replace(
                changed, problem=f"its images and labels are intact, but {problem}"
            )


def _plan_spans(
    shards: list[ShardFacts],
    readable_bytes: Mapping[int, int],
    index: IndexPart | None,
    *,
    is_index_intact: bool,
) -> Iterator[ShardSpan]:
    """The spans of all shards. Where the index is damaged, the shards' headers give the samples."""
    for shard in shards:
        records = np.empty(0, dtype=INDEX_DTYPE)
        starts: list[int] = []
        if index is not None:
            records = index.records_of(shard)
            is_possible = not find_impossible(records, shard, index).any()
            # The headers cost a pass through the shard, so they are read only if the index is in
            # doubt.
            if not (is_possible and is_index_intact):
                starts = starts_in_tar(shard)
            if is_possible and not starts:
                offsets = records["offset"].astype(np.int64)
                starts = (offsets - BEFORE_BYTES).tolist()
        yield from _cut_into_spans(shard, readable_bytes[shard.number], starts, records)


def _cut_into_spans(
    shard: ShardFacts, size_bytes: int, starts: list[int], records: Records
) -> Iterator[ShardSpan]:
    """Cuts a shard where its samples start; or anywhere, if they are not known."""
    edges = starts or range(0, size_bytes, SPAN_BYTES)
    first = 0
    start = 0
    for position in range(1, len(edges)):
        # A span ends where a sample starts, so that no sample is in two spans.
        stop = edges[position]
        if stop - start >= SPAN_BYTES:
            some = slice(first, position)
            yield ShardSpan(
                shard, start, stop, first, starts[some], records[some], last=False
            )
            first = position
            start = stop
    yield ShardSpan(
        shard, start, size_bytes, first, starts[first:], records[first:], last=True
    )
