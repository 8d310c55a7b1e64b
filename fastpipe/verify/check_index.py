"""index.npy -> its damage: its sums, and records with impossible values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, JPEG_STORAGE, WITHOUT_HASHES
from fastpipe.format.pixel_form import PixelForm, count_forms, describe_forms, possible_forms
from fastpipe.format.sample_layout import BEFORE_BYTES
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

    @classmethod
    def whole(cls, index: Index) -> IndexPart:
        """All of an index, whose records stay in the file."""
        return cls(index.records, 0, index.records.offset, index.least_label, len(index.classes))

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
    bad: NDArray[np.bool_] = ~((records["shard"] == shard.number) & inside & apart & real & labelled)
    return bad


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
