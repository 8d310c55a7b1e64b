"""Tables with a row an image, whose cells are lists of boxes and of their classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import labels, pack_text, photos, tags, values

import fastpipe
from fastpipe.errors import PackError


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")


def names(folder: Path) -> tuple[str, ...]:
    return fastpipe.open(folder / "packed").fields["boxes"].names


EXPECTED = {
    "a.jpg": [[[1, 2, 3, 4], [5, 6, 17, 18]], [1, 0]],
    "b.jpg": [[[0, 0, 9, 9]], [1]],
    "c.jpg": [[], []],
}


@becomes(
    "a row an image with lists in cells: \"[[1, 2, 3, 4], [5, 6, 7, 8]]\" and \"['cat', 'dog']\" (Python or JSON)",
    "boxes, each with its class",
    "--box-format xyxy",
)
@pytest.mark.parametrize("quote", ["'", '""'])
@pytest.mark.parametrize("column", ["classes", "labels", "label", "category_names"])
def test_lists_of_boxes_and_classes(three: Path, quote: str, column: str) -> None:
    rows = 'a.jpg,"[[1,2,3,4],[5, 6, 17, 18]]","[\'dog\', \'cat\']"\nb.jpg,"[[0,0,9,9]]","[\'dog\']"\nc.jpg,[],[]\n'
    pack_text(
        three, "a.csv", f"image,boxes,{column}\n{rows}".replace("'", quote), box_format="xyxy"
    )
    assert names(three) == ("cat", "dog")
    assert values(three, "boxes") == EXPECTED
    assert set(labels(three).values()) == {None}


@becomes("the same with class numbers: [3, 0]", "boxes, each with its number", "--box-format xyxy")
def test_lists_of_numbers(three: Path) -> None:
    rows = 'a.jpg,"[[1,2,3,4],[5,6,17,18]]","[3, 0]","[0.5, 0.25]"\nb.jpg,"[[0,0,9,9]]",[1],[1]\n'
    text = f"image,bboxes,label,score\n{rows}"
    pack_text(three, "a.csv", text, box_format="xyxy")
    found = values(three, "boxes", "score")
    assert found["a.jpg"] == [[[1, 2, 3, 4], [5, 6, 17, 18]], [3, 0], [0.5, 0.25]]
    assert found["b.jpg"] == [[[0, 0, 9, 9]], [1], [1]]
    assert set(labels(three).values()) == {None}


@becomes("JSONL with lists: boxes and labels", "boxes, each with its class", "--box-format xyxy")
def test_lists_in_lines(three: Path) -> None:
    text = (
        '{"image": "a.jpg", "boxes": [[1, 2, 3, 4], [5, 6, 17, 18]], "labels": ["dog", "cat"]}\n'
        '{"image": "b.jpg", "boxes": [[0, 0, 9, 9]], "labels": ["dog"]}\n'
        '{"image": "c.jpg", "boxes": [], "labels": []}\n'
    )
    pack_text(three, "a.jsonl", text, box_format="xyxy")
    assert names(three) == ("cat", "dog")
    assert values(three, "boxes") == EXPECTED


@becomes("a list of boxes with more or fewer classes", "the image is rejected with both counts")
def test_other_counts(three: Path) -> None:
    text = 'image,boxes,classes\na.jpg,"[[1,2,3,4],[5,6,7,8]]","[\'cat\']"\nb.jpg,"[[0,0,9,9]]","[\'dog\']"\n'
    ((path, reason),) = pack_text(three, "a.csv", text, box_format="xyxy").tally.rejected
    assert path == "a.jpg"
    assert reason.startswith(
        "column classes: expected a class for each of 2 boxes, got 1; --bad-boxes"
    )


def test_numbers_and_names_as_classes_of_boxes(three: Path) -> None:
    text = 'image,boxes,classes\na.jpg,"[[1,2,3,4]]",[1]\nb.jpg,"[[0,0,9,9]]","[\'dog\']"\n'
    with pytest.raises(PackError, match="column classes: classes of boxes are numbers and names"):
        pack_text(three, "a.csv", text, box_format="xyxy")


def test_many_lists_of_boxes(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    rows = "".join(
        f'a.jpg,"[({number % 9}, 0, 20, {20 + number / 1000})]",cat\n' for number in range(2100)
    )
    pack_text(tmp_path, "a.csv", f"image,boxes,classes\n{rows}", box_format="xyxy")
    assert values(tmp_path, "boxes")["a.jpg"][0][2099] == pytest.approx([2, 0, 20, 22.099])


@becomes(
    "lists as numpy prints them: \"['cat' 'dog']\"", "two classes", "--field tags=labels:classes"
)
def test_lists_of_numpy(three: Path) -> None:
    pack_text(
        three,
        "a.csv",
        "path,labels\na.jpg,['cat' 'dog']\nb.jpg,['dog']\n",
        fields=["tags=labels:classes"],
    )
    assert tags(three, "tags") == {"a.jpg": {"cat", "dog"}, "b.jpg": {"dog"}}
