"""A folder of images beside a folder of masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.sources.becomes import becomes
from support.sources.photo_trees import photos

import fastpipe
from fastpipe.errors import DatasetError, PackError

HALF = np.repeat(np.array([[0, 1]], np.uint8), 8, axis=1).repeat(
    16, axis=0
)  # (16, 16): 0 on the left, 1 on the right


def mask(path: Path, values: np.ndarray, mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values, "L") if mode != "P" else Image.fromarray(values, "P")
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 255, 255])
    image.convert(mode).save(path)


def masks_of(packed: Path, name: str = "mask") -> dict[str, list[list[int]]]:
    """Sample -> the values of its mask, of one row."""
    data = fastpipe.open(packed).with_fields([name])
    return {
        key: np.asarray(data[number][name])[0].tolist() for number, key in enumerate(data["key"])
    }


def pairs(
    root: Path, names: list[str], *, ending: str = ".png", behind: str = "", mode: str = "L"
) -> Path:
    photos(root, *(f"images/{name}.jpg" for name in names))
    for number, name in enumerate(names):
        mask(root / "masks" / f"{name}{behind}{ending}", HALF * (number + 1), mode)
    return root


@pytest.mark.parametrize(
    "folder", ["masks", "annotations", "labels", "segmentation", "SegmentationClass", "gt"]
)
@becomes(
    "`images/` beside `masks/`, `labels/*.png` and the like, of the same names", "a field `mask`"
)
def test_masks_of_the_same_name(tmp_path: Path, folder: str) -> None:
    source = pairs(tmp_path / "src", ["a", "b"])
    (source / "masks").rename(source / folder)
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert not summary.tally.rejected
    assert fastpipe.open(tmp_path / "packed").classes == []
    expected = {
        f"images/{name}.jpg": [value * each for each in HALF[0].tolist()]
        for name, value in (("a", 1), ("b", 2))
    }
    assert masks_of(tmp_path / "packed") == expected


@becomes(
    "Carvana: `images/a.jpg` beside `masks/a_mask.gif`",
    "a field `mask` with the numbers of the palette",
)
def test_masks_of_carvana(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a_01", "b_01"], behind="_mask", ending=".gif", mode="L")
    mask(source / "masks" / "b_01_mask.gif", HALF, "P")
    assert not fastpipe.pack(source, tmp_path / "packed").tally.rejected
    assert masks_of(tmp_path / "packed") == dict.fromkeys(
        ("images/a_01.jpg", "images/b_01.jpg"), HALF[0].tolist()
    )


@becomes(
    "Carvana: `train/` beside `train_masks/`, and `test/`",
    "the splits `train` with masks, `test` without",
    "--split",
)
def test_splits_of_carvana(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a", "b"], behind="_mask")
    (source / "images").rename(source / "train")
    (source / "masks").rename(source / "train_masks")
    photos(source, "test/c.jpg")
    with pytest.raises(PackError, match="has the splits test, train"):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", split="train")
    assert sorted(masks_of(tmp_path / "packed")) == ["train/a.jpg", "train/b.jpg"]
    with pytest.raises(PackError, match=f"pass {source}/test to pack its images alone"):
        fastpipe.pack(source, tmp_path / "test", split="test")


@becomes(
    "`images/train`, `masks/train`, or `train/images`, `train/masks`",
    "splits with a field `mask`",
    "--split",
)
def test_splits_of_masks(tmp_path: Path) -> None:
    for number, places in enumerate((("{}/{}"), ("{1}/{0}"))):
        source = tmp_path / f"src-{number}"
        for split in ("train", "val"):
            pairs(tmp_path / "made", [split])
            for folder in ("images", "masks"):
                there = source / places.format(folder, split)
                there.parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "made" / folder).rename(there)
        with pytest.raises(PackError, match="has the splits train, val"):
            fastpipe.pack(source, tmp_path / "none")
        fastpipe.pack(source, tmp_path / str(number), split="val")
        (found,) = masks_of(tmp_path / str(number)).values()
        assert found == HALF[0].tolist()


@becomes(
    "Cityscapes: several masks of an image (`_labelIds`, `_color`)",
    "refused",
    "--field mask=gtFine_labelIds",
)
def test_several_masks_of_an_image(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(
        source, "leftImg8bit/train/x/x_0_leftImg8bit.png", "leftImg8bit/val/y/y_0_leftImg8bit.png"
    )
    for place in ("train/x/x_0", "val/y/y_0"):
        mask(source / "gtFine" / f"{place}_gtFine_labelIds.png", HALF)
        mask(source / "gtFine" / f"{place}_gtFine_color.png", HALF, "RGB")
    with pytest.raises(
        PackError, match=r"gtFine_color \(1\), gtFine_labelIds \(1\). --field mask=KIND"
    ):
        fastpipe.pack(source, tmp_path / "none", split="train")
    fastpipe.pack(source, tmp_path / "packed", split="train", fields=["mask=gtFine_labelIds"])
    assert masks_of(tmp_path / "packed") == {
        "leftImg8bit/train/x/x_0_leftImg8bit.png": HALF[0].tolist()
    }


@becomes("`image_1.jpg` beside `mask_1.png`", "a field `mask`")
def test_masks_with_a_word_before_the_number(tmp_path: Path) -> None:
    source = tmp_path / "src"
    photos(source, "images/image_1.jpg", "images/image_2.jpg")
    for number in (1, 2):
        mask(source / "masks" / f"mask_{number}.png", HALF * number)
    fastpipe.pack(source, tmp_path / "packed")
    assert {name: max(row) for name, row in masks_of(tmp_path / "packed").items()} == {
        "images/image_1.jpg": 1,
        "images/image_2.jpg": 2,
    }


@pytest.mark.parametrize("name", ["IMG_{}", "img{}", "image_{}", "Photo-{}", "mask_{}", "seg_{}"])
@pytest.mark.parametrize("behind", ["", "_mask"])
@becomes(
    "`IMG_0.jpg` beside `IMG_0.png` or `IMG_0_mask.png`, and other names that begin with a word for "
    "images or masks",
    "a field `mask`",
)
def test_masks_with_the_word_of_their_images(tmp_path: Path, name: str, behind: str) -> None:
    names = [name.format(number) for number in (0, 10)]
    source = pairs(tmp_path / "src", names, behind=behind)
    fastpipe.pack(source, tmp_path / "packed")
    assert masks_of(tmp_path / "packed") == {
        f"images/{name}.jpg": [value * (number + 1) for value in HALF[0].tolist()]
        for number, name in enumerate(names)
    }


def test_a_mask_goes_to_the_image_of_exactly_its_name(tmp_path: Path) -> None:
    names = ["7", "img_7", "photo_8", "image_8"]
    source = pairs(tmp_path / "src", names)
    fastpipe.pack(source, tmp_path / "packed")
    assert {name: max(row) for name, row in masks_of(tmp_path / "packed").items()} == {
        f"images/{name}.jpg": number for number, name in enumerate(names, 1)
    }
    # mask_8 may be that of two images.
    (source / "masks/image_8.png").rename(source / "masks/mask_8.png")
    (source / "masks/photo_8.png").unlink()
    with pytest.raises(PackError, match="a mask of the same name for nearly each image"):
        fastpipe.pack(source, tmp_path / "none")


@pytest.mark.parametrize(
    ("values", "are_levels"),
    [([0, 1, 20, 255], False), ([0, 64, 191, 255], True), ([*range(0, 256, 3)], True)],
)
@becomes(
    "soft masks: grey levels up to 255, such as probabilities",
    "the values stay; that they look like grey levels, and what to do, is said",
)
def test_grey_levels(tmp_path: Path, values: list[int], are_levels: bool) -> None:
    source = photos(tmp_path / "src", "images/a.jpg")
    pixels = np.resize(np.array(values, np.uint8), (16, 16))
    mask(source / "masks/a.png", pixels)
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    if are_levels:
        assert f"the masks hold {len(values)} values up to 255, which look like grey" in str(
            assumed
        )
    else:
        assert "255, as VOC's have it for borders, beside numbers up to 20" in str(assumed)


@becomes("masks of 0 and 255", "the values stay, and this is named")
def test_masks_of_0_and_255(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a"])
    mask(source / "masks" / "a.png", HALF * 255)
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert "the masks hold the values 0 and 255" in assumed.text
    assert set(masks_of(tmp_path / "packed")["images/a.jpg"]) == {0, 255}


@becomes(
    "masks of 0 and 255 as TIFF or BMP, or in a column of a table",
    "the values stay, and this is named",
)
@pytest.mark.parametrize("ending", ["tif", "bmp", "png"])
def test_masks_of_0_and_255_in_other_files(tmp_path: Path, ending: str) -> None:
    source = pairs(tmp_path / "src", ["a"])
    (source / "masks" / "a.png").unlink()
    Image.fromarray((HALF * 255).astype(np.uint8)).save(source / "masks" / f"a.{ending}")
    table = source / "a.csv"
    table.write_text(f"image,mask\nimages/a.jpg,masks/a.{ending}\n")
    for number, options in enumerate(({"format": "masks"}, {"fields": ["mask=mask:mask"]})):
        given = table if number else source
        summary = fastpipe.pack(given, tmp_path / f"{number}", **options)
        texts = [assumed.text for assumed in summary.assumed]
        assert any("the masks hold the values 0 and 255" in text for text in texts)
        assert set(masks_of(tmp_path / f"{number}")["images/a.jpg"]) == {0, 255}


@becomes(
    "a column of masks of classes as `--field NAME=COLUMN:image`",
    "second images; that they have few values, and the kind of masks, is said",
    "--field mask=COLUMN:mask",
)
def test_masks_as_second_images(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a", "b"])
    table = source / "a.csv"
    table.write_text("image,mask\nimages/a.jpg,masks/a.png\nimages/b.jpg,masks/b.png\n")
    summary = fastpipe.pack(table, tmp_path / "packed", fields=["mask=mask:image"])
    texts = [assumed.text for assumed in summary.assumed]
    assert any("field mask: gray images with 3 values, 0, 1 and 2" in text for text in texts)


@becomes("masks of 0 and 65535", "the values stay, and this is named")
def test_masks_of_0_and_65535(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a"])
    Image.fromarray(HALF.astype(np.uint16) * 65535).save(source / "masks/a.png")
    (assumed,) = fastpipe.pack(source, tmp_path / "packed").assumed
    assert "the masks hold the values 0 and 65535" in assumed.text
    assert set(masks_of(tmp_path / "packed")["images/a.jpg"]) == {0, 65535}


@becomes(
    "masks that are JPEGs of other values than black and white; or PNGs with colours",
    "refused",
    "--field mask=mask:image",
)
def test_masks_without_numbers(tmp_path: Path) -> None:
    for number, (ending, mode, words) in enumerate(
        ((".jpg", "L", "a JPEG"), (".png", "RGB", "a PNG with colours"))
    ):
        source = pairs(tmp_path / f"src-{number}", ["a"], ending=ending, mode=mode)
        with pytest.raises(PackError, match=f"{words}.*--field mask=mask:image"):
            fastpipe.pack(source, tmp_path / "none")
        fastpipe.pack(source, tmp_path / str(number), fields=["mask=mask:image"])
        assert fastpipe.open(tmp_path / str(number)).fields["mask"].kind == "image"


@becomes("`images/` beside `masks/`, whose names do not match", "refused", "--format imagefolder")
def test_masks_of_other_names(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a", "b"])
    (source / "masks/a.png").rename(source / "masks/x.png")
    (source / "masks/b.png").rename(source / "masks/y.png")
    with pytest.raises(
        PackError,
        match="expected a mask of the same name for nearly each image; there are 2 images",
    ):
        fastpipe.pack(source, tmp_path / "none")
    fastpipe.pack(source, tmp_path / "packed", format="imagefolder")
    assert fastpipe.open(tmp_path / "packed").classes == ["images", "masks"]


@becomes(
    "`images/` beside `masks/`, some of which are missing", "refused; it names the images without"
)
def test_some_masks_are_missing(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", ["a", "b", "c", "d"])
    (source / "masks/b.png").unlink()
    (source / "masks/d.png").unlink()
    with pytest.raises(PackError) as refused:
        fastpipe.pack(source, tmp_path / "none")
    assert "Without a mask: images/b.jpg, images/d.jpg." in str(refused.value)
    assert "--field mask=mask packs the images that have such a mask" in str(refused.value)
    fastpipe.pack(source, tmp_path / "packed", fields=["mask=mask"])
    assert len(fastpipe.open(tmp_path / "packed")) == 2


@becomes("an image without a mask among many with one", "rejected, with the reason")
def test_an_image_without_a_mask(tmp_path: Path) -> None:
    source = pairs(tmp_path / "src", [f"{number:02d}" for number in range(24)])
    (source / "masks/07.png").unlink()
    ((path, reason),) = fastpipe.pack(source, tmp_path / "packed").tally.rejected
    assert (path, reason) == ("images/07.jpg", "no mask of this name in masks (images/07.jpg)")


@becomes("a loader of `images/` beside `masks/`", "refused: it has to be packed")
def test_masks_without_packing(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match="a source of the format masks, which has to be packed first"
    ):
        fastpipe.open(pairs(tmp_path / "src", ["a"]))


@becomes("`images/` beside `annotations/*.json` of another tool", "refused", "--format imagefolder")
def test_images_beside_what_is_not_known(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg")
    (source / "annotations").mkdir()
    (source / "annotations" / "a.json").write_text('{"shapes": []}')
    with pytest.raises(
        PackError, match="holds images beside annotations, which has no masks, no texts of YOLO"
    ):
        fastpipe.pack(source, tmp_path / "none")


@pytest.mark.parametrize("folder", ["", "benign/"])
@becomes(
    "BUSI: `a.png` and `a_mask.png` in one folder",
    "refused: masks are no images",
    "--format masks or --format imagefolder",
)
def test_masks_among_images(tmp_path: Path, folder: str) -> None:
    source = photos(
        tmp_path / "src",
        *(f"{folder}{number} ({number}){end}.png" for number in range(3) for end in ("", "_mask")),
    )
    with pytest.raises(
        PackError,
        match=r"3 of 6 files look like masks of others beside them, such as .*_mask.png",
    ):
        fastpipe.pack(source, tmp_path / "none")
    with pytest.raises(DatasetError, match="look like masks"):
        fastpipe.open(source)
    assert fastpipe.pack(source, tmp_path / "packed", format="imagefolder").info["samples"] == 6


@becomes(
    "DeepGlobe: `119_sat.jpg` and `119_mask.png` in one folder",
    "refused: masks are no images",
    "--format masks or --format imagefolder",
)
@pytest.mark.parametrize(
    ("image_end", "mask_end"),
    [("_sat", "_mask"), ("_image", "_mask"), ("_img", "_label"), ("_rgb", "_seg")],
)
def test_images_and_masks_with_suffixes(tmp_path: Path, image_end: str, mask_end: str) -> None:
    names = [f"{number}{end}.png" for number in range(3) for end in (image_end, mask_end)]
    source = photos(tmp_path / "src", *names)
    with pytest.raises(PackError, match="3 of 6 files look like masks of others"):
        fastpipe.pack(source, tmp_path / "none")


def test_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = photos(tmp_path / "src", "images/a.jpg")
    (source / "masks").mkdir()
    mask(source / "masks/a.png", np.ones((16, 16), np.uint8))
    monkeypatch.chdir(source)
    summary = fastpipe.pack(".", tmp_path / "packed")
    assert summary.info["samples"] == 1
    assert set(fastpipe.open(tmp_path / "packed").fields) == {"mask"}


def test_texts_of_images_do_not_make_them_masks(tmp_path: Path) -> None:
    """Only x_mask.png is called like a mask; a.jpg has a caption in a.jpg.txt."""
    source = photos(
        tmp_path / "src", *(f"cat/{number}.jpg" for number in range(10)), "cat/0_mask.png"
    )
    for number in range(5):
        (source / f"cat/{number}.jpg.txt").write_text("a cat")
    assert fastpipe.pack(source, tmp_path / "packed").info["classes"] == ["cat"]
