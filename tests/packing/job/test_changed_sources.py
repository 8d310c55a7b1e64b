"""A dataset whose source is packed again from another folder, so that all paths begin otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.pack_sources import jpeg_bytes

import fastpipe
from fastpipe.errors import PackError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Photos in src/train, and a table beside that folder with their names alone."""
    rows = ["id,label"]
    (tmp_path / "src/train").mkdir(parents=True)
    for number, label in enumerate(("cat", "dog", "cat")):
        (tmp_path / f"src/train/{number}.jpg").write_bytes(jpeg_bytes((32, 24), seed=number))
        rows.append(f"{number}.jpg,{label}")
    (tmp_path / "src/labels.csv").write_text("\n".join(rows))
    return tmp_path / "src"


def refused(source: Path, destination: Path, **options: object) -> str:
    with pytest.raises(PackError) as error:
        fastpipe.pack(source, destination, **options)  # type: ignore[arg-type]
    return str(error.value)


def test_another_image_root(source: Path, tmp_path: Path) -> None:
    table = source / "labels.csv"
    options = {"image_column": "id", "label_column": "label"}
    fastpipe.pack(table, tmp_path / "dst", image_root=source, **options)
    text = refused(table, tmp_path / "dst", image_root=source / "train", **options)
    assert "packed already, from the same images with other paths, such as " in text
    assert "They differ by train/ in front, so SRC or --image-root (image_root=) is another" in text
    assert "Files were moved" not in text
    fastpipe.pack(table, tmp_path / "dst", image_root=source / "train", overwrite=True, **options)
    assert sorted(fastpipe.open(tmp_path / "dst")["key"]) == ["0.jpg", "1.jpg", "2.jpg"]


def test_files_that_were_renamed(source: Path, tmp_path: Path) -> None:
    fastpipe.pack(source / "train", tmp_path / "dst")
    for number in range(3):
        (source / f"train/{number}.jpg").rename(source / f"train/photo-{number}.jpg")
    text = refused(source / "train", tmp_path / "dst")
    assert "Files were moved or renamed, so pack all of them again" in text
