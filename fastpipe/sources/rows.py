"""Rows of a manifest, of annotations or of a table, one an image -> a listing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import xxhash

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.folder import Url, scheme_of
from fastpipe.format.layout import MOST_CLASSES, NO_LABEL
from fastpipe.format.open_file import FileState
from fastpipe.sources.column_kinds import NO_LABELS, field_value
from fastpipe.sources.files import SourcePath, state_or_problem
from fastpipe.sources.likely import numbers_as_texts
from fastpipe.sources.listing import (
    Assumption,
    Listing,
    Note,
    Notes,
    Source,
    SourceField,
    relabel_sources,
)
from fastpipe.sources.options import KEEP, ColumnChoice
from fastpipe.sources.placed import Placed, placed
from fastpipe.sources.split_column import SplitColumn
from fastpipe.sources.unlisted import Unlisted, assumption_of, images_without_row
from fastpipe.sources.written_names import WrittenNames

_MOST_PATH_BYTES = 4096
_MOST_TWICE = 100_000  # images in several rows that are counted
_FILES = ("mask", "image")  # kinds whose values may name files


class Row(NamedTuple):
    """What a source says of one image. Paths have "/", and are relative to the image root."""

    where: str  # names it: the file that it stands in, and its number there
    values: Mapping[
        str, Any
    ] = {}  # as JSON has them, by column, from `rows_of` on by field; of "mask", "image": paths
    problem: str | None = None  # why it cannot be packed; None: nothing is known
    path: str = ""  # of the image's file
    label: int | str | None = None  # a number, or the name of a class
    size: tuple[int, int] | None = None  # width and height, if the source says them
    is_of_another: bool = (
        False  # of another split, of which only the label counts: all splits have the same classes
    )


class Rows:
    """Rows that can be read several times."""

    def __init__(self, begin: Callable[[], Iterator[Row]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Row]:
        return self._begin()


def row_name(file: str, number: int) -> str:
    """Names a row, such as train.csv/000123."""
    return f"{file}/{number:06d}"


def rows_of(
    rows: Iterable[Row],
    columns: ColumnChoice,
    *,
    typed: bool = True,
    numbered: bool = False,
    split: SplitColumn | None = None,
) -> Iterator[Row]:
    """Rows of a table -> with path, label and fields. Not `typed`: values are texts, and labels may be `numbered`."""
    for row in rows:
        path: Any = row.values.get(columns.image)
        problem = row.problem
        if problem is None and (not isinstance(path, str) or not path):
            got = "none" if path in (None, "") else repr(path)[:60]
            problem = f"column {columns.image}: expected the path of an image, got {got}"
        if problem is not None:
            yield Row(row.where, problem=problem)
            continue
        label = None if columns.label is None else row.values.get(columns.label)
        if isinstance(label, str):
            bare = label.strip()
            if not bare or (not typed and bare in NO_LABELS):
                label = None
            elif not typed:
                label = int(bare.partition(".")[0]) if numbered else bare
        if split is not None and not split.has(row.values):
            yield Row(row.where, path=path, label=label, is_of_another=True)
            continue
        values: dict[str, Any] = {}
        for each in columns.fields:
            try:
                value: Any = row.values.get(each.column)
                if each.columns:
                    value = [row.values.get(column) for column in each.columns]
                values[each.name] = field_value(value, each, typed=typed)
            except ImageError as wrong:
                problem = f"field {each.name}: {wrong}"
        yield Row(row.where, values, problem, path, label)


def list_rows(
    image_root: SourcePath,
    rows: Iterable[Row],
    fields: Sequence[SourceField] = (),
    *,
    classes: Sequence[str] | None = None,
    beside: Iterable[str] = (),
    place: str = "the image root; --image-root says where the images are",
    assumed: Iterable[Assumption] = (),
    unlisted: Unlisted | None = None,
    table: str = "",
) -> Listing:
    """Lists the images of rows, in no order, as PATH, PATH#2, PATH#3; files of `beside` without a row are stray.
    `unlisted`: what becomes of images in the folders of these images that have no row; None: nobody looks for them.
    `table`: the name of the file with the rows, which can be read again where no row has an image, see Note [images
    elsewhere]; "": images are where rows say.
    """
    for each in fields:
        if each.kind == "bytes":
            raise PackError(
                f"field {each.name}: column {each.column!r}: rows that name their images hold no bytes. Choose the "
                "columns to store with --field NAME=COLUMN; text or json can hold values of such a column"
            )
    if not image_root.is_dir():
        raise PackError(f"{readable(str(image_root))} is no folder; expected {place}")
    labels = Labels(classes)
    taken = _take(image_root, rows, fields, place, labels)
    assumed = list(assumed)
    if table and not taken.has_files and isinstance(image_root, Path):
        put = placed(
            image_root,
            (row.path for row in rows if is_name(row.path) and not scheme_of(row.path)),
            table,
        )
        if put is not None:
            taken = _take(image_root, _at_their_place(rows, put, fields), fields, place, labels)
            assumed.append(put.assumption)
    sources = taken.sources
    assumed += taken.assumed()
    if unlisted is not None:
        without_row = images_without_row(image_root, taken.names, taken.elsewhere)
        if unlisted.choice == KEEP:
            taken.take([Row(path, unlisted.values, path=path) for path in without_row])
        elif unlisted.choice is None:
            assumed += assumption_of(without_row, len(sources))
    taken.notes.flush()
    stray = sorted(
        path for path in beside if path not in taken.names and path not in taken.elsewhere
    )
    classes = labels.settle(sources)
    assumed += labels.assumed(classes)
    return Listing(
        image_root,
        classes,
        sources,
        stray,
        fields=tuple(fields),
        notes=taken.notes,
        assumed=tuple(assumed),
    )


def _take(
    image_root: SourcePath,
    rows: Iterable[Row],
    fields: Sequence[SourceField],
    place: str,
    labels: Labels,
) -> _Taken:
    """Takes all rows, some at a time: they hold their values, and files behind a URL are asked for many at once."""
    taken, waiting = _Taken(image_root, fields, place, labels), iter(rows)
    while run := list(islice(waiting, 64 if isinstance(image_root, Path) else 512)):
        taken.take(run)
    return taken


def _at_their_place(
    rows: Iterable[Row], put: Placed, fields: Sequence[SourceField]
) -> Iterator[Row]:
    """The rows with the paths of their files."""
    files = [each.name for each in fields if each.kind in _FILES]
    for row in rows:
        values = dict(row.values)
        for name in files:
            if isinstance(values.get(name), str):
                values[name] = put.path(values[name], is_image=False)
        path = put.path(row.path, is_image=True) if row.path else ""
        yield row._replace(path=path, values=values)


def clean_path(path: str) -> str:
    """A path without "." and doubled slashes, which mean nothing; URLs stay as they are."""
    return path if scheme_of(path) else str(PurePosixPath(path))


def _relative_path(path: str, image_root: SourcePath) -> str:
    """A row's path as it names a sample: clean, from the image root on. URLs of web servers have escapes."""
    if not isinstance(image_root, Path):
        path = (unquote(path) if Url(path).is_web else path).removeprefix(f"{image_root}/")
    if scheme_of(path):
        return path
    if path[:1] not in ("", ".", "/") and "//" not in path and "/." not in path and path[-1] != "/":
        return path  # as most are: a PurePosixPath for each of a million rows would take seconds
    clean = PurePosixPath(path)
    if clean.is_absolute() and isinstance(image_root, Path):
        root = PurePosixPath(os.path.abspath(image_root))
        clean = clean.relative_to(root) if clean.is_relative_to(root) else clean
    return str(clean)


class _Taken:
    """What rows have taken so far: names, labels, notes."""

    def __init__(
        self, root: SourcePath, fields: Sequence[SourceField], place: str, labels: Labels
    ) -> None:
        self.names: dict[
            str, int
        ] = {}  # -> how many rows have wanted it; and 0 for files of fields
        self.notes = Notes()
        self.labels = labels
        self._root, self._fields, self._place = root, fields, place
        self._states: dict[
            str, FileState | str
        ] = {}  # of the files of some rows, or why they cannot be read
        self._written = WrittenNames(root)
        self._paths: dict[
            str, str
        ] = {}  # as some rows write them -> of the files, where they differ
        self._twice: dict[str, None] = {}  # paths of images that several rows have
        self.sources: list[Source] = []
        self.elsewhere = set[str]()  # paths of images of other splits
        self.has_files = False  # whether a row has a file

    def take(self, rows: Sequence[Row]) -> None:
        """Takes some rows."""
        ours = [row for row in rows if not row.is_of_another]
        self.look_up(ours)
        self.sources += map(self.source, ours)
        if len(ours) < len(rows):
            for row in rows:
                if row.is_of_another:
                    self._take_of_another(row)

    def _take_of_another(self, row: Row) -> None:
        if is_name(row.path):
            self.elsewhere.add(_relative_path(row.path, self._root))
        with suppress(ValueError):  # such a row is rejected when its split is packed
            self.labels.take(row.label, row.where)

    def look_up(self, rows: Sequence[Row]) -> None:
        """Finds the files of rows, which `source` takes then."""
        files = [each.name for each in self._fields if each.kind in _FILES]
        said: list[Any] = [path for row in rows for path in (row.path, *map(row.values.get, files))]
        paths = list(
            dict.fromkeys(_relative_path(path, self._root) for path in said if is_name(path))
        )
        absent = [
            f"{'a URL that is not' if scheme_of(path) else 'no such file'} in {self._place}"
            for path in paths
        ]
        if isinstance(self._root, Path):
            found: Iterable[FileState | str] = map(
                partial(state_or_problem, self._root), paths, absent
            )
        else:
            found = (
                state or why for state, why in zip(self._root.look_up(paths), absent, strict=True)
            )
        self._states = dict(zip(paths, found, strict=True))
        self._paths = {}
        for path, why in zip(paths, absent, strict=True):
            if self._states[path] == why and not scheme_of(path):
                self._find(path)

    def _find(self, written: str) -> None:
        """Looks for the file that a row means by a path, where there is none of this very name."""
        try:
            path = self._written.find(written)
        except ValueError as several:
            self._states[written] = str(several)
            return
        if path is not None:
            self._paths[written] = path
            self._states[written] = state_or_problem(self._root, path)

    def source(self, row: Row) -> Source:
        path = _relative_path(row.path, self._root) if is_name(row.path) else ""
        try:
            if row.problem is not None or not path:
                raise ValueError(
                    row.problem or f"expected the path of an image, got {row.path[:60]!r}"
                )
            found = self._state(path)
            self.has_files = True
            label = self.labels.take(row.label, row.where)
            note, ctime_ns = self._keep(row) if self._fields or row.size else (None, 0)
        except ValueError as problem:
            why = f"{problem} ({row.where})" if path else str(problem)
            if path in self._paths:
                self.names.setdefault(self._paths[path], 0)  # so it is no image without a row
            return Source(self._free(path or row.where), NO_LABEL, 0, 0, 0, why)
        path = self._paths.get(path, path)
        name, ctime_ns = self._free(path), max(found.ctime_ns, ctime_ns)
        file = path if name != path else None
        if file is not None and len(self._twice) < _MOST_TWICE:
            self._twice[path] = None
        return Source(name, label, found.size_bytes, found.mtime_ns, ctime_ns, file=file, note=note)

    def assumed(self) -> tuple[Assumption, ...]:
        """What of the rows is not certain."""
        if not self._twice:
            return ()
        number, first = len(self._twice), next(iter(self._twice))
        count = f"{number:,} images are" if number > 1 else "an image is"
        at_least = "at least " if number == _MOST_TWICE else ""
        shown = readable(first)
        return (
            Assumption(
                f"rows: {at_least}{count} in several rows, and each row is a sample: {shown}, {shown}#2"
            ),
        )

    def _state(self, path: str, whose: str = "") -> FileState:
        found = self._states[path]
        if isinstance(found, str):
            raise ValueError(f"{whose}{found}")
        return found

    def _free(self, name: str) -> str:
        """A name that no sample has: the name itself, or with #2, #3, ... behind it."""
        free, number = name, self.names.get(name, 0) + 1
        while number > 1 and (free := f"{name}#{number}") in self.names:
            number += 1
        self.names[free] = 1
        self.names[name] = number
        return free

    def _keep(self, row: Row) -> tuple[Note, int]:
        """Writes the values of a row down; also gives the last ctime of their files. ValueError: it cannot be."""
        values: dict[str, Any] = {}
        times: dict[str, FileState] = {}
        for each in self._fields:
            value = row.values.get(each.name)
            if each.kind in _FILES and value is not None and not isinstance(value, dict):
                if not is_name(value):
                    raise ValueError(
                        f"field {each.name}: expected the path of a file, got {str(value)[:60]!r}"
                    )
                path = _relative_path(value, self._root)
                times[each.name] = found = self._state(
                    path, f"field {each.name}: {readable(path)}: "
                )
                path = self._paths.get(path, path)
                self.names.setdefault(path, 0)
                value = {"file": path, "size_bytes": found.size_bytes}
            if value is not None:
                values[each.name] = value
        try:
            content = json.dumps([row.size, values]).encode()
            line = json.dumps(
                [row.size, values, {name: state.mtime_ns for name, state in times.items()}]
            ).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            raise ValueError(f"expected values that JSON can hold: {problem}") from None
        state = xxhash.xxh3_64_intdigest(line + repr(times).encode())
        note = Note(self.notes.add(line), len(line), xxhash.xxh3_64_intdigest(content), state)
        return note, max((state.ctime_ns for state in times.values()), default=0)


def is_name(path: object) -> bool:
    """Whether a file can have this name."""
    try:
        return (
            isinstance(path, str)
            and "\0" not in path
            and 0 < len(os.fsencode(path)) <= _MOST_PATH_BYTES
        )
    except UnicodeEncodeError:
        return False


class Labels:
    """The labels of rows, as they come -> numbers, and at the end the classes, sorted unless they are given."""

    def __init__(self, classes: Sequence[str] | None) -> None:
        self._known = classes
        self._numbers = {name: number for number, name in enumerate(classes or ())}
        self._numbered: bool | None = None  # whether labels are numbers, as the first one says
        self._most = NO_LABEL
        self._least = MOST_CLASSES  # of labels that are numbers

    def take(self, label: object, where: str) -> int:
        """Its number, for now. ValueError: it is none; PackError: a number among names, or a name of them."""
        if isinstance(label, float) and label.is_integer():
            label = int(label)  # 2.0, as pandas writes it if another one is missing
        if label in (None, NO_LABEL):
            return NO_LABEL
        numbered = isinstance(label, int)
        if isinstance(label, bool) or not isinstance(label, (int, str)):
            raise ValueError(
                f"label: expected a whole number or the name of a class, got {label!r:.60}"
            )
        if self._known is None and self._numbered not in (None, numbered):
            this, others = ("number", "names") if numbered else ("name", "numbers")
            raise PackError(
                f"labels are numbers and names: {label!r} in {where} is a {this}, those before it are {others}. "
                "Expected only one of both; in JSONL, write all labels as numbers or all as texts"
            )
        self._numbered = numbered
        if isinstance(label, int):
            most = MOST_CLASSES if self._known is None else len(self._known)
            if not 0 <= label < most:
                raise ValueError(f"label: expected -1 (none) or 0 to {most - 1:,}, got {label}")
            self._most, self._least = max(self._most, label), min(self._least, label)
            return label
        if (label and not is_name(label)) or (
            self._known is not None and label not in self._numbers
        ):
            what = "a class" if self._known is None else f"one of the {len(self._known)} classes"
            raise ValueError(f"label: expected the name of {what}, got {label[:60]!r}")
        return self._numbers.setdefault(label, len(self._numbers))

    def settle(self, sources: list[Source]) -> list[str]:
        """Names of the classes, sorted where the source has no order; gives sources their labels in this order."""
        if self._known is not None:
            return list(self._known)
        if not self._numbers:
            return [str(label) for label in range(self._most + 1)]
        names = sorted(self._numbers)
        place = {name: number for number, name in enumerate(names)}
        order = [place[name] for name in self._numbers]
        relabel_sources(sources, order)
        return names

    def assumed(self, classes: Sequence[str]) -> tuple[Assumption, ...]:
        """What of the labels is not certain: numbers from 1 on, and numbers that are texts."""
        if self._known is not None:
            return ()
        if self._numbered and self._least == 1 < self._most:
            return (
                Assumption(
                    f"labels: 1 to {self._most} stay as they are, so class 0 of {len(classes)} has no sample"
                ),
            )
        odd = numbers_as_texts(classes)
        if odd is None:
            return ()
        label = list(classes).index(odd)
        return (
            Assumption(
                f"classes: these numbers are texts, and sorted as texts: {odd!r} is label {label}"
            ),
        )
