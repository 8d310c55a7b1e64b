"""The classes and files of a source of any kind; in packing order after `kinds.list_sources`."""

from __future__ import annotations

import heapq
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.sources.files import SourcePath
from fastpipe.sources.notes import Note, Notes

# The picture that boxes, points and masks belong to: with its EXIF orientation applied, as viewers
# and annotation tools show it, or as its file stores it.
SHOWN = "shown"
STORED = "stored"

# `Source.file` of a sample that has fields only.
NO_IMAGE_FILE = ""

ByteRange = tuple[int, int]  # offset and size in bytes, in a tar
# The members with the value of a field: none, one, or several of a list of pictures.
Members = tuple[ByteRange, ...]


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
        parts: in the tar, the members with the value of each field.
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
    parts: tuple[Members, ...] = ()
    file: str | None = None
    note: Note | None = None
    identity: int | None = None
    origin_bytes: int = 0

    @property
    def has_image(self) -> bool:
        """Whether the sample has an image of its own; else it has fields only."""
        return self.file != NO_IMAGE_FILE

    @property
    def file_path(self) -> str:
        """The path of the file to open, relative to the source."""
        if self.file is None:
            return self.path
        return self.file


class SourceField(NamedTuple):
    """A field of the source's samples.

    Attributes:
        name: of the field.
        kind: of its values.
        in_note: its value is an entry of a member in JSON, under its name; else it is the member.
        names: of its classes; of "boxes" and "mask" by label; of "keypoints" the names of the
            points.
        flip_pairs: points of "keypoints" that change places in a mirrored image.
        column: where its value is: a column, an entry of annotations, or the ending of members.
        numbers: with given classes, the number of each class of the source; -1: it has none. Then
            `names` are the given ones.
        columns: of 0 and 1, or -1 and 1, each of which is a class of the field; (): `column` is the
            only one.
        separator: between the classes in a text, as in "cat|dog"; "": the value is a list.
        box_format: of boxes in an object, one of BOX_FORMATS; "": xywh.
        colours: of masks with a colour for each class: red, green and blue by number; else ().
        run_order: of masks that are texts with run lengths, one of RUN_ORDERS; "": columns.
        is_per_box: its value is a list with an entry for each box of the sample.
        has_two_levels: of masks: JPEGs whose pixels are near 0 or 255, and are packed as these.
        may_be_corners: of boxes: that they are left, top, width and height is assumed, and the source
            may have written corners.
        are_shares: of boxes in an object: their numbers are shares of the image's size.
        has_object_numbers: of masks: pixels have the number of their object, not of its class.
        source_names: the classes as the source numbers them: of "classes" whose values are numbers,
            as those of a ClassLabel; of other kinds if `numbers` gives them others. Else ().
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
    run_order: str = ""
    colours: tuple[tuple[int, int, int], ...] = ()
    is_per_box: bool = False
    has_two_levels: bool = False
    has_object_numbers: bool = False
    may_be_corners: bool = False
    are_shares: bool = False
    source_names: tuple[str, ...] = ()


def list_masks_of_objects(fields: Iterable[SourceField]) -> frozenset[str]:
    """The names of the masks whose pixels have the number of their object."""
    return frozenset(field.name for field in fields if field.has_object_numbers)


class Assumption(NamedTuple):
    """Something that the source does not say for sure, and how fastpipe has read it.

    Attributes:
        text: such as "labels: none, though column 'class' looks like one".
        option: of `fastpipe pack` that settles it, such as "--label-column class"; "": none does.
    """

    text: str
    option: str = ""

    def __str__(self) -> str:
        if not self.option:
            return self.text
        return f"{self.text} ({self.option})"


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
        table: the file whose rows name the images; "": there is none.
        why_empty: why none of the sources can be packed, if that is known; "": some may be.
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
    table: str = ""
    why_empty: str = ""

    def values_of_row(self, source: Source) -> dict[str, Any] | None:
        """The values of a sample's fields, as its row has them; None if it has no row."""
        if source.note is None or self.notes is None:
            return None
        note = self.notes.read(source.note.offset_bytes, source.note.size_bytes)
        values: dict[str, Any]
        _, values, _ = json.loads(note)
        return values

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
        total = hash_classes(self.classes) + self._hash_numbers()
        for source in self.sources:
            note = None if source.note is None else source.note.content
            # Not the offsets: the same members may lie elsewhere in another tar.
            sizes = [_sizes_of(members) for members in source.parts]
            details = f"{source.label} {source.size_bytes}"
            total += _hash_source(source, details, sizes, note)
        return to_hex(total)

    def state_digest(self, start: int = 0, stop: int | None = None) -> str:
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
        return to_hex(total)

    def _hash_numbers(self) -> int:
        """A hash of what fields make of values: numbers of classes, colours, order of runs; or 0.

        The values of rows do not have it.
        """
        total = 0
        for source_field in self.fields:
            has_numbers = source_field.numbers or source_field.colours
            is_drawn = source_field.run_order or source_field.has_two_levels
            if has_numbers or is_drawn:
                total += xxhash.xxh3_128_intdigest(repr(source_field).encode())
        return total


def _sizes_of(members: Members) -> int | list[int] | None:
    """The sizes of members, for a hash: of a single one a number, of none None."""
    sizes = [size_bytes for _, size_bytes in members]
    if len(sizes) > 1:
        return sizes
    return sizes[0] if sizes else None


def _hash_source(source: Source, details: str, parts: object, note: int | None) -> int:
    text = f"\0{details}\n"
    if source.parts:
        text += repr(parts)
    if note is not None:
        text += f"{note:x}\n"
    path = os.fsencode(source.path)
    return xxhash.xxh3_128_intdigest(path + text.encode())


def hash_classes(classes: Sequence[str]) -> int:
    names = [os.fsencode(name) + b"\0" for name in classes]
    return xxhash.xxh3_128_intdigest(b"".join(names))


def to_hex(total: int) -> str:
    return f"{total % 2**128:032x}"


def packing_order(seed: int, *, shuffle: bool) -> Callable[[Source], tuple[int, str]]:
    """The key by which sources are sorted for packing.

    A seeded hash of the path, which new files do not change; or without shuffle the class. Sources
    with the same are sorted by path.
    """
    if shuffle:
        return lambda source: (_hash_of_path(source, seed), source.path)
    return lambda source: (source.label, source.path)


def sort_for_packing(sources: list[Source], seed: int, *, shuffle: bool) -> None:
    """Sorts sources by `packing_order`, in place.

    It sorts twice, by path and then by hash or label. That is faster than one sort by pairs: the
    garbage collector looks at a million pairs again and again.
    """
    sources.sort(key=attrgetter("path"))
    if not shuffle:
        sources.sort(key=attrgetter("label"))
        return
    sources.sort(key=lambda source: _hash_of_path(source, seed))


def _hash_of_path(source: Source, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(os.fsencode(source.path), seed)


def replace_sources(
    sources: list[Source], new_source_of: Callable[[Source], Source | None]
) -> None:
    """Replaces each source by another, or removes it if `new_source_of` returns None.

    It works in place, as there may be millions of sources.
    """
    kept = 0
    for source in sources:
        new_source = new_source_of(source)
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

    replace_sources(sources, relabelled)


def add_assumptions(listing: Listing, assumptions: Iterable[Assumption]) -> Listing:
    """The listing with more assumptions."""
    return replace(listing, assumed=(*listing.assumed, *assumptions))


def with_classes(listing: Listing, classes: Sequence[str]) -> Listing:
    """The listing with these classes, which have all of its own among them.

    Its sources get their labels by name, in place.
    """
    labels = {name: label for label, name in enumerate(classes)}
    new_labels = [labels[name] for name in listing.classes]
    relabel_sources(listing.sources, new_labels)
    return replace(listing, classes=list(classes))
