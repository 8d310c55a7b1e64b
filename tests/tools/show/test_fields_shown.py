"""Inspection and sheets of datasets with fields, and with samples that have no label."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.datasets.field_columns import remove_labels
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.tools.cli.inspect import inspection_tables
from fastpipe.tools.show import marks, sheet
from fastpipe.tools.show.inspection import BoxCounts, inspect, write_contact_sheet


def table_of(data: Path) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(inspection_tables(inspect(PackedIndex(data)), ascii_only=True))
    return console.export_text()


def test_inspect_names_the_fields(fielded: Path, flat: Path) -> None:
    found = inspect(PackedIndex(fielded))
    assert found.fields["boxes"] == "boxes"
    assert found.fields["joints"] == "keypoints"
    assert found.unlabelled == 0
    lines = [line.split() for line in table_of(fielded).splitlines()]
    start = lines.index(["field", "kind", "content"])
    for number, (name, kind) in enumerate(found.fields.items()):
        assert lines[start + 2 + number][:2] == [name, kind]
    assert [str(len(found.fields)), "fields"] in lines
    plain = table_of(flat)
    assert "fields" not in plain
    assert "without label" not in plain


def test_inspect_counts_boxes_and_categories(tmp_path: Path) -> None:
    info, text = inspect_detections(tmp_path, labelled=True)
    assert info == BoxCounts(3, 2, 3, {"3": 1, "5": 2})
    assert re.search(r"boxes +boxes +3 boxes of 2 categories in 2 images", text)
    assert re.search(r"boxes: 2 categories *\n.*\n *class +boxes *\n.*\n *3 +1 *\n *5 +2 *\n", text)


def test_inspect_counts_boxes_without_labels(tmp_path: Path) -> None:
    info, text = inspect_detections(tmp_path, labelled=False)
    assert info == BoxCounts(3, 2, 3, {})
    assert re.search(r"boxes +boxes +3 boxes in 2 images", text)
    assert "categor" not in text


def inspect_detections(folder: Path, *, labelled: bool) -> tuple[BoxCounts, str]:
    """The counts of a dataset of three images with two, one and no box, and the tables."""
    write_detections(folder / "data", labelled=labelled)
    return inspect(PackedIndex(folder / "data")).boxes["boxes"], table_of(folder / "data")


def write_detections(folder: Path, *, labelled: bool = True) -> None:
    boxes = [[[10, 10, 50, 40], [60, 10, 90, 40]], [[10, 10, 50, 40]], []]
    labels = [[3, 5], [5], []]
    with fastpipe.Writer(folder, fields={"boxes": "boxes"}) as writer:
        for image_boxes, image_labels in zip(boxes, labels, strict=True):
            value: dict[str, Any] = {"boxes": image_boxes}
            if labelled:
                value["labels"] = image_labels
            writer.add(np.full((50, 100, 3), 90, dtype=np.uint8), boxes=value)


def test_boxes_are_drawn_on_whole_images_of_a_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_detections(tmp_path / "data")
    drawn: list[tuple[Any, list[str]]] = []
    contact_sheet = sheet.contact_sheet

    def record(cells: Any, captions: list[str], **options: Any) -> Any:
        drawn.append((cells, captions))
        return contact_sheet(cells, captions, **options)

    monkeypatch.setattr(sheet, "contact_sheet", record)
    assert write_contact_sheet(tmp_path / "data", tmp_path / "sheet.png") == (3, 0)
    ((images, captions),) = drawn
    assert captions == ["", "", ""], "these labels have no names"
    # 100 x 50 pixels become 160 x 80 in the middle of 160 x 160: the first box is 16 to 80, 56 to
    # 104.
    has_box = [bool((image[60:100, 16] != 90).any()) for image in images]
    assert sorted(has_box) == [False, True, True]


def test_inspect_has_no_empty_table_of_classes(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data", fields={"caption": "text"}) as writer:
        writer.add(np.zeros((20, 30, 3), dtype=np.uint8), caption="black")
    text = table_of(tmp_path / "data")
    assert "class" not in text
    assert "without label" in text
    assert "caption" in text


def test_samples_without_a_label_have_no_class_in_a_sheet(
    fielded: Path, copied: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(fielded)
    remove_labels(copy, slice(None))
    told: list[list[str]] = []
    contact_sheet = sheet.contact_sheet

    def noted(cells: Any, captions: list[str], **options: Any) -> Any:
        told.append(captions)
        return contact_sheet(cells, captions, **options)

    monkeypatch.setattr(sheet, "contact_sheet", noted)
    write_contact_sheet(copy, tmp_path / "sheet.png", count=6)
    with fastpipe.loader(copy, 2, size=64) as loader:
        fastpipe.preview(loader, tmp_path / "preview.png", rows=2)
    assert told[0] == [""] * 6
    assert [caption for caption in told[1] if caption in PackedIndex(copy).classes] == []
    assert told[1][0] == ""


def test_inspect_counts_samples_without_a_label(
    fielded: Path, copied: Callable[[Path], Path]
) -> None:
    copy = copied(fielded)
    file = copy / "dataset.json"
    counts = PackedIndex(copy).class_counts
    info = json.loads(file.read_text())
    file.write_text(json.dumps(info | {"class_counts": [0, *info["class_counts"][1:]]}))
    assert inspect(PackedIndex(copy)).unlabelled == counts[0] < FLAT_IMAGES
    assert f"without label  {counts[0]}" in table_of(copy)


def test_arrays_and_lists_of_pictures_in_words() -> None:
    array = torch.tensor([[1.5, float("nan")], [-2.0, 0.0]])
    cases: list[tuple[Any, str, str]] = [
        (array.half(), "array", "float16 (2, 2), -2 to 1.5"),
        (array.bfloat16()[:0], "array", "bfloat16 (0, 2)"),
        (torch.tensor(7), "array", "7 (int64)"),
        (torch.tensor([True, False]), "array", "bool (2,), 0 to 1"),
        ([], "images", "0 images"),
        ([torch.zeros(3, 20, 30)], "images", "1 image: 30 x 20"),
        ([torch.zeros(3, 9, 8)] * 6, "images", "6 images: 8 x 9, 8 x 9, 8 x 9, 8 x 9 and 2 more"),
    ]
    for value, kind, text in cases:
        assert marks._as_text(value, Field("name", kind)) == text
