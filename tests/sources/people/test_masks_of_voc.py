"""Masks of Pascal VOC, with their lists of splits, and folders of masks in a folder of annotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, photos

import fastpipe
from fastpipe.errors import PackError


def palette_mask(file: Path, *values: int) -> None:
    """A mask with these numbers from left to right; number n has the colour (n, 2n, 3n)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("P", (40, 30))
    picture.putpalette([count * number % 256 for number in range(256) for count in (1, 2, 3)])
    for index, value in enumerate(values):
        picture.paste(value, (10 * index, 0, 10 * index + 10, 30))
    picture.save(file)


@becomes(
    "CVAT's VOC, and VOC without boxes: `SegmentationClass/`, `ImageSets/Segmentation/train.txt`, `labelmap.txt`",
    "the masks of a split, with the names of their classes; 255 is said to be VOC's border",
    "--split train",
)
def test_masks_of_voc(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in ("1", "2", "3"):
        photos(source / "JPEGImages", f"{name}.jpg")
        palette_mask(source / f"SegmentationClass/{name}.png", 0, 2, 1, 255)
    lists = source / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("1\n2\n4\n")
    (lists / "val.txt").write_text("3\n")
    (source / "labelmap.txt").write_text(
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\ndog:2,4,6::\ncat:1,2,3::\n"
    )
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(source, tmp_path / "packed", split="train")
    assert assumed(summary) == [
        "images that the list names, and that are not in JPEGImages: 1; they are left out",
        "classes of the field mask: those of labelmap.txt: 0 is 'background', 1 is 'cat', 2 is 'dog'",
        "field mask: the masks hold 255, as VOC's have it for borders, beside numbers up to 2; "
        "give losses ignore_index=255",
    ]
    data = fastpipe.open(tmp_path / "packed")
    assert sorted(data["key"]) == ["JPEGImages/1.jpg", "JPEGImages/2.jpg"]
    assert data.fields["mask"].names == ("background", "cat", "dog")
    mask = np.asarray(data.with_fields(("mask",))[0]["mask"])
    assert sorted(set(mask.ravel().tolist())) == [0, 1, 2, 255]


@becomes(
    "VOC with boxes and masks: `ImageSets/Segmentation` beside `ImageSets/Main`",
    "the masks of the split of the same name",
    "--format masks --split val",
)
def test_masks_beside_boxes_of_voc(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "Annotations").mkdir(parents=True)
    for name in ("1", "2", "3"):
        photos(source / "JPEGImages", f"{name}.jpg")
        (source / f"Annotations/{name}.xml").write_text(
            "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin>"
            "<xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
        )
    palette_mask(source / "SegmentationClass/2.png", 0, 1)
    for task, text in (("Main", "1\n2\n3\n"), ("Segmentation", "2\n")):
        (source / "ImageSets" / task).mkdir(parents=True)
        (source / "ImageSets" / task / "val.txt").write_text(text)
    fastpipe.pack(source, tmp_path / "masks", format="masks", split="val")
    assert list(fastpipe.open(tmp_path / "masks")["key"]) == ["JPEGImages/2.jpg"]
    fastpipe.pack(source, tmp_path / "boxes", split="val")
    assert len(fastpipe.open(tmp_path / "boxes")) == 3


@becomes(
    "Oxford's pets: `images/` beside `annotations/trimaps/`, `annotations/xmls/` and `annotations/list.txt`",
    "masks or boxes, as the option says; the lists of breeds are named",
    "--format masks or voc",
)
def test_pets(tmp_path: Path) -> None:
    source = tmp_path / "pets"
    photos(source / "images", "Abyssinian_1.jpg", "beagle_2.jpg")
    for name in ("Abyssinian_1", "beagle_2"):
        palette_mask(source / f"annotations/trimaps/{name}.png", 1, 2, 3)
    (source / "annotations/xmls").mkdir()
    (source / "annotations/xmls/beagle_2.xml").write_text(
        "<annotation><filename>beagle_2.jpg</filename><object><name>dog</name><bndbox><xmin>1</xmin>"
        "<ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox></object></annotation>"
    )
    (source / "annotations/list.txt").write_text("#Image CLASS-ID\nAbyssinian_1 1 1 1\n")
    with pytest.raises(PackError, match=r"several kinds of source: masks, voc. --format picks one"):
        fastpipe.pack(source, tmp_path / "none")
    (text,) = assumed(fastpipe.pack(source, tmp_path / "masks", format="masks"))
    assert text.startswith("not read, beside the images: annotations/list.txt, annotations/xmls/;")
    assert fastpipe.open(tmp_path / "masks").fields["mask"].kind == "mask"
    texts = assumed(fastpipe.pack(source, tmp_path / "boxes", format="voc"))
    assert texts[-1].startswith("not read, beside the images: annotations/list.txt;")
    assert "trimaps: left out, for only boxes are packed (--format masks)" in texts
    assert list(fastpipe.open(tmp_path / "boxes")["key"]) == ["beagle_2.jpg"]
    (text,) = assumed(fastpipe.pack(source / "images", tmp_path / "images"))
    assert f"fastpipe pack {source} DST --format masks" in text
