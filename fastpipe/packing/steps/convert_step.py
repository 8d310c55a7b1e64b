"""The step "convert": a part of the sources -> a spool file, sorted by packing order, and columns with sizes.

A spool file of a part has the blobs of its samples, and then their records, a line each. So blobs are written as they
are made, and need no memory; the columns say where all is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import PackError
from fastpipe.format.tar_writer import BLOCK
from fastpipe.packing.output.stored_sample import note_of, stored_bytes
from fastpipe.packing.shard_series import cannot_be_packed
from fastpipe.packing.source.listing import packing_order
from fastpipe.packing.spool.record import Record, record_of
from fastpipe.packing.spooled import in_any_order
from fastpipe.packing.steps.job import Job, Part, read_listed
from fastpipe.packing.steps.listing_step import PartSources, read_sources
from fastpipe.packing.steps.store import SpoolStore

# A row a sample, in the order of the spool file: its position in packing order; the blocks that it takes in a shard, 0
# where it is rejected; the bytes of its KEY.json, of its record's line and of its blob.
COLUMNS = np.dtype([("position", "<i8"), ("blocks", "<u4"), ("note", "<u4"), ("line", "<u4"), ("blob", "<i8")])
_HASH_BYTES = 8


class Converted(NamedTuple):
    """What became of a part."""

    files: int
    rejected: int


def convert_step(job: Job, part: Part, workers: int = 1) -> Converted:
    """Converts a part in so many threads, and writes it down. Note [steps of a pack]

    Raises:
        PackError: the system is at fault; or a file has changed since it was listed; or a sample cannot be packed, and
            the options say to stop.
    """
    store = job.store()
    listed = job.check(read_listed(store))
    sources = read_sources(store, listed, part, job)
    samples: Iterable[_Sample] = _converted(sources, job, workers)
    if listed.kind:
        samples = sorted(samples, key=lambda sample: sample.position)
    rows: list[tuple[int, ...]] = []
    rejected = 0

    def pieces() -> Iterator[bytes]:
        nonlocal rejected
        lines = []
        for position, record, blob, blocks, note_bytes in samples:
            lines.append(record.line())
            rows.append((position, blocks, note_bytes, len(lines[-1]), len(blob)))
            rejected += record.reason is not None
            yield blob
        yield b"".join(lines)

    store.write(part.spool_file, pieces(), synced=False)  # its hashes tell what a machine that failed has lost
    store.write(part.columns_file, [written(np.array(rows, COLUMNS))])
    return Converted(len(rows), rejected)


class _Sample(NamedTuple):
    """A converted one; blocks and bytes of KEY.json are 0 where it is rejected."""

    position: int
    record: Record
    blob: bytes
    blocks: int = 0
    note_bytes: int = 0


def _converted(sources: PartSources, job: Job, workers: int) -> Iterator[_Sample]:
    """The samples of a part, in the order in which they are read best."""
    listing, positions = sources
    place = packing_order(job.options.seed, shuffle=job.options.shuffle)
    kinds = list(listing.kinds.values())
    with closing(in_any_order(listing, listing.sources, job.options.encode, workers)) as pictures:
        for at, source, outcome in pictures:
            record, blob = record_of(place(source), source.label, source.size_bytes, outcome, kinds)
            if isinstance(outcome, str):
                if job.options.fail_fast:
                    raise cannot_be_packed(listing.root / source.path, outcome)
                yield _Sample(positions[at], record, blob)
                continue
            note_bytes = len(note_of(outcome, source.path, listing.kinds))
            yield _Sample(positions[at], record, blob, stored_bytes(outcome, note_bytes) // BLOCK, note_bytes)


def read_columns(store: SpoolStore, part: Part) -> NDArray[np.void]:
    """The columns of a part: rows of COLUMNS.

    Raises:
        PackError: it is not converted, or the file has changed.
    """
    try:
        data = store.read(part.columns_file)
    except FileNotFoundError as problem:
        raise PackError(
            f"part {part.number} is not converted: there is no {problem.filename}. Run --step convert for all parts, "
            "then --step plan. All machines have to see DST, or the folder of --spool, by the same path"
        ) from problem
    body = data[_HASH_BYTES:]
    if data[:_HASH_BYTES] != xxhash.xxh3_64_digest(body) or len(body) != part.files * COLUMNS.itemsize:
        raise PackError(
            f"{part.columns_file} in the spool has changed since it was written. Remove it, then run the same command "
            "again: it is made anew"
        )
    return np.frombuffer(body, COLUMNS)


def written(columns: NDArray[np.void]) -> bytes:
    """A part's columns as they lie in its file: behind their hash."""
    body = columns.tobytes()
    return xxhash.xxh3_64_digest(body) + body
