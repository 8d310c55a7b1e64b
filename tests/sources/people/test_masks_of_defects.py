"""Class folders of which some have masks of defects: MVTec AD, BTAD."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, masks, photos

import fastpipe
from fastpipe.errors import PackError

SIZE = (4, 2)
DEFECT = [[0, 0, 0, 255], [0, 0, 255, 255]]
NO_DEFECT = [[0, 0, 0, 0], [0, 0, 0, 0]]


def mvtec(root: Path) -> Path:
    photos(root, "train/good/000.png", "train/good/001.png", size=SIZE)
    photos(root, "test/good/000.png", "test/crack/000.png", "test/hole/000.png", size=SIZE)
    for name in ("crack", "hole"):
        folder = root / "ground_truth" / name
        folder.mkdir(parents=True)
        Image.fromarray(np.array(DEFECT, np.uint8)).save(folder / "000_mask.png")
    (root / "license.txt").write_text("CC BY-NC-SA 4.0\n")
    return root


@becomes(
    "MVTec AD, a category: `train/good/`, `test/good/`, `test/crack/000.png`, "
    "`ground_truth/crack/000_mask.png`",
    "the folders as classes of both splits, and a field `mask`, of 0 everywhere for good images",
    "--split test",
)
def test_test_images(tmp_path: Path) -> None:
    source = mvtec(tmp_path / "bottle")
    with pytest.raises(PackError, match=r"has the splits test, train; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(source, tmp_path / "packed", split="test")
    assert not summary.tally.rejected
    assert masks(tmp_path) == {
        "test/good/000.png": NO_DEFECT,
        "test/crack/000.png": DEFECT,
        "test/hole/000.png": DEFECT,
    }
    by_folder = {key.split("/")[1]: label for key, label in labels(tmp_path).items()}
    assert by_folder == {"good": "good", "crack": "crack", "hole": "hole"}
    without, values = assumed(summary)
    assert "the values 0 and 255, which stay" in values
    assert "masks = (batch['mask'] > 127).long(). Where ignore_index=255" in values
    assert without.startswith("field mask: images without a mask: 1, in the folders good;")


@becomes(
    "the same, its training",
    "the label of good among the classes of all; masks of 0",
    "--split train",
)
def test_training_images(tmp_path: Path) -> None:
    fastpipe.pack(mvtec(tmp_path / "bottle"), tmp_path / "packed", split="train")
    assert set(labels(tmp_path).values()) == {"good"}
    assert fastpipe.open(tmp_path / "packed").classes == ["crack", "good", "hole"]
    assert list(masks(tmp_path).values()) == [NO_DEFECT, NO_DEFECT]


def test_defect_without_a_mask(tmp_path: Path) -> None:
    source = mvtec(tmp_path / "bottle")
    photos(source, *(f"test/crack/{number:03}.png" for number in range(40)), size=SIZE)
    mask = source / "ground_truth/crack/000_mask.png"
    for number in range(1, 39):
        Image.open(mask).save(mask.with_name(f"{number:03}_mask.png"))
    summary = fastpipe.pack(source, tmp_path / "packed", split="test")
    assert len(summary.tally.rejected) == 1


def test_images_alone(tmp_path: Path) -> None:
    source = mvtec(tmp_path / "bottle")
    _, text = assumed(fastpipe.pack(source / "test", tmp_path / "packed"))
    assert f"To pack both: fastpipe pack {source} DST --split test" in text


def test_as_class_folders(tmp_path: Path) -> None:
    source = mvtec(tmp_path / "bottle")
    fastpipe.pack(source, tmp_path / "packed", split="test", format="imagefolder")
    assert sorted(labels(tmp_path).values()) == ["crack", "good", "hole"]
