"""A CSV, TSV, JSON or JSONL file -> its rows, one an image."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from fastpipe.errors import PackError, readable
from fastpipe.sources.encodings import ENCODING_HINT, open_as_utf8
from fastpipe.sources.files import SourcePath, open_unchanged
from fastpipe.sources.json_stream import array_entries
from fastpipe.sources.tables.column_kinds import json_value
from fastpipe.sources.tables.rows import Row, row_name
from fastpipe.sources.tables.table_text import SPACES, TextForm

MOST_LINE_BYTES = 16 << 20
MOST_COLUMNS = 640
# So much of a JSON file shows its layout.
_HEAD_BYTES = 1 << 16
_LINE_TOO_LONG = f"expected at most {MOST_LINE_BYTES:,} bytes in a line"
_BACKSLASH_QUOTE = '\\"'
# NUL, and bytes that are not UTF-8, as "surrogateescape" decodes them.
_DAMAGE = re.compile("[\0\udc80-\udcff]")


def csv_rows(
    path: SourcePath, form: TextForm, encoding: str | None = None
) -> Iterator[Row]:
    """Reads the records of a CSV or TSV file (RFC 4180), or of a list of paths without a header.

    All values are texts.

    Spaces before a value do not count.
    """
    columns = list(form.columns)
    with open_unchanged(path) as opened:
        lines = _TextLines(open_as_utf8(opened, encoding, str(path)), form.skipped)
        records: Iterator[list[str]]
        if form.separator == SPACES:
            records = map(form.split_at_spaces, lines)
        else:
            records = csv.reader(
                _with_doubled_quotes(lines, form.separator),
                delimiter=form.separator,
                skipinitialspace=True,
                strict=True,
            )

        # A record may go over several lines; an error names its first one.
        line_number = form.skipped + 1
        try:
            for cells in records:
                if not columns:
                    columns = _read_header(cells)
                    _check_header(columns)
                elif cells:  # an empty line has no cells
                    yield _csv_row(row_name(path.name, line_number), columns, cells)
                line_number = lines.count + 1
            # An empty file has no header, and names from the form were not checked yet.
            _check_header(columns)
        except csv.Error as problem:
            raise PackError(
                f"{readable(str(path))}, line {line_number}: {problem}. If a quote is open or "
                "stands inside a value, or a carriage return (\\r) stands by itself, the lines "
                "behind it cannot be told apart; correct this line"
            ) from None


class _TextLines:
    """The lines of a file as text, counted from 1, without the first `skipped` ones."""

    def __init__(self, file: BinaryIO, skipped: int) -> None:
        self._file = file
        self._skipped = skipped
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        for line in _read_lines(self._file):
            self.count += 1
            if self.count <= self._skipped:
                continue
            if line is None:
                # Unlike in JSONL, the next line may be the rest of a value in quotes.
                raise csv.Error(_LINE_TOO_LONG)
            yield line.decode("utf-8", "surrogateescape")


def _with_doubled_quotes(lines: Iterable[str], separator: str) -> Iterator[str]:
    """Lines as RFC 4180 has them: a quote in quotes is doubled.

    ICDAR writes word_7.png, "\\"Joint\\"". A line is changed only if it cannot be read otherwise.
    """
    for line in lines:
        if _BACKSLASH_QUOTE not in line or _cells_of(line, separator) is not None:
            yield line
            continue
        cells = _cells_of(line, separator, "\\")
        if cells is None:
            yield line
            continue
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=separator).writerow(cells)
        yield buffer.getvalue()


def _cells_of(line: str, separator: str, escape: str | None = None) -> list[str] | None:
    """The cells of a line; None if it is no whole record."""
    reader = csv.reader(
        [line],
        delimiter=separator,
        skipinitialspace=True,
        strict=True,
        escapechar=escape,
    )
    try:
        return next(reader, [])
    except csv.Error:
        return None


def _read_header(cells: list[str]) -> list[str]:
    """The names of the columns in a header. pandas writes none for its row numbers."""
    columns = []
    for number, cell in enumerate(cells, 1):
        columns.append(cell.strip() or f"column_{number}")
    return columns


def _check_header(columns: list[str]) -> None:
    """Raises csv.Error if these cannot be the names of a table's columns."""
    expected = (
        f"expected the names of the columns, 1 to {MOST_COLUMNS}, each once, as UTF-8 text; "
        "got"
    )
    damage = _DAMAGE.search(" ".join(columns))
    if damage is not None:
        raise csv.Error(f"{expected} {_describe_byte(damage)}. {ENCODING_HINT}")
    if not 0 < len(columns) <= MOST_COLUMNS:
        raise csv.Error(f"{expected} {len(columns):,}")
    column, count = Counter(columns).most_common(1)[0]
    if count > 1:
        raise csv.Error(f"{expected} {len(columns)}, {column[:60]!r} {count} times")


def _csv_row(where: str, columns: list[str], cells: list[str]) -> Row:
    if len(cells) != len(columns):
        count = len(columns)
        is_longer = len(cells) > count and any(cells[:count])
        if not is_longer or any(cells[count:]):
            return Row(where, problem=f"expected {count} columns, got {len(cells):,}")
        # Separators at the end of a line make empty cells.
        cells = cells[:count]
    for column, cell in zip(columns, cells, strict=True):
        # Most cells are ASCII, and this test takes less time than the search.
        if cell.isascii() and "\0" not in cell:
            continue
        damage = _DAMAGE.search(cell)
        if damage is not None:
            got = f"{_describe_byte(damage)}. {ENCODING_HINT}"
            return Row(
                where, problem=f"column {column}: expected UTF-8 text, got {got}"
            )
    return Row(where, dict(zip(columns, cells, strict=True)))


def _describe_byte(damage: re.Match[str]) -> str:
    return f"a byte {ord(damage[0]) & 0xFF:#04x}"


def detect_json_layout(path: SourcePath, encoding: str | None = None) -> str:
    """Detects what a .json file is: an "array" of objects, "lines" with an object each, or one
    "object". Files with other endings are "lines". Raises OSError or PackError.
    """
    if path.suffix.lower() != ".json":
        return "lines"
    with open_unchanged(path) as file:
        head = open_as_utf8(file, encoding, str(path)).read(_HEAD_BYTES)
    head = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if head.startswith(b"["):
        return "array"
    first_line, _, rest = head.partition(b"\n")
    try:
        first_record: Any = json.loads(first_line)
    except (ValueError, RecursionError):
        return "object"
    # One object in one line, or over several lines, is the file of another format, such as COCO.
    if isinstance(first_record, dict) and rest.lstrip().startswith(b"{"):
        return "lines"
    return "object"


def json_array_rows(path: SourcePath, encoding: str | None = None) -> Iterator[Row]:
    """Reads the records of a JSON file with an array of objects. NaN counts as null."""
    for number, entry in enumerate(array_entries(path, encoding), 1):
        where = row_name(path.name, number)
        if isinstance(entry, dict):
            yield Row(where, entry)
        else:
            yield Row(where, problem=f"expected an object in JSON, got {entry!r:.40}")


def json_rows(path: SourcePath, encoding: str | None = None) -> Iterator[Row]:
    """Reads the records of a JSONL file: an object a line, as UTF-8. NaN counts as null."""
    with open_unchanged(path) as opened:
        lines = _read_lines(open_as_utf8(opened, encoding, str(path)))
        for number, line in enumerate(lines, 1):
            where = row_name(path.name, number)
            if line is None:
                yield Row(where, problem=_LINE_TOO_LONG)
            elif line.strip():
                yield _json_row(where, line)


def _json_row(where: str, line: bytes) -> Row:
    got = repr(line[:40])
    try:
        values: Any = json_value(line.decode())
    except UnicodeDecodeError as problem:
        return Row(
            where,
            problem=f"expected UTF-8 text ({problem}), got {got}. {ENCODING_HINT}",
        )
    except (ValueError, RecursionError) as problem:
        return Row(where, problem=f"expected an object in JSON ({problem}), got {got}")
    if not isinstance(values, dict):
        return Row(where, problem=f"expected an object in JSON, got {got}")
    return Row(where, values)


def _read_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Reads the lines of a file, without a BOM.

    Yields None for a line that is too long, and passes over its bytes.
    """
    is_first = True
    while line := file.readline(MOST_LINE_BYTES + 1):
        if is_first:
            line = line.removeprefix(codecs.BOM_UTF8)
            is_first = False
        if len(line) <= MOST_LINE_BYTES:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MOST_LINE_BYTES)
        yield None
