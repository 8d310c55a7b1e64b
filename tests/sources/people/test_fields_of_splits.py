"""Names of fields of classes and of boxes: train and val have the same numbers, whatever the order of the samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.ray.sources import packed_on_ray
from support.ray.tasks_here import Cluster
from support.sources.becomes import becomes
from support.sources.pack_sources import jpeg_bytes
from support.sources.people import photos, tags, write
from support.sources.tables import write_table

import fastpipe

# The classes of each image. Neither list has them in the order of their names.
CLASSES = {
    "train": [["fox", "deer"], ["deer"], ["zebra"], ["fox"], ["ant"], ["deer", "ant"]],
    "val": [["zebra"], ["deer"], ["fox", "zebra"], ["deer"], ["fox"], ["zebra", "deer"]],
}
ALL = ("ant", "deer", "fox", "zebra")


def labels_of_boxes(folder: Path) -> list[list[int]]:
    """The numbers of the classes of the boxes, in the order of the keys."""
    labels = {}
    for sample in fastpipe.open(folder / "packed").with_fields(("key", "boxes")):  # type: ignore[attr-defined]
        labels[sample["key"]] = sample["boxes_labels"].tolist()
    return [numbers for _, numbers in sorted(labels.items())]


def write_jsonl(file: Path, lists: Sequence[Sequence[str]], folder: str = "", **more: str) -> None:
    """A row for each list, with the image 0.jpg, 1.jpg, ... in the folder, and more columns."""
    lines = []
    for number, classes in enumerate(lists):
        row = {"file_name": f"{folder}{number}.jpg", "tags": classes, **more}
        lines.append(json.dumps(row))
    write(file, "\n".join(lines))


def names_of(folder: Path) -> list[str]:
    """The files of the six images of a split."""
    return [f"{folder}/{number}.jpg" for number in range(6)]


def check_tags(packed: Path, split: str, field: str = "tags") -> None:
    """Each image has its classes, under the numbers of all splits."""
    assert fastpipe.open(packed / "packed").fields[field].names == ALL
    classes = [names for _, names in sorted(tags(packed, field).items())]
    assert classes == [set(expected) for expected in CLASSES[split]]


@becomes(
    "train.jsonl and val.jsonl with lists of class names",
    "a field of classes, numbered alike in both",
    "--split val --field tags=tags:classes",
)
@pytest.mark.parametrize("split", CLASSES)
def test_lists_in_jsonl_of_splits(tmp_path: Path, split: str) -> None:
    source = tmp_path / "src"
    for name, lists in CLASSES.items():
        photos(source, *names_of(Path(name)))
        write_jsonl(source / f"{name}.jsonl", lists, f"{name}/")
    fastpipe.pack(source, tmp_path / "packed", split=split, fields=["tags=tags:classes"])
    check_tags(tmp_path, split)


@becomes(
    "train/ and val/ with a metadata.jsonl, whose lists have class names",
    "the same",
    "--split val --field tags=tags:classes",
)
@pytest.mark.parametrize("split", CLASSES)
def test_lists_in_metadata_of_splits(tmp_path: Path, split: str) -> None:
    source = tmp_path / "src"
    for name, lists in CLASSES.items():
        photos(source / name, *names_of(Path()))
        write_jsonl(source / name / "metadata.jsonl", lists)
    fastpipe.pack(source, tmp_path / "packed", split=split, fields=["tags=tags:classes"])
    check_tags(tmp_path, split)


@becomes(
    "one JSONL with a column `split` and lists of class names",
    "the same",
    "--split val --field tags=tags:classes",
)
@pytest.mark.parametrize("split", CLASSES)
def test_lists_in_jsonl_with_a_column_of_splits(tmp_path: Path, split: str) -> None:
    source = tmp_path / "src"
    lines = []
    for name, lists in CLASSES.items():
        photos(source, *names_of(Path(name)))
        write_jsonl(source / "rows", lists, f"{name}/", split=name)
        lines.append((source / "rows").read_text())
    file = write(source / "all.jsonl", "\n".join(lines))
    fastpipe.pack(file, tmp_path / "packed", split=split, fields=["tags=tags:classes"])
    check_tags(tmp_path, split)


def write_parquet(root: Path, column: str, columns: dict[str, list[Any]]) -> Path:
    """A file for each split, of photos and a column."""
    for split, cells in columns.items():
        file = root / f"data/{split}-00000-of-00001.parquet"
        write_table(file, [jpeg_bytes() for _ in cells], **{column: cells})
    return root


@becomes(
    "Parquet with a column of lists of class names, splits in data/",
    "the same",
    "--split val --field tags=tags:classes",
)
@pytest.mark.parametrize("pack", [fastpipe.pack, packed_on_ray])
@pytest.mark.parametrize("split", CLASSES)
def test_lists_in_parquet_of_splits(
    tasks_here: Cluster, tmp_path: Path, split: str, pack: Callable[..., object]
) -> None:
    source = write_parquet(tmp_path / "src", "tags", dict(CLASSES))
    pack(source, tmp_path / "packed", split=split, fields=["tags=tags:classes"])
    check_tags(tmp_path, split)


@becomes(
    'Parquet with boxes as `{"bbox": ..., "category": ["fox"]}`, splits in data/',
    "boxes, whose classes are numbered alike in all splits",
    "--split val --field boxes=objects:boxes",
)
@pytest.mark.parametrize("pack", [fastpipe.pack, packed_on_ray])
@pytest.mark.parametrize("split", CLASSES)
def test_boxes_in_parquet_of_splits(
    tasks_here: Cluster, tmp_path: Path, split: str, pack: Callable[..., object]
) -> None:
    objects = {}
    for name, lists in CLASSES.items():
        objects[name] = [
            {"bbox": [[1, 2, 10, 10]] * len(classes), "category": classes} for classes in lists
        ]
    source = write_parquet(tmp_path / "src", "objects", objects)
    pack(source, tmp_path / "packed", split=split, fields=["boxes=objects:boxes"])
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ALL
    expected = [[ALL.index(name) for name in classes] for classes in CLASSES[split]]
    assert labels_of_boxes(tmp_path) == expected


def test_given_classes_of_boxes_in_parquet(tmp_path: Path) -> None:
    """A name of the table has the number that it has among the given names."""
    objects = [{"bbox": [[1, 2, 10, 10]] * 2, "category": ["fox", "deer"]}]
    file = write_table(tmp_path / "a.parquet", [jpeg_bytes()], objects=objects)
    names = ["zebra", "fox", "ant", "deer"]
    fastpipe.pack(file, tmp_path / "packed", fields=["boxes=objects:boxes"], classes_from=names)
    assert labels_of_boxes(tmp_path) == [[1, 3]]


def write_coco(file: Path, lists: Sequence[Sequence[str]], ids: dict[str, int]) -> None:
    """Images with the categories of each list, and no boxes."""
    images = []
    annotations = []
    for number, classes in enumerate(lists):
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 40, "height": 30})
        for name in classes:
            entry = {"id": len(annotations), "image_id": number, "category_id": ids[name]}
            annotations.append(entry)
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    write(file, {"images": images, "annotations": annotations, "categories": categories})


@becomes(
    "COCO without boxes, train.json and val.json with several categories of an image (camera traps)",
    "a field of classes in the order of the categories' ids, of all splits",
    "--split val",
)
@pytest.mark.parametrize("split", CLASSES)
def test_categories_of_whole_images_of_splits(tmp_path: Path, split: str) -> None:
    source = tmp_path / "src"
    ids = {"zebra": 0, "deer": 5, "ant": 7, "fox": 30}
    for name, lists in CLASSES.items():
        photos(source / name, *names_of(Path()))
        used = set().union(*lists)
        ids_of_split = {category: number for category, number in ids.items() if category in used}
        write_coco(source / f"{name}.json", lists, ids_of_split)
    fastpipe.pack(source, tmp_path / "packed", split=split)
    assert fastpipe.open(tmp_path / "packed").fields["categories"].names == tuple(ids)
    classes = [names for _, names in sorted(tags(tmp_path, "categories").items())]
    assert classes == [set(expected) for expected in CLASSES[split]]


def write_flags(file: Path, columns: Sequence[str], split: str) -> None:
    lines = [f"path,{','.join(columns)}"]
    for number, classes in enumerate(CLASSES[split]):
        flags = [str(int(column in classes)) for column in columns]
        lines.append(f"{split}/{number}.jpg,{','.join(flags)}")
    write(file, "\n".join(lines))


@becomes(
    "train.csv and val.csv with a column a class, in other orders",
    "a field of classes, sorted in both; in the order of the columns if this is the same",
    "--split val --field 'tags=*:classes'",
)
@pytest.mark.parametrize("split", CLASSES)
def test_columns_of_splits_in_other_orders(tmp_path: Path, split: str) -> None:
    source = tmp_path / "src"
    for name in CLASSES:
        photos(source, *names_of(Path(name)))
    write_flags(source / "train.csv", ALL, "train")
    write_flags(source / "val.csv", ["zebra", "fox", "deer"], "val")
    fastpipe.pack(source, tmp_path / "packed", split=split, fields=["tags=*:classes"])
    check_tags(tmp_path, split)


@pytest.mark.parametrize("split", CLASSES)
def test_columns_of_splits_in_one_order(tmp_path: Path, split: str) -> None:
    source = tmp_path / "src"
    for name in CLASSES:
        photos(source, *names_of(Path(name)))
        write_flags(source / f"{name}.csv", ["zebra", "ant", "fox", "deer"], name)
    fastpipe.pack(source, tmp_path / "packed", split=split, fields=["tags=*:classes"])
    assert fastpipe.open(tmp_path / "packed").fields["tags"].names == (
        "zebra",
        "ant",
        "fox",
        "deer",
    )
    classes = [names for _, names in sorted(tags(tmp_path, "tags").items())]
    assert classes == [set(expected) for expected in CLASSES[split]]
