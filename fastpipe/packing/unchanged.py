"""A packed dataset, and sources that the file system calls newer -> whether they would still give the same dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import xxhash

from fastpipe.errors import ImageError, readable
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, sample_key
from fastpipe.format.read_at import read_at
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.output.publish import read_rejected
from fastpipe.packing.output.stored_sample import StoredSample
from fastpipe.packing.picture.convert import EncodeOptions, Packed
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.spooled import in_any_order


def unchanged_since(index: Index, listing: Listing, how: EncodeOptions, workers: int) -> bool:
    """Whether sources that changed after they were listed are packed as they are now.

    A change of permissions, a new hard link or a copy of the folder gives a file a new time and leaves its content. So
    each file with a new time is converted again and compared with the sample that was made of it. If all are equal,
    dataset.json gets the time of this listing, and the next pack need not look again.

    Args:
        index: the dataset. It was packed from files of these paths and sizes, with these options.
        listing: of the sources, in packing order.
        how: the options.
        workers: threads.
    """
    described = index.folder / DATASET_FILE
    packed_ns = described.stat().st_mtime_ns
    if listing.last_change_ns() <= packed_ns:
        return True
    rejected = {entry["path"] for entry in read_rejected(index.folder)}
    sample, newer, expected = 0, [], list[int | None]()
    for source in listing.sources:
        packed = readable(source.path) not in rejected
        if source.ctime_ns > packed_ns:
            newer.append(source)
            expected.append(sample if packed else None)
        sample += packed
    if sample != len(index):
        return False
    agreement = Agreement.of(index.fields.values())
    with closing(in_any_order(listing, newer, how, workers)) as pictures:
        for position, source, outcome in pictures:
            number = expected[position]
            if isinstance(outcome, str) or number is None:
                if isinstance(outcome, str) and number is None:
                    continue
                return False
            if outcome.values:
                try:
                    outcome = replace(outcome, values=tuple(agreement.admit(outcome.values)))
                except ImageError:
                    return False
            if not _as_packed(index, number, source, outcome, listing.kinds):
                return False
    os.utime(described, ns=(listing.taken_ns, max(listing.taken_ns, listing.last_change_ns())))
    return True


def _as_packed(index: Index, number: int, source: Source, packed: Packed, kinds: Mapping[str, str]) -> bool:
    record = index.records[number]
    now = source.label, xxhash.xxh3_64_intdigest(packed.jpeg), packed.identity
    if tuple(record[name] for name in ("label", "xxh3_64", "identity")) != now:
        return False
    if not kinds:
        return True
    sample = StoredSample(sample_key(number), packed, source.label, source.path, kinds)
    with open(index.shards[int(record["shard"])].path, "rb", buffering=0) as file:
        return read_at(file.fileno(), sample.size_bytes, int(record["offset"]) - BEFORE_BYTES) == b"".join(
            sample.pieces
        )
