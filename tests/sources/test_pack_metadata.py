"""Folders with metadata.jsonl, .csv or .parquet, as Hugging Face's ImageFolder reads them, which is the judge."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from support.sources.listed import by_path, flat_photos, paths_of, write_lines

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError

ROWS: list[dict[str, Any]] = [
    {
        "file_name": f"{number:03d}.jpg",
        "caption": f"a {number}, b",
        "year": 1900 + number,
        "share": number / 8,
        "objects": {"bbox": [[1.5, 2, 3, 4]] * (number % 3), "categories": [number] * (number % 3)},
        "mask_file_name": f"masks/{number:03d}.png",
    }
    for number in range(12)
]


def folder(root: Path, form: str) -> Path:
    flat_photos(root)
    (root / "masks").mkdir()
    for row in ROWS:
        number = int(row["file_name"][:3])
        mask = np.random.default_rng(number).integers(0, 256, (30, 40 + number)).astype(np.uint8)
        Image.fromarray(mask).save(root / row["mask_file_name"])
    if form == "jsonl":
        write_lines(root / "metadata.jsonl", *ROWS)
    elif form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), root / "metadata.parquet")
    else:
        with open(root / "metadata.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows({**row, "objects": json.dumps(row["objects"])} for row in ROWS)
    return root


@pytest.mark.filterwarnings("ignore")  # of datasets and what it imports
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_values_are_those_of_datasets(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    root = folder(tmp_path / "photos", form)
    judged = datasets.load_dataset(
        "imagefolder", data_dir=str(root), split="train", cache_dir=str(tmp_path / "cache")
    )
    rows = {row["image"].width - 40: row for row in judged}
    summary = fastpipe.pack(root, tmp_path / "packed", fields=None)
    assert summary.stray == []
    assert {
        name: field.kind for name, field in PackedIndex(tmp_path / "packed").fields.items()
    } == {
        "caption": "text",
        "year": "int",
        "share": "floats",
        "objects": "boxes",
        "mask": "image",
    }
    found = by_path(tmp_path / "packed", "image", "caption", "year", "share", "objects")
    assert len(found) == len(rows) == 12
    for path, (image, caption, year, share, boxes, labels) in found.items():
        row = rows[int(path[:3])]
        assert np.array_equal(np.asarray(row["image"]), np.moveaxis(np.asarray(image), 0, -1))
        assert (caption, int(year), float(share)) == (row["caption"], row["year"], row["share"])
        objects = json.loads(row["objects"]) if isinstance(row["objects"], str) else row["objects"]
        corners = [[x, y, x + width, y + height] for x, y, width, height in objects["bbox"]]
        assert boxes.tolist() == corners
        assert labels.tolist() == objects["categories"]


def test_times_and_decimals_of_parquet_are_texts(tmp_path: Path) -> None:
    root = flat_photos(tmp_path / "photos", 3)
    columns = {
        "file_name": [f"00{number}.jpg" for number in range(3)],
        "taken": [datetime(2024, 1, day) for day in (1, 2, 3)],
        "price": pyarrow.array([1, 2, None], pyarrow.decimal128(5, 2)),
        "share": pyarrow.array([0.5, float("nan"), None]),
        "place": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), root / "metadata.parquet")
    summary = fastpipe.pack(root, tmp_path / "packed")
    assert not summary.tally.rejected
    kinds = {name: field.kind for name, field in PackedIndex(tmp_path / "packed").fields.items()}
    assert kinds == {"taken": "text", "price": "text", "share": "json", "place": "text"}
    found = by_path(tmp_path / "packed", "taken", "price", "share", "place")
    assert found["001.jpg"] == ("2024-01-02 00:00:00.000000", "2.00", None, "b")
    assert found["002.jpg"] == ("2024-01-03 00:00:00.000000", "", None, "a")


def test_bytes_in_metadata_need_a_choice(tmp_path: Path) -> None:
    root = flat_photos(tmp_path / "photos", 3)
    rows = [{"file_name": f"00{number}.jpg", "raw": b"x", "n": number} for number in range(3)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), root / "metadata.parquet")
    for options in ({}, {"fields": ["raw"]}):
        with pytest.raises(
            PackError, match=r"column 'raw' is binary; expected .* in metadata of images.*--field"
        ):
            fastpipe.pack(root, tmp_path / "packed", **options)
    fastpipe.pack(root, tmp_path / "packed", fields=["n"])
    assert by_path(tmp_path / "packed", "n") == {f"00{number}.jpg": number for number in range(3)}


def test_files_without_a_row_and_rows_without_a_file_are_told(tmp_path: Path) -> None:
    root = flat_photos(tmp_path / "photos", 3)
    (root / "deep").mkdir()
    (root / "deep/9.jpg").write_bytes(b"")
    write_lines(
        root / "metadata.jsonl",
        {"file_name": "000.jpg"},
        {"file_name": "002.jpg"},
        {"file_name": "7.jpg"},
    )
    summary = fastpipe.pack(root, tmp_path / "packed")
    assert summary.stray == ["001.jpg", "deep/9.jpg"]
    ((path, reason),) = summary.tally.rejected
    assert (path, "no such file in the image root" in reason) == ("7.jpg", True)
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "002.jpg"]


def test_splits_need_a_choice(tmp_path: Path) -> None:
    for split in ("train", "val"):
        root = flat_photos(tmp_path / "data" / split, 3)
        write_lines(
            root / "metadata.jsonl",
            *({"file_name": f"00{number}.jpg"} for number in range(len(split) - 2)),
        )
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(tmp_path / "data", tmp_path / "packed")
    fastpipe.pack(tmp_path / "data", tmp_path / "packed", split="val")
    assert paths_of(tmp_path / "packed") == ["000.jpg"]
    (tmp_path / "data/val/metadata.jsonl").unlink()
    with pytest.raises(
        PackError, match="--split train packs what it lists, --format imagefolder takes the folders"
    ):
        fastpipe.pack(tmp_path / "data", tmp_path / "other")


def test_two_metadata_files_are_an_error(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos", "jsonl")
    (root / "metadata.csv").write_text("file_name\n000.jpg\n")
    with pytest.raises(
        PackError, match=r"holds metadata.jsonl and metadata.csv; expected one of them"
    ):
        fastpipe.pack(root, tmp_path / "packed")
    fastpipe.pack(root / "metadata.csv", tmp_path / "packed", format="csv")
    assert paths_of(tmp_path / "packed") == ["000.jpg"]


def test_rows_without_file_name(tmp_path: Path) -> None:
    root = flat_photos(tmp_path / "photos", 3)
    write_lines(
        root / "metadata.jsonl",
        {"path": "000.jpg", "a_file_name": "000.jpg", "b_file_name": "001.jpg"},
    )
    with pytest.raises(
        PackError, match="several columns that may hold the images: a_file_name, b_file_name"
    ):
        fastpipe.pack(root, tmp_path / "packed")
    write_lines(root / "metadata.jsonl", {"path": "000.jpg"})
    with pytest.raises(PackError, match=r"such as file_name; got path\. --image-column names it"):
        fastpipe.pack(root, tmp_path / "packed")
    fastpipe.pack(root, tmp_path / "packed", image_column="path")
