"""Messages about a source that has to be chosen: what they name is accepted, and packs the labels at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support.sources.people import labels, photos, write

import fastpipe
from fastpipe.errors import PackError


def refusal_of(source: Path) -> str:
    """The message that refuses a source."""
    with pytest.raises(PackError) as refused:
        fastpipe.pack(source, source.parent / "none")
    return str(refused.value)


def test_kinds_are_values_of_format(tmp_path: Path) -> None:
    """Kaggle's Carvana has metadata.csv, which is about cars and lists no image."""
    source = photos(tmp_path / "src", *(f"train/{n}.jpg" for n in (1, 2)), "test/3.jpg")
    for name in ("1_mask.png", "2_mask.png"):
        (source / "train_masks").mkdir(exist_ok=True)
        Image.new("L", (40, 30), 1).save(source / "train_masks" / name)
    write(source / "metadata.csv", "id,year\n1,2014\n")
    message = refusal_of(source)
    words = "kinds of source: masks, or images that metadata.csv describes. --format masks leaves "
    assert words in message
    fastpipe.pack(source, tmp_path / "packed", format="masks", split="train")
    assert set(labels(tmp_path)) == {"train/1.jpg", "train/2.jpg"}
