"""Rows of a manifest, of annotations or of a table, one an image -> a listing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.file_state import FileState
from fastpipe.format.layout import MOST_CLASSES, NO_LABEL
from fastpipe.packing.source.files import SourcePath, state_at
from fastpipe.packing.source.listing import Listing, Note, Notes, Source, SourceField
from fastpipe.remote.urls import SCHEME

_MOST_PATH_BYTES = 4096
_RUN_ROWS = 512
_FILES = ("mask", "image")  # kinds whose values may name files
_WEB = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Row:
    """What a manifest says of one image.

    Attributes:
        path: of the image's file, relative to the image root, with "/"; "": there is none.
        label: a number, the name of a class, or None.
        values: name -> value of its fields, as JSON has them; of "mask" and "image" the path of a file, relative to
            the image root.
        problem: why it cannot be packed; None: nothing is known.
        where: names the row: the file that it stands in, and its number there.
        size: width and height of the image, as the source has them; None: it has none.
    """

    path: str
    label: int | str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    where: str = ""
    size: tuple[int, int] | None = None


def row_name(file: str, number: int) -> str:
    """Names a row, such as train.csv/000123."""
    return f"{file}/{number:06d}"


def list_rows(
    image_root: SourcePath,
    rows: Iterable[Row],
    fields: Sequence[SourceField] = (),
    *,
    classes: Sequence[str] | None = None,
    numbered: bool | None = None,
    stray: Callable[[set[str]], list[str]] | None = None,
    place: str = "the image root; --image-root says where the images are",
) -> Listing:
    """Lists the images that rows name, in no order.

    Each row is a sample, called after its image's path. Rows with the same path are called PATH, PATH#2, PATH#3. Values
    are kept in `Notes`, so memory is bounded by the number of rows, not by their size.

    Args:
        image_root: the folder that paths are relative to.
        rows: in the order in which they stand.
        fields: of the samples.
        classes: names in the order of the labels, where the source has them; None: labels are numbers as they are, or
            names, sorted as ImageFolder does.
        numbered: whether labels are numbers, where that is known.
        stray: gets the paths that the rows name, and says which other files there are.
        place: names the image root, and says how to choose another one if the user can.

    Raises:
        PackError: labels are partly numbers and partly names, or values cannot be kept.
    """
    if not image_root.is_dir():
        raise PackError(f"{readable(str(image_root))} is no folder; expected {place}")
    notes = Notes()
    found = _Sources(image_root, fields, _Labels(classes, numbered), notes, set() if stray is not None else None, place)
    waiting = iter(rows)
    ahead = 1 if isinstance(image_root, Path) else _RUN_ROWS  # rows hold their values
    while run := list(islice(waiting, ahead)):
        found.look_ahead(run)
        for row in run:
            found.add(row)
    notes.flush()
    classes, order = found.labels.in_order()
    for at, source in enumerate(found.sources if order is not None else ()):  # in place: there may be millions
        if order is not None and source.label != NO_LABEL and order[source.label] != source.label:
            found.sources[at] = replace(source, label=order[source.label])
    beside = stray(found.named) if stray is not None and found.named is not None else []
    return Listing(image_root, list(classes), found.sources, beside, {}, tuple(fields), notes)


def relative_path(path: str, image_root: SourcePath) -> str:
    """A row's path as it names a sample: without "." and empty parts; an absolute one in the image root, from there.

    ".." and other absolute paths stay as they are. Where the image root is a URL, so is an absolute path. URLs of web
    servers have escapes.
    """
    if not isinstance(image_root, Path):
        path = unquote(path) if path.lower().startswith(_WEB) else path
        path = path.removeprefix(f"{image_root}/")
        return path if SCHEME.match(path) else str(PurePosixPath(path))
    if SCHEME.match(path):
        return path
    clean = PurePosixPath(path)
    if clean.is_absolute():
        root = PurePosixPath(os.path.abspath(image_root))
        if clean.is_relative_to(root):
            clean = clean.relative_to(root)
    return str(clean)


class _Sources:
    """Rows, one after the other -> sources."""

    def __init__(
        self,
        root: SourcePath,
        fields: Sequence[SourceField],
        labels: _Labels,
        notes: Notes,
        named: set[str] | None,
        place: str,
    ) -> None:
        self.labels = labels
        self.sources: list[Source] = []
        self.named = named
        self._root = root
        self._fields = fields
        self._notes = notes
        self._place = place
        self._taken: dict[str, int] = {}  # name -> how many rows have wanted it
        self._states: dict[str, FileState] = {}  # of files behind a URL: asked for many at a time

    def look_ahead(self, rows: Sequence[Row]) -> None:
        """Finds out the states of the files that these rows name, if each by itself would take long."""
        if isinstance(self._root, Path):
            return
        files = [each.name for each in self._fields if each.kind in _FILES]
        said = [path for row in rows for path in (row.path, *map(row.values.get, files)) if isinstance(path, str)]
        names = list(dict.fromkeys(relative_path(path, self._root) for path in said if _is_name(path)))
        found = self._root.look_up(names)
        self._states = {name: state for name, state in zip(names, found, strict=True) if state is not None}

    def add(self, row: Row) -> None:
        """One more row."""
        if not _is_name(row.path):
            why = row.problem or f"expected the path of an image, got {row.path[:60]!r}"
            self._refuse(row.where, why)
            return
        path = relative_path(row.path, self._root)
        if self.named is not None:
            self.named.add(path)
        found = self._state(path)
        try:
            if row.problem is not None or isinstance(found, str):
                raise ValueError(row.problem or found)
            label = self.labels.take(row.label, row.where)
            note, ctime_ns = self._keep(row) if self._fields or row.size else (None, 0)
        except ValueError as problem:
            self._refuse(path, f"{problem} ({row.where})")
            return
        name, ctime_ns = self._free(path), max(found.ctime_ns, ctime_ns)
        file = path if name != path else None
        self.sources.append(Source(name, label, found.size_bytes, found.mtime_ns, ctime_ns, file=file, note=note))

    def _state(self, path: str) -> FileState | str:
        if isinstance(self._root, Path):
            return _state(self._root, path, self._place)
        return self._states.get(path, _no_such_file(path, self._place))

    def _refuse(self, name: str, why: str) -> None:
        self.sources.append(Source(self._free(name), NO_LABEL, 0, 0, 0, why))

    def _free(self, name: str) -> str:
        """A name that no sample has: the name itself, or with #2, #3, ... behind it."""
        number = self._taken.get(name, 0) + 1
        while number > 1 and f"{name}#{number}" in self._taken:
            number += 1
        self._taken[name] = number
        if number > 1:
            name = f"{name}#{number}"
            self._taken[name] = 1
        return name

    def _keep(self, row: Row) -> tuple[Note, int]:
        """Writes the values of a row down; also gives the last ctime of the files that they name.

        Raises:
            ValueError: there is no such file, or a value cannot be kept.
        """
        values: dict[str, Any] = {}
        times: dict[str, FileState] = {}
        for each in self._fields:
            value = row.values.get(each.name)
            if each.kind in _FILES and value is not None and not isinstance(value, dict):
                if not isinstance(value, str) or not _is_name(value):
                    raise ValueError(f"field {each.name}: expected the path of a file, got {str(value)[:60]!r}")
                path = relative_path(value, self._root)
                found = self._state(path)
                if isinstance(found, str):
                    raise ValueError(f"field {each.name}: {readable(path)}: {found}")
                if self.named is not None:
                    self.named.add(path)
                value = {"file": path, "size_bytes": found.size_bytes}
                times[each.name] = found
            if value is not None:
                values[each.name] = value
        try:
            content = json.dumps([row.size, values]).encode()
            line = json.dumps([row.size, values, {name: state.mtime_ns for name, state in times.items()}]).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            raise ValueError(f"expected values that JSON can hold: {problem}") from None
        state = xxhash.xxh3_64_intdigest(line + repr(times).encode())
        note = Note(self._notes.add(line), len(line), xxhash.xxh3_64_intdigest(content), state)
        return note, max((state.ctime_ns for state in times.values()), default=0)


def _is_name(path: str) -> bool:
    """Whether a file can have this name."""
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return b"\0" not in data and 0 < len(data) <= _MOST_PATH_BYTES


def _no_such_file(path: str, place: str) -> str:
    return f"a URL that is not in {place}" if SCHEME.match(path) else f"no such file in {place}"


def _state(root: SourcePath, path: str, place: str) -> FileState | str:
    """Size and times of a file, or why it cannot be read."""
    try:
        found = state_at(root, path)
    except FileNotFoundError:
        return _no_such_file(path, place)
    except OSError as problem:
        return f"cannot be read: {problem.strerror}"
    return found if found.is_regular else "not a regular file (a folder, pipe, socket or device)"


class _Labels:
    """The labels of rows, as they come -> numbers, and at the end the classes."""

    def __init__(self, classes: Sequence[str] | None, numbered: bool | None) -> None:
        self._known = classes
        self._numbers = {name: number for number, name in enumerate(classes or ())}
        self._numbered = numbered
        self._first = ""  # the row that decided it
        self._most = NO_LABEL

    def take(self, label: object, where: str) -> int:
        """The number of a label, for now.

        Raises:
            ValueError: it is no label.
            PackError: it is a number where others are names, or the other way round.
        """
        if label is None:
            return NO_LABEL
        if isinstance(label, float) and label.is_integer():
            label = int(label)  # 2.0, as pandas writes it if another one is missing
        if isinstance(label, bool) or not isinstance(label, (int, str)):
            raise ValueError(f"label: expected a whole number or the name of a class, got {label!r:.60}")
        numbered = isinstance(label, int)
        if numbered and label == NO_LABEL:
            return NO_LABEL
        if self._known is None and self._numbered not in (None, numbered):
            raise PackError(
                f"labels are numbers and names: {label!r} in {where} is a {'number' if numbered else 'name'}, "
                f"{'those before it are names' if numbered else 'those before it are numbers'}. Expected only one of "
                "both; in JSONL, write all labels as numbers or all as texts"
            )
        self._numbered = numbered
        if isinstance(label, str):
            if not _is_name(label):
                raise ValueError(f"label: expected the name of a class, got {label[:60]!r}")
            if self._known is not None and label not in self._numbers:
                raise ValueError(f"label: expected one of the {len(self._known)} classes, got {label[:60]!r}")
            return self._numbers.setdefault(label, len(self._numbers))
        most = MOST_CLASSES if self._known is None else len(self._known)
        if not 0 <= label < most:
            raise ValueError(f"label: expected -1 (none) or 0 to {most - 1:,}, got {label}")
        self._most = max(self._most, label)
        return label

    def in_order(self) -> tuple[Sequence[str], list[int] | None]:
        """Names of the classes; and for each number that `take` gave the final one, None where they are the same."""
        if self._known is not None:
            return self._known, None
        if not self._numbers:
            return [str(label) for label in range(self._most + 1)], None
        names = sorted(self._numbers)
        place = {name: number for number, name in enumerate(names)}
        return names, [place[name] for name in self._numbers]
