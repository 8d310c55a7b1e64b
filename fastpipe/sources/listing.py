"""The classes and files of a source, in packing order, whatever kind of source it is."""

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

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.open_file import FileState, read_at
from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, read_listed_file

if TYPE_CHECKING:
    from fastpipe.store.remote.remote_path import RemotePath


_BUFFER_BYTES = 1 << 20

# The picture that boxes, points and masks belong to: with its EXIF orientation applied, as viewers
# and annotation tools show it, or as its file stores it.
SHOWN = "shown"
STORED = "stored"


class Notes:
    """Pieces of data, one behind the other, in a temporary file that ends with this object."""

    def __init__(self) -> None:
        with _temporary_file_errors():
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # A file that is only collected would give a ResourceWarning.
        weakref.finalize(self, file.close)
        self._file = io.BufferedWriter(file, _BUFFER_BYTES)
        self._size_bytes = 0

    def add(self, data: bytes) -> int:
        """Appends a piece, and returns its offset."""
        offset_bytes = self._size_bytes
        with _temporary_file_errors():
            self._size_bytes += self._file.write(data)
        return offset_bytes

    def flush(self) -> None:
        """Writes all pieces to the file. Call it before you read."""
        with _temporary_file_errors():
            self._file.flush()

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """Reads a piece; several threads may."""
        return read_at(self._file.fileno(), size_bytes, offset_bytes)


@contextlib.contextmanager
def _temporary_file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise PackError(
            f"cannot keep the values of the source's rows in {tempfile.gettempdir()}: "
            f"{problem.strerror}. The environment variable TMPDIR names another folder"
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
    offset_bytes: int  # where it begins; 0 if the file itself says that
    size_bytes: int  # of its columns without compression, about


class Source(NamedTuple):
    """One file of the source: in a folder, or a member of a tar.

    Attributes:
        path: names the sample. It is relative to the source, with "/". A member has the path of its
            tar, if there may be several, and its name.
        label: position of its class in the list of classes; NO_LABEL if it has none. It means
            nothing if there is a problem.
        size_bytes: of the file.
        mtime_ns: as the file system had it; of a member, that of its tar. Behind a URL it names the
            ETag: see `FileState`.
        ctime_ns: the latest of all files that the sample is made of.
        problem: why it cannot be read, as listing has found; None: nothing is known against it.
        archive: path of its tar, "" if the source is the tar; None: it is a file itself.
        offset_bytes: of its first byte in the tar.
        archive_bytes: size of the tar.
        parts: in the tar, the member with the value of each field; None: the sample has none.
        file: path of the file, if it is not `path`: several rows may name one file.
        note: of a row, the values of its fields; None: it has no fields.
        identity: of the picture that was packed into a shard of ours; None: of this one.
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
    parts: tuple[ByteRange | None, ...] = ()
    file: str | None = None
    note: Note | None = None
    identity: int | None = None
    origin_bytes: int = 0

    @property
    def file_path(self) -> str:
        """The path of the file to open, relative to the source."""
        return self.path if self.file is None else self.file


class SourceField(NamedTuple):
    """A field of the source's samples.

    Attributes:
        name: of the field.
        kind: of its values.
        in_note: its value is an entry of a member in JSON, under its name; else it is the member.
        names: of its classes, which are numbers in the source; of "boxes" and "mask" by label; of
            "keypoints" the names of the points.
        flip_pairs: points of "keypoints" that change places in a mirrored image.
        column: where its value is: a column, an entry of annotations, or the ending of members.
        numbers: with given classes, the number of each class of the source; -1: it has none. Then
            `names` are the given ones.
        columns: of 0 and 1, or -1 and 1, each of which is a class of the field; (): `column` is the
            only one.
        separator: between the classes in a text, as in "cat|dog"; "": the value is a list.
        box_format: of boxes in an object, one of BOX_FORMATS; "": xywh.
    """

    name: str
    kind: str
    in_note: bool = False
    names: tuple[str, ...] = ()
    flip_pairs: tuple[tuple[int, int], ...] = ()
    column: str = ""
    numbers: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    separator: str = ""
    box_format: str = ""


class Assumption(NamedTuple):
    """Something that the source does not say for sure, and how fastpipe has read it.

    Attributes:
        text: such as "labels: none, though column 'class' looks like one".
        option: of `fastpipe pack` that settles it, such as "--label-column class"; "": none does.
    """

    text: str
    option: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.option})" if self.option else self.text


@dataclass(frozen=True)
class Listing:
    """All that is in a source.

    Attributes:
        root: the folder or tar file, or its URL.
        classes: their names, in the order of the labels.
        sources: the files, in packing order.
        stray: files that are not packed: beside the class folders, or without a row.
        dropped: members of tars that are left out, by extension.
        fields: of the samples, in the order of `Source.parts`.
        notes: the values of rows, see `Note`.
        assumed: shown to the user.
        coordinates: SHOWN or STORED: of the values of fields by the rule of the format. It matters
            only for pictures that EXIF turns.
        taken_ns: when listing began, in nanoseconds since 1970. Later changes may be missing.
    """

    root: SourcePath
    classes: list[str]
    sources: list[Source]
    stray: list[str]
    dropped: Mapping[str, int] = field(default_factory=dict)
    fields: tuple[SourceField, ...] = ()
    notes: Notes | None = None
    assumed: tuple[Assumption, ...] = ()
    coordinates: str = SHOWN
    taken_ns: int = field(default_factory=time.time_ns)

    @property
    def kinds(self) -> dict[str, str]:
        return {field.name: field.kind for field in self.fields}

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(source.size_bytes for source in self.sources)

    def weight(self, source: Source) -> int:
        """What a source counts where sources are cut into shards: its bytes."""
        return source.size_bytes or 1

    def samples(self, most: int) -> list[Source]:
        """A fixed few of the sources: those of the smallest hashes of their paths."""
        return heapq.nsmallest(most, self.sources, key=packing_order(0, shuffle=True))

    def digest(self) -> str:
        """Names the content: classes, paths and sizes of files, and values of rows.

        It is a sum of hashes, so that the digests of parts of a source can be added: see
        `Facts.with_more`.
        """
        total = _hash_classes(self.classes) + self._hash_numbers()
        for source in self.sources:
            note = None if source.note is None else source.note.content
            sizes = [None if part is None else part[1] for part in source.parts]
            total += _hash_source(
                source, f"{source.label} {source.size_bytes}", sizes, note
            )
        return _in_hex(total)

    def digest_with_times(self, start: int = 0, stop: int | None = None) -> str:
        """Names the state of the files of a run of sources, or of all.

        A file that is written again or replaced has another state.
        """
        total = self._hash_numbers()
        # Behind a URL no file has a ctime.
        has_ctime = isinstance(self.root, Path)
        for source in self.sources[start:stop]:
            note = None if source.note is None else source.note.state
            ctime = source.ctime_ns if has_ctime else ""
            state = f"{source.label} {source.size_bytes} {source.mtime_ns} {ctime}"
            total += _hash_source(source, state, source.parts, note)
        return _in_hex(total)

    def _hash_numbers(self) -> int:
        """A hash of the numbers that classes of fields get; 0 if they keep those of the source.

        The values of rows do not have these numbers.
        """
        renumbered = [field for field in self.fields if field.numbers]
        return sum(
            xxhash.xxh3_128_intdigest(repr(field).encode()) for field in renumbered
        )


@dataclass(frozen=True)
class Facts:
    """A listing without its sources, as the destination, a cluster and publishing need it.

    Attributes:
        root: of the sources, resolved; of a program that adds samples, the program's kind.
        classes: their names, in the order of the labels; None: the labels in digits, without gaps.
        files: number of sources.
        size_bytes: of all of them.
        content: see `Listing.digest`.
        state: see `Listing.digest_with_times`.
        changed_ns: when the last file was changed, replaced or renamed: by ctime, which nobody can
            set.
        made_by: the program that added the samples; "": they were listed.
        taken_ns, fields, stray, dropped, assumed, coordinates: see `Listing`.
    """

    root: str
    classes: list[str] | None
    files: int = 0
    size_bytes: int = 0
    content: str = ""
    state: str = ""
    taken_ns: int = 0
    changed_ns: int = 0
    fields: tuple[SourceField, ...] = ()
    stray: list[str] = field(default_factory=list)
    dropped: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[Assumption, ...] = ()
    coordinates: str = SHOWN
    made_by: str = ""

    @classmethod
    def of(cls, listing: Listing) -> Facts:
        return Facts(
            # The same from any working folder, and by any link to the source.
            root=str(listing.root.resolve()),
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
        """The facts of two parts of a source, which have the same classes."""
        # Both digests have the hash of the classes in them.
        content = (
            int(self.content, 16)
            + int(other.content, 16)
            - _hash_classes(self.classes or ())
        )
        return replace(
            self,
            files=self.files + other.files,
            size_bytes=self.size_bytes + other.size_bytes,
            content=_in_hex(content),
            state=_in_hex(int(self.state, 16) + int(other.state, 16)),
            taken_ns=min(self.taken_ns, other.taken_ns),
            changed_ns=max(self.changed_ns, other.changed_ns),
        )

    @property
    def kinds(self) -> dict[str, str]:
        return {field.name: field.kind for field in self.fields}

    @property
    def time_ns(self) -> int:
        """The time that dataset.json gets.

        A source that changes later is newer, also if it changes while the pack goes on.
        """
        # Another machine's clock may be ahead.
        return max(self.taken_ns, self.changed_ns)

    def recorded(self) -> dict[str, Any]:
        """The facts for dataset.json."""
        entry: dict[str, Any] = {"files": self.files, "xxh3_128": self.content}
        if self.made_by:
            entry["made_by"] = self.made_by
        return entry


def _hash_source(source: Source, details: str, parts: object, note: int | None) -> int:
    text = f"\0{details}\n"
    if source.parts:
        text += repr(parts)
    if note is not None:
        text += f"{note:x}\n"
    return xxhash.xxh3_128_intdigest(os.fsencode(source.path) + text.encode())


def _hash_classes(classes: Sequence[str]) -> int:
    names = [os.fsencode(name) + b"\0" for name in classes]
    return xxhash.xxh3_128_intdigest(b"".join(names))


def _in_hex(total: int) -> str:
    return f"{total % 2**128:032x}"


def packing_order(seed: int, *, shuffle: bool) -> Callable[[Source], tuple[int, str]]:
    """The key by which sources are sorted for packing.

    A seeded hash of the path, which new files do not change; or without shuffle the class. Sources
    with the same are sorted by path.
    """
    if shuffle:
        return lambda source: (
            xxhash.xxh3_64_intdigest(os.fsencode(source.path), seed),
            source.path,
        )
    return lambda source: (source.label, source.path)


def change(sources: list[Source], changed: Callable[[Source], Source | None]) -> None:
    """Replaces each source by another, or removes it if `changed` returns None.

    It works in place, as there may be millions of sources.
    """
    kept = 0
    for source in sources:
        new_source = changed(source)
        if new_source is not None:
            sources[kept] = new_source
            kept += 1
    del sources[kept:]


def relabel_sources(sources: list[Source], new_labels: Sequence[int]) -> None:
    """Gives sources, in place, the new label of their class: `new_labels` has it by old label."""
    if list(new_labels) == list(range(len(new_labels))):
        return

    def relabelled(source: Source) -> Source:
        # A source with a problem is not packed, and its label may be of no class.
        if source.label == NO_LABEL or source.problem is not None:
            return source
        return source._replace(label=new_labels[source.label])

    change(sources, relabelled)


def with_classes(listing: Listing, classes: Sequence[str]) -> Listing:
    """The listing with these classes, which have all of its own among them.

    Its sources get their labels by name, in place.
    """
    labels = {name: label for label, name in enumerate(classes)}
    relabel_sources(listing.sources, [labels[name] for name in listing.classes])
    return replace(listing, classes=list(classes))


_GAP_BYTES = 16 << 10  # between members of a sample that are fetched as one
START_BYTES = 4096  # enough to recognise an image's format
LARGE_BYTES = 16 << 20  # of larger files the start is read first
# The file itself is at fault, and will be tomorrow. Any other error is the system's.
FILE_ERRNOS = {errno.EACCES, errno.EPERM}


def read_source(
    root: SourcePath, source: Source, most_bytes: int | None = None
) -> bytes:
    """The content of a source, or its first bytes; see `read_listed_file`.

    OSError: a source that is a file by itself cannot be read. PackError: its tar cannot be read.
    """
    start = source.offset_bytes
    size_bytes = min(source.size_bytes, most_bytes or source.size_bytes)
    if source.archive is None:
        state = FileState(source.size_bytes, source.mtime_ns, 0)
        return read_listed_file(root, source.file_path, state, 0, size_bytes)
    try:
        state = FileState(source.archive_bytes, source.mtime_ns, 0)
        return read_listed_file(root, source.archive, state, start, start + size_bytes)
    except OSError as problem:
        raise PackError(
            f"cannot read {readable(str(root / source.archive))}: {problem.strerror}. Finished "
            "shards are kept. Remove the cause, then run the same command again: it continues there"
        ) from problem


def expect(root: RemotePath, run: Sequence[Source]) -> None:
    """Begins to fetch sources behind a URL that will be read soon, all at the same time."""
    spans = []
    for source in run:
        if source.problem is None:
            name, start, stop = _span_of(source)
            spans.append(((root / name).key, start, stop))
    root.objects.expect(id(run), spans)


def _span_of(source: Source) -> tuple[str, int, int]:
    """The file of a source, its first byte, and the one after its last.

    Members beside it in its tar that are its fields belong to the span.
    """
    start = source.offset_bytes
    stop = start + source.size_bytes
    if source.archive is None:
        return source.file_path, start, stop
    parts = sorted(part for part in source.parts if part is not None)
    for offset, size_bytes in parts:
        end = offset + size_bytes
        if end > stop and offset - stop <= _GAP_BYTES:
            stop = end
    for offset, size_bytes in reversed(parts):
        end = offset + size_bytes
        if offset < start and start - end <= _GAP_BYTES:
            start = offset
    return source.archive, start, stop
