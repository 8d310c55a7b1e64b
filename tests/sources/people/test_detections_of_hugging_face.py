"""Hugging Face's object detection: a column objects with bbox and classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.sources.becomes import becomes
from support.sources.listed import by_path
from support.sources.people import assumed, photos
from support.sources.tables import jpegs, pa, pq, write_table

import fastpipe
from fastpipe.errors import PackError

ROWS = {"a.jpg": ([[1, 2, 3, 4], [5, 6, 7, 8]], ["dog", "cat"]), "b.jpg": ([], [])}
NUMBERS = {"dog": 5, "cat": 3}
AS_COCO = [[1, 2, 4, 6], [5, 6, 12, 14]]
IS_JSON = (
    "boxes: none, though column 'objects' has bbox and classes, and is stored as json "
    "(--field boxes=objects:boxes)"
)
IS_COCO = (
    "boxes (objects): left, top, width, height, as COCO has them (--box-format xyxy or cxcywh)"
)


def objects(name: str, classes: str, form: str) -> list[Any]:
    """The values of the column of all rows."""
    values: list[Any] = []
    for boxes, names in ROWS.values():
        value: dict[str, Any] = {
            "bbox": boxes,
            name: [NUMBERS[each] for each in names] if classes == "int" else names,
        }
        if form != "plain":
            value["area"] = [2.0] * len(boxes)
        if form == "dicts":
            value = [{part: value[part][at] for part in value} for at in range(len(boxes))]  # type: ignore[assignment]
        values.append(value)
    return values


def check(packed: Path, classes: str, field: str = "boxes") -> None:
    found = [
        (boxes.tolist(), labels.tolist())
        for boxes, labels in sorted(by_path(packed, field).values(), key=str)
    ]
    names = fastpipe.open(packed).fields[field].names
    assert names == (() if classes == "int" else ("cat", "dog"))
    assert found == sorted([(AS_COCO, [5, 3] if classes == "int" else [1, 0]), ([], [])], key=str)


@becomes(
    "Hugging Face's metadata.jsonl with objects: {bbox, categories}, and more in it (id, area)",
    "JSON; the option that makes boxes of it is said",
    "--field boxes=objects:boxes",
)
@pytest.mark.parametrize("form", ["plain", "more", "dicts"])
@pytest.mark.parametrize("classes", ["int", "text"])
@pytest.mark.parametrize("name", ["categories", "category", "label"])
def test_objects_in_lines(tmp_path: Path, name: str, classes: str, form: str) -> None:
    root = photos(tmp_path / "src", *ROWS)
    rows = zip(ROWS, objects(name, classes, form), strict=True)
    text = "".join(json.dumps({"file_name": path, "objects": value}) + "\n" for path, value in rows)
    (root / "metadata.jsonl").write_text(text)
    if form == "plain":
        assert assumed(fastpipe.pack(root, tmp_path / "packed")) == [IS_COCO]
        check(tmp_path / "packed", classes, "objects")
    else:
        assert assumed(fastpipe.pack(root, tmp_path / "packed")) == [IS_JSON]
    summary = fastpipe.pack(
        root, tmp_path / "packed", fields=["boxes=objects:boxes"], overwrite=True
    )
    assert assumed(summary) == [IS_COCO]
    check(tmp_path / "packed", classes)


@becomes(
    "Parquet with objects: {bbox, category}", "as in metadata.jsonl", "--field boxes=objects:boxes"
)
@pytest.mark.parametrize("form", ["plain", "more", "dicts"])
@pytest.mark.parametrize("classes", ["int", "text"])
def test_objects_in_parquet(tmp_path: Path, classes: str, form: str) -> None:
    source = write_table(
        tmp_path / "a.parquet", jpegs(2), objects=objects("category", classes, form)
    )
    assert assumed(fastpipe.pack(source, tmp_path / "packed")) == [IS_JSON]
    summary = fastpipe.pack(
        source, tmp_path / "packed", fields=["boxes=objects:boxes"], overwrite=True
    )
    assert assumed(summary) == [IS_COCO]
    check(tmp_path / "packed", classes)


@becomes(
    "the same with names of classes in its features (ClassLabel)",
    "boxes with these names",
    "--field boxes=objects:boxes",
)
@pytest.mark.parametrize("style", ["sequence", "lists"])
def test_names_of_features(tmp_path: Path, style: str) -> None:
    label = {"_type": "ClassLabel", "names": ["ant", "bee", "cow", "dog", "eel", "fox"]}
    parts = {
        "bbox": {"_type": "Sequence", "feature": {"dtype": "float32", "_type": "Value"}},
        "category": label,
    }
    feature: Any = {"feature": parts, "_type": "Sequence"}
    if style == "lists":
        feature = {"bbox": {"_type": "List"}, "category": {"feature": label, "_type": "List"}}
    source = write_table(
        tmp_path / "a.parquet", jpegs(2), objects=objects("category", "int", "more")
    )
    table = pq.read_table(source)
    said = {"info": {"features": {"image": {"_type": "Image"}, "objects": feature}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(said)}), source)
    fastpipe.pack(source, tmp_path / "packed", fields=["boxes=objects:boxes"])
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == tuple(label["names"])
    assert {
        tuple(labels.tolist()) for _, labels in by_path(tmp_path / "packed", "boxes").values()
    } == {(5, 3), ()}


@becomes(
    "objects whose boxes are normalised coordinates (0 to 1)",
    "boxes in pixels, and it is said; where the images lie in the table, refused",
)
@pytest.mark.parametrize("form", ["plain", "more", "dicts"])
def test_shares_in_objects(tmp_path: Path, form: str) -> None:
    root = photos(tmp_path / "src", "a.jpg", "b.jpg")
    value: Any = {"bbox": [[0.1, 0.1, 0.4, 0.4]], "categories": [0]}
    if form != "plain":
        value["area"] = [0.16]
    if form == "dicts":
        value = [{part: entries[0] for part, entries in value.items()}]
    rows = [{"file_name": name, "objects": value} for name in ("a.jpg", "b.jpg")]
    (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = fastpipe.pack(root, tmp_path / "packed", fields=["boxes=objects:boxes"])
    assert assumed(summary) == [
        IS_COCO,
        "boxes (objects): normalised coordinates (0 to 1), because no number is above 1",
    ]
    for boxes, labels in by_path(tmp_path / "packed", "boxes").values():
        assert boxes.tolist() == [pytest.approx([4, 3, 20, 15])]
        assert labels.tolist() == [0]

    paths = root / "paths.parquet"
    pq.write_table(pa.table({"image": ["a.jpg", "b.jpg"], "objects": [value] * 2}), paths)
    fastpipe.pack(paths, tmp_path / "packed", fields=["boxes=objects:boxes"], overwrite=True)
    for boxes, _ in by_path(tmp_path / "packed", "boxes").values():
        assert boxes.tolist() == [pytest.approx([4, 3, 20, 15])]

    table = write_table(tmp_path / "a.parquet", jpegs(2), objects=[value] * 2)
    with pytest.raises(
        PackError, match=r"no number above 1, so they look like normalised coordinates"
    ):
        fastpipe.pack(table, tmp_path / "none", fields=["boxes=objects:boxes"])
    fastpipe.pack(table, tmp_path / "json", fields=["boxes=objects:json"])


@becomes(
    "the same with corners (xyxy), which nothing says",
    "boxes as the option says",
    "--box-format xyxy",
)
def test_corners_in_objects(tmp_path: Path) -> None:
    value = pa.array([{"bbox": [[1, 2, 3, 4]], "categories": [0]}] * 2)
    source = write_table(tmp_path / "a.parquet", jpegs(2), objects=value)
    summary = fastpipe.pack(
        source, tmp_path / "packed", fields=["boxes=objects:boxes"], box_format="xyxy"
    )
    assert assumed(summary) == []
    assert [boxes.tolist() for boxes, _ in by_path(tmp_path / "packed", "boxes").values()] == [
        [[1, 2, 3, 4]]
    ] * 2


@becomes("the same with the numbers of boxes as texts", "the same as numbers")
def test_numbers_of_boxes_as_texts(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg")
    value = {"bbox": [["1.5", "2", "3", "4"]], "categories": ["cat"]}
    row = {"file_name": "a.jpg", "objects": value}
    (tmp_path / "src/metadata.jsonl").write_text(json.dumps(row))
    fastpipe.pack(tmp_path / "src", tmp_path / "packed", fields=["boxes=objects:boxes"])
    ((boxes, _),) = by_path(tmp_path / "packed", "boxes").values()
    assert boxes.tolist() == [[1.5, 2, 4.5, 6]]


@becomes(
    "a table or JSONL whose boxes are corners, and all end outside of their images as x, y, width, "
    "height",
    "refused; what was assumed of the boxes is named, with the option",
    "--box-format xyxy",
)
def test_corners_that_end_outside(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg", "b.jpg")
    text = 'image_id,bbox,label\na,"[20, 15, 38, 28]",cat\nb,"[21, 16, 39, 29]",cat\n'
    table = tmp_path / "src/boxes.csv"
    table.write_text(text)
    with pytest.raises(
        PackError,
        match=r"Assumed: boxes \(bbox\): left, top, width, height, .* \(--box-format xyxy or cxcywh\)",
    ):
        fastpipe.pack(table, tmp_path / "none")
    fastpipe.pack(table, tmp_path / "packed", box_format="xyxy")
    found = {
        path: boxes.tolist() for path, (boxes, _) in by_path(tmp_path / "packed", "boxes").items()
    }
    assert found == {"a.jpg": [[20, 15, 38, 28]], "b.jpg": [[21, 16, 39, 29]]}
