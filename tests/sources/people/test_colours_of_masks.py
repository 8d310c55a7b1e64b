"""Masks with a colour for each class, beside a list of these colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, photos, write
from support.sources.tables import pa, pq

import fastpipe
from fastpipe.errors import PackError

ANIMAL = (64, 128, 64)
CAR = (192, 0, 128)
SKY = (0, 0, 0)
CLASS_DICT = "name,r,g,b\nSky,0,0,0\nAnimal,64,128,64\nCar,192,0,128\n"


def paint(file: Path, *rows: list[tuple[int, ...]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(rows, np.uint8)).save(file)


def camvid(root: Path, split: str = "", behind: str = "") -> Path:
    """Two pictures of 3 x 2 pixels with masks of colours."""
    images = f"{split}_images" if split else "images"
    mask_folder = f"{split}_masks" if split else "masks"
    photos(root, f"{images}/a.png", f"{images}/b.png", size=(3, 2))
    paint(root / mask_folder / f"a{behind}.png", [SKY, ANIMAL, CAR], [CAR, SKY, SKY])
    paint(root / mask_folder / f"b{behind}.png", [SKY, SKY, SKY], [SKY, SKY, ANIMAL])
    return root


def masks_by_name(folder: Path) -> dict[str, list[list[int]]]:
    """Name of the image -> the rows of its mask, of FOLDER/packed."""
    return {Path(key).stem: mask for key, mask in masks(folder).items()}


RIGHT = {"a": [[0, 1, 2], [2, 0, 0]], "b": [[0, 0, 0], [0, 0, 1]]}


@becomes(
    "CamVid of Kaggle: `images/`, `masks/a_L.png` with colours, `class_dict.csv` with name, r, g, b",
    "a field `mask` with the number of the line of each colour, from 0, and the names",
)
def test_masks_of_class_dict(tmp_path: Path) -> None:
    source = camvid(tmp_path / "src", behind="_L")
    write(source / "class_dict.csv", CLASS_DICT)
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert masks_by_name(tmp_path) == RIGHT
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == ("Sky", "Animal", "Car")
    assert assumed(summary) == [
        "classes of the field mask: those of class_dict.csv: 0 is 'Sky', 1 is 'Animal', 2 is 'Car'"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("label_colors.txt", "0 0 0\t\tSky\n64 128 64\tAnimal\n192 0 128\tCar\n"),
        ("label_colors.txt", "0 0 0 Sky\n64 128 64 Animal\n\n192 0 128 Car\n"),
        ("class_colors.csv", "Sky,0,0,0\nAnimal, 64, 128, 64\nCar,192,0,128\n"),
        (
            "labelmap.txt",
            "# label:color_rgb:parts:actions\nSky:0,0,0::\nAnimal:64,128,64::\nCar:192,0,128::\n",
        ),
        (
            "class_dict.csv",
            "id,class,red,green,blue\n7,Sky,0,0,0\n8,Animal,64,128,64\n9,Car,192,0,128\n",
        ),
    ],
)
@becomes(
    "masks of colours beside `label_colors.txt` (`64 128 64<tab>Animal`), CVAT's `labelmap.txt`, and the like",
    "as with `class_dict.csv`",
)
def test_other_lists_of_colours(tmp_path: Path, name: str, text: str) -> None:
    source = camvid(tmp_path / "src")
    write(source / name, text)
    fastpipe.pack(source, tmp_path / "packed")
    assert masks_by_name(tmp_path) == RIGHT
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == ("Sky", "Animal", "Car")


@becomes(
    "CamVid: `train_images/` beside `train_masks/`, the same for `val`, `class_dict.csv` beside them",
    "splits, whose masks have the same numbers",
    "--split train",
)
def test_splits_with_colours(tmp_path: Path) -> None:
    for split in ("train", "val"):
        camvid(tmp_path / "src", split)
    write(tmp_path / "src/class_dict.csv", CLASS_DICT)
    fastpipe.pack(tmp_path / "src", tmp_path / "packed", split="val")
    assert masks_by_name(tmp_path) == RIGHT


def test_the_list_may_lie_above_the_folder_of_a_split(tmp_path: Path) -> None:
    camvid(tmp_path / "src/train")
    camvid(tmp_path / "src/val")
    write(tmp_path / "src/class_dict.csv", CLASS_DICT)
    fastpipe.pack(tmp_path / "src", tmp_path / "packed", split="train")
    assert masks_by_name(tmp_path) == RIGHT
    fastpipe.pack(tmp_path / "src/val", tmp_path / "packed", overwrite=True)
    assert masks_by_name(tmp_path) == RIGHT


@becomes(
    "the same, with a colour that is not in the list",
    "the image is rejected with the colour and its place",
)
def test_an_unknown_colour(tmp_path: Path) -> None:
    source = camvid(tmp_path / "src")
    paint(source / "masks/b.png", [SKY, SKY, SKY], [SKY, (1, 2, 3), SKY])
    write(source / "class_dict.csv", CLASS_DICT)
    summary = fastpipe.pack(source, tmp_path / "packed")
    ((path, reason),) = summary.tally.rejected
    assert path == "images/b.png"
    assert "the colour (1, 2, 3) at x 1, y 1 is none of the 3 in the list of colours" in reason


@becomes(
    "masks of colours without a list of the colours",
    "refused, with the file to write",
    "--field mask=mask:image",
)
def test_no_list_of_colours(tmp_path: Path) -> None:
    source = camvid(tmp_path / "src")
    with pytest.raises(PackError, match=r"class_dict\.csv .* name,r,g,b .* Animal,64,128,64"):
        fastpipe.pack(source, tmp_path / "packed")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name,r,g,b\nSky,0,0,0\nCar,0,0,0\n", r"lines 2 and 3 have the same colour \(0, 0, 0\)"),
        ("name,r,g,b\nSky,0,0,0\nCar,300,0,0\n", r"line 3: expected the name .* got 'Car,300,0,0'"),
        ("0 0 0 Sky\n1 2 3 4 Car\n", r"line 2: expected the name of a class and its red"),
    ],
)
@becomes(
    "a list in which two classes have one colour, or that cannot be read",
    "refused, with the lines",
)
def test_a_list_that_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    source = camvid(tmp_path / "src")
    write(source / "class_dict.csv", text)
    with pytest.raises(PackError, match=reason):
        fastpipe.pack(source, tmp_path / "packed")


def test_another_list_is_another_dataset(tmp_path: Path) -> None:
    source = camvid(tmp_path / "src")
    write(source / "class_dict.csv", CLASS_DICT)
    fastpipe.pack(source, tmp_path / "packed")
    write(source / "class_dict.csv", "name,r,g,b\nCar,192,0,128\nSky,0,0,0\nAnimal,64,128,64\n")
    fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    assert masks_by_name(tmp_path)["b"] == [[1, 1, 1], [1, 1, 2]]


def test_alpha_and_palettes_count_as_colours(tmp_path: Path) -> None:
    source = camvid(tmp_path / "src")
    write(source / "class_dict.csv", CLASS_DICT)
    with Image.open(source / "masks/a.png") as image:
        image.convert("RGBA").save(source / "masks/a.png")
    with Image.open(source / "masks/b.png") as image:
        image.quantize().save(source / "masks/b.png")
    fastpipe.pack(source, tmp_path / "packed")
    assert masks_by_name(tmp_path) == RIGHT
    paint(source / "masks/a.png", [(*SKY, 255), (*SKY, 255), (*SKY, 9)], [(*SKY, 255)] * 3)
    summary = fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    assert "a pixel that is not opaque, at x 2, y 0" in summary.tally.rejected[0][1]


@becomes(
    "masks of colours, with the classes of another dataset",
    "each colour has the number of its class there",
    "--classes-from names.txt",
)
def test_given_classes_of_colours(tmp_path: Path) -> None:
    source = camvid(tmp_path / "src")
    write(source / "class_dict.csv", CLASS_DICT)
    fastpipe.pack(source, tmp_path / "packed", classes_from=["Car", "Sky", "Tree", "Animal"])
    assert masks_by_name(tmp_path)["a"] == [[1, 3, 0], [0, 1, 1]]
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names[3] == "Animal"


def test_masks_with_numbers_cannot_be_renumbered(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.png", size=(3, 2))
    paint(source / "masks/a.png", [1, 1, 2], [2, 1, 1])  # type: ignore[list-item]
    palette = Image.open(source / "masks/a.png").convert("P")
    palette.putpalette([0, 0, 0, 10, 10, 10, 20, 20, 20])
    palette.save(source / "masks/a.png")
    write(source / "labelmap.txt", "cat:10,10,10::\ndog:20,20,20::\n")
    with pytest.raises(PackError, match="are stored as pixels"):
        fastpipe.pack(source, tmp_path / "packed", classes_from=["tree", "dog", "cat"])


@becomes(
    "DeepGlobe: a table of images and masks with colours, `class_dict.csv` beside it",
    "a field `mask` with the number of the line of each colour, and the names",
    "--field mask=mask_path:mask",
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_masks_of_a_table(tmp_path: Path, ending: str) -> None:
    source = photos(tmp_path / "src", "train/1_sat.jpg", "train/2_sat.jpg", size=(3, 2))
    paint(source / "train/1_mask.png", [SKY, ANIMAL, CAR], [CAR, SKY, SKY])
    paint(source / "train/2_mask.png", [SKY, SKY, SKY], [SKY, SKY, ANIMAL])
    columns = {
        "path": ["train/1_sat.jpg", "train/2_sat.jpg"],
        "mask_path": ["train/1_mask.png", "train/2_mask.png"],
    }
    table = source / f"pairs.{ending}"
    if ending == "csv":
        lines = [",".join(row) for row in zip(*columns.values(), strict=True)]
        write(table, "\n".join([",".join(columns), *lines]))
    else:
        pq.write_table(pa.table(columns), table)
    fields = ["mask=mask_path:mask"]
    with pytest.raises(PackError, match=r"1_mask.png is a PNG with colours.*class_dict.csv"):
        fastpipe.pack(table, tmp_path / "packed", fields=fields)
    write(source / "class_dict.csv", CLASS_DICT)
    summary = fastpipe.pack(table, tmp_path / "packed", fields=fields)
    assert masks_by_name(tmp_path) == {"1_sat": RIGHT["a"], "2_sat": RIGHT["b"]}
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == ("Sky", "Animal", "Car")
    assert "those of class_dict.csv: 0 is 'Sky'" in assumed(summary)[0]
