"""Inspection and sheets of datasets with fields, and with samples that have no label."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.datasets.field_columns import remove_labels
from support.pictures.drawn import FLAT_IMAGES

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.tools.cli.inspect import inspection_tables
from fastpipe.tools.show import sheet
from fastpipe.tools.show.inspection import inspect, write_contact_sheet


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
    start = lines.index(["field", "kind"])
    for number, (name, kind) in enumerate(found.fields.items()):
        assert lines[start + 2 + number] == [name, kind]
    assert [str(len(found.fields)), "fields"] in lines
    plain = table_of(flat)
    assert "fields" not in plain
    assert "without label" not in plain


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
