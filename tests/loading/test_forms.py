"""channels= and dtype=: gray, RGB, RGBA and their own, of 8 and 16 bits, from every kind of source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.pictures import pngs
from support.pictures.picture_forms import (
    CHANNELS,
    MIXED,
    SIZE,
    as_array,
    by_pillow,
    colour,
    with_alpha,
    write_deep,
    write_mixed,
)

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.plan.epoch import EpochPlan

MODES = {"gray": "L", "rgb": "RGB", "rgba": "RGBA"}
WHOLE: dict[str, Any] = {
    "size": SIZE[::-1],
    "crop": fastpipe.Resize(),
    "train": False,
    "num_workers": 1,
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos of all kinds; packed beside it as JPEGs, and as coefficients."""
    root = tmp_path_factory.mktemp("mixed")
    write_mixed(root / "photos")
    fastpipe.pack(root / "photos", root / "packed", workers=1)
    fastpipe.pack(root / "photos", root / "coefficients", storage="coefficients", workers=1)
    return root / "photos"


@pytest.fixture(scope="module")
def deep(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Path, list[NDArray[np.uint16]]]]:
    """Packed datasets of 16 bits, and their samples in order."""
    found = {}
    for name, color in {"gray": pngs.GRAY, "rgb": pngs.RGB, "rgba": pngs.RGB_ALPHA}.items():
        root = tmp_path_factory.mktemp(name)
        samples = write_deep(root / "photos", color)
        fastpipe.pack(root / "photos", root / "packed", workers=1)
        keys = [Path(key).stem for key in fastpipe.open(root / "packed")["key"]]
        found[name] = root / "packed", [samples[int(key)] for key in keys]
    return found


def images_of(data: Any, **options: Any) -> NDArray[Any]:
    """All images of an epoch, (n, height, width, channels)."""
    with fastpipe.loader(data, 3, **{**WHOLE, **options}) as loader:
        batches = [images for images, _ in loader]
    for images in batches:
        assert images.is_contiguous(memory_format=torch.channels_last)
    return torch.cat(batches).permute(0, 2, 3, 1).numpy()


def sources(data: Path, photos: Path) -> list[Path]:
    return [photos / key for key in fastpipe.open(data)["key"]]


@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize("kind", ["packed", "coefficients", "photos"])
def test_whole_pictures_are_pillows(mixed: Path, kind: str, channels: str) -> None:
    data = mixed.parent / kind
    expected = np.stack(
        [as_array(by_pillow(path, MODES[channels])) for path in sources(data, mixed)]
    )
    found = images_of(data, channels=channels)
    assert found.dtype == np.uint8
    assert len(found) == len(MIXED)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("channels", MODES)
def test_eight_bits_become_sixteen(mixed: Path, channels: str) -> None:
    data = mixed.parent / "packed"
    found = images_of(data, channels=channels, dtype=torch.uint16)
    assert found.dtype == np.uint16
    expected = images_of(data, channels=channels).astype(np.int64) * 257
    if channels == "gray":  # that of colours is rounded when they have 16 bits
        gray = (images_of(data).astype(np.int64) * 257 @ [19595, 38470, 7471] + 32768 >> 16)[
            ..., None
        ]
        jpegs = [path.suffix == ".jpg" for path in sources(data, mixed)]
        expected = np.where(np.array(jpegs)[:, None, None, None], expected, gray)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("own", ["gray", "rgb", "rgba"])
def test_sixteen_bits(deep: dict[str, tuple[Path, list[NDArray[np.uint16]]]], own: str) -> None:
    data, samples = deep[own]
    whole = np.stack(samples)
    assert np.array_equal(images_of(data, channels="own", dtype=torch.uint16), whole)
    assert np.array_equal(images_of(data, channels="own"), whole >> 8)
    floats = images_of(data, channels="own", dtype=torch.float32)
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats, whole / 65535, rtol=1e-6)
    assert len(np.unique(floats)) > 256
    rgba = images_of(data, channels="rgba", dtype=torch.uint16)
    assert np.array_equal(rgba[..., :3], np.broadcast_to(whole[..., :3], (*whole.shape[:3], 3)))
    assert np.array_equal(
        rgba[..., 3], whole[..., 3] if own == "rgba" else np.full(whole.shape[:3], 65535)
    )


def test_floats_of_eight_bits(mixed: Path) -> None:
    data = mixed.parent / "packed"
    floats = images_of(data, channels="gray", dtype=torch.float32)
    np.testing.assert_allclose(floats, images_of(data, channels="gray") / 255, rtol=1e-6)


@pytest.mark.parametrize("kind", ["packed", "coefficients", "photos"])
def test_gray_and_alpha_are_cropped_and_resized_as_pillow_does(mixed: Path, kind: str) -> None:
    data = mixed.parent / kind
    for channels, mode in MODES.items():
        options = {
            "channels": channels,
            "size": (12, 9),
            "seed": 7,
            "exact": True,
            "num_workers": 1,
            "hflip": False,
        }
        with fastpipe.loader(data, 4, drop_last=False, **options) as loader:
            plan, rows = EpochPlan(loader.recipe, 0), [batch.images for batch in loader]
        for number, images in enumerate(rows):
            batch = plan.batch(number)
            for row, sample in enumerate(batch.ids.tolist()):
                x, y, width, height = batch.crops.boxes[row].tolist()
                picture = by_pillow(sources(data, mixed)[sample], mode).crop(
                    (x, y, x + width, y + height)
                )
                expected = as_array(picture.resize((9, 12), Image.Resampling.BILINEAR))
                assert np.array_equal(images[row].permute(1, 2, 0).numpy(), expected), (
                    mode,
                    sample,
                )


def test_shrunk_decoding_is_near_the_exact_one(large: Path) -> None:
    options: dict[str, Any] = {
        "channels": "gray",
        "size": 16,
        "train": True,
        "crop": None,
        "shuffle": False,
    }
    fast, exact = (images_of(large, **options, exact=each).astype(int) for each in (False, True))
    assert not np.array_equal(fast, exact)
    assert np.abs(fast - exact).mean() < 6


def test_own_needs_one_number_of_channels(mixed: Path) -> None:
    counts = ", ".join(
        f"{list(CHANNELS.values()).count(each)} of {each} ({word})"
        for each, word in {1: "gray", 3: "RGB", 4: "with alpha"}.items()
    )
    for kind in ("packed", "photos"):
        with pytest.raises(
            ConfigError,
            match=re.escape(
                f'channels: "own" needs samples of one number of channels, got {counts}'
            ),
        ):
            fastpipe.loader(mixed.parent / kind, channels="own")


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("kind", ["packed", "photos"])
def test_own_of_samples_that_are_chosen(mixed: Path, kind: str, number: int) -> None:
    data = fastpipe.open(mixed.parent / kind)
    chosen = data.select(lambda columns: columns["channels"] == number)
    assert sorted(Path(key).name for key in chosen["key"]) == sorted(
        name for name, n in CHANNELS.items() if n == number
    )
    channels = {1: "gray", 3: "rgb", 4: "rgba"}[number]
    assert np.array_equal(images_of(chosen, channels="own"), images_of(chosen, channels=channels))
    mine = fastpipe.concat(chosen, chosen)
    assert images_of(mine, channels="own").shape[-1] == number
    with pytest.raises(ConfigError, match="needs samples of one number of channels"):
        fastpipe.loader(fastpipe.concat(chosen, data), channels="own")


def test_bits_are_those_of_the_samples_that_are_chosen(
    mixed: Path, deep: dict[str, tuple[Path, list[NDArray[np.uint16]]]]
) -> None:
    path, samples = deep["gray"]
    both = fastpipe.concat(path, fastpipe.open(mixed.parent / "packed"))
    assert both["bits"].tolist() == [16] * len(samples) + [8] * len(MIXED)
    fine = images_of(both.select([0, len(samples)]), dtype=torch.float32)
    np.testing.assert_allclose(
        fine[0], np.broadcast_to(samples[0] / 65535, fine[0].shape), rtol=1e-6
    )
    coarse = images_of(both.select([len(samples)]), dtype=torch.float32)
    np.testing.assert_allclose(coarse[0] * 255, np.rint(coarse[0] * 255), atol=1e-4)
    assert np.array_equal(coarse[0], fine[1].round(7)) or np.allclose(coarse[0], fine[1], atol=1e-6)


def test_second_pictures_have_the_form_of_the_images(tmp_path: Path) -> None:
    width, height = SIZE
    depths = [
        np.random.default_rng(n).integers(0, 2**16, (height, width), dtype=np.uint16)
        for n in range(3)
    ]
    with fastpipe.Writer(tmp_path / "packed", fields={"depth": "image", "mask": "mask"}) as writer:
        for number, depth in enumerate(depths):
            writer.add(
                with_alpha(number),
                depth=depth if number else None,
                mask=np.full((height, width), number, dtype=np.uint8),
            )
    for channels, dtype, count in (
        ("own", torch.uint16, 4),
        ("gray", torch.uint8, 1),
        ("gray", torch.uint16, 1),
    ):
        options = {
            **WHOLE,
            "channels": channels,
            "dtype": dtype,
            "fields": ["image", "depth", "mask"],
        }
        with fastpipe.loader(tmp_path / "packed", 3, **options) as loader:
            (batch,) = loader
        assert batch["image"].shape == batch["depth"].shape == (3, count, height, width)
        assert batch["image"].dtype == batch["depth"].dtype == dtype
        assert batch["mask"].dtype == torch.uint8
        assert not batch["depth"][0].to(torch.int32).any(), "it has none"
        expected = depths[1] if dtype == torch.uint16 else depths[1] >> 8
        assert np.array_equal(batch["depth"][1, 0].numpy(), expected)


def test_unpacked_files_of_other_formats(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    colour(0).save(folder / "a.bmp")
    colour(1).convert("L").save(folder / "b.gif")
    with_alpha(2).save(folder / "c.webp", lossless=True, exact=True)
    colour(3).save(folder / "d.jpg", progressive=True, quality=90)
    data = fastpipe.open(folder)
    paths = sources(folder, folder)
    for channels, mode in MODES.items():
        expected = np.stack([as_array(by_pillow(path, mode)) for path in paths])
        assert np.array_equal(images_of(data, channels=channels), expected), mode
        for number in range(4):
            image, _ = data.with_pixels(channels)[number]
            assert np.array_equal(image.permute(1, 2, 0).numpy(), expected[number])


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (9, {"gray": [9], "rgb": [9, 9, 9], "rgba": [9, 9, 9, 9]}),
        ((200, 40, 90), {"gray": [94], "rgb": [200, 40, 90], "rgba": [200, 40, 90, 255]}),
        ((200, 40, 90, 17), {"gray": [94], "rgb": [200, 40, 90], "rgba": [200, 40, 90, 17]}),
    ],
)
def test_fill_is_converted_as_images_are(
    mixed: Path, fill: Any, expected: dict[str, list[int]]
) -> None:
    assert Image.new("RGB", (1, 1), (200, 40, 90)).convert("L").getpixel((0, 0)) == 94
    for channels, pixel in expected.items():
        crop = fastpipe.RandomCrop(padding=20, fill=fill)
        for data in (mixed.parent / "packed", mixed):
            for dtype, factor in ((torch.uint8, 1), (torch.uint16, 257)):
                images = images_of(
                    data, channels=channels, dtype=dtype, crop=crop, size=(32 + 40, 40 + 40)
                )
                assert (images[:, :20] == np.array(pixel) * factor).all()
    boxed = fastpipe.Letterbox(fill=fill)
    image, _ = fastpipe.open(mixed).cropped(boxed, (40, 40)).with_pixels("rgba")[0]
    assert image[:, 0, 0].tolist() == expected["rgba"]


@pytest.mark.parametrize(("channels", "count"), [("gray", 1), ("rgb", 3), ("rgba", 4)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
def test_augmentations_get_the_form(
    mixed: Path, channels: str, count: int, dtype: torch.dtype
) -> None:
    data = mixed.parent / "packed"
    plain = (
        images_of(data, channels=channels, dtype=dtype).astype(np.float64) / torch.iinfo(dtype).max
    )
    normalised = images_of(
        data, channels=channels, dtype=dtype, augment=fastpipe.Augment(mean=0.5, std=0.25)
    )
    np.testing.assert_allclose(normalised, (plain - 0.5) / 0.25, atol=1e-5)
    for augment in (fastpipe.Augment.simclr(mean=0.5, std=0.25), fastpipe.Augment.randaugment()):
        with fastpipe.loader(
            data, 3, size=24, channels=channels, dtype=dtype, augment=augment
        ) as loader:
            images, _ = next(iter(loader))
            assert images.shape == (3, count, 24, 24)
            assert images.dtype == torch.float32
            assert images.isfinite().all()


def test_mean_and_std_that_do_not_fit_are_refused_at_once(mixed: Path) -> None:
    with pytest.raises(ConfigError, match="or one per channel, and the images have 3; got"):
        fastpipe.loader(mixed, augment=fastpipe.Augment(mean=[0.5] * 4, std=[0.2] * 4))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channels": "bgr"}, "channels: expected 'rgb', 'gray', 'rgba' or 'own', got 'bgr'"),
        ({"channels": 1}, "channels: expected 'rgb', 'gray', 'rgba' or 'own', got 1"),
        (
            {"dtype": torch.bfloat16},
            "dtype: expected torch.uint8, torch.uint16 or torch.float32, got torch.bfloat16",
        ),
        (
            {"dtype": "uint8"},
            "dtype: expected torch.uint8, torch.uint16 or torch.float32, got 'uint8'",
        ),
        ({"dtype": np.uint8}, "dtype: expected torch.uint8"),
    ],
)
def test_what_is_neither(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):  # before the dataset is looked for
        fastpipe.loader(tmp_path / "nothing", **options)
    with pytest.raises(ConfigError, match=re.escape(words)):
        fastpipe.open(write_mixed(tmp_path / "some", ["gray.jpg"])).with_pixels(**options)
