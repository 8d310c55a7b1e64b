"""Images and masks as well-known datasets of segmentation have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, masks, photos, write

import fastpipe
from fastpipe.errors import PackError

SIZE = (4, 2)
LEFT = [[1, 1, 0, 0], [1, 1, 0, 0]]
RIGHT_ONE = [[0, 0, 0, 1], [0, 0, 0, 1]]
RIGHT = [[0, 0, 0, 2], [0, 0, 0, 2]]


def mask(file: Path, rows: list[list[int]], factor: int = 1) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(rows, np.uint8) * factor).save(file)


def drive(root: Path) -> Path:
    photos(root / "training/images", "21_training.tif", "22_training.tif", size=SIZE)
    photos(root / "test/images", "01_test.tif", size=SIZE)
    for number, rows in (("21", LEFT), ("22", RIGHT_ONE)):
        # As GIF has it, a pixel is the number of a colour in the palette.
        mask(root / f"training/1st_manual/{number}_manual1.gif", rows)
        mask(root / f"training/mask/{number}_training_mask.gif", LEFT, 255)
    return root


@becomes(
    "DRIVE: `training/images/21_training.tif`, `1st_manual/21_manual1.gif`, `mask/21_training_mask.gif`",
    "the masks of the folder that the option names, by the numbers of the images, and it is said; "
    "without the option, refused with it",
    "--split training --field mask=1st_manual",
)
def test_vessels_of_drive(tmp_path: Path) -> None:
    source = drive(tmp_path / "drive")
    with pytest.raises(PackError, match=r"expected one\. --field mask=1st_manual picks one"):
        fastpipe.pack(source, tmp_path / "none", split="training")
    summary = fastpipe.pack(
        source, tmp_path / "packed", split="training", fields=["mask=1st_manual"]
    )
    assert masks(tmp_path) == {
        "images/21_training.tif": LEFT,
        "images/22_training.tif": RIGHT_ONE,
    }
    assert any(
        text.startswith("masks: those whose names begin with the number of the image, such as ")
        for text in assumed(summary)
    )
    options = {"split": "training", "fields": ["view=mask"], "overwrite": True}
    fastpipe.pack(source, tmp_path / "packed", **options)
    assert list(fastpipe.open(tmp_path / "packed").fields) == ["view"]


def test_numbers_of_two_images(tmp_path: Path) -> None:
    photos(tmp_path / "src/images", "1_a.png", "1_b.png", size=SIZE)
    mask(tmp_path / "src/masks/1_c.png", LEFT)
    with pytest.raises(PackError, match="no mask is called after one of them"):
        fastpipe.pack(tmp_path / "src", tmp_path / "packed")


@becomes(
    "Penn-Fudan: `PNGImages/FudanPed00001.png`, `PedMasks/FudanPed00001_mask.png`",
    "a field `mask` with the numbers of the persons",
)
def test_persons_of_penn_fudan(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "PNGImages/Ped1.png", "PNGImages/Ped2.png", size=SIZE)
    mask(source / "PedMasks/Ped1_mask.png", LEFT)
    mask(source / "PedMasks/Ped2_mask.png", RIGHT)
    (source / "Annotation").mkdir()
    (source / "Annotation/Ped1.txt").write_text(
        "# Compatible with PASCAL Annotation Version 1.00\n"
    )
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert masks(tmp_path) == {"PNGImages/Ped1.png": LEFT, "PNGImages/Ped2.png": RIGHT}
    (text,) = assumed(summary)
    assert text.startswith("not read, beside the images: Annotation/")


@becomes(
    "ISIC 2018: `ISIC2018_Task1-2_Training_Input/ISIC_1.jpg`, "
    "`ISIC2018_Task1_Training_GroundTruth/ISIC_1_segmentation.png`, and the same of Validation",
    "splits with a field `mask`",
    "--split train",
)
def test_splits_of_isic(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split in ("Training", "Validation"):
        photos(source / f"ISIC2018_Task1-2_{split}_Input", f"ISIC_{split}.jpg", size=SIZE)
        file = f"ISIC2018_Task1_{split}_GroundTruth/ISIC_{split}_segmentation.png"
        mask(source / file, LEFT)
    photos(source / "ISIC2018_Task1-2_Test_Input", "ISIC_Test.jpg", size=SIZE)
    with pytest.raises(PackError, match="has the splits"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", split="train")
    assert masks(tmp_path) == {"ISIC2018_Task1-2_Training_Input/ISIC_Training.jpg": LEFT}


@becomes(
    "LGG, BUSI, DeepGlobe: `a/x_1.tif` and `a/x_1_mask.tif`, `9_sat.jpg` and `9_mask.png` in one folder",
    "refused with the option, which packs a field `mask`, and says how folders become classes",
    "--format masks, with --label-pattern '(.+)/' if folders are classes",
)
@pytest.mark.parametrize(("image_end", "mask_end"), [("", "_mask"), ("_sat", "_mask")])
def test_masks_beside_images(tmp_path: Path, image_end: str, mask_end: str) -> None:
    source = tmp_path / "src"
    images = (f"a/1{image_end}.png", f"b/2{image_end}.png")
    photos(source, *images, size=SIZE)
    mask(source / f"a/1{mask_end}.png", LEFT)
    mask(source / f"b/2{mask_end}.png", RIGHT)
    with pytest.raises(PackError, match="--format masks packs them as masks of these"):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(source, tmp_path / "packed", format="masks")
    assert masks(tmp_path) == dict(zip(images, (LEFT, RIGHT), strict=True))
    (text,) = assumed(summary)
    assert text.startswith("labels: none; if the folders a, b are classes")

    options = {"format": "masks", "label_pattern": "(.+)/", "overwrite": True}
    summary = fastpipe.pack(source, tmp_path / "packed", **options)
    assert labels(tmp_path) == {images[0]: "a", images[1]: "b"}
    assert assumed(summary) == []


@becomes(
    "BUSI: `a (2)_mask.png` and `a (2)_mask_1.png`, several masks of an image",
    "one mask of all; this is said, with the option that numbers them",
    "--format masks --label-pattern '(.+)/', --field mask=instances:mask",
)
def test_several_masks_of_an_image(tmp_path: Path) -> None:
    source = tmp_path / "src"
    images = ("benign/benign (1).png", "malignant/malignant (2).png")
    photos(source, *images, size=SIZE)
    mask(source / "benign/benign (1)_mask.png", LEFT)
    mask(source / "malignant/malignant (2)_mask.png", LEFT)
    mask(source / "malignant/malignant (2)_mask_1.png", RIGHT)
    with pytest.raises(PackError, match=r"with --label-pattern '\(.+\)/' the folders are their"):
        fastpipe.pack(source, tmp_path / "none")
    options = {"format": "masks", "label_pattern": "(.+)/"}
    summary = fastpipe.pack(source, tmp_path / "packed", **options)
    both = np.maximum(LEFT, RIGHT)
    assert masks(tmp_path) == {images[0]: LEFT, images[1]: both.tolist()}
    assert labels(tmp_path) == {images[0]: "benign", images[1]: "malignant"}
    assert assumed(summary) == [
        "field mask: 1 image has several masks, such as malignant/malignant (2)_mask.png and "
        "malignant/malignant (2)_mask_1.png, which become one; the option numbers them (--field "
        "mask=instances:mask)"
    ]
    fields = {"mask": "instances:mask"}
    summary = fastpipe.pack(source, tmp_path / "packed", fields=fields, overwrite=True, **options)
    first = np.where(LEFT, 1, 0)
    numbers = np.where(RIGHT, 2, first)
    assert masks(tmp_path) == {images[0]: first.tolist(), images[1]: numbers.tolist()}
    assert assumed(summary) == []
    # A user may also have them apart.
    mask(source / "benign/benign (1)_mask_1.png", RIGHT)
    fields = {"mask": "mask", "second": "mask_1"}
    fastpipe.pack(source, tmp_path / "packed", fields=fields, overwrite=True, **options)
    assert masks(tmp_path)[images[1]] == LEFT


@becomes(
    "`images/a.png` beside `masks/a_0.png`, `masks/a_1.png`, ...: a mask for each object",
    "refused; the option that numbers the objects of each image is named",
    "--field mask=instances:mask",
)
def test_numbers_behind_names(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source, "images/a.png", "images/b.png", size=SIZE)
    mask(source / "masks/a_0.png", LEFT, 255)
    mask(source / "masks/a_1.png", RIGHT_ONE, 255)
    mask(source / "masks/b_1.png", RIGHT_ONE, 255)
    with pytest.raises(PackError, match="--field mask=instances:mask numbers the masks of each"):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(source, tmp_path / "packed", fields={"mask": "instances:mask"})
    numbers = np.where(RIGHT_ONE, 2, LEFT)
    assert masks(tmp_path) == {"images/a.png": numbers.tolist(), "images/b.png": RIGHT_ONE}
    assert not summary.tally.rejected
    assert assumed(summary) == []


def test_masks_of_one_image_of_several_sizes(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source, "images/a.png", size=SIZE)
    mask(source / "masks/a.png", LEFT)
    mask(source / "masks/a_mask_1.png", [[1]])
    (source / "masks/a.png").rename(source / "masks/a_mask.png")
    with pytest.raises(PackError, match="mask 2 of an object has 1 x 1 pixels"):
        fastpipe.pack(source, tmp_path / "packed", format="masks")


def test_classes_in_paths_of_a_split(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for split in ("train", "val"):
        photos(source / f"images/{split}", f"a/{split}.png", size=SIZE)
        mask(source / f"masks/{split}/a/{split}.png", LEFT)
    with pytest.raises(PackError, match="would not have the numbers of another"):
        fastpipe.pack(source, tmp_path / "none", split="train", label_pattern="(.+)/")


@becomes(
    "Kvasir-SEG: masks of black and white that are JPEGs",
    "a field `mask` of 0 and 255, and it is said",
)
def test_masks_of_kvasir(tmp_path: Path) -> None:
    source = photos(tmp_path / "src/images", "a.jpg", "b.jpg", size=(64, 48)).parent
    for name in ("a", "b"):
        picture = Image.new("RGB", (64, 48))
        ImageDraw.Draw(picture).ellipse((10, 10, 40, 40), fill=(255, 255, 255))
        (source / "masks").mkdir(exist_ok=True)
        picture.save(source / f"masks/{name}.jpg", quality=90)
        expected = np.asarray(picture)[:, :, 0]
    summary = fastpipe.pack(source, tmp_path / "packed")
    (text,) = assumed(summary)
    assert text.startswith("field mask: the masks are JPEGs with values near 0 and 255;")
    for packed in masks(tmp_path).values():
        assert set(np.unique(packed)) == {0, 255}
        assert np.mean(np.array(packed) != expected) < 0.01
    # A mask of other values among them is rejected.
    photo = Image.linear_gradient("L").resize((64, 48))
    for number in range(40):
        picture.save(source / f"masks/{number}.jpg")
        picture.save(source / f"images/{number}.jpg")
    photo.save(source / "masks/7.jpg")
    summary = fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    ((path, reason),) = summary.tally.rejected
    assert path == "images/7.jpg"
    assert "a JPEG whose values are not near 0 and 255" in reason


@becomes(
    "DSB 2018: `stage1_train/ID/images/ID.png`, a PNG for each nucleus in `stage1_train/ID/masks/`",
    "refused with the option, which packs a field `mask` with the number of each object, and says it",
    "--format masks",
)
def test_a_mask_for_each_object(tmp_path: Path) -> None:
    source = tmp_path / "stage1_train"
    for name in ("aa", "bb", "cc"):
        photos(source / name / "images", f"{name}.png", size=SIZE)
        mask(source / name / "masks/1.png", LEFT, 255)
    mask(source / "bb/masks/2.png", RIGHT_ONE, 255)
    with pytest.raises(PackError, match=f"pass {source} with --format masks"):
        fastpipe.pack(source, tmp_path / "none")
    summary = fastpipe.pack(source, tmp_path / "packed", format="masks")
    both = [[1, 1, 0, 2], [1, 1, 0, 2]]
    assert masks(tmp_path) == {
        "aa/images/aa.png": LEFT,
        "bb/images/bb.png": both,
        "cc/images/cc.png": LEFT,
    }
    (text,) = assumed(summary)
    assert text.startswith("field mask: the files of masks in a folder are objects of its image;")

    # A change of one file is a change of the sample.
    mask(source / "cc/masks/1.png", RIGHT_ONE, 255)
    mask(source / "aa/masks/2.png", [[1]], 255)
    summary = fastpipe.pack(source, tmp_path / "packed", format="masks", overwrite=True)
    assert masks(tmp_path)["cc/images/cc.png"] == RIGHT_ONE
    ((path, reason),) = summary.tally.rejected
    assert path == "aa/images/aa.png"
    assert "mask 2 of an object has 1 x 1 pixels, and the first has 4 x 2" in reason
    with pytest.raises(
        PackError, match="has a folder for each sample, with a mask for each object"
    ):
        fastpipe.pack(source, tmp_path / "none", format="masks", fields=["mask=1"])


@becomes(
    "Roboflow's semantic masks: `train/a_mask.png`, `_classes.csv` with `Pixel Value, Class`",
    "a field `mask` with these names",
    "--format masks --split train",
)
@becomes(
    "masks, and Roboflow's `_classes.csv` elsewhere",
    "a field `mask` with these names",
    "--format masks --classes-from _classes.csv",
)
def test_masks_of_roboflow(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "train/a.jpg", "valid/a.jpg", size=(3, 2))
    for split in ("train", "valid"):
        Image.fromarray(np.array([[0, 2, 1], [1, 1, 0]], np.uint8)).save(
            source / split / "a_mask.png"
        )
        text = "Pixel Value, Class\n0, background\n1, road\n2, car\n"
        write(source / split / "_classes.csv", text)
    summary = fastpipe.pack(source, tmp_path / "packed", format="masks", split="train")
    assert masks(tmp_path) == {"a.jpg": [[0, 2, 1], [1, 1, 0]]}
    names = ("background", "road", "car")
    assert fastpipe.open(tmp_path / "packed").fields["mask"].names == names
    assert assumed(summary) == [
        "classes of the field mask: those of _classes.csv: 0 is 'background', 1 is 'road', 2 is 'car'"
    ]
    (source / "train/_classes.csv").unlink()
    given = source / "valid/_classes.csv"
    fastpipe.pack(source, tmp_path / "given", format="masks", split="train", classes_from=given)
    assert fastpipe.open(tmp_path / "given").fields["mask"].names == names
