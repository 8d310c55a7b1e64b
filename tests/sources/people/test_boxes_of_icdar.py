"""ICDAR's lists of texts in scenes: corners and a text on each line of a file for each picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, photos, values, write

import fastpipe

IMAGES = "ch4_training_images"
TEXTS = "ch4_training_localization_transcription_gt"


@pytest.fixture
def icdar(tmp_path: Path) -> Path:
    source = photos(tmp_path / "icdar", *(f"{IMAGES}/img_{number}.jpg" for number in (1, 2, 3)))
    write(source / TEXTS / "gt_img_1.txt", "\ufeff1,2,9,2,9,8,1,8,Joint\r\n")
    write(
        source / TEXTS / "gt_img_2.txt",
        "\ufeff1,2,9,2,9,8,1,8,a, b\r\n30,6,50,8,49,16,29,14,###\r\n",
    )
    # This picture has a number as its only text.
    write(source / TEXTS / "gt_img_3.txt", "\ufeff5,5,25,5,25,15,5,15,50\r\n")
    return source


BOXES = {
    "img_1.jpg": [[[1, 2, 9, 8]], [0]],
    "img_2.jpg": [[[1, 2, 9, 8], [29, 6, 40, 16]], [0, 0]],
    "img_3.jpg": [[[5, 5, 25, 15]], [0]],
}


@becomes(
    "ICDAR 2015: `gt_img_1.txt` in another folder than `img_1.jpg`, with corners and a text a line",
    "a box around each text, which is in the field attributes; texts ### are counted",
)
def test_corners_and_texts(tmp_path: Path, icdar: Path) -> None:
    texts = assumed(fastpipe.pack(icdar, tmp_path / "packed"))
    assert values(tmp_path, "boxes") == {f"{IMAGES}/{name}": boxes for name, boxes in BOXES.items()}
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("text",)
    attributes = values(tmp_path, "attributes")
    assert attributes[f"{IMAGES}/img_3.jpg"] == [{"text": "50"}]
    assert attributes[f"{IMAGES}/img_2.jpg"] == [{"text": "a, b"}, {"text": "###"}]
    assert texts[0] == (
        "boxes: those around quadrilaterals (1), cut off at the edge of the image; the option packs masks of them, "
        "too (--field boxes --field attributes --field mask=segmentation:mask)"
    )
    assert texts[1].startswith("texts that are written as ###")

    fastpipe.pack(icdar, tmp_path / "packed", fields=["mask=segmentation:mask"], overwrite=True)
    rows = masks(tmp_path)[f"{IMAGES}/img_1.jpg"]
    assert sum(map(sum, rows)) == 8 * 6


@becomes(
    "ICDAR: the folder of images alone",
    "images without boxes; the lists are named, with the command that packs both",
    "--image-root",
)
def test_images_alone(tmp_path: Path, icdar: Path) -> None:
    (text,) = assumed(fastpipe.pack(icdar / IMAGES, tmp_path / "packed"))
    assert f"{icdar}/{TEXTS} DST --format annotations --image-root {icdar}/{IMAGES}" in text
    fastpipe.pack(
        icdar / TEXTS,
        tmp_path / "packed",
        format="annotations",
        image_root=icdar / IMAGES,
        overwrite=True,
    )
    assert values(tmp_path, "boxes") == BOXES


@becomes("ICDAR MLT: a script before each text", "text and script in the field attributes")
def test_scripts(tmp_path: Path, icdar: Path) -> None:
    for number in (1, 2, 3):
        write(icdar / TEXTS / f"gt_img_{number}.txt", "1,2,9,2,9,8,1,8,Latin,a,b\n")
    fastpipe.pack(icdar, tmp_path / "packed")
    attributes = values(tmp_path, "attributes")
    assert attributes[f"{IMAGES}/img_1.jpg"] == [{"text": "a,b", "script": "Latin"}]


def test_a_damaged_list_is_one_image(tmp_path: Path, icdar: Path) -> None:
    write(icdar / TEXTS / "gt_img_2.txt", "1,2,9,2,9,8,Joint\n")
    ((path, reason),) = fastpipe.pack(icdar, tmp_path / "packed").tally.rejected
    assert "img_2" in path
    assert "line 1: expected eight numbers and a text between commas" in reason
