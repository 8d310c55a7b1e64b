"""Messages that name a way to pack a source: the way works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe
from fastpipe.errors import PackError


@becomes(
    "VQA v2: questions and answers by the numbers of images, beside `train2014/`",
    "no labels; the files are named, with the line of JSONL to write instead",
)
def test_questions_of_vqa(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train2014/COCO_train2014_000000000009.jpg")
    entry = {"image_id": 9, "question": "what?", "question_id": 90}
    questions = {"info": {"year": 2017}, "task_type": "Open-Ended", "questions": [entry]}
    file = write(source / "v2_OpenEnded_mscoco_train2014_questions.json", questions)
    answers = {"info": {"year": 2017}, "annotations": [{**entry, "answers": []}]}
    write(source / "v2_mscoco_train2014_annotations.json", answers)
    text = assumed(fastpipe.pack(source, tmp_path / "packed", split="train"))[-1]
    assert "is the JSON of VQA (questions or answers by the numbers of images): write" in text
    with pytest.raises(PackError, match="is the JSON of VQA"):
        fastpipe.pack(file, tmp_path / "none")


@becomes(
    "GTSRB: `Final_Training/Images/00000/`, and `GT-final_test.csv` beside it",
    "refused, or with `--split train` no labels; the folder of the classes is named",
    "SRC/Final_Training/Images",
)
def test_training_of_gtsrb(tmp_path: Path) -> None:
    source = tmp_path / "src"
    images = source / "Final_Training/Images"
    photos(images, "00000/00000_00000.ppm", "00001/00000_00000.ppm")
    photos(source / "Final_Test/Images", "00000.ppm", "00001.ppm")
    write(source / "GT-final_test.csv", "Filename;ClassId\n00000.ppm;0\n00001.ppm;1\n")
    with pytest.raises(PackError, match=f"00000, 00001 are the classes or splits, {images}"):
        fastpipe.pack(source, tmp_path / "none")
    texts = assumed(fastpipe.pack(source, tmp_path / "none", split="train"))
    assert texts[0].endswith(f"If the folders in it (00000, 00001) are the classes, pass {images}")
    fastpipe.pack(images, tmp_path / "packed")
    assert fastpipe.open(tmp_path / "packed").classes == ["00000", "00001"]


@pytest.mark.parametrize("header", ["id,label\n", "image,label\n", ""])
@becomes(
    "`images/` beside `train.csv` and `val.csv`",
    "the rows of the table that is called like the split",
    "--split train",
)
def test_tables_called_like_splits(tmp_path: Path, header: str) -> None:
    source = photos(tmp_path / "src", *(f"images/{name}.jpg" for name in "abcd"))
    write(source / "train.csv", f"{header}a.jpg,ant\nb.jpg,bee\n")
    write(source / "val.csv", f"{header}c.jpg,ant\nd.jpg,bee\n")
    fastpipe.pack(source, tmp_path / "packed", split="train")
    assert labels(tmp_path) == {"images/a.jpg": "ant", "images/b.jpg": "bee"}


@becomes(
    "VOC whose lists are in `ImageSets/SegmentationContext/` alone",
    "refused with `--split train`; the option that takes the list is named",
    "--split-list SRC/ImageSets/SegmentationContext/train.txt",
)
def test_lists_of_pascal_context(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "JPEGImages/1.jpg", "JPEGImages/2.jpg")
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>8</xmax><ymax>9</ymax></bndbox>"
    for name in "12":
        text = f"<annotation><object><name>ant</name>{box}</object></annotation>"
        write(source / f"Annotations/{name}.xml", text)
    file = write(source / "ImageSets/SegmentationContext/train.txt", "2\n")
    with pytest.raises(PackError, match=f"--split-list {file} in place of it"):
        fastpipe.pack(source, tmp_path / "none", split="train")
    fastpipe.pack(source, tmp_path / "packed", split_list=file)
    assert list(fastpipe.open(tmp_path / "packed")["key"]) == ["2.jpg"]


@becomes(
    "CSV with labels that are large numbers, as Shopee's `label_group`",
    "the numbers as names of classes; the summary says so",
    "--label-column label_group",
)
def test_ids_as_labels(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    rows = "a.jpg,249114794\nb.jpg,2937985045\nc.jpg,7\n"
    table = write(tmp_path / "t.csv", f"image,label_group\n{rows}")
    summary = fastpipe.pack(table, tmp_path / "packed", label_column="label_group")
    assert labels(tmp_path) == {"a.jpg": "249114794", "b.jpg": "2937985045", "c.jpg": "7"}
    assert assumed(summary)[0] == (
        "labels: the numbers in column 'label_group' go beyond 999,999, the largest label, so they "
        "are taken as names of classes"
    )
    # In JSON, a number is no name.
    row = {"image": "a.jpg", "label": 2937985045}
    with pytest.raises(PackError, match="write ids of classes as texts, which are names"):
        fastpipe.pack(write(tmp_path / "t.jsonl", json.dumps(row)), tmp_path / "none")


def test_one_large_number_among_labels_is_rejected(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    table = write(tmp_path / "t.csv", "image,label\na.jpg,0\nb.jpg,1\nc.jpg,2937985045\n")
    summary = fastpipe.pack(table, tmp_path / "packed")
    assert [path for path, _ in summary.tally.rejected] == ["c.jpg"]


@becomes(
    "MSMT17, Places365: `list_train.txt` or `lists/val.txt` beside the folder of a split",
    "the file is named, with the option to pack it",
    "SRC/list_train.txt --image-root SRC/train",
)
@pytest.mark.parametrize("place", ["list_train.txt", "lists/train.txt"])
def test_lists_beside_splits(tmp_path: Path, place: str) -> None:
    source = photos(tmp_path / "src", "train/a_1.jpg", "train/b_2.jpg", "test/c_3.jpg")
    file = write(source / place, "a_1.jpg 0\nb_2.jpg 1\n")
    text = assumed(fastpipe.pack(source, tmp_path / "none", split="train"))[-1]
    assert text.endswith(
        f"{place} lists these images: if it has labels, pass {file}, with --image-root "
        f"{source}/train"
    )
    fastpipe.pack(file, tmp_path / "packed", image_root=source / "train")
    assert labels(tmp_path) == {"a_1.jpg": "0", "b_2.jpg": "1"}


@becomes(
    "Parquet with a list of texts called like classes, and the index of pandas",
    "JSON; the list is named, the index is not",
    "--field tags=tags:classes",
)
def test_lists_of_texts_in_parquet(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    columns: dict[str, list[Any]] = {
        "path": ["a.jpg", "b.jpg"],
        "tags": [["ant", "bee"], ["ant"]],
        "__index_level_0__": [0, 1],
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    texts = assumed(fastpipe.pack(tmp_path / "t.parquet", tmp_path / "none"))
    assert texts == [
        "labels: none, though column 'tags' looks like one (--field tags=tags:classes)"
    ]
    fastpipe.pack(tmp_path / "t.parquet", tmp_path / "packed", fields=["tags=tags:classes"])
    assert fastpipe.open(tmp_path / "packed").fields["tags"].names == ("ant", "bee")
