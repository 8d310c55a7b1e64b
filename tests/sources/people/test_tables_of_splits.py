"""A table of one split, packed by itself, beside the table of the training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, pack_text, photos

import fastpipe

NUMBERED_ALONE = "classes: those of val.csv alone, with other numbers than those of train.csv"


@pytest.fixture
def four(tmp_path: Path) -> Path:
    (tmp_path / "train.csv").write_text("path,label\na.jpg,cat\nb.jpg,dog\n")
    return photos(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")


@becomes(
    "val.csv by itself, which lacks classes of train.csv beside it",
    "its own classes; that train.csv numbers them otherwise is said",
    "--classes-from train.csv",
)
def test_a_split_that_lacks_a_class(four: Path) -> None:
    text = "path,label\nc.jpg,dog\nd.jpg,dog\n"
    said = [line for line in assumed(pack_text(four, "val.csv", text)) if "classes" in line]
    train = four / "train.csv"
    assert said == [f"{NUMBERED_ALONE} beside it (--classes-from {train})"]
    summary = pack_text(four, "val.csv", text, classes_from=train, overwrite=True)
    assert fastpipe.open(four / "packed").classes == ["cat", "dog"]
    assert labels(four) == {"c.jpg": "dog", "d.jpg": "dog"}
    assert not any("classes" in line for line in assumed(summary))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("val.csv", "path,label\nc.jpg,cat\nd.jpg,dog\n"),  # the same numbers
        ("val.csv", "path,label\nc.jpg,cat\nd.jpg,cat\n"),
        ("val.csv", "path,label\nc.jpg,1\nd.jpg,1\n"),  # numbers stay
        ("val.csv", "path,species\nc.jpg,dog\nd.jpg,dog\n"),  # train.csv has no such column
        ("other.csv", "path,label\nc.jpg,dog\nd.jpg,dog\n"),  # not a split
        ("train_2.csv", "path,label\nc.jpg,dog\nd.jpg,dog\n"),
    ],
)
def test_the_same_numbers_or_other_tables(four: Path, name: str, text: str) -> None:
    column = text.splitlines()[0].partition(",")[2]
    summary = pack_text(four, name, text, label_column=column)
    assert not any("those of" in line for line in assumed(summary))


def test_boxes_of_a_split_that_lacks_a_class(four: Path) -> None:
    header = "path,xmin,ymin,xmax,ymax,class\n"
    (four / "train.csv").write_text(f"{header}a.jpg,1,2,9,9,cat\nb.jpg,1,2,9,9,dog\n")
    said = assumed(pack_text(four, "val.csv", f"{header}c.jpg,1,2,9,9,dog\n"))
    assert any(line.startswith(NUMBERED_ALONE) for line in said)
