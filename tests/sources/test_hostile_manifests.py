"""CSV and JSONL files that are damaged, large or hostile: named errors or listed rows, nothing lost, memory bounded."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.running.memory import PEAK, frees_memory
from support.sources.listed import flat_photos, paths_of

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources import manifest
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.manifest import csv_rows, json_rows
from fastpipe.sources.rows import Row

LONG = 10_000_000


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return flat_photos(tmp_path / "photos", 3)


def rejected(photos: Path, tmp_path: Path, name: str, data: bytes) -> list[tuple[str, str]]:
    (photos / name).write_bytes(data)
    return fastpipe.pack(photos / name, tmp_path / "packed").tally.rejected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"002.jpg", "expected 2 columns, got 1"),
        (b"002.jpg,a,b", "expected 2 columns, got 3"),
        (b"," * 1_000_000, "expected 2 columns, got 1,000,001"),
        (b"002.jpg,caf\xe9", "column text: expected UTF-8 text, got a byte 0xe9"),
        (b"002.jpg,a\0b", "column text: expected UTF-8 text, got a byte 0x00"),
        (b"002\0.jpg,b", "column path: expected UTF-8 text, got a byte 0x00"),
        (b",b", "column path: expected the path of an image, got none"),
    ],
)
def test_a_wrong_line_of_csv_is_listed(photos: Path, tmp_path: Path, line: bytes, reason: str) -> None:
    data = b'path,text\n000.jpg,"two\nlines"\n' + line + b"\n\n001.jpg,b\n"
    assert rejected(photos, tmp_path, "a.csv", data) == [("a.csv/000004", reason)]
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"path": "002.jpg"', "expected an object in JSON (Expecting"),
        (b"[1]", "expected an object in JSON ('list' object is not a mapping), got b'[1]"),
        (b'{"path": "\xff"}', "expected an object in JSON ('utf-8' codec can't decode byte 0xff"),
        (b'{"path": "\0"}', "expected an object in JSON (Invalid control character"),
        (b"\0" * 9, "expected an object in JSON"),
        (b"[" * 1_000_000, "expected an object in JSON (maximum recursion depth"),
        (b'{"a": ' + b"9" * LONG + b"}", "expected an object in JSON (Exceeds the limit"),
        (b'{"path": "' + b"x" * LONG * 2 + b'"}', "expected at most 16,777,216 bytes in a line"),
        (b'{"path": "' + b"x" * LONG + b'"}', "expected the path of an image"),
    ],
)
def test_a_wrong_line_of_jsonl_is_listed(photos: Path, tmp_path: Path, line: bytes, reason: str) -> None:
    data = b'\xef\xbb\xbf{"path": "000.jpg"}\n' + line + b'\r\n\n{"path": "001.jpg"}'
    ((name, why),) = rejected(photos, tmp_path, "a.jsonl", data)
    assert name == "a.jsonl/000002"
    assert reason in why
    assert len(why) < 300
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'path\n"000.jpg\n001.jpg\n', r"a\.csv, line 2: unexpected end of data. If a quote is open"),
        (b'path\n000.jpg\n"00"1.jpg\n', r"a\.csv, line 3: .*',' expected after '\"'"),
        (b"path\n000.jpg\n" + b"x" * LONG + b"\n", r"a\.csv, line 3: field larger than field limit"),
        (b'path\n"' + b"x\n" * LONG, r"a\.csv, line 2: field larger than field limit"),
        (b"path\n" + b"," * 2 * LONG, r"a\.csv, line 2: expected at most 16,777,216 bytes in a line"),
        (
            b"path\r000.jpg\r001.jpg\r",
            r"a\.csv, line 1: new-line character seen in unquoted field .* a carriage return",
        ),
        (
            "path\n000.jpg\n".encode("utf-16"),
            "names of the columns, 1 to 640, each once, as UTF-8 text; got a byte 0xff",
        ),
        ("path\n000.jpg\n".encode("utf-16-le"), "as UTF-8 text; got a byte 0x00"),
        (b"," * 1_000_000 + b"\n", "names of the columns, 1 to 640, .*; got 1,000,001"),
        (b"\n", "expected the names of the columns, .*; got 0, '' 1 times"),
    ],
)
def test_where_lines_end_must_be_certain(photos: Path, data: bytes, message: str) -> None:
    (photos / "a.csv").write_bytes(data)
    with pytest.raises(PackError, match=message):
        list_sources(photos / "a.csv", 0)


def test_more_columns_than_anybody_has(photos: Path) -> None:
    lines = (b'{"path": "000.jpg", "c%d": 1}\n' % number for number in range(5000))
    (photos / "a.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(PackError, match="expected at most 640 columns, got more"):
        list_sources(photos / "a.jsonl", 0)


def test_a_file_that_changes_while_it_is_read(photos: Path) -> None:
    path = photos / "a.csv"
    path.write_text("path\n000.jpg\n")
    records = csv_rows(path)
    next(records)
    path.write_text("path\n000.jpg\n001.jpg\n")
    with pytest.raises(PackError, match=r"a\.csv has changed while packing"):
        list(records)


@given(st.binary(max_size=200), st.sampled_from([csv_rows, json_rows]), st.sampled_from([3, 16 << 20]))
def test_any_bytes_are_records_or_named_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, form: Callable[[Path], Iterator[Row]], most: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "a"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest, "MOST_LINE_BYTES", most)
        records = []
        with contextlib.suppress(PackError):
            records = list(form(path))
    assert not any(record.values for record in records if record.problem is not None)


MEASURE = f"""
import sys
from pathlib import Path
{PEAK}
from fastpipe.errors import PackError
from fastpipe.sources.kinds import list_sources
before = peak_bytes()
try:
    print(len(list_sources(Path(sys.argv[1]), 0).sources))
except PackError:
    print(0)
print((peak_bytes() - before) // 1000)
"""


def kilobytes(path: Path, sources: int) -> int:
    run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    found, grown = map(int, run.stdout.split())
    assert found == sources
    return grown


@frees_memory
def test_memory_does_not_follow_the_values(photos: Path) -> None:
    """100 MB of captions; a line without end; a quote without end."""
    with open(photos / "a.jsonl", "w") as file:
        for number in range(1000):
            file.write(json.dumps({"path": f"{number}.jpg", "caption": "x" * 100_000}) + "\n")
    assert kilobytes(photos / "a.jsonl", 1000) < 30_000
    with open(photos / "b.csv", "wb") as endless:
        endless.write(b"path\n")
        endless.truncate(300_000_000)
    assert kilobytes(photos / "b.csv", 0) < 80_000
    (photos / "c.csv").write_bytes(b'path\n"' + b"x,\n" * 30_000_000)
    assert kilobytes(photos / "c.csv", 0) < 30_000
