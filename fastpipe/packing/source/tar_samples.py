"""A tar's members -> sources: a WebDataset's samples, with their labels, or the files of an image folder."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from fastpipe.format.layout import MOST_CLASSES, NO_LABEL
from fastpipe.format.sample_layout import Ours, read_ours
from fastpipe.packing.source.field_names import NOTE, PICTURES
from fastpipe.packing.source.listing import Part, Source
from fastpipe.packing.source.tar_reader import Member, TarFile, shown

_LABEL = "cls"
_MOST_NAME_CHARACTERS = 1024
_MOST_KINDS = 100  # of members that are counted one by one
_MOST_DIGITS = 64
_NUMBER = re.compile(rb"\s*\+?([0-9]{1,18})\s*")
_NOTE = re.compile("__[^/]*__($|/)")
# A terminal acts on control characters, and some programs take a backslash for a slash.
_STRANGE = r"[\x00-\x1f\x7f-\x9f\\]"
# Nothing is ever written under a name; but what leads out of the tar's folder is no picture.
_HOSTILE = re.compile(rf"^/|(^|/)\.\.(/|$)|{_STRANGE}")
# Most names have none of that, nor a part that is empty, "." or "..".
_ODD = re.compile(_STRANGE + r"|(^|/)\.{0,2}(/|$)")


class _Keyed(NamedTuple):
    """A member that has a key, which it shares with the other members of its sample, and an extension."""

    key: str
    extension: str
    path: str
    member: Member


@dataclass
class Gathered:
    """What the members of tars come to. A tar's path is relative to the source, "" where it is the source.

    Attributes:
        classes: labels have to be below this.
        labelled: a sample of a WebDataset has to have a label; else it must not have one.
        with_fields: its further members may be fields; else they are left out.
        sources: samples or files so far, and members that cannot be any, with the reason.
        folders: those that files lie in, or that are members, as their first two names or their only one.
        dropped: members that are neither picture nor label: how many, by extension.
        members: of some sources, by their position, the members that may be values of fields, by extension.
        endings: of these: how many.
        names: of each tar, the names of its labels.
        origins: paths of the sources that samples of ours were packed from, by which these are called; None: they are
            called after their members.
    """

    classes: int = MOST_CLASSES
    labelled: bool = False
    with_fields: bool = True
    sources: list[Source] = field(default_factory=list)
    folders: set[tuple[str, ...]] = field(default_factory=set)
    dropped: dict[str, int] = field(default_factory=dict)
    members: dict[int, dict[str, Part]] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    names: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    origins: set[str] | None = None

    def drop(self, extension: str, members: int = 1) -> None:
        """Counts members that are left out."""
        extension = shown(extension, 20)
        kind = extension if extension in self.dropped or len(self.dropped) < _MOST_KINDS else "other"
        self.dropped[kind] = self.dropped.get(kind, 0) + members

    def take_files(self, tar: TarFile, archive: str, members: Iterable[Member]) -> bool:
        """Adds all members as files, under their own names, as of an image folder. False: it stopped at a label, for
        then the tars are a WebDataset.
        """
        self._tar, self._archive, self._seen = tar, archive, set[str]()
        for member, path in self._usable(members):
            folders = path.split("/", 2)
            if not member.is_folder:
                folders.pop()
            if folders and path:  # not the source itself, "./"
                self.folders.add(tuple(folders[:2]))
            if not member.is_folder:
                if split_key(path)[1] == _LABEL:
                    return False
                self._add(member, path)
        return True

    def take_samples(self, tar: TarFile, archive: str, members: Iterable[Member]) -> None:
        """Adds the samples of a WebDataset: members of one key, one behind the other."""
        self._tar, self._archive, self._seen = tar, archive, set[str]()
        for _, sample in groupby(self._keyed(members), itemgetter(0)):
            self._take_sample([*sample])

    def _usable(self, members: Iterable[Member]) -> Iterator[tuple[Member, str]]:
        """Members and their paths. Those that are no files, or have a name that none must have, are rejected."""
        for member in members:
            path, problem = member.name, member.problem
            if problem is None and (len(path) > _MOST_NAME_CHARACTERS or _ODD.search(path)):
                no_file = path.rpartition("/")[2] in ("", ".") and not member.is_folder
                if no_file or len(path) > _MOST_NAME_CHARACTERS or _HOSTILE.search(path):
                    problem = (
                        f"expected the name of a file inside the tar's folder, of at most {_MOST_NAME_CHARACTERS:,} "
                        "characters, none of which is a control character or a backslash"
                    )
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

    def _take_sample(self, sample: list[_Keyed]) -> None:
        """Adds the sample of these members, or why they are none."""
        pictures: list[_Keyed] = []
        labels: list[_Keyed] = []
        others: dict[str, Part] = {}
        for each in sample:
            if each.extension == _LABEL:
                labels.append(each)
            elif each.extension in PICTURES:
                pictures.append(each)
            else:
                others[each.extension] = each.member.offset_bytes, each.member.size_bytes
        if not self.with_fields or not (pictures or labels):
            for extension in others:
                self.drop(extension)
        if not pictures and not labels:
            return
        _, _, path, member = (pictures or labels)[0]
        try:
            if len(pictures) + len(labels) + len(others) < len(sample):
                ((twice, _),) = Counter(each.extension for each in sample if each.extension in others).most_common(1)
                raise ValueError(f"expected one member .{shown(twice, 20)} with this key, got several")
            label, ours = self._facts(len(pictures), [each.member for each in labels], others.get(NOTE))
        except ValueError as problem:
            self._add(member, path, str(problem))
            return
        if self._add(member, path, None, label, ours) and others and self.with_fields:
            self.members[len(self.sources) - 1] = others
            self.endings.update(others.keys())

    def _facts(self, pictures: int, labels: list[Member], note: Part | None) -> tuple[int, Ours | None]:
        """The label of a sample, and what its note tells, if it is ours; ValueError: it is none."""
        ours = None
        if note is not None:
            offset, most = note
            ours = read_ours(lambda size: self._tar.read(offset, min(size, most)))
        if not pictures:
            raise ValueError("a label without an image; expected KEY.jpg, .png, .webp, .bmp or .tif next to KEY.cls")
        if self.labelled and not labels:
            raise ValueError("an image without a label; expected KEY.cls next to it")
        if pictures > 1 or len(labels) > 1:
            raise ValueError(f"expected one image and one label with this key, got {pictures} and {len(labels)}")
        name = None if ours is None else ours.class_name
        label = self._label(labels[0], ours is not None) if labels else NO_LABEL
        if label != NO_LABEL:
            name = str(label) if name is None else name
            known = self.names[self._archive].setdefault(label, name)
            if known != name:
                raise ValueError(f"its label {label} is the class {name!r} here, and {known!r} before it")
        return label, ours

    def _label(self, member: Member, ours: bool) -> int:
        """The number in a KEY.cls; ValueError: it is none."""
        text = self._tar.read(member.offset_bytes, min(member.size_bytes, _MOST_DIGITS))
        if text == b"-1" and ours:
            return NO_LABEL
        number = _NUMBER.fullmatch(text) if member.size_bytes <= _MOST_DIGITS else None
        if number is None:
            raise ValueError(
                f"its label is {shown(repr(text)[1:], 40)}; expected a whole number of 0 or more, in decimal digits"
            )
        label = int(number[1])
        if label >= self.classes:
            raise ValueError(
                f"its label is {label}; expected a label below {self.classes:,}, a position in the list of classes"
            )
        return label

    def _add(
        self, member: Member, path: str, problem: str | None = None, label: int = 0, ours: Ours | None = None
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
        identity = None if ours is None else ours.identity
        size, mtime, ctime, _ = self._tar.state
        at = member.offset_bytes
        found = Source(
            whole, label, member.size_bytes, mtime, ctime, problem, self._archive, at, size, identity=identity
        )
        self.sources.append(found)
        return problem is None


def split_key(name: str) -> tuple[str, str]:
    """WebDataset's key of a member and its extension in small letters: cut at the first dot after the last slash.

    ("", "") if it has no extension, or is one of WebDataset's notes about the shard (__name__).
    """
    folder, slash, file = name.rpartition("/")
    stem, dot, extension = file.partition(".")
    if not stem or not dot or (name.startswith("__") and _NOTE.match(name)):
        return "", ""
    return folder + slash + stem, extension.lower()
