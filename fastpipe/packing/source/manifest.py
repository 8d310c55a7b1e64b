"""A CSV, TSV or JSONL file -> its records, one after the other, in bounded memory."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.files import SourcePath, open_unchanged

MOST_LINE_BYTES = 16 << 20
MOST_COLUMNS = 640
_BOM = b"\xef\xbb\xbf"
_TABS = (".tsv", ".tab")


class Record(NamedTuple):
    """One record of a table.

    Attributes:
        number: names it: of its line, from 1.
        values: column -> value; None where there is a problem.
        problem: why it has no values.
    """

    number: int
    values: dict[str, Any] | None
    problem: str | None = None


class Manifest(ABC):
    """Records, which can be read several times.

    Attributes:
        path: of the file.
        typed: False: its values are texts.
    """

    typed = True

    def __init__(self, path: SourcePath) -> None:
        self.path = path

    @abstractmethod
    def __iter__(self) -> Iterator[Record]: ...


class CsvFile(Manifest):
    """A CSV or TSV file: a header row, UTF-8, values in quotes where they hold separators or line ends (RFC 4180).

    Spaces behind a separator do not count: people write `path, label`. Those in quotes do.
    """

    typed = False

    def __iter__(self) -> Iterator[Record]:
        with open_unchanged(self.path) as file:
            tabs = self.path.suffix.lower() in _TABS
            lines, delimiter = self._lines(file), "\t" if tabs else ","
            reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
            columns = _header(self.path, _next(self.path, reader, 1))
            while True:
                number = reader.line_num + 1
                cells = _next(self.path, reader, number)
                if cells is None:
                    return
                if cells:  # else the line is empty
                    yield _record(number, columns, cells)

    def _lines(self, file: BinaryIO) -> Iterator[str]:
        for number, line in enumerate(_lines(file), 1):
            if line is None:  # the next one may be the rest of a value in quotes
                raise PackError(
                    f"{readable(str(self.path))}, line {number}: expected at most {MOST_LINE_BYTES:,} bytes in a line"
                )
            yield line.decode("utf-8", "surrogateescape")


class JsonLines(Manifest):
    """A JSONL file: an object a line, UTF-8; NaN counts as null."""

    def __iter__(self) -> Iterator[Record]:
        with open_unchanged(self.path) as file:
            for number, line in enumerate(_lines(file), 1):
                if line is None:
                    yield Record(number, None, f"expected at most {MOST_LINE_BYTES:,} bytes in a line")
                elif line.strip():
                    yield self._record(number, line)

    def _record(self, number: int, line: bytes) -> Record:
        try:
            values = json.loads(line.decode(), parse_constant=_constant)
        except UnicodeDecodeError as problem:
            return Record(number, None, f"expected UTF-8, got a byte {line[problem.start]:#04x}")
        except (ValueError, RecursionError) as problem:
            return Record(number, None, f"expected an object in JSON ({problem}), got {line[:40]!r}")
        if not isinstance(values, dict):
            return Record(number, None, f"expected an object in JSON, got {line[:40]!r}")
        return Record(number, values)


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


def _next(path: SourcePath, reader: Any, number: int) -> list[str] | None:
    """The next cells of a CSV file; None at its end."""
    try:
        return next(reader, None)
    except csv.Error as problem:
        if "new-line character" in str(problem):
            raise PackError(
                f"{readable(str(path))}, line {number}: expected lines that end with a line feed (\\n or \\r\\n), got "
                "a carriage return (\\r) by itself; convert the line ends, or put the value with it into quotes"
            ) from None
        raise PackError(
            f"{readable(str(path))}, line {number}: {problem}. A quote is open or stands inside a value, so the lines "
            "behind it cannot be told apart; correct this line"
        ) from None


def _header(path: SourcePath, cells: list[str] | None) -> list[str]:
    """The names of the columns."""

    def wrong(what: str) -> PackError:
        return PackError(f"{readable(str(path))}, line 1: expected the names of the columns, {what}")

    if not cells:
        raise wrong("got an empty line" if cells is not None else "got an empty file")
    if len(cells) > MOST_COLUMNS:
        raise wrong(f"at most {MOST_COLUMNS}; got {len(cells):,}")
    names = [cell.strip() or f"column_{number}" for number, cell in enumerate(cells, 1)]
    for name in names:
        damage = _damage(name)
        if damage is not None:
            raise wrong(f"as text; {damage}")
        if names.count(name) > 1:
            raise wrong(f"each once; got {name[:60]!r} {names.count(name)} times")
    return names


def _record(number: int, columns: list[str], cells: list[str]) -> Record:
    if len(cells) != len(columns):
        return Record(number, None, f"expected {len(columns)} columns, got {len(cells):,}")
    for name, cell in zip(columns, cells, strict=True):
        damage = _damage(cell)
        if damage is not None:
            return Record(number, None, f"column {name}: {damage}")
    return Record(number, dict(zip(columns, cells, strict=True)))


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
