"""Folders as Pascal VOC has them: Annotations/*.xml, JPEGImages/* and the splits in ImageSets/Main/*.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.listed import by_path, flat_photos, paths_of, refuse_to_list

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError


def annotation(number: int, *objects: str) -> str:
    """Of `flat_photos`' photo of that number, with objects as XML."""
    size = f"<size><width>{40 + number}</width><height>30</height><depth>3</depth></size>"
    return f"<annotation><filename>{number:03d}.jpg</filename>{size}{''.join(objects)}</annotation>"


def thing(name: str, box: tuple[float, float, float, float], rest: str = "") -> str:
    """An object, with the sides of its box as VOC names them: xmin, ymin, xmax, ymax."""
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    inner = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return f"<object><name>{name}</name><bndbox>{inner}</bndbox>{rest}</object>"


DOG = thing("dog", (1, 2, 20, 30))


def write_voc(root: Path, *annotations: str) -> Path:
    """A photo for each annotation, and no splits."""
    flat_photos(root / "JPEGImages", len(annotations))
    (root / "Annotations").mkdir()
    for number, text in enumerate(annotations):
        (root / f"Annotations/{number:03d}.xml").write_text(text)
    return root


def write_splits(root: Path, **splits: str) -> None:
    (root / "ImageSets/Main").mkdir(parents=True)
    for name, lines in splits.items():
        (root / f"ImageSets/Main/{name}.txt").write_text(lines)


def test_boxes_labels_and_difficult_objects(tmp_path: Path) -> None:
    """The first pixel is 1 and the last one is inside; labels are numbers of the names, in order."""
    hard, easy = (
        thing("dog", (5.5, 6, 41, 7), f"<difficult>{number}</difficult>") for number in (1, 0)
    )
    things = (hard, DOG, easy, thing(" ant\n", (1, 1, 2, 2)))
    voc = write_voc(tmp_path / "voc", annotation(0, DOG), annotation(1, *things), annotation(2))
    fastpipe.pack(voc, tmp_path / "packed")
    assert PackedIndex(tmp_path / "packed").fields["boxes"].names == ("ant", "dog")
    found = by_path(tmp_path / "packed", "boxes", "difficult")
    assert {path: boxes.tolist() for path, (boxes, _, _) in found.items()} == {
        "000.jpg": [[0, 1, 20, 30]],
        "001.jpg": [[4.5, 5, 41, 7], [0, 1, 20, 30], [4.5, 5, 41, 7], [0, 0, 2, 2]],
        "002.jpg": [],
    }
    assert [found[f"00{number}.jpg"][1].tolist() for number in range(3)] == [[1], [1, 1, 1, 0], []]
    assert [found[f"00{number}.jpg"][2] for number in range(3)] == [[0], [1, 0, 0, 0], []]


def test_a_split_is_chosen_and_all_have_the_same_classes(tmp_path: Path) -> None:
    cat = thing("cat", (1, 1, 9, 9))
    voc = write_voc(
        tmp_path / "voc", annotation(0, DOG), annotation(1), annotation(2, cat), annotation(3, DOG)
    )
    write_splits(
        voc, train="\ufeff000\n\n001 -1\n", val="002\n", dog_train="000 1\n"
    )  # the last is of a class
    with pytest.raises(PackError, match="has the splits train, val; pass one of them"):
        fastpipe.pack(voc, tmp_path / "packed")
    assert not fastpipe.pack(voc, tmp_path / "packed", split="train").tally.rejected
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg"]
    assert PackedIndex(tmp_path / "packed").fields["boxes"].names == ("cat", "dog")


def test_images_are_found_by_name(tmp_path: Path) -> None:
    """By the file that the annotation names, or by that name without an ending, or after the annotation itself."""
    texts = [
        annotation(0),
        annotation(1).replace("001.jpg", "001"),
        annotation(2).replace("002.jpg", "IMG_77.jpg"),
    ]
    voc = write_voc(tmp_path / "voc", *texts, annotation(3), annotation(4).replace("004.jpg", ""))
    (voc / "JPEGImages/001.jpg").rename(voc / "JPEGImages/001.png")
    (voc / "JPEGImages/003.jpg").unlink()
    (voc / "JPEGImages/000.png").write_bytes(b"another file of that name")
    summary = fastpipe.pack(voc, tmp_path / "packed")
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.png", "002.jpg", "004.jpg"]
    # VOC has no --image-root.
    assert summary.tally.rejected == [
        ("003.jpg", "no such file in JPEGImages (Annotations/003.xml)")
    ]


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "aaaaaaaaaa">'
    + "".join(f'<!ENTITY x{n} "{f"&x{n - 1 or str()};" * 10}">' for n in range(1, 9))
    + "]><annotation><filename>&x8;</filename></annotation>"
)
# Annotations of the photos 0, 1, 2, ... that cannot be, and why their images are left out.
WRONG = [
    (BOMB, "expected no DOCTYPE"),
    ("<annotation>" + "<a/>" * 1_100_000 + "</annotation>", "expected at most 4,194,304 bytes"),
    ("<annotation>", "002.xml is not an annotation of VOC: no element found"),
    (
        annotation(3, DOG.replace("<xmin>1</xmin>", "")),
        "003.xml is not an annotation of VOC: could not convert",
    ),
    (
        annotation(4, DOG).replace("<width>44", "<width>45"),
        "expected 45 x 30 pixels, as its annotations say",
    ),
    (
        annotation(5, thing("dog", (1, 2, 900, 30))),
        "field boxes: expected boxes x0, y0, x1, y1 inside",
    ),
    (annotation(6).replace("006.jpg", "../006.jpg"), "no such file in JPEGImages"),
]


def test_wrong_annotations_reject_their_images(tmp_path: Path) -> None:
    voc = write_voc(tmp_path / "voc", *(text for text, _ in WRONG), annotation(7))
    names = "".join(f"{number:03d}\n" for number in range(9))
    write_splits(voc, train=names)
    (voc / "JPEGImages/008.jpg").write_bytes(b"")
    (voc / "JPEGImages/006.jpg").unlink()
    reasons = sorted(
        reason
        for _, reason in fastpipe.pack(voc, tmp_path / "packed", split="train").tally.rejected
    )
    expected = [*(words for _, words in WRONG), "no such annotation"]
    assert len(reasons) == len(expected)
    for words in expected:
        assert any(words in reason for reason in reasons), words
    assert paths_of(tmp_path / "packed") == ["007.jpg"]


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voc = write_voc(tmp_path / "voc", annotation(0))
    write_splits(voc, train="000\n", val="000\n")
    (voc / "ImageSets/Main/val.txt").unlink()
    (voc / "ImageSets/Main/val.txt").symlink_to("nowhere")
    with pytest.raises(PackError, match=r"cannot read .*val\.txt: No such file"):
        fastpipe.pack(voc, tmp_path / "packed", split="val")
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        with monkeypatch.context() as patch:
            refuse_to_list(voc / folder, patch)
            with pytest.raises(PackError, match=f"{folder} cannot be listed: Permission denied"):
                fastpipe.pack(voc, tmp_path / "packed", split="train")
