"""The tar files of a source -> their samples and classes: of a WebDataset, an image folder, or a packed dataset."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, tee
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import PackError, readable
from fastpipe.format.description import read_self_checksum
from fastpipe.format.folder import Url
from fastpipe.format.layout import DATASET_FILE, MOST_CLASSES, NO_LABEL
from fastpipe.format.packed_index import PackedIndex
from fastpipe.format.sample_layout import Ours, read_ours
from fastpipe.sources.doubtful_classes import like_a_split, numbers_as_texts, parts_as_classes
from fastpipe.sources.files import FIRST_OF_LEFT_BEHIND, SourcePath, lies_in_left_behind, state_at
from fastpipe.sources.likely import named_as_label
from fastpipe.sources.listing import (
    STORED,
    Assumption,
    ByteRange,
    Listing,
    Source,
    SourceField,
    change,
)
from fastpipe.sources.options import (
    MOST_FIELDS,
    NOTE,
    PICTURES,
    FieldColumn,
    field_of_dataset,
    fields_asked,
    fields_of,
    is_picture,
)
from fastpipe.sources.rows import Labels
from fastpipe.sources.sidecar_files import sidecar_files
from fastpipe.sources.splits import (
    are_called_like_parts,
    called_like_splits,
    chosen_split,
    some,
    split_word,
)
from fastpipe.sources.tar_reader import Member, TarFile, shown
from fastpipe.store.remote.options import RemoteOptions

_LABEL = "cls"
_MOST_NAME_CHARACTERS = 1024
_MOST_KINDS = 100  # of members that are counted one by one
_MOST_DIGITS = 64
_MOST_LABEL_CHARACTERS = 1024
_MOST_SHOWN = 5  # classes in a message
_SYNSET = re.compile("n[0-9]{8}")  # of WordNet: a class of ImageNet
_NUMBER = re.compile(rb"\s*\+?([0-9]{1,18})\s*")
_NOTE = re.compile("__[^/]*__($|/)")
# A terminal acts on control characters, and some programs take a backslash for a slash.
_STRANGE = r"[\x00-\x1f\x7f-\x9f\\]"
# Nothing is ever written under a name; but what leads out of the tar's folder is no picture.
_HOSTILE = re.compile(rf"^/|(^|/)\.\.(/|$)|{_STRANGE}")
# Most names have none of that, nor a part that is empty, "." or "..".
_ODD = re.compile(_STRANGE + r"|(^|/)\.{0,2}(/|$)")


# Note [members in any order]
# WebDataset's samples are members of one key, one behind the other. In a tar that is not sorted (all images, then all
# captions) its readers lose the captions in silence. Here, where a group lacks a picture or label, the tar is walked
# again, and members of one key are brought together; only then all of its members are in memory.


class _Keyed(NamedTuple):
    """A member that has a key, which it shares with the other members of its sample, and an extension."""

    key: str
    extension: str
    path: str
    member: Member


_key_of = itemgetter(0)


class _Sample(NamedTuple):
    """The members of one key."""

    images: list[_Keyed]
    labels: list[_Keyed]
    others: list[_Keyed]


class TarColumns(NamedTuple):
    """The members of a sample that are its image and its label, if a user names them."""

    image: str | None = None  # an ending, such as left.jpg; None: that of any picture
    label: str | None = None  # an ending, or an entry of KEY.json; None: cls

    @property
    def images(self) -> frozenset[str]:
        return PICTURES if self.image is None else frozenset([self.image.lower()])

    @property
    def image_names(self) -> str:
        return "KEY.jpg, .png, .webp, .bmp, .tif" if self.image is None else f"KEY.{self.image}"

    @property
    def label_ending(self) -> str:
        return _LABEL if self.label is None else self.label.lower()


_USUAL_COLUMNS = TarColumns()


@dataclass
class Gathered:
    """Samples or files of tars. A tar's path is relative to the source, "" where it is the source."""

    classes: int = MOST_CLASSES  # labels have to be below this
    labelled: bool = (
        False  # a sample of a WebDataset has to have a label; else it must not have one
    )
    sources: list[Source] = field(
        default_factory=list
    )  # so far, and members that cannot be any, with the reason
    # Those that files lie in, or that are members, as their first names, three at most.
    folders: set[tuple[str, ...]] = field(default_factory=set)
    dropped: dict[str, int] = field(
        default_factory=dict
    )  # members that are neither picture nor label, by extension
    # Of some sources, by their position, the members that may be values of fields, by extension.
    members: dict[int, dict[str, ByteRange]] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)  # of these members
    names: dict[str, dict[int, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # of labels, of each tar
    # Paths of the sources that samples of ours were packed from, by which these are called; None: they are called
    # after their members.
    origins: set[str] | None = None
    columns: TarColumns = _USUAL_COLUMNS
    chosen: Labels = field(default_factory=lambda: Labels(None))  # those that `columns` names

    def drop(self, extension: str, members: int = 1) -> None:
        """Counts members that are left out."""
        extension = shown(extension, 20)
        kind = (
            extension if extension in self.dropped or len(self.dropped) < _MOST_KINDS else "other"
        )
        self.dropped[kind] = self.dropped.get(kind, 0) + members

    def rename(self, ending: str, other: str) -> None:
        """Members of one ending are called by another one, which no sample has beside it."""
        if found := self.endings.pop(ending, 0):
            self.endings[other] += found
            for members in self.members.values():
                if ending in members:
                    members[other] = members.pop(ending)

    def take_files(self, tar: TarFile, archive: str, members: Iterable[Member]) -> bool:
        """Adds all members as files of an image folder. False: it stopped at a label, as only a WebDataset has."""
        self._tar, self._archive, self._seen = tar, archive, set[str]()
        for member, path in self._usable(members):
            folders = path.split("/", 3)
            if not member.is_folder:
                folders.pop()
            if folders and path:  # not the source itself, "./"
                self.folders.add(tuple(folders[:3]))
            if not member.is_folder:
                if split_key(path)[1] == _LABEL:
                    return False
                self._add(member, path)
        return True

    def take_samples(self, tar: TarFile, archive: str, members: Iterable[Member]) -> None:
        """Adds the samples of a WebDataset: members of one key. See Note [members in any order]"""
        self._tar, self._archive, self._seen = tar, archive, set[str]()
        self._images, self._label_ending = self.columns.images, self.columns.label_ending
        before = len(self.sources), Counter(self.endings), dict(self.dropped)
        for _, group in groupby(self._keyed(members), _key_of):
            sample = self._sorted(group)
            if self._is_part(sample):
                self._forget(*before)
                for together in self._together(tar.members()):
                    self._take_sample(self._sorted(together))
                return
            self._take_sample(sample)

    def _sorted(self, members: Iterable[_Keyed]) -> _Sample:
        sample = _Sample([], [], [])
        for member in members:
            if member.extension in self._images:
                sample.images.append(member)
            elif member.extension == self._label_ending:
                sample.labels.append(member)
            else:
                sample.others.append(member)
        return sample

    def _is_part(self, sample: _Sample) -> bool:
        """Whether members that follow one another lack what the others of their key may have."""
        if not sample.images:
            return True
        if sample.labels or not (self.labelled or self.columns.label):
            return False
        return not (self.columns.label and any(each.extension == NOTE for each in sample.others))

    def _forget(self, sources: int, endings: Counter[str], dropped: dict[str, int]) -> None:
        """Goes back to the state before this tar."""
        for source in self.sources[sources:]:
            if self.origins is not None:
                self.origins.discard(source.path)
        del self.sources[sources:]
        self.members = {at: found for at, found in self.members.items() if at < sources}
        self.endings, self.dropped = endings, dropped
        self.names.pop(self._archive, None)
        self._seen = set()

    def _together(self, members: Iterable[Member]) -> Iterable[list[_Keyed]]:
        """The members of each key, wherever in the tar they are. One of the same name begins another sample."""
        samples: list[list[_Keyed]] = []
        last: dict[str, list[_Keyed]] = {}
        for each in self._keyed(members):
            sample = last.get(each.key)
            if sample is None or any(each.path == other.path for other in sample):
                sample = last[each.key] = []
                samples.append(sample)
            sample.append(each)
        return samples

    def _usable(self, members: Iterable[Member]) -> Iterator[tuple[Member, str]]:
        """Members and their paths. Those that are no files, or have a name that none must have, are rejected; those
        that systems leave among pictures are passed over.
        """
        folder, is_folder_left = "", False  # of the member before
        for member in members:
            path, problem = member.name, member.problem
            start = path.rfind("/") + 1
            if path[:start] != folder:
                folder = path[:start]
                is_folder_left = lies_in_left_behind(folder)
            may_be_left = is_folder_left or path[start : start + 1] in FIRST_OF_LEFT_BEHIND
            if may_be_left and lies_in_left_behind(path) and not _HOSTILE.search(path):
                continue
            if problem is None and (len(path) > _MOST_NAME_CHARACTERS or _ODD.search(path)):
                no_file = path.rpartition("/")[2] in ("", ".") and not member.is_folder
                if no_file or len(path) > _MOST_NAME_CHARACTERS or _HOSTILE.search(path):
                    expected = f"at most {_MOST_NAME_CHARACTERS:,} characters, no control character and no backslash"
                    problem = f"expected the name of a file inside the tar's folder, of {expected}"
                path = "/".join(part for part in path.split("/") if part not in ("", "."))
            if problem is None:
                yield member, path
            else:
                self._add(member, path, problem)

    def _keyed(self, members: Iterable[Member]) -> Iterator[_Keyed]:
        for member, path in self._usable(members):
            if not member.is_folder:
                key, extension = split_key(path)
                if key:
                    yield _Keyed(key, extension, path, member)
                else:
                    self.drop("without extension")

    def _take_sample(self, sample: _Sample) -> None:
        """Adds the sample of these members, or why they are none."""
        others: dict[str, ByteRange] = {}
        for each in sample.others:
            others[each.extension] = (each.member.offset_bytes, each.member.size_bytes)
        if not sample.images and not sample.labels:
            for extension in others:
                self.drop(extension)
            return
        _, _, path, member = (sample.images or sample.labels)[0]
        try:
            if len(others) < len(sample.others):
                ((twice, _),) = Counter(each.extension for each in sample.others).most_common(1)
                raise ValueError(
                    f"expected one member .{shown(twice, 20)} with this key, got several"
                )
            label, ours = self._facts(sample, others.get(NOTE))
        except ValueError as problem:
            self._add(member, path, str(problem))
            return
        if self._add(member, path, None, label, ours) and others:
            self.members[len(self.sources) - 1] = others
            self.endings.update(others.keys())

    def _facts(self, sample: _Sample, note: ByteRange | None) -> tuple[int, Ours | None]:
        """The label of a sample, and what its note tells, if it is ours; ValueError: it is none."""
        ours = None
        if note is not None:
            offset, most = note
            ours = read_ours(lambda size: self._tar.read(offset, min(size, most)))
        images, labels = len(sample.images), len(sample.labels)
        if images != 1 or labels > 1 or (self.labelled and not labels):
            raise ValueError(
                f"expected one image ({self.columns.image_names}) and one label (KEY.{self.columns.label_ending}) with "
                f"this key, got {images} and {labels}{_other_images(sample)}"
            )
        if self.columns.label:
            return self._chosen_label(sample, note), ours
        label = self._label(sample.labels[0].member, ours is not None) if labels else NO_LABEL
        if label != NO_LABEL:
            name = str(label) if ours is None or ours.class_name is None else ours.class_name
            known = self.names[self._archive].setdefault(label, name)
            if known != name:
                raise ValueError(
                    f"its label {label} is the class {name!r} here, and {known!r} before it"
                )
        return label, ours

    def _chosen_label(self, sample: _Sample, note: ByteRange | None) -> int:
        """The label in the member, or the entry of KEY.json, that a user names. ValueError: there is none."""
        column = self.columns.label
        if sample.labels:
            member = sample.labels[0].member
            value: object = _text_label(self._tar.read(member.offset_bytes, member.size_bytes))
        else:
            entries = {} if note is None else _entries(self._tar.read(*note))
            if column not in entries:
                raise ValueError(
                    f"expected its label in KEY.{column}, or as {column!r} in KEY.json, got neither"
                )
            value = entries[column]
        return self.chosen.take(value, f"{self._archive}/{sample.images[0].path}".lstrip("/"))

    def _label(self, member: Member, ours: bool) -> int:
        """The number in a KEY.cls; ValueError: it is none."""
        text = self._tar.read(member.offset_bytes, min(member.size_bytes, _MOST_DIGITS))
        if text == b"-1" and ours:
            return NO_LABEL
        number = _NUMBER.fullmatch(text) if member.size_bytes <= _MOST_DIGITS else None
        if number is None or int(number[1]) >= self.classes:
            is_name = number is None and b"\n" not in text.strip()
            names = ". For names of classes, pass --label-column cls" if is_name else ""
            raise ValueError(
                f"its label is {shown(repr(text)[1:], 40)}; expected a whole number from 0 to {self.classes - 1:,}, in "
                f"decimal digits: a position in the list of classes{names}"
            )
        return int(number[1])

    def _add(
        self,
        member: Member,
        path: str,
        problem: str | None = None,
        label: int = 0,
        ours: Ours | None = None,
    ) -> bool:
        """Adds a picture, and says so; or what is none, with the reason, under a name that is no other one's path."""
        if problem is None and path in self._seen:
            problem = "an earlier member has the same name: unpacking the tar would overwrite it"
        if problem is None:
            self._seen.add(path)
        else:
            path, label, ours = f"{shown(member.name)} (at byte {member.header_bytes})", 0, None
        whole = f"{self._archive}/{path}" if self._archive else path
        if self.origins is not None and ours is not None and ours.path not in self.origins:
            whole = ours.path  # a sample of a packed dataset is called what it was called there
            self.origins.add(whole)
        size, mtime, ctime, _ = self._tar.state
        source = Source(
            whole,
            label,
            member.size_bytes,
            mtime,
            ctime,
            problem,
            self._archive,
            member.offset_bytes,
            size,
        )
        self.sources.append(source if ours is None else source._replace(identity=ours.identity))
        return problem is None


def split_key(name: str) -> tuple[str, str]:
    """WebDataset's key of a member and its extension in small letters, from the first dot after the last slash on;
    ("", "") if it has no extension, or is one of WebDataset's notes about the shard (__name__).
    """
    folder, slash, file = name.rpartition("/")
    stem, dot, extension = file.partition(".")
    if not stem or not dot or (name.startswith("__") and _NOTE.match(name)):
        return "", ""
    return folder + slash + stem, extension.lower()


def _other_images(sample: _Sample) -> str:
    """What to do with a sample whose image is not certain."""
    if len(sample.images) > 1:
        ending = sample.images[0].extension
        return (
            "; call a mask or a second image KEY.NAME.png, such as KEY.seg.png; or pass --image-column "
            f"{shown(ending, 20)}, and the others are fields"
        )
    others = [each.extension for each in sample.others if is_picture(f"x.{each.extension}")]
    if sample.images or not others:
        return ""
    return f"; --image-column {shown(others[0], 20)} takes KEY.{shown(others[0], 20)} as the image"


def _text_label(data: bytes) -> int | str:
    """A label as the bytes of a member have it: a whole number, or a name. ValueError: neither."""
    number = _NUMBER.fullmatch(data)
    if number is not None:
        return int(number[1])
    text = data.decode("utf-8-sig").strip()
    if not text or len(text) > _MOST_LABEL_CHARACTERS or "\n" in text:
        raise ValueError(
            f"its label is {shown(text, 40)!r}; expected a number, or the name of a class"
        )
    return text


def _entries(data: bytes) -> dict[str, object]:
    """The entries of a KEY.json; none if it is no object."""
    with suppress(ValueError, RecursionError):
        entries = json.loads(data)
        return entries if isinstance(entries, dict) else {}
    return {}


def list_archives(
    root: SourcePath,
    tars: list[str],
    stray: Sequence[str] = (),
    asked: tuple[FieldColumn, ...] | None = None,
    split: str | None = None,
    columns: TarColumns = _USUAL_COLUMNS,
) -> Listing:
    """Lists what is in the tars of a folder, in no order; of a tar itself with [""] as the name.

    If a member is a KEY.cls, they are a WebDataset with these labels; else, if members are in folders, an image folder;
    else a WebDataset without labels. `asked` are the fields to take, by the endings of members; None: all. `split` is
    one of an image folder. With `columns`, they are a WebDataset.
    """
    files, samples, others = Gathered(), Gathered(), list(stray)
    if columns != _USUAL_COLUMNS:
        _refuse_split(root, split)
        has_labels = columns.label is None and _has_labels(root, tars)
        gathered = _gathered(root, tars, Gathered(labelled=has_labels, columns=columns))
        return _web_dataset(root, tars, gathered, others, asked)
    for name in tars:
        with TarFile(root / name) as tar:
            members, again = tee(tar.members())
            if not files.take_files(tar, name, members):
                _refuse_split(root, split)
                return _web_dataset(
                    root, tars, _gathered(root, tars, Gathered(labelled=True)), others, asked
                )
            if not files.folders:  # else they are an image folder
                samples.take_samples(tar, name, again)
    listing = _image_folder(root, [name or root.name for name in tars], files, others, split)
    if listing is None:
        _refuse_split(root, split)
        gathered = _gathered(root, tars, Gathered()) if files.folders else samples
        return _web_dataset(root, tars, gathered, others, asked)
    if asked is not None:
        raise PackError(
            f"--field: {readable(str(root))} holds folders of images, which have no fields; leave it out"
        )
    return listing


def _has_labels(root: SourcePath, tars: Sequence[str]) -> bool:
    """Whether a member is a KEY.cls."""
    for name in tars:
        with TarFile(root / name) as tar:
            if any(split_key(member.name)[1] == _LABEL for member in tar.members()):
                return True
    return False


def list_dataset(root: SourcePath, remote: RemoteOptions | None = None) -> Listing:
    """Lists the samples of a packed dataset, from its shards. DatasetError, PackError: it is not as packed."""
    if isinstance(root, Path):
        index = PackedIndex(root)
    else:
        from fastpipe.store.remote.dataset import RemoteIndex  # most sources are on this machine

        index = behind = RemoteIndex(Url(root), remote or RemoteOptions())
        behind.fetch_sources()
    problem = index.damage(lambda name: state_at(root, name).size_bytes)
    said, got = read_self_checksum((root / DATASET_FILE).read_bytes()) or ("", "")
    if said != got:
        problem = (
            f"{DATASET_FILE} has changed since it was written: expected hash {said}, got {got}"
        )
    if problem is not None:
        raise PackError(
            f"{root} is damaged: {problem}. Run fastpipe verify to find the damage, and repair it first"
        )
    gathered = Gathered(len(index.classes), labelled=True, origins=set())
    _gathered(root, [shard.name for shard in index.shards], gathered)
    gathered.endings.pop(NOTE, None)  # the notes of samples are ours
    for each in index.fields.values():
        if each.kind == "image":  # a further image of a sample is a JPEG or a PNG
            gathered.rename(f"{each.name}.png", f"{each.name}.jpg")
    listing = _listing(
        root, index.classes, gathered, [], tuple(map(field_of_dataset, index.fields.values()))
    )
    _take_origins(listing.sources, index, index.sources())
    return replace(listing, coordinates=STORED)  # fields were moved with the pictures


def _take_origins(sources: list[Source], index: PackedIndex, known: NDArray[np.void]) -> None:
    """Leaves out samples that a dataset no longer has; gives the others, in the shards' order, their sources' sizes."""
    numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    columns = (index.records["shard"], index.records["offset"], known["bytes"])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    row = next(rows, None)

    def with_origin(source: Source) -> Source | None:
        nonlocal row
        place = numbers[source.archive or ""], source.offset_bytes
        while row is not None and row[:2] < place:
            row = next(rows, None)
        if source.problem is not None:
            return source
        return (
            source._replace(origin_bytes=row[2]) if row is not None and row[:2] == place else None
        )

    change(sources, with_origin)


def _gathered(root: SourcePath, tars: list[str], into: Gathered) -> Gathered:
    for name in tars:
        with TarFile(root / name) as tar:
            into.take_samples(tar, name, tar.members())
    return into


def _web_dataset(
    root: SourcePath,
    tars: list[str],
    gathered: Gathered,
    stray: list[str],
    asked: tuple[FieldColumn, ...] | None,
) -> Listing:
    endings = gathered.endings
    if not gathered.sources and "tar" in gathered.dropped:
        raise PackError(
            f"{readable(str(root))} holds {gathered.dropped['tar']:,} tars in its tars, which fastpipe does not read. "
            "Unpack it into a folder of tars and pack that: with --format imagefolder each tar there is a class"
        )
    if not gathered.sources and gathered.dropped:
        images = [ending for ending in gathered.dropped if is_picture(f"x.{ending}")]
        option = (
            f"--image-column {images[0]} takes KEY.{images[0]} as the image of a sample. "
            if images
            else ""
        )
        raise PackError(
            f"{readable(str(root))} has no image in its tars: the endings of the members are "
            f"{', '.join([*gathered.dropped][:10])}. An ending begins at the first dot: photo.v1.jpg has v1.jpg, "
            f"no image's. {option}Or make the tar again without further dots in the names, or unpack it and pack the "
            "folder"
        )
    found = fields_of(endings) if len(endings) <= MOST_FIELDS else ()
    fields = found if asked is None else fields_asked(asked, endings)
    assumed: tuple[Assumption, ...] = ()
    if len(endings) > MOST_FIELDS and asked is None:
        words = f"fields: none, because there are {len(endings):,} different endings of members"
        assumed += (Assumption(words, "--field NAME=ENDING"),)
    groups = dict.fromkeys(tar_class(name) for name in tars)
    if len(groups) > 1 and not gathered.names and gathered.sources:
        shown = ", ".join(map(readable, [*groups][:_MOST_SHOWN])) + (
            ", ..." if len(groups) > _MOST_SHOWN else ""
        )
        words = f"labels: none, though the tars are called {shown}, as if each were a class"
        assumed += (Assumption(words, "--format imagefolder"),)
    if gathered.sources and not gathered.names and gathered.columns.label is None:
        assumed += tuple(_unread_labels(root, gathered))
    if gathered.columns.label is not None:
        classes = gathered.chosen.settle(gathered.sources)
        assumed += gathered.chosen.assumed(classes)
    else:
        classes = _named_classes(gathered)
    listing = _listing(root, classes, gathered, stray, fields)
    return replace(listing, assumed=assumed)


def _unread_labels(root: SourcePath, gathered: Gathered) -> Iterator[Assumption]:
    """Told of members, or entries of a KEY.json, that are called like labels and are none."""
    endings = [
        ending for ending in gathered.endings if _is_called_label(ending.removesuffix(".txt"))
    ]
    if endings:
        yield Assumption(
            f"labels: none, though the members .{endings[0]} are called so",
            f"--label-column {endings[0]}",
        )
        return
    notes = ((at, members[NOTE]) for at, members in gathered.members.items() if NOTE in members)
    for at, (offset, size) in islice(notes, 1):
        with TarFile(root / (gathered.sources[at].archive or "")) as tar:
            entries = _entries(tar.read(offset, size))
        names = [
            name
            for name, value in entries.items()
            if _is_called_label(name) and isinstance(value, (int, str))
        ]
        if names:
            yield Assumption(
                f"labels: none, though the samples' .json have {readable(names[0])!r}, which is called so",
                f"--label-column {readable(names[0])}",
            )


def _is_called_label(name: str) -> bool:
    return named_as_label(name) or name.lower() == _LABEL


def tar_class(name: str) -> str:
    """The class that a tar is called after, if it has one: cat of cat.tar and of cat-000.tar; "" of 000.tar."""
    stem = re.sub(r"\.tar$", "", name.rpartition("/")[2], flags=re.IGNORECASE)
    return stem if _SYNSET.fullmatch(stem) else re.sub(r"[-_.]?[0-9]+$", "", stem)


def list_tar_classes(root: SourcePath, tars: list[str], stray: Sequence[str] = ()) -> Listing:
    """Lists the images in tars, in no order; each tar is a class, and cat-0.tar and cat-1.tar are one."""
    of_tar = {
        name: tar_class(name) or name.rpartition("/")[2].removesuffix(".tar") for name in tars
    }
    classes = sorted(set(of_tar.values()))
    numbers = {name: number for number, name in enumerate(classes)}
    gathered = Gathered()
    for name in tars:
        with TarFile(root / name) as tar:
            if not gathered.take_files(tar, name, tar.members()):
                raise PackError(
                    f"{readable(str(root / name))} has labels (KEY.cls), so its name is no class; leave out --format"
                )

    def labelled(source: Source) -> Source:
        return (
            source
            if source.problem is not None
            else source._replace(label=numbers[of_tar[source.archive or ""]])
        )

    change(gathered.sources, labelled)
    return Listing(root, classes, gathered.sources, list(stray))


def _listing(
    root: SourcePath,
    classes: list[str],
    gathered: Gathered,
    stray: list[str],
    fields: tuple[SourceField, ...],
) -> Listing:
    """The samples with those of their members that are fields."""
    columns = {field.column for field in fields}
    for ending, members in gathered.endings.items():
        if ending not in columns:
            gathered.drop(ending, members)
    sources = gathered.sources
    for at, source in enumerate(sources if fields else ()):  # in place: there may be millions
        if source.problem is None:
            places = gathered.members.pop(at, {})
            sources[at] = source._replace(parts=tuple(places.get(field.column) for field in fields))
    return Listing(root, classes, sources, stray, gathered.dropped, fields)


def _named_classes(gathered: Gathered) -> list[str]:
    """The names of the classes. Labels stay what they are, unless a tar has another name or number for a class."""
    pairs = {pair for names in gathered.names.values() for pair in names.items()}
    found = dict(pairs)
    classes = [found.get(label, str(label)) for label in range(max(found, default=-1) + 1)]
    if len(found) == len(pairs) and len(set(classes)) == len(classes):
        return classes
    classes = sorted({name for _, name in pairs})
    numbers = {name: number for number, name in enumerate(classes)}

    def numbered(source: Source) -> Source:
        if source.problem is not None or source.label == NO_LABEL:
            return source
        return source._replace(label=numbers[gathered.names[source.archive or ""][source.label]])

    change(gathered.sources, numbered)
    return classes


def _refuse_split(root: SourcePath, split: str | None) -> None:
    if split is not None:
        raise PackError(
            f"--split {split}: {readable(str(root))} has no splits: neither tars nor folders in them that are called "
            "train, val, test or the like; leave it out"
        )


def _image_folder(
    root: SourcePath, tars: list[str], gathered: Gathered, stray: list[str], split: str | None
) -> Listing | None:
    """As if the tars had been unpacked; see Note [a tar of a folder]. None: there are no folders."""
    folders = {folder for folder in gathered.folders if not folder[0].startswith(".")}
    tops = {folder[0] for folder in folders}
    depth = int(
        len(tops) == 1 and any(len(folder) > 1 for folder in folders) and _called(min(tops), tars)
    )
    names = sorted(
        {folder[depth] for folder in folders if len(folder) > depth and folder[depth][0] != "."}
    )
    if not names:
        return None
    splits = called_like_splits(names, split)
    chosen = chosen_split(root, split, dict.fromkeys(splits)) if splits else ""
    if not splits:
        _refuse_split(root, split)
    else:
        depth += 1
        here = (folder for folder in folders if len(folder) > depth and folder[depth - 1] in splits)
        names = sorted({folder[depth] for folder in here if folder[depth][0] != "."})
    labels = {name: label for label, name in enumerate(names)}

    def unpacked(source: Source) -> Source | None:
        if source.problem is not None:
            return source
        prefix = f"{source.archive}/" if source.archive else ""
        parts = source.path[len(prefix) :].split("/")
        if chosen and parts[depth - 1] != chosen:
            return None
        parts = parts[depth:]
        if len(parts) > 1 and parts[0] in labels:
            return source._replace(path=prefix + "/".join(parts), label=labels[parts[0]])
        if chosen and len(parts) == 1:
            return source._replace(path=prefix + parts[0], label=NO_LABEL)
        stray.append(source.path)
        return None

    change(gathered.sources, unpacked)
    assumed = _assumed_of_folders(names, folders, depth)
    assumed += sidecar_files(root, gathered.sources, names, certain=True)
    return Listing(root, names, gathered.sources, stray, assumed=tuple(assumed))


def _assumed_of_folders(
    names: Sequence[str], folders: Collection[tuple[str, ...]], depth: int
) -> list[Assumption]:
    """What is assumed of folders in tars that are taken for classes; `depth` of them lie around these."""
    assumed = list(numbers_as_texts(names))
    called = [name for name in names if split_word(name) is not None]
    inside = sorted({folder[depth + 1] for folder in folders if len(folder) > depth + 1})
    if called:
        assumed.insert(0, like_a_split(called))
    elif are_called_like_parts(names):
        assumed.append(parts_as_classes(names, inside))
    elif len(names) == 1 and inside:
        assumed.append(
            Assumption(
                f"all images are of the class {readable(names[0])}, the only folder in the tar; if the folders in it "
                f"({some(inside)}) are the classes, make the tar in that folder"
            )
        )
    return assumed


def _called(folder: str, tars: list[str]) -> bool:
    """Whether the tars are called after the folder that all their members are in.

    Note [a tar of a folder] `tar cf photos.tar photos` puts the folder photos around the class folders. Only the tar's
    name tells that photos is no class: photos.tar, photos-000.tar and photos_1.tar are called after it.
    """
    return all(
        re.fullmatch(re.escape(folder) + r"([-_.]?\d+)?\.tar", Path(tar).name, re.IGNORECASE)
        for tar in tars
    )
