"""Tests of decoding by libjpeg-turbo picture after picture: none sees anything of the one before."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fastpipe
from fastpipe.packing.job.threads import pack

DQT, DHT, COMMENT = 0xDB, 0xC4, 0xFE


@pytest.fixture(scope="module")
def rgb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six JPEGs that only libjpeg-turbo decodes: their components are RGB."""
    folder = tmp_path_factory.mktemp("rgb")
    (folder / "source" / "only").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in range(6):
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (40, 56, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=80, keep_rgb=True)
        (folder / "source" / "only" / f"{number}.jpg").write_bytes(file.getvalue())
    pack(folder / "source", folder / "packed")
    return folder / "packed"


def without_tables(dataset: Path, sample: int, marker: int) -> None:
    """Makes comments of a sample's tables."""
    index = fastpipe.open(dataset).index
    shard, _, offset = index.where(sample)
    with open(shard, "r+b") as file:
        file.seek(offset)
        jpeg = bytearray(file.read(int(index.records[sample]["size"])))
        at = 2
        while jpeg[at + 1] != 0xDA:
            size = int.from_bytes(jpeg[at + 2 : at + 4], "big")
            if jpeg[at + 1] == marker:
                jpeg[at + 1] = COMMENT
            at += 2 + size
        file.seek(offset)
        file.write(jpeg)


@pytest.mark.parametrize("marker", [DQT, DHT])
def test_a_picture_without_tables_is_not_given_those_of_another(
    rgb: Path, copied: Callable[[Path], Path], marker: int
) -> None:
    dataset = copied(rgb)
    without_tables(dataset, 3, marker)
    with fastpipe.loader(
        dataset, 1, size=32, train=False, num_workers=1
    ) as loader:  # one thread, in order
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        with pytest.raises(fastpipe.SampleError, match="the JPEG is corrupt"):
            next(batches)
