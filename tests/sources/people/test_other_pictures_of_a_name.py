"""Tables whose names or numbers fit other pictures, numbers that are no classes, and odd rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, write

import fastpipe
from fastpipe.errors import PackError

PETS = ("Abyssinian_1", "Abyssinian_2", "beagle_1")


@becomes(
    "Oxford's pets: `annotations/trainval.txt`, with `annotations/trimaps/` beside it and `images/` above",
    "refused, with the folder of the images; trimaps and masks are no images",
    "--image-root images",
)
@pytest.mark.parametrize("masks", ["trimaps", "masks", "SegmentationClass"])
def test_masks_of_the_same_names(tmp_path: Path, masks: str) -> None:
    images = photos(tmp_path / "pets/images", *(f"{name}.jpg" for name in PETS))
    folder = photos(
        tmp_path / f"pets/annotations/{masks}", *(f"{name}.png" for name in PETS)
    ).parent
    text = "Abyssinian_1 1 1 1\nAbyssinian_2 1 1 1\nbeagle_1 2 2 1\n"
    file = write(folder / "trainval.txt", text)
    with pytest.raises(PackError, match=f"pass --image-root {images}"):
        fastpipe.pack(file, tmp_path / "packed")
    fastpipe.pack(file, tmp_path / "packed", image_root=images)
    assert labels(tmp_path) == {
        "Abyssinian_1.jpg": "Abyssinian",
        "Abyssinian_2.jpg": "Abyssinian",
        "beagle_1.jpg": "beagle",
    }


def test_masks_below_a_table(tmp_path: Path) -> None:
    photos(tmp_path, "masks/1.png", "data/images/1.jpg", "masks/2.png", "data/images/2.jpg")
    pack_text(tmp_path, "a.csv", "path,label\n1,cat\n2,dog\n")
    assert labels(tmp_path) == {"data/images/1.jpg": "cat", "data/images/2.jpg": "dog"}


@becomes(
    "ImageNet's `val.txt`: a number for each image (`ILSVRC2012_val_00000001 1`)",
    "no labels; this is said",
)
def test_numbers_of_images(tmp_path: Path) -> None:
    photos(tmp_path / "val", *(f"ILSVRC_{number}.JPEG" for number in (1, 2, 3)))
    text = "ILSVRC_1 1\nILSVRC_2 2\nILSVRC_3 3\n"
    summary = pack_text(tmp_path, "val.txt", text, image_root=tmp_path / "val")
    assert assumed(summary)[1] == (
        "labels: none, for the number behind each name is that of the image "
        "(--label-column column_2)"
    )
    assert set(labels(tmp_path).values()) == {None}
    options = {"image_root": tmp_path / "val", "label_column": "column_2", "overwrite": True}
    pack_text(tmp_path, "val.txt", text, **options)
    assert labels(tmp_path)["ILSVRC_3.JPEG"] == "3"


@becomes(
    "a column `label` with another number in each row",
    "labels; that they may be numbers of the images is said",
)
def test_numbers_in_a_column(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(10, 17)]
    photos(tmp_path, *names)
    rows = "".join(f"{name},{number}\n" for number, name in enumerate(names))
    (text,) = assumed(pack_text(tmp_path, "a.csv", "path,label\n" + rows))
    assert text.startswith("labels: each row has another number in column 'label'")


@becomes(
    "Kaggle's ImageNet: `ImageSets/CLS-LOC/val.txt` beside `LOC_val_solution.csv`",
    "no labels; the table with labels is named, with the command",
)
def test_table_with_labels_first(tmp_path: Path) -> None:
    names = [f"ILSVRC2012_val_{number}" for number in (1, 2, 3)]
    val = photos(tmp_path / "ILSVRC/Data/CLS-LOC/val", *(f"{name}.JPEG" for name in names))
    lines = [f"{name} {number}\n" for number, name in enumerate(names, 1)]
    write(tmp_path / "ILSVRC/ImageSets/CLS-LOC/val.txt", "".join(lines))
    rows = [f"{name},n0144076{number} 1 2 3 4\n" for number, name in enumerate(names)]
    table = write(tmp_path / "LOC_val_solution.csv", "ImageId,PredictionString\n" + "".join(rows))
    (text,) = assumed(fastpipe.pack(val, tmp_path / "packed"))
    assert text.startswith(f"labels: none, though {table} has the names of these images")


@becomes(
    "a CSV with paths of Windows, of which one row lies below another folder",
    "the images of the other rows; this row is rejected",
)
@pytest.mark.parametrize("at_row", [0, 5])
def test_an_odd_row(tmp_path: Path, at_row: int) -> None:
    names = [f"{number}.jpg" for number in range(10)]
    photos(tmp_path / "pictures", *names)
    rows = [f"C:\\Users\\me\\pictures\\{name},{index % 2}\n" for index, name in enumerate(names)]
    rows.insert(at_row, "D:\\old\\99.jpg,1\n")
    pack_text(tmp_path, "a.csv", "path,label\n" + "".join(rows))
    assert labels(tmp_path) == {f"pictures/{name}": str(i % 2) for i, name in enumerate(names)}
    rejected = json.loads((tmp_path / "packed/rejected.jsonl").read_text())
    assert "99.jpg" in str(rejected)
    assert "no such file" in str(rejected)


@becomes(
    "GTSRB: `Train.csv` with paths, beside `Meta/0.png`, which has the name of a class",
    "the user has to choose; the table is named, without --image-root",
)
def test_icons_called_like_classes(tmp_path: Path) -> None:
    root = tmp_path / "gtsrb"
    photos(root, "Meta/0.png", "Meta/1.png", "Train/0/00.png", "Train/1/01.png")
    write(root / "Train.csv", "ClassId,Path\n0,Train/0/00.png\n1,Train/1/01.png\n")
    with pytest.raises(PackError) as caught:
        fastpipe.pack(root, tmp_path / "packed")
    assert f"such as {root / 'Train.csv'}" in str(caught.value)
    assert "--image-root" not in str(caught.value)
