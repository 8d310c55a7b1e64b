"""Rows of an open file: the records of any samples, read from index.npy, are those of the map."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support.running.process_state import open_files

from fastpipe.dataset.format.layout import INDEX_DTYPE, INDEX_FILE
from fastpipe.dataset.format.open_file import OpenFile, Rows, open_npy
from fastpipe.errors import DatasetError

SAMPLES = 3000
ROW = INDEX_DTYPE.itemsize
FIRST = 320  # byte at which this index's records begin


def records_in(file: Path, first_byte: int) -> Rows:
    return Rows(OpenFile(file), first_byte, INDEX_DTYPE)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of random bytes."""
    file = tmp_path_factory.mktemp("rows") / INDEX_FILE
    data = np.random.default_rng(3).integers(0, 256, SAMPLES * INDEX_DTYPE.itemsize, dtype=np.uint8)
    np.save(file, np.frombuffer(data.tobytes(), dtype=INDEX_DTYPE), allow_pickle=False)
    return file


@given(
    samples=npst.arrays(
        np.int64,
        npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=40),
        elements=st.integers(0, SAMPLES - 1),
    )
)
def test_any_samples_in_any_order(index: Path, samples: np.ndarray) -> None:  # type: ignore[type-arg]
    rows, count = open_npy(index, INDEX_DTYPE, None)
    records = rows.mapped(count)
    assert (count, records.offset) == (SAMPLES, FIRST)
    got = records_in(index, FIRST).take(samples)
    assert got.dtype == INDEX_DTYPE
    assert got.shape == samples.shape
    assert got.tobytes() == np.asarray(records[samples]).tobytes()


def test_neighbours_are_read_in_one_go(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = records_in(index, FIRST)
    read: list[tuple[int, int]] = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        read.append((offset, size))
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    rows.take(np.array([2000, 5, 6, 7, 20, 2002, 5]))
    assert read == [(FIRST + 5 * ROW, 16 * ROW), (FIRST + 2000 * ROW, 3 * ROW)]


def test_a_descriptor_each_until_it_is_dropped(index: Path) -> None:
    before = len(open_files(index.parent))
    file = OpenFile(index)
    rows = Rows(file, FIRST, INDEX_DTYPE)
    assert len(open_files(index.parent)) == before + 1
    assert not os.get_inheritable(file.descriptor)
    del rows, file
    assert len(open_files(index.parent)) == before


def test_a_header_that_two_threads_parse_at_once(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 raises SystemError then, now and again."""
    parse, refused = (
        np.lib.format.read_array_header_1_0,
        [SystemError("AST constructor recursion depth mismatch")] * 3,
    )

    def at_once(head: io.BytesIO) -> object:
        head.read(3)
        if refused:
            raise refused.pop()
        head.seek(-3, io.SEEK_CUR)
        return parse(head)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", at_once)
    assert open_npy(index, INDEX_DTYPE, SAMPLES)[1] == SAMPLES


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError,
        match=f"{INDEX_FILE} cannot be opened: No such file or directory; check that it exists",
    ):
        records_in(tmp_path / INDEX_FILE, 128)
    with pytest.raises(
        DatasetError,
        match=f"{INDEX_FILE} cannot be opened: No such file or directory; restore it .*pack the source again",
    ):
        open_npy(tmp_path / INDEX_FILE, INDEX_DTYPE, 5)
    (tmp_path / INDEX_FILE).mkdir()
    with pytest.raises(
        DatasetError, match=f"{INDEX_FILE} cannot be read: Is a directory, for 54 bytes at byte 128"
    ):
        records_in(tmp_path / INDEX_FILE, 128).take(np.array(0))
    with pytest.raises(
        DatasetError, match=f"{INDEX_FILE} cannot be read: Is a directory; check the disk"
    ):
        open_npy(tmp_path / INDEX_FILE, INDEX_DTYPE, 5)
    with pytest.raises(
        DatasetError,
        match=f"{INDEX_FILE} cannot be mapped: .*Is a directory; check the disk and the",
    ):
        records_in(tmp_path / INDEX_FILE, 128).mapped(5)


def test_a_file_that_has_become_shorter(index: Path, tmp_path: Path) -> None:
    copy = tmp_path / INDEX_FILE
    copy.write_bytes(index.read_bytes())
    rows = records_in(copy, FIRST)
    os.truncate(copy, FIRST + 100 * ROW + 10)
    assert rows.take(np.array(99)) == records_in(index, FIRST).mapped(SAMPLES)[99]
    with pytest.raises(
        DatasetError,
        match=rf"truncated after it was opened: expected 108 bytes at byte {FIRST + 100 * ROW:,}, got 10\.",
    ):
        rows.take(np.array([100, 101]))
