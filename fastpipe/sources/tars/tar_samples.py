"""The members of WebDataset tars -> samples: an image, its label and fields, by their key.

Note [members in any order]
The samples of a WebDataset are members of one key, one behind the other. In a tar that is not
sorted (all images, then all captions) its readers lose the captions in silence. Here, where a group
lacks a picture or label, the tar is walked again, and members of one key are brought together; only
then all of its members are in memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fastpipe.dataset.format.layout import MAX_CLASSES, NO_LABEL
from fastpipe.dataset.format.picture_names import PICTURES, is_picture
from fastpipe.dataset.format.sample_layout import Ours, read_ours
from fastpipe.sources.listing import NO_IMAGE_FILE, ByteRange, Source
from fastpipe.sources.member_fields import NOTE, place_in_list
from fastpipe.sources.tables.row_labels import Labels
from fastpipe.sources.tars.tar_members import (
    DUPLICATE_PATH,
    LABEL_EXTENSION,
    CheckedMember,
    check_members,
    member_source,
    path_in_source,
    rejected_source,
    split_key,
)
from fastpipe.sources.tars.tar_reader import Member, TarFile, shorten_name

# Members that are left out are counted by this many extensions. Tars of other content may have a
# new one with each member.
_MAX_DROPPED_KINDS = 100
_MAX_LABEL_DIGITS = 64
_MAX_LABEL_CHARACTERS = 1024
# Messages show this much of an extension.
_MAX_SHOWN_CHARACTERS = 20
_NUMBER = re.compile(rb"\s*\+?([0-9]{1,18})\s*")


class TarColumns(NamedTuple):
    """The members of a sample that are its image and its label, if a user names them."""

    # An extension, such as left.jpg; None: that of any picture.
    image: str | None = None
    label: str | None = None  # an extension, or an entry of KEY.json; None: cls

    @property
    def image_extensions(self) -> frozenset[str]:
        if self.image is None:
            return PICTURES
        return frozenset([self.image.lower()])

    @property
    def image_names(self) -> str:
        """The names of the image's member, for a message."""
        if self.image is None:
            return "KEY.jpg, .png, .webp, .bmp, .tif"
        return f"KEY.{self.image}"

    @property
    def label_extension(self) -> str:
        if self.label is None:
            return LABEL_EXTENSION
        return self.label.lower()


USUAL_COLUMNS = TarColumns()


class _KeyedMember(NamedTuple):
    key: str  # shared with the other members of the sample
    extension: str
    path: str
    member: Member


class _Sample(NamedTuple):
    """The members of one key."""

    images: list[_KeyedMember]
    labels: list[_KeyedMember]
    others: list[_KeyedMember]


class _Checkpoint(NamedTuple):
    """The state before a tar, to which a second walk over it goes back."""

    source_count: int
    extension_counts: Counter[str]
    dropped: dict[str, int]


@dataclass
class TarSamples:
    """Collects the samples of the tars of a source."""

    # A sample has to have a KEY.cls; else it must not have one.
    has_labels: bool = False
    class_count: int = MAX_CLASSES  # labels are below it
    columns: TarColumns = USUAL_COLUMNS

    # Samples, and members that cannot be one, with the reason.
    sources: list[Source] = field(default_factory=list)
    # Members that are in no sample, or in no field, by extension.
    dropped: dict[str, int] = field(default_factory=dict)
    # Index in `sources` -> the further members of the sample by extension.
    field_ranges: dict[int, dict[str, ByteRange]] = field(default_factory=dict)
    extension_counts: Counter[str] = field(default_factory=Counter)  # of these members
    # Tar -> label -> name of the class in it.
    class_names: dict[str, dict[int, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # The source paths that samples of a packed dataset had when it was packed. They become the
    # names of the samples. None: samples are named after their members.
    original_paths: set[str] | None = None
    # Labels that `columns` names.
    chosen_labels: Labels = field(default_factory=lambda: Labels(None))

    def add_tar(
        self, tar: TarFile, archive: str, members: Iterable[CheckedMember]
    ) -> None:
        """Adds the samples of a tar. See Note [members in any order].

        `archive`: the path of the tar in the source, "" where it is the source.
        """
        self._tar = tar
        self._archive = archive
        self._paths = set[str]()
        self._image_extensions = self.columns.image_extensions
        self._label_extension = self.columns.label_extension

        # The first walk holds only the members of one sample at a time. If a group may lack a
        # member, the tar is not sorted by key: its samples so far are dropped, and a second walk
        # holds all members of the tar.
        checkpoint = _Checkpoint(
            len(self.sources), Counter(self.extension_counts), dict(self.dropped)
        )
        for _, group in groupby(self._keyed_members(members), attrgetter("key")):
            sample = self._sample_of(group)
            if self._may_lack_members(sample):
                self._go_back(checkpoint)
                members = check_members(tar.members())
                for sample_members in self._group_by_key(members):
                    self._add_sample(self._sample_of(sample_members))
                return
            self._add_sample(sample)

    def drop(self, extension: str, count: int = 1) -> None:
        """Counts members that are left out."""
        kind = shorten_name(extension, _MAX_SHOWN_CHARACTERS)
        if kind not in self.dropped and len(self.dropped) >= _MAX_DROPPED_KINDS:
            kind = "other"
        num_before = self.dropped.get(kind, 0)
        self.dropped[kind] = num_before + count

    def rename_extension(self, extension: str, new: str) -> None:
        """Calls members by another extension, which no sample has beside it."""
        count = self.extension_counts.pop(extension, 0)
        if not count:
            return
        self.extension_counts[new] += count
        for ranges in self.field_ranges.values():
            if extension in ranges:
                ranges[new] = ranges.pop(extension)

    def _keyed_members(
        self, members: Iterable[CheckedMember]
    ) -> Iterator[_KeyedMember]:
        for member, path, problem in members:
            if problem is not None:
                self.sources.append(
                    rejected_source(self._tar, self._archive, member, problem)
                )
            elif not member.is_folder:
                key, extension = split_key(path)
                if key:
                    yield _KeyedMember(key, extension, path, member)
                else:
                    self.drop("without extension")

    def _sample_of(self, members: Iterable[_KeyedMember]) -> _Sample:
        """Sorts the members of one key into images, labels and others."""
        sample = _Sample([], [], [])
        for member in members:
            if member.extension in self._image_extensions:
                sample.images.append(member)
            elif member.extension == self._label_extension:
                sample.labels.append(member)
            else:
                sample.others.append(member)
        return sample

    def _may_lack_members(self, sample: _Sample) -> bool:
        """Whether members of this key may be elsewhere in the tar: the image or the label."""
        if not sample.images and not self._needs_no_image(sample):
            return True
        if sample.labels:
            return False
        if self.columns.label:  # its value may be an entry of KEY.json
            return not any(member.extension == NOTE for member in sample.others)
        return self.has_labels

    def _needs_no_image(self, sample: _Sample) -> bool:
        """Whether a sample has its fields only: pictures of a list and something else, or it is of a
        packed dataset.

        Pictures alone, such as cat.0.jpg and cat.1.jpg, are images with a dot in their names.
        """
        has_note = any(member.extension == NOTE for member in sample.others)
        if has_note and self.original_paths is not None:
            return True
        numbers = []
        for member in sample.others:
            place = place_in_list(member.extension)
            if place is not None:
                numbers.append(place.number)
        has_list = len(numbers) > 1 or numbers in ([0], [1])
        member_count = len(sample.others) + len(sample.labels)
        return has_list and len(numbers) < member_count

    def _go_back(self, checkpoint: _Checkpoint) -> None:
        """Drops what was added of this tar."""
        for source in self.sources[checkpoint.source_count :]:
            if self.original_paths is not None:
                self.original_paths.discard(source.path)
        del self.sources[checkpoint.source_count :]
        # A list, since a dict must not change while it is walked.
        for index in list(self.field_ranges):
            if index >= checkpoint.source_count:
                del self.field_ranges[index]
        self.extension_counts = checkpoint.extension_counts
        self.dropped = checkpoint.dropped
        self.class_names.pop(self._archive, None)
        self._paths = set()

    def _group_by_key(
        self, members: Iterable[CheckedMember]
    ) -> list[list[_KeyedMember]]:
        """The members of each key, wherever in the tar they are.

        A second member of the same path begins another sample, which will be rejected.
        """
        samples: list[list[_KeyedMember]] = []
        last_of_key: dict[str, list[_KeyedMember]] = {}
        for member in self._keyed_members(members):
            sample = last_of_key.get(member.key)
            if sample is None or _has_path(sample, member.path):
                sample = []
                last_of_key[member.key] = sample
                samples.append(sample)
            sample.append(member)
        return samples

    def _add_sample(self, sample: _Sample) -> None:
        """Adds the sample of these members, or its image as rejected, with the reason."""
        ranges: dict[str, ByteRange] = {}
        for other in sample.others:
            content = other.member
            ranges[other.extension] = (content.offset_bytes, content.size_bytes)
        has_image = bool(sample.images) or not self._needs_no_image(sample)
        # Members without an image and a label are no sample.
        if has_image and not sample.images and not sample.labels:
            for extension in ranges:
                self.drop(extension)
            return

        # The image gives the sample its path; without an image, its label is reported.
        first = (sample.images or sample.labels or sample.others)[0]
        path = first.path
        member = first.member
        if not has_image:
            member = self._described_member(sample)
            path = first.key
        try:
            # Of two members with one extension, nobody knows which one is the field.
            if len(ranges) < len(sample.others):
                raise ValueError(_describe_repeated(sample.others))
            note = ranges.get(NOTE)
            packed = self._read_packed(note)
            label = self._read_label(sample, note, packed, has_image=has_image)
            if path in self._paths:
                raise ValueError(DUPLICATE_PATH)
        except ValueError as problem:
            self.sources.append(
                rejected_source(self._tar, self._archive, member, str(problem))
            )
            return

        self._paths.add(path)
        source = member_source(self._tar, self._archive, member, path, label)
        if not has_image:
            total_bytes = sum(size_bytes for _, size_bytes in ranges.values())
            source = source._replace(file=NO_IMAGE_FILE, size_bytes=total_bytes)
        if packed is not None:
            source = self._with_origin(source, packed)
        if ranges:
            # The index that the source gets below.
            self.field_ranges[len(self.sources)] = ranges
            self.extension_counts.update(ranges.keys())
        self.sources.append(source)

    def _described_member(self, sample: _Sample) -> Member:
        """The member that stands for a sample without an image: of a packed dataset, KEY.json."""
        for other in sample.others:
            if other.extension == NOTE:
                return other.member
        return sample.others[0].member

    def _read_packed(self, note: ByteRange | None) -> Ours | None:
        """The record at the start of a KEY.json that fastpipe wrote. ValueError: it is damaged."""
        if note is None:
            return None
        offset, note_size = note
        # Only the start is read: a KEY.json of another program may be large.
        return read_ours(lambda size: self._tar.read(offset, min(size, note_size)))

    def _with_origin(self, source: Source, packed: Ours) -> Source:
        """A sample of a packed dataset, with the identity and the path of the picture's source."""
        source = source._replace(identity=packed.identity)
        # A second sample of one path keeps the path of its member, so that no two are the same.
        if self.original_paths is None or packed.path in self.original_paths:
            return source
        self.original_paths.add(packed.path)
        return source._replace(path=packed.path)

    def _read_label(
        self,
        sample: _Sample,
        note: ByteRange | None,
        packed: Ours | None,
        *,
        has_image: bool,
    ) -> int:
        """The label of a sample. ValueError: the members are not a sample, or it has no label."""
        image_count = len(sample.images)
        label_count = len(sample.labels)
        lacks_label = self.has_labels and not label_count
        if image_count != int(has_image) or label_count > 1 or lacks_label:
            raise ValueError(
                f"expected one image ({self.columns.image_names}) and one label "
                f"(KEY.{self.columns.label_extension}) with this key, got {image_count} and "
                f"{label_count}{_advice_for_images(sample)}"
            )
        if self.columns.label:
            return self._read_chosen_label(self.columns.label, sample, note)
        if not sample.labels:
            return NO_LABEL
        label = self._read_number(
            sample.labels[0].member, was_packed=packed is not None
        )
        if label == NO_LABEL:
            return NO_LABEL

        name = str(label)
        if packed is not None and packed.class_name is not None:
            name = packed.class_name
        first_name = self.class_names[self._archive].setdefault(label, name)
        if first_name != name:
            raise ValueError(
                f"its label {label} is the class {name!r} here, and {first_name!r} before it"
            )
        return label

    def _read_chosen_label(
        self, column: str, sample: _Sample, note: ByteRange | None
    ) -> int:
        """The label in the member, or the entry of KEY.json, that a user names."""
        if sample.labels:
            member = sample.labels[0].member
            text = self._tar.read(member.offset_bytes, member.size_bytes)
            label: object = _parse_label(text)
        else:
            entries: dict[str, object] = {}
            if note is not None:
                entries = read_entries(self._tar, note)
            if column not in entries:
                raise ValueError(
                    f"expected its label in KEY.{column}, or as {column!r} in KEY.json, got neither"
                )
            label = entries[column]
        first = (sample.images or sample.others)[0]
        where = path_in_source(self._archive, first.path)
        return self.chosen_labels.take(label, where)

    def _read_number(self, member: Member, *, was_packed: bool) -> int:
        """The number in a KEY.cls. ValueError: there is no label in it."""
        text = self._tar.read(
            member.offset_bytes, min(member.size_bytes, _MAX_LABEL_DIGITS)
        )
        # fastpipe writes -1 for a sample without a label. In other datasets it is a mistake.
        if text == b"-1" and was_packed:
            return NO_LABEL
        match = None
        if member.size_bytes <= _MAX_LABEL_DIGITS:
            match = _NUMBER.fullmatch(text)
        if match is not None and int(match[1]) < self.class_count:
            return int(match[1])

        hint = ""
        if match is None and b"\n" not in text.strip():
            hint = ". For names of classes, pass --label-column cls"
        raise ValueError(
            f"its label is {shorten_name(repr(text)[1:], 40)}; expected a whole number from 0 to "
            f"{self.class_count - 1:,}, in decimal digits: a position in the list of classes{hint}"
        )


def _has_path(sample: Iterable[_KeyedMember], path: str) -> bool:
    return any(member.path == path for member in sample)


def read_entries(tar: TarFile, note: ByteRange) -> dict[str, object]:
    """The entries of a KEY.json; none if it is not an object."""
    text = tar.read(*note)
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return entries


def _parse_label(data: bytes) -> int | str:
    """A whole number or the name of a class, as the bytes of a member. ValueError: neither."""
    number = _NUMBER.fullmatch(data)
    if number is not None:
        return int(number[1])
    text = data.decode("utf-8-sig").strip()
    if not text or len(text) > _MAX_LABEL_CHARACTERS or "\n" in text:
        raise ValueError(
            f"its label is {shorten_name(text, 40)!r}; expected a number, or the name of a class"
        )
    return text


def _describe_repeated(members: Iterable[_KeyedMember]) -> str:
    """Says which extension several members of one key have."""
    counts = Counter(member.extension for member in members)
    extension = max(counts, key=lambda extension: counts[extension])
    return (
        f"expected one member .{shorten_name(extension, _MAX_SHOWN_CHARACTERS)} with this key, got "
        "several"
    )


def _advice_for_images(sample: _Sample) -> str:
    """How to tell fastpipe which member is the image of a sample; "": nothing would help."""
    if len(sample.images) > 1:
        extension = shorten_name(sample.images[0].extension, _MAX_SHOWN_CHARACTERS)
        return (
            "; call a mask or a second image KEY.NAME.png, such as KEY.seg.png; or pass "
            f"--image-column {extension}, and the others are fields"
        )
    if sample.images:
        return ""
    for member in sample.others:
        if is_picture(f"x.{member.extension}"):
            extension = shorten_name(member.extension, _MAX_SHOWN_CHARACTERS)
            return f"; --image-column {extension} takes KEY.{extension} as the image"
    return ""
