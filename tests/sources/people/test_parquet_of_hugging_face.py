"""Parquet files of Hugging Face with further columns of images and classes."""

from __future__ import annotations

import json
from pathlib import Path

from support.sources.becomes import becomes
from support.sources.people import assumed, photos
from support.sources.tables import IMAGE, jpegs, pa, pq, write_table

import fastpipe

NAMES = {"_type": "ClassLabel", "names": ["day", "night"]}


def write_scenes(file: Path, *, class_column: str) -> Path:
    images = pa.array([{"bytes": data, "path": None} for data in jpegs(2)], IMAGE)
    table = pa.table({"image": images, "annotation": images, class_column: [0, 1], "label": [1, 0]})
    features = {"image": {"_type": "Image"}, "annotation": {"_type": "Image"}, class_column: NAMES}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), file)
    return file


@becomes(
    "Parquet with a second column of images (scene_parse_150)",
    "pictures; that they are not stored as masks is said",
    "--field mask=annotation:mask",
)
@becomes(
    "Parquet with a second column of named classes (CIFAR-100's coarse_label)",
    "numbers; that the names are not stored is said",
    "--label-column coarse_label",
)
def test_further_columns_of_images_and_classes(tmp_path: Path) -> None:
    file = write_scenes(tmp_path / "a.parquet", class_column="scene")
    summary = fastpipe.pack(file, tmp_path / "packed", image_column="image")
    assert assumed(summary) == [
        "column 'annotation' of images is stored as pictures, not as masks "
        "(--field mask=annotation:mask)",
        "column 'scene' is stored as numbers, without the names of their classes "
        "(--label-column scene)",
    ]
    fields = ["scene=scene", "annotation=annotation:image"]
    options = {"image_column": "image", "fields": fields, "overwrite": True}
    assert assumed(fastpipe.pack(file, tmp_path / "packed", **options)) == []


@becomes(
    "Parquet of splits whose `ClassLabel` lists the same names in different orders",
    "one number for a class in all splits, by the sorted names; this is said",
    "--split train",
)
def test_splits_with_names_in_different_orders(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for split, names in (("train", ["zebra", "apple"]), ("test", ["apple", "zebra"])):
        images = pa.array([{"bytes": data, "path": None} for data in jpegs(2)], IMAGE)
        table = pa.table({"image": images, "label": [0, 1]})
        label = {"_type": "ClassLabel", "names": names}
        features = {"image": {"_type": "Image"}, "label": label}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        pq.write_table(table.replace_schema_metadata(metadata), source / f"{split}.parquet")
    for split, of_rows in (("train", [1, 0]), ("test", [0, 1])):
        summary = fastpipe.pack(source, tmp_path / split, split=split)
        (said,) = assumed(summary)
        assert "list the same ones in different orders" in said
        data = fastpipe.open(tmp_path / split)
        assert data.classes == ["apple", "zebra"]
        by_row = dict(zip(data["key"], data["label"], strict=True))
        assert [int(by_row[key]) for key in sorted(by_row)] == of_rows


def test_first_label_is_not_proposed_for_parquet(tmp_path: Path) -> None:
    said = "labels: 1 to 2 stay as they are, so class 0 of 3 has no sample"
    file = write_table(tmp_path / "a.parquet", jpegs(2), label=[1, 2])
    assert assumed(fastpipe.pack(file, tmp_path / "packed"))[-1] == said
    photos(tmp_path, "a.jpg", "b.jpg")
    pq.write_table(pa.table({"path": ["a.jpg", "b.jpg"], "label": [1, 2]}), tmp_path / "b.parquet")
    assert assumed(fastpipe.pack(tmp_path / "b.parquet", tmp_path / "paths"))[-1] == said
