"""The boxes of CUB-200-2011 and NABirds, as people have them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.annotated import objects, packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError

CROW = "001.Crow/c_1.jpg"
WREN = "002.Wren/w_1.jpg"
ELSE = "002.Wren/w_2.jpg"


def cub(root: Path) -> Path:
    photos(root / "images", CROW, WREN, ELSE)
    write(root / "images.txt", f"1 {CROW}\n2 {WREN}\n3 {ELSE}\n")
    write(root / "bounding_boxes.txt", "1 1.0 2.0 30.0 20.0\n2 4.0 5.0 6.0 7.0\n3 0.5 0 9 8\n")
    write(root / "image_class_labels.txt", "1 1\n2 2\n3 2\n")
    write(root / "classes.txt", "1 001.Crow\n2 002.Wren\n")
    write(root / "train_test_split.txt", "1 0\n2 1\n3 1\n")
    write(root / "parts/part_locs.txt", "1 1 312.0 182.0 1\n")
    write(root / "attributes/certainties.txt", "1 not visible\n")
    write(root / "README", "CUB\n")
    return root


@becomes(
    "CUB-200-2011: `images/001.Crow/a.jpg`, `bounding_boxes.txt`, `images.txt`, `classes.txt`, "
    "`train_test_split.txt`",
    "boxes and labels of the split, with the classes of both; parts and attributes are named",
    "--split train",
)
def test_boxes_of_a_split(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    with pytest.raises(PackError, match=r"test, train; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    boxes, summary = packed_objects(source, tmp_path / "packed", split="train")
    assert {Path(key).name: values for key, values in boxes.items()} == {
        "w_1.jpg": [("002.Wren", [4, 5, 10, 12])],
        "w_2.jpg": [("002.Wren", [0.5, 0, 9.5, 8])],
    }
    assert set(labels(tmp_path).values()) == {"002.Wren"}
    assert fastpipe.open(tmp_path / "packed").classes == ["001.Crow", "002.Wren"]
    (text,) = assumed(summary)
    assert text.startswith("not read, beside the images: attributes/, parts/;")

    boxes, _ = packed_objects(source, tmp_path / "packed", split="test")
    assert list(boxes.values()) == [[("001.Crow", [1, 2, 31, 22])]]


def test_list_of_splits_of_the_user(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    file = write(tmp_path / "folds.txt", f"{CROW} 0\n{WREN} 1\n{ELSE} 0\n")
    packed_objects(source, tmp_path / "packed", split_list=file, split="0")
    assert sorted(labels(tmp_path).values()) == ["001.Crow", "002.Wren"]


@becomes(
    "NABirds: the same, with hexadecimal ids (`0000139e-21dc 0817/a.jpg`)",
    "boxes with the names of `classes.txt`; `images/` with --split-list is packed, too",
    "--split train",
)
def test_hexadecimal_ids(tmp_path: Path) -> None:
    root = tmp_path / "nabirds"
    photos(root / "images", "0817/a.jpg", "0295/b.jpg")
    write(root / "images.txt", "0000139e-21dc 0817/a.jpg\n0000d9fc-4e02 0295/b.jpg\n")
    write(root / "bounding_boxes.txt", "0000139e-21dc 3 4 20 10\n0000d9fc-4e02 1 2 30 20\n")
    write(root / "image_class_labels.txt", "0000139e-21dc 817\n0000d9fc-4e02 295\n")
    write(root / "classes.txt", "0 Birds\n295 Wren\n817 Titmouse\n")
    splits = write(root / "train_test_split.txt", "0000139e-21dc 1\n0000d9fc-4e02 0\n")

    boxes, _ = packed_objects(root, tmp_path / "packed", split="train")
    assert list(boxes.values()) == [[("Titmouse", [3, 4, 23, 14])]]
    assert fastpipe.open(tmp_path / "packed").classes == ["Titmouse", "Wren"]

    options = {"split_list": splits, "split": "1", "overwrite": True}
    fastpipe.pack(root / "images", tmp_path / "packed", **options)
    assert labels(tmp_path) == {"0817/a.jpg": "0817"}


def test_classes_of_one_name(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    write(source / "classes.txt", "1 Bird\n2 Bird\n")
    (source / "train_test_split.txt").unlink()
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert {name for values in boxes.values() for name, _ in values} == {"1 Bird", "2 Bird"}


def test_lists_that_are_missing_or_damaged(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    write(source / "bounding_boxes.txt", "1 1.0 2.0 30.0 20.0\n2 4.0 5.0\n9 0.5 0 9 8\n")
    with pytest.raises(PackError, match=r"w_1\.jpg: expected four numbers of a box"):
        fastpipe.pack(source, tmp_path / "none", split="train")
    write(source / "train_test_split.txt", "1 1\n2 1\n9 1\n")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert len(summary.tally.rejected) == 2
    (source / "images.txt").unlink()
    with pytest.raises(PackError, match=r"expected images\.txt beside it"):
        fastpipe.pack(source / "bounding_boxes.txt", tmp_path / "none")


@becomes(
    "CUB: `images/` alone, with `bounding_boxes.txt` beside `images.txt` above",
    "the folders as classes and no boxes; the command that packs them is named",
    "the folder above, --split train",
)
def test_images_alone(tmp_path: Path) -> None:
    source = cub(tmp_path / "cub")
    text, _ = assumed(fastpipe.pack(source / "images", tmp_path / "packed"))
    boxes = source / "bounding_boxes.txt"
    assert text.startswith(
        f"boxes: none; {boxes} has a box by the number of each image. To pack both: "
    )
    command = text.partition(": fastpipe ")[2].replace("DST", str(tmp_path / "both"))
    succeeded(*shlex.split(command))
    assert len(objects(tmp_path / "both")) == 2
