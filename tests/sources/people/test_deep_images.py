"""Images of 16 bits a channel, of which a loader gives 8 by default."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, photos

import fastpipe


def radiographs(folder: Path, largest: int) -> Path:
    photos(folder, "cat/0.jpg", size=(8, 8))
    for number in range(2):
        pixels = np.full((8, 8), 3 + number, np.uint16)
        pixels[0, 0] = largest
        Image.fromarray(pixels).save(folder / f"cat/{1 + number}.png")
    return folder


@becomes(
    "PNGs of 16 bits, such as radiographs of 12 bits",
    "all bits are stored; their number, the bits that they use, and the loader's options are said",
)
@pytest.mark.parametrize(
    ("largest", "words"),
    [
        (4095, "up to 12 bits (below 4,096). A loader divides them by 256, so they are dark"),
        (65535, "up to 16 bits (below 65,536). A loader divides them by 256; its options"),
    ],
)
def test_deep_images_are_told(tmp_path: Path, largest: int, words: str) -> None:
    summary = fastpipe.pack(radiographs(tmp_path / "src", largest), tmp_path / "packed")
    (said,) = [text for text in assumed(summary) if "16 bits a channel" in text]
    assert said.startswith("2 images have 16 bits")
    assert words in said
    # The options that it names.
    loader = fastpipe.loader(
        tmp_path / "packed", 3, train=False, channels="gray", dtype=torch.uint16, size=8
    )
    images, _ = next(iter(loader))
    assert int(images.to(torch.int32).max()) == largest


def test_images_of_8_bits_are_not(tmp_path: Path) -> None:
    summary = fastpipe.pack(photos(tmp_path / "src", "a/1.png", "b/2.png"), tmp_path / "packed")
    assert not any("16 bits" in text for text in assumed(summary))


@becomes(
    "a column of depth PNGs of 16 bits as `--field depth=COLUMN:image`",
    "second images; their bits, and the kind of measured numbers, are said",
)
def test_deep_second_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "0.jpg", size=(16, 16))
    depth = np.arange(400, 656, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(depth).save(source / "depth.png")
    (source / "a.csv").write_text("image,depth\n0.jpg,depth.png\n")
    summary = fastpipe.pack(source / "a.csv", tmp_path / "packed", fields=["depth=depth:image"])
    (said,) = [text for text in assumed(summary) if "16 bits a channel" in text]
    assert said.startswith("field depth: images of 16 bits a channel, with values of up to 10 bits")
    assert "are better packed as kind 'map'" in said
