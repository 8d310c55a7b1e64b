"""Tables of numbers: which columns are classes, which a score, and which say the split."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, masks, pack_text, photos, tags, values, write

import fastpipe
from fastpipe.errors import PackError

SCORES = "Id,Eyes,Face,Blur,Score\na,1,0,1,63\nb,0,0,1,54\nc,1,1,0,9\n"


@becomes(
    "columns of 0 and 1 beside the score of each photo (Pawpularity)",
    "a field each; the option that makes one field of the columns of 0 and 1 keeps the score",
    "--field tags=Eyes,Face,Blur:classes --field score=Score",
)
def test_a_score_beside_columns_of_flags(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    summary = pack_text(tmp_path, "a.csv", SCORES, image_column="Id")
    assert values(tmp_path, "score") == {"a.jpg": 63, "b.jpg": 54, "c.jpg": 9}
    option = "(--field tags=Eyes,Face,Blur:classes --field score=Score)"
    assert [text for text in assumed(summary) if text.endswith(option)]
    fields = ["tags=Eyes,Face,Blur:classes", "score=Score"]
    pack_text(tmp_path, "a.csv", SCORES, image_column="Id", fields=fields, overwrite=True)
    assert values(tmp_path, "score") == {"a.jpg": 63, "b.jpg": 54, "c.jpg": 9}
    assert tags(tmp_path, "tags") == {
        "a.jpg": {"Eyes", "Blur"},
        "b.jpg": {"Blur"},
        "c.jpg": {"Eyes", "Face"},
    }


def test_a_score_where_the_table_is_named(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/a.jpg", "train/b.jpg", "train/c.jpg", "test/d.jpg")
    write(source / "train.csv", SCORES)
    option = "--field tags=Eyes,Face,Blur:classes --field score=Score. "
    with pytest.raises(PackError, match=re.escape(option)):
        fastpipe.pack(source, tmp_path / "none")


def test_many_numbers_beside_columns_of_flags(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    names = [f"n{index}" for index in range(9)]
    header = ",".join(["path", "red", "blue", *names])
    text = f"{header}\na.jpg,1,0{',2' * 9}\nb.jpg,0,1{',3' * 9}\n"
    (notice,) = assumed(pack_text(tmp_path, "a.csv", text))
    assert notice.endswith("leaves out the columns that --field does not name, such as n0")
    assert values(tmp_path, "red", "n8") == {"a.jpg": [1, 2], "b.jpg": [0, 3]}


WATERBIRDS = (
    "img_id,img_filename,y,split,place,place_filename\n"
    "1,a/a.jpg,0,0,1,/o/1.jpg\n2,a/b.jpg,1,0,0,/b/2.jpg\n3,b/c.jpg,1,1,1,/o/3.jpg\n"
    "4,b/d.jpg,0,2,0,/b/4.jpg\n5,b/e.jpg,0,1,0,/b/5.jpg\n6,b/f.jpg,0,2,1,/b/6.jpg\n"
)


@becomes(
    "Waterbirds' `metadata.csv`: labels in `y`, splits in `split` as 0, 1, 2",
    "refused; the columns of images and labels are named, and that `split` has 0, 1, 2",
    "--image-column img_filename --label-column y --split 0",
)
def test_splits_as_numbers(tmp_path: Path) -> None:
    names = ["a/a.jpg", "a/b.jpg", "b/c.jpg", "b/d.jpg", "b/e.jpg", "b/f.jpg"]
    source = photos(tmp_path / "src", *names)
    write(source / "metadata.csv", WATERBIRDS)
    with pytest.raises(PackError) as refused:
        fastpipe.pack(source, tmp_path / "none")
    words = (
        "(--image-column img_filename --label-column y; splits: column 'split' has 0, 1, 2, and "
        "the rows of all are packed without --split 0)"
    )
    assert words in str(refused.value)

    summary = fastpipe.pack(source, tmp_path / "packed", image_column="img_filename")
    notices = assumed(summary)
    assert (
        "splits: column 'split' has 0, 1, 2, and the rows of all are packed (--split 0)" in notices
    )
    assert "labels: none, though column 'y' looks like one (--label-column y)" in notices
    assert not any(":classes" in notice for notice in notices)
    assert values(tmp_path, "split")["b/c.jpg"] == 1

    options: Any = {"image_column": "img_filename", "label_column": "y", "split": "0"}
    summary = fastpipe.pack(source, tmp_path / "packed", overwrite=True, **options)
    assert labels(tmp_path) == {"a/a.jpg": "0", "a/b.jpg": "1"}
    assert values(tmp_path, "place") == {"a/a.jpg": 1, "a/b.jpg": 0}
    assert not any(notice.startswith("splits:") for notice in assumed(summary))


@pytest.mark.parametrize(
    "text",
    [
        "path,label,split\na.jpg,cow,7\nb.jpg,bee,8\n",  # each comes once
        "path,label,fold\na.jpg,cow,0\nb.jpg,bee,1\na.jpg,cow,0\nb.jpg,bee,1\n",
        "path,label,split\na.jpg,cow,0\nb.jpg,bee,0\n",
    ],
)
def test_other_numbers_are_no_splits(tmp_path: Path, text: str) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    notices = assumed(pack_text(tmp_path, "a.csv", text))
    assert not any(notice.startswith("splits:") for notice in notices)


def test_y_beside_x_is_no_label(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    text = "path,x,y\n" + "a.jpg,3,1\nb.jpg,4,2\n" * 2
    assert not any("'y'" in notice for notice in assumed(pack_text(tmp_path, "a.csv", text)))


@becomes(
    "Massachusetts Roads' `metadata.csv`: `split`, `tiff_image_path`, `tif_label_path`",
    "refused: the splits are named, and the columns of images and of masks",
    "--split train --image-column tiff_image_path --field mask=tif_label_path:mask",
)
def test_a_column_called_label_with_the_files_of_masks(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "tiff/a.tiff", "tiff/b.tiff", "tiff/c.tiff", size=(2, 1))
    rows = ""
    for number, (name, split) in enumerate((("a", "train"), ("b", "train"), ("c", "val"))):
        (source / "labels").mkdir(exist_ok=True)
        mask = Image.new("L", (2, 1))
        mask.putpixel((1, 0), number + 1)
        mask.save(source / f"labels/{name}.tif")
        rows += f"{name},{split},tiff/{name}.tiff,labels/{name}.tif\n"
    write(source / "metadata.csv", f"image_id,split,tiff_image_path,tif_label_path\n{rows}")
    words = (
        "has the splits train, val in column 'split'; pass one of them; 'all' packs all rows. Also "
        "name the column with the images (--image-column tiff_image_path --field "
        "mask=tif_label_path:mask)"
    )
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    options: Any = {"split": "train", "image_column": "tiff_image_path"}
    notices = assumed(fastpipe.pack(source, tmp_path / "packed", **options))
    assert not any("--label-column" in notice for notice in notices)
    options["fields"] = ["mask=tif_label_path:mask"]
    fastpipe.pack(source, tmp_path / "packed", overwrite=True, **options)
    assert masks(tmp_path) == {"tiff/a.tiff": [0, 1], "tiff/b.tiff": [0, 2]}
