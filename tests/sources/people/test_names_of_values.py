"""The names of the numbers in masks, by a list with a number and a name in each line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, photos, write

import fastpipe

NAMES = ("", "wall", "sky;cloud", "", "tree")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg", size=(3, 2))
    (root / "annotations").mkdir()
    for name in "ab":
        pixels = np.array([[0, 1, 2], [4, 0, 0]], np.uint8)
        Image.fromarray(pixels).save(root / f"annotations/{name}.png")
    return root


@becomes(
    "ADE20K: `objectInfo150.txt` beside masks, with the columns Idx, ..., Name; or a number and a name a line",
    "the numbers in the masks stay and get these names; without the option, the list is named",
    "--classes-from FILE",
)
@pytest.mark.parametrize(
    "text",
    [
        "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.9\t8\t8\t1\twall\n2\t0.9\t8\t8\t1\tsky;cloud\n4\t0.1\t2\t2\t0\ttree\n",
        "4: tree\n1: wall\n2: sky;cloud\n",
        "1 wall\n2 sky;cloud\n4 tree\n",
        "id,name\n1,wall\n2,sky;cloud\n4,tree\n",
    ],
)
def test_names_by_number(tmp_path: Path, source: Path, text: str) -> None:
    file = write(source / "objectInfo150.txt", text)
    (said,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert f"a name in each line: --classes-from {file} gives" in said
    summary = fastpipe.pack(source, tmp_path / "packed", classes_from=file, overwrite=True)
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == NAMES
    assert masks(tmp_path)["images/a.jpg"] == [[0, 1, 2], [4, 0, 0]]
    assert (
        "classes of the field mask: 1 is 'wall', 2 is 'sky;cloud', 4 is 'tree' (--classes-from)"
        in assumed(summary)
    )


def test_a_list_of_names_begins_at_0(tmp_path: Path, source: Path) -> None:
    names = ["background", "wall", "sky", "door", "tree"]
    summary = fastpipe.pack(source, tmp_path / "packed", classes_from=names)
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == tuple(names)
    assert "0 is 'background', 1 is 'wall'" in assumed(summary)[0]


def test_names_of_labels_are_not_those_of_masks(tmp_path: Path, source: Path) -> None:
    text = (
        "path,label,mask\nimages/a.jpg,dog,annotations/a.png\nimages/b.jpg,cat,annotations/b.png\n"
    )
    table = write(source / "a.csv", text)
    fields = ["mask=mask:mask"]
    fastpipe.pack(table, tmp_path / "packed", classes_from=["dog", "cat"], fields=fields)
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["dog", "cat"]
    assert data.fields["mask"].names == ()
