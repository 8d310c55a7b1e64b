"""Folders of images whose annotations lie in a folder above: they are named, with the command that packs them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, photos, write

import fastpipe
from fastpipe.sources.kinds import list_sources

YOLO = "0 0.5 0.5 0.2 0.2\n"
KITTI = "Car 0.00 0 1.55 4.0 4.0 12.0 12.0 1.57 1.73 4.15 1.65 1.73 46.70 -1.59\n"
DOTA = "imagesource:GoogleEarth\ngsd:0.14\n2.0 3.0 20.0 3.0 20.0 30.0 2.0 30.0 plane 0\n"
VOC = "<annotation><filename>{0}.jpg</filename><object><name>cat</name></object></annotation>"
WIDER = "0--Parade/a.jpg\n1\n4 4 20 20 0 0 0 0 0 0\n0--Parade/b.jpg\n1\n4 4 20 20 0 0 0 0 0 0\n"


def coco(*names: str) -> dict[str, Any]:
    images = [
        {"id": number, "file_name": name, "width": 40, "height": 30}
        for number, name in enumerate(names)
    ]
    annotations = [
        {"id": image["id"], "image_id": image["id"], "category_id": 1, "bbox": [5, 5, 10, 10]}
        for image in images
    ]
    return {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}


def saying(tmp_path: Path, folder: Path, **options: Any) -> str:
    """The one assumption about labels of a folder that is packed."""
    texts = assumed(fastpipe.pack(folder, tmp_path / "packed", **options))
    (text,) = [text for text in texts if " though " in text]
    return text.replace(str(tmp_path), "")


@becomes(
    "WIDER FACE: `WIDER_train/images/0--Parade/a.jpg`, its boxes in `wider_face_split/` above",
    "the events as classes; the boxes are named, with what to do",
)
@pytest.mark.parametrize("folder", ["WIDER_train", "WIDER_train/images"])
def test_wider_face(tmp_path: Path, folder: str) -> None:
    source = tmp_path / "wider"
    photos(source / "WIDER_train/images/0--Parade", "a.jpg", "b.jpg")
    photos(source / "WIDER_train/images/1--Handshaking", "c.jpg")
    write(source / "wider_face_split/wider_face_train_bbx_gt.txt", WIDER)
    write(source / "wider_face_split/readme.txt", "0--Parade/a.jpg")
    text = saying(tmp_path, source / folder)
    assert text.startswith(
        "labels: the names of the folders, though "
        "/wider/wider_face_split/wider_face_train_bbx_gt.txt has the names of these images: a "
        "list of WIDER FACE"
    )
    command = (
        "fastpipe pack /wider/wider_face_split/wider_face_train_bbx_gt.txt DST --image-root "
        "/wider/WIDER_train/images"
    )
    assert f"To pack both: {command}. " in text
    assert text.endswith("--format imagefolder packs the images alone")
    again = fastpipe.pack(source / folder, tmp_path / "again", format="imagefolder")
    assert not any("wider_face_split" in text for text in assumed(again))


@becomes(
    "Oxford's pets: `images/` alone with a pattern, though `annotations/` lies above",
    "the classes by the pattern; the lists are named, and which labels are packed",
    "--label-pattern '^(.+)_[0-9]+[.]'",
)
def test_labels_by_a_pattern(tmp_path: Path) -> None:
    source = tmp_path / "pets"
    photos(source / "images", "Abyssinian_1.jpg", "great_pyrenees_2.jpg")
    write(source / "annotations/trainval.txt", "Abyssinian_1 1 1 1\ngreat_pyrenees_2 2 2 1\n")
    text = saying(tmp_path, source / "images", label_pattern="^(.+)_[0-9]+[.]")
    assert text.startswith(
        "labels: those by --label-pattern, though /pets/annotations/trainval.txt has the names of "
    )
    data = fastpipe.open(tmp_path / "packed")
    assert data.classes == ["Abyssinian", "great_pyrenees"]
    labels = dict(zip(data["key"], data["label"], strict=True))
    assert labels == {"Abyssinian_1.jpg": 0, "great_pyrenees_2.jpg": 1}


@becomes(
    "COCO: the folder `train2017`, without `annotations/` beside it",
    "no boxes; the command that packs them is named",
    "the file of COCO and --image-root",
)
@pytest.mark.parametrize("is_late", [False, True], ids=["images first", "annotations first"])
def test_coco(tmp_path: Path, is_late: bool) -> None:
    source = tmp_path / "coco"
    photos(source / "train2017", "000000000001.jpg", "000000000002.jpg")
    photos(source / "val2017", "000000000003.jpg")
    content = coco("000000000001.jpg", "000000000002.jpg")
    if is_late:
        content["annotations"] *= 2000
        content = {name: content[name] for name in ("annotations", "images", "categories")}
    write(source / "annotations/instances_train2017.json", content)
    write(source / "annotations/instances_val2017.json", coco("000000000003.jpg"))
    text = saying(tmp_path, source / "train2017")
    command = (
        "fastpipe pack /coco/annotations/instances_train2017.json DST --image-root /coco/train2017"
    )
    assert f"has the names of these images. To pack what it says: {command}." in text
    if not is_late:
        fastpipe.pack(
            source / "annotations/instances_train2017.json",
            tmp_path / "boxes",
            image_root=source / "train2017",
        )
        assert "boxes" in fastpipe.open(tmp_path / "boxes").fields


@becomes(
    "YOLO: the folder `images/train`, without `labels/train`",
    "no boxes; the command that packs them is named",
    "the folder above, --split train",
)
def test_yolo(tmp_path: Path) -> None:
    source = tmp_path / "set"
    for split in ("train", "val"):
        photos(source / "images" / split, "1.jpg", "2.jpg")
        write(source / "labels" / split / "1.txt", YOLO)
    write(source / "data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n")
    text = saying(tmp_path, source / "images/train")
    assert "/set/labels has label files of YOLO, and lies beside these images" in text
    assert "To pack both: fastpipe pack /set DST --split train." in text


@becomes(
    "VOC, Cityscapes, Roboflow: the folder of images alone",
    "no boxes and no masks; the command that packs them is named",
    "the folder above",
)
def test_pairs(tmp_path: Path) -> None:
    photos(tmp_path / "voc/JPEGImages", "1.jpg", "2.jpg")
    for name in ("1", "2"):
        write(tmp_path / f"voc/Annotations/{name}.xml", VOC.format(name))
    text = saying(tmp_path, tmp_path / "voc/JPEGImages")
    assert "/voc/Annotations has annotations of Pascal VOC, and lies beside these images" in text
    assert "To pack both: fastpipe pack /voc DST." in text

    cities = tmp_path / "cities"
    for city in ("aachen", "bochum"):
        photos(cities / f"leftImg8bit/train/{city}", f"{city}_0_leftImg8bit.png")
        (cities / f"gtFine/train/{city}").mkdir(parents=True)
        Image.new("L", (40, 30), 1).save(
            cities / f"gtFine/train/{city}/{city}_0_gtFine_labelIds.png"
        )
    text = saying(tmp_path, cities / "leftImg8bit/train", overwrite=True)
    assert text.startswith("labels: the names of the folders, though /cities/gtFine has masks")
    assert "fastpipe pack /cities DST --split train." in text


def test_tables_with_classes_come_first(tmp_path: Path) -> None:
    source = tmp_path / "src"
    paths = [f"{name}/{name}-00{number}.jpg" for name in ("cat", "dog") for number in range(3)]
    photos(source / "photos/train", *paths)
    rows = {
        "ages.csv": ("path,age", [f"{path},{number}.5" for number, path in enumerate(paths)]),
        # These repeat what the folders say.
        "index.csv": (",path,label", [f"{at},{path},{path[:3]}" for at, path in enumerate(paths)]),
        "some.csv": ("path,label", [f"{paths[0]},", *(f"{path},{path[:3]}" for path in paths[1:])]),
        "tags.csv": ("path,tags", [f"{path},{path[:3]}|{path[5:8]}" for path in paths]),
    }
    for name, (header, lines) in rows.items():
        write(source / name, "\n".join([header, *lines]))
    text = saying(tmp_path, source / "photos/train")
    assert "though /src/tags.csv has the names of these images (also: /src/ages.csv)." in text
    assert "fastpipe pack /src/tags.csv DST --image-root /src/photos/train --field" in text


def test_masks_of_other_images(tmp_path: Path) -> None:
    photos(tmp_path / "src/photos/train", "cat/cat-1.jpg", "dog/dog-1.jpg")
    folder = tmp_path / "src/seg/train"
    photos(folder, "images/street-1.jpg")
    (folder / "masks").mkdir()
    Image.new("L", (40, 30), 1).save(folder / "masks/street-1.png")
    summary = fastpipe.pack(tmp_path / "src/photos/train", tmp_path / "packed")
    assert not summary.assumed


@becomes(
    "DOTA, KITTI, Supervisely: the folder of images alone",
    "no boxes; the command that packs them is named",
    "the folder of annotations, --format annotations and --image-root",
)
@pytest.mark.parametrize(
    ("images", "labels", "content", "tool"),
    [
        ("images", "labelTxt/{}.txt", DOTA, "label files of DOTA"),
        ("training/image_2", "training/label_2/{}.txt", KITTI, "label files of KITTI"),
        (
            "ds/img",
            "ds/ann/{}.jpg.json",
            '{"objects": [{"classTitle": "a", "points": {"exterior": [[1, 2], [3, 4]]}}]}',
            "Supervisely's JSON",
        ),
    ],
    ids=["DOTA", "KITTI", "Supervisely"],
)
def test_tools(tmp_path: Path, images: str, labels: str, content: str, tool: str) -> None:
    photos(tmp_path / "set" / images, "a.jpg", "b.jpg")
    for name in ("a", "b"):
        write(tmp_path / "set" / labels.format(name), content)
    text = saying(tmp_path, tmp_path / "set" / images)
    assert text.startswith("labels: none, though /set/")
    folder = f"/set/{labels.rpartition('/')[0]}"
    command = f"fastpipe pack {folder} DST --format annotations --image-root /set/{images}"
    assert f"has the name of one of these images: {tool}. To pack both: {command}. " in text
    summary = fastpipe.pack(
        tmp_path / folder[1:],
        tmp_path / "boxes",
        format="annotations",
        image_root=tmp_path / "set" / images,
    )
    assert (summary.info["samples"], summary.tally.rejected) == (2, [])


@becomes(
    "BDD100K: `images/100k/train` alone",
    "no boxes; the command that packs them is named",
    "the file of annotations and --image-root",
)
def test_bdd(tmp_path: Path) -> None:
    source = tmp_path / "bdd"
    photos(source / "images/100k/train", "0000f77c-6257be58.jpg", "b.jpg")
    entry = {"name": "0000f77c-6257be58.jpg", "labels": [{"category": "car", "box2d": {"x1": 1}}]}
    write(source / "labels/bdd100k_labels_images_train.json", [entry])
    assert (
        "the JSON of BDD100K or Scalabel. To pack both: fastpipe pack "
        "/bdd/labels/bdd100k_labels_images_train.json DST --image-root /bdd/images/100k/train."
    ) in saying(tmp_path, source / "images/100k/train")


@becomes(
    "CrowdHuman: `Images/` alone",
    "no boxes; the command that packs them is named",
    "the file of annotations and --image-root",
)
def test_crowd_human(tmp_path: Path) -> None:
    source = tmp_path / "crowd"
    photos(source / "Images", "273271,c9db.jpg", "284193,faa9.jpg")
    line = {"ID": "273271,c9db", "gtboxes": [{"tag": "person", "fbox": [1, 2, 3, 4]}]}
    write(source / "annotation_train.odgt", json.dumps(line) + "\n")
    assert "has the names of these images: CrowdHuman's annotations" in saying(
        tmp_path, source / "Images"
    )


@becomes(
    "ImageNet: `val/` of the devkit, with `ILSVRC2012_validation_ground_truth.txt` above",
    "no labels; the file is named, with what to do",
)
def test_the_ground_truth_of_imagenet(tmp_path: Path) -> None:
    source = tmp_path / "imagenet"
    photos(source / "val", *(f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3)))
    write(source / "ILSVRC2012_validation_ground_truth.txt", "490\n361\n171\n")
    text = saying(tmp_path, source / "val")
    assert "ILSVRC2012_validation_ground_truth.txt has as many numbers as there are images" in text
    assert "not in the order of the folders of train" in text


@becomes(
    "Kaggle's ImageNet: `Data/CLS-LOC`, with `LOC_val_solution.csv` three folders above",
    "no labels; the table is named, with the command",
    "--split val",
)
def test_tables_of_kaggle(tmp_path: Path) -> None:
    source = tmp_path / "imagenet"
    folder = source / "ILSVRC/Data/CLS-LOC"
    photos(folder / "train/n01440764", "n01440764_1.JPEG")
    photos(folder / "val", "ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    write(
        source / "LOC_val_solution.csv",
        "ImageId,PredictionString\nILSVRC2012_val_00000001,n01440764 1 2 3 4\n",
    )
    write(source / "LOC_sample_submission.csv", "ImageId,PredictionString\n")
    text = saying(tmp_path, folder, split="val")
    assert text.startswith("labels: none, though /imagenet/LOC_val_solution.csv has the names")
    assert (
        "fastpipe pack /imagenet/LOC_val_solution.csv DST --image-root "
        "/imagenet/ILSVRC/Data/CLS-LOC/val --classes-from /imagenet/ILSVRC/Data/CLS-LOC/train."
        in text
    )


@becomes(
    "Food-101: `images/`, its splits in `meta/train.txt` above",
    "the folders as classes; the lists are named",
)
def test_lists_of_splits(tmp_path: Path) -> None:
    source = tmp_path / "food-101"
    for name in ("apple_pie", "waffles"):
        photos(source / "images" / name, "1005649.jpg", "1011328.jpg")
    write(source / "meta/test.txt", "apple_pie/1011328\nwaffles/1011328\n")
    write(source / "meta/train.txt", "apple_pie/1005649\nwaffles/1005649\n")
    text = saying(tmp_path, source / "images")
    assert (
        "/food-101/meta/train.txt has the names of these images (also: /food-101/meta/test.txt"
        in text
    )
    assert "write a CSV file with a row for each image (path,label,split)" in text


def test_nothing_above(tmp_path: Path) -> None:
    source = tmp_path / "set"
    for name in ("ant", "bee"):
        photos(source / "classes" / name, "1.jpg", "2.jpg")
    photos(source / "masks", "5.png")
    write(source / "labels.csv", "path,label\nx/9.jpg,ant\n")
    write(source / "numbers.txt", "1\n2\n3\n4\n")
    write(source / "meta/train.txt", "fly/1\n../classes/ant/1.jpg\n")
    write(source / "README.md", "ant/1.jpg")
    # 1.jpg is the name of an image in many datasets.
    write(tmp_path / "labels/list.csv", "path,label\n1.jpg,ant\n")
    fastpipe.pack(source / "classes", source / "other")
    assert assumed(fastpipe.pack(source / "classes", tmp_path / "packed")) == []


@becomes(
    "boxes as lines of numbers, in `annotations/a.txt` or `gt/boxes.txt` beside the images",
    "no boxes; the files are named, with what to do",
)
@pytest.mark.parametrize(
    ("images", "file"), [("images", "annotations/a.txt"), ("img1", "gt/boxes.txt")]
)
def test_lines_of_numbers(tmp_path: Path, images: str, file: str) -> None:
    photos(tmp_path / "set" / images, "a.jpg", "b.jpg")
    write(tmp_path / "set" / file, "1,1,912,484,97,109,0,7,1\n")
    text = saying(tmp_path, tmp_path / "set" / images)
    assert text.startswith(f"labels: none, though /set/{file} has ")
    assert "lines of numbers between commas, as MOT and ICDAR have them" in text


@becomes(
    "Flowers, CVAT: `jpg/` beside `imagelabels.mat`, `images/` beside `annotations.xml`",
    "no labels; the file is named, with what to do",
)
def test_files_beside_the_folder(tmp_path: Path) -> None:
    photos(tmp_path / "flowers/jpg", "image_00001.jpg")
    write(tmp_path / "flowers/imagelabels.mat", "MATLAB")
    text = saying(tmp_path, tmp_path / "flowers/jpg")
    assert "/flowers/imagelabels.mat has data, which may be the labels of these images" in text
    photos(tmp_path / "cvat/images", "frame_1.jpg")
    write(
        tmp_path / "cvat/annotations.xml",
        '<annotations><meta></meta><image id="0" name="frame_1.jpg"></image></annotations>',
    )
    text = saying(tmp_path, tmp_path / "cvat/images", overwrite=True)
    assert "/cvat/annotations.xml has the names of these images: CVAT's XML. To pack both:" in text


@becomes(
    "`train/` of Carvana beside `train_masks/` and `metadata.csv`",
    "the masks are named, with a command that has --format masks",
)
def test_pairs_in_a_folder_of_several_kinds(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/car_1.jpg")
    (source / "train_masks").mkdir()
    Image.new("L", (40, 30), 1).save(source / "train_masks/car_1_mask.png")
    write(source / "metadata.csv", "file_name,year\ntrain/car_1.jpg,2012\n")
    assert "fastpipe pack /src DST --format masks --split train." in saying(
        tmp_path, source / "train"
    )
    fastpipe.pack(source, tmp_path / "both", format="masks", split="train")
    assert set(fastpipe.open(tmp_path / "both").fields) == {"mask"}


def test_tables_that_need_options(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/scan_1.jpg", "train/scan_2.jpg")
    table = write(
        source / "labels.csv",
        "patient,class,split\nscan_1,cat,train\nscan_2,dog,train\n",
    )
    command = (
        "fastpipe pack /src/labels.csv DST --image-root /src/train --image-column patient "
        "--split train --label-column class."
    )
    assert command in saying(tmp_path, source / "train")
    root = source / "train"
    summary = fastpipe.pack(
        table, tmp_path / "both", image_root=root, image_column="patient", split="train"
    )
    assert summary.info["samples"] == 2


def test_a_table_of_several_parts(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images_001/0001_000.png", "images_002/0002_000.png")
    write(source / "entry.csv", "path,label\n0001_000.png,a\n0002_000.png,b\n")
    text = saying(tmp_path, source / "images_001")
    assert "fastpipe pack /src/entry.csv DST. " in text
    assert fastpipe.pack(source / "entry.csv", tmp_path / "both").info["samples"] == 2


def test_tools_of_other_datasets_are_not_named(tmp_path: Path) -> None:
    photos(tmp_path / "mine", "x_1.jpg", "x_2.jpg")
    task = {
        "data": {"image": "other.jpg"},
        "annotations": [{"result": [{"from_name": "label", "type": "choices"}]}],
    }
    write(tmp_path / "31_label_studio/export.json", [task])
    texts = assumed(fastpipe.pack(tmp_path / "mine", tmp_path / "packed"))
    assert not any("though" in text for text in texts)


LABELS = "file,class\nant/100001.jpg,ant\nbee/100002.jpg,bee\n"


@becomes(
    "class folders, and beside them `predictions.csv`, or a log with names of some photos",
    "the classes of the folders; nothing is proposed",
)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("predictions.csv", LABELS),
        ("val-predictions-0.csv", LABELS),
        ("model.csv", "file,class,probability\nant/100001.jpg,ant,0.9\nbee/100002.jpg,ant,0.8\n"),
        ("out.csv", "path,prediction\nant/100001.jpg,ant\nbee/100002.jpg,ant\n"),
        ("notes.txt", "packed 2 files\nrejected: ant/100001.jpg is blurred\nread none\nall done\n"),
    ],
)
def test_answers_of_a_model_and_logs_are_no_labels(tmp_path: Path, name: str, content: str) -> None:
    photos(tmp_path / "photos/ant", "100001.jpg")
    photos(tmp_path / "photos/bee", "100002.jpg")
    write(tmp_path / name, content)
    # Also in the folder itself, if the name says it.
    if "predictions" in name:
        write(tmp_path / "photos" / name, content)
    assert assumed(fastpipe.pack(tmp_path / "photos", tmp_path / "packed")) == []


@becomes(
    "class folders; above them a table that has their names as labels, or lists other photos",
    "the classes of the folders; nothing is proposed",
)
@pytest.mark.parametrize("folder", ["", "data"])
def test_a_table_that_says_nothing_new_of_class_folders(tmp_path: Path, folder: str) -> None:
    names = ["000.jpg", "001.jpg"]
    photos(tmp_path / folder / "photos/ant", *names)
    photos(tmp_path / folder / "photos/bee", *names)
    rows = [f"{name}/{number:03d}.jpg,{name}\n" for name in ("ant", "bee") for number in range(9)]
    if not folder:
        rows = [row for row in rows if "00.jpg" in row or "01.jpg" in row]
    write(tmp_path / "labels.csv", "path,label\n" + "".join(rows))
    assert assumed(fastpipe.pack(tmp_path / folder / "photos", tmp_path / "packed")) == []
    # Two folders above, the labels may be others: most of the rows are not about these photos.
    write(tmp_path / "labels.csv", "path,label\n" + "".join(rows).replace(",bee", ",wasp"))
    texts = assumed(fastpipe.pack(tmp_path / folder / "photos", tmp_path / "again"))
    assert bool(texts) == (not folder)


def test_a_table_of_labels_above_class_folders_is_still_named(tmp_path: Path) -> None:
    photos(tmp_path / "photos/ant", "100001.jpg")
    photos(tmp_path / "photos/bee", "100002.jpg")
    write(tmp_path / "labels.csv", LABELS.replace("02.jpg,bee", "02.jpg,wasp"))
    assert "though /labels.csv has the names of these images" in saying(
        tmp_path, tmp_path / "photos"
    )


def test_folders_beside_images_are_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "images_of_mine", "a.jpg", "b.jpg")
    photos(tmp_path / "other/deep", "c.jpg")
    scandir = os.scandir
    listed: list[str] = []

    def noted(path: str | os.PathLike[str]) -> Any:
        listed.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    list_sources(tmp_path / "images_of_mine", 0)
    assert str(tmp_path) in listed
    assert str(tmp_path / "other/deep") not in listed


def test_a_list_of_images_in_another_folder(tmp_path: Path) -> None:
    """Their names come again, but the paths of the list lead to the other folder."""
    names = ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg")
    source = photos(tmp_path / "all/a", *names)
    other = photos(tmp_path / "all/b", *names)
    lines = ["path,label"]
    for name in names:
        lines.append(f"b/{name},{int(name.startswith('dog'))}")
    write(tmp_path / "all/list.csv", "\n".join(lines))
    named = f"{tmp_path}/all/list.csv"
    assert named not in " ".join(assumed(fastpipe.pack(source, tmp_path / "one")))
    assert named in " ".join(assumed(fastpipe.pack(other, tmp_path / "two")))


@becomes(
    "the label files of VisDrone or DOTA by themselves, `--image-root images`",
    "boxes; nothing is said of the label files, which are read",
    "SRC/train/labelTxt --format annotations --image-root SRC/train/images",
)
@pytest.mark.parametrize("is_folder_above", [True, False])
@pytest.mark.parametrize(
    ("folder", "text"), [("labelTxt", DOTA), ("annotations", "5,5,10,10,1,4,0,0\n")]
)
def test_files_that_are_read_are_not_named(
    tmp_path: Path, folder: str, text: str, is_folder_above: bool
) -> None:
    train = tmp_path / "train"
    images = photos(train / "images", "P0000.jpg", "P0001.jpg")
    for name in ("P0000", "P0001"):
        write(train / folder / f"{name}.txt", text)
    source = train if is_folder_above else train / folder
    options: dict[str, Any] = {"format": "annotations", "image_root": images}
    texts = assumed(fastpipe.pack(source, tmp_path / "packed", **options))
    assert not [text for text in texts if "not read" in text]
    assert "boxes" in fastpipe.open(tmp_path / "packed").fields
