"""Batches of whole images at sizes of their own: Pillow's pixels, fields, lists, damage, unpacked sources."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.datasets.packed import damage
from support.pictures.drawn import smooth_noise
from support.sources.pack_sources import jpeg_bytes

import fastpipe

COUNT = 14
SIZE = fastpipe.Native(max_pixels=60 * 60, multiple=7)


def picture(number: int) -> bytes:
    return jpeg_bytes((40 + number % 7 * 29, 50 + number % 5 * 31), seed=number)


def pages(number: int) -> list[bytes]:
    return [picture(100 + number * 4 + place) for place in range(number % 4)]


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def size_of(width: int, height: int) -> tuple[int, int]:
    """Width and height that an image has in a batch."""
    width, height = SIZE.resized(np.array([width]), np.array([height]))[0].tolist()
    return width, height


def resized(image: Image.Image) -> np.ndarray[Any, Any]:
    """What Pillow makes of an image at the size that it has in a batch."""
    return np.array(image.resize(size_of(*image.size), Image.Resampling.BICUBIC))


def resized_mask(mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What torch makes of it by the nearest neighbour, as of all masks."""
    width, height = size_of(mask.shape[1], mask.shape[0])
    ids = torch.from_numpy(mask)[None, None].float()
    return torch.nn.functional.interpolate(ids, (height, width))[0, 0].numpy()


def as_array(row: torch.Tensor) -> np.ndarray[Any, Any]:
    return row.permute(1, 2, 0).numpy()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native") / "data"
    fields = {"seg": "mask", "second": "image", "boxes": "boxes", "pages": "images"}
    with fastpipe.Writer(folder, fields) as writer:
        for number in range(COUNT):
            width, height = opened(picture(number)).size
            writer.add(
                picture(number),
                label=number % 2,
                key=str(number),
                seg=mask_of(number) if number % 3 else None,
                second=smooth_noise(width, height, seed=number) if number % 2 else None,
                boxes=[[0, 0, width / 2, height]],
                pages=pages(number),
            )
    return folder


def mask_of(number: int) -> np.ndarray[Any, Any]:
    width, height = opened(picture(number)).size
    return np.random.default_rng(number).integers(0, 9, (height, width)).astype(np.uint8)


def rows_of(data: Any, **options: Any) -> dict[int, dict[str, Any]]:
    """The values of each sample, by its number."""
    found = {}
    fields = options.pop("fields", ["id", "image", "image_size", "seg", "second", "boxes", "pages"])
    with fastpipe.loader(data, 5, size=SIZE, fields=fields, drop_last=False, **options) as loader:
        for batch in loader:
            for place, number in enumerate(batch["id"].tolist()):
                found[number] = {key: value[place] for key, value in batch.items()}
    return found


@pytest.mark.parametrize("mirrored", [False, True])
def test_rows_are_pillows_at_sizes_of_their_own(data: Path, mirrored: bool) -> None:
    rows = rows_of(data, hflip=mirrored and 1.0)
    assert len(rows) == COUNT
    flip = slice(None, None, -1 if mirrored else 1)
    for number, row in rows.items():
        image = opened(picture(number))
        expected = resized(image)[:, flip]
        assert np.array_equal(as_array(row["image"]), expected)
        height, width = expected.shape[:2]
        assert row["image_size"].tolist() == [height, width]
        mask = np.zeros((height, width), np.uint8)
        if number % 3:
            mask = resized_mask(mask_of(number))[:, flip]
        assert np.array_equal(row["seg"].numpy(), mask)
        second = np.zeros_like(expected)
        if number % 2:
            noise = smooth_noise(image.width, image.height, seed=number)
            second = resized(noise)[:, flip]
        assert np.array_equal(as_array(row["second"]), second)
        box = [width / 2, 0, width, height] if mirrored else [0, 0, width / 2, height]
        np.testing.assert_allclose(row["boxes"], [box], rtol=1e-6)
        assert len(row["pages"]) == number % 4
        for page, source in zip(row["pages"], pages(number), strict=True):
            assert np.array_equal(as_array(page), resized(opened(source))[:, flip])


def test_nothing_is_mirrored_or_cut_in_training_unless_it_is_asked_for(data: Path) -> None:
    with fastpipe.loader(data, 4, size=SIZE) as loader:
        assert "own sizes" in repr(loader)
        for batch in loader:
            images, labels = batch
            assert isinstance(images, list)
            assert len(images) == len(labels) == 4
            for number, image in zip(batch.ids.tolist(), images, strict=True):
                assert np.array_equal(as_array(image), resized(opened(picture(number))))


def test_flat_lists_are_one_tensor_where_all_pictures_have_one_size(tmp_path: Path) -> None:
    with fastpipe.Writer(tmp_path / "data", {"pages": "images"}) as writer:
        for number in range(6):
            sizes = [(60, 60)] * 2 if number < 4 else [(60, 60), (90, 40)]
            writer.add(
                picture(0), key=str(number), pages=[jpeg_bytes(size, seed=3) for size in sizes]
            )
    field = fastpipe.Images("pages", form="flat")
    with fastpipe.loader(tmp_path / "data", 2, size=SIZE, fields=[field], train=False) as loader:
        first, _, last = loader
    expected = resized(opened(jpeg_bytes((60, 60), seed=3)))
    assert first["pages"].shape == (4, 3, *expected.shape[:2])
    assert np.array_equal(as_array(first["pages"][3]), expected)
    assert first["pages_offsets"].tolist() == [0, 2, 4]
    assert isinstance(last["pages"], list)
    assert [tuple(page.shape[1:]) for page in last["pages"][:2]] == [
        expected.shape[:2],
        resized(Image.new("RGB", (90, 40))).shape[:2],
    ]


def test_views_are_lists_of_lists(data: Path) -> None:
    views = [fastpipe.View(hflip=False), fastpipe.View(hflip=1.0)]
    with fastpipe.loader(data, 4, size=SIZE, views=views) as loader:
        for (plain, mirrored), _ in loader:
            for one, other in zip(plain, mirrored, strict=True):
                assert torch.equal(one.flip(2), other)


def test_a_damaged_sample_is_replaced_by_one_of_another_size(data: Path, tmp_path: Path) -> None:
    fields = {"seg": "mask", "pages": "images"}
    with fastpipe.Writer(tmp_path / "data", fields) as writer:
        for number in range(COUNT):
            writer.add(picture(number), key=str(number), seg=mask_of(number), pages=pages(number))
    damage(tmp_path / "data", 3)
    asked = ["id", "image", "seg", "pages"]
    rows: list[int] = []
    options: dict[str, Any] = {"size": SIZE, "fields": asked, "drop_last": False}
    with fastpipe.loader(tmp_path / "data", 5, on_error="replace", **options) as loader:
        for batch in loader:
            for place, number in enumerate(batch["id"].tolist()):
                expected = resized(opened(picture(number)))
                assert np.array_equal(as_array(batch["image"][place]), expected)
                mask = resized_mask(mask_of(number))
                assert np.array_equal(batch["seg"][place].numpy(), mask)
                assert len(batch["pages"][place]) == number % 4
                rows.append(number)
        assert loader.stats().replaced == 1
    assert len(rows) == COUNT
    assert 3 not in rows
    with (
        fastpipe.loader(tmp_path / "data", 5, **options) as loader,
        pytest.raises(fastpipe.SampleError, match="sample 3"),
    ):
        list(loader)


def test_a_folder_that_is_not_packed_and_pictures_that_are_converted(tmp_path: Path) -> None:
    for number in range(8):
        folder = tmp_path / "photos" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        name = ("jpg", "png", "webp", "bmp")[number % 4]
        noise = smooth_noise(40 + 9 * number, 50 + 7 * number, seed=number)
        noise.save(folder / f"{number}.{name}", lossless=True)
    with fastpipe.loader(tmp_path / "photos", 3, size=SIZE, train=False) as loader:
        seen = 0
        for batch in loader:
            keys = loader.dataset["key"][batch.ids]
            for key, image in zip(keys, batch[0], strict=True):
                with Image.open(tmp_path / "photos" / key) as source:
                    assert np.array_equal(as_array(image), resized(source.convert("RGB")))
                seen += 1
    assert seen == 8


def test_channels_and_16_bits(data: Path) -> None:
    with fastpipe.loader(data, 4, size=SIZE, channels="gray", dtype=torch.uint16) as loader:
        images, _ = next(iter(loader))
    assert all(image.dtype == torch.uint16 and image.shape[0] == 1 for image in images)


def test_a_preview_draws_them(data: Path, tmp_path: Path) -> None:
    fields = ["image", "boxes", "seg"]
    with fastpipe.loader(data, 4, size=SIZE, fields=fields) as loader:
        drawn = fastpipe.preview(loader, tmp_path / "preview.png", rows=2)
    with Image.open(drawn.path) as sheet:
        assert sheet.width > 1000
