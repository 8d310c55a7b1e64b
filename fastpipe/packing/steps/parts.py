"""A pack in steps that run anywhere: what each is told, and what the first one writes down for the others.

Note [steps of a pack]
*List* writes down the sources of each shard. *Convert* is for tables only: it converts some runs of rows, see
Note [exchange]. *Make* makes a shard of its sources. *Publish* strings the shards together and writes dataset.json.
Each step is a pure function of the job and the number of its part: its bytes do not depend on who runs it, when and how
often. A file is whole or not there, so what is there need not be made again. These are the functions that make a shard
in threads, too.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.folder import Place, scheme_of
from fastpipe.format.open_file import FileState
from fastpipe.packing.pipeline.exchange import spool_of
from fastpipe.packing.shard.journal import SPOOL_FOLDER
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.listing import Assumption, Facts, Group, Listing, Note, Notes, Source, SourceField
from fastpipe.sources.options import ColumnChoice
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.tables import Table, TableListing
from fastpipe.store.store import Store, open_store

LISTED = "listed.json"


@dataclass(frozen=True)
class Job:
    """What the steps of a pack are told. Paths are absolute, for workers may have other working folders."""

    source: str
    destination: Place
    options: PackOptions

    @classmethod
    def of(cls, source: SourcePath, destination: Place, options: PackOptions) -> Job:
        """A job of paths as a user gives them."""
        if isinstance(destination, Path):
            destination = Path(os.path.abspath(destination))
        how = options.source
        if how.image_root is not None and not scheme_of(how.image_root):
            options = replace(options, source=replace(how, image_root=os.path.abspath(how.image_root)))
        return cls(os.path.abspath(source) if isinstance(source, Path) else str(source), destination, options)

    def source_path(self) -> SourcePath:
        return source_path(self.source, self.options.source.remote)

    def spool(self) -> Store:
        """The spool: in a folder of its own where the user says, or beside the dataset; files are made in it."""
        place = self.destination / SPOOL_FOLDER
        if self.options.spool is not None:
            target = str(self.destination)
            last = re.sub(r"[^A-Za-z0-9.-]+", "-", target.rpartition("/")[2])
            place = self.options.spool / f"{last}-{xxhash.xxh3_64_hexdigest(os.fsencode(target))}"
        if isinstance(place, Path) and place.is_symlink():
            raise PackError(f"{place} is a link; expected a folder, because packing writes only into its destination")
        return open_store(place, self.options.source.remote, place if isinstance(place, Path) else None)

    def store(self) -> Store:
        """Of the dataset."""
        return open_store(self.destination, self.options.source.remote)


@dataclass(frozen=True, kw_only=True)
class Listed(Facts):
    """What the steps need of a listing, as a file can hold it; its parts are written down in `ranges`, see lists.py."""

    made_with: str
    plan: Plan
    ranges: int

    @classmethod
    def read(cls, data: bytes) -> Listed:
        """As the step "list" has written it; TypeError: another version of fastpipe has."""
        said = json.loads(data)
        fields = tuple(
            SourceField(
                name,
                kind,
                in_note,
                tuple(names),
                tuple((one, other) for one, other in pairs),
                column,
                tuple(numbers),
                tuple(columns),
                *texts,
            )
            for name, kind, in_note, names, pairs, column, numbers, columns, *texts in said["fields"]
        )
        assumed = tuple(Assumption(*each) for each in said["assumed"])
        return cls(**{**said, "fields": fields, "assumed": assumed, "plan": Plan(*said["plan"])})


class Part(NamedTuple):
    """A part of a step: rows to convert, or a shard to make. The spool has its sources in NAME.sources."""

    step: str
    name: str  # of a shard, that of its entry
    files: int
    size_bytes: int
    number: int = 0  # of the shard
    runs: Sequence[tuple[str, int]] = ()  # of rows that are converted together: name, and how many
    threads: int = 1  # that it takes at most


def read_listed(job: Job) -> Listed:
    """The facts that the step "list" wrote. PackError: it has not run, or with other options or libraries."""
    data = _read_step(job.spool(), LISTED)
    try:
        return check(job, Listed.read(data))
    except TypeError as problem:  # of another version of fastpipe
        raise _listed_otherwise(str(problem)) from problem


def check(job: Job, listed: Listed) -> Listed:
    """The same, if it was listed for such a job, with these libraries."""
    if listed.made_with != spool_of(listed.kinds, job.options):
        raise _listed_otherwise(f"{made_with()} here")
    return listed


def _listed_otherwise(more: str) -> PackError:
    return PackError(
        f"{platform.node()}: the sources were listed with other options, or by other versions of the libraries that "
        f"decide the bytes, or of fastpipe ({more}). Give all steps the same options, install the same versions on all "
        "machines, and begin with --step list"
    )


def read_parts(job: Job, step: str) -> Iterator[Part]:
    """The parts of a step; errors as of `read_listed`."""
    spool = job.spool()
    for number in range(Listed.read(_read_step(spool, LISTED)).ranges):
        for line in _read_step(spool, parts_file(number)).splitlines():
            part = Part(*json.loads(line))
            if part.step == step:
                yield part


def parts_file(number: int) -> str:
    """The file in the spool with the parts of a range, a line each."""
    return f"parts-{number}.txt"


def _read_step(spool: Store, name: str) -> bytes:
    try:
        return spool.read(name)
    except FileNotFoundError as problem:
        raise PackError(
            f"{platform.node()}: the spool has no {name} ({problem.filename}): run --step list first, with the same "
            "SRC, DST and options. All machines have to see DST, or the folder of --spool, by the same path"
        ) from problem


def written_sources(listing: Listing, positions: Sequence[int]) -> bytes:
    """Some sources of a listing as JSON. Names may have bytes that are no UTF-8; these stand as escapes."""
    some = [listing.sources[at] for at in positions]
    tables = None
    if isinstance(listing, TableListing):
        rows: dict[str, list[int]] = defaultdict(list)
        for source in some:
            rows[source.archive or ""].append(source.offset_bytes)
        files = {}
        for name, ours in rows.items():
            first, last, (state, groups) = min(ours), max(ours), listing.tables[name]
            needed = [each for each in groups if each.first_row <= last and each.first_row + each.rows > first]
            files[name] = state, needed
        tables = [listing.kind, listing.columns.image, files]
    notes = listing.notes

    def written(source: Source) -> list[Any]:
        *cells, note, identity, origin_bytes = source
        if note is not None and notes is not None:  # with its text, in place of where that stands
            note = [notes.read(note.offset_bytes, note.size_bytes).decode(), note.content, note.state]  # type: ignore[assignment]
        return [*cells, note, identity, origin_bytes]

    said = {"sources": [written(source) for source in some], "tables": tables, "notes": notes is not None}
    return json.dumps(said, separators=(",", ":")).encode()


def read_sources(job: Job, listed: Listed, part: Part) -> Listing:
    """The sources of a part, as a listing of them alone."""
    said = json.loads(job.spool().read(f"{part.name}.sources"))
    notes = Notes() if said["notes"] else None
    sources = []
    for *cells, members, file, note, identity, origin_bytes in said["sources"]:
        if note is not None and notes is not None:
            text, content, state = note
            data = text.encode()
            note = Note(notes.add(data), len(data), content, state)
        parts = tuple(each and tuple(each) for each in members)
        sources.append(Source(*[*cells, parts, file, note, identity, origin_bytes]))
    if notes is not None:
        notes.flush()
    root = source_path(listed.root, job.options.source.remote)
    listing = Listing(
        root,
        listed.classes or [],
        sources,
        stray=[],
        fields=listed.fields,
        notes=notes,
        coordinates=listed.coordinates,
        taken_ns=listed.taken_ns,
    )
    if said["tables"] is None:
        return listing
    kind, image, files = said["tables"]
    tables = {
        name: Table(FileState(*state), tuple(Group(*group) for group in groups))
        for name, (state, groups) in files.items()
    }
    columns = ColumnChoice(image, None, listed.fields, has_paths=False)
    return TableListing(**vars(listing), kind=kind, tables=tables, columns=columns)
