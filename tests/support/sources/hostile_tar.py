"""A WebDataset tar whose values are huge, or announce more than they hold."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from support.pictures import pngs
from support.pictures.pngs import chunk
from support.sources.pack_sources import jpeg_bytes
from support.sources.tars import END, header, member

from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.sources.picture.png import encode_png

GIB = 1 << 30


def bomb(width: int, height: int, data_bytes: int) -> bytes:
    """A PNG whose data inflate to more than its size says, or whose size is more than its data hold."""
    data = chunk(b"IDAT", zlib.compress(bytes(data_bytes), 9))
    return pngs.SIGNATURE + pngs.header(width, height) + data + chunk(b"IEND")


def write_hostile_tar(tar: Path, inflated_bytes: int) -> None:
    """Samples with a text of 2 GiB, a mask of too many pixels, one that inflates to so many bytes, and good values."""
    jpeg = jpeg_bytes((64, 64))
    good_mask = encode_png(np.zeros((64, 64), np.uint8), filters=False)
    with open(tar, "wb") as file:
        file.write(member("a.jpg", jpeg) + header("a.txt", 2 * GIB))
        file.seek(2 * GIB, 1)  # a hole
        file.write(member("b.jpg", jpeg) + member("b.seg.png", bomb(65500, 65500, 1000)))
        file.write(member("c.jpg", jpeg) + member("c.seg.png", bomb(64, 64, inflated_bytes)))
        file.write(
            member("d.jpg", jpeg) + member("d.txt", b"good") + member("d.seg.png", good_mask) + END
        )


def assert_refused(rejected: list[str], packed: Path) -> None:
    """What packing such a tar says of its samples: lines of a path and a reason."""
    lines = sorted(rejected)
    assert lines[0] == "a.jpg field txt: expected at most 268,435,456 bytes, got 2,147,483,648"
    assert (
        lines[1]
        == "b.jpg field seg: the PNG is corrupt: 65500 x 65500 pixels cannot be in 17 compressed bytes"
    )
    assert len(PackedIndex(packed)) == 4 - len(lines)
