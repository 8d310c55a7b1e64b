"""A pack in steps that run anywhere: what each is told, and what the first one writes down for the others.

Note [steps of a pack]
*List* writes down the sources of each shard. *Convert* is for tables only: it converts a run of rows, see
Note [exchange]. *Make* makes a shard of its sources. *Publish* strings the shards together and writes dataset.json.
Each step is a pure function of the job and the number of its part: its bytes do not depend on who runs it, when and how
often. A file is whole or not there, so what is there need not be made again. These are the functions that make a shard
in threads, too.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.folder import Place
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.exchange import Rows, convert_rows, exchanged, few_outcomes, spool_of
from fastpipe.packing.pipeline.run_file import is_whole
from fastpipe.packing.shard.entry import read_entry
from fastpipe.packing.shard.journal import SPOOL_FOLDER, made_with
from fastpipe.packing.shard.make import make_shards, making
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan, Run
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.files import SourcePath, source_path
from fastpipe.packing.source.listed import sources_in
from fastpipe.packing.source.listing import Source, SourceField
from fastpipe.packing.source.tables import TableListing
from fastpipe.store.opening import open_store
from fastpipe.store.store import Store

LISTED = "listed.json"
_NO_PLAN = Plan(1, {})


@dataclass(frozen=True)
class Job:
    """What the steps of a pack are told.

    Attributes:
        source: path or URL; a path is absolute, for workers may have other working folders.
        destination: of the dataset; the same.
        options: how.
    """

    source: str
    destination: Place
    options: PackOptions

    @classmethod
    def of(cls, source: SourcePath, destination: Place, options: PackOptions) -> Job:
        """A job of paths as a user gives them."""
        if isinstance(destination, Path):
            destination = Path(os.path.abspath(destination))
        how = options.source
        if how.image_root is not None and "://" not in how.image_root:
            options = replace(options, source=replace(how, image_root=os.path.abspath(how.image_root)))
        return cls(os.path.abspath(source) if isinstance(source, Path) else str(source), destination, options)

    def source_path(self) -> SourcePath:
        """The source."""
        return source_path(self.source, self.options.source.remote)

    def spool(self) -> Store:
        """The spool: in a folder of its own where the user says, or beside the dataset."""
        remote = self.options.source.remote
        if self.options.spool is None:
            return _shared(self.destination / SPOOL_FOLDER, remote)
        target = str(self.destination)
        last = re.sub(r"[^A-Za-z0-9.-]+", "-", target.rpartition("/")[2])
        return _shared(self.options.spool / f"{last}-{xxhash.xxh3_64_hexdigest(os.fsencode(target))}", remote)

    def store(self) -> Store:
        """Of the dataset."""
        return open_store(self.destination, self.options.source.remote)


def _shared(place: Place, remote: Any) -> Store:
    """A store whose files are made in it, and not beside it."""
    if isinstance(place, Path) and place.is_symlink():
        raise PackError(f"{place} is a link; expected a folder, because packing writes only into its destination")
    return open_store(place, remote, place if isinstance(place, Path) else None)


@dataclass(frozen=True)
class Listed(Facts):
    """What the steps need of a listing, as a file can hold it.

    Attributes:
        made_with: `spool_of`.
        plan: see Plan.
        stride: see Making.
        ranges: in which the parts are written down. Note [listing by ranges] in lists.py
    """

    made_with: str = ""
    plan: Plan = _NO_PLAN
    stride: int = 0
    ranges: int = 1

    @classmethod
    def read(cls, data: bytes) -> Listed:
        """As `list_all` has written it; TypeError: another version of fastpipe has."""
        said = json.loads(data)
        fields = tuple(
            SourceField(name, kind, in_note, tuple(names), tuple((one, other) for one, other in pairs), column)
            for name, kind, in_note, names, pairs, column in said["fields"]
        )
        return cls(**{**said, "fields": fields, "plan": Plan(*said["plan"])})


class Part(NamedTuple):
    """A part of a step: rows to convert, or a shard to make.

    Attributes:
        step: "convert" or "make".
        name: of its file in the spool without ".sources"; of a shard, that of its entry; of rows, that of their run.
        files, size_bytes: of its sources.
        group: runs of one group are converted together.
    """

    step: str
    name: str
    files: int
    size_bytes: int
    group: int = 0

    def line(self) -> bytes:
        """As the list of parts has it."""
        return f"{self.step} {self.name} {self.files} {self.size_bytes} {self.group}\n".encode()


class Done(NamedTuple):
    """What became of a part."""

    files: int
    rejected: int


def read_listed(job: Job) -> Listed:
    """The facts that the step "list" wrote, for a job with the same options and libraries.

    Raises:
        PackError: it has not run, or for another job.
    """
    data = _read_step(job.spool(), LISTED)
    try:
        listed = Listed.read(data)
    except TypeError as problem:
        raise PackError(
            f"{platform.node()}: {LISTED} in the spool is of another version of fastpipe ({problem}). Install the "
            "same version on all machines, and begin with --step list"
        ) from problem
    return check(job, listed)


def check(job: Job, listed: Listed) -> Listed:
    """The same, if it was listed for such a job, with these libraries.

    Raises:
        PackError: it was not.
    """
    if listed.made_with == spool_of(listed.kinds, job.options):
        return listed
    raise PackError(
        f"{platform.node()}: the sources were listed with other options, or by other versions of the libraries "
        f"that decide the bytes ({made_with(listed.kinds.values())} here). Give all steps the same "
        "options, install the same versions on all machines, and begin with --step list"
    )


def read_parts(job: Job, step: str) -> Iterator[Part]:
    """The parts of a step; errors as of `read_listed`."""
    spool = job.spool()
    for number in range(Listed.read(_read_step(spool, LISTED)).ranges):
        for line in io.BytesIO(_read_step(spool, parts_file(number))):
            of, name, files, size_bytes, group = line.decode().split()
            if of == step:
                yield Part(of, name, int(files), int(size_bytes), int(group))


def parts_file(number: int) -> str:
    """The file in the spool with the parts of a range."""
    return f"parts-{number}.txt"


def _read_step(spool: Store, name: str) -> bytes:
    try:
        return spool.read(name)
    except FileNotFoundError as problem:
        raise PackError(
            f"{platform.node()}: the spool has no {name} ({problem.filename}): run --step list first, with the same "
            "SRC, DST and options. All machines have to see DST, or the folder of --spool, by the same path"
        ) from problem


def convert_step(job: Job, parts: Sequence[Part], workers: int = 1) -> Done:
    """Converts runs of rows of one group in so many threads. Note [exchange]

    Raises:
        PackError: the system is at fault; or a file has changed since it was listed; or a sample cannot be packed, and
            the options say to stop.
    """
    listed, spool = read_listed(job), job.spool()
    there = spool.sizes()
    left = [part for part in parts if not is_whole(spool, part.name, there)]
    if not left:
        return Done(0, 0)
    rejected = 0

    def told(_: Source, outcome: Packed | str) -> None:
        nonlocal rejected
        rejected += isinstance(outcome, str)

    pieces = [sources_in(spool.read(f"{part.name}.sources"), listed, job.options.source.remote) for part in left]
    sources = [source for listing, _ in pieces for source in listing.sources]
    first = pieces[0][0]
    assert isinstance(first, TableListing)  # no other source has such parts
    tables: dict[str, Any] = {}
    for listing, _ in pieces:
        assert isinstance(listing, TableListing)
        for name, table in listing.tables.items():
            known = tables.get(name)
            groups = table.groups if known is None else tuple(dict.fromkeys((*known.groups, *table.groups)))
            tables[name] = table._replace(groups=groups)
    rows, at = [], 0
    for part in left:
        rows.append(Rows(part.name, range(at, at + part.files), part.group))
        at += part.files
    of = replace(first, sources=sources, tables=tables)
    convert_rows(of, rows, job.options, workers, spool, told)
    return Done(len(sources), rejected)


def make_step(job: Job, part: Part, workers: int = 1) -> Done:
    """Makes a shard, if it is not there. Note [steps of a pack]

    Raises:
        PackError: the disk refuses, or a source has changed since it was listed.
    """
    listed, spool, store = read_listed(job), job.spool(), job.store()
    options = job.options
    try:
        if read_entry(store, part.name, store.sizes()) is not None:
            return Done(0, 0)
        listing, piece = sources_in(spool.read(f"{part.name}.sources"), listed, options.source.remote)
        run = Run(piece.number, 0, len(listing.sources))
        if isinstance(listing, TableListing):
            names = [each.name for each in read_parts(job, "convert")]
            outcomes = exchanged(listing.sources, [run], options, names, spool)
        else:
            outcomes = few_outcomes(listing, listing.sources, options, workers)
        how = making(store, listing, listed.plan, listed.stride, options.shard_size, fail_fast=options.fail_fast)
        with closing(outcomes):
            (entry,) = make_shards(how, [(part.name, run)], outcomes)
        return Done(len(listing.sources), len(entry.tally.rejected))
    finally:
        store.close()
