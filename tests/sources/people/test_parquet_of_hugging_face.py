"""Parquet files of Hugging Face with further columns of images and classes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, values
from support.sources.tables import IMAGE, jpegs, pa, pq, write_table

import fastpipe
from fastpipe.errors import PackError

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
    "images; that they are not stored as masks is said",
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
        "column 'annotation' is stored as images, not as masks (--field mask=annotation:mask)",
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


def write_masks(file: Path, *, palette: bool) -> Path:
    """Pictures in `pixel_values`, and in `label` the masks 0 1 and 0 2, as sidewalk-semantic has them."""
    masks = []
    for number in (1, 2):
        mask = Image.new("P" if palette else "L", (2, 1))
        if palette:
            mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        mask.putpixel((1, 0), number)
        data = io.BytesIO()
        mask.save(data, "PNG")
        masks.append({"bytes": data.getvalue(), "path": None})
    pictures = []
    for number in (1, 2):
        data = io.BytesIO()
        Image.new("RGB", (2, 1), (number, 0, 0)).save(data, "PNG")
        pictures.append({"bytes": data.getvalue(), "path": None})
    table = pa.table({"pixel_values": pa.array(pictures, IMAGE), "label": pa.array(masks, IMAGE)})
    pq.write_table(table, file)
    return file


@becomes(
    "Parquet of masks in a column `label` beside `pixel_values` (sidewalk-semantic)",
    "refused; the message tells which column has images and which has masks, by their pixels",
    "--image-column pixel_values --field labels=label:mask",
)
@pytest.mark.parametrize("palette", [False, True])
def test_a_label_column_of_masks(tmp_path: Path, *, palette: bool) -> None:
    file = write_masks(tmp_path / "a.parquet", palette=palette)
    words = (
        "several columns that may hold the images: label, pixel_values. By its images, label "
        "has masks: pass --image-column pixel_values --field labels=label:mask"
    )
    with pytest.raises(PackError, match=words):
        fastpipe.pack(file, tmp_path / "none")
    with pytest.raises(PackError, match=r"as a field: --field labels=label:mask$"):
        fastpipe.pack(file, tmp_path / "none", image_column="pixel_values")

    options: Any = {"image_column": "pixel_values", "fields": ["labels=label:mask"]}
    summary = fastpipe.pack(file, tmp_path / "packed", **options)
    assert assumed(summary) == []
    rows = [np.squeeze(mask).tolist() for mask in values(tmp_path, "labels").values()]
    assert sorted(rows) == [[0, 1], [0, 2]]

    names = tmp_path / "id2label.json"
    names.write_text('{"0": "unlabeled", "1": "road", "2": "human"}')
    summary = fastpipe.pack(file, tmp_path / "packed", overwrite=True, **options)
    assert assumed(summary) == [
        "field labels: the numbers in the masks have no names; id2label.json has names of numbers "
        f"(--classes-from {names})"
    ]
    summary = fastpipe.pack(
        file, tmp_path / "packed", overwrite=True, classes_from=names, **options
    )
    names_of_values = fastpipe.open(tmp_path / "packed").fields["labels"].names
    assert names_of_values == ("unlabeled", "road", "human")

    options["fields"] = ["labels=label"]
    summary = fastpipe.pack(file, tmp_path / "packed", overwrite=True, **options)
    assert assumed(summary) == [
        "column 'label' of masks is stored as images, which are interpolated when they are resized "
        "(--field labels=label:mask)"
    ]


def test_two_columns_of_photos(tmp_path: Path) -> None:
    images = pa.array([{"bytes": data, "path": None} for data in jpegs(2)], IMAGE)
    pq.write_table(pa.table({"before": images, "after": images}), tmp_path / "a.parquet")
    with pytest.raises(PackError, match=r"after, before\. --image-column picks one$"):
        fastpipe.pack(tmp_path / "a.parquet", tmp_path / "none")


@becomes(
    "img2dataset's files: `00000.parquet` with `key` beside `00000/000000000.jpg`",
    "refused: the column of the names of images is named",
    "--image-column key",
)
def test_names_of_files_in_a_column_of_parquet(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "00000/000000000.jpg", "00000/000000001.jpg")
    columns = {
        "url": ["http://x/6.jpg", "http://x/7.jpg"],
        "caption": ["a cat", "a dog"],
        "key": ["000000000", "000000001"],
    }
    pq.write_table(pa.table(columns), source / "00000.parquet")
    with pytest.raises(PackError, match=r"--image-column names it \(--image-column key\)"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", image_column="key")
    assert values(tmp_path, "caption") == {
        "00000/000000000.jpg": "a cat",
        "00000/000000001.jpg": "a dog",
    }
