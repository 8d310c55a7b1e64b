"""Folders as Pascal VOC and YOLO have them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.sources.listed import by_path, flat_photos, paths_of

import fastpipe
from fastpipe.errors import PackError
from fastpipe.format.index import Index

BOMB = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "aaaaaaaaaa">'
    + "".join(f'<!ENTITY x{n} "{f"&x{n - 1 or str()};" * 10}">' for n in range(1, 9))
    + "]><annotation><filename>&x8;</filename></annotation>"
)


def annotation(number: int, names: str) -> str:
    objects = "".join(
        f"<object><name>{name}</name><difficult>{at % 2}</difficult>"
        f"<bndbox><xmin>{1 + at}</xmin><ymin>2</ymin><xmax>{20 + at}</xmax><ymax>30</ymax></bndbox></object>"
        for at, name in enumerate(names.split())
    )
    size = f"<size><width>{40 + number}</width><height>30</height><depth>3</depth></size>"
    return f"<annotation><filename>{number:03d}.jpg</filename>{size}{objects}</annotation>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    root = tmp_path / "voc"
    flat_photos(root / "JPEGImages", 4)
    for folder in ("Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    for number, names in enumerate(["dog", "cat dog", "", "ant"]):
        (root / f"Annotations/{number:03d}.xml").write_text(annotation(number, names))
    (root / "ImageSets/Main/train.txt").write_text("000\n001\n002\n")
    (root / "ImageSets/Main/val.txt").write_text("003\n")
    (root / "ImageSets/Main/dog_train.txt").write_text("000 1\n")
    return root


def test_voc(voc: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match="has the splits train, val: --split picks one"):
        fastpipe.pack(voc, tmp_path / "packed")
    with pytest.raises(PackError, match=r"--split test: .* has the splits train, val"):
        fastpipe.pack(voc, tmp_path / "packed", split="test")
    fastpipe.pack(voc, tmp_path / "packed", split="train")
    found = by_path(tmp_path / "packed", "boxes", "difficult")
    assert {path: (boxes.tolist(), labels.tolist(), hard) for path, (boxes, labels, hard) in found.items()} == {
        "000.jpg": ([[0, 1, 20, 30]], [2], [0]),
        "001.jpg": ([[0, 1, 20, 30], [1, 1, 21, 30]], [1, 2], [0, 1]),
        "002.jpg": ([], [], []),
    }
    assert Index(tmp_path / "packed").fields["boxes"].names == ("ant", "cat", "dog")  # of all splits


def test_images_of_voc_are_found_by_name(voc: Path, tmp_path: Path) -> None:
    (voc / "JPEGImages/000.jpg").rename(voc / "JPEGImages/000.png")
    (voc / "Annotations/000.xml").write_text(annotation(0, "dog").replace("000.jpg", "000"))
    (voc / "Annotations/001.xml").write_text(annotation(1, "dog").replace("001.jpg", "IMG_77.jpg"))
    (voc / "JPEGImages/002.jpg").unlink()
    summary = fastpipe.pack(voc, tmp_path / "packed", split="train")
    assert sorted(paths_of(tmp_path / "packed")) == ["000.png", "001.jpg"]
    ((path, reason),) = summary.tally.rejected
    assert (path, reason) == ("002.jpg", "no such file in JPEGImages (Annotations/002.xml)")  # VOC has no --image-root


def test_a_split_of_voc_that_cannot_be_read(voc: Path, tmp_path: Path) -> None:
    (voc / "ImageSets/Main/val.txt").unlink()
    (voc / "ImageSets/Main/val.txt").symlink_to("nowhere")
    with pytest.raises(PackError, match=r"cannot read .*val\.txt: No such file"):
        fastpipe.pack(voc, tmp_path / "packed", split="val")


@pytest.mark.parametrize("folder", ["Annotations", "JPEGImages", "ImageSets/Main"])
def test_folders_of_voc_that_cannot_be_listed(
    voc: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_list(voc / folder, monkeypatch)
    with pytest.raises(PackError, match=f"{folder} cannot be listed: Permission denied"):
        fastpipe.pack(voc, tmp_path / "packed", split="train")


def refuse_to_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system does; but root, who runs tests, can list everything."""
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        (BOMB, "expected no DOCTYPE"),
        ("<annotation>" + "<a/>" * 2_000_000 + "</annotation>", "expected at most 4,194,304 bytes"),
        ("<annotation>", "no element found"),
        (annotation(0, "dog").replace("<xmin>1</xmin>", ""), "is no annotation of VOC: could not convert"),
        (annotation(0, "dog").replace("<width>40", "<width>41"), "expected 41 x 30 pixels, as its annotations say"),
        (annotation(0, "dog").replace("<xmax>20", "<xmax>900"), "field boxes: expected boxes x0, y0, x1, y1 inside"),
        (annotation(0, "dog").replace("000.jpg", "../000.jpg"), "no such file in JPEGImages"),
    ],
)
def test_hostile_voc(voc: Path, tmp_path: Path, xml: str, reason: str) -> None:
    (voc / "Annotations/000.xml").write_text(xml)
    ((_, why),) = fastpipe.pack(voc, tmp_path / "packed", split="train").tally.rejected
    assert reason in why


@pytest.fixture
def yolo(tmp_path: Path) -> Path:
    root = tmp_path / "yolo"
    flat_photos(root / "images/train", 3)
    flat_photos(root / "images/val", 1)
    (root / "labels/train").mkdir(parents=True)
    (root / "labels/train/000.txt").write_text("2 0.5 0.5 0.5 0.2\n0 0.25 0.5 0.5 1\n")
    (root / "labels/train/001.txt").write_text("")
    (root / "labels/train/gone.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (root / "data.yaml").write_text("names: {0: ant, 2: cow}\n")
    return root


def test_yolo(yolo: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match="/images has the splits train, val: --split picks one"):
        fastpipe.pack(yolo, tmp_path / "packed")
    summary = fastpipe.pack(yolo, tmp_path / "packed", split="train")
    assert summary.stray == ["labels/gone.txt"]
    found = by_path(tmp_path / "packed", "boxes")
    boxes, labels = found["000.jpg"]
    assert boxes.tolist() == [[10, 12, 30, 18], [0, 0, 20, 30]]
    assert labels.tolist() == [2, 0]
    assert [len(found[path][0]) for path in ("001.jpg", "002.jpg")] == [0, 0]
    assert Index(tmp_path / "packed").fields["boxes"].names == ("ant", "", "cow")


def test_a_byte_order_mark_is_no_part_of_a_line(yolo: Path, voc: Path, tmp_path: Path) -> None:
    """Windows' editors write it."""
    for text, root in ((yolo / "labels/train/000.txt", yolo), (voc / "ImageSets/Main/train.txt", voc)):
        text.write_bytes(b"\xef\xbb\xbf" + text.read_bytes())
        assert not fastpipe.pack(root, tmp_path / f"packed-{root.name}", split="train").tally.rejected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 0.5 0.5 0.5", "000.txt, line 1: expected a class from 0 to 2 and x, y, width, height as shares of the"),
        ("a 0.5 0.5 0.5 0.5", "line 1: expected a class"),
        ("3 0.5 0.5 0.5 0.5", "line 1: expected a class from 0 to 2"),
        ("-1 0.5 0.5 0.5 0.5", "line 1: expected a class from 0 to 2"),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3", "line 1: expected a class"),
        ("0 0.9 0.5 0.5 0.5", "expected boxes x0, y0, x1, y1 inside the image"),
        ("0 nan 0.5 0.5 0.5", "finite"),
    ],
)
def test_hostile_yolo(yolo: Path, tmp_path: Path, line: str, reason: str) -> None:
    (yolo / "labels/train/000.txt").write_text(line)
    ((path, why),) = fastpipe.pack(yolo, tmp_path / "packed", split="train").tally.rejected
    assert path == "000.jpg"
    assert reason in why


@pytest.mark.parametrize("folder", ["images", "labels", "images/train", "labels/train"])
def test_folders_of_yolo_that_cannot_be_listed(
    yolo: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = "train"
    if "/" not in folder:  # a source without splits
        split = None
        for name in ("images", "labels"):
            (yolo / name / "train").rename(yolo / "moved")
            shutil.rmtree(yolo / name)
            (yolo / "moved").rename(yolo / name)
    refuse_to_list(yolo / folder, monkeypatch)
    with pytest.raises(PackError, match=f"{folder} cannot be listed: Permission denied"):
        fastpipe.pack(yolo, tmp_path / "packed", split=split)


def test_a_text_of_yolo_that_cannot_be_read_rejects_its_image(yolo: Path, tmp_path: Path) -> None:
    text = next((yolo / "labels/train").glob("*.txt"))
    text.unlink()
    text.mkdir()
    summary = fastpipe.pack(yolo, tmp_path / "packed", split="train")
    ((path, reason),) = summary.tally.rejected
    assert path == f"{text.stem}.jpg"
    assert f"{text.name} cannot be read: Is a directory" in reason


def test_names_of_yolo_that_are_none(yolo: Path, tmp_path: Path) -> None:
    (yolo / "data.yaml").write_text("names: [[a, b]]\n")
    with pytest.raises(PackError, match=r"data\.yaml: expected names of the classes"):
        fastpipe.pack(yolo, tmp_path / "packed", split="val")
    (yolo / "data.yaml").unlink()
    fastpipe.pack(yolo, tmp_path / "packed", split="val")
    assert paths_of(tmp_path / "packed") == ["000.jpg"]
