"""The work of a pack: the classes and files of its source, in packing order, whatever kind of source it is."""

from __future__ import annotations

import contextlib
import errno
import heapq
import io
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.open_file import FileState, read_at
from fastpipe.sources.files import SourcePath, read_listed_file

if TYPE_CHECKING:
    from fastpipe.store.remote.remote_path import RemotePath


_BUFFER_BYTES = 1 << 20

# Of which picture boxes, points and masks are: with its EXIF orientation applied, as viewers and annotation tools show
# it, or as its file stores it.
SHOWN, STORED = "shown", "stored"


class Notes:
    """Pieces, one behind the other, in a file of the folder for temporary files. It ends with this object."""

    def __init__(self) -> None:
        with _keeping():
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, file.close)
        self._file, self._size_bytes = io.BufferedWriter(file, _BUFFER_BYTES), 0

    def add(self, data: bytes) -> int:
        """Appends a piece; gives its offset."""
        with _keeping():
            self._size_bytes += self._file.write(data)
        return self._size_bytes - len(data)

    def flush(self) -> None:
        """Writes down what was added; before anything is read."""
        with _keeping():
            self._file.flush()

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """A piece; safe in threads."""
        return read_at(self._file.fileno(), size_bytes, offset_bytes)


@contextlib.contextmanager
def _keeping() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise PackError(
            f"cannot keep the values of the source's rows in {tempfile.gettempdir()}: {problem.strerror}. The "
            "environment variable TMPDIR names another folder"
        ) from problem


ByteRange = tuple[int, int]  # offset and size in bytes, in a tar


class Note(NamedTuple):
    """The values of a row's fields, as a line of JSON in `Listing.notes`."""

    offset_bytes: int
    size_bytes: int
    content: int  # hash of the values, and of the sizes of the files that they name
    state: int  # the same, with the times of these files


class Group(NamedTuple):
    """Rows of a table that are read together: a row group of Parquet, a record batch of Arrow."""

    number: int
    first_row: int
    rows: int
    offset_bytes: int  # where it begins; 0 where the file itself says that
    size_bytes: int  # of its columns, about, when they are not compressed


class Source(NamedTuple):
    """One file of the source: in a folder, or a member of a tar.

    Its path names the sample: relative to the source, with "/"; of a member: that of its tar, if there may be several,
    and its name. Times are as the file system had them; of a member: its tar's. Behind a URL, the mtime names the ETag:
    see `FileState`.
    """

    path: str
    label: int  # position of its class in the list of classes; NO_LABEL: it has none
    size_bytes: int
    mtime_ns: int
    ctime_ns: int  # the latest of all files that the sample is made of
    problem: str | None = (
        None  # why it cannot be read, found while listing; None: there is nothing against it
    )
    archive: str | None = (
        None  # path of its tar, "" where the source is the tar; None: it is a file itself
    )
    offset_bytes: int = 0  # of its first byte in the tar
    archive_bytes: int = 0
    parts: tuple[
        ByteRange | None, ...
    ] = ()  # in the tar, the member with each field's value; None: there is none
    file: str | None = None  # path of the file, where `path` is not: several rows may name one file
    note: Note | None = None  # of a row: the values of its fields; None: it has no fields
    identity: int | None = (
        None  # of the picture that was packed into a shard of ours; None: of this one
    )
    origin_bytes: int = 0  # the size of that picture's file; 0: of this one

    @property
    def file_path(self) -> str:
        """Of the file to open, relative to the source."""
        return self.path if self.file is None else self.file


class SourceField(NamedTuple):
    """A field of the source's samples."""

    name: str
    kind: str
    in_note: bool = (
        False  # its value is an entry of a member in JSON, under its name; else it is the member
    )
    # Of its classes, which are numbers in the source; of "boxes" and "mask": by label; of "keypoints": of the points.
    names: tuple[str, ...] = ()
    flip_pairs: tuple[
        tuple[int, int], ...
    ] = ()  # points of "keypoints" that change places in a mirrored image
    column: str = ""  # where its value is: a column, an entry of annotations, or the ending of a tar's members
    # With given classes: the number of each class of the source, -1: it has none. `names` are the given ones.
    numbers: tuple[int, ...] = ()
    columns: tuple[
        str, ...
    ] = ()  # of 0 and 1, or -1 and 1: each is a class of the field; (): `column` is the only one
    separator: str = (
        ""  # between the classes in a text, as "cat|dog" has them; "": the value is a list
    )
    box_format: str = ""  # of boxes that an object holds, one of BOX_FORMATS; "": xywh


class Assumption(NamedTuple):
    """What nothing in the source says for sure, and how it was read."""

    text: str  # such as "labels: none, though column 'class' looks like one"
    option: str = (
        ""  # of `fastpipe pack` that settles it, such as "--label-column class"; "": there is none
    )

    def __str__(self) -> str:
        return f"{self.text} ({self.option})" if self.option else self.text


@dataclass(frozen=True)
class Listing:
    """All that is in a source."""

    root: SourcePath  # the folder or tar file, or its URL
    classes: list[str]  # names, in the order of the labels
    sources: list[Source]  # the files, in packing order
    stray: list[
        str
    ]  # files beside the class folders, or without a row in the metadata; they are not packed
    dropped: Mapping[str, int] = field(
        default_factory=dict
    )  # members of tars that are left out, by extension
    fields: tuple[SourceField, ...] = ()  # of the samples, in the order of `Source.parts`
    notes: Notes | None = None  # the values of rows, see `Note`
    assumed: tuple[Assumption, ...] = ()  # shown to the user
    coordinates: str = (
        SHOWN  # of the values of fields, by the format's rule; only of pictures that EXIF turns
    )
    # When it was begun, in nanoseconds since 1970: what changes from then on may not be in it.
    taken_ns: int = field(default_factory=time.time_ns)

    @property
    def kinds(self) -> dict[str, str]:
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

    def digest(self) -> str:
        """Names the content: classes, each file's path and size, and values of rows. A sum of hashes: see `joined`."""
        total = class_hash(self.classes) + self._hash_of_numbers()
        for source in self.sources:
            note = None if source.note is None else source.note.content
            sizes = [part and part[1] for part in source.parts]
            total += _hash_of(source, f"{source.label} {source.size_bytes}", sizes, note)
        return in_hex(total)

    def digest_with_times(self, start: int = 0, stop: int | None = None) -> str:
        """Names the state of files, of all or of a run: written again or replaced, they have another."""
        total, here = self._hash_of_numbers(), isinstance(self.root, Path)
        for source in self.sources[start:stop]:
            note = None if source.note is None else source.note.state
            times = f"{source.mtime_ns} {source.ctime_ns if here else ''}"
            total += _hash_of(
                source, f"{source.label} {source.size_bytes} {times}", source.parts, note
            )
        return in_hex(total)

    def _hash_of_numbers(self) -> int:
        """Of the numbers that classes of fields get, which the values of rows do not have; 0: these stay."""
        return sum(
            xxhash.xxh3_128_intdigest(repr(field).encode())
            for field in self.fields
            if field.numbers
        )


@dataclass(frozen=True)
class Facts:
    """A listing without its sources: all that the destination, the steps on a cluster and publishing know of it."""

    root: str  # of the sources, resolved; of a program that adds samples, the program's kind
    classes: (
        list[str] | None
    )  # names, in the order of the labels; None: the labels in digits, without gaps
    files: int = 0
    size_bytes: int = 0
    content: str = ""  # `Listing.digest`
    state: str = ""  # `Listing.digest_with_times`
    taken_ns: int = 0
    changed_ns: int = 0  # when the last of the files was changed, replaced or renamed: by ctime, which nobody sets
    fields: tuple[SourceField, ...] = ()
    stray: list[str] = field(default_factory=list)
    dropped: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[Assumption, ...] = ()
    coordinates: str = SHOWN
    made_by: str = ""  # the program that added the samples; "": they were listed

    @classmethod
    def of(cls, listing: Listing) -> Facts:
        return Facts(
            root=str(listing.root.resolve()),  # whatever the working folder and links to it are
            classes=listing.classes,
            files=len(listing.sources),
            size_bytes=listing.size_bytes,
            content=listing.digest(),
            state=listing.digest_with_times(),
            taken_ns=listing.taken_ns,
            changed_ns=max((source.ctime_ns for source in listing.sources), default=0),
            fields=listing.fields,
            stray=listing.stray,
            dropped=dict(listing.dropped),
            assumed=listing.assumed,
            coordinates=listing.coordinates,
        )

    def with_more(self, other: Facts) -> Facts:
        return replace(
            self,
            files=self.files + other.files,
            size_bytes=self.size_bytes + other.size_bytes,
            content=in_hex(
                int(self.content, 16) + int(other.content, 16) - class_hash(self.classes or ())
            ),
            state=in_hex(int(self.state, 16) + int(other.state, 16)),
            taken_ns=min(self.taken_ns, other.taken_ns),
            changed_ns=max(self.changed_ns, other.changed_ns),
        )

    @property
    def kinds(self) -> dict[str, str]:
        return {each.name: each.kind for each in self.fields}

    @property
    def time_ns(self) -> int:
        """The time that dataset.json gets: a source that changes later, also while the pack goes on, is newer."""
        return max(self.taken_ns, self.changed_ns)  # another machine's clock may be ahead

    def recorded(self) -> dict[str, Any]:
        made_by = {"made_by": self.made_by} if self.made_by else {}
        return {"files": self.files, "xxh3_128": self.content, **made_by}


def _hash_of(source: Source, facts: str, parts: object, note: int | None) -> int:
    name = (
        os.fsencode(source.path)
        + f"\0{facts}\n".encode()
        + (repr(parts).encode() if source.parts else b"")
    )
    return int(xxhash.xxh3_128_intdigest(name if note is None else name + f"{note:x}\n".encode()))


def class_hash(classes: Sequence[str]) -> int:
    return int(xxhash.xxh3_128_intdigest(b"".join(os.fsencode(name) + b"\0" for name in classes)))


def in_hex(total: int) -> str:
    return f"{total % 2**128:032x}"


def packing_order(seed: int, *, shuffle: bool) -> Callable[[Source], tuple[int, str]]:
    """The key to sort by: a seeded hash of the path, which new files do not change; or the class. Then the path."""
    if shuffle:
        return lambda source: (
            xxhash.xxh3_64_intdigest(os.fsencode(source.path), seed),
            source.path,
        )
    return lambda source: (source.label, source.path)


def change(sources: list[Source], changed: Callable[[Source], Source | None]) -> None:
    """Puts another in the place of each source, None: leaves it out. There may be millions, so it makes no new list."""
    kept = 0
    for source in sources:
        found = changed(source)
        if found is not None:
            sources[kept] = found
            kept += 1
    del sources[kept:]


_GAP_BYTES = 16 << 10  # between members of a sample that are fetched as one
START_BYTES = 4096  # enough to tell an image's format
LARGE_BYTES = 16 << 20  # of such files the start is read first
# What is wrong with the file itself and will be so tomorrow; any other error is the system's.
FILE_ERRNOS = {errno.EACCES, errno.EPERM}


def read_source(root: SourcePath, source: Source, most_bytes: int | None = None) -> bytes:
    """The content of a source, or its first bytes; see `read_listed_file`. OSError: only of a file by itself."""
    start, size = source.offset_bytes, min(source.size_bytes, most_bytes or source.size_bytes)
    if source.archive is None:
        return read_listed_file(
            root, source.file_path, FileState(source.size_bytes, source.mtime_ns, 0), 0, size
        )
    try:
        listed = FileState(source.archive_bytes, source.mtime_ns, 0)
        return read_listed_file(root, source.archive, listed, start, start + size)
    except OSError as problem:
        raise PackError(
            f"cannot read {readable(str(root / source.archive))}: {problem.strerror}. Finished shards are kept. Remove "
            "the cause, then run the same command again: it continues there"
        ) from problem


def expect(root: RemotePath, run: Sequence[Source]) -> None:
    """Begins to fetch files behind a URL, or members of tars there, that will be read soon, at the same time."""
    spans = (_span(source) for source in run if source.problem is None)
    root.objects.expect(id(run), [((root / name).key, start, stop) for name, start, stop in spans])


def _span(source: Source) -> tuple[str, int, int]:
    """File, first byte, and the one after the last; with the members beside it in its tar that are its fields."""
    start, stop = source.offset_bytes, source.offset_bytes + source.size_bytes
    if source.archive is None:
        return source.file_path, start, stop
    parts = sorted(part for part in source.parts if part is not None)
    for offset, size in parts:
        if offset + size > stop and offset - stop <= _GAP_BYTES:
            stop = offset + size
    for offset, size in reversed(parts):
        if offset < start and start - (offset + size) <= _GAP_BYTES:
            start = offset
    return source.archive, start, stop
