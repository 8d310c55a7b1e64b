"""A pack in steps: what each step is told, and the facts of its sources, which the first one writes down.

Note [steps of a pack]
*List* writes down the sources in parts, each of up to `PART_BYTES`. *Convert* makes a spool file of a part, and columns
with the sizes of its samples. *Plan* reads the columns of all parts and says which samples each shard has, and where
they are. *Assemble* makes one shard of them. *Publish* strings records and fields together and writes dataset.json.
Each step is a pure function of the job and the number of its part: its bytes do not depend on who runs it, when and how
often. A file is whole or not there, so what is there need not be made again.

Parts are runs in packing order, so a shard needs one or two spool files, and can be made as soon as these are there:
Note [a rolling plan]. Rows of tables can only be read in the order of their files: there a shard needs a range of each
spool file, and the ranges are merged.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.folder import Place
from fastpipe.format.layout import WORK_FOLDER
from fastpipe.packing.options import PackOptions
from fastpipe.packing.output.journal import SPOOL_FOLDER
from fastpipe.packing.output.publish import Origin
from fastpipe.packing.picture.versions import versions
from fastpipe.packing.source.files import SourcePath, source_path
from fastpipe.packing.source.listing import Listing, SourceField
from fastpipe.packing.steps.store import SpoolStore, store_of

PART_BYTES = 256_000_000
PART_SOURCES = 1 << 16

_SPOOL_FORMAT = 1  # another one when the spool's files change: nothing of the old ones is taken

JOB_FILE = "job.json"
PARTS_FILE = "parts.json"
PLAN_FILE = "shards.plan"
PART = "part-"  # names of parts begin so


@dataclass(frozen=True)
class Job:
    """What the steps of a pack are told.

    Attributes:
        source: path or URL; a path is absolute, for workers may have other working folders.
        destination: of the dataset; the same.
        options: how.
        part_bytes: of the sources of a part, at most.
    """

    source: str
    destination: Place
    options: PackOptions
    part_bytes: int = PART_BYTES

    @classmethod
    def of(cls, source: SourcePath, destination: Place, options: PackOptions, part_bytes: int = PART_BYTES) -> Job:
        """A job of paths as a user gives them."""
        if isinstance(destination, Path):
            destination = Path(os.path.abspath(destination))
        how = options.source
        if how.image_root is not None and "://" not in how.image_root:
            options = replace(options, source=replace(how, image_root=os.path.abspath(how.image_root)))
        return cls(
            os.path.abspath(source) if isinstance(source, Path) else str(source), destination, options, part_bytes
        )

    def source_path(self) -> SourcePath:
        """The source."""
        return source_path(self.source, self.options.source.remote)

    def store(self) -> SpoolStore:
        """The spool: in a folder of its own where the user says, or beside the dataset."""
        if self.options.spool is not None:
            target = str(self.destination)
            last = re.sub(r"[^A-Za-z0-9.-]+", "-", target.rpartition("/")[2])
            own = f"{last}-{xxhash.xxh3_64_hexdigest(os.fsencode(target))}"
            return store_of(self.options.spool / own, self.options.source.remote)
        return store_of(self.destination / WORK_FOLDER / SPOOL_FOLDER, self.options.source.remote)

    def made_with(self, kinds: Mapping[str, str]) -> str:
        """Names what decides the bytes of a sample, and where they are in the spool, besides its source."""
        said = _SPOOL_FORMAT, self.options.shaping(kinds), versions(masks="mask" in kinds.values())
        return xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())

    def check(self, listed: Listed) -> Listed:
        """The same, if it was listed for such a job, with these libraries.

        Raises:
            PackError: it was not.
        """
        if listed.made_with == self.made_with(listed.kinds):
            return listed
        raise PackError(
            f"{platform.node()}: the sources were listed with other options, or by other versions of the libraries "
            f"that decide the bytes ({versions(masks='mask' in listed.kinds.values())} here). Give all steps the same "
            "options, install the same versions on all machines, and begin with --step list"
        )


class Part(NamedTuple):
    """A part of the sources.

    Attributes:
        files, size_bytes: of its sources.
        name: of its files; it names the state of the sources and what they are made with, too.
    """

    files: int
    size_bytes: int
    name: str

    def files_of_it(self) -> tuple[str, str, str]:
        """The names of its files."""
        return self.sources_file, self.spool_file, self.columns_file

    def is_converted(self, there: Container[str]) -> bool:
        """Whether its samples and their sizes are among the files of the spool."""
        return self.columns_file in there and self.spool_file in there

    @property
    def number(self) -> int:
        """Of the part, from 0 on."""
        return int(self.name.split("-")[1])

    @property
    def sources_file(self) -> str:
        """Its sources."""
        return f"{self.name}.sources"

    @property
    def spool_file(self) -> str:
        """Its converted samples."""
        return f"{self.name}.spool"

    @property
    def columns_file(self) -> str:
        """The sizes of its samples; written last."""
        return f"{self.name}.columns"


@dataclass(frozen=True)
class Listed:
    """A listing without its sources: what the steps need of it, as a file can hold it.

    Attributes:
        root: of the sources.
        kind: of tables "parquet" or "arrow", else "".
        columns: of tables: see TableColumns.
        classes, stray, dropped, taken_ns: as in Listing.
        of_fields: the fields, as in SourceField.
        files, size_bytes: of all sources.
        content, state: `Listing.digest` and `Listing.digest_with_times`.
        changed_ns: `Listing.last_change_ns`.
        made_with: see Job.
        part_bytes: of the job.
    """

    root: str
    kind: str
    columns: list[Any] | None
    classes: list[str]
    stray: list[str]
    dropped: dict[str, int]
    taken_ns: int
    of_fields: list[list[Any]]
    files: int
    size_bytes: int
    content: str
    state: str
    changed_ns: int
    made_with: str
    part_bytes: int

    @property
    def fields(self) -> tuple[SourceField, ...]:
        """The fields."""
        return tuple(
            SourceField(name, kind, in_note, tuple(names), tuple((one, other) for one, other in pairs))
            for name, kind, in_note, names, pairs in self.of_fields
        )

    @property
    def kinds(self) -> dict[str, str]:
        """Name -> kind of the fields."""
        return {name: kind for name, kind, *_ in self.of_fields}

    def origin(self) -> Origin:
        """For dataset.json."""
        source = {"files": self.files, "xxh3_128": self.content}
        return Origin(self.classes, source, max(self.taken_ns, self.changed_ns), self.fields)

    def write(self, store: SpoolStore) -> None:
        """Writes it down."""
        store.write(JOB_FILE, [json.dumps(asdict(self)).encode()])


def read_listed(store: SpoolStore) -> Listed:
    """The facts that the step "list" wrote.

    Raises:
        PackError: it has not run, or in another version of fastpipe.
    """
    said = json.loads(read_step(store, JOB_FILE, "list"))
    try:
        return Listed(**said)
    except TypeError as problem:
        raise PackError(
            f"{platform.node()}: {JOB_FILE} in the spool is of another version of fastpipe ({problem}). Install the "
            "same version on all machines, and begin with --step list"
        ) from problem


def read_parts(store: SpoolStore) -> list[Part]:
    """The parts; errors as of `read_listed`."""
    return [Part(*part) for part in json.loads(read_step(store, PARTS_FILE, "list"))]


def read_step(store: SpoolStore, name: str, step: str) -> bytes:
    """A file that an earlier step wrote.

    Raises:
        PackError: it has not.
    """
    try:
        return store.read(name)
    except FileNotFoundError as problem:
        raise PackError(
            f"{platform.node()}: the spool has no {name} ({problem.filename}): run --step {step} first, with the same "
            "SRC, DST and options. All machines have to see DST, or the folder of --spool, by the same path"
        ) from problem


def listed_of(listing: Listing, job: Job, kind: str, columns: list[Any] | None) -> Listed:
    """The facts of a listing."""
    return Listed(
        listing.resolved_root(),
        kind,
        columns,
        listing.classes,
        listing.stray,
        dict(listing.dropped),
        listing.taken_ns,
        [list(field) for field in listing.fields],
        len(listing.sources),
        listing.size_bytes,
        listing.digest(),
        listing.digest_with_times(),
        listing.last_change_ns(),
        job.made_with(listing.kinds),
        job.part_bytes,
    )
