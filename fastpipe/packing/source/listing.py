"""The work of a pack: the classes and files of its source, in packing order, whatever kind of source it is."""

from __future__ import annotations

import heapq
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.open_file import read_at
from fastpipe.packing.source.files import SourcePath

_BUFFER_BYTES = 1 << 20


class Notes:
    """Pieces, one behind the other, in a file of the folder for temporary files. It ends with this object."""

    def __init__(self) -> None:
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._handle = os.dup(file.fileno())
        except OSError as problem:
            raise _cannot_keep(problem) from problem
        weakref.finalize(self, os.close, self._handle)
        self._buffer = bytearray()
        self._size_bytes = 0

    def add(self, data: bytes) -> int:
        """Appends a piece; gives its offset."""
        offset = self._size_bytes
        self._buffer += data
        self._size_bytes += len(data)
        if len(self._buffer) >= _BUFFER_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Writes down what was added; before anything is read."""
        try:
            while self._buffer:
                written = os.write(self._handle, self._buffer)
                del self._buffer[:written]
        except OSError as problem:
            raise _cannot_keep(problem) from problem

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A piece; safe in threads."""
        return read_at(self._handle, size_bytes, offset_bytes)


def _cannot_keep(problem: OSError) -> PackError:
    return PackError(
        f"cannot keep the values of the source's rows in {tempfile.gettempdir()}: {problem.strerror}. The environment "
        "variable TMPDIR names another folder"
    )


Part = tuple[int, int]  # offset and size in bytes, in a tar


class Note(NamedTuple):
    """The values of a row's fields, as a line of JSON in `Listing.notes`.

    Attributes:
        content: hash of the values, and of the sizes of the files that they name.
        state: the same, with the times of these files.
    """

    offset_bytes: int
    size_bytes: int
    content: int
    state: int


class Group(NamedTuple):
    """Rows of a table that are read together: a row group of Parquet, a record batch of Arrow.

    Attributes:
        offset_bytes: where it begins; 0 where the file itself says that.
        size_bytes: of its columns, about, when they are not compressed.
    """

    number: int
    first_row: int
    rows: int
    offset_bytes: int
    size_bytes: int


class Source(NamedTuple):
    """One file of the source: in a folder, or a member of a tar.

    Attributes:
        path: names the sample: relative to the source, with "/"; of a member: that of its tar, if there may be several,
            and its name.
        label: position of its class in the list of classes; NO_LABEL: it has none.
        mtime_ns, ctime_ns: as the file system had them; of a member: its tar's. The ctime is the latest of all files
            that the sample is made of. Behind a URL, the mtime names the ETag: see `FileState`.
        problem: why it cannot be read, found while listing; None where there is nothing against it.
        archive: path of its tar, relative to the source: "" where the source is the tar; None: it is a file itself.
        offset_bytes: of its first byte in the tar.
        parts: in the tar, the member with each field's value; None: there is none.
        file: path of the file, where `path` is not: several rows may name one file.
        note: of a row: the values of its fields; None: it has no fields.
        identity: of the picture that was packed into a shard of ours, which this is a sample of; None: of this one.
        origin_bytes: the size of that picture's file; 0: of this one.
    """

    path: str
    label: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    problem: str | None = None
    archive: str | None = None
    offset_bytes: int = 0
    archive_bytes: int = 0
    parts: tuple[Part | None, ...] = ()
    file: str | None = None
    note: Note | None = None
    identity: int | None = None
    origin_bytes: int = 0

    @property
    def file_path(self) -> str:
        """Of the file to open, relative to the source."""
        return self.path if self.file is None else self.file


class SourceField(NamedTuple):
    """A field of the source's samples.

    Attributes:
        in_note: its value is an entry of a member in JSON, under its name; else it is the member.
        names: of its classes, which are numbers in the source; of "boxes" and "mask": by label; of "keypoints": of
            the points.
        flip_pairs: of "keypoints": the points that change places in a mirrored image.
        column: where the source has its value: a column, an entry of annotations, or the ending of a tar's members.
    """

    name: str
    kind: str
    in_note: bool = False
    names: tuple[str, ...] = ()
    flip_pairs: tuple[tuple[int, int], ...] = ()
    column: str = ""


@dataclass(frozen=True)
class Listing:
    """All that is in a source.

    Attributes:
        root: the folder or tar file, or its URL.
        classes: names, in the order of the labels.
        sources: the files, in packing order.
        stray: files beside the class folders, or without a row in the metadata; they are not packed.
        dropped: members of tars that are neither picture nor label: how many, by extension.
        fields: of the samples, in the order of `Source.parts`.
        notes: the values of rows, see `Note`.
        taken_ns: when it was begun, in nanoseconds since 1970: what changes from then on may not be in it.
    """

    root: SourcePath
    classes: list[str]
    sources: list[Source]
    stray: list[str]
    dropped: Mapping[str, int] = field(default_factory=dict)
    fields: tuple[SourceField, ...] = ()
    notes: Notes | None = None
    taken_ns: int = field(default_factory=time.time_ns)

    @property
    def kinds(self) -> dict[str, str]:
        """Name -> kind of the fields."""
        return {field.name: field.kind for field in self.fields}

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(source.size_bytes for source in self.sources)

    def weight(self, source: Source) -> int:
        """What a source counts where sources are cut into shards: its bytes."""
        return source.size_bytes or 1

    def samples(self, most: int) -> list[Source]:
        """A fixed few of the sources: those of the smallest hashes of their paths."""
        return heapq.nsmallest(most, self.sources, key=packing_order(0, shuffle=True))

    def resolved_root(self) -> str:
        """The root, whatever the working folder and links to it are."""
        return str(self.root.resolve())

    def digest(self) -> str:
        """Names the content: classes, each file's path and size, and values of rows. A sum of hashes: see `joined`."""
        total = class_hash(self.classes)
        for source in self.sources:
            note = None if source.note is None else source.note.content
            sizes = [part and part[1] for part in source.parts]
            total += _hash_of(source, f"{source.label} {source.size_bytes}", sizes, note)
        return in_hex(total)

    def digest_with_times(self, start: int = 0, stop: int | None = None) -> str:
        """Names the state of files, of all or of a run: written again or replaced, they have another.

        Behind a URL the ETag says all: the same file that is uploaded again has the same one on most servers.
        """
        total, here = 0, isinstance(self.root, Path)
        for source in self.sources[start:stop]:
            note = None if source.note is None else source.note.state
            times = f"{source.mtime_ns} {source.ctime_ns if here else ''}"
            total += _hash_of(source, f"{source.label} {source.size_bytes} {times}", source.parts, note)
        return in_hex(total)

    def last_change_ns(self) -> int:
        """When the last of the files changed, was replaced or renamed, in nanoseconds since 1970.

        By the system's clock (ctime), which nobody sets: an old file that is moved into a new one's place counts.
        """
        return max((source.ctime_ns for source in self.sources), default=0)


def _hash_of(source: Source, facts: str, parts: object, note: int | None) -> int:
    """What a source adds to a digest."""
    name = os.fsencode(source.path) + f"\0{facts}\n".encode() + (repr(parts).encode() if source.parts else b"")
    return int(xxhash.xxh3_128_intdigest(name if note is None else name + f"{note:x}\n".encode()))


def class_hash(classes: Sequence[str]) -> int:
    """What the names of classes add to a digest."""
    return int(xxhash.xxh3_128_intdigest(b"".join(os.fsencode(name) + b"\0" for name in classes)))


def in_hex(total: int) -> str:
    """A sum of hashes as a digest."""
    return f"{total % 2**128:032x}"


def packing_order(seed: int, *, shuffle: bool) -> Callable[[Source], tuple[int, str]]:
    """Gives each source a number and its path: sorted by these, sources are in packing order.

    The number is a seeded hash of the path: a fair shuffle, in which a file keeps its place among the others when some
    come or go. Without shuffle it is the class.
    """
    if shuffle:
        return lambda source: (xxhash.xxh3_64_intdigest(os.fsencode(source.path), seed), source.path)
    return lambda source: (source.label, source.path)
