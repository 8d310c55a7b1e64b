"""A CSV, TSV or JSONL file, or one of metadata, with a row for each image -> the listing of these images."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from fastpipe.errors import PackError, readable
from fastpipe.sources.column_kinds import Seen
from fastpipe.sources.files import SourcePath, files_below, open_unchanged
from fastpipe.sources.listing import Listing
from fastpipe.sources.options import FILE_NAME, MOST_FIELDS, SourceOptions, choose_columns, named_as_image
from fastpipe.sources.rows import Row, list_rows, row_name, rows_of
from fastpipe.sources.tables import metadata_rows

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
MOST_LINE_BYTES = 16 << 20
MOST_COLUMNS = 640
_TOO_LONG = f"expected at most {MOST_LINE_BYTES:,} bytes in a line"
_DAMAGE = re.compile("[\0\udc80-\udcff]")  # NUL, and bytes that are no UTF-8, as "surrogateescape" has them
_FURTHER = f"_{FILE_NAME}"  # of images, in metadata


def list_manifest(path: SourcePath, kind: str, how: SourceOptions, *, metadata: bool = False) -> Listing:
    """Lists the images that a file names, in no order. It is read twice. `metadata`: of Hugging Face's ImageFolder."""
    name, typed = readable(str(path)), kind != "csv"
    rows = partial(metadata_rows, path, how) if kind == "parquet" else partial(json_rows if typed else csv_rows, path)
    seen = _seen(rows(), name, typed=typed)
    asked = {each.column for each in how.fields or ()}
    further = [column for column in seen if metadata and column.endswith(_FURTHER)]
    images = named_as_image(seen, how)
    if metadata:
        images = [FILE_NAME] if FILE_NAME in seen else [column for column in further if column not in asked]

    def kind_of(column: str) -> str:
        return "image" if column in further else seen[column].kind

    columns = choose_columns(name, seen, how, images, kind_of, _FURTHER if metadata else "")
    if how.fields is None and len(columns.fields) > MOST_FIELDS:
        most = f"expected at most {MOST_FIELDS}. --field NAME=COLUMN picks those to store"
        raise PackError(f"{name} has {len(columns.fields)} columns besides image and label; {most}")
    label = columns.label
    numbered = not typed and label is not None and seen[label].are_numbers(f"{name}, column {label}")
    root = how.root_of_images() or path.parent
    listed = rows_of(rows(), columns, typed=typed, numbered=numbered)
    known = files_below(root) if metadata and (isinstance(root, Path) or root.objects.has_lists) else ()
    beside = (each for each in known if each.rpartition("/")[2] not in METADATA)
    return list_rows(root, listed, columns.fields, beside=beside)


def _seen(rows: Iterable[Row], name: str, *, typed: bool) -> dict[str, Seen]:
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
                seen[column] = Seen(typed=typed)
            seen[column].add(value, row.where)
    for each in seen.values():
        if each.count < count:
            each.add(None, "")  # a record without the key says the same as one with null
    if not seen:
        first = f" that can be read; the first: {problem}" if problem else "; expected a row for each image"
        raise PackError(f"{name} holds no rows{first}")
    return seen


def separator(path: SourcePath) -> str:
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def csv_rows(path: SourcePath) -> Iterator[Row]:
    """The records of a CSV or TSV file (RFC 4180, spaces before a value do not count); all are texts."""

    def texts(file: BinaryIO) -> Iterator[str]:
        for line in _lines(file):
            if line is None:  # the next one may be the rest of a value in quotes
                raise csv.Error(_TOO_LONG)
            yield line.decode("utf-8", "surrogateescape")

    columns: list[str] = []
    with open_unchanged(path) as file:
        reader = csv.reader(texts(file), delimiter=separator(path), skipinitialspace=True, strict=True)
        number = 1
        try:
            for cells in reader:
                if not columns:
                    columns = [cell.strip() or f"column_{at}" for at, cell in enumerate(cells, 1)]
                    _check_header(columns)
                elif cells:  # else the line is empty
                    yield _row(row_name(path.name, number), columns, cells)
                number = reader.line_num + 1
            _check_header(columns)
        except csv.Error as problem:
            raise PackError(
                f"{readable(str(path))}, line {number}: {problem}. If a quote is open or stands inside a value, or a "
                "carriage return (\\r) stands by itself, the lines behind it cannot be told apart; correct this line"
            ) from None


def _check_header(names: list[str]) -> None:
    name, count = (Counter(names) or Counter([""])).most_common(1)[0]
    damage = next(filter(None, map(_DAMAGE.search, names)), None)
    if not 0 < len(names) <= MOST_COLUMNS or count > 1 or damage is not None:
        got = f"{len(names):,}, {name[:60]!r} {count} times" if damage is None else _byte(damage)
        raise csv.Error(f"expected the names of the columns, 1 to {MOST_COLUMNS}, each once, as UTF-8 text; got {got}")


def _byte(damage: re.Match[str]) -> str:
    return f"a byte {ord(damage[0]) & 0xFF:#04x}"


def _row(where: str, columns: list[str], cells: list[str]) -> Row:
    if len(cells) != len(columns):
        return Row(where, problem=f"expected {len(columns)} columns, got {len(cells):,}")
    for name, cell in zip(columns, cells, strict=True):
        damage = None if cell.isascii() and "\0" not in cell else _DAMAGE.search(cell)
        if damage is not None:
            return Row(where, problem=f"column {name}: expected UTF-8 text, got {_byte(damage)}")
    return Row(where, dict(zip(columns, cells, strict=True)))


def json_rows(path: SourcePath) -> Iterator[Row]:
    """The records of a JSONL file: an object a line, UTF-8; NaN counts as null."""
    with open_unchanged(path) as file:
        for number, line in enumerate(_lines(file), 1):
            where = row_name(path.name, number)
            if line is None:
                yield Row(where, problem=_TOO_LONG)
            elif line.strip():
                try:
                    # NaN is not JSON, but often written, and stands for a missing value.
                    said = json.loads(line.decode(), parse_constant=lambda name: None if name == "NaN" else float(name))
                    row = Row(where, {**said})
                except (ValueError, TypeError, RecursionError) as problem:
                    row = Row(where, problem=f"expected an object in JSON ({problem}), got {line[:40]!r}")
                yield row


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
