"""Annotations that are not read, beside images, in folders of their own, or passed as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.listed import by_path
from support.sources.people import write
from support.sources.photo_trees import photos

import fastpipe
from fastpipe.errors import PackError

KITTI = "Car 0.00 0 1.55 4.0 4.0 12.0 12.0 1.57 1.73 4.15 1.65 1.73 46.70 -1.59\n"


@becomes(
    "a folder of label files that is not called so, beside folders of images",
    "refused, with what to do",
    "--format annotations",
)
def test_a_folder_without_images(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "image_2/0.png", "image_3/0.png")
    write(source / "objects/0.txt", KITTI)
    write(source / "calib/0.txt", "P0: 1 2 3\n")
    with pytest.raises(PackError) as caught:
        fastpipe.pack(source, tmp_path / "none")
    assert "the folder objects has no image, but files with the names of images" in str(
        caught.value
    )
    assert "objects/0.txt: label files of KITTI. So it is not a class" in str(caught.value)
    assert "the same command with --format annotations packs them" in str(caught.value)
    summary = fastpipe.pack(source, tmp_path / "classes", format="imagefolder")
    assert any("classes: calib, objects without any image" in each.text for each in summary.assumed)


@pytest.mark.parametrize(
    ("ending", "content", "kind"),
    [
        ("json", {"camera": "left"}, "JSON"),
        ("txt", "a cat on a mat", "texts"),
        ("npy", "numbers", "data"),
        ("jpg.json", {"tags": ["cat"]}, "JSON"),
    ],
)
@becomes(
    "`a.txt`, `a.json`, `a.npy` beside `a.jpg`, also in class folders",
    "their number and an example are named",
)
def test_files_beside_images(tmp_path: Path, ending: str, content: Any, kind: str) -> None:
    for folder in ("", "cat/"):
        source = photos(
            tmp_path / (folder or "flat"),
            *(f"{folder}{name}.jpg" for name in "abc"),
            f"{folder}d.jpg",
        )
        for name in "ab":
            write(source / f"{folder}{name}.{ending}", content)
        # In class folders, an assumption on the only class comes first.
        assumed = fastpipe.pack(source, tmp_path / f"packed{len(folder)}").assumed[-1]
        assert assumed.text.startswith(
            "files that have the names of images, and are not read: 2, such as "
        )
        assert f".{ending} ({kind}). To keep what they say: " in assumed.text


@becomes("`a.xml` of VOC beside `a.jpg` in class folders", "the files are named", "--format voc")
def test_voc_in_class_folders(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "cat/a.jpg", "dog/b.jpg")
    box = "<bndbox><xmin>3</xmin><ymin>5</ymin><xmax>8</xmax><ymax>12</ymax></bndbox>"
    write(source / "cat/a.xml", f"<annotation><object><name>cat</name>{box}</object></annotation>")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert "are not read: 1, such as cat/a.xml (annotations of Pascal VOC)" in assumed.text
    fastpipe.pack(source / "cat", tmp_path / "boxes", format="voc")
    assert by_path(tmp_path / "boxes", "boxes")["a.jpg"][0].tolist() == [[2, 4, 8, 12]]


@becomes("images alone beside `labels.csv`", "no labels; the list is named")
def test_lists_beside_images_alone(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    write(source / "labels.csv", "id,finding\na,1\n")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert assumed.text == (
        f"labels: none, though labels.csv beside the images may have them; if it has them, pass {source}/labels.csv"
    )


@becomes(
    "a file of VOC, YOLO, Darknet, NumPy, MATLAB, HDF5 or the like", "refused, with what to pass"
)
def test_files_of_other_kinds(tmp_path: Path) -> None:
    for name, words in (
        ("a.xml", "expected the folder: pass "),
        ("data.yaml", "expected the folder: pass "),
        ("obj.data", "expected the folder: pass "),
        ("train.mat", "is a file of MATLAB, which fastpipe does not read: write a CSV file"),
        ("train.npz", "is a file of NumPy"),
        ("train.h5", "is a file of HDF5"),
        ("train.tfrecord", "is a file of TensorFlow"),
    ):
        with pytest.raises(PackError, match=words):
            fastpipe.pack(write(tmp_path / name, "x"), tmp_path / "none")


def darknet(root: Path, folder: str) -> Path:
    """Darknet's folders, where the lists have the paths of its working folder."""
    photos(root, f"{folder}/a.jpg", f"{folder}/b.jpg")
    for name, shares in (("a", "0 0.3125 0.5 0.375 0.5\n"), ("b", "1 0.5 0.5 1 1\n")):
        write(root / folder / f"{name}.txt", shares)
    write(root / "obj.names", "cat\ndog\n")
    write(
        root / "obj.data",
        "classes = 2\ntrain = data/train.txt\nvalid = data/test.txt\nnames = data/obj.names\n",
    )
    write(root / "train.txt", f"data/{folder}/a.jpg\n")
    write(root / "test.txt", f"data/{folder}/b.jpg\ndata/{folder}/gone.jpg\n")
    return root


@pytest.mark.parametrize(("name", "folder"), [("data", "obj"), ("export", "obj_train_data")])
@becomes(
    "Darknet: `obj.data`, `obj.names`, `train.txt`, `obj/a.jpg` beside `obj/a.txt`",
    "boxes",
    "--split train",
)
@becomes("CVAT's YOLO 1.1: `obj_train_data/`", "boxes with the names")
def test_darknet(tmp_path: Path, name: str, folder: str) -> None:
    source = darknet(tmp_path / name, folder)
    with pytest.raises(PackError, match="has the splits train, val"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "train", split="train")
    boxes, labels = by_path(tmp_path / "train", "boxes")["a.jpg"]
    assert (boxes.tolist(), labels.tolist()) == ([[2, 4, 8, 12]], [0])
    assert fastpipe.open(tmp_path / "train").fields["boxes"].names == ("cat", "dog")
    summary = fastpipe.pack(source, tmp_path / "val", split="val")
    assert by_path(tmp_path / "val", "boxes")["b.jpg"][1].tolist() == [1]
    assert [each.text for each in summary.assumed] == [
        "images that the list names, and that are not there: 1; they are left out"
    ]
    (source / "test.txt").unlink()
    fastpipe.pack(source, tmp_path / "one")
    assert set(by_path(tmp_path / "one", "boxes")) == {"a.jpg"}


@pytest.mark.parametrize(
    "names", ["obj.names", "classes.txt", "_darknet.labels", "coco.names", None]
)
@becomes(
    "label files of YOLO beside the images, also in `train/`",
    "boxes, with the names of a list beside them",
)
def test_labels_beside_images(tmp_path: Path, names: str | None) -> None:
    for split in (None, "train"):
        source = tmp_path / str(split)
        folder = source / (split or "")
        photos(folder, "a.jpg", "b.jpg")
        write(folder / "a.txt", "1 0.3125 0.5 0.375 0.5\n")
        write(folder / "b.txt", "")
        if names is not None:
            write(folder / names, "cat\ndog\n")
        packed = tmp_path / f"packed_{split}"
        assert not fastpipe.pack(source, packed).tally.rejected
        found = by_path(packed, "boxes")
        assert {
            path: (boxes.tolist(), labels.tolist()) for path, (boxes, labels) in found.items()
        } == {
            "a.jpg": ([[2, 4, 8, 12]], [1]),
            "b.jpg": ([], []),
        }
        assert fastpipe.open(packed).fields["boxes"].names == (("cat", "dog") if names else ())


@becomes(
    "Label Studio's YOLO: `classes.txt`, `notes.json`, `images/`, `labels/`", "boxes with the names"
)
def test_yolo_of_label_studio(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/ab12-a.jpg")
    write(source / "labels/ab12-a.txt", "0 0.3125 0.5 0.375 0.5\n")
    write(source / "classes.txt", "cat\n")
    write(source / "notes.json", {"categories": [{"id": 0, "name": "cat"}], "info": {"year": 2024}})
    fastpipe.pack(source, tmp_path / "packed")
    assert by_path(tmp_path / "packed", "boxes")["ab12-a.jpg"][0].tolist() == [[2, 4, 8, 12]]
    assert fastpipe.open(tmp_path / "packed").fields["boxes"].names == ("cat",)


@becomes(
    "CamVid: `label_colors.txt` beside folders of images and of masks", "refused, with what to do"
)
def test_masks_of_colours(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "701_StillsRaw_full/0.png", "LabeledApproved_full/0_L.png")
    write(source / "label_colors.txt", "64 128 64\tAnimal\n192 0 128\tArchway\n")
    with pytest.raises(
        PackError, match=r"has label_colors\.txt, which says the classes of the colours of masks"
    ):
        fastpipe.pack(source, tmp_path / "none")
    classes = photos(tmp_path / "classes", "cat/0.png", "dog/0.png")
    write(classes / "label_map.txt", "0 cat\n1 dog\n")  # no colours
    fastpipe.pack(classes, tmp_path / "packed")


@pytest.mark.parametrize(("mode", "value"), [("1", 1), ("P", 3), ("I;16", 300)])
@becomes("masks of 1 bit, with a palette, or of 16 bit", "a field `mask` with their numbers")
def test_masks_of_other_depths(tmp_path: Path, mode: str, value: int) -> None:
    source = photos(tmp_path / "src", "images/0.jpg")
    (source / "masks").mkdir()
    mask = Image.new(mode, (16, 16), value)
    if mode == "P":
        mask.putpalette([*range(256)] * 3)
    mask.save(source / "masks/0.png")
    fastpipe.pack(source, tmp_path / "packed")
    packed = by_path(tmp_path / "packed", "mask")["images/0.jpg"]
    assert set(packed.flatten().tolist()) == {value}


@becomes(
    "Karpathy's dataset_flickr8k.json of captions, as a file or beside the images",
    "refused, with the line of JSONL to write instead",
)
def test_captions_of_karpathy(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg")
    sentences = [{"tokens": ["a", "dog"], "raw": "A dog.", "imgid": 0, "sentid": 0}]
    entry = {"sentids": [0], "imgid": 0, "sentences": sentences, "split": "train"}
    file = write(source / "dataset.json", {"images": [{**entry, "filename": "a.jpg"}]})
    for root in (source, file):
        with pytest.raises(
            PackError, match=r"is Karpathy's JSON of captions, .* write a JSONL file"
        ):
            fastpipe.pack(root, tmp_path / "packed")
