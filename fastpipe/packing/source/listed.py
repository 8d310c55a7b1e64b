"""Sources of a listing <-> a file, for those who pack them elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fastpipe.format.file_state import FileState
from fastpipe.packing.source.files import source_path
from fastpipe.packing.source.listing import Listing, Note, Notes, Source, SourceField
from fastpipe.packing.source.tables import Table, TableListing, table_opener

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions


class Piece(NamedTuple):
    """Some sources of a listing.

    Attributes:
        number: of the shard that they are of; 0: of none.
        positions: in packing order.
    """

    number: int
    positions: Sequence[int]


class Facts(Protocol):
    """What a listing's pieces have in common: see Listing."""

    @property
    def root(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def columns(self) -> list[Any] | None: ...
    @property
    def classes(self) -> list[str] | None: ...
    @property
    def taken_ns(self) -> int: ...
    @property
    def fields(self) -> tuple[SourceField, ...]: ...


def piece_of(listing: Listing, piece: Piece) -> bytes:
    """Some sources as JSON. Names may have bytes that are no UTF-8; these stand as escapes."""
    run = [listing.sources[at] for at in piece.positions]
    tables = {}
    if isinstance(listing, TableListing):
        for name, ours in groupby(sorted(run, key=lambda source: (source.archive or "", source.offset_bytes)), _table):
            rows = [source.offset_bytes for source in ours]
            groups = [
                each
                for each in listing.tables[name].groups
                if each.first_row <= rows[-1] and each.first_row + each.rows > rows[0]
            ]
            tables[name] = [listing.tables[name].state, groups]
    sources = [_cells(source, listing.notes) for source in run]
    return json.dumps(
        {
            "number": piece.number,
            "sources": sources,
            "tables": tables,
            "notes": listing.notes is not None,
        },
        separators=(",", ":"),
    ).encode()


def sources_in(data: bytes, facts: Facts, remote: RemoteOptions | None) -> tuple[Listing, Piece]:
    """The sources of `piece_of`, as a listing of them alone."""
    written = json.loads(data)
    piece = Piece(written["number"], range(len(written["sources"])))
    notes = Notes() if written["notes"] else None
    sources = [_source(each, notes) for each in written["sources"]]
    if notes is not None:
        notes.flush()
    common: dict[str, Any] = {
        "root": source_path(facts.root, remote),
        "classes": facts.classes or [],
        "sources": sources,
        "stray": [],
        "fields": facts.fields,
        "notes": notes,
        "taken_ns": facts.taken_ns,
    }
    if not facts.kind:
        return Listing(**common), piece
    from fastpipe.packing.source.table_columns import TableColumns, TableField
    from fastpipe.packing.source.table_file import Group

    image, has_paths, label, classes, named, fields = facts.columns or ["", False, None, None, False, []]
    columns = TableColumns(
        image,
        has_paths,
        label,
        None if classes is None else tuple(classes),
        named,
        tuple(TableField(name, kind, column, tuple(names)) for name, kind, column, names in fields),
    )
    tables = {
        name: Table(FileState(*state), tuple(Group(*group) for group in groups))
        for name, (state, groups) in written["tables"].items()
    }
    return TableListing(**common, open=table_opener(facts.kind), tables=tables, columns=columns), piece


def _table(source: Source) -> str:
    return source.archive or ""


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
