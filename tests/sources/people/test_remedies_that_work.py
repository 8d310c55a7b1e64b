"""Messages that name a way to pack a source: the way works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, values, write

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
    "refused, with the folder of the classes",
    "SRC/Final_Training/Images, or --split train",
)
@becomes(
    "GTSRB: `GT-00000.csv` in each class folder, Tiny ImageNet: `n01443537_boxes.txt`",
    "the classes; the lists are named as not read",
)
def test_training_of_gtsrb(tmp_path: Path) -> None:
    source = tmp_path / "src"
    images = source / "Final_Training/Images"
    photos(images, "00000/00000_00000.ppm", "00001/00000_00000.ppm")
    photos(source / "Final_Test/Images", "00000.ppm", "00001.ppm")
    write(source / "GT-final_test.csv", "Filename;ClassId\n00000.ppm;0\n00001.ppm;1\n")
    with pytest.raises(PackError, match=f"00000, 00001 are the classes or splits, {images}"):
        fastpipe.pack(source, tmp_path / "none")
    for folder in ("00000", "00001"):
        text = "Filename;Width;Height;Roi.X1;ClassId\n00000_00000.ppm;40;30;5;0\n"
        write(images / folder / f"GT-{folder}.csv", text)
    for root, split in ((source, "train"), (images, None)):
        summary = fastpipe.pack(root, tmp_path / "packed", split=split, overwrite=True)
        assert summary.tally.rejected == []
        assert labels(tmp_path) == {
            "00000/00000_00000.ppm": "00000",
            "00001/00000_00000.ppm": "00001",
        }
        texts = assumed(summary)
        assert any(
            "lists in class folders, which are not read: 2 in 2 folders, such as 00000/GT-00000.csv"
            in text
            for text in texts
        )
    summary = fastpipe.pack(source, tmp_path / "packed", split="train", overwrite=True)
    assert any("classes: the folders in Final_Training/Images" in text for text in assumed(summary))


@pytest.mark.parametrize("header", ["id,label\n", "image,label\n", ""])
@becomes(
    "`images/` beside `train.csv` and `val.csv`",
    "the rows of the table with the name of the split",
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
@pytest.mark.parametrize(
    ("place", "folders"), [("list_train.txt", ("7/", "8/")), ("lists/train.txt", ("", ""))]
)
def test_lists_beside_splits(tmp_path: Path, place: str, folders: tuple[str, str]) -> None:
    paths = [f"{folders[0]}a_1.jpg", f"{folders[1]}b_2.jpg"]
    source = photos(tmp_path / "src", *(f"train/{path}" for path in paths))
    photos(source, "test/c_3.jpg")
    file = write(source / place, f"{paths[0]} 0\n{paths[1]} 1\n")
    text = assumed(fastpipe.pack(source, tmp_path / "none", split="train"))[-1]
    assert text.endswith(
        f"{place} lists these images: if it has labels, pass {file}, with --image-root "
        f"{source}/train"
    )
    fastpipe.pack(file, tmp_path / "packed", image_root=source / "train")
    assert labels(tmp_path) == {paths[0]: "0", paths[1]: "1"}


@becomes(
    "Parquet with a list of texts in the column `tags`, and the index of pandas",
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


@becomes(
    "Visual Genome: `image_data.json` with the numbers of images, beside `VG_100K/5.jpg`",
    "the images, found by their numbers; the other values as fields",
)
def test_images_named_by_numbers(tmp_path: Path) -> None:
    photos(tmp_path, "VG_100K/5.jpg", "VG_100K/61.jpg")
    rows = [{"image_id": number, "coco_id": None} for number in (5, 61)]
    table = write(tmp_path / "image_data.json", rows)
    assert not fastpipe.pack(table, tmp_path / "packed").tally.rejected
    keys = list(fastpipe.open(tmp_path / "packed")["key"])
    assert sorted(keys) == ["VG_100K/5.jpg", "VG_100K/61.jpg"]


@becomes(
    "Google Landmarks: CSV with `id`, `url`, `landmark_id`, and the images here",
    "refused; the option that finds the images is named",
    "--image-column id --label-column landmark_id",
)
def test_urls_beside_ids(tmp_path: Path) -> None:
    photos(tmp_path, "train/a/b/c/abc0.jpg", "train/a/b/c/abc1.jpg")
    rows = "abc0,http://x.org/0.jpg,7\nabc1,http://x.org/1.jpg,8\n"
    table = write(tmp_path / "train.csv", f"id,url,landmark_id\n{rows}")
    with pytest.raises(PackError, match="names in column 'id', --image-column id finds them"):
        fastpipe.pack(table, tmp_path / "none")
    fastpipe.pack(table, tmp_path / "packed", image_column="id", label_column="landmark_id")
    assert set(labels(tmp_path).values()) == {"7", "8"}


@becomes(
    "class folders with `metadata.csv` (file_name and other values, no label)",
    "no labels; the option that takes the folders is named",
    "--label-pattern '(.+)/'",
)
def test_class_folders_with_metadata(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "mel/1.jpg", "nevus/2.jpg")
    write(source / "metadata.csv", "file_name,age,site\nmel/1.jpg,31,arm\nnevus/2.jpg,32,leg\n")
    (text,) = assumed(fastpipe.pack(source, tmp_path / "none"))
    assert text == (
        "labels: none, for metadata.csv has none; the images lie in mel, nevus. If the folder of "
        "each image is its class: (--label-pattern '(.+)/')"
    )
    fastpipe.pack(source, tmp_path / "packed", label_pattern="(.+)/")
    assert labels(tmp_path) == {"mel/1.jpg": "mel", "nevus/2.jpg": "nevus"}


@becomes(
    "SA-1B: `sa_1.json` beside `sa_1.jpg`",
    "their number and an example are named, with the option that packs them",
    "--field data=json",
)
def test_json_beside_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "sa_1.jpg", "sa_2.jpg")
    for number in (1, 2):
        write(source / f"sa_{number}.json", {"image": {}, "annotations": [number]})
    (text,) = assumed(fastpipe.pack(source, tmp_path / "none"))
    assert "(JSON). To keep what they say: --field data=json packs the value in a.json" in text
    fastpipe.pack(source, tmp_path / "packed", fields=["data=json"])
    assert values(tmp_path, "data")["sa_1.jpg"] == {"image": {}, "annotations": [1]}


@becomes(
    "Labelbox: NDJSON with `data_row`, a line for each image, beside the images",
    "boxes; objects without a box and classifications are left out and named",
)
def test_labelbox(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    box = {"name": "dog", "bounding_box": {"top": 1, "left": 2, "height": 5, "width": 6}}
    line = {"name": "cat", "annotation_kind": "ImagePolyline", "line": []}
    lines = []
    for name, objects in (("a.jpg", [box, line]), ("b.jpg", [])):
        annotations = {"objects": objects, "classifications": [{"name": "weather"}]}
        row = {
            "data_row": {"id": "c1", "external_id": name, "row_data": "https://x.org/1"},
            "media_attributes": {"width": 40, "height": 30},
            "projects": {"p1": {"labels": [{"annotations": annotations}]}},
        }
        lines.append(json.dumps(row) + "\n")
    file = write(source / "export.ndjson", "".join(lines))
    for root in (file, source):
        boxes, summary = packed_objects(root, tmp_path / "packed")
        assert boxes == {"a.jpg": [("dog", [2, 1, 8, 6])], "b.jpg": []}
        assert assumed(summary) == [
            "left out, because they give no box: ImagePolyline (1)",
            "values of images that are not packed: classifications",
        ]


@becomes(
    "`train.csv` beside `train/` and `test/`, whose column of images has a name of its own",
    "no labels; the table is named once, with the options that pack it",
    "SRC/train.csv --image-root SRC/train --image-column photo --label-column level",
)
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_table_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "src", "train/img_1a.jpg", "train/img_2b.jpg", "test/img_3c.jpg")
    source = Path("src") if is_relative else tmp_path / "src"
    write(source / "train.csv", "photo,level\nimg_1a.jpg,0\nimg_2b.jpg,1\n")
    texts = assumed(fastpipe.pack(source, tmp_path / "none", split="train"))
    assert texts == [
        "labels: none, though train.csv lies beside the splits; if it has the labels, pass "
        f"{source}/train.csv (--image-root {source}/train --image-column photo "
        "--label-column level)"
    ]
    fastpipe.pack(
        source / "train.csv",
        tmp_path / "packed",
        image_root=source / "train",
        image_column="photo",
        label_column="level",
    )
    assert labels(tmp_path) == {"img_1a.jpg": "0", "img_2b.jpg": "1"}
