"""Annotations of Pascal VOC in class folders: Stanford Dogs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.annotated import packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, write

import fastpipe

CHIHUAHUA = "n02085620-Chihuahua/n02085620_7"
PUG = "n02110958-pug/n02110958_3"


def annotation(name: str, *boxes: tuple[int, int, int, int]) -> str:
    objects = ""
    for xmin, ymin, xmax, ymax in boxes:
        objects += (
            f"<object><name>{name}</name><pose>Unspecified</pose><difficult>0</difficult><bndbox>"
            f"<xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
        )
    size = "<size><width>40</width><height>30</height><depth>3</depth></size>"
    # Some files of Stanford Dogs have this in place of a name.
    return f"<annotation><filename>%s</filename>{size}<segment>0</segment>{objects}</annotation>"


def dogs(root: Path, ending: str = "") -> Path:
    photos(root / "Images", f"{CHIHUAHUA}.jpg", f"{PUG}.jpg")
    boxes = [(2, 3, 20, 25), (5, 6, 40, 30)]
    write(root / f"Annotation/{CHIHUAHUA}{ending}", annotation("Chihuahua", *boxes))
    write(root / f"Annotation/{PUG}{ending}", annotation("pug", (11, 1, 30, 30)))
    return root


@becomes(
    "Stanford Dogs: `Images/n02085620-Chihuahua/a.jpg`, `Annotation/n02085620-Chihuahua/a` without "
    "an ending",
    "boxes with the names in the annotations, and the folders as classes",
)
@pytest.mark.parametrize("ending", ["", ".xml"])
def test_annotations_of_dogs(tmp_path: Path, ending: str) -> None:
    boxes, summary = packed_objects(dogs(tmp_path / "dogs", ending), tmp_path / "packed")
    assert boxes == {
        f"{CHIHUAHUA}.jpg": [("Chihuahua", [1, 2, 20, 25]), ("Chihuahua", [4, 5, 40, 30])],
        f"{PUG}.jpg": [("pug", [10, 0, 30, 30])],
    }
    assert labels(tmp_path) == {
        f"{CHIHUAHUA}.jpg": "n02085620-Chihuahua",
        f"{PUG}.jpg": "n02110958-pug",
    }
    assert "labels: the names of the folders in Images" in assumed(summary)


@becomes(
    "Stanford Dogs of Kaggle: `images/Images/n02085620-Chihuahua/`, `annotations/Annotation/`",
    "boxes with the names in the annotations, and the folders as classes",
)
def test_dogs_of_kaggle(tmp_path: Path) -> None:
    source = dogs(tmp_path / "dogs")
    for folder in ("images", "annotations"):
        (source / folder).mkdir()
    (source / "Images").rename(source / "images/Images")
    (source / "Annotation").rename(source / "annotations/Annotation")
    boxes, _ = packed_objects(source, tmp_path / "packed")
    assert boxes[f"{PUG}.jpg"] == [("pug", [10, 0, 30, 30])]
    assert labels(tmp_path)[f"{PUG}.jpg"] == "n02110958-pug"


def test_dogs_without_an_annotation(tmp_path: Path) -> None:
    source = dogs(tmp_path / "dogs")
    (source / f"Annotation/{PUG}").rename(source / "Annotation/n02110958-pug/other")
    photos(source / "Images", "n02110958-pug/other.jpg")
    boxes, _ = packed_objects(source, tmp_path / "packed", unlisted="keep")
    assert boxes[f"{PUG}.jpg"] == []
    assert labels(tmp_path)[f"{PUG}.jpg"] == "n02110958-pug"


def test_images_of_dogs_alone(tmp_path: Path) -> None:
    source = dogs(tmp_path / "dogs")
    (text,) = assumed(fastpipe.pack(source / "Images", tmp_path / "packed"))
    assert f"To pack both: fastpipe pack {source} DST" in text
    assert set(labels(tmp_path).values()) == {"n02085620-Chihuahua", "n02110958-pug"}
