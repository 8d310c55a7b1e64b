"""Images and classes that a loader's options do not suit: named in the log when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kornia.augmentation
import numpy as np
import pytest
import torch
from PIL import Image
from support.programs.habits import class_folders, loader_of, pack_pictures
from support.sources.people import photos, write

import fastpipe
from fastpipe import warnings_once

pytestmark = pytest.mark.usefixtures("warned_anew")


def test_an_area_that_looks_like_a_side(flat: Path, log: pytest.LogCaptureFixture) -> None:
    size = fastpipe.Buckets(area=224, size_divisible=1)
    fastpipe.loader(flat, 4, size=size, num_workers=1).close()
    assert "images get about 224 pixels, such as 14 x 14" in log.text
    assert "pass area=224 * 224" in log.text


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (fastpipe.Buckets(area=1024), "pass area=1024 * 1024"),
        (fastpipe.Buckets(area=1024, fit="cover", size_divisible=16), "pass area=1024 * 1024"),
        (fastpipe.Native(max_pixels=1024), "pass max_pixels=1024 * 1024"),
        (fastpipe.Native(max_pixels=1280), "such as 35 x 35. For images of about 1280 x 1280"),
    ],
)
def test_a_larger_area_that_looks_like_a_side(
    large: Path, flat: Path, log: pytest.LogCaptureFixture, size: Any, words: str
) -> None:
    """Small images may well get so few pixels."""
    fastpipe.loader(flat, 4, size=size, num_workers=1).close()
    assert log.text == ""
    for _ in range(2):
        fastpipe.loader(large, 2, size=size, num_workers=1).close()
    assert log.text.count(words) == 1


def test_some_samples_without_a_label(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    """Their label is -1. On a GPU a loss of it ends the program, with an error of another line."""
    with fastpipe.Writer(tmp_path / "data", classes=["a", "b"]) as writer:
        for number in range(9):
            label = None if number == 4 else number % 2
            writer.add(np.zeros((9, 9, 3), np.uint8), label=label, key=f"{number}")
    data = fastpipe.open(tmp_path / "data")
    loader_of(data.select(lambda columns: columns["label"] >= 0)).close()
    loader_of(data, fields=["image"]).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(data).close()
    assert log.text.count("1 of 9 samples has no label, which is -1 in a batch") == 1
    assert "ignore_index=-1" in log.text


def test_mixed_images_without_their_shares(flat: Path, log: pytest.LogCaptureFixture) -> None:
    augment = fastpipe.Augment(mixup=0.2)
    for fields in (
        ("image", "label"),
        {"x": "image", "partner": "mix_index", "share": "mix_lam"},
    ):
        loader_of(flat, augment=augment, fields=fields).close()
    loader_of(flat, augment=augment).close()
    loader_of(flat, augment=fastpipe.Augment.imagenet(), fields=("image", "id")).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(flat, augment=augment, fields=("image", "id")).close()
    assert log.text.count("augment= mixes the images of fields=, and no field says") == 1
    assert '"mix_index" and "mix_lam"' in log.text


@pytest.mark.parametrize("packed", [False, True])
def test_images_of_12_bits_in_16(
    tmp_path: Path, log: pytest.LogCaptureFixture, packed: bool
) -> None:
    rng = np.random.default_rng(3)
    for name, most in (("dark", 4095), ("full", 65535)):
        source = tmp_path / name
        source.mkdir()
        for number in range(8):
            pixels = rng.integers(0, most + 1, (20, 20)).astype(np.uint16)
            Image.fromarray(pixels).save(source / f"{number}.png")
        if packed:
            fastpipe.pack(source, tmp_path / f"{name} packed")
    suffix = " packed" if packed else ""
    log.clear()
    loader_of(tmp_path / f"full{suffix}").close()
    loader_of(tmp_path / f"dark{suffix}", dtype=torch.uint16).close()
    loader_of(tmp_path / f"dark{suffix}", fields=["id"]).close()
    assert "bits a channel" not in log.text
    for _ in range(2):
        loader_of(tmp_path / f"dark{suffix}").close()
    assert log.text.count("images of 16 bits a channel, with values of up to 12 bits") == 1
    assert "pass dtype=torch.uint16" in log.text


def test_a_sorted_list_is_an_order(flat: Path, log: pytest.LogCaptureFixture) -> None:
    numbers = list(range(0, 30, 2))
    loader_of(flat, sampler=numbers[::-1]).close()
    loader_of(flat, sampler=torch.utils.data.SubsetRandomSampler(numbers)).close()
    loader_of(flat, sampler=numbers, train=False).close()
    loader_of(flat, sampler=numbers, shuffle=False, crop=fastpipe.CenterCrop()).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(flat, sampler=numbers).close()
    assert log.text.count("sampler= is a sorted list of samples, and a list is also their") == 1
    assert "fastpipe.loader(data.select(numbers), ...)" in log.text


def test_a_size_of_width_and_height(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    wide = class_folders(tmp_path / "wide", (40, 20))
    for size in (16, (8, 16), (10, 12)):
        fastpipe.loader(wide, 4, size=size, num_workers=1).close()
    assert "is (height, width)" not in log.text
    for _ in range(2):
        fastpipe.loader(wide, 4, size=(16, 8), num_workers=1).close()
    assert log.text.count("size=(16, 8) is (height, width), and images of") == 1
    assert "pass size=(8, 16)" in log.text


def test_rows_that_are_high_of_photos_that_are_wide(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        file = tmp_path / "photos" / "abcd"[number % 4] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40 + number, 30), (number * 9, 0, 0)).save(file)
    fastpipe.pack(tmp_path / "photos", tmp_path / "data")
    log.clear()
    fastpipe.loader(tmp_path / "data", 4, size=(16, 20), num_workers=1).close()
    assert log.text == ""
    fastpipe.loader(tmp_path / "data", 4, size=(20, 16), num_workers=1).close()
    assert "rows are 16 wide and 20 high. For rows that are 20 wide and 16 high" in log.text


def test_small_images_at_the_default_size(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    photos = tmp_path / "photos"
    for number in range(12):
        file = photos / "abc"[number % 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 30), (number * 9, 0, 0)).save(file)
    data = tmp_path / "data"
    fastpipe.pack(photos, data)
    fastpipe.loader(data, 4, size=224).close()
    assert log.text == ""
    with fastpipe.loader(data, 4) as loader:
        assert next(iter(loader))[0].shape == (4, 3, 224, 224)
    assert log.text.count("have at most 32 pixels a side, and rows are 224 x 224") == 1
    assert "Pass size=32 for their own size" in log.text


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["left", "right"], "a mirrored 'left' looks like 'right'"),
        (["TurnLeft", "straight", "TurnRight"], "a mirrored 'TurnLeft' looks like 'turnright'"),
        (["left", "up"], ""),
        (["bright", "dark"], ""),
    ],
)
def test_classes_that_are_mirror_images(
    tmp_path: Path, log: pytest.LogCaptureFixture, classes: list[str], words: str
) -> None:
    photos = tmp_path / "photos"
    for number, name in enumerate(classes * 4):
        (photos / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 40), (number * 9, 0, 0)).save(photos / name / f"{number}.png")
    data = tmp_path / "data"
    fastpipe.pack(photos, data)
    log.clear()
    loader_of(data, hflip=True).close()
    loader_of(data, hflip=False).close()
    loader_of(data, train=False).close()
    assert log.text == ""
    loader_of(data).close()
    assert words in log.text
    assert ("Pass hflip=False" in log.text) == bool(words)


@pytest.mark.parametrize(
    ("classes", "shape", "is_named"),
    [
        ([*"0123456789"], (20, 20), True),
        ([*"0123456789"], (20, 20, 3), False),
        ([*"ABCDEFGHIJKL"], (20, 20, 3), True),
        ([*"abcd"], (20, 20), False),
    ],
)
def test_characters_are_mirrored(
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    classes: list[str],
    shape: tuple[int, ...],
    is_named: bool,
) -> None:
    data = pack_pictures(tmp_path, classes, shape)
    log.clear()
    loader_of(data, hflip=False).close()
    assert log.text == ""
    loader_of(data).close()
    assert ("look like characters" in log.text) == is_named


def test_images_that_were_shrunk_below_the_size(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    data = pack_pictures(tmp_path, [*"abcd"], (60, 50, 3), max_size=40)
    log.clear()
    fastpipe.loader(data, 4, size=40).close()
    assert log.text == ""
    fastpipe.loader(data, 4, size=(48, 30)).close()
    assert "was packed with max_size=40, so no side of an image is longer" in log.text


@pytest.mark.parametrize(
    ("module", "train", "words"),
    [
        (kornia.augmentation.RandomResizedCrop((8, 8)), True, "augment= has RandomResizedCrop"),
        (
            kornia.augmentation.CenterCrop(8),
            False,
            "fastpipe.CenterCrop, the default of train=False",
        ),
        (kornia.augmentation.Resize((8, 8)), True, "augment= has Resize"),
        (kornia.augmentation.RandomHorizontalFlip(), True, ""),
    ],
)
def test_images_that_are_cropped_twice(
    flat: Path, log: pytest.LogCaptureFixture, module: Any, train: bool, words: str
) -> None:
    loader_of(flat, train=train, augment=[module], crop=fastpipe.Resize()).close()
    assert log.text == ""
    loader_of(flat, train=train, augment=[module]).close()
    assert words in log.text
    assert ("to leave the cropping to the module, crop=fastpipe.Resize()" in log.text) == bool(
        words
    )


def test_objects_outside_the_centre_of_an_image(
    fielded: Path, log: pytest.LogCaptureFixture
) -> None:
    fields = ("image", "boxes")
    loader_of(fielded, fields=fields).close()
    loader_of(fielded, fields=fields, train=False, crop=fastpipe.CenterCrop()).close()
    loader_of(fielded, fields=("image", "label"), train=False).close()
    loader_of(fielded, fields=("boxes",), train=False).close()
    loader_of(fielded, fields=("image", "caption"), train=False).close()
    loader_of(fielded, fields=("image", "crop_box"), train=False).close()
    # Predictions and features of images.
    loader_of(fielded, fields=("image", "key"), train=False).close()
    loader_of(fielded, fields=("image",), train=False).close()
    assert log.text == ""
    loader_of(fielded, fields=fields, train=False).close()
    assert "so boxes outside of it are left out, and others are cut" in log.text
    log.clear()
    warnings_once.forget_all()
    points = fastpipe.Points("joints", flip_pairs=[])
    loader_of(fielded, fields=["image", points], train=False).close()
    assert "outside of it are left out, and others are cut" in log.text


def test_pairs_of_points_that_are_not_swapped(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    photos(tmp_path / "photos", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    points = [8, 8, 2, 12, 4, 2, 4, 4, 2]
    category = {"id": 1, "name": "face", "keypoints": ["nose", "left_eye", "right_eye"]}
    annotation = {"category_id": 1, "bbox": [2, 2, 20, 20], "keypoints": points}
    images = []
    annotations = []
    for number, name in enumerate("abcd"):
        images.append({"id": number, "file_name": f"{name}.jpg", "width": 40, "height": 30})
        annotations.append({**annotation, "id": number, "image_id": number})
    coco = {"images": images, "annotations": annotations, "categories": [category]}
    write(tmp_path / "photos/annotations.json", coco)
    packed = tmp_path / "packed"
    fastpipe.pack(tmp_path / "photos/annotations.json", packed, image_root=tmp_path / "photos")
    unswapped = fastpipe.Points("keypoints", flip_pairs=[])
    log.clear()
    for fields, hflip in (("keypoints", True), (unswapped, False)):
        loader_of(packed, fields=["image", fields], hflip=hflip, crop=fastpipe.Resize()).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(packed, fields=["image", unswapped], crop=fastpipe.Resize()).close()
    assert log.text.count("was packed with pairs that do, such as left_eye and right_eye") == 1


@pytest.mark.parametrize(("bits", "is_dark"), [(12, True), (16, False), (8, False)])
def test_second_images_of_few_bits(
    tmp_path: Path, log: pytest.LogCaptureFixture, bits: int, is_dark: bool
) -> None:
    """A depth in millimetres; a photo of 8 bits may be as dark."""
    depth = np.linspace(1, (1 << bits) - 1, 32 * 32).reshape(32, 32)
    if bits == 8:
        depth = depth // 8
    pixels = depth.astype(np.uint16)
    if bits == 8:
        pixels = np.stack([depth, depth // 2, depth // 3], axis=2).astype(np.uint8)
    with fastpipe.Writer(tmp_path / "data", fields={"depth": "image"}) as writer:
        for number in range(8):
            writer.add(np.zeros((32, 32, 3), np.uint8), key=f"{number}", depth=pixels)
        writer.add(np.zeros((32, 32, 3), np.uint8), key="none")
    log.clear()
    loader_of(tmp_path / "data", fields=["image"]).close()
    loader_of(tmp_path / "data", fields=["image", "depth"], dtype=torch.uint16).close()
    assert log.text == ""
    for _ in range(2):
        loader_of(tmp_path / "data", fields=["image", "depth"]).close()
    assert log.text.count("images of 'depth' in") == is_dark
    assert ("with values of up to 12 bits (below 4,096)" in log.text) == is_dark


def test_samples_that_the_program_has_shared_out(flat: Path, log: pytest.LogCaptureFixture) -> None:
    data = fastpipe.open(flat)
    ranks = {"rank": 1, "world_size": 2}
    num_half = len(data) // 2
    loader_of(data, **ranks).close()
    loader_of(data.select(range(0, len(data), 2)), **ranks).close()
    loader_of(data.select(range(1, len(data), 2))).close()
    loader_of(data.select(range(num_half)), **ranks).close()
    assert log.text == ""
    loader_of(data.select(range(1, len(data), 2)), **ranks).close()
    assert log.text.count("are already the share of rank 1 of 2") == 1
    warnings_once.forget_all()
    loader_of(data.select(range(num_half, len(data))), **ranks).close()
    assert log.text.count("are already the share of rank 1 of 2") == 2


@pytest.mark.parametrize(
    ("every", "options", "is_said"),
    [
        (2, {}, True),
        (2, {"hflip": False}, False),
        (2, {"train": False}, False),
        (2, {"fields": ("image", "key")}, False),
        (60, {}, False),  # one text of sixty
    ],
)
def test_texts_that_name_a_side(
    tmp_path: Path, log: pytest.LogCaptureFixture, every: int, options: Any, is_said: bool
) -> None:
    pixels = np.zeros((9, 9, 3), np.uint8)
    with fastpipe.Writer(tmp_path / "data", fields={"caption": "text"}) as writer:
        for number in range(60):
            side = "left" if number % every == 0 else "upright"
            writer.add(pixels, key=f"{number}", caption=f"a cup, {side}.")
    for _ in range(2):
        loader_of(tmp_path / "data", **{"fields": ("image", "caption"), **options}).close()
    words = "texts of 'caption' of"
    assert log.text.count(words) == is_said
    assert ("Pass hflip=False" in log.text) == is_said
