"""A packed dataset and the number of a sample -> its bytes, its picture by Pillow, or a copy in which it is damaged."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from fastpipe.dataset.format.packed_index import PackedIndex


def damage(dataset: Path, sample: int) -> None:
    """Overwrites the middle of a sample's JPEG, from its start, with zeros; the shard keeps its size."""
    index = PackedIndex(dataset)
    shard, _, offset = index.where(sample)
    with open(shard, "r+b") as file:
        file.seek(offset)
        file.write(bytes(int(index.records[sample]["size"]) // 2))


def flip_unseen(dataset: Path, sample: int) -> None:
    """Changes the last bit of the last step in the first quantisation table: the JPEG decodes to other pixels."""
    shard, _, offset = PackedIndex(dataset).where(sample)
    at = offset + packed_jpeg(PackedIndex(dataset), sample).index(b"\xff\xdb") + 5
    with open(shard, "r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1]))


def packed_jpeg(index: PackedIndex, sample: int) -> bytes:
    """The bytes of a sample, read by way of the index."""
    shard, _, offset = index.where(sample)
    with open(shard, "rb") as file:
        file.seek(offset)
        return file.read(int(index.records[sample]["size"]))


def pillow_picture(index: PackedIndex, sample: int) -> Image.Image:
    """A sample as Pillow decodes it."""
    return Image.open(io.BytesIO(packed_jpeg(index, sample))).convert("RGB")
