"""Values that are too large, or announce more than they hold: named reasons, and bounded memory."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.running.memory import frees_memory
from support.sources.pack_sources import jpeg_bytes
from support.sources.tars import END, header, member

import fastpipe
from fastpipe.errors import ImageError
from fastpipe.format.index import Index
from fastpipe.packing.fields.mask import mask_of_png
from fastpipe.sources.picture.png import encode_png

GIB = 1 << 30


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(width: int, height: int, data_bytes: int) -> bytes:
    """A PNG whose data inflate to more than its size says, or whose size is more than its data hold."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(data_bytes), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# Packs a tar in a process that may not have much memory.
PACK = """
import resource, sys
import fastpipe
import fastpipe.packing.writer
with open("/proc/self/statm") as file:
    most = int(file.read().split()[5]) * resource.getpagesize() + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
summary = fastpipe.pack(sys.argv[1], sys.argv[2], workers=1)
for path, reason in summary.tally.rejected:
    print(path, reason)
"""


def packed_in_little_memory(tar: Path, destination: Path) -> list[str]:
    more = 500 << 20  # than the program has; threads, and libraries that come later, take some of it
    run = subprocess.run(
        [sys.executable, "-c", PACK, str(tar), str(destination), str(more)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@frees_memory
def test_a_text_of_2_gb_and_bombs_cost_nothing(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    jpeg = jpeg_bytes((64, 64))
    with open(tar, "wb") as file:
        file.write(member("a.jpg", jpeg) + header("a.txt", 2 * GIB))
        file.seek(2 * GIB, 1)  # a hole
        file.write(member("b.jpg", jpeg) + member("b.seg.png", bomb(65500, 65500, 1000)))
        file.write(member("c.jpg", jpeg) + member("c.seg.png", bomb(64, 64, GIB)))
        mask = member("d.seg.png", encode_png(MASK, filters=False))
        file.write(member("d.jpg", jpeg) + member("d.txt", b"good") + mask + END)
    lines = sorted(packed_in_little_memory(tar, tmp_path / "packed"))
    assert lines[0] == "a.jpg field txt: expected at most 268,435,456 bytes, got 2,147,483,648"
    assert lines[1] == "b.jpg field seg: the PNG is corrupt: 65500 x 65500 pixels cannot be in 17 compressed bytes"
    assert len(Index(tmp_path / "packed")) == 4 - len(lines)


MASK = np.zeros((64, 64), np.uint8)


def test_a_value_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpipe.packing.fields.values.MOST_VALUE_BYTES", 100)
    with fastpipe.Writer(tmp_path / "packed", {"a": "text", "b": "json", "c": "bytes"}) as writer:
        writer.add(jpeg_bytes(), a="x" * 100, b="x" * 98, c=b"x" * 100)
        writer.add(jpeg_bytes(), a="ä" * 51)
        writer.add(jpeg_bytes(), b="x" * 99)
        writer.add(jpeg_bytes(), c=b"x" * 101)
    assert len(Index(tmp_path / "packed")) == 1
    assert [reason.split(":")[0] for _, reason in writer.summary.tally.rejected] == ["field a", "field b", "field c"]


@given(st.integers(0, 10**9), st.binary(max_size=4))
def test_a_damaged_mask_is_refused_or_has_the_same_ids(place: int, patch: bytes) -> None:
    ids = np.random.default_rng(0).integers(0, 256, (9, 11), dtype=np.uint8)
    data = bytearray(encode_png(ids, filters=False))
    at = place % len(data)
    data[at : at + len(patch)] = patch
    with contextlib.suppress(ImageError):
        np.testing.assert_array_equal(mask_of_png(bytes(data), (11, 9)), ids)


@given(st.integers(0, 200))
def test_a_truncated_mask_is_refused(length: int) -> None:
    data = encode_png(np.random.default_rng(0).integers(0, 256, (9, 11), dtype=np.uint8), filters=False)
    with pytest.raises(ImageError):
        mask_of_png(data[: min(length, len(data) - 1)], (11, 9))
