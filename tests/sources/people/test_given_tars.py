"""Tars as people have them: in any order, one a class, tars of tars."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.pack_sources import jpeg_bytes, saved
from support.sources.people import assumed, labels, values
from support.sources.tars import write_tar

import fastpipe
from fastpipe.errors import PackError

ONE, TWO = jpeg_bytes((40, 30), seed=1), jpeg_bytes((40, 30), seed=2)


@becomes(
    "a tar that is not sorted: all images, then all captions",
    "captions and labels come to their images by key",
)
def test_a_tar_that_is_not_sorted(tmp_path: Path) -> None:
    members = {"a.txt": b"one", "a.jpg": ONE, "b.jpg": TWO, "b.txt": b"two", "a.json": b'{"n": 1}'}
    fastpipe.pack(write_tar(tmp_path / "a.tar", members), tmp_path / "packed")
    assert values(tmp_path, "txt", "json") == {"a.jpg": ["one", {"n": 1}], "b.jpg": ["two", None]}
    members = {
        "a.jpg": ONE,
        "b.jpg": TWO,
        "a.txt": b"one",
        "b.txt": b"two",
        "b.cls": b"1",
        "a.cls": b"0",
    }
    summary = fastpipe.pack(
        write_tar(tmp_path / "a.tar", members), tmp_path / "packed", overwrite=True
    )
    assert values(tmp_path, "txt") == {"a.jpg": "one", "b.jpg": "two"}
    assert labels(tmp_path) == {"a.jpg": "0", "b.jpg": "1"}
    assert summary.tally.rejected == []
    assert summary.dropped == {}


def test_members_of_no_image_are_counted_once(tmp_path: Path) -> None:
    members = {
        "a.jpg": ONE,
        "a.txt": b"one",
        "c.txt": b"no image",
        "LICENSE": b"",
        "b.jpg": TWO,
        "b.txt": b"two",
    }
    summary = fastpipe.pack(write_tar(tmp_path / "a.tar", members), tmp_path / "packed")
    assert values(tmp_path, "txt") == {"a.jpg": "one", "b.jpg": "two"}
    assert summary.dropped == {"txt": 1, "without extension": 1}


@becomes("NaN in a sample's .json", "null, as in JSONL")
def test_nan_in_json(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "a.tar", {"a.jpg": ONE, "a.json": b'{"score": NaN, "more": [1, NaN]}'}
    )
    assert fastpipe.pack(tar, tmp_path / "packed").tally.rejected == []
    assert values(tmp_path, "json") == {"a.jpg": {"score": None, "more": [1, None]}}


@becomes(
    "a tar a class without labels: cat.tar, dog.tar, n01440764.tar",
    "images without labels; that the tars are called so is said. With the option each is a class",
    "--format imagefolder",
)
def test_a_tar_a_class(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    root.mkdir()
    for name, photo in {"dog": ONE, "cat-0": TWO, "cat-1": ONE, "n01440764": TWO}.items():
        write_tar(root / f"{name}.tar", {"1.jpg": photo})
    (said,) = assumed(fastpipe.pack(root, tmp_path / "packed"))
    assert said == (
        "labels: none, though the tars are called cat, dog, n01440764, as if each were a class (--format imagefolder)"
    )
    assert set(labels(tmp_path).values()) == {None}
    summary = fastpipe.pack(root, tmp_path / "packed", format="imagefolder", overwrite=True)
    expected = {"cat-0.tar/1.jpg": "cat", "cat-1.tar/1.jpg": "cat", "dog.tar/1.jpg": "dog"}
    assert labels(tmp_path) == {**expected, "n01440764.tar/1.jpg": "n01440764"}
    assert assumed(summary) == []


def test_numbered_tars_are_no_classes(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    root.mkdir()
    for name in ("000000", "000001", "000002"):
        write_tar(root / f"{name}.tar", {f"{name}.jpg": ONE})
    assert assumed(fastpipe.pack(root, tmp_path / "packed")) == []
    write_tar(root / "000003.tar", {"a.jpg": ONE, "a.cls": b"0"})
    with pytest.raises(
        PackError, match=r"has labels .*, so its name is no class; leave out --format"
    ):
        fastpipe.pack(root, tmp_path / "other", format="imagefolder")


@becomes(
    "a tar of tars (ImageNet's train)",
    "refused: unpack it once, then each tar is a class",
    "--format imagefolder",
)
def test_a_tar_of_tars(tmp_path: Path) -> None:
    inner = write_tar(tmp_path / "n01440764.tar", {"1.jpg": ONE}).read_bytes()
    outer = write_tar(tmp_path / "train.tar", {"n01440764.tar": inner, "n01443537.tar": inner})
    with pytest.raises(
        PackError, match=r"holds 2 tars in its tars.* with --format imagefolder each tar"
    ):
        fastpipe.pack(outer, tmp_path / "packed")


@becomes(
    "a.jpg and a.png in a tar of samples", "the sample is rejected; what to call a mask is said"
)
def test_two_images_of_one_key(tmp_path: Path) -> None:
    members = {"a.jpg": ONE, "a.png": saved("PNG", "L", (40, 30)), "b.jpg": TWO}
    ((path, reason),) = fastpipe.pack(
        write_tar(tmp_path / "a.tar", members), tmp_path / "packed"
    ).tally.rejected
    assert path.startswith("a.jpg")
    assert "got 2 and 0; call a mask or a second image KEY.NAME.png, such as KEY.seg.png" in reason


@becomes(
    "a tar with a/1.image.jpg and a/1.mask.png",
    "images of the class a; that they have one key is said",
    "--image-column image.jpg",
)
def test_images_of_one_key_in_a_folder(tmp_path: Path) -> None:
    members = {"a/1.image.jpg": ONE, "a/1.mask.png": saved("PNG", "L", (40, 30))}
    tar = write_tar(tmp_path / "x.tar", members)
    summary = fastpipe.pack(tar, tmp_path / "packed")
    assert summary.info["samples"] == 2
    ((text, option),) = [tuple(each) for each in summary.assumed]
    assert "a/1.image.jpg and a/1.mask.png are samples of their own" in text
    assert option == "--image-column image.jpg"
    fastpipe.pack(tar, tmp_path / "paired", image_column="image.jpg")
    assert len(fastpipe.open(tmp_path / "paired")) == 1


@becomes(
    "a tar of photos/train/cat and photos/val/cat, with an image beside photos/",
    "the split; the image is named as not packed",
    "--split train",
)
def test_an_image_beside_the_folder_around_splits(tmp_path: Path) -> None:
    members = {"photos/train/cat/1.jpg": ONE, "photos/val/cat/2.jpg": TWO, "top.jpg": ONE}
    tar = write_tar(tmp_path / "photos.tar", members)
    summary = fastpipe.pack(tar, tmp_path / "packed", split="train")
    assert summary.info["samples"] == 1
    assert list(summary.stray) == ["top.jpg"]


def test_too_many_endings_are_said(tmp_path: Path) -> None:
    members = {f"a.v{number}.txt": b"" for number in range(70)}
    (said,) = assumed(
        fastpipe.pack(write_tar(tmp_path / "a.tar", {"a.jpg": ONE, **members}), tmp_path / "packed")
    )
    assert (
        said
        == "fields: none, because there are 70 different endings of members (--field NAME=ENDING)"
    )


@pytest.mark.parametrize(
    ("members", "column", "expected"),
    [
        (
            {"a.json": b'{"label": 3}', "b.json": b'{"label": 1}'},
            "label",
            {"a.jpg": "3", "b.jpg": "1"},
        ),
        (
            {"a.json": b'{"class": "dog"}', "b.json": b'{"class": "cat"}'},
            "class",
            {"a.jpg": "dog", "b.jpg": "cat"},
        ),
        ({"a.cls.txt": b"1\n", "b.cls.txt": b"0\n"}, "cls.txt", {"a.jpg": "1", "b.jpg": "0"}),
        ({"a.label": b"dog", "b.label": b"cat"}, "label", {"a.jpg": "dog", "b.jpg": "cat"}),
    ],
)
@becomes(
    'a WebDataset with labels in KEY.json (`{"label": 3}`, `{"class": "cat"}`), KEY.cls.txt or KEY.label',
    "no labels; that one is called so is said. With the option they are the labels",
    "--label-column label",
)
def test_labels_of_other_members(
    tmp_path: Path, members: dict[str, bytes], column: str, expected: dict[str, str]
) -> None:
    tar = write_tar(tmp_path / "a.tar", {"a.jpg": ONE, "b.jpg": TWO, **members})  # not sorted
    (said,) = assumed(fastpipe.pack(tar, tmp_path / "packed"))
    assert said.startswith("labels: none, though ")
    assert said.endswith(f"(--label-column {column})")
    assert set(labels(tmp_path).values()) == {None}
    summary = fastpipe.pack(tar, tmp_path / "packed", overwrite=True, label_column=column)
    assert labels(tmp_path) == expected
    assert not summary.tally.rejected
    assert fastpipe.open(tmp_path / "packed").classes == sorted(
        fastpipe.open(tmp_path / "packed").classes
    )


@becomes("a WebDataset with names of classes in KEY.cls", "refused", "--label-column cls")
def test_names_in_cls(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "a.tar", {"a.jpg": ONE, "a.cls": b"dog", "b.jpg": TWO, "b.cls": b"cat"}
    )
    with pytest.raises(PackError, match=r"For names of classes, pass --label-column cls"):
        fastpipe.pack(tar, tmp_path / "none")
    fastpipe.pack(tar, tmp_path / "packed", label_column="cls")
    assert labels(tmp_path) == {"a.jpg": "dog", "b.jpg": "cat"}
    assert fastpipe.open(tmp_path / "packed").classes == ["cat", "dog"]


def test_a_sample_without_the_chosen_label(tmp_path: Path) -> None:
    members = {
        "a.jpg": ONE,
        "a.json": b'{"label": 1}',
        "b.jpg": TWO,
        "b.json": b'{"n": 1}',
        "c.jpg": ONE,
    }
    summary = fastpipe.pack(
        write_tar(tmp_path / "a.tar", members), tmp_path / "packed", label_column="label"
    )
    assert labels(tmp_path) == {"a.jpg": "1"}
    reasons = [reason for _, reason in summary.tally.rejected]
    assert (
        reasons == ["expected its label in KEY.label, or as 'label' in KEY.json, got neither"] * 2
    )


@pytest.mark.parametrize("with_labels", [False, True])
@becomes(
    "a WebDataset of several images a sample: x.left.jpg, x.right.jpg",
    "refused",
    "--image-column left.jpg",
)
def test_several_images_in_a_sample(tmp_path: Path, with_labels: bool) -> None:
    members = {"a.left.jpg": ONE, "a.right.jpg": TWO, "b.left.jpg": TWO, "b.right.jpg": ONE}
    if with_labels:
        members |= {"a.cls": b"0", "b.cls": b"1"}
    tar = write_tar(tmp_path / "a.tar", dict(sorted(members.items())))
    with pytest.raises(
        PackError, match=r"--image-column left\.jpg takes KEY\.left\.jpg as the image"
    ):
        fastpipe.pack(tar, tmp_path / "none")
    summary = fastpipe.pack(tar, tmp_path / "packed", image_column="left.jpg")
    assert not summary.tally.rejected
    data = fastpipe.open(tmp_path / "packed")
    assert data.fields["right"].kind == "image"
    expected = (
        {"a.left.jpg": "0", "b.left.jpg": "1"}
        if with_labels
        else dict.fromkeys(("a.left.jpg", "b.left.jpg"))
    )
    assert labels(tmp_path) == expected


@becomes("x.jpg and x.png in a tar of samples", "the sample is rejected", "--image-column jpg")
@becomes("x.jpg and x.seg.png in a tar of samples", "a field `seg` of masks")
def test_a_mask_in_a_sample(tmp_path: Path) -> None:
    mask = saved("PNG", "L", (40, 30))
    tar = write_tar(tmp_path / "a.tar", {"a.jpg": ONE, "a.png": mask})
    with pytest.raises(PackError, match="or pass --image-column jpg, and the others are fields"):
        fastpipe.pack(tar, tmp_path / "none")
    fastpipe.pack(tar, tmp_path / "packed", image_column="jpg")
    assert fastpipe.open(tmp_path / "packed").fields["png"].kind == "mask"
    tar = write_tar(tmp_path / "b.tar", {"a.jpg": ONE, "a.seg.png": mask})
    fastpipe.pack(tar, tmp_path / "seg")
    assert fastpipe.open(tmp_path / "seg").fields["seg"].kind == "mask"


@becomes(
    "a tar with `.git` and `__MACOSX` beside the folder around the classes",
    "the classes; nothing hidden is one of them",
)
def test_hidden_folders_beside_the_classes(tmp_path: Path) -> None:
    members = {
        "photos/cat/1.jpg": ONE,
        "photos/dog/1.jpg": ONE,
        "photos/.git/a.jpg": ONE,
        ".git/a.jpg": ONE,
        "__MACOSX/photos/cat/._1.jpg": ONE,
    }
    write_tar(tmp_path / "photos.tar", members)
    fastpipe.pack(tmp_path / "photos.tar", tmp_path / "packed")
    data = fastpipe.open(tmp_path / "packed")
    assert (data.classes, len(data)) == (["cat", "dog"], 2)

    # The tar is called otherwise, so that photos is a class, which the summary doubts.
    members["photos/.hidden/a.jpg"] = ONE
    write_tar(tmp_path / "other.tar", members)
    (assumption, hidden) = fastpipe.pack(tmp_path / "other.tar", tmp_path / "more").assumed
    assert "if the folders in it (cat, dog) are the classes" in assumption.text
    assert "begin with a dot: 1, such as photos/.hidden" in hidden.text


@becomes(
    "tars with numbers in `.cls` and `classes.txt` beside them",
    "classes called by their numbers; the list is named",
    "--classes-from classes.txt",
)
def test_a_list_of_class_names_beside_tars(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    members = {"a.jpg": ONE, "a.cls": b"0", "b.jpg": TWO, "b.cls": b"1"}
    write_tar(folder / "0.tar", members)
    (folder / "notes.txt").write_text("a\nb\nc\n")
    assert assumed(fastpipe.pack(folder, tmp_path / "none")) == []
    names = folder / "classes.txt"
    names.write_text("zebra\nape\n")
    (text,) = assumed(fastpipe.pack(folder, tmp_path / "named"))
    assert text.startswith("classes: called by their numbers; classes.txt beside the tars may have")
    assert f"--classes-from {names}" in text
    fastpipe.pack(folder, tmp_path / "packed", classes_from=names)
    assert labels(tmp_path) == {"0.tar/a.jpg": "zebra", "0.tar/b.jpg": "ape"}
    names.write_text("zebra\n")  # too few
    assert assumed(fastpipe.pack(folder, tmp_path / "few")) == []


PAIRS = {
    "images/": [f"images/{n}.jpg" for n in range(3)],
    "masks/": [f"masks/{n}.png" for n in range(3)],
    "high/": [f"high/{n}.jpg" for n in range(3)],
    "low/": [f"low/{n}.jpg" for n in range(3)],
}


@becomes(
    "a tar of `images/` beside `masks/`, or of `high/1.png` beside `low/1.png`",
    "the folders as classes; that they may be pairs is said, with what to do",
)
@pytest.mark.parametrize(
    ("folders", "text"),
    [
        (
            ("images/", "masks/"),
            "classes: the folders images, masks, though images and masks look like folders of images and "
            "of their masks or targets; unpack the tar, and pack the folder that it holds",
        ),
        (
            ("high/", "low/"),
            "classes: the folders high, low are packed as classes, but their images have the same",
        ),
    ],
)
def test_pairs_in_a_tar(tmp_path: Path, folders: tuple[str, str], text: str) -> None:
    names = [name for folder in folders for name in PAIRS[folder]]
    tar = write_tar(tmp_path / "a.tar", dict.fromkeys(names, ONE))
    (assumption,) = assumed(fastpipe.pack(tar, tmp_path / "packed"))
    assert assumption.startswith(text)
    assert assumption.endswith("; unpack the tar, and pack the folder that it holds")
    assert labels(tmp_path) == {name: name.partition("/")[0] for name in names}


@becomes(
    "a tar with `1.jpg` and `1_mask.png`, also in class folders",
    "images; that some have names of masks is said, with what to do",
    "KEY.mask.png in the tar",
)
@pytest.mark.parametrize("folder", ["", "cat/"])
def test_masks_in_a_tar(tmp_path: Path, folder: str) -> None:
    buffer = io.BytesIO()
    Image.new("L", (40, 30), 3).save(buffer, "PNG")
    mask = buffer.getvalue()
    members = {f"{folder}1.jpg": ONE, f"{folder}1_mask.png": mask, f"{folder}2.jpg": TWO}
    texts = assumed(fastpipe.pack(write_tar(tmp_path / "a.tar", members), tmp_path / "packed"))
    (text,) = [each for each in texts if each.startswith("images: ")]
    assert text.startswith("images: 1 of 3 members look like masks of others, such as ")
    assert len(fastpipe.open(tmp_path / "packed")) == 3
    # As the text says.
    members = {"1.jpg": ONE, "1.mask.png": mask, "2.jpg": TWO, "2.mask.png": mask}
    tar = write_tar(tmp_path / "b.tar", members)
    assert not assumed(fastpipe.pack(tar, tmp_path / "packed", overwrite=True))
    assert fastpipe.open(tmp_path / "packed").fields["mask"].kind == "mask"
    assert np.unique(values(tmp_path, "mask")["1.jpg"]).tolist() == [3]
