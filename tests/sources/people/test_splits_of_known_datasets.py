"""Oxford's pets, GTSRB and Kaggle's Planet: which list or table has the images of a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import labels, photos, tags, values, write

import fastpipe
from fastpipe.errors import PackError

BREEDS = ("Abyssinian", "american_bulldog")
PATTERN = r"(?:^|/)([^\W\d_][^/]*?)[-_. ]+\d+[.]\w+$"


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    source = tmp_path / "pets"
    lines: dict[str, str] = {"trainval": "", "test": ""}
    for number, breed in enumerate(BREEDS, 1):
        for image in range(1, 5):
            name = f"{breed}_{image}"
            photos(source, f"images/{name}.jpg")
            trimap = source / f"annotations/trimaps/{name}.png"
            trimap.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((30, 40), number, np.uint8)).save(trimap)
            box = "<xmin>5</xmin><ymin>6</ymin><xmax>25</xmax><ymax>26</ymax>"
            write(
                source / f"annotations/xmls/{name}.xml",
                f"<annotation><filename>{name}.jpg</filename><object><name>cat</name>"
                f"<bndbox>{box}</bndbox></object></annotation>",
            )
            split = "test" if image == 4 else "trainval"
            lines[split] += f"{name} {number} 1 1\n"
    for split, text in lines.items():
        write(source / f"annotations/{split}.txt", text)
    return source


@becomes(
    "Oxford's pets with `--split test`: `annotations/test.txt` beside `images/`",
    "refused, with the list; for the images alone with the table, which has the classes",
    "--split-list SRC/annotations/test.txt",
)
@pytest.mark.parametrize("kind", ["masks", "voc"])
def test_splits_of_pets(tmp_path: Path, pets: Path, kind: str) -> None:
    file = pets / "annotations/test.txt"
    with pytest.raises(PackError, match=f"has the images of this split: pass --split-list {file}"):
        fastpipe.pack(pets, tmp_path / "packed", format=kind, split="test")
    fastpipe.pack(pets, tmp_path / "packed", format=kind, split_list=file)
    keys = {key.rpartition("/")[2] for key in fastpipe.open(tmp_path / "packed")["key"]}
    assert keys == {f"{breed}_4.jpg" for breed in BREEDS}


def test_splits_of_the_images_of_pets_alone(tmp_path: Path, pets: Path) -> None:
    file = pets / "annotations/test.txt"
    images = pets / "images"
    expected = {f"{breed}_4.jpg": breed for breed in BREEDS}
    with pytest.raises(PackError, match=f"pass it with --image-root {images}"):
        fastpipe.pack(images, tmp_path / "packed", split="test")
    fastpipe.pack(file, tmp_path / "packed", image_root=images)
    assert labels(tmp_path) == expected
    with pytest.raises(PackError, match=f"pass --split-list {file}"):
        fastpipe.pack(images, tmp_path / "none", split="test", label_pattern=PATTERN)
    options = {"split_list": file, "label_pattern": PATTERN, "overwrite": True}
    fastpipe.pack(images, tmp_path / "packed", **options)
    assert labels(tmp_path) == expected


@becomes(
    "GTSRB of Kaggle: `Train.csv`, `Test.csv`, `Meta.csv` beside `Train/0/`, `Test/`",
    "boxes with the class numbers of the table of the split",
    "--split test",
)
def test_tables_of_splits_in_capitals(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src", "Train/0/a.png", "Train/3/b.png", "Test/c.png", "Meta/0.png", "Meta/3.png"
    )
    header = "Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path\n"
    write(source / "Train.csv", f"{header}5,6,20,25,0,Train/0/a.png\n5,6,20,25,3,Train/3/b.png\n")
    write(source / "Test.csv", f"{header}5,6,20,25,3,Test/c.png\n")
    write(source / "Meta.csv", "Path,ClassId,ShapeId\nMeta/0.png,0,1\nMeta/3.png,3,1\n")
    fastpipe.pack(source, tmp_path / "packed", split="test")
    assert values(tmp_path, "boxes") == {"Test/c.png": [[[5, 6, 20, 25]], [3]]}


@becomes(
    "GTSRB: `Final_Test/Images/` with the images and `GT-final_test.csv`",
    "refused, with the table to pass",
    "--split test",
)
def test_a_split_with_one_folder_and_a_table(tmp_path: Path) -> None:
    source = photos(
        tmp_path / "src",
        *(f"Final_Training/Images/0000{number}/a.ppm" for number in (0, 1)),
        *(f"Final_Test/Images/0000{number}.ppm" for number in (0, 1)),
    )
    table = source / "Final_Test/Images/GT-final_test.csv"
    write(table, "Filename;ClassId\n00000.ppm;1\n00001.ppm;0\n")
    with pytest.raises(PackError, match=f"Pass {table}.*: it lists the images there"):
        fastpipe.pack(source, tmp_path / "packed", split="test")


@becomes(
    "Kaggle's Planet, its root: `train-jpg/`, `test-jpg/`, `train_v2.csv`",
    "refused, with the table and its options",
    "SRC/train_v2.csv --field tags=tags:classes --separator ' '",
)
def test_root_of_planet(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "test-jpg/test_0.jpg")
    texts = ("haze primary", "clear primary water", "clear primary", "cloudy")
    rows = ""
    for number, text in enumerate(texts):
        photos(source, f"train-jpg/train_{number}.jpg")
        rows += f"train_{number},{text}\n"
    table = write(source / "train_v2.csv", f"image_name,tags\n{rows}")
    options = (
        f"{table}, with --image-root {source}/train-jpg --field tags=tags:classes --separator ' '"
    )
    with pytest.raises(PackError) as raised:
        fastpipe.pack(source, tmp_path / "packed")
    assert f"If the table beside them has the labels, pass {options}. Else" in str(raised.value)
    fastpipe.pack(
        table,
        tmp_path / "packed",
        image_root=source / "train-jpg",
        fields=["tags=tags:classes"],
        separator=" ",
    )
    assert tags(tmp_path, "tags")["train_1.jpg"] == {"clear", "primary", "water"}
