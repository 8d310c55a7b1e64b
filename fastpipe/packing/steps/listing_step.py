"""The step "list": the sources of a pack -> parts of about equal size, written down for the workers; and read there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.packing.source.files import source_path
from fastpipe.packing.source.kinds import list_sources
from fastpipe.packing.source.listing import Listing, Note, Source
from fastpipe.packing.source.notes import Notes
from fastpipe.packing.source.tables import Table, TableListing, table_opener
from fastpipe.packing.steps.job import PART_SOURCES, PARTS_FILE, Job, Listed, Part, listed_of
from fastpipe.packing.steps.store import SpoolStore

_LEAST_BYTES, _ENOUGH_PARTS = 32_000_000, 64


class PartSources(NamedTuple):
    """The sources of a part.

    Attributes:
        listing: of these alone.
        positions: of each in packing order.
    """

    listing: Listing
    positions: Sequence[int]


def list_step(job: Job, _: object = None) -> Listed:
    """Lists the sources and writes them down, part by part. Note [steps of a pack]"""
    options = job.options
    listing = list_sources(job.source_path(), options.seed, shuffle=options.shuffle, how=options.source)
    columns: list[Any] | None = None
    kind = ""
    if isinstance(listing, TableListing):
        kind, columns = listing.open.kind.lower(), list(listing.columns)  # type: ignore[attr-defined]
    listed = listed_of(listing, job, kind, columns)
    store = job.store()
    there = store.sizes()
    parts = []
    for number, positions in enumerate(_cut(listing, _piece_bytes(listing.size_bytes, job.part_bytes))):
        run = [listing.sources[at] for at in positions]
        part = _part(number, listing, positions, run, listed.made_with)
        parts.append(part)
        if part.sources_file not in there:
            store.write(part.sources_file, [_written(listing, positions, run)])
    store.write(PARTS_FILE, [json.dumps(parts).encode()])
    listed.write(store)
    return listed


def read_sources(store: SpoolStore, listed: Listed, part: Part, job: Job) -> PartSources:
    """The sources of a part, as a listing of them alone."""
    written = json.loads(store.read(part.sources_file))
    positions = written["positions"]
    notes = Notes() if written["notes"] else None
    sources = [_source(each, notes) for each in written["sources"]]
    if notes is not None:
        notes.flush()
    root = source_path(listed.root, job.options.source.remote)
    facts = root, listed.classes, sources, list[str](), dict[str, int](), listed.fields, notes, listed.taken_ns
    if not listed.kind:
        return PartSources(Listing(*facts), positions)
    from fastpipe.packing.source.table_columns import TableColumns, TableField
    from fastpipe.packing.source.table_file import Group, State

    image, has_paths, label, classes, named, fields = listed.columns or ["", False, None, None, False, []]
    columns = TableColumns(
        image,
        has_paths,
        label,
        None if classes is None else tuple(classes),
        named,
        tuple(TableField(name, kind, column, tuple(names)) for name, kind, column, names in fields),
    )
    tables = {
        name: Table(State(*state), tuple(Group(*group) for group in groups))
        for name, (state, groups) in written["tables"].items()
    }
    opener = table_opener(listed.kind)
    return PartSources(TableListing(*facts, open=opener, tables=tables, columns=columns), positions)


def _part(number: int, listing: Listing, positions: Sequence[int], run: list[Source], made_with: str) -> Part:
    state = Listing(listing.root, [], run, []).digest_with_times()
    # Another row before these moves all of them in packing order.
    places = xxhash.xxh3_64_hexdigest(np.asarray(positions, np.int64).tobytes())
    named = xxhash.xxh3_64_hexdigest(f"{state} {made_with} {places}".encode())
    size_bytes = sum(source.size_bytes for source in run)
    if isinstance(listing, TableListing):
        size_bytes = sum(_row_bytes(listing, name) * count for name, count in _rows(run))
    return Part(len(run), size_bytes, f"part-{number:06d}-{named}")


def _piece_bytes(total_bytes: int, most: int) -> int:
    """Of a part: enough parts to keep some machines busy to the end, in steps, so that a new file moves no others."""
    piece = _LEAST_BYTES
    while piece < most and piece * _ENOUGH_PARTS < total_bytes:
        piece *= 2
    return min(piece, most)


def _cut(listing: Listing, part_bytes: int) -> Iterator[Sequence[int]]:
    """The positions of the sources of each part."""
    sources = listing.sources
    if not isinstance(listing, TableListing):
        first, size_bytes = 0, 0
        for at, source in enumerate(sources):
            size_bytes += source.size_bytes
            if size_bytes >= part_bytes or at + 1 - first == PART_SOURCES:
                yield range(first, at + 1)
                first, size_bytes = at + 1, 0
        if first < len(sources):
            yield range(first, len(sources))
        return
    # Whole groups of rows, since a group is read as one.
    order = sorted(range(len(sources)), key=lambda at: (sources[at].archive or "", sources[at].offset_bytes))
    first = stop = size_bytes = 0
    for name in sorted(listing.tables):
        row_bytes = _row_bytes(listing, name)
        for group in listing.tables[name].groups:
            stop += group.rows
            size_bytes += row_bytes * group.rows
            if size_bytes >= part_bytes or stop - first >= PART_SOURCES:
                yield order[first:stop]
                first, size_bytes = stop, 0
    if first < stop:
        yield order[first:stop]


def _row_bytes(listing: TableListing, name: str) -> int:
    """Of a table's file, about."""
    table = listing.tables[name]
    return table.state.size_bytes // max(sum(group.rows for group in table.groups), 1)


def _rows(run: list[Source]) -> Iterator[tuple[str, int]]:
    for name, ours in groupby(run, key=lambda source: source.archive or ""):
        yield name, sum(1 for _ in ours)


def _written(listing: Listing, positions: Sequence[int], run: list[Source]) -> bytes:
    """The sources of a part as JSON. Names may have bytes that are no UTF-8; these stand as escapes."""
    tables = {}
    if isinstance(listing, TableListing):
        for name, ours in groupby(run, key=lambda source: source.archive or ""):
            rows = [source.offset_bytes for source in ours]
            groups = [each for each in listing.tables[name].groups if rows[0] <= each.first_row <= rows[-1]]
            tables[name] = [listing.tables[name].state, groups]
    sources = [_cells(source, listing.notes) for source in run]
    said = {"positions": list(positions), "sources": sources, "tables": tables, "notes": listing.notes is not None}
    return json.dumps(said, separators=(",", ":")).encode()


def _cells(source: Source, notes: Notes | None) -> list[Any]:
    note = None
    if source.note is not None and notes is not None:
        text = notes.read(source.note.offset_bytes, source.note.size_bytes).decode()
        note = [text, source.note.content, source.note.state]
    return [note if name == "note" else getattr(source, name) for name in Source.__slots__]


def _source(cells: list[Any], notes: Notes | None) -> Source:
    said = dict(zip(Source.__slots__, cells, strict=True))
    if said["note"] is not None and notes is not None:
        text, content, state = said["note"]
        data = text.encode()
        said["note"] = Note(notes.add(data), len(data), content, state)
    said["parts"] = tuple(part and tuple(part) for part in said["parts"])
    return Source(**said)
