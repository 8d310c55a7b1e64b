"""The first bytes of a file: the size of a plain JPEG, from as few reads as possible, whatever is in the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.sources.pack_sources import jpeg_bytes, saved, segment, with_segments
from support.sources.tars import write_tar
from support.sources.unpacked_sources import LATE, bad_files, odd_pictures, plain_pictures

from fastpipe import _engine


def headers(folder: Path, files: dict[str, bytes]) -> NDArray[np.void]:
    paths = []
    for name, data in files.items():
        (folder / name).write_bytes(data)
        paths.append(os.fsencode(folder / name))
    sizes = np.array([len(data) for data in files.values()], dtype=np.uint64)
    return _engine.read_headers(paths, np.zeros(len(paths), dtype=np.uint64), sizes)


def test_plain_jpegs_and_others(tmp_path: Path) -> None:
    plain, odd = plain_pictures(), {**odd_pictures(), **bad_files()}
    odd.pop(LATE)
    found = headers(tmp_path, plain)
    assert found["plain"].tolist() == [1] * len(plain)
    sizes = dict(
        zip(plain, zip(found["width"].tolist(), found["height"].tolist(), strict=True), strict=True)
    )
    assert (sizes["gray.jpg"], sizes["exif.jpg"], sizes["small.jpg"]) == (
        (77, 58),
        (70, 90),
        (3, 2),
    )
    others = headers(tmp_path, odd)
    for name in ("plain", "width", "height", "channels", "bits", "error"):
        assert others[name].tolist() == [0] * len(odd)


def test_members_of_a_tar_and_files_that_cannot_be_opened(tmp_path: Path) -> None:
    jpegs = {f"{number}.jpg": jpeg_bytes((20 + number, 30)) for number in range(5)}
    tar = os.fsencode(write_tar(tmp_path / "a.tar", jpegs))
    data = Path(os.fsdecode(tar)).read_bytes()
    offsets = [data.index(jpeg) for jpeg in jpegs.values()]
    sizes = [len(jpeg) for jpeg in jpegs.values()]
    missing = os.fsencode(tmp_path / "missing")
    found = _engine.read_headers(
        [tar] * 5 + [missing, os.fsencode(tmp_path)],
        np.array([*offsets, 0, 0], dtype=np.uint64),
        np.array([*sizes, 10, 10], dtype=np.uint64),
    )
    assert found["width"].tolist() == [20, 21, 22, 23, 24, 0, 0]
    assert found["plain"].tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert [os.strerror(number) for number in found["error"].tolist()[5:]] == [
        "No such file or directory",
        "Is a directory",
    ]


def test_segments_of_any_length_before_the_frame(tmp_path: Path) -> None:
    for bytes_before in (0, 3000, 4000, 4070, 4080, 4085, 4090, 4096, 5000, 65_000):
        jpeg = with_segments(jpeg_bytes((61, 43)), (0xE1, bytes(bytes_before)), (0xFE, b"x" * 100))
        (found,) = headers(tmp_path, {"a.jpg": jpeg}).tolist()
        assert found == (0, 61, 43, 3, 8, 1), bytes_before
        for end in (len(jpeg) - len(jpeg_bytes((61, 43))) + 20, 4096, 30):
            (cut,) = headers(tmp_path, {"a.jpg": jpeg[:end]}).tolist()
            assert cut[5] == 0 or end > len(jpeg) - 1000


def test_only_the_bytes_that_were_listed_count(tmp_path: Path) -> None:
    path, jpeg = tmp_path / "a.jpg", jpeg_bytes()
    path.write_bytes(jpeg)
    one = np.zeros(1, dtype=np.uint64)
    for size, plain in ((len(jpeg), 1), (100, 0), (1, 0), (0, 0), (len(jpeg) + 9, 1)):
        found = _engine.read_headers([os.fsencode(path)], one, np.array([size], dtype=np.uint64))
        assert found["plain"].tolist() == [plain]
    with pytest.raises(ValueError, match="an offset and a size for each path"):
        _engine.read_headers([b"a", b"b"], one, one)


def test_damaged_headers_give_no_size(tmp_path: Path) -> None:
    """Flipped bytes: what is taken for plain has a frame; nothing crashes."""
    rng = np.random.default_rng(0)
    sources = [
        *plain_pictures().values(),
        saved("JPEG", progressive=True),
        *odd_pictures().values(),
    ]
    files = {}
    for number in range(600):
        data = bytearray(sources[number % len(sources)])
        for _ in range(int(rng.integers(1, 5))):
            data[int(rng.integers(min(len(data), 700)))] = int(rng.integers(256))
        files[f"{number}.jpg"] = bytes(data)
    found = headers(tmp_path, files)
    plain = found["plain"] == 1
    assert 50 < plain.sum() < 550
    assert (found["width"][plain] > 0).all()
    assert (found["height"][plain] > 0).all()
    assert not found["width"][~plain].any()


def test_two_frames_are_odd(tmp_path: Path) -> None:
    jpeg = jpeg_bytes()
    at = jpeg.index(b"\xff\xc0")
    frame = jpeg[at : at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")]
    twice = jpeg[:at] + frame + jpeg[at:]
    (found,) = headers(tmp_path, {"a.jpg": twice}).tolist()
    assert found == (0, 0, 0, 0, 0, 0)
    (found,) = headers(tmp_path, {"a.jpg": jpeg[:at] + segment(0xCC, b"xx") + jpeg[at:]}).tolist()
    assert found == (0, 0, 0, 0, 0, 0)
