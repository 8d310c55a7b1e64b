"""Tests of tables that are damaged or lie: named errors or rejected rows, and no more memory than they are worth."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.programs.cli_run import failed, fp
from support.running.soak import Tried, times
from support.sources.tables import IMAGE, jpegs, write_table

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.listing import Group
from fastpipe.sources.tables.parquet_arrow import ParquetTable


def assert_packed_or_named(source: Path, packed: Path, file: Path) -> str:
    """The pack ends well, or with an error that names the file; returns that."""
    shutil.rmtree(packed, ignore_errors=True)
    try:
        summary = pack(source, packed, PackOptions(workers=2))
    except PackError as problem:
        told = str(problem)
    else:
        told = ""
        found = summary.info["samples"] + len(summary.tally.rejected)
        assert found == summary.info["packs"][0]["source"]["files"]
    assert not told or file.name in told or str(source) in told
    return told


def test_a_parquet_file_cut_anywhere_is_named(tmp_path: Path, tried: Tried) -> None:
    file = write_table(tmp_path / "a.parquet", jpegs(9), label=list(range(9)), text=["x"] * 9)
    data = file.read_bytes()
    cuts = [*range(13), *range(13, len(data), len(data) // times(20, 400)), len(data) - 1]
    for cut in cuts:
        file.write_bytes(data[:cut])
        assert "cannot be read as Parquet" in assert_packed_or_named(
            file, tmp_path / "packed", file
        ), cut
    tried("Parquet cut off", len(cuts), "an error that names the file")


def test_bits_flipped_in_parquet_are_named_or_rejected(tmp_path: Path, tried: Tried) -> None:
    table = pa.table(
        {"image": jpegs(9), "label": list(range(9)), "text": [f"text {at}" for at in range(9)]}
    )
    file = tmp_path / "a.parquet"
    count = times(12, 600)
    for compression in ("none", "snappy", "zstd"):
        pq.write_table(table, file, row_group_size=4, compression=compression)
        data, draw = file.read_bytes(), random.Random(7)
        footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
        for number in range(count):
            at = draw.randrange(footer, len(data)) if number % 2 else draw.randrange(len(data))
            file.write_bytes(
                data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
            )
            assert_packed_or_named(file, tmp_path / "packed", file)
    tried(
        "a bit of a Parquet file flipped",
        3 * count,
        "the file is named, or rows are rejected, or nothing was hit",
    )


def test_pages_with_checksums_show_every_flip(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"image": jpegs(4)}), file, compression="none", write_page_checksum=True
    )
    data = file.read_bytes()
    at = data.index(b"\xff\xd8") + 300
    file.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    told = assert_packed_or_named(file, tmp_path / "packed", file)
    assert "a.parquet, row group 0: cannot be read as Parquet" in told
    assert "CRC" in told


def saved_to_disk(root: Path) -> Path:
    """A folder as save_to_disk writes it; returns its file."""
    root.mkdir(parents=True)
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    table = pa.table(
        {
            "image": pa.array([{"bytes": data, "path": None} for data in jpegs(9)], IMAGE),
            "label": [1] * 9,
        }
    )
    with (
        pa.OSFile(str(root / "data.arrow"), "wb") as out,
        pa.ipc.new_stream(out, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=4)
    return root / "data.arrow"


def test_an_arrow_file_cut_or_flipped_is_named_or_rejected(tmp_path: Path, tried: Tried) -> None:
    file = saved_to_disk(tmp_path / "source")
    data, draw = file.read_bytes(), random.Random(8)
    for cut in range(0, len(data), len(data) // 12):
        file.write_bytes(data[:cut])
        assert "cannot be read as Arrow" in assert_packed_or_named(
            file.parent, tmp_path / "packed", file
        ), cut
    count = times(20, 600)
    for number in range(count):
        at = draw.randrange(1500) if number % 2 else draw.randrange(len(data))
        file.write_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :])
        assert_packed_or_named(file.parent, tmp_path / "packed", file)
    tried(
        "an Arrow file cut off, or a bit flipped",
        count + 13,
        "the file is named, or rows are rejected",
    )


def test_the_damaged_batch_is_named(tmp_path: Path) -> None:
    file = saved_to_disk(tmp_path / "source")
    with pa.OSFile(str(file)) as opened:
        pa.ipc.read_schema(opened)
        pa.ipc.read_message(opened)
        pa.ipc.read_message(opened)
        third = opened.tell()
    data = bytearray(file.read_bytes())
    data[third : third + 8] = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
    file.write_bytes(data)
    assert "record batch 2" in assert_packed_or_named(file.parent, tmp_path / "packed", file)


def test_a_cut_between_batches_is_seen(tmp_path: Path) -> None:
    file = saved_to_disk(tmp_path / "source")
    with pa.OSFile(str(file)) as opened:
        pa.ipc.read_schema(opened)
        pa.ipc.read_message(opened)
        end = opened.tell()
    os.truncate(file, end)
    assert "it does not end as an Arrow stream does" in assert_packed_or_named(
        file.parent, tmp_path / "packed", file
    )


STATES = [
    ("{", "expected an object in JSON"),
    ("[]", "expected an object in JSON"),
    ("[" * 100_000, "expected an object in JSON"),
    ("{}", "expected a list of files in the same folder"),
    (
        '{"_data_files": [{"filename": "../other.arrow"}]}',
        "expected a list of files in the same folder",
    ),
    ('{"_data_files": [{"filename": "gone.arrow"}]}', "cannot read"),
]


def test_a_state_that_lies_is_named(tmp_path: Path) -> None:
    saved_to_disk(tmp_path / "source")
    for state, words in STATES:
        (tmp_path / "source" / "state.json").write_text(state)
        assert words in failed(1, "pack", tmp_path / "source", tmp_path / "packed"), state[:80]


def test_other_arrow_files_are_named(tmp_path: Path) -> None:
    file = saved_to_disk(tmp_path / "source")
    table = pa.table({"image": jpegs(1)})
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    assert "(Feather); expected a stream" in failed(1, "pack", file.parent, tmp_path / "packed")
    table = pa.table({"image": jpegs(1), "kind": pa.array(["x"]).dictionary_encode()})
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    assert "columns with dictionaries are not read" in failed(
        1, "pack", file.parent, tmp_path / "packed"
    )


def test_rows_without_an_image_are_rejected(tmp_path: Path) -> None:
    cells: list[Any] = [
        {"bytes": jpegs(1)[0], "path": "0.jpg"},
        None,
        {"bytes": None, "path": "far/away.jpg"},
        {"bytes": None, "path": None},
        {"bytes": b"", "path": None},
        {"bytes": b"no picture at all", "path": None},
    ]
    pq.write_table(pa.table({"image": pa.array(cells, IMAGE)}), tmp_path / "a.parquet")
    summary = pack(tmp_path / "a.parquet", tmp_path / "packed", PackOptions())
    reasons = dict(summary.tally.rejected)
    assert set(reasons) == {f"a.parquet/00000{row}" for row in range(1, 6)}
    assert (
        reasons["a.parquet/000001"]
        == reasons["a.parquet/000003"]
        == "no image: expected bytes, got null"
    )
    assert "only its path far/away.jpg" in reasons["a.parquet/000002"]
    listed = [
        json.loads(line)["path"]
        for line in (tmp_path / "packed" / "rejected.jsonl").read_text().splitlines()
    ]
    assert listed == sorted(reasons)


def test_tables_without_rows_are_named(tmp_path: Path) -> None:
    write_table(tmp_path / "source" / "a.parquet", [])
    assert "holds no rows: the 1 tables are empty" in failed(
        1, "pack", tmp_path / "source", tmp_path / "packed"
    )
    write_table(tmp_path / "source" / "b.parquet", jpegs(2))
    pack(tmp_path / "source", tmp_path / "packed", PackOptions())
    assert len(PackedIndex(tmp_path / "packed")) == 2


def test_values_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    source = write_table(
        tmp_path / "a.parquet",
        jpegs(6),
        text=pa.array([b"ok", b"\xff\xfe", b"ok", b"ok", b"ok", b"ok"]).view(pa.string()),
        number=pa.array([1, 1, 2**64 - 1, None, 1, 1], pa.uint64()),
        vector=[[1.0], [1.0], [1.0], [1.0], [float("nan")], [1.0, 2.0]],
    )
    # Not shuffled, so that the first says how long a vector is.
    reasons = dict(pack(source, tmp_path / "packed", PackOptions(shuffle=False)).tally.rejected)
    assert set(reasons) == {f"a.parquet/00000{row}" for row in range(1, 6)}
    assert "field text: expected UTF-8" in reasons["a.parquet/000001"]
    assert "field number: expected a whole number of 64 bits" in reasons["a.parquet/000002"]
    assert "field number: expected a value of kind int, got none" in reasons["a.parquet/000003"]
    assert "field vector" in reasons["a.parquet/000004"]
    assert (
        "field vector: expected 1 numbers, as in the samples before; got 2"
        in reasons["a.parquet/000005"]
    )


def test_a_footer_that_lies_about_rows_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_table(tmp_path / "a.parquet", jpegs(8), rows_per_group=4)
    was = ParquetTable.groups

    def of_rows(rows: int) -> Any:
        def groups(self: Any) -> Iterator[Group]:
            return (group._replace(rows=rows) for group in was(self))

        return groups

    for rows in (3, 5):
        monkeypatch.setattr(ParquetTable, "groups", of_rows(rows))
        told = assert_packed_or_named(file, tmp_path / "packed", file)
        assert "damaged or incomplete" in told


def varint(number: int) -> bytes:
    """A Thrift zigzag varint."""
    number, out = number << 1, bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_a_footer_that_claims_more_rows_than_the_file_can_hold_is_named(tmp_path: Path) -> None:
    """The number of rows in the footer's bytes, wherever it stands there, replaced by a huge one."""
    file = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"image": jpegs(7) * 143}), file, compression="none", row_group_size=10_000
    )
    data = file.read_bytes()
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    for claim in (10**7, 10**10, 10**12):
        lied = data[footer:-8].replace(varint(1001), varint(claim))
        assert lied != data[footer:-8]
        file.write_bytes(data[:footer] + lied + struct.pack("<I", len(lied)) + b"PAR1")
        assert f"{claim:,} rows" in assert_packed_or_named(file, tmp_path / "packed", file)


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    assert "a.parquet, its description: cannot be read as Parquet" in failed(
        1, "pack", tmp_path / "a.parquet", tmp_path / "packed"
    )
    os.mkfifo(tmp_path / "b.parquet")
    assert "is not a regular file" in failed(1, "pack", tmp_path / "b.parquet", tmp_path / "packed")
    assert fp("pack", tmp_path / "none.parquet", tmp_path / "packed").exit_code == 1
