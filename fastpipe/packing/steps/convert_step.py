"""The step "convert": a part of the sources -> a spool file, sorted by packing order, and columns with sizes."""

from __future__ import annotations

import platform
import struct
from contextlib import closing
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import PackError
from fastpipe.format.layout import sample_key
from fastpipe.format.tar_writer import BLOCK
from fastpipe.packing.output.stored_sample import StoredSample
from fastpipe.packing.picture.versions import versions
from fastpipe.packing.shard_series import cannot_be_packed
from fastpipe.packing.source.listing import packing_order
from fastpipe.packing.spool.record import Record, record_of
from fastpipe.packing.spool.spool_file import spool_pieces
from fastpipe.packing.spooled import in_any_order
from fastpipe.packing.steps.job import Job, Part, read_listed
from fastpipe.packing.steps.listing_step import read_sources
from fastpipe.packing.steps.store import SpoolStore

# A row a sample, in the order of the spool file: its position in packing order; the blocks that it takes in a shard, 0
# where it is rejected; the bytes of its KEY.json, of its record's line and of its blob.
COLUMNS = np.dtype([("position", "<i8"), ("blocks", "<u4"), ("note", "<u4"), ("line", "<u4"), ("blob", "<i8")])
_HASH_BYTES = 8
_AT = struct.Struct("<qq")


class Converted(NamedTuple):
    """What became of a part."""

    files: int
    rejected: int


class Columns(NamedTuple):
    """The sizes of a part's samples.

    Attributes:
        rows: of COLUMNS.
        records_at, blobs_at: where the records and the blobs begin in the spool file.
    """

    rows: NDArray[np.void]
    records_at: int
    blobs_at: int


def convert_step(job: Job, part: Part, workers: int = 1) -> Converted:
    """Converts a part in so many threads, and writes it down. Note [steps of a pack]

    Raises:
        PackError: the system is at fault; or a file has changed since it was listed; or a sample cannot be packed, and
            the options say to stop.
    """
    store = job.store()
    listed = read_listed(store)
    if listed.made_with != job.made_with(listed.kinds):
        raise PackError(
            f"{platform.node()}: the sources were listed with other options, or by other versions of the libraries "
            f"that decide the bytes ({versions(masks='mask' in listed.kinds.values())} here). Give all steps the same "
            "options, install the same versions on all machines, and begin with --step list"
        )
    listing, positions = read_sources(store, listed, part, job)
    place = packing_order(job.options.seed, shuffle=job.options.shuffle)
    kinds = list(listing.kinds.values())
    done: list[tuple[tuple[int, int, int], Record, bytes]] = []
    rejected = 0
    with closing(in_any_order(listing, listing.sources, job.options.encode, workers)) as pictures:
        for at, source, outcome in pictures:
            record, blob = record_of(place(source), source.label, source.size_bytes, outcome, kinds)
            blocks = note = 0
            if isinstance(outcome, str):
                rejected += 1
                if job.options.fail_fast:
                    raise cannot_be_packed(listing.root / source.path, outcome)
            else:
                stored = StoredSample(sample_key(0), outcome, source.label, source.path, listing.kinds)
                blocks, note = stored.size_bytes // BLOCK, stored.note_bytes
            done.append(((positions[at], blocks, note), record, blob))
    done.sort(key=lambda each: each[0])
    samples = [(record, blob) for _, record, blob in done]
    pieces, records_at, blobs_at, lines = spool_pieces(listed.made_with, part.name, positions[0], "", samples)
    store.write(part.spool_file, pieces)
    sizes = zip(done, lines, strict=True)
    rows = np.array([(*facts, line, record.blob_bytes) for (facts, record, _), line in sizes], COLUMNS)
    store.write(part.columns_file, [written(Columns(rows, records_at, blobs_at))])
    return Converted(len(samples), rejected)


def read_columns(store: SpoolStore, part: Part) -> Columns:
    """The columns of a part.

    Raises:
        PackError: it is not converted, or the file has changed.
    """
    try:
        data = store.read(part.columns_file)
    except FileNotFoundError as problem:
        number = int(part.name.split("-")[1])
        raise PackError(
            f"part {number} is not converted: there is no {problem.filename}. Run --step convert for all parts, then "
            "--step plan"
        ) from None
    body = data[_HASH_BYTES:]
    if data[:_HASH_BYTES] != xxhash.xxh3_64_digest(body) or len(body) != _AT.size + part.files * COLUMNS.itemsize:
        raise PackError(
            f"{part.columns_file} in the spool has changed since it was written. Remove it, then run the same command "
            "again: it is made anew"
        )
    return Columns(np.frombuffer(body, COLUMNS, offset=_AT.size), *_AT.unpack_from(body))


def written(columns: Columns) -> bytes:
    """A part's columns as they lie in its file: a hash of all else, where records and blobs begin, the rows."""
    body = _AT.pack(columns.records_at, columns.blobs_at) + columns.rows.tobytes()
    return xxhash.xxh3_64_digest(body) + body
