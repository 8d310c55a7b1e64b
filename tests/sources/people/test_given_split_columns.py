"""Tables that say in a column which split each row is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos, values

import fastpipe
from fastpipe.errors import PackError


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")


@becomes(
    "a table with a column split, subset, partition, data set",
    "refused: the splits are named",
    "--split train",
)
def test_a_column_of_splits(three: Path) -> None:
    text = "filepaths,labels,data set\na.jpg,cow,train\nb.jpg,bee,Valid\nc.jpg,ant,test\n"
    options: Any = {"label_column": "labels"}
    with pytest.raises(
        PackError, match="has the splits Valid, test, train in column 'data set'; pass one of them"
    ):
        pack_text(three, "a.csv", text, **options)
    assert not (three / "packed").exists()
    for split, expected in {
        "train": {"a.jpg": "cow"},
        "Valid": {"b.jpg": "bee"},
        "test": {"c.jpg": "ant"},
    }.items():
        summary = pack_text(three, "a.csv", text, split=split, overwrite=True, **options)
        assert labels(three) == expected
        assert fastpipe.open(three / "packed").classes == ["ant", "bee", "cow"]  # of all splits
        assert list(fastpipe.open(three / "packed").fields) == []
        assert assumed(summary) == []
    with pytest.raises(PackError, match=r"^split: .* has the splits .*, got .dev.; pass one"):
        pack_text(three, "a.csv", text, split="dev", overwrite=True, **options)


@becomes("fastai's is_valid", "refused: the splits are train and valid", "--split train")
def test_a_flag_of_splits(three: Path) -> None:
    text = "path,label,is_valid\na.jpg,cow,False\nb.jpg,bee,True\nc.jpg,cow,False\n"
    with pytest.raises(PackError, match="has the splits train, valid in column 'is_valid'"):
        pack_text(three, "a.csv", text)
    pack_text(three, "a.csv", text, split="valid")
    assert labels(three) == {"b.jpg": "bee"}
    assert fastpipe.open(three / "packed").classes == ["bee", "cow"]


@becomes(
    "a table of boxes with a column of splits", "refused: the splits are named", "--split train"
)
def test_boxes_of_a_split(three: Path) -> None:
    rows = "a.jpg,1,2,3,4,cow,train\nb.jpg,1,1,2,2,ant,val\na.jpg,5,5,6,6,bee,train\n"
    text = f"path,xmin,ymin,xmax,ymax,class,split\n{rows}"
    with pytest.raises(PackError, match="has the splits train, val"):
        pack_text(three, "a.csv", text)
    pack_text(three, "a.csv", text, split="train")
    assert fastpipe.open(three / "packed").fields["boxes"].names == ("ant", "bee", "cow")
    assert values(three, "boxes") == {"a.jpg": [[[1, 2, 3, 4], [5, 5, 6, 6]], [2, 1]]}


def test_a_column_of_splits_as_a_field(three: Path) -> None:
    text = "path,label,split\na.jpg,cow,train\nb.jpg,bee,val\n"
    pack_text(three, "a.csv", text, fields=["split=split"])
    assert values(three, "split") == {"a.jpg": "train", "b.jpg": "val"}
    pack_text(
        three, "b.csv", "path,label,split\na.jpg,cow,train\nb.jpg,bee,train\n", overwrite=True
    )  # only one
    assert values(three, "split") == {"a.jpg": "train", "b.jpg": "train"}
    with pytest.raises(
        PackError,
        match=r"^split: .*/c\.csv has no column of splits; leave it out$",
    ):
        pack_text(three, "c.csv", "path,label\na.jpg,cow\n", split="train", overwrite=True)
