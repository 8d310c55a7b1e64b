"""Sources of a listing <-> a file, for those who pack them elsewhere."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpipe.format.file_state import FileState
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.field_names import Columns
from fastpipe.packing.source.files import source_path
from fastpipe.packing.source.listing import Group, Listing, Note, Notes, Source
from fastpipe.packing.source.tables import Table, TableListing

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


def piece_of(listing: Listing, piece: Piece) -> bytes:
    """Some sources as JSON. Names may have bytes that are no UTF-8; these stand as escapes."""
    run = [listing.sources[at] for at in piece.positions]
    tables = None
    if isinstance(listing, TableListing):
        rows: dict[str, list[int]] = defaultdict(list)
        for source in run:
            rows[source.archive or ""].append(source.offset_bytes)
        files = {}
        for name, ours in rows.items():
            first, last, (state, groups) = min(ours), max(ours), listing.tables[name]
            needed = [each for each in groups if each.first_row <= last and each.first_row + each.rows > first]
            files[name] = state, needed
        tables = [listing.kind, listing.columns.image, files]
    cells = [[_text_of(source, name, listing.notes) for name in Source.__slots__] for source in run]
    written = {"number": piece.number, "sources": cells, "tables": tables, "notes": listing.notes is not None}
    return json.dumps(written, separators=(",", ":")).encode()


def sources_in(data: bytes, facts: Facts, remote: RemoteOptions | None) -> tuple[Listing, Piece]:
    """The sources of `piece_of`, as a listing of them alone."""
    written = json.loads(data)
    notes = Notes() if written["notes"] else None
    sources = []
    for each in written["sources"]:
        said = dict(zip(Source.__slots__, each, strict=True))
        if said["note"] is not None and notes is not None:
            text, content, state = said["note"]
            said["note"] = Note(notes.add(text.encode()), len(text.encode()), content, state)
        said["parts"] = tuple(part and tuple(part) for part in said["parts"])
        sources.append(Source(**said))
    if notes is not None:
        notes.flush()
    piece = Piece(written["number"], range(len(sources)))
    listing = Listing(
        source_path(facts.root, remote), facts.classes or [], sources, [], {}, facts.fields, notes, facts.taken_ns
    )
    if written["tables"] is None:
        return listing, piece
    kind, image, files = written["tables"]
    tables = {
        name: Table(FileState(*state), tuple(Group(*group) for group in groups))
        for name, (state, groups) in files.items()
    }
    columns = Columns(image, None, facts.fields, has_paths=False)
    return TableListing(**vars(listing), kind=kind, tables=tables, columns=columns), piece


def _text_of(source: Source, name: str, notes: Notes | None) -> Any:
    """An attribute of a source as JSON has it: a note with its text, in place of where that stands."""
    if name != "note" or source.note is None or notes is None:
        return getattr(source, name)
    text = notes.read(source.note.offset_bytes, source.note.size_bytes).decode()
    return [text, source.note.content, source.note.state]
