"""Ranges of files, where the system gives less at a time than was asked for, and where the length is a lie."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sources.pack_sources import digests, write_folder
from support.sources.tars import tar_of_folder

from fastpipe.dataset.format.open_file import read_at
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.packing.job.threads import pack
from fastpipe.tools.verify.check_sample import records_of
from fastpipe.tools.verify.shard_facts import read_description
from fastpipe.tools.verify.verification import verify


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on the system gives at most 300 bytes a time, as network file systems may."""
    pread = os.pread

    def begin() -> None:
        monkeypatch.setattr(os, "pread", lambda handle, size, at: pread(handle, min(size, 300), at))

    return begin


def test_a_range_comes_whole_or_up_to_the_end(
    tmp_path: Path, in_small_pieces: Callable[[], None]
) -> None:
    content = os.urandom(1000)
    (tmp_path / "a").write_bytes(content)
    in_small_pieces()
    with open(tmp_path / "a", "rb") as file:
        assert read_at(file.fileno(), 700, 100) == content[100:800]
        assert read_at(file.fileno(), 700, 600) == content[600:]
        assert read_at(file.fileno(), 10, 1000) == b""


def test_a_length_that_is_a_lie_costs_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    tracemalloc.start()
    with open(tmp_path / "a", "rb") as file:
        assert read_at(file.fileno(), 2**62, 1) == b"bc"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


def test_packing_and_verifying_read_on(tmp_path: Path, in_small_pieces: Callable[[], None]) -> None:
    source = write_folder(tmp_path / "source")
    tar = tar_of_folder(source, tmp_path / "a.tar")
    pack(source, tmp_path / "whole")
    expected = records_of(read_description(tmp_path / "whole").shards[0])
    in_small_pieces()
    pack(tar, tmp_path / "pieces")
    assert digests(tmp_path / "pieces") == digests(tmp_path / "whole")
    assert verify(tmp_path / "pieces").sound
    assert (records_of(read_description(tmp_path / "pieces").shards[0]) == expected).all()
    assert (PackedIndex(tmp_path / "pieces").records == expected).all()
