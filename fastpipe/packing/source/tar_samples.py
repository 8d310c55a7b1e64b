"""A tar's members -> sources: a WebDataset's samples, with their labels, or the files of an image folder."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fastpipe.format.layout import MOST_CLASSES, NO_LABEL
from fastpipe.format.sample_layout import read_ours
from fastpipe.packing.source.field_names import NOTE, PICTURES
from fastpipe.packing.source.listing import Part, Source
from fastpipe.packing.source.tar_reader import Member, TarFile, shown

LABEL = "cls"
MOST_NAME_CHARACTERS = 1024

_MOST_KINDS = 100  # of members that are counted one by one
_MOST_DIGITS = 64
_NUMBER = re.compile(rb"\s*\+?([0-9]{1,18})\s*")
_NOTE = re.compile("__[^/]*__($|/)")
# A terminal acts on control characters, and some programs take a backslash for a slash.
_STRANGE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")
# Most names have none of that, nor a part that is empty, "." or "..".
_ODD = re.compile(_STRANGE.pattern + r"|(^|/)\.{0,2}(/|$)")


@dataclass
class Gathered:
    """What the members of the tars came to so far.

    Attributes:
        sources: samples, and members that cannot be any, with the reason.
        folders: those that files lie in, or that are members, as their first two names or their only one.
        dropped: members that are neither picture nor label: how many, by extension.
        members: of some sources, by their position, the members that may be values of fields, by extension.
        endings: of these: how many.
        names: of each tar, the names of its labels.
    """

    sources: list[Source] = field(default_factory=list)
    folders: set[tuple[str, ...]] = field(default_factory=set)
    dropped: dict[str, int] = field(default_factory=dict)
    members: dict[int, dict[str, Part]] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    names: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    def drop(self, extension: str, members: int = 1) -> None:
        """Counts members that are left out."""
        extension = shown(extension, 20)
        kind = extension if extension in self.dropped or len(self.dropped) < _MOST_KINDS else "other"
        self.dropped[kind] = self.dropped.get(kind, 0) + members


class Rules(NamedTuple):
    """What a sample of a WebDataset has to be.

    Attributes:
        classes: labels are below this; None: below MOST_CLASSES.
        labelled: it has a label; else it must not have one.
        with_fields: its further members may be fields; else they are left out.
    """

    classes: int | None = None
    labelled: bool = True
    with_fields: bool = True


def split_key(name: str) -> tuple[str, str] | None:
    """WebDataset's key of a member and its extension in small letters: cut at the first dot after the last slash.

    None if it has no extension, or is one of WebDataset's notes about the shard (__name__).
    """
    folder, slash, file = name.rpartition("/")
    stem, dot, extension = file.partition(".")
    if not stem or not dot or (name.startswith("__") and _NOTE.match(name)):
        return None
    return folder + slash + stem, extension.lower()


class _Tar:
    """A tar of a source, whose members become sources.

    Args:
        tar: open.
        archive: its path, relative to the source; "" where it is the source.
        gathered: gets the sources.
    """

    def __init__(self, tar: TarFile, archive: str, gathered: Gathered) -> None:
        self.file, self.archive, self.gathered = tar, archive, gathered
        self._seen: set[str] = set()

    def usable(self, members: Iterable[Member]) -> Iterator[tuple[Member, str]]:
        """Members and their paths. Those that are no files, or have a name that none must have, are rejected."""
        for member in members:
            path, problem = member.name, member.problem
            if problem is None and (len(path) > MOST_NAME_CHARACTERS or _ODD.search(path)):
                problem = _flaw(member)
                path = "/".join(part for part in path.split("/") if part not in ("", "."))
            if problem is None:
                yield member, path
            else:
                self.reject(member, problem)

    def add(self, path: str, member: Member, label: int = 0, identity: int | None = None) -> bool:
        """Adds a picture, if it is the first of its path; else the reason against it, and returns False."""
        if path in self._seen:
            self.reject(member, "an earlier member has the same name: unpacking the tar would overwrite it")
            return False
        self._seen.add(path)
        self._put(path, member, label, None, identity)
        return True

    def reject(self, member: Member, problem: str) -> None:
        """Adds what is no picture, with the reason, under a name that is no other one's path."""
        self._put(f"{shown(member.name)} (at byte {member.header_bytes})", member, 0, problem, None)

    def _put(self, path: str, member: Member, label: int, problem: str | None, identity: int | None) -> None:
        whole = f"{self.archive}/{path}" if self.archive else path
        size, mtime, ctime, _ = self.file.state
        at = member.offset_bytes
        found = Source(
            whole, label, member.size_bytes, mtime, ctime, problem, self.archive, at, size, identity=identity
        )
        self.gathered.sources.append(found)


def gather_files(tar: TarFile, members: Iterable[Member], archive: str, gathered: Gathered) -> bool:
    """Adds all members as files, under their own names, as of an image folder.

    Returns:
        Whether it came to the end: False at the first label, for then the tars are a WebDataset.
    """
    into = _Tar(tar, archive, gathered)
    for member, path in into.usable(members):
        folders = path.split("/", 2)
        if not member.is_folder:
            folders.pop()
        if folders and path:  # not the source itself, "./"
            gathered.folders.add(tuple(folders[:2]))
        if member.is_folder:
            continue
        parts = split_key(path)
        if parts is not None and parts[1] == LABEL:
            return False
        into.add(path, member)
    return True


def gather_samples(tar: TarFile, members: Iterable[Member], archive: str, gathered: Gathered, rules: Rules) -> None:
    """Adds the samples of a WebDataset: members of one key, one behind the other."""
    into, sample = _Tar(tar, archive, gathered), _Sample("")
    for member, path in into.usable(members):
        if member.is_folder:
            continue
        parts = split_key(path)
        if parts is None:
            gathered.drop("without extension")
            continue
        key, extension = parts
        if key != sample.key:
            sample.end(into, rules)
            sample = _Sample(key)
        if extension == LABEL:
            sample.labels.append((path, member))
        elif extension in PICTURES:
            sample.pictures.append((path, member))
        else:
            if extension == NOTE:
                sample.ours = _ours(tar, member)
            if rules.with_fields:
                sample.take(extension, member)
            else:
                gathered.drop(extension)
    sample.end(into, rules)


@dataclass(slots=True)
class _Sample:
    """Members of one key, as far as they matter.

    Attributes:
        key: theirs.
        pictures, labels: each with its path.
        others: further members, by extension.
        twice: an extension that several of these have.
        ours: of a sample of a packed dataset its class's name and its identity, or why they cannot be read.
    """

    key: str
    pictures: list[tuple[str, Member]] = field(default_factory=list)
    labels: list[tuple[str, Member]] = field(default_factory=list)
    others: dict[str, Part] = field(default_factory=dict)
    twice: str | None = None
    ours: tuple[str | None, int] | str | None = None

    def take(self, extension: str, member: Member) -> None:
        """Adds a member that may be a field's value."""
        if extension in self.others and self.twice is None:
            self.twice = extension
        self.others[extension] = member.offset_bytes, member.size_bytes

    def end(self, into: _Tar, rules: Rules) -> None:
        """Adds it to the sources, or why it is none."""
        gathered = into.gathered
        if not self.pictures and not self.labels:
            for extension in self.others:
                gathered.drop(extension)
            return
        path, member = (self.pictures or self.labels)[0]
        problem = self._problem(rules)
        label: int | str = NO_LABEL
        if problem is None and self.labels:
            label = _label(into.file, self.labels[0][1], rules, self.ours is not None)
        name, identity = self.ours if isinstance(self.ours, tuple) else (None, None)
        if isinstance(label, int) and label != NO_LABEL:
            name = str(label) if name is None else name
            known = gathered.names[into.archive].setdefault(label, name)
            if known != name:
                label = f"its label {label} is the class {name!r} here, and {known!r} before it"
        if problem is not None or isinstance(label, str):
            into.reject(member, problem or str(label))
        elif into.add(path, member, label, identity) and self.others:
            gathered.members[len(gathered.sources) - 1] = self.others
            gathered.endings.update(self.others.keys())

    def _problem(self, rules: Rules) -> str | None:
        """What speaks against it as a sample, before its label is read."""
        pictures, labels = len(self.pictures), len(self.labels)
        if self.twice is not None:
            return f"expected one member .{shown(self.twice, 20)} with this key, got several"
        if isinstance(self.ours, str):
            return self.ours
        if pictures == 1 and labels == rules.labelled:
            return None
        if not pictures:
            return "a label without an image; expected KEY.jpg, .png, .webp, .bmp or .tif next to KEY.cls"
        if rules.labelled and not labels:
            return "an image without a label; expected KEY.cls next to it"
        if rules.labelled:
            return f"expected one image and one label with this key, got {pictures} and {labels}"
        return f"expected one image with this key, got {pictures}"


def _ours(tar: TarFile, note: Member) -> tuple[str | None, int] | str | None:
    try:
        return read_ours(lambda size: tar.read(note.offset_bytes, min(size, note.size_bytes)))
    except ValueError as problem:
        return f"{shown(note.name)} is damaged: {problem}"


def _label(tar: TarFile, member: Member, rules: Rules, ours: bool) -> int | str:
    """The number in a KEY.cls, or why it is none."""
    text = tar.read(member.offset_bytes, min(member.size_bytes, _MOST_DIGITS))
    if text == b"-1" and ours:
        return NO_LABEL
    number = _NUMBER.fullmatch(text) if member.size_bytes <= _MOST_DIGITS else None
    if number is None:
        return f"its label is {shown(repr(text)[1:], 40)}; expected a whole number of 0 or more, in decimal digits"
    label, most = int(number[1]), MOST_CLASSES if rules.classes is None else rules.classes
    if label >= most:
        return f"its label is {label}; expected a label below {most:,}, a position in the list of classes"
    return label


def _flaw(member: Member) -> str | None:
    """What is wrong with a name. Nothing is ever written under it; but what leads out of a folder is no picture."""
    name = member.name
    if name.startswith("/"):
        return "an absolute name; expected a name relative to the tar"
    if ".." in name.split("/"):
        return 'a name with ".."; expected a name that stays inside its folder'
    if len(name) > MOST_NAME_CHARACTERS:
        return f"a name of {len(name):,} characters; expected at most {MOST_NAME_CHARACTERS:,}"
    if (strange := _STRANGE.search(name)) is not None:
        return f"a name with {strange[0]!a}; expected no control characters and no backslashes"
    if not member.is_folder and name.rpartition("/")[2] in ("", "."):
        return "a file with the name of a folder"
    return None
