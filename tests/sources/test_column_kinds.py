"""The values of a column -> the kind of its field, and each value as the field takes it: rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from fastpipe.errors import ImageError
from fastpipe.sources.annotations.detections import box_corners
from fastpipe.sources.field_values import field_value
from fastpipe.sources.listing import SourceField
from fastpipe.sources.tables.column_kinds import ColumnSummary, check_boxes

BOX = {"bbox": [[1, 2, 3, 4]]}
NAN = float("nan")

# Values of JSON or of a table -> the kind.
TYPED: list[tuple[list[object], str]] = [
    ([1, -5], "int"),
    ([2**63 - 1, -(2**63)], "int"),
    ([2**63], "json"),
    ([-(2**63) - 1], "json"),
    ([True], "json"),
    ([1, 0.5], "floats"),
    ([NAN], "json"),
    ([1, None], "json"),  # a missing value has no number
    (["a", "7"], "text"),
    (["a", None], "text"),
    (["a", 7], "json"),
    ([[1, 0.5], [2, 3]], "floats"),
    ([[1, 0.5], None], "json"),
    ([[1, 2], [3, 4]], "json"),  # of whole numbers: it may be that they are no vectors
    ([[1.5, 2], [3.5]], "json"),  # of several lengths
    ([[]], "json"),
    ([[1.5, "a"]], "json"),
    ([BOX, {"bbox": []}], "boxes"),
    ([BOX, None], "boxes"),
    ([{**BOX, "categories": [7]}, {**BOX, "label": [1]}], "boxes"),
    ([{**BOX, "categories": [7, 8]}], "json"),  # one number for each box
    ([{**BOX, "categories": ["a"]}], "boxes"),
    ([{**BOX, "categories": ["a", "b"]}], "json"),
    ([{**BOX, "categories": [True]}], "json"),
    ([{**BOX, "categories": [7], "labels": [7]}], "json"),
    ([{**BOX, "area": [7]}], "json"),
    ([{"bbox": [[1, 2, 3]]}], "json"),
    ([{"bbox": [[1, 2, 3, NAN]]}], "json"),
    ([{}], "json"),
    ([None], "json"),
    ([], "json"),
]
# Texts of a CSV file -> the kind.
TEXTS: list[tuple[list[str | None], str]] = [
    (["1", " -5\t", "+.5"], "floats"),
    (["1", "-1"], "int"),
    (["1.0", "2.00"], "floats"),
    (["1e3", ".5", "5."], "floats"),
    (["1", ""], "text"),  # a blank is no number
    (["007"], "text"),
    (["1", "a"], "text"),
    (["nan"], "text"),
    (["Infinity"], "text"),
    (["-Infinity"], "text"),
    (["true"], "text"),
    (["null"], "text"),
    (["[1, 0.5]", "[2, 3]"], "floats"),
    (['["a"]', ""], "json"),
    (["[1"], "text"),
    (['{"bbox": [[1, 2, 3, 4]]}', ""], "boxes"),
    (["1", "[1]"], "text"),
    (["9" * 19], "text"),  # of more than 64 bits
    (["9" * 18], "int"),
    (["", None], "text"),
    (["-", "+"], "text"),
]


def seen(values: list[Any], *, typed: bool) -> ColumnSummary:
    column = ColumnSummary(typed=typed)
    for number, value in enumerate(values, 1):
        column.add(value, f"row {number}")
    assert column.count == len(values)
    return column


def test_kinds_of_values() -> None:
    for values, kind in TYPED:
        assert seen(values, typed=True).kind == kind, values


def test_kinds_of_texts() -> None:
    for texts, kind in TEXTS:
        assert seen(texts, typed=False).kind == kind, texts


def test_a_value_as_its_field_takes_it() -> None:
    corners = {"boxes": [[1, 2, 4, 6]]}
    for value, kind, expected in (
        (True, "int", 1),
        (7, "int", 7),
        (7, "floats", [7]),
        (0.5, "floats", [0.5]),
        ([1, 2], "floats", [1, 2]),
        (None, "floats", None),
        ("a", "text", "a"),
        (BOX, "boxes", corners),
        ({**BOX, "labels": [5]}, "boxes", {**corners, "labels": [5]}),
        ({**BOX, "categories": None, "label": [5]}, "boxes", {**corners, "labels": [5]}),
        ({"bbox": None}, "boxes", {"boxes": []}),
        ({"boxes": []}, "boxes", {"boxes": []}),
        (BOX, "json", BOX),
    ):
        assert field_value(value, SourceField("a", kind)) == expected, (value, kind)


def test_a_text_as_its_field_takes_it() -> None:
    for text, kind, expected in (
        (" 7 ", "int", 7),
        (".5", "floats", [0.5]),
        ("[1, 2]", "floats", [1, 2]),
        ("", "json", None),
        (' {"a": 1}', "json", {"a": 1}),
        (" 7 ", "text", " 7 "),
        ("", "text", ""),
        ("7", "mask", "7"),
        ("", "image", None),
        (None, "int", None),
    ):
        assert field_value(text, SourceField("a", kind), typed=False) == expected, (text, kind)
    with pytest.raises(ImageError, match="expected a value in JSON, got 'a'"):
        field_value("a", SourceField("a", "int"), typed=False)


def test_numbers_of_classes_become_their_names() -> None:
    names = ("ant", "bee")
    field = SourceField("a", "classes", names=names, source_names=names)
    assert field_value([1, 0], field) == ["bee", "ant"]
    for wrong in (2, -1, "ant"):
        with pytest.raises(ImageError, match=f"expected class numbers of 0 to 1, got {wrong}"):
            field_value([wrong], field)


def test_names_of_classes_are_no_positions() -> None:
    field = SourceField("a", "classes", names=("ant", "bee"))
    assert field_value(["bee"], field) == ["bee"]
    with pytest.raises(ImageError, match="expected names of classes, as in other rows; got 1"):
        field_value([1], field)


def test_corners_of_boxes() -> None:
    boxes = check_boxes([[1, 2, 3, 4], [0.5, 0, 1, 1]], "xywh")
    assert [box_corners(box, "xywh") for box in boxes] == [[1, 2, 4, 6], [0.5, 0, 1.5, 1]]
    for wrong in ([[1, 2, 3]], [1, 2, 3, 4], "box", [[1, 2, 3, "4"]], [[1, 2, 3, True]]):
        with pytest.raises(
            ImageError, match="expected boxes of four numbers: x, y, width, height; got"
        ):
            check_boxes(wrong, "xywh")
