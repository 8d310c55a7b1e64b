"""Images in the folder of COCO's images that its file does not list."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.sources.becomes import becomes
from support.sources.listed import by_path
from support.sources.people import assumed, photos

import fastpipe
from fastpipe.errors import PackError
from fastpipe.sources.annotations import coco_unlisted


def write(file: Path, names: Iterable[str]) -> Path:
    """A file of COCO with a box in each of these images."""
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    boxes = [
        {"id": image["id"], "image_id": image["id"], "category_id": 1, "bbox": [1, 2, 5, 6]}
        for image in images
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "images": images,
        "annotations": boxes,
        "categories": [{"id": 1, "name": "ant"}],
    }
    file.write_text(json.dumps(content))
    return file


def pack(source: Path, tmp_path: Path, **options: object) -> list[str]:
    summary = fastpipe.pack(source, tmp_path / "packed", overwrite=True, **options)  # type: ignore[arg-type]
    return [text for text in assumed(summary) if text.startswith("images")]


@becomes(
    "COCO beside images that it does not list",
    "these are left out; that they are, and how many, is said",
    "--unlisted drop or keep",
)
def test_images_that_are_not_listed(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    file = write(tmp_path / "src/all.json", ["a.jpg", "b.jpg"])
    assert pack(file, tmp_path) == [
        "images: 2 images in the same folders are not listed and are left out, such as c.jpg "
        "(--unlisted drop or keep)"
    ]
    assert by_path(tmp_path / "packed", "boxes").keys() == {"a.jpg", "b.jpg"}
    assert pack(file, tmp_path, unlisted="drop") == []
    assert len(fastpipe.open(tmp_path / "packed")) == 2


@becomes("the same, where the others are background", "images without boxes", "--unlisted keep")
def test_images_that_are_not_listed_as_background(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg", "b.jpg", "c.jpg")
    file = write(tmp_path / "src/all.json", ["a.jpg", "b.jpg"])
    assert pack(file, tmp_path, unlisted="keep") == []
    boxes = by_path(tmp_path / "packed", "boxes")
    assert {path: len(value[0]) for path, value in boxes.items()} == {
        "a.jpg": 1,
        "b.jpg": 1,
        "c.jpg": 0,
    }


@becomes(
    "train.json and val.json of COCO that list images of one folder",
    "the images of val.json are listed, so nothing is said of them",
)
@pytest.mark.parametrize(
    ("images", "annotations", "path"),
    [
        ("images", "annotations", "{}"),
        ("images", ".", "{}"),
        ("images", "images", "{}"),  # as Roboflow's
        ("images", "annotations", "../media/{}"),  # found by the ends of the paths
        ("images", "{}", "{}"),  # a folder of each split
    ],
)
def test_splits_in_one_folder(tmp_path: Path, images: str, annotations: str, path: str) -> None:
    source = tmp_path / "src"
    photos(source / images, "a.jpg", "b.jpg", "c.jpg")
    files = {}
    for split, names in {"train": ["a.jpg", "b.jpg"], "val": ["c.jpg"]}.items():
        folder = source / annotations.format(split)
        files[split] = write(folder / f"{split}.json", map(path.format, names))
    for file in files.values():
        said = pack(file, tmp_path, image_root=source / images)
        assert not any("not listed" in text for text in said)
    photos(source / images, "d.jpg")
    for file in files.values():
        said = pack(file, tmp_path, image_root=source / images)
        assert any("1 image in the same folders is not listed" in text for text in said)
    pack(files["val"], tmp_path, image_root=source / images, unlisted="keep")
    assert by_path(tmp_path / "packed", "boxes").keys() == {"c.jpg", "d.jpg"}


def test_a_split_with_its_annotations_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is not read for a message alone; nor is it said that its images are not listed."""
    source = tmp_path / "src"
    photos(source, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    train = write(source / "train.json", ["a.jpg"])
    val = write(source / "val.json", ["b.jpg", "c.jpg"])
    val.write_text(json.dumps(json.loads(val.read_text()), sort_keys=True))
    (said,) = pack(train, tmp_path)
    assert "1 image in the same folders is not listed" in said
    monkeypatch.setattr(coco_unlisted, "_MAX_ENTRIES", 2)
    assert pack(train, tmp_path) == []
    pack(train, tmp_path, unlisted="keep")
    assert by_path(tmp_path / "packed", "boxes").keys() == {"a.jpg", "d.jpg"}


def test_files_that_list_images_of_other_folders(tmp_path: Path) -> None:
    """As COCO's own: train2017 and val2017 have a folder each."""
    for split in ("train", "val"):
        photos(tmp_path / f"src/{split}2017", f"{split}-1.jpg", f"{split}-2.jpg")
        file = tmp_path / f"src/annotations/instances_{split}2017.json"
        write(file, [f"{split}-1.jpg"])
    (said,) = pack(tmp_path / "src", tmp_path, split="train2017")
    assert "1 image in the same folders is not listed and is left out, such as train-2.jpg" in said


def test_masks_in_the_kept_images(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg", "b.jpg")
    file = write(tmp_path / "src/all.json", ["a.jpg"])
    content = json.loads(file.read_text())
    content["annotations"][0]["segmentation"] = [[1, 2, 6, 2, 6, 8]]
    file.write_text(json.dumps(content))
    fields = ["boxes", "mask=segmentation:mask", "area", "iscrowd"]
    content["annotations"][0] |= {"area": 30, "iscrowd": 0}
    file.write_text(json.dumps(content))
    pack(file, tmp_path, unlisted="keep", fields=fields)
    masks = by_path(tmp_path / "packed", "mask")
    assert masks["a.jpg"].max() == 1
    assert masks["b.jpg"].max() == 0


def test_panoptic_annotations(tmp_path: Path) -> None:
    photos(tmp_path / "src", "a.jpg")
    file = write(tmp_path / "src/panoptic.json", ["a.jpg"])
    content = json.loads(file.read_text())
    content["annotations"] = [{"image_id": 0, "file_name": "a.png", "segments_info": []}]
    file.write_text(json.dumps(content))
    with pytest.raises(PackError, match="unlisted: panoptic annotations have no such option"):
        pack(file, tmp_path, unlisted="keep")
