"""COCO's panoptic annotations, as people have them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.programs.cli_run import succeeded
from support.sources.becomes import becomes
from support.sources.people import assumed, masks, photos, write

import fastpipe
from fastpipe.errors import PackError

SIZE = (3, 2)
PERSON, GRASS = 1, 193
# Ids of segments: a person, another person, and grass; 0 is no segment.
FIRST, SECOND, FIELD = 3_226_956, 70_000, 258
IDS = [[FIRST, FIRST, 0], [SECOND, FIELD, FIELD]]
CATEGORIES = [[PERSON, PERSON, 0], [PERSON, GRASS, GRASS]]


def write_ids(file: Path, ids: list[list[int]]) -> None:
    """Writes ids as COCO does: red + 256 green + 65536 blue."""
    numbers = np.array(ids)
    channels = [numbers % 256, numbers // 256 % 256, numbers // 65536]
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.stack(channels, axis=2).astype(np.uint8)).save(file)


def content(*names: str) -> dict[str, Any]:
    pairs = ((FIRST, PERSON), (SECOND, PERSON), (FIELD, GRASS))
    segments = [
        {"id": number, "category_id": category, "area": 2, "bbox": [0, 0, 2, 1], "iscrowd": 0}
        for number, category in pairs
    ]
    images = []
    annotations = []
    for index, name in enumerate(names):
        width, height = SIZE
        images.append({"id": index, "file_name": f"{name}.jpg", "width": width, "height": height})
        annotation = {"image_id": index, "file_name": f"{name}.png", "segments_info": segments}
        annotations.append(annotation)
    categories = [
        {"id": PERSON, "name": "person", "isthing": 1, "supercategory": "person"},
        {"id": GRASS, "name": "grass", "isthing": 0, "supercategory": "plant"},
    ]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def panoptic(root: Path) -> Path:
    photos(root / "train2017", "000001.jpg", "000002.jpg", size=SIZE)
    for name in ("000001", "000002"):
        write_ids(root / f"annotations/panoptic_train2017/{name}.png", IDS)
    write(root / "annotations/panoptic_train2017.json", content("000001", "000002"))
    return root


@becomes(
    "COCO panoptic: `panoptic_train2017.json`, `panoptic_train2017/*.png` (segments_info), `train2017/`",
    "a field `mask` of the category of each pixel, things and stuff, with the names; that objects are "
    "not told apart is said",
)
def test_categories_of_pixels(tmp_path: Path) -> None:
    source = panoptic(tmp_path / "coco")
    for root in (source / "annotations/panoptic_train2017.json", source):
        summary = fastpipe.pack(root, tmp_path / "packed", overwrite=True)
        assert not summary.tally.rejected
        assert masks(tmp_path) == {
            "train2017/000001.jpg": CATEGORIES,
            "train2017/000002.jpg": CATEGORIES,
        }
        names = fastpipe.open(tmp_path / "packed").fields["mask"].names
        assert (names[PERSON], names[GRASS]) == ("person", "grass")
        assert assumed(summary)[0].startswith("field mask: the category of each pixel")
    # Another mask is another content.
    write_ids(source / "annotations/panoptic_train2017/000001.png", [[0, 0, 0], [0, 0, 0]])
    fastpipe.pack(source, tmp_path / "packed", fields=["scene=segments_info"], overwrite=True)
    assert list(fastpipe.open(tmp_path / "packed").fields) == ["scene"]


def test_image_root_and_folder_of_images(tmp_path: Path) -> None:
    source = panoptic(tmp_path / "coco")
    (source / "train2017").rename(tmp_path / "photos")
    file = source / "annotations/panoptic_train2017.json"
    fastpipe.pack(file, tmp_path / "packed", image_root=tmp_path / "photos")
    assert sorted(masks(tmp_path)) == ["photos/000001.jpg", "photos/000002.jpg"]

    (tmp_path / "photos").rename(source / "train2017")
    (text,) = assumed(fastpipe.pack(source / "train2017", tmp_path / "alone"))
    command = text.partition(": fastpipe ")[2].partition(". --format")[0]
    succeeded(*shlex.split(command.replace("DST", str(tmp_path / "both"))))
    assert list(fastpipe.open(tmp_path / "both").fields) == ["mask"]


def test_masks_that_are_damaged_or_missing(tmp_path: Path) -> None:
    source = panoptic(tmp_path / "coco")
    folder = source / "annotations/panoptic_train2017"
    write_ids(folder / "000001.png", [[7, 0, 0], [0, 0, 0]])
    ((path, reason),) = fastpipe.pack(source, tmp_path / "packed").tally.rejected
    assert path == "train2017/000001.jpg"
    assert "the colour (7, 0, 0) at x 0, y 0 is none of the 4 in segments_info" in reason
    (folder / "000001.png").unlink()
    ((_, reason),) = fastpipe.pack(source, tmp_path / "packed", overwrite=True).tally.rejected
    assert "000001.png: no such file" in reason

    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    with pytest.raises(PackError, match=r"expected them in the folder .*/panoptic_train2017"):
        fastpipe.pack(source, tmp_path / "none")


def test_categories_that_are_impossible(tmp_path: Path) -> None:
    source = panoptic(tmp_path / "coco")
    file = source / "annotations/panoptic_train2017.json"
    entries = content("000001", "000002")
    entries["annotations"][0]["segments_info"][0] = {"id": FIRST, "category_id": 7}
    entries["annotations"][1]["segments_info"] = [{"id": 1 << 24, "category_id": PERSON}]
    write(file, entries)
    with pytest.raises(PackError, match="expected a category_id of the categories, got 7"):
        fastpipe.pack(file, tmp_path / "none")
    entries["categories"].append({"id": 0, "name": "sky"})
    write(file, entries)
    with pytest.raises(PackError, match="category 0 has the number of pixels without a segment"):
        fastpipe.pack(file, tmp_path / "none")
    with pytest.raises(PackError, match="panoptic annotations have segments_info alone"):
        fastpipe.pack(panoptic(tmp_path / "other"), tmp_path / "none", fields=["boxes=bbox"])
