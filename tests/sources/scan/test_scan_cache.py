"""A second start reads no header again, unless a file is new or another now; and what the cache may be like."""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from support.sources.pack_sources import jpeg_bytes, saved, write_folder
from support.sources.tars import write_tar
from support.sources.unpacked_sources import (
    assert_same_epochs,
    bad_files,
    epoch,
    odd_pictures,
    web_tars,
    write_mixed,
)

import fastpipe
from fastpipe.errors import DatasetError
from fastpipe.sources.files import LocalFile
from fastpipe.sources.scan import cache, reading
from fastpipe.sources.scan.scanned_files import Archive, Scan
from fastpipe.sources.scan.source import UnpackedSource

Reads = list[list[str]]
_SAMPLE = {"jpg": jpeg_bytes(), "cls": b"1"}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reads:
    """The paths whose headers were read, a list a scan; with a cache folder of the test's own."""
    seen: Reads = []
    real = reading.read_files

    def noted(scan: Scan, numbers: NDArray[np.int64], read_chunk: Callable[..., object]) -> None:
        seen.append([scan.paths[number] for number in numbers.tolist()])
        real(scan, numbers, read_chunk)

    monkeypatch.setattr(reading, "read_files", noted)
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "cache"))
    return seen


def test_the_second_start_reads_no_header(tmp_path: Path, reads: Reads) -> None:
    root = write_mixed(tmp_path / "photos", {**odd_pictures(), **bad_files()})
    first = epoch(root)
    before = fastpipe.open(root).index
    assert len(reads) == 1
    assert len(reads[0]) == 14 + len(odd_pictures()) + len(bad_files())
    after = fastpipe.open(root).index
    assert len(reads) == 1
    assert after.fingerprint == before.fingerprint
    assert after.records.tobytes() == before.records.tobytes()
    assert after.counts == before.counts
    assert_same_epochs(epoch(root), first)
    assert len(reads) == 1
    # A copy has the same samples: an epoch that began on the one can go on with the other. Its cache is its own.
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    assert fastpipe.open(copy).index.fingerprint == before.fingerprint
    fastpipe.open(root)
    assert len(reads) == 2


def test_only_changed_and_new_files_are_read(tmp_path: Path, reads: Reads) -> None:
    root = write_folder(tmp_path / "photos")
    before = fastpipe.open(root).index
    other = jpeg_bytes((200, 100))
    (root / "bee" / "01.jpg").write_bytes(other)  # of another size
    same = root / "cow" / "02.jpg"
    times = same.stat()
    os.utime(same, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000))  # written again, perhaps
    (root / "cow" / "new.png").write_bytes(saved("PNG", size=(31, 32)))
    (root / "ant" / "03.jpg").unlink()
    after = fastpipe.open(root).index
    assert reads[1:] == [["bee/01.jpg", "cow/02.jpg", "cow/new.png"]]
    assert len(after) == len(before)
    assert after.fingerprint != before.fingerprint
    paths = after.paths_of(np.arange(len(after)))
    assert paths is not None
    sizes = dict(zip(paths, after.records[["width", "height"]].tolist(), strict=True))
    assert (sizes["bee/01.jpg"], sizes["cow/new.png"]) == ((200, 100), (31, 32))
    fastpipe.open(root)
    assert len(reads) == 2
    # A class that comes first moves the others.
    (root / "aardvark").mkdir()
    (root / "aardvark" / "0.jpg").write_bytes(other)
    moved = fastpipe.open(root).index
    assert reads[2:] == [["aardvark/0.jpg"]]
    assert (moved.classes, moved.class_counts) == (["aardvark", "ant", "bee", "cow"], [1, 7, 8, 9])


def test_tars_are_walked_again_if_one_changed(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = web_tars(tmp_path / "tars", tars=2, samples=10)
    before = fastpipe.open(folder).index
    walked: list[object] = []
    real = UnpackedSource.list_files
    monkeypatch.setattr(
        UnpackedSource, "list_files", lambda self: walked.append(self) or real(self)
    )
    assert fastpipe.open(folder).index.fingerprint == before.fingerprint
    assert (walked, len(reads)) == ([], 1)
    write_tar(folder / "train-001.tar", {"a.jpg": jpeg_bytes(), "a.cls": b"2"})
    after = fastpipe.open(folder).index
    assert (len(walked), len(after)) == (1, 11)
    assert reads[1:] == [["train-001.tar/a.jpg"]]


def test_a_file_that_was_not_read_is_tried_again(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """chmod changes neither size nor time of a file."""
    root = write_folder(tmp_path / "photos")
    (root / "ant" / "a.gif").write_bytes(saved("GIF"))
    (root / "ant" / "b.txt").write_bytes(b"no picture, and it stays none")

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(reading, "_read_other_header", refused)
        before = fastpipe.open(root).index
        assert "ant/a.gif: cannot be read: Permission denied" in before.describe_rejected()  # type: ignore[attr-defined]
    after = fastpipe.open(root).index
    assert (len(before), len(after)) == (24, 25)
    assert reads[1:] == [["ant/a.gif", "ant/b.txt"]]
    assert len(fastpipe.open(root)) == 25
    assert len(reads) == 2


def large_pictures() -> dict[str, bytes]:
    """By name: pictures of 900 x 700 noise, of more than 500 kB."""
    noise = Image.fromarray(
        np.random.default_rng(1).integers(0, 255, (700, 900, 3), dtype=np.uint8)
    )
    files = {}
    for name, form, options in (
        ("a.jpg", "JPEG", {"progressive": True, "quality": 98}),
        ("b.png", "PNG", {"compress_level": 1}),
        ("c.bmp", "BMP", {}),
    ):
        out = io.BytesIO()
        noise.save(out, form, **options)
        files[name] = out.getvalue()
        assert len(files[name]) > 500_000
    return files


def test_only_the_start_of_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = large_pictures()
    (tmp_path / "photos").mkdir()
    for name, data in files.items():
        (tmp_path / "photos" / name).write_bytes(data)
    sizes: list[int] = []
    real = LocalFile.read_at

    def counted(file: LocalFile, size_bytes: int, offset_bytes: int) -> bytes:
        data = real(file, size_bytes, offset_bytes)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(LocalFile, "read_at", counted)
    for source in (tmp_path / "photos", write_tar(tmp_path / "t.tar", files)):
        sizes.clear()
        found = fastpipe.open(source).index
        assert found.records[["width", "height"]].tolist() == [(900, 700)] * 3
        assert sum(sizes) < 4 * 65536


def test_a_tar_that_comes_while_tars_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = web_tars(tmp_path / "tars", tars=1, samples=4)
    real = UnpackedSource.stat_archives

    def stat_archives(self: UnpackedSource) -> list[Archive] | None:
        found = real(self)
        write_tar(folder / "train-001.tar", {"0.jpg": jpeg_bytes(), "0.cls": b"0"})
        return found

    monkeypatch.setattr(UnpackedSource, "stat_archives", stat_archives)
    with pytest.raises(
        DatasetError, match=r"tars has changed while it was scanned: train-001\.tar is new"
    ):
        fastpipe.open(folder)
    assert len(fastpipe.open(folder)) == 5


def test_the_places_in_tars_belong_to_the_fingerprint(tmp_path: Path) -> None:
    """They decide the order of reading, so a state of another order must not be loaded."""
    members = {
        f"{number}.{ending}": data for number in range(6) for ending, data in _SAMPLE.items()
    }
    tar = write_tar(tmp_path / "a.tar", members)
    before = fastpipe.open(tar).index.fingerprint
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert fastpipe.open(tmp_path / "copy" / "a.tar").index.fingerprint == before
    write_tar(tar, dict(reversed(members.items())))
    after = fastpipe.open(tar).index
    assert len(after) == 6
    assert after.fingerprint != before


def test_a_scan_of_another_user_can_be_used(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "photos")
    fastpipe.open(root)

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "utime", refused)
    fastpipe.open(root)
    assert len(reads) == 1


def test_scans_that_nobody_uses_are_removed(tmp_path: Path, reads: Reads) -> None:
    used, unused = write_folder(tmp_path / "used"), write_folder(tmp_path / "unused")
    files = [cache.cache_file(str(root)) for root in (used, unused)]
    left = files[0].with_name("scan-0123abcd")  # by a process that was killed
    other = files[0].with_name("other.bin")
    for root in (used, unused):
        fastpipe.open(root)
    left.touch()
    other.touch()
    for file in (*files, left, other):
        os.utime(file, (1, 1))
    fastpipe.open(used)
    fastpipe.open(write_folder(tmp_path / "new"))
    assert [file.exists() for file in (*files, left, other)] == [True, False, False, True]
    fastpipe.open(used)
    assert len(reads) == 3


def test_a_damaged_cache_is_made_again(tmp_path: Path, reads: Reads) -> None:
    root = write_folder(tmp_path / "photos")
    before = fastpipe.open(root).index
    file = cache.cache_file(str(root))
    data = file.read_bytes()
    at = data.index(b"ant/00.jpg")
    no_scan = io.BytesIO()
    np.savez(no_scan, about=np.frombuffer(data, dtype=np.uint8))
    damages = {
        "cut": data[: len(data) // 2],
        "zeros within": data[:200] + bytes(300) + data[500:],
        "a byte": data[:at] + b"b" + data[at + 1 :],
        "empty": b"",
        "whole, and no scan": no_scan.getvalue(),
    }
    for scans, (name, damaged) in enumerate(damages.items(), 2):
        file.write_bytes(damaged)
        assert fastpipe.open(root).index.records.tobytes() == before.records.tobytes(), name
        assert len(reads) == scans
        fastpipe.open(root)
        assert len(reads) == scans


def test_another_pillow_looks_at_what_is_no_jpeg(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_mixed(tmp_path / "photos", {**odd_pictures(), **bad_files()})
    before = fastpipe.open(root).index
    monkeypatch.setattr("fastpipe.sources.picture.jpeg.made_with", lambda: {"pillow": "other"})
    after = fastpipe.open(root).index
    assert len(reads[1]) == before.counts["converted"] + before.counts["rejected"]
    assert after.fingerprint == before.fingerprint
    assert len(reads) == 2
    fastpipe.open(root)
    assert len(reads) == 2


def test_a_cache_that_cannot_be_written_is_told_once(
    tmp_path: Path, reads: Reads, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "file"))
    root = write_folder(tmp_path / "photos")
    with caplog.at_level(logging.WARNING):
        first, second = fastpipe.open(root).index, fastpipe.open(root).index
    assert first.records.tobytes() == second.records.tobytes()
    assert len(reads) == 2
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"the scan of {root} cannot be kept in {tmp_path / 'file'}" in told
    assert "set FASTPIPE_CACHE" in told


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "own"))
    assert cache.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("FASTPIPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg" / "fastpipe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "fastpipe"
    root = write_folder(tmp_path / "photos")
    fastpipe.open(root)
    assert [path.name for path in (tmp_path / ".cache" / "fastpipe").iterdir()] == [
        cache.cache_file(str(root)).name
    ]


def test_a_scan_shows_how_far_it_is(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(
        reading, "Console", lambda stderr: Console(file=out, force_terminal=True, width=200)
    )
    root = write_folder(tmp_path / "photos", images=60)
    fastpipe.open(root)
    assert f"scanning {root}" in out.getvalue()
    assert "60 of 60 files" in out.getvalue()
    shown = len(out.getvalue())
    fastpipe.open(root)  # which has nothing to scan
    assert len(out.getvalue()) == shown
