"""Folders that are called like parts of samples, or like splits, and would be classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.people import assumed, photos

import fastpipe
from fastpipe.errors import PackError


@becomes(
    "DUTS, DIV2K: folders of images beside folders of masks or of other images",
    "refused where the folders would be classes",
    "a CSV file with --field mask=COLUMN:mask",
)
@pytest.mark.parametrize(
    ("images", "targets"),
    [
        ("DUTS-TR-Image", "DUTS-TR-Mask"),
        ("ISIC_Training_Input", "ISIC_Training_GroundTruth"),
        ("DIV2K_train_HR", "DIV2K_train_LR_bicubic/X2"),
        ("images", "v1.2/labels"),
    ],
)
def test_images_and_targets(tmp_path: Path, images: str, targets: str) -> None:
    source = tmp_path / "src"
    photos(source / images, "a.png", "b.png")
    photos(source / targets, "a.png", "b.png")
    photos(source / "Rural", "c.png")
    with pytest.raises(
        PackError, match="look like folders of images and of their masks or targets"
    ):
        fastpipe.pack(source, tmp_path / "packed")
    fastpipe.pack(source, tmp_path / "packed", format="imagefolder")


@becomes(
    "`Urban/images_png/`, `Urban/masks_png/`, and the same of `Rural/`, with two images each",
    "refused, as the folders may be samples; passed alone, each has a field `mask`",
    "SRC/Urban",
)
def test_sources_in_folders(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for folder in ("Urban", "Rural"):
        photos(source / folder / "images_png", "a.png", "b.png")
        for name in ("a", "b"):
            (source / folder / "masks_png").mkdir(exist_ok=True)
            Image.new("L", (40, 30), 3).save(source / folder / f"masks_png/{name}.png")
    with pytest.raises(PackError, match=f"Otherwise pass {source}/Rural"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source / "Urban", tmp_path / "packed")
    assert list(fastpipe.open(tmp_path / "packed").fields) == ["mask"]


def test_one_role_alone_is_a_class(tmp_path: Path) -> None:
    for name in ("with_mask", "without_mask"):
        photos(tmp_path / "src" / name, "a.png")
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    assert summary.info["classes"] == ["with_mask", "without_mask"]


@becomes(
    "Stanford Cars, WIDER FACE, CycleGAN: `cars_train/` and `cars_test/`, `trainA/` and `testA/`",
    "refused where the folders would be classes",
    "SRC/cars_train",
)
@pytest.mark.parametrize(
    ("train", "test"),
    [("cars_train", "cars_test"), ("WIDER_train", "WIDER_val"), ("trainA", "testA")],
)
def test_splits_in_names(tmp_path: Path, train: str, test: str) -> None:
    source = tmp_path / "src"
    for name in (train, test, "devkit"):
        photos(source / name, "a.jpg")
    with pytest.raises(PackError, match=f"look like splits.* Pass one of them: {source}/{train}"):
        fastpipe.pack(source, tmp_path / "packed")


def test_a_split_word_in_one_name_is_a_class(tmp_path: Path) -> None:
    for name in ("train_station", "test_tube", "bullet_train"):
        photos(tmp_path / "src" / name, "a.png")
    summary = fastpipe.pack(tmp_path / "src", tmp_path / "packed")
    assert summary.info["classes"] == ["bullet_train", "test_tube", "train_station"]


@becomes("DRIVE: `images/` beside `1st_manual/` and `mask/`", "refused")
def test_two_folders_of_masks(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in ("images", "1st_manual", "mask"):
        photos(source / name, "21.png")
    with pytest.raises(PackError, match="has the folders 1st_manual and mask beside its images"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes(
    "`src/ID/images/` with several images beside `src/ID/masks/`",
    "refused, with what to do",
    "a CSV file with --field mask=COLUMN:mask",
)
def test_a_folder_for_each_sample(tmp_path: Path) -> None:
    for name in ("aa", "bb"):
        photos(tmp_path / "src" / "stage1_train" / name / "images", "1.png", "2.png")
        photos(tmp_path / "src" / "stage1_train" / name / "masks", "1.png", "2.png")
    with pytest.raises(PackError, match="stage1_train is a sample, list images and masks in a CSV"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")


@becomes(
    "`images/` beside `annotations/trimaps/` with images of colours", "refused, with what to do"
)
def test_masks_in_another_folder(tmp_path: Path) -> None:
    photos(tmp_path / "src" / "images", "a.jpg", "b.jpg")
    photos(tmp_path / "src" / "annotations" / "trimaps", "a.png", "b.png")
    with pytest.raises(
        PackError, match=r"trimaps/a.png is a PNG with colours, not with numbers of"
    ):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")


@becomes("BDD100K: `images/` beside `labels/det_20/det_train.json`", "refused, with what to do")
def test_json_in_the_folder_of_labels(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source / "images" / "100k" / "train", "a.jpg")
    (source / "labels" / "det_20").mkdir(parents=True)
    (source / "labels" / "det_20" / "det_train.json").write_text("[]")
    with pytest.raises(PackError, match="holds images beside labels, which has no masks, no texts"):
        fastpipe.pack(source, tmp_path / "packed")


@becomes(
    "pairs: `high/1.png` beside `low/1.png`; `A/`, `B/`, `label/`; `rgb/`, `depth/`",
    "classes; that their images have the same names, and what to do with pairs, is said",
    "a CSV file with --field target=COLUMN:image",
)
@pytest.mark.parametrize(
    "folders",
    [
        ("high", "low"),
        ("A", "B", "label"),
        ("trainA", "trainB"),
        ("view_a", "view_b"),
        ("x_gt", "x_hazy"),
    ],
)
def test_pairs_of_pictures(tmp_path: Path, folders: tuple[str, ...]) -> None:
    names = [f"{folder}/{number}.png" for folder in folders for number in range(3)]
    source = photos(tmp_path / "src", *names)
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert summary.info["classes"] == list(folders)
    (text,) = assumed(summary)
    assert text.startswith(
        f"classes: the folders {', '.join(folders)} are packed as classes, but their images have "
        "the same names in each. If images of one name belong together, list each image with the "
        "others in a CSV file"
    )
    assert text.endswith("If they are classes, an option says so (--format imagefolder)")
    summary = fastpipe.pack(source, tmp_path / "packed", format="imagefolder", overwrite=True)
    assert assumed(summary) == []
    # What was settled when the dataset was packed is not asked again.
    photos(source, *[f"{folder}/3.png" for folder in folders])
    grown = fastpipe.add(source, tmp_path / "packed")
    assert grown.added == len(folders)
    assert not [one for one in grown.assumed if one.text.startswith("classes: the folders")]


@pytest.mark.parametrize("folders", [("ant", "bee"), ("a", "b", "c"), ("x", "y")])
@pytest.mark.parametrize(
    "names",
    [
        ["000", "001", "002"],
        ["img_7", "img_8", "img_9"],
        ["0010", "0020", "0030"],
        ["photo (1)", "photo (2)", "photo (3)"],
    ],
)
def test_numbered_pictures_of_classes_are_no_pairs(
    tmp_path: Path, folders: tuple[str, ...], names: list[str]
) -> None:
    paths = [f"{folder}/{name}.jpg" for folder in folders for name in names]
    summary = fastpipe.pack(photos(tmp_path / "src", *paths), tmp_path / "packed")
    assert assumed(summary) == []


@pytest.mark.parametrize("names", [["101", "113", "120"], ["ada", "bob", "eve"]])
def test_other_names_that_are_the_same_may_be_pairs(tmp_path: Path, names: list[str]) -> None:
    paths = [f"{folder}/{name}.jpg" for folder in ("one", "two") for name in names]
    summary = fastpipe.pack(photos(tmp_path / "src", *paths), tmp_path / "packed")
    (text,) = assumed(summary)
    assert text.startswith("classes: the folders one, two are packed as classes, but")


@becomes(
    "classes that each number their images from 0: `cat/0.png`, `dog/0.png`",
    "classes; nothing is said, for such names only count",
)
def test_classes_with_numbered_pictures(tmp_path: Path) -> None:
    many = [f"{name}/{number}.png" for name in ("ant", "bee", "cat", "dog") for number in range(3)]
    few = many[:-6]
    other_names = [*few[:-1], "bee/7.png"]
    one_more = [*few, "bee/3.png"]
    for number, paths in enumerate((many, few, other_names, one_more, few[:2] + few[3:5])):
        source = photos(tmp_path / f"src-{number}", *paths)
        assert assumed(fastpipe.pack(source, tmp_path / f"packed-{number}")) == []


@becomes(
    "MVTec's root: `bottle/train/good/`, `bottle/test/broken/`, `bottle/ground_truth/broken/0_mask.png`",
    "the objects as classes; that the masks are packed as images is said, with a command without them",
    "bottle --split train",
)
def test_masks_in_class_folders(tmp_path: Path) -> None:
    folders = ("train/good", "test/broken", "ground_truth/broken")
    paths = [f"{name}/{folder}/0.png" for name in ("bottle", "cable") for folder in folders]
    source = photos(tmp_path / "src", *paths, "cable/train/good/1.png")
    (text,) = [text for text in assumed(fastpipe.pack(source, tmp_path / "all")) if "masks" in text]
    assert text == (
        "the folders ground_truth in the class folders look like folders of masks, and their images are "
        "packed as those of the classes. To leave them out, move them elsewhere, or pack one folder "
        f"alone: fastpipe pack {source}/bottle DST --split train"
    )
    summary = fastpipe.pack(source / "bottle", tmp_path / "packed", split="train")
    assert summary.info["samples"] == 1
