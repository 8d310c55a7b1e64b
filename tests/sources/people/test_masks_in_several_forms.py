"""Datasets that have their masks several times: as numbers, as colours, and as JPEGs for people."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, photos, write

import fastpipe
from fastpipe.errors import PackError


def write_masks(folder: Path, *names: str, mode: str = "P") -> Path:
    """Masks of 2 x 1 pixels; the right one has the number of the mask, from 1 on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names, 1):
        mask = Image.fromarray(np.array([[0, number]], np.uint8))
        if mode == "P":
            mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
        mask.convert(mode).save(folder / name)
    return folder


def by_name(masks_by_key: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """The masks by the name of the image alone."""
    return {Path(key).name: mask for key, mask in masks_by_key.items()}


EXPECTED = {"a.jpg": [0, 1], "b.jpg": [0, 2]}


@becomes(
    "labelme2voc's export: `SegmentationClass/`, and `SegmentationClassVisualization/` of JPEGs",
    "the masks of SegmentationClass; that class_names.txt may have the names of their values is said",
    "--classes-from SRC/class_names.txt",
)
def test_export_of_labelme(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "JPEGImages", "a.jpg", "b.jpg", size=(2, 1))
    photos(source / "SegmentationClassVisualization", "a.jpg", "b.jpg", size=(2, 1))
    write_masks(source / "SegmentationClass", "a.png", "b.png")
    write_masks(source / "SegmentationObject", "a.png", "b.png")
    names = write(source / "class_names.txt", "_background_\ncat\ndog\n")
    (notice,) = assumed(fastpipe.pack(source, tmp_path / "packed"))
    assert notice.startswith("not read, beside the images: class_names.txt, ")
    assert notice.endswith(
        "if the lines of class_names.txt name the values 0, 1, 2 ... in the masks: --classes-from "
        f"{names}"
    )
    assert by_name(masks(tmp_path)) == EXPECTED

    summary = fastpipe.pack(source, tmp_path / "packed", classes_from=names, overwrite=True)
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == ("_background_", "cat", "dog")
    assert not any("class_names.txt" in notice for notice in assumed(summary))


@pytest.mark.parametrize(
    ("folder", "mode", "suggested"),
    [("SegmentationVis", "RGB", "SegmentationClass"), ("SegmentationIds", "P", "SegmentationIds")],
)
def test_several_folders_of_pngs(tmp_path: Path, folder: str, mode: str, suggested: str) -> None:
    source = tmp_path / "src"
    photos(source / "JPEGImages", "a.jpg", "b.jpg", size=(2, 1))
    write_masks(source / folder, "a.png", "b.png", mode=mode)
    is_other = suggested != folder
    write_masks(source / "SegmentationClass", "a.png", "b.png", mode="P" if is_other else "RGB")
    with pytest.raises(PackError, match=f"--field mask={suggested} picks one"):
        fastpipe.pack(source, tmp_path / "none")


@becomes(
    "the Semantic Drone Dataset: `class_dict_seg.csv` beside `dataset/semantic_drone_dataset/`",
    "refused: the folder of original_images and label_images_semantic is named, and the names",
    "SRC/dataset/semantic_drone_dataset --classes-from SRC/class_dict_seg.csv",
)
def test_semantic_drone_dataset(tmp_path: Path) -> None:
    source = tmp_path / "src"
    inner = source / "dataset/semantic_drone_dataset"
    photos(inner / "original_images", "a.jpg", "b.jpg", size=(2, 1))
    write_masks(inner / "label_images_semantic", "a.png", "b.png", mode="L")
    colours = source / "RGB_color_image_masks/RGB_color_image_masks"
    write_masks(colours, "a.png", "b.png", mode="RGB")
    text = "name, r, g, b\nunlabeled, 0, 0, 0\npaved-area, 128, 64, 128\ndirt, 130, 76, 0\n"
    names = write(source / "class_dict_seg.csv", text)
    words = f"Pass {inner} with --classes-from {names}. "
    with pytest.raises(PackError, match=re.escape(words)):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(inner, tmp_path / "packed", classes_from=names)
    assert by_name(masks(tmp_path)) == EXPECTED
    expected_names = ("unlabeled", "paved-area", "dirt")
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == expected_names


def test_labels_that_are_pictures_are_no_masks(tmp_path: Path) -> None:
    """Pictures of labels on bottles, in colours."""
    source = tmp_path / "src"
    photos(source / "bottle_images", "a.jpg", "b.jpg")
    photos(source / "bottle_labels", "a.jpg", "b.jpg")
    with pytest.raises(
        PackError, match="look like folders of images and of their masks or targets"
    ):
        fastpipe.pack(source, tmp_path / "none")
