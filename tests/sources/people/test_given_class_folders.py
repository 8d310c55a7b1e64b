"""Folders of classes, as people have them."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from support.sources.becomes import becomes

import fastpipe


@becomes("class folders, as torchvision's ImageFolder", "the classes in sorted order")
def test_class_folders(tmp_path: Path) -> None:
    for number, name in enumerate(("cow", "ant", "bee")):
        (tmp_path / "src" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), (80 * number, 0, 0)).save(tmp_path / "src" / name / "1.jpg")
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["ant", "bee", "cow"]
    assert [data.classes[label] + "/1.jpg" for label in data["label"]] == list(data["key"])
    assert summary.assumed == ()
