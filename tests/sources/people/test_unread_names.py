"""Files and folders beside images, which may have the labels, and are not read: nobody loses them in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe
from fastpipe.errors import PackError

_REMEDY = "if one of them has labels, list images and labels in a CSV file, or use fastpipe.Writer"
TEXT = "a 1\n"  # of a file that is not read


def masks(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        Image.new("L", (40, 30), 1).save(folder / name)


@becomes(
    "CamVid, ADE20K: `images/`, `labels/`, and `codes.txt` beside them",
    "masks; what is not read is named",
)
def test_beside_masks(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "images", "a.png", "b.png")
    masks(source / "labels", "a_P.png", "b_P.png")
    write(source / "codes.txt", "Animal\nRoad\n")
    write(source / "README.md", TEXT)
    write(source / "ImageSets" / "train.txt", TEXT)
    assert assumed(fastpipe.pack(source, tmp_path / "packed")) == [
        f"not read, beside the images: codes.txt, ImageSets/; {_REMEDY}"
    ]


@becomes(
    "MVTec, ImageNet: `train/` and `test/` beside `ground_truth/`, `val.txt` or `wnids.txt`",
    "one split; what is not read is named",
    "--split train",
)
def test_beside_splits(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split in ("train", "test"):
        photos(source / split / "good", "a.jpg")
    photos(source / "ground_truth" / "broken", "a.png")
    write(source / "val.txt", TEXT)
    write(source / "boxes.geojson", TEXT)
    write(source / "license.txt", TEXT)
    assert assumed(fastpipe.pack(source, tmp_path / "packed", split="train")) == [
        f"not read, beside the images: boxes.geojson, val.txt, ground_truth/; {_REMEDY}"
    ]


@becomes(
    "labels of YOLO beside a file of VGG's annotator",
    "the user has to choose",
    "--format yolo or annotations",
)
def test_a_tool_beside_labels(tmp_path: Path) -> None:
    source = tmp_path / "src"
    regions = {"a.jpg": {"filename": "a.jpg", "regions": []}}
    photos(source / "images", "a.jpg")
    write(source / "labels/a.txt", "0 0.5 0.5 0.2 0.2")
    write(source / "via_region_data.json", regions)
    with pytest.raises(PackError, match="several kinds of source: annotations, yolo"):
        fastpipe.pack(source, tmp_path / "packed")
    summary = fastpipe.pack(source, tmp_path / "packed", format="yolo")
    (text,) = [text for text in assumed(summary) if text.startswith("not read")]
    assert text.startswith(
        "not read, beside the images: via_region_data.json; via_region_data.json"
    )
    assert "is the JSON of VGG's annotator: the same command with --format annotations" in text


@becomes(
    "`jpg/` beside `labels.mat`, `labels.npy`, `labels.pkl` or `labels.xlsx`",
    "refused, with what to do",
    "--format imagefolder",
)
@pytest.mark.parametrize("name", ["labels.mat", "labels.npy", "labels.pkl", "labels.xlsx"])
def test_data_beside_the_only_folder(tmp_path: Path, name: str) -> None:
    photos(tmp_path / "src" / "jpg", "a.jpg")
    write(tmp_path / "src" / name, TEXT)
    with pytest.raises(
        PackError, match=f"{name} is a .*, which fastpipe does not read: (read it|write a)"
    ):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")


@becomes(
    "CUB, Kaggle's ImageNet: class folders deeper, and lists at the top",
    "refused; the folder of the classes is named",
    "SRC/images",
)
def test_class_folders_below(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in ("001.Albatross", "002.Finch"):
        photos(source / "images" / name, "a.jpg")
    write(source / "bounding_boxes.txt", TEXT)
    with pytest.raises(
        PackError, match=rf"001.Albatross, 002.Finch are .*, pass {source}/images\."
    ):
        fastpipe.pack(source, tmp_path / "packed")


@becomes("FGVC: `data/images/` beside `data/variants.txt`", "refused", "SRC/data/variants.txt")
def test_a_list_in_the_only_folder(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "data" / "images", "0034309.jpg")
    write(source / "data" / "families.txt", "Boeing 707\n")
    write(source / "data" / "variants.txt", "0034309 707-320\n")
    with pytest.raises(PackError, match=f"Pass it: {source}/data/variants.txt, with --image-root"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes(
    "Food-101, Caltech-101: `images/` with class folders beside `meta/` without an image",
    "refused",
    "SRC/images",
)
def test_a_folder_without_images(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in ("pie", "waffles"):
        photos(source / "images" / name, "a.jpg")
    write(source / "meta" / "train.txt", TEXT)
    with pytest.raises(
        PackError, match=f"only the folder images has images.* Pass {source}/images"
    ):
        fastpipe.pack(source, tmp_path / "packed")
    assert fastpipe.pack(source / "images", tmp_path / "packed").info["classes"] == [
        "pie",
        "waffles",
    ]


@becomes("TFRecords or CIFAR's pickles in a folder", "refused, with what to do")
def test_data_alone(tmp_path: Path) -> None:
    for name, data, kind in (
        ("cards.tfrecord", b"\x10\0\0\0", "a file of TensorFlow"),
        ("data_batch_1", b"\x80\x02}q\0.", "a pickle"),
    ):
        file = tmp_path / name[:4] / "all" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        with pytest.raises(PackError, match=f"holds no image: all/{name} is {kind}, which"):
            fastpipe.pack(file.parent.parent, tmp_path / "packed")
