"""A CSV, TSV or JSONL file -> its records, one after the other, in bounded memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.files import SourcePath, open_unchanged
from fastpipe.packing.source.rows import Record, row_name

MANIFESTS = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
MOST_LINE_BYTES = 16 << 20
MOST_COLUMNS = 640
_TOO_LONG = f"expected at most {MOST_LINE_BYTES:,} bytes in a line"
_BOM = b"\xef\xbb\xbf"


def separator(path: SourcePath) -> str:
    """Between the values of a CSV or TSV file."""
    return "\t" if path.suffix.lower() in (".tsv", ".tab") else ","


def csv_records(path: SourcePath) -> Iterator[Record]:
    """The records of a CSV or TSV file; its values are texts.

    It has a header row, is UTF-8, and has values in quotes where they hold separators or line ends (RFC 4180). Spaces
    behind a separator do not count: people write `path, label`. Those in quotes do.

    Raises:
        PackError: the file cannot be read, or has changed meanwhile; or nobody can say where a record ends.
    """

    def wrong(line: int, what: str) -> PackError:
        return PackError(f"{readable(str(path))}, line {line}: {what}")

    def texts(file: BinaryIO) -> Iterator[str]:
        for number, line in enumerate(_lines(file), 1):
            if line is None:  # the next one may be the rest of a value in quotes
                raise wrong(number, _TOO_LONG)
            yield line.decode("utf-8", "surrogateescape")

    with open_unchanged(path) as file:
        reader = csv.reader(texts(file), delimiter=separator(path), skipinitialspace=True, strict=True)
        columns: list[str] | None = None
        while True:
            number = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as problem:
                if "new-line character" in str(problem):
                    raise wrong(
                        number,
                        "expected lines that end with a line feed (\\n or \\r\\n), got a carriage return (\\r) by "
                        "itself; convert the line ends, or put the value with it into quotes",
                    ) from None
                raise wrong(
                    number,
                    f"{problem}. A quote is open or stands inside a value, so the lines behind it cannot be told "
                    "apart; correct this line",
                ) from None
            if columns is None:
                try:
                    columns = _header(cells)
                except ValueError as problem:
                    raise wrong(1, f"expected the names of the columns, {problem}") from None
            elif cells is None:
                return
            elif cells:  # else the line is empty
                yield _record(row_name(path.name, number), columns, cells)


def json_records(path: SourcePath) -> Iterator[Record]:
    """The records of a JSONL file: an object a line, UTF-8; NaN counts as null.

    Raises:
        PackError: the file cannot be read, or has changed meanwhile.
    """
    with open_unchanged(path) as file:
        for number, line in enumerate(_lines(file), 1):
            where = row_name(path.name, number)
            if line is None:
                yield Record(where, None, _TOO_LONG)
            elif line.strip():
                try:
                    yield Record(where, _object(line))
                except ValueError as problem:
                    yield Record(where, None, str(problem))


def _object(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line.decode(), parse_constant=_constant)
    except UnicodeDecodeError as problem:
        raise ValueError(f"expected UTF-8, got a byte {line[problem.start]:#04x}") from None
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"expected an object in JSON ({problem}), got {line[:40]!r}") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected an object in JSON, got {line[:40]!r}")
    return values


def _constant(name: str) -> float | None:
    """NaN, which is not JSON but often written, stands for a missing value."""
    return None if name == "NaN" else float(name)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a file, without a BOM; None for one that is too long, whose bytes are passed over."""
    first = True
    while line := file.readline(MOST_LINE_BYTES + 1):
        if first:
            line, first = line.removeprefix(_BOM), False
        too_long = len(line) > MOST_LINE_BYTES
        while too_long and line and not line.endswith(b"\n"):
            line = file.readline(MOST_LINE_BYTES)
        yield None if too_long else line


def _header(cells: list[str] | None) -> list[str]:
    """The names of the columns."""
    if not cells:
        raise ValueError("got an empty line" if cells is not None else "got an empty file")
    if len(cells) > MOST_COLUMNS:
        raise ValueError(f"at most {MOST_COLUMNS}; got {len(cells):,}")
    names = [cell.strip() or f"column_{number}" for number, cell in enumerate(cells, 1)]
    for name in names:
        damage = _damage(name)
        if damage is not None:
            raise ValueError(f"as text; {damage}")
        if names.count(name) > 1:
            raise ValueError(f"each once; got {name[:60]!r} {names.count(name)} times")
    return names


def _record(where: str, columns: list[str], cells: list[str]) -> Record:
    if len(cells) != len(columns):
        return Record(where, None, f"expected {len(columns)} columns, got {len(cells):,}")
    for name, cell in zip(columns, cells, strict=True):
        damage = _damage(cell)
        if damage is not None:
            return Record(where, None, f"column {name}: {damage}")
    return Record(where, dict(zip(columns, cells, strict=True)))


def _damage(text: str) -> str | None:
    """Why a text of a CSV file cannot be one."""
    if "\0" in text:
        return "expected UTF-8 text, got a NUL byte"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        return f"expected UTF-8, got a byte {ord(text[problem.start]) & 0xFF:#04x}"
    return None
