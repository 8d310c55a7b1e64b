"""Folders that have the same pictures in several variants, such as color and grayscale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import labels, photos

import fastpipe
from fastpipe.errors import PackError

NAMES = ("3f2a-11b_RS 01.JPG", "9c77-40e_RS 12.JPG")


def plants(folder: Path) -> Path:
    paths = []
    for variant, end in (("color", ".JPG"), ("grayscale", ".JPG"), ("segmented", "_final.jpg")):
        for plant in ("apple", "grape"):
            paths += [f"{variant}/{plant}/{name.replace('.JPG', end)}" for name in NAMES]
    return photos(folder, *paths)


@becomes(
    "PlantVillage: `color/apple/`, `grayscale/apple/`, `segmented/apple/` with the same images",
    "refused, with the folder to pass; also from the folder around them",
    "SRC/color",
)
def test_folders_of_the_same_pictures(tmp_path: Path) -> None:
    source = plants(tmp_path / "src" / "plant village")
    for given in (source, source.parent):
        with pytest.raises(PackError) as raised:
            fastpipe.pack(given, tmp_path / "packed")
        assert str(raised.value) == (
            f"{source} has the folders color, grayscale, segmented, which hold the same folders "
            "(apple, grape) and images of the same names, so they may be variants of the same "
            f"images. Pack one of them, such as: fastpipe pack '{source}/color' DST. "
            "--format imagefolder takes color, grayscale, segmented as the classes"
        )
    fastpipe.pack(source / "segmented", tmp_path / "packed")
    assert labels(tmp_path) == {
        "apple/3f2a-11b_RS 01_final.jpg": "apple",
        "apple/9c77-40e_RS 12_final.jpg": "apple",
        "grape/3f2a-11b_RS 01_final.jpg": "grape",
        "grape/9c77-40e_RS 12_final.jpg": "grape",
    }
    summary = fastpipe.pack(source, tmp_path / "all", format="imagefolder")
    assert summary.info["classes"] == ["color", "grayscale", "segmented"]


def test_domains_whose_pictures_are_counted_stay_classes(tmp_path: Path) -> None:
    domains = ("amazon", "dslr")
    paths = [f"{domain}/{mug}/frame_0001.jpg" for domain in domains for mug in ("cup", "mug")]
    source = photos(tmp_path / "src", *paths)
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert summary.info["classes"] == ["amazon", "dslr"]
    (assumed,) = summary.assumed
    assert re.search(
        "The images have the same names in each: if they are variants of the same images, pass "
        f"one of the folders, such as {source}/amazon$",
        assumed.text,
    )


def test_class_folders_with_other_pictures_are_no_variants(tmp_path: Path) -> None:
    source = plants(tmp_path / "src")
    (source / "color/apple" / NAMES[0]).rename(source / "color/apple/77-0_RS 3.JPG")
    assert "same names" not in str(fastpipe.pack(source, tmp_path / "packed").assumed)
