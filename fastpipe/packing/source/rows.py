"""Rows of a manifest, of annotations or of a table, one an image -> a listing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import xxhash

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.file_state import FileState
from fastpipe.format.layout import MOST_CLASSES, NO_LABEL
from fastpipe.packing.source.column_kinds import field_value, is_no_label
from fastpipe.packing.source.field_names import Columns
from fastpipe.packing.source.files import SourcePath, state_or_problem
from fastpipe.packing.source.listing import Listing, Note, Notes, Source, SourceField
from fastpipe.remote.urls import SCHEME

_MOST_PATH_BYTES = 4096
_RUN_ROWS = 512
_FILES = ("mask", "image")  # kinds whose values may name files
_WEB = ("http://", "https://")


class Row(NamedTuple):
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
    values: Mapping[str, Any] = {}
    problem: str | None = None
    where: str = ""
    size: tuple[int, int] | None = None


class Record(NamedTuple):
    """One record of a table.

    Attributes:
        where: names it: the file, and the number of the record or line there.
        values: column -> value; None where there is a problem.
        problem: why it has no values.
    """

    where: str
    values: Mapping[str, Any] | None
    problem: str | None = None


def row_name(file: str, number: int) -> str:
    """Names a row, such as train.csv/000123."""
    return f"{file}/{number:06d}"


def rows_of(
    records: Iterable[Record], columns: Columns, *, typed: bool = True, numbered: bool | None = None
) -> Iterator[Row]:
    """What records say of the images.

    Args:
        records: of a table.
        columns: that count.
        typed: False: values are texts.
        numbered: whether labels that are texts are numbers.
    """
    for where, said, problem in records:
        if said is None:
            yield Row("", problem=problem, where=where)
            continue
        path = said.get(columns.image)
        if not isinstance(path, str) or not path:
            got = "none" if path in (None, "") else repr(path)[:60]
            yield Row("", problem=f"column {columns.image}: expected the path of an image, got {got}", where=where)
            continue
        label = said.get(columns.label) if columns.label is not None else None
        if isinstance(label, str) and not typed:
            label = label.strip()
            if is_no_label(label):
                label = None
            elif numbered:
                label = int(label.partition(".")[0])
        elif isinstance(label, str) and not label.strip():
            label = None
        values: dict[str, Any] = {}
        for each in columns.fields:
            try:
                values[each.name] = field_value(said.get(each.column), each, typed=typed)
            except ImageError as wrong:
                problem = f"field {each.name}: {wrong}"
        yield Row(path, label, values, problem, where)


def list_rows(
    image_root: SourcePath,
    rows: Iterable[Row],
    fields: Sequence[SourceField] = (),
    *,
    classes: Sequence[str] | None = None,
    stray: Callable[[Container[str]], list[str]] | None = None,
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
        stray: gets the paths that the rows name, and says which other files there are.
        place: names the image root, and says how to choose another one if the user can.

    Raises:
        PackError: labels are partly numbers and partly names, or values cannot be kept; or a field is of bytes.
    """
    for each in fields:
        if each.kind == "bytes":
            raise PackError(
                f"field {each.name}: column {each.column!r}: rows that name their images hold no bytes. Choose the "
                "columns to store with --field NAME=COLUMN; text or json can hold values of such a column"
            )
    if not image_root.is_dir():
        raise PackError(f"{readable(str(image_root))} is no folder; expected {place}")
    notes, labels = Notes(), Labels(classes)
    found = _Sources(image_root, fields, labels, notes, place)
    waiting = iter(rows)
    ahead = 1 if isinstance(image_root, Path) else _RUN_ROWS  # rows hold their values
    while run := list(islice(waiting, ahead)):
        found.look_ahead(run)
        for row in run:
            found.add(row)
    notes.flush()
    beside = stray(found.taken) if stray is not None else []
    return Listing(image_root, labels.settle(found.sources), found.sources, beside, {}, tuple(fields), notes)


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
        self, root: SourcePath, fields: Sequence[SourceField], labels: Labels, notes: Notes, place: str
    ) -> None:
        self.sources: list[Source] = []
        self.taken: dict[str, int] = {}  # name -> how many rows have wanted it; and 0 for files of fields
        self._labels = labels
        self._root = root
        self._fields = fields
        self._notes = notes
        self._place = place
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
        found = self._state(path)
        try:
            if row.problem is not None or isinstance(found, str):
                raise ValueError(row.problem or found)
            label = self._labels.take(row.label, row.where)
            note, ctime_ns = self._keep(row) if self._fields or row.size else (None, 0)
        except ValueError as problem:
            self._refuse(path, f"{problem} ({row.where})")
            return
        name, ctime_ns = self._free(path), max(found.ctime_ns, ctime_ns)
        file = path if name != path else None
        self.sources.append(Source(name, label, found.size_bytes, found.mtime_ns, ctime_ns, file=file, note=note))

    def _state(self, path: str) -> FileState | str:
        """Size and times of a file, or why it cannot be read."""
        absent = f"{'a URL that is not' if SCHEME.match(path) else 'no such file'} in {self._place}"
        if isinstance(self._root, Path):
            return state_or_problem(self._root, path, absent)
        return self._states.get(path, absent)

    def _refuse(self, name: str, why: str) -> None:
        self.sources.append(Source(self._free(name), NO_LABEL, 0, 0, 0, why))

    def _free(self, name: str) -> str:
        """A name that no sample has: the name itself, or with #2, #3, ... behind it."""
        number = self.taken.get(name, 0) + 1
        while number > 1 and f"{name}#{number}" in self.taken:
            number += 1
        self.taken[name] = number
        if number > 1:
            name = f"{name}#{number}"
            self.taken[name] = 1
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
                self.taken.setdefault(path, 0)
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


class Labels:
    """The labels of rows, as they come -> numbers, and at the end the classes.

    Args:
        classes: names in the order of the labels, if they are known.
    """

    def __init__(self, classes: Sequence[str] | None) -> None:
        self._known = classes
        self._numbers = {name: number for number, name in enumerate(classes or ())}
        self._numbered: bool | None = None  # whether labels are numbers, as the first one says
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
            this, others = ("number", "names") if numbered else ("name", "numbers")
            raise PackError(
                f"labels are numbers and names: {label!r} in {where} is a {this}, those before it are {others}. "
                "Expected only one of both; in JSONL, write all labels as numbers or all as texts"
            )
        self._numbered = numbered
        if isinstance(label, str):
            if label and not _is_name(label):
                raise ValueError(f"label: expected the name of a class, got {label[:60]!r}")
            if self._known is not None and label not in self._numbers:
                raise ValueError(f"label: expected one of the {len(self._known)} classes, got {label[:60]!r}")
            return self._numbers.setdefault(label, len(self._numbers))
        most = MOST_CLASSES if self._known is None else len(self._known)
        if not 0 <= label < most:
            raise ValueError(f"label: expected -1 (none) or 0 to {most - 1:,}, got {label}")
        self._most = max(self._most, label)
        return label

    def settle(self, sources: list[Source]) -> list[str]:
        """Names of the classes, sorted where the source has no order; gives sources their labels in this order."""
        if self._known is not None:
            return list(self._known)
        if not self._numbers:
            return [str(label) for label in range(self._most + 1)]
        names = sorted(self._numbers)
        place = {name: number for number, name in enumerate(names)}
        order = [place[name] for name in self._numbers]
        for at, source in enumerate(sources):  # in place: there may be millions
            if source.label != NO_LABEL and order[source.label] != source.label:
                sources[at] = replace(source, label=order[source.label])
        return names
