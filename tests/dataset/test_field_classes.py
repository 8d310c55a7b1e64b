"""Labels that get other numbers, beside boxes, masks and fields of classes, whose numbers are stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe.errors import ConfigError

PICTURE = np.zeros((16, 16, 3), np.uint8)


def packed(path: Path, labels: Sequence[str] | None, **fields: Any) -> fastpipe.Dataset:
    """Two samples, of the class ant or bee where there are labels."""
    kinds = dict.fromkeys(fields, "classes")
    with fastpipe.Writer(path, classes=labels, fields=kinds) as writer:
        for number in range(2):
            values = {name: column[number] for name, column in fields.items()}
            writer.add(
                PICTURE, None if labels is None else labels[number], key=str(number), **values
            )
    return fastpipe.open(path)


def yolo(root: Path) -> Path:
    """A box of the class dog, 1."""
    from PIL import Image

    (root / "images").mkdir(parents=True)
    (root / "labels").mkdir()
    Image.new("RGB", (40, 30)).save(root / "images/a.jpg")
    (root / "labels/a.txt").write_text("1 0.5 0.5 0.2 0.2\n")
    (root / "classes.txt").write_text("cat\ndog\n")
    return root


def test_labels_that_would_disagree_with_a_field(tmp_path: Path) -> None:
    data = packed(tmp_path / "data", ["ant", "bee"], tags=[["ant"], ["bee"]])
    assert data.fields["tags"].names == ("ant", "bee")
    words = "'(ant|bee)' would be . in labels, and is . in the field 'tags'.*--classes-from"
    with pytest.raises(ConfigError, match=f"with_classes: {words}"):
        data.with_classes(["bee", "ant"])
    with pytest.raises(ConfigError, match=f"with_classes: {words}"):
        fastpipe.open(tmp_path / "data", classes_from=["bee", "ant"])
    with pytest.raises(ConfigError, match=r"only: 'bee' would be 0 .*keep_labels=True"):
        data.only(["bee"])
    assert data.only(["bee"], keep_labels=True)["label"].tolist() == [1]
    assert data.with_classes(["ant", "bee", "cow"]).classes == ["ant", "bee", "cow"]


def test_fields_of_other_classes_stay(tmp_path: Path) -> None:
    data = packed(tmp_path / "data", ["ant", "bee"], tags=[["red"], ["blue"]])
    assert data.with_classes(["bee", "ant"])["label"].tolist() == [1, 0]


def test_boxes_without_labels(tmp_path: Path) -> None:
    fastpipe.pack(yolo(tmp_path / "yolo"), tmp_path / "packed")
    for names in (["dog", "cat"], ["cat", "dog", "cow"]):
        with pytest.raises(
            ConfigError,
            match="has no labels, and the classes of its field 'boxes' are 'cat', 'dog'",
        ):
            fastpipe.open(tmp_path / "packed", classes_from=names)
    data = fastpipe.open(tmp_path / "packed", classes_from=["cat", "dog"])
    assert data.fields["boxes"].names == ("cat", "dog")
    fastpipe.pack(tmp_path / "yolo", tmp_path / "anew", classes_from=["dog", "cat"])
    sample = fastpipe.open(tmp_path / "anew", classes_from=["dog", "cat"]).with_fields(("boxes",))[
        0
    ]
    assert sample["boxes_labels"].tolist() == [0]
