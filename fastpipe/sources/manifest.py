"""A CSV, TSV or JSONL file, or one of metadata, with a row for each image -> the listing of these images."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from fastpipe.errors import PackError, readable
from fastpipe.sources.class_columns import settled_classes
from fastpipe.sources.coco import array_entries
from fastpipe.sources.column_kinds import Seen, json_value
from fastpipe.sources.detections import assumed_of_detections, with_names
from fastpipe.sources.encodings import HINT, as_utf8
from fastpipe.sources.files import SourcePath, files_below, open_unchanged
from fastpipe.sources.likely import assumed_of_columns
from fastpipe.sources.listing import Assumption, Listing
from fastpipe.sources.options import (
    FILE_NAME,
    MOST_FIELDS,
    SourceOptions,
    choose_columns,
    is_picture,
    named_as_image,
)
from fastpipe.sources.rows import Row, Rows, list_rows, row_name, rows_of
from fastpipe.sources.split_column import ALL, folder_of, refuse_split, split_column, split_of_paths
from fastpipe.sources.table_boxes import BOXES, box_columns, gathering, no_boxes
from fastpipe.sources.table_text import SPACES, TextForm, text_form
from fastpipe.sources.tables import metadata_rows
from fastpipe.sources.unlisted import Unlisted

_IDS = {"id", "Id", "ID", "uuid", "key", "name"}  # columns that may have the names of the images
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
MOST_LINE_BYTES = 16 << 20
MOST_COLUMNS = 640
_HEAD_BYTES = 1 << 16
_TOO_LONG = f"expected at most {MOST_LINE_BYTES:,} bytes in a line"
_DAMAGE = re.compile(
    "[\0\udc80-\udcff]"
)  # NUL, and bytes that are no UTF-8, as "surrogateescape" has them
_FURTHER = f"_{FILE_NAME}"  # of images, in metadata


def list_manifest(
    path: SourcePath, kind: str, how: SourceOptions, *, metadata: bool = False, alone: bool = True
) -> Listing:
    """Lists the images that a file names, in no order. It is read twice. `metadata`: of Hugging Face's ImageFolder;
    `alone`: the file is the source, and none of a folder.
    """
    name, typed = readable(str(path)), kind != "csv"
    assumed: list[Assumption] = []
    if kind == "csv":
        form = _form(path, how.encoding)
        assumed += form.assumed
        rows = partial(csv_rows, path, form, how.encoding)
    elif kind == "parquet":
        rows = partial(metadata_rows, path, how)
    else:
        rows = partial(json_rows, path, how.encoding)
    of_classes = {
        column for each in how.fields or () if each.kind == "classes" for column in (each.column,)
    }
    empty: dict[str, Any] = {}  # the values of an image without a row
    folders: dict[str, set[str]] = {}  # in the paths of columns that may hold those of the images
    seen = _seen(rows(), name, typed=typed, of_classes=of_classes, how=how, folders=folders)
    split = split_column(seen, how, name)
    boxes = box_columns(seen, how, name)
    there = {**seen, BOXES: seen.get(BOXES)} if boxes is not None else seen
    asked = {each.column for each in how.fields or ()}
    further = [column for column in seen if metadata and column.endswith(_FURTHER)]
    images = named_as_image(seen, how)
    if not images and not metadata and how.image_column is None:
        images = _with_names_of_pictures(seen, asked)
        assumed += [
            Assumption(f"images: column {each!r} has names of pictures", f"--image-column {each}")
            for each in images
        ]
    if metadata:
        images = (
            [FILE_NAME]
            if FILE_NAME in seen
            else [column for column in further if column not in asked]
        )

    def kind_of(column: str) -> str:
        return "image" if column in further else seen[column].kind if column in seen else "boxes"

    def are_flags(column: str) -> bool:
        return bool(seen[column].flags)

    has_splits = split is not None or how.split == ALL
    if split is not None and len(set(split.names.values())) == 1:
        split = None  # all rows are of it, so it says nothing that is not to be stored
    if split is not None:
        there = {column: each for column, each in there.items() if column != split.column}
    hint = f" (--image-column {' or '.join(_IDS & {*seen})})" if _IDS & {*seen} else ""
    hint += "" if typed else ". If the file has no header row, write one, such as path,label"
    columns = choose_columns(
        name, there, how, images, kind_of, _FURTHER if metadata else "", are_flags, hint
    )
    label, fields = columns.label, columns.fields
    if not has_splits:
        split = split_of_paths(columns.image, folders.get(columns.image, ()), how, name)
        if split is None and alone:
            refuse_split(how, name)
    if boxes is not None:
        gathered = gathering(seen, columns, boxes, how, typed=typed, table=name)
        fields = gathered.others
    else:
        others = {column: each for column, each in seen.items() if column in there}
        assumed += assumed_of_columns(others, columns, how)
        fields, more = settled_classes(
            fields, {column: each.texts for column, each in seen.items()}, how
        )
        assumed += more
        detections = {
            column: sorted(each.detections.names)
            for column, each in seen.items()
            if each.detections.is_certain and each.detections.count
        }
        if how.box_format is not None and not detections:
            raise no_boxes(name)
        fields = with_names(fields, detections, how.box_format)
        assumed += assumed_of_detections(detections, fields, how.box_format)
        columns = columns._replace(fields=fields)
        empty = {each.name: {"boxes": []} for each in fields if each.kind == "boxes"}
    if how.fields is None and len(fields) > MOST_FIELDS:
        most = f"expected at most {MOST_FIELDS}. --field NAME=COLUMN picks those to store"
        flags = "; --field 'tags=*:classes' makes one field of columns of 0 and 1, a class each"
        raise PackError(f"{name} has {len(fields)} columns besides image and label; {most}{flags}")
    root = how.root_of_images() or path.parent
    if boxes is not None:
        gathered.gather(rows(), split)
        fields = gathered.fields()
        listed, assumed, empty = Rows(gathered.rows), [*assumed, *boxes.assumed], gathered.empty
    else:
        numbered = label is not None and seen[label].are_numbers(f"{name}, column {label}")
        listed = Rows(lambda: rows_of(rows(), columns, typed=typed, numbered=numbered, split=split))
    known = (
        files_below(root) if metadata and (isinstance(root, Path) or root.objects.has_lists) else ()
    )
    beside = (each for each in known if each.rpartition("/")[2] not in METADATA)
    unlisted = Unlisted(how.unlisted, empty)
    return list_rows(
        root, listed, fields, beside=beside, assumed=assumed, unlisted=unlisted, table=path.name
    )


def _with_names_of_pictures(seen: Mapping[str, Seen], asked: Container[str]) -> list[str]:
    """The only column whose values are called like pictures; none where there is no such column, or several."""
    columns = [
        column
        for column, each in seen.items()
        if column not in asked and each.first and all(map(is_picture, each.first))
    ]
    return columns if len(columns) == 1 else []


def _form(path: SourcePath, encoding: str | None) -> TextForm:
    try:
        return text_form(path, encoding)
    except OSError as problem:
        raise PackError(f"cannot read {readable(str(path))}: {problem.strerror}") from problem


def _seen(
    rows: Iterable[Row],
    name: str,
    *,
    typed: bool,
    of_classes: Container[str],
    how: SourceOptions,
    folders: dict[str, set[str]],
) -> dict[str, Seen]:
    seen: dict[str, Seen] = {}
    count, problem = 0, None
    for row in rows:
        if row.problem is not None:
            problem = problem or f"{row.where}: {row.problem}"
            continue
        count += 1
        for column, value in row.values.items():
            if column not in seen:
                if len(seen) == MOST_COLUMNS:
                    raise PackError(f"{name}: expected at most {MOST_COLUMNS} columns, got more")
                seen[column] = Seen(typed=typed, keeps_all=column in of_classes)
                if column == how.image_column or named_as_image([column], how):
                    folders[column] = set()
            seen[column].add(value, row.where)
        for column, known in folders.items():
            known.add(folder_of(row.values.get(column)))
    for each in seen.values():
        if each.count < count:
            each.add(None, "")  # a record without the key says the same as one with null
    if not seen:
        first = (
            f" that can be read; the first: {problem}"
            if problem
            else "; expected a row for each image"
        )
        raise PackError(f"{name} holds no rows{first}")
    return seen


def csv_rows(
    path: SourcePath, form: TextForm | None = None, encoding: str | None = None
) -> Iterator[Row]:
    """The records of a CSV or TSV file (RFC 4180, spaces before a value do not count), or of a list; all are texts.

    `form` None: as its first lines tell.
    """
    form = form or _form(path, encoding)

    def texts(file: BinaryIO) -> Iterator[str]:
        for line in islice(_lines(file), form.skipped, None):
            if line is None:  # the next one may be the rest of a value in quotes
                raise csv.Error(_TOO_LONG)
            yield line.decode("utf-8", "surrogateescape")

    columns = list(form.columns)
    with open_unchanged(path) as opened:
        file = as_utf8(opened, encoding, str(path))
        if form.separator == SPACES:
            reader: Any = _SpacedReader(texts(file), form)
        else:
            reader = csv.reader(
                texts(file), delimiter=form.separator, skipinitialspace=True, strict=True
            )
        number = form.skipped + 1
        try:
            for cells in reader:
                if not columns:
                    columns = [cell.strip() or f"column_{at}" for at, cell in enumerate(cells, 1)]
                    _check_header(columns)
                elif cells:  # else the line is empty
                    yield _row(row_name(path.name, number), columns, cells)
                number = form.skipped + reader.line_num + 1
            _check_header(columns)
        except csv.Error as problem:
            raise PackError(
                f"{readable(str(path))}, line {number}: {problem}. If a quote is open or stands inside a value, or a "
                "carriage return (\\r) stands by itself, the lines behind it cannot be told apart; correct this line"
            ) from None


class _SpacedReader:
    """As csv.reader, of lines whose values are separated by spaces."""

    def __init__(self, lines: Iterator[str], form: TextForm) -> None:
        self._lines, self._form, self.line_num = lines, form, 0

    def __iter__(self) -> Iterator[list[str]]:
        for line in self._lines:
            self.line_num += 1
            yield self._form.spaced(line)


def _check_header(names: list[str]) -> None:
    name, count = (Counter(names) or Counter([""])).most_common(1)[0]
    damage = next(filter(None, map(_DAMAGE.search, names)), None)
    if not 0 < len(names) <= MOST_COLUMNS or count > 1 or damage is not None:
        got = f"{len(names):,}, {name[:60]!r} {count} times" if damage is None else _byte(damage)
        hint = "" if damage is None else f". {HINT}"
        raise csv.Error(
            f"expected the names of the columns, 1 to {MOST_COLUMNS}, each once, as UTF-8 text; got {got}{hint}"
        )


def _byte(damage: re.Match[str]) -> str:
    return f"a byte {ord(damage[0]) & 0xFF:#04x}"


def _row(where: str, columns: list[str], cells: list[str]) -> Row:
    if len(cells) != len(columns):
        return Row(where, problem=f"expected {len(columns)} columns, got {len(cells):,}")
    for name, cell in zip(columns, cells, strict=True):
        damage = None if cell.isascii() and "\0" not in cell else _DAMAGE.search(cell)
        if damage is not None:
            return Row(
                where, problem=f"column {name}: expected UTF-8 text, got {_byte(damage)}. {HINT}"
            )
    return Row(where, dict(zip(columns, cells, strict=True)))


def json_rows(path: SourcePath, encoding: str | None = None) -> Iterator[Row]:
    """The records of a JSONL file: an object a line, UTF-8; of a JSON file: an array of objects. NaN counts as null."""
    if json_layout(path, encoding) == "array":
        for number, entry in enumerate(array_entries(path, encoding), 1):
            where = row_name(path.name, number)
            problem = (
                None
                if isinstance(entry, dict)
                else f"expected an object in JSON, got {entry!r:.40}"
            )
            yield Row(where, entry if problem is None else {}, problem)
        return
    with open_unchanged(path) as opened:
        file = as_utf8(opened, encoding, str(path))
        for number, line in enumerate(_lines(file), 1):
            where = row_name(path.name, number)
            if line is None:
                yield Row(where, problem=_TOO_LONG)
            elif line.strip():
                try:
                    row = Row(where, {**json_value(line.decode())})
                except UnicodeDecodeError as problem:
                    row = Row(
                        where, problem=f"expected UTF-8 text ({problem}), got {line[:40]!r}. {HINT}"
                    )
                except (ValueError, TypeError, RecursionError) as problem:
                    row = Row(
                        where, problem=f"expected an object in JSON ({problem}), got {line[:40]!r}"
                    )
                yield row


def json_layout(path: SourcePath, encoding: str | None = None) -> str:
    """What a .json file is: an "array" of objects, "lines" with an object each, or an "object". OSError, PackError."""
    if path.suffix.lower() != ".json":
        return "lines"
    with open_unchanged(path) as file:
        head = (
            as_utf8(file, encoding, str(path))
            .read(_HEAD_BYTES)
            .removeprefix(codecs.BOM_UTF8)
            .lstrip()
        )
    if head.startswith(b"["):
        return "array"
    first, _, rest = head.partition(b"\n")
    try:
        is_record = isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        is_record = False
    return "lines" if is_record and rest.lstrip().startswith(b"{") else "object"


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a file, without a BOM; None for one that is too long, whose bytes are passed over."""
    first = True
    while line := file.readline(MOST_LINE_BYTES + 1):
        if first:
            line, first = line.removeprefix(codecs.BOM_UTF8), False
        too_long = len(line) > MOST_LINE_BYTES
        while too_long and line and not line.endswith(b"\n"):
            line = file.readline(MOST_LINE_BYTES)
        yield None if too_long else line
