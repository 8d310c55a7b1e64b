"""Tables of boxes whose classes are in a column of another name, and VOC's folder beside such a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, pack_text, photos, values, write

import fastpipe
from fastpipe.errors import PackError

CELLS = (
    "filename,cell_type,xmin,xmax,ymin,ymax\n"
    "a.jpg,RBC,1,9,2,8\na.jpg,WBC,3,7,4,6\nb.jpg,RBC,1,5,1,5\nb.jpg,RBC,2,6,2,6\n"
)
NOTICE = (
    "boxes: without classes, though column 'cell_type' looks like them (--label-column cell_type)"
)


@becomes(
    "a table of boxes whose classes are in a column `cell_type`",
    "boxes without classes; the column that looks like them is said",
    "--label-column cell_type",
)
def test_classes_in_a_column_of_another_name(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    assert assumed(pack_text(tmp_path, "a.csv", CELLS)) == [NOTICE]
    options = {"label_column": "cell_type", "overwrite": True}
    assert assumed(pack_text(tmp_path, "a.csv", CELLS, **options)) == []
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("RBC", "WBC")
    assert values(tmp_path, "boxes") == {
        "a.jpg": [[[1, 2, 9, 8], [3, 4, 7, 6]], [0, 1]],
        "b.jpg": [[[1, 1, 5, 5], [2, 2, 6, 6]], [0, 0]],
    }


def test_the_place_where_a_photo_was_taken_is_no_class_of_boxes(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    text = CELLS.replace("cell_type", "source")
    assert assumed(pack_text(tmp_path, "a.csv", text)) == []


@becomes(
    "BCCD: `test.csv` of all boxes beside `BCCD/`, a source of VOC",
    "refused: both are named, the table with the column of its classes",
    "SRC/BCCD --split train",
)
def test_voc_beside_a_table(tmp_path: Path) -> None:
    source = tmp_path / "src"
    inner = source / "BCCD"
    photos(inner / "JPEGImages", "a.jpg", "b.jpg")
    for name in "ab":
        box = "<xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>8</ymax>"
        size = "<size><width>40</width><height>30</height></size>"
        box = f"<object><name>RBC</name><bndbox>{box}</bndbox></object>"
        text = f"<annotation><filename>{name}.jpg</filename>{size}{box}</annotation>"
        write(inner / f"Annotations/{name}.xml", text)
    write(inner / "ImageSets/Main/train.txt", "a\n")
    write(inner / "ImageSets/Main/test.txt", "b\n")
    table = write(source / "test.csv", CELLS)
    write(source / "dataset/rec.py", "")
    words = (
        f"or pass {inner}, which is of the format voc; or the file that lists the images, such as "
        f"{table}, with --image-root {inner / 'JPEGImages'} --label-column cell_type"
    )
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(inner, tmp_path / "packed", split="train", first_pixel=0)
    assert values(tmp_path, "boxes") == {"a.jpg": [[[2, 3, 9, 8]], [0]]}
