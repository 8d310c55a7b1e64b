"""Splits that number their classes themselves: a class has one number in all of them, or the source is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.sources.becomes import becomes
from support.sources.pack_sources import jpeg_bytes
from support.sources.people import labels, photos, tags

import fastpipe
from fastpipe.errors import PackError

TRAIN, VAL = {1: "cat", 2: "dog"}, {1: "dog", 2: "cat"}


def write_coco(file: Path, categories: Mapping[int, str], category: int) -> Path:
    """One photo with a box."""
    file.parent.mkdir(parents=True, exist_ok=True)
    box = {
        "id": 1,
        "image_id": 1,
        "bbox": [0, 0, 10, 10],
        "category_id": category,
        "area": 100,
        "iscrowd": 0,
    }
    content = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 40, "height": 30}],
        "annotations": [box],
        "categories": [{"id": number, "name": name} for number, name in categories.items()],
    }
    file.write_text(json.dumps(content))
    return file


def write_official(root: Path, train: Mapping[int, str], val: Mapping[int, str]) -> Path:
    for split, categories in (("train2017", train), ("val2017", val)):
        photos(root / split, "1.jpg")
        write_coco(root / f"annotations/instances_{split}.json", categories, category=1)
    return root


def class_of_box(folder: Path) -> str:
    data = fastpipe.open(folder / "packed").with_fields(("boxes",))  # type: ignore[attr-defined]
    return str(
        fastpipe.open(folder / "packed").fields["boxes"].names[int(data[0]["boxes_labels"][0])]
    )


@becomes(
    "COCO, splits with other category ids for the same names", "refused", "--classes-from FILE"
)
@pytest.mark.parametrize("as_file", [False, True])
def test_coco_with_other_ids(tmp_path: Path, as_file: bool) -> None:
    root = write_official(tmp_path / "coco", TRAIN, VAL)
    file = root / "annotations/instances_val2017.json"
    source, how = (file, {}) if as_file else (root, {"split": "val2017"})
    with pytest.raises(
        PackError, match=r"number their classes differently: '(cat|dog)' is .*classes-from"
    ):
        fastpipe.pack(source, tmp_path / "packed", **how)  # type: ignore[arg-type]
    training = root / "annotations/instances_train2017.json"
    fastpipe.pack(source, tmp_path / "packed", classes_from=training, **how)  # type: ignore[arg-type]
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("", "cat", "dog")
    assert class_of_box(tmp_path) == "dog"


@becomes("Roboflow's COCO, splits with other category ids", "refused", "--classes-from FILE")
def test_exports_with_other_ids(tmp_path: Path) -> None:
    root = tmp_path / "export"
    for split, categories in (("train", TRAIN), ("valid", {1: "cat", 3: "dog"})):
        photos(root / split, "1.jpg")
        write_coco(root / split / "_annotations.coco.json", categories, category=1)
    with pytest.raises(PackError, match="'dog' is 3 in the first and 2 in the second"):
        fastpipe.pack(root, tmp_path / "packed", split="valid")


@becomes(
    "COCO, splits of which one lacks categories", "the ids of the categories, equal in all splits"
)
def test_coco_with_fewer_categories(tmp_path: Path) -> None:
    root = write_official(tmp_path / "coco", {1: "cat", 2: "dog"}, {1: "cat", 7: "cow"})
    fastpipe.pack(root, tmp_path / "packed", split="val2017")
    assert class_of_box(tmp_path) == "cat"


@becomes(
    "the class folders of val by themselves, beside train",
    "numbered alone, and named",
    "--classes-from TRAIN",
)
def test_a_folder_of_a_split_by_itself(tmp_path: Path) -> None:
    photos(tmp_path / "src/train", "ant/1.jpg", "bee/1.jpg", "cow/1.jpg")
    photos(tmp_path / "src/val", "ant/1.jpg", "cow/1.jpg")
    summary = fastpipe.pack(tmp_path / "src/val", tmp_path / "packed")
    words = "classes: those of val alone, with other numbers than those of train beside it"
    assert list(map(tuple, summary.assumed)) == [(words, f"--classes-from {tmp_path}/src/train")]
    training = fastpipe.pack(tmp_path / "src/train", tmp_path / "training")
    assert training.assumed == ()
    summary = fastpipe.pack(
        tmp_path / "src/val", tmp_path / "right", classes_from=tmp_path / "src/train"
    )
    assert (fastpipe.open(tmp_path / "right").classes, summary.assumed) == (
        ["ant", "bee", "cow"],
        (),
    )


def test_a_damaged_split_does_not_hinder_others(tmp_path: Path) -> None:
    root = write_official(tmp_path / "coco", TRAIN, VAL)
    (root / "annotations/instances_train2017.json").write_text('{"images": [')
    fastpipe.pack(root, tmp_path / "packed", split="val2017")
    assert class_of_box(tmp_path) == "dog"


def write_tables(root: Path, names: str, **columns: tuple[list[object], list[object]]) -> Path:
    """A Parquet file of photos for each of two splits, with their columns."""
    for place, split in enumerate(("train", "validation")):
        rows = {name: both[place] for name, both in columns.items()}
        pictures = [
            {"bytes": jpeg_bytes(), "path": f"{row}.jpg"}
            for row in range(len(next(iter(rows.values()))))
        ]
        file = root / names.format(split=split)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"image": pictures, **rows}), file)
    return root


@becomes(
    "Parquet, splits with text labels of which one lacks a class",
    "the classes of all splits, numbered alike",
)
@pytest.mark.parametrize(
    "names", ["data/{split}-00000-of-00001.parquet", "{split}-00000-of-00001.parquet"]
)
@pytest.mark.parametrize("as_file", [False, True])
def test_parquet_with_texts(tmp_path: Path, names: str, as_file: bool) -> None:
    root = write_tables(tmp_path / "hf", names, label=(["ant", "bee", "cow"], ["ant", "cow"]))
    source, how = (
        (root / names.format(split="validation"), {})
        if as_file
        else (root, {"split": "validation"})
    )
    fastpipe.pack(source, tmp_path / "packed", **how)  # type: ignore[arg-type]
    assert fastpipe.open(tmp_path / "packed").classes == ["ant", "bee", "cow"]
    assert [name for _, name in sorted(labels(tmp_path).items())] == ["ant", "cow"]


@becomes(
    "Parquet, splits with a class that training lacks",
    "the classes of all splits; the summary names it",
)
def test_parquet_with_a_new_class(tmp_path: Path) -> None:
    names = "{split}-00000-of-00001.parquet"
    root = write_tables(tmp_path / "hf", names, label=(["bee", "cow"], ["ant", "cow"]))
    summary = fastpipe.pack(root, tmp_path / "packed", split="validation")
    assert "validation has ant, which the training split lacks" in str(summary.assumed[-1])
    assert fastpipe.open(tmp_path / "packed").classes == ["ant", "bee", "cow"]
    assert [name for _, name in sorted(labels(tmp_path).items())] == ["ant", "cow"]


@becomes(
    "Parquet, splits with several classes in a text",
    "a field of classes, numbered alike in all splits",
)
def test_parquet_with_several_classes(tmp_path: Path) -> None:
    names = "{split}-00000-of-00001.parquet"
    root = write_tables(tmp_path / "hf", names, animals=(["ant|bee", "cow"], ["cow", "ant|cow"]))
    fastpipe.pack(root, tmp_path / "packed", split="validation", fields=["animals=animals:classes"])
    assert fastpipe.open(tmp_path / "packed").fields["animals"].names == ("ant", "bee", "cow")
    assert [found for _, found in sorted(tags(tmp_path, "animals").items())] == [
        {"cow"},
        {"ant", "cow"},
    ]


@becomes("Parquet, splits of folders with text labels", "the classes of all splits, numbered alike")
def test_parquet_in_folders(tmp_path: Path) -> None:
    root = write_tables(
        tmp_path / "hf", "{split}/0.parquet", label=(["ant", "bee", "cow"], ["ant", "cow"])
    )
    fastpipe.pack(root, tmp_path / "packed", split="validation")
    assert fastpipe.open(tmp_path / "packed").classes == ["ant", "bee", "cow"]
