"""One folder of classes that is passed by itself: the folder around it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe


@becomes(
    "one class folder, `photos/cat`, beside others",
    "images without labels; the folder around them is named",
    "SRC/photos",
)
def test_a_class_folder_by_itself(tmp_path: Path) -> None:
    source = photos(tmp_path / "photos", "cat/1.jpg", "cat/2.jpg", "dog/3.jpg", "fox/4.jpg")
    (text,) = assumed(fastpipe.pack(source / "cat", tmp_path / "packed"))
    assert text == (
        "labels: none, though cat lies beside other folders of images: dog, fox. If each is a "
        f"class, pack the folder around them, {source} (--format imagefolder)"
    )
    options = {"format": "imagefolder", "overwrite": True}
    assert assumed(fastpipe.pack(source / "cat", tmp_path / "packed", **options)) == []
    fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    assert set(labels(tmp_path).values()) == {"cat", "dog", "fox"}


@pytest.mark.parametrize(
    ("passed", "beside"),
    [
        ("train", "val/3.jpg"),
        ("images", "other/3.jpg"),
        ("cat", "masks/3.jpg"),
        ("cat", "dog/x/3.jpg"),
        ("cat", "dog/notes.txt"),
        ("images_001", "images_002/3.jpg"),
    ],
)
def test_folders_that_are_no_classes(tmp_path: Path, passed: str, beside: str) -> None:
    """Splits, parts, images beside masks, and folders of anything else."""
    source = photos(tmp_path / "photos", f"{passed}/1.jpg", f"{passed}/2.jpg")
    if beside.endswith(".jpg"):
        photos(source, beside)
    else:
        write(source / beside, "text")
    texts = assumed(fastpipe.pack(source / passed, tmp_path / "packed"))
    assert not any("lies beside other folders" in text for text in texts)
