"""Images that lie beside those of a table's rows, and have no row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.listed import by_path
from support.sources.people import assumed, labels, pack_text, photos, values
from support.sources.tables import pa, pq

import fastpipe
from fastpipe.errors import ConfigError, PackError

BOXES = (
    "image,xmin,ymin,xmax,ymax,class\na.jpg,1,2,10,12,dog\na.jpg,3,4,6,8,cat\nb.jpg,5,6,7,8,dog\n"
)


@pytest.fixture
def four(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")


@becomes(
    "a table of boxes beside images without a row",
    "these are left out; that they are, and how many, is said",
    "--unlisted drop or keep",
)
@pytest.mark.parametrize("text", [BOXES, BOXES.replace("b.jpg,5,6,7,8,dog", "b.jpg,,,,,")])
def test_boxes_without_rows_of_all_images(four: Path, text: str) -> None:
    said = (
        "images: 2 images in the same folders are not listed and are left out, such as c.jpg "
        "(--unlisted drop or keep)"
    )
    assert assumed(pack_text(four, "a.csv", text)) == [said]
    assert set(values(four, "boxes")) == {"a.jpg", "b.jpg"}
    assert assumed(pack_text(four, "a.csv", text, unlisted="drop", overwrite=True)) == []
    assert set(values(four, "boxes")) == {"a.jpg", "b.jpg"}


@becomes(
    "the same, where images without a row are background", "images without boxes", "--unlisted keep"
)
@pytest.mark.parametrize("share", [False, True])
def test_images_without_a_row_are_background(four: Path, share: bool) -> None:
    text = "image,xmin,ymin,xmax,ymax,class\na.jpg,0.1,0.2,0.5,0.4,dog\n" if share else BOXES
    texts = assumed(pack_text(four, "a.csv", text, unlisted="keep"))
    assert ["normalised coordinates" in each for each in texts] == [True] * share
    found = values(four, "boxes")
    assert found["a.jpg"] == (
        [[[4, 6, 20, 12]], [0]] if share else [[[1, 2, 10, 12], [3, 4, 6, 8]], [1, 0]]
    )
    assert found["c.jpg"] == found["d.jpg"] == [[], []]
    assert len(found) == 4


@becomes(
    "a table of labels beside images without a row",
    "these are left out; that they are, and how many, is said",
    "--unlisted drop or keep",
)
def test_labels_without_rows_of_all_images(tmp_path: Path) -> None:
    photos(tmp_path, "x/a.jpg", "x/b.jpg", "x/.hidden.jpg", "x/Thumbs.db.jpg", "y/other.jpg")
    (tmp_path / "x" / "notes.txt").write_text("no image")
    (said,) = assumed(pack_text(tmp_path, "a.csv", "path,label\nx/a.jpg,cat\n", unlisted=None))
    assert said.startswith(
        "images: 2 images in the same folders are not listed and are left out, such as x/Thumbs.db.jpg"
    )
    pack_text(tmp_path, "a.csv", "path,label\nx/a.jpg,cat\n", unlisted="keep", overwrite=True)
    assert labels(tmp_path) == {"x/a.jpg": "cat", "x/b.jpg": None, "x/Thumbs.db.jpg": None}


def test_images_of_rejected_rows_and_of_other_splits_have_a_row(four: Path) -> None:
    text = "path,xmin,ymin,xmax,ymax,class,split\nA,1,2,3,,dog,train\nb,1,2,3,4,dog,val\nc.jpg,1,2,3,4,dog,train\n"
    (said,) = assumed(pack_text(four, "a.csv", text, split="train"))
    assert "1 image in the same folders is not listed and is left out, such as d.jpg" in said
    text = "path,label,split\na.jpg,1,train\nb.jpg,0,val\nc.jpg,1,train\n"
    (said,) = assumed(pack_text(four, "a.csv", text, split="train", overwrite=True))
    assert "1 image in the same folders is not listed and is left out, such as d.jpg" in said


@becomes(
    "images beside `metadata.csv` without a row in it",
    "left out; they are counted",
    "--unlisted drop or keep",
)
def test_images_without_metadata(four: Path) -> None:
    (four / "metadata.csv").write_text("file_name,label\na.jpg,cat\nb.jpg,dog\n")
    summary = fastpipe.pack(four, four.parent / "packed")
    assert "2 images in the same folders are not listed" in assumed(summary)[0]
    assert summary.stray == ["c.jpg", "d.jpg"]
    summary = fastpipe.pack(four, four.parent / "packed", unlisted="keep", overwrite=True)
    assert summary.stray == assumed(summary) == []
    assert set(by_path(four.parent / "packed", "label")) == {"a.jpg", "b.jpg", "c.jpg", "d.jpg"}


@becomes("Parquet with paths, beside images without a row", "as in CSV", "--unlisted drop or keep")
def test_parquet_of_paths(four: Path) -> None:
    pq.write_table(pa.table({"path": ["a.jpg"], "label": ["cat"]}), four / "a.parquet")
    assert (
        "3 images in the same folders are not listed"
        in assumed(fastpipe.pack(four / "a.parquet", four / "packed"))[0]
    )
    fastpipe.pack(four / "a.parquet", four / "packed", unlisted="keep", overwrite=True)
    assert labels(four) == {"a.jpg": "cat", "b.jpg": None, "c.jpg": None, "d.jpg": None}


def test_parquet_of_splits(four: Path) -> None:
    pq.write_table(pa.table({"path": ["a.jpg"], "label": ["cat"]}), four / "train.parquet")
    pq.write_table(pa.table({"path": ["b.jpg"], "label": ["cat"]}), four / "validation.parquet")
    pq.write_table(pa.table({"name": ["c.jpg"]}), four / "test.parquet")
    fastpipe.pack(four / "train.parquet", four / "packed", unlisted="keep")
    assert labels(four) == {"a.jpg": "cat", "c.jpg": None, "d.jpg": None}


def test_what_becomes_of_them_is_an_option_of_tables(four: Path) -> None:
    (four / "a.csv").write_text("path,label\na.jpg,cat\n")
    succeeded("pack", four / "a.csv", four / "packed", "--unlisted", "keep")
    assert len(labels(four)) == 4
    recorded = json.loads((four / "packed" / "dataset.json").read_text())
    assert recorded["packs"][0]["options"]["source"] == {"unlisted": "keep"}
    with pytest.raises(ConfigError, match=r"^unlisted: expected 'drop' or 'keep', got 'all'"):
        fastpipe.pack(four / "a.csv", four / "other", unlisted="all")
    with pytest.raises(PackError, match=r"^unlisted: it has no effect on a folder of images"):
        fastpipe.pack(photos(four / "only", "x.jpg"), four / "other", unlisted="keep")


@becomes(
    "train.csv and val.csv that list images of one folder, with --unlisted keep",
    "the images of val.csv have a row, so they are not packed",
)
def test_images_of_the_table_of_another_split_have_a_row(four: Path) -> None:
    text = "image,xmin,ymin,xmax,ymax,class\n{},1,2,10,12,dog\n"
    (four / "val.csv").write_text(text.format("b.jpg"))
    (four / "test.csv").write_text("name\nc.jpg\n")  # another kind of table
    pack_text(four, "train.csv", text.format("a.jpg"), unlisted="keep")
    assert set(values(four, "boxes")) == {"a.jpg", "c.jpg", "d.jpg"}
    (said,) = assumed(pack_text(four, "train.csv", text.format("a.jpg"), overwrite=True))
    assert "2 images in the same folders are not listed" in said


@pytest.mark.parametrize("packed", ["train", "val", "test"])
def test_images_of_the_tables_of_two_other_splits_have_a_row(tmp_path: Path, packed: str) -> None:
    photos(tmp_path, "train.jpg", "val.jpg", "test.jpg")
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.csv").write_text(f"path,label\n{split}.jpg,cat\n")
    summary = fastpipe.pack(tmp_path / f"{packed}.csv", tmp_path / "packed")
    assert assumed(summary) == []
    assert labels(tmp_path) == {f"{packed}.jpg": "cat"}
