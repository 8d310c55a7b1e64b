"""CSV and JSONL files that are damaged, large or hostile: named errors or listed rows, nothing lost, memory bounded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sources.listed import flat_photos, paths_of

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources.encodings import ENCODING_HINT
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.tables import text_rows
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.table_text import detect_text_form
from fastpipe.sources.tables.text_rows import csv_rows, json_rows

LONG = 10_000_000


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return flat_photos(tmp_path / "photos", 3)


# Lines of a CSV file with the columns path and text that hold no sample, and why.
WRONG_CSV = [
    (b"002.jpg", "expected 2 columns, got 1"),
    (b"002.jpg,a,b", "expected 2 columns, got 3"),
    (b"," * 1_000_000, "expected 2 columns, got 1,000,001"),
    (b"002.jpg,caf\xe9", f"column text: expected UTF-8 text, got a byte 0xe9. {ENCODING_HINT}"),
    (b"002.jpg,a\0b", f"column text: expected UTF-8 text, got a byte 0x00. {ENCODING_HINT}"),
    (b"002\0.jpg,b", f"column path: expected UTF-8 text, got a byte 0x00. {ENCODING_HINT}"),
    (b",b", "column path: expected the path of an image, got none"),
]


def test_wrong_lines_of_csv_are_listed(photos: Path, tmp_path: Path) -> None:
    lines = b"\n\n".join(line for line, _ in WRONG_CSV)
    (photos / "a.csv").write_bytes(
        b'path,text\n000.jpg,"two\nlines"\n' + lines + b"\n\n001.jpg,b\n"
    )
    expected = [
        (f"a.csv/{4 + 2 * at:06d}", reason) for at, (_, reason) in enumerate(WRONG_CSV)
    ]  # by line of the file
    assert sorted(fastpipe.pack(photos / "a.csv", tmp_path / "packed").tally.rejected) == expected
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg"]


WRONG_JSONL = [
    (b'{"path": "002.jpg"', "expected an object in JSON (Expecting"),
    (b"[1]", "expected an object in JSON, got b'[1]"),
    (b'{"path": "\xff"}', "expected UTF-8 text ('utf-8' codec can't decode byte 0xff"),
    (b'{"path": "\0"}', "expected an object in JSON (Invalid control character"),
    (b"\0" * 9, "expected an object in JSON"),
    (b"[" * 1_000_000, "expected an object in JSON (maximum recursion depth"),
    (b'{"a": ' + b"9" * LONG + b"}", "expected an object in JSON (Exceeds the limit"),
    (b'{"path": "' + b"x" * LONG * 2 + b'"}', "expected at most 16,777,216 bytes in a line"),
    (b'{"path": "' + b"x" * LONG + b'"}', "expected the path of an image"),
]


def test_wrong_lines_of_jsonl_are_listed(photos: Path, tmp_path: Path) -> None:
    lines = b"\r\n\n".join(line for line, _ in WRONG_JSONL)
    (photos / "a.jsonl").write_bytes(
        b'\xef\xbb\xbf{"path": "000.jpg"}\n' + lines + b'\r\n\n{"path": "001.jpg"}'
    )
    rejected = sorted(fastpipe.pack(photos / "a.jsonl", tmp_path / "packed").tally.rejected)
    for at, ((_, reason), (name, why)) in enumerate(zip(WRONG_JSONL, rejected, strict=True)):
        assert name == f"a.jsonl/{2 + 2 * at:06d}"
        assert reason in why
        assert len(why) < 300
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg"]


COLUMNS = r"names of the columns, 1 to 640, each once, as UTF-8 text; got "
UNCERTAIN = [
    (b'path\n"000.jpg\n001.jpg\n', r"a\.csv, line 2: unexpected end of data. If a quote is open"),
    (b'path\n000.jpg\n"00"1.jpg\n', r"a\.csv, line 3: .*',' expected after '\"'"),
    (b"path\n000.jpg\n" + b"x" * LONG + b"\n", r"a\.csv, line 3: field larger than field limit"),
    (b'path\n"' + b"x\n" * LONG, r"a\.csv, line 2: field larger than field limit"),
    (b"path\n" + b"," * 2 * LONG, r"a\.csv, line 2: expected at most 16,777,216 bytes in a line"),
    (
        b"path\r000.jpg\r001.jpg\r",
        r"a\.csv, line 1: new-line character seen in unquoted field .* a carriage return",
    ),
    (b"\xff\npath\n000.jpg\n", COLUMNS + "a byte 0xff"),
    (b"pa\0th\n000.jpg\n", COLUMNS + "a byte 0x00"),
    (b"," * 1_000_000 + b"\n", COLUMNS + "1,000,001"),
    (b"\n", COLUMNS + "0"),
]


def test_where_lines_end_must_be_certain(photos: Path) -> None:
    for data, message in UNCERTAIN:
        (photos / "a.csv").write_bytes(data)
        with pytest.raises(PackError, match=message):
            list_sources(photos / "a.csv", 0)


def test_more_columns_than_anybody_has(photos: Path) -> None:
    lines = (b'{"path": "000.jpg", "c%d": 1}\n' % number for number in range(5000))
    (photos / "a.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(PackError, match="expected at most 640 columns, got more"):
        list_sources(photos / "a.jsonl", 0)


def rows_of_csv(path: Path) -> Iterator[Row]:
    return csv_rows(path, detect_text_form(path))


def test_a_file_that_changes_while_it_is_read(photos: Path) -> None:
    path = photos / "a.csv"
    path.write_text("path\n000.jpg\n")
    records = rows_of_csv(path)
    next(records)
    path.write_text("path\n000.jpg\n001.jpg\n")
    with pytest.raises(PackError, match=r"a\.csv has changed while packing"):
        list(records)


@given(
    st.binary(max_size=200),
    st.sampled_from([rows_of_csv, json_rows]),
    st.sampled_from([3, 16 << 20]),
)
def test_any_bytes_are_records_or_named_errors(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    form: Callable[[Path], Iterator[Row]],
    most: int,
) -> None:
    path = tmp_path_factory.mktemp("any") / "a"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_rows, "MOST_LINE_BYTES", most)
        records = []
        with contextlib.suppress(PackError):
            records = list(form(path))
    assert not any(record.values for record in records if record.problem is not None)
