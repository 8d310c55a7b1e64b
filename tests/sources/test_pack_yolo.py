"""Folders as YOLO has them: images/SPLIT/*, labels/SPLIT/*.txt and the names of the classes in data.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sources.listed import by_path, flat_photos, paths_of, refuse_to_list

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import PackError


def write_yolo(root: Path, *texts: str, split: str = "", names: str = "{0: ant, 2: cow}") -> Path:
    """A photo for each text, which is its file of labels; photo 0 is 40 x 30."""
    flat_photos(root / "images" / split, len(texts))
    (root / "labels" / split).mkdir(parents=True)
    for number, text in enumerate(texts):
        (root / "labels" / split / f"{number:03d}.txt").write_text(text)
    if names:
        (root / "data.yaml").write_text(f"names: {names}\n")
    return root


def test_a_line_is_a_class_and_a_box_as_shares_of_the_image(tmp_path: Path) -> None:
    """The box's middle, and its width and height. Windows' editors write a byte order mark; a text may be missing."""
    text = "2 0.5 0.5 0.5 0.2\n\n0 0.25 0.5 0.5 1\n"
    yolo = write_yolo(tmp_path / "yolo", text, "\ufeff0 0.5 0.5 0.5 0.5\n", "", "")
    (yolo / "labels/003.txt").unlink()
    assert not fastpipe.pack(yolo, tmp_path / "packed").tally.rejected
    found = by_path(tmp_path / "packed", "boxes")
    boxes, labels = found["000.jpg"]
    assert boxes.tolist() == [[10, 12, 30, 18], [0, 0, 20, 30]]
    assert labels.tolist() == [2, 0]
    assert [len(found[f"00{number}.jpg"][0]) for number in (1, 2, 3)] == [1, 0, 0]


def test_labels_without_an_image_are_told(tmp_path: Path) -> None:
    yolo = write_yolo(tmp_path / "yolo", "")
    for name in (
        "gone.txt",
        "classes.txt",
        "notes.md",
    ):  # the second one has the names of the classes
        (yolo / "labels" / name).write_text("0 0.5 0.5 0.5 0.5\n")
    assert fastpipe.pack(yolo, tmp_path / "packed").stray == ["labels/gone.txt"]


def test_a_split_is_chosen(tmp_path: Path) -> None:
    yolo = write_yolo(tmp_path / "yolo", "", "", split="train")
    write_yolo(yolo, "", split="val")
    with pytest.raises(PackError, match="/images has the splits train, val; pass one of them"):
        fastpipe.pack(yolo, tmp_path / "packed")
    fastpipe.pack(yolo, tmp_path / "packed", split="train")
    assert sorted(paths_of(tmp_path / "packed")) == ["000.jpg", "001.jpg"]


def test_names_of_the_classes(tmp_path: Path) -> None:
    """By number, or as a list; numbers without a name have an empty one."""
    yolo = write_yolo(tmp_path / "yolo", "7 0.5 0.5 0.5 0.5\n", names="")
    fastpipe.pack(yolo, tmp_path / "none")
    assert PackedIndex(tmp_path / "none").fields["boxes"].names == ()
    for number, (file, names, expected) in enumerate(
        [
            ("dataset.yaml", "[a, b, c, d, e, f, g, h]", tuple("abcdefgh")),
            (
                "data.yaml",
                "{0: ant, 7: cow}",
                ("ant", "", "", "", "", "", "", "cow"),
            ),  # of both, it counts
        ]
    ):
        (yolo / file).write_text(f"names: {names}\n")
        fastpipe.pack(yolo, tmp_path / str(number))
        assert PackedIndex(tmp_path / str(number)).fields["boxes"].names == expected


def test_names_that_are_none(tmp_path: Path) -> None:
    yolo = write_yolo(tmp_path / "yolo", "")
    for text in (
        "names: [[a, b]]\n",
        "names: {100001: a}\n",
        "names: {a: b}\n",
        "nc: 3\n",
        "[",
        "names: 7\n",
    ):
        (yolo / "data.yaml").write_text(text)
        with pytest.raises(PackError, match=r"data\.yaml: expected names of the classes"):
            fastpipe.pack(yolo, tmp_path / "packed")


# Texts of the photos 0, 1, 2, ... that cannot be, and why their images are left out.
CLASS = "expected a class from 0 to 2 and x, y, width, height, normalised (0 to 1), got "
WRONG = [
    ("0 0.5 0.5 0.5", f"000.txt, line 1: {CLASS}'0 0.5 0.5 0.5'"),
    ("0 0.5 0.5 0.5 0.5\na 0.5 0.5 0.5 0.5", f"001.txt, line 2: {CLASS}'a 0.5 0.5 0.5 0.5'"),
    ("3 0.5 0.5 0.5 0.5", f"002.txt, line 1: {CLASS}'3 "),
    ("-1 0.5 0.5 0.5 0.5", f"003.txt, line 1: {CLASS}'-1 "),
    ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", f"004.txt, line 1: {CLASS}"),
    ("0 0.9 0.5 0.5 0.5", "expected boxes x0, y0, x1, y1 inside the image"),
    ("0 nan 0.5 0.5 0.5", f"006.txt, line 1: {CLASS}'0 nan "),
    ("0 0.1 0.1 nan 0.2 0.3 0.3", f"007.txt, line 1: {CLASS}'0 0.1 "),
    ("0 0.5 0.5 0.5 0.5\n" * 250_000, "008.txt: expected at most 4,194,304 bytes"),
]


def test_wrong_texts_reject_their_images(tmp_path: Path) -> None:
    yolo = write_yolo(tmp_path / "yolo", *(text for text, _ in WRONG), "", "")
    (yolo / "labels/009.txt").unlink()
    (yolo / "labels/009.txt").mkdir()
    reasons = dict(fastpipe.pack(yolo, tmp_path / "packed").tally.rejected)
    for number, (_, words) in enumerate([*WRONG, ("", "009.txt cannot be read: Is a directory")]):
        assert words in reasons.pop(f"{number:03d}.jpg")
    assert not reasons
    assert paths_of(tmp_path / "packed") == ["010.jpg"]


def test_folders_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = write_yolo(tmp_path / "alone", "")
    split = write_yolo(tmp_path / "split", "", split="train")
    for yolo, folder in (
        (alone, "images"),
        (alone, "labels"),
        (split, "images/train"),
        (split, "labels/train"),
    ):
        with monkeypatch.context() as patch:
            refuse_to_list(yolo / folder, patch)
            with pytest.raises(PackError, match=f"{folder} cannot be listed: Permission denied"):
                fastpipe.pack(yolo, tmp_path / "packed", split="train" if yolo == split else None)
