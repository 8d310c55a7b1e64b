"""A shard's file is sent to the disk while it is written, and nothing that the disk refuses goes unnoticed."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
import xxhash
from support.sources.pack_sources import write_folder

from fastpipe.errors import PackError
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard import tar
from fastpipe.packing.shard.tar import ShardFile
from fastpipe.store.store import Folder

PIECE = os.urandom(1000)


def new_file(folder: Path) -> ShardFile:
    return ShardFile(Folder(folder, folder / "scratch").new_file("shard"))


@pytest.fixture
def small_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has every 2,500 bytes synced; gives the size of the file at each sync."""
    sizes: list[int] = []
    real = os.fdatasync

    def fdatasync(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(tar, "_SYNC_BYTES", 2500)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return sizes


def test_bytes_and_hash_are_those_written(tmp_path: Path, small_syncs: list[int]) -> None:
    file = new_file(tmp_path)
    for number in range(20):
        file.write(PIECE[number:])
    whole = b"".join(PIECE[number:] for number in range(20))
    assert file.size_bytes == len(whole)
    assert file.finish() == xxhash.xxh3_64_hexdigest(whole)
    assert (tmp_path / "shard").read_bytes() == whole
    assert small_syncs, "nothing was synced before the end"
    assert small_syncs[0] == len(PIECE) * 3 - 3  # what was written, not what had left the buffer


def test_an_early_sync_that_fails_is_told(
    tmp_path: Path, small_syncs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", refuse)
    file = new_file(tmp_path)
    for _ in range(3):
        file.write(PIECE)
    with pytest.raises(OSError, match="Input/output error"):
        file.finish()
    file.discard()
    assert not (tmp_path / "shard").exists()
    assert not list((tmp_path / "scratch").iterdir())


def test_writing_does_not_wait_for_a_slow_disk(
    tmp_path: Path, small_syncs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()
    syncs: list[int] = []

    def wait(handle: int) -> None:
        syncs.append(handle)
        assert slow.wait(300)

    monkeypatch.setattr(os, "fdatasync", wait)
    file = new_file(tmp_path)
    for _ in range(40):
        file.write(PIECE)  # would never end if it waited
    assert len(syncs) <= 1
    slow.set()
    assert file.finish() == xxhash.xxh3_64_hexdigest(PIECE * 40)


def test_discard_waits_for_the_sync_and_removes(tmp_path: Path, small_syncs: list[int]) -> None:
    file = new_file(tmp_path)
    for _ in range(10):
        file.write(PIECE)
    file.discard()
    assert not (tmp_path / "shard").exists()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("fastpipe-sync")
    ]


def test_a_system_without_fdatasync_syncs_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(tar, "_SYNC_BYTES", 2500)
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), fsync(handle))[1])
    file = new_file(tmp_path)
    for _ in range(6):
        file.write(PIECE)
    file.finish()
    assert len(synced) > 1


@pytest.mark.parametrize(
    ("code", "fatal"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)]
)
def test_a_file_system_that_cannot_sync_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fatal: bool
) -> None:
    fsync = os.fsync

    def refuse(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    source = write_folder(tmp_path / "source")
    if fatal:
        with pytest.raises(PackError, match="Input/output error"):
            pack(source, tmp_path / "packed")
    else:
        assert pack(source, tmp_path / "packed").info["samples"] > 0
