"""A pack in tasks: its parts, and the files of the spool through which the sources of a part reach
its task.

Note [tasks of a pack]
A task *lists* the sources and writes down those of each shard. For tables, tasks *convert* runs of
rows, see Note [exchange]. A task *makes* a shard of its sources. The driver *publishes* the shards.

The bytes that a task writes depend only on the job and the part; not on the worker, the time, or
how often the task has run. A file appears whole, so a file that is present need not be made again.
"""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.dataset.format.folder import Place, scheme_of
from fastpipe.dataset.format.open_file import FileState
from fastpipe.errors import PackError
from fastpipe.packing.pipeline.exchange import spool_version
from fastpipe.packing.shard.journal import SPOOL_FOLDER
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.sources.column_choice import ColumnChoice
from fastpipe.sources.facts import Facts
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.listing import Group, Listing, Source
from fastpipe.sources.notes import Note, Notes
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.tables.tables import Table, TableListing
from fastpipe.store.store import Store, open_store, own_folder_name

# The kinds of parts.
CONVERT = "convert"
MAKE = "make"


@dataclass(frozen=True)
class Job:
    """What all tasks of a pack get. Its paths are absolute: workers have other working folders."""

    source: str
    destination: Place
    options: PackOptions

    @classmethod
    def of(cls, source: SourcePath, destination: Place, options: PackOptions) -> Job:
        """A job of paths as a user gives them."""
        source_name = (
            os.path.abspath(source) if isinstance(source, Path) else str(source)
        )
        if isinstance(destination, Path):
            destination = Path(os.path.abspath(destination))
        # A URL is absolute already.
        image_root = options.source.image_root
        if image_root is not None and not scheme_of(image_root):
            options = replace(
                options,
                source=replace(options.source, image_root=os.path.abspath(image_root)),
            )
        return cls(source_name, destination, options)

    def source_path(self) -> SourcePath:
        return source_path(self.source, self.options.source.remote)

    def open_destination(self) -> Store:
        return open_store(self.destination, self.options.source.remote)

    def open_spool(self) -> Store:
        """The spool: a folder in the destination; with --spool, a folder of its own there."""
        place = self.destination / SPOOL_FOLDER
        if self.options.spool is not None:
            place = self.options.spool / own_folder_name(self.destination)
        if isinstance(place, Path) and place.is_symlink():
            raise PackError(
                f"{place} is a link; expected a folder, because packing writes only into its "
                "destination"
            )
        return open_store(
            place,
            self.options.source.remote,
            place if isinstance(place, Path) else None,
        )


@dataclass(frozen=True)
class ListedSources:
    """What the driver and the tasks know about the sources of a pack, which may be too many for one
    memory.

    Attributes:
        facts: about the listing.
        plan: of the pack.
        num_ranges: files in the spool that list the parts.
        version: `spool_version` of the machine that has listed them.
    """

    facts: Facts
    plan: Plan
    num_ranges: int
    version: str

    def check_version(self, job: Job) -> None:
        """Raises PackError if this machine has other libraries: shards would have other bytes."""
        if self.version != spool_version(self.facts.kinds, job.options):
            raise PackError(
                f"{platform.node()}: the sources were listed by other versions of the libraries "
                f"that decide the bytes, or of fastpipe ({made_with()} here). Install the same "
                "versions on all machines, then run the same command again"
            )


class Part(NamedTuple):
    """The work of a task. The spool has the part's sources in NAME.sources.

    Attributes:
        kind: CONVERT or MAKE.
        name: of a shard, that of its entry.
        files: number of its sources.
        size_bytes: of its sources.
        number: of the shard.
        runs: name and number of rows of each run that is converted.
        threads: that the task may use.
    """

    kind: str
    name: str
    files: int
    size_bytes: int
    number: int = 0
    runs: Sequence[tuple[str, int]] = ()
    threads: int = 1


def parts_file(range_index: int) -> str:
    """The name of the file in the spool that lists the parts of a range, one a line."""
    return f"parts-{range_index}.txt"


def sources_file(part_name: str) -> str:
    """The name of the file in the spool that has the sources of a part."""
    return f"{part_name}.sources"


def write_parts(spool: Store, range_index: int, parts: Sequence[Part]) -> None:
    """Writes the list of the parts of a range."""
    spool.write(
        parts_file(range_index),
        b"".join(json.dumps(part).encode() + b"\n" for part in parts),
    )


def read_parts(job: Job, listed: ListedSources, kind: str) -> Iterator[Part]:
    """The parts of a kind. There may be a million, so they are read anew each time."""
    spool = job.open_spool()
    for range_index in range(listed.num_ranges):
        for line in read_spool_file(spool, parts_file(range_index)).splitlines():
            part = Part(*json.loads(line))
            if part.kind == kind:
                yield part


def read_spool_file(spool: Store, name: str) -> bytes:
    """A file of the spool. PackError: this machine does not see it, though another one may."""
    try:
        return spool.read(name)
    except FileNotFoundError as problem:
        raise PackError(
            f"{platform.node()}: the spool has no {name} ({problem.filename}). All machines have "
            "to see DST, or the folder of --spool, by the same path"
        ) from problem


def encode_sources(listing: Listing, positions: Sequence[int]) -> bytes:
    """Some sources of a listing as JSON, which escapes bytes of names that are not UTF-8."""
    sources = [listing.sources[position] for position in positions]
    encoded = [_encode_source(source, listing.notes) for source in sources]
    content = {
        "sources": encoded,
        "tables": _encode_tables(listing, sources)
        if isinstance(listing, TableListing)
        else None,
        "notes": listing.notes is not None,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def _encode_source(source: Source, notes: Notes | None) -> list[Any]:
    if source.note is None or notes is None:
        return list(source)
    # The text of the note takes the place of its position among the notes of this listing.
    note = source.note
    text = notes.read(note.offset_bytes, note.size_bytes).decode()
    with_text: Any = [text, note.content, note.state]
    return list(source._replace(note=with_text))


def _encode_tables(listing: TableListing, sources: Sequence[Source]) -> list[Any]:
    """The tables of some rows, with the groups that have these rows."""
    rows_by_table: dict[str, list[int]] = defaultdict(list)
    for source in sources:
        rows_by_table[source.archive or ""].append(source.offset_bytes)
    tables = {}
    for name, rows in rows_by_table.items():
        first = min(rows)
        last = max(rows)
        table = listing.tables[name]
        # A task opens the table, and reads only the groups with its rows.
        groups = []
        for group in table.groups:
            group_end = group.first_row + group.rows
            if group.first_row <= last and group_end > first:
                groups.append(group)
        tables[name] = (table.state, groups)
    return [listing.kind, listing.columns.image, tables]


def read_sources(job: Job, listed: ListedSources, part: Part) -> Listing:
    """The sources of a part, as a listing of their own."""
    data = read_spool_file(job.open_spool(), sources_file(part.name))
    content = json.loads(data)
    notes = Notes() if content["notes"] else None
    sources = [_decode_source(encoded, notes) for encoded in content["sources"]]
    if notes is not None:
        notes.flush()
    facts = listed.facts
    listing = Listing(
        source_path(facts.root, job.options.source.remote),
        facts.classes or [],
        sources,
        stray=[],
        fields=facts.fields,
        notes=notes,
        coordinates=facts.coordinates,
        taken_ns=facts.taken_ns,
    )
    if content["tables"] is None:
        return listing
    kind, image_column, encoded_tables = content["tables"]
    tables = {}
    for name, (state, groups) in encoded_tables.items():
        tables[name] = Table(
            FileState(*state), tuple(Group(*group) for group in groups)
        )
    columns = ColumnChoice(image_column, None, facts.fields, has_paths=False)
    return TableListing(**vars(listing), kind=kind, tables=tables, columns=columns)


def _decode_source(encoded: list[Any], notes: Notes | None) -> Source:
    values = dict(zip(Source._fields, encoded, strict=True))
    # JSON has lists in place of tuples.
    parts = []
    for members in values["parts"]:
        parts.append(tuple((offset, size_bytes) for offset, size_bytes in members))
    values["parts"] = tuple(parts)
    if values["note"] is not None and notes is not None:
        text, content, state = values["note"]
        data = text.encode()
        values["note"] = Note(notes.add(data), len(data), content, state)
    return Source(**values)
