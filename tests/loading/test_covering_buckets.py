"""Tests of Buckets(fit="cover"): images that fill batches of a few sizes, and are cut instead of padded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from PIL import Image
from support.datasets.shapes import write_shapes

import fastpipe
from fastpipe.errors import ConfigError

pytestmark = [pytest.mark.usefixtures("one_thread")]

SHAPES = [(100, 60), (60, 100), (80, 80), (90, 30), (64, 48), (48, 64), (30, 90), (100, 75)]
COUNT = 160
SIZES = [(32, 32), (24, 40), (40, 24)]
SIZE = fastpipe.Buckets(sizes=SIZES, fit="cover")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of eight shapes with a box, a mask and a list of pictures each."""
    folder = tmp_path_factory.mktemp("shapes") / "data"
    return write_shapes(folder, SHAPES, COUNT, with_pages=True)


def batches_of(data: Path, batch_size: int = 8, **options: Any) -> list[Any]:
    options = {"num_workers": 1, "size": SIZE, "seed": 5, **options}
    with fastpipe.loader(data, batch_size, **options) as loader:
        return list(loader)


def covering_size(picture: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) of a picture that just covers a size: one side is equal, the other rounded half up."""
    if size[0] * picture[1] >= size[1] * picture[0]:
        return size[0], int(picture[1] * size[0] / picture[0] + 0.5)
    return int(picture[0] * size[1] / picture[1] + 0.5), size[1]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("random_crop", [False, True])
def test_rows_are_pillows_resize_and_crop(
    shapes: Path, random_crop: bool, interpolation: str
) -> None:
    dataset = fastpipe.open(shapes)
    size = fastpipe.Buckets(
        sizes=SIZES, fit="cover", random_crop=random_crop, interpolation=interpolation
    )
    fields = ("image", "id", "crop_box", "original_size")
    places = set()
    for batch in batches_of(shapes, size=size, hflip=False, fields=fields):
        height, width = batch["image"].shape[2:]
        assert (height, width) in SIZES
        for row, number in enumerate(batch["id"].tolist()):
            picture = Image.fromarray(dataset[number][0].permute(1, 2, 0).numpy())
            assert batch["original_size"][row].tolist() == [picture.height, picture.width]
            wide, high = covering_size(picture.size, (width, height))
            resized = picture.resize((wide, high), Image.Resampling[interpolation.upper()])
            left, top = batch["crop_box"][row][:2].tolist()
            x = round(left * wide / picture.width)
            y = round(top * high / picture.height)
            if not random_crop:
                assert (x, y) == (round((wide - width) / 2), round((high - height) / 2))
            places.add((wide - width, high - height, x, y))
            expected = np.asarray(resized.crop((x, y, x + width, y + height)))
            assert np.array_equal(batch["image"][row].permute(1, 2, 0).numpy(), expected)
    rooms = {(wide, high) for wide, high, _, _ in places}
    if random_crop:
        assert len(places) > 2 * len(rooms)
    else:
        assert len(places) == len(rooms)


def test_train_decides_where_the_crop_lies(shapes: Path) -> None:
    def boxes(**options: Any) -> list[list[float]]:
        batches = batches_of(shapes, shuffle=False, fields=("image", "crop_box"), **options)
        return [box for batch in batches for box in batch["crop_box"].tolist()]

    centred = fastpipe.Buckets(sizes=SIZES, fit="cover", random_crop=False)
    anywhere = fastpipe.Buckets(sizes=SIZES, fit="cover", random_crop=True)
    assert boxes(train=False) == boxes(size=centred, drop_last=False)
    assert boxes() == boxes(size=anywhere)
    assert boxes() != boxes(size=centred)


def test_batches_have_no_padding_and_each_sample_once(shapes: Path) -> None:
    numbers: list[int] = []
    for batch in batches_of(shapes, drop_last=False, fields=("image", "id", "mask", "boxes")):
        assert tuple(batch["image"].shape[2:]) in SIZES
        assert batch["mask"].shape[1:] == batch["image"].shape[2:]
        numbers += batch["id"].tolist()
        # The box is that of the mask, in pixels of the row.
        for mask, boxes in zip(batch["mask"], batch["boxes"], strict=True):
            if not len(boxes):
                continue
            y, x = torch.nonzero(mask).T
            left, top, right, bottom = boxes[0].tolist()
            assert abs(int(x.min()) - left) <= 1
            assert abs(int(y.min()) - top) <= 1
            assert abs(int(x.max()) + 1 - right) <= 1
            assert abs(int(y.max()) + 1 - bottom) <= 1
    assert sorted(numbers) == list(range(COUNT))


def test_pictures_of_lists_have_the_size_of_the_batch(shapes: Path) -> None:
    for batch in batches_of(shapes, fields=("image", "pages")):
        for pages in batch["pages"]:
            assert all(page.shape[1:] == batch["image"].shape[2:] for page in pages)


def test_resumed_and_on_two_ranks_the_batches_are_the_same(shapes: Path) -> None:
    whole = batches_of(shapes, fields=("image", "id"))
    options: dict[str, Any] = {"size": SIZE, "seed": 5, "num_workers": 1, "fields": ("image", "id")}
    with fastpipe.loader(shapes, 8, **options) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
    with fastpipe.loader(shapes, 8, **options) as loader:
        loader.load_state_dict(state)
        resumed = list(loader)
    assert len(resumed) == len(whole) - 3
    for batch, other in zip(resumed, whole[3:], strict=True):
        assert torch.equal(batch["image"], other["image"])
    ranks = [
        batches_of(shapes, 4, rank=rank, world_size=2, fields=("image", "id")) for rank in range(2)
    ]
    for number, batch in enumerate(whole):
        ids = ranks[0][number]["id"].tolist() + ranks[1][number]["id"].tolist()
        assert sorted(ids) == sorted(batch["id"].tolist())
        assert ranks[0][number]["image"].shape[2:] == batch["image"].shape[2:]
        assert ranks[1][number]["image"].shape[2:] == batch["image"].shape[2:]


def test_a_state_of_other_sizes_is_refused(shapes: Path) -> None:
    with fastpipe.loader(shapes, 8, size=SIZE, num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    other = fastpipe.Buckets(sizes=[(32, 32), (24, 40)], fit="cover")
    with (
        fastpipe.loader(shapes, 8, size=other, num_workers=1) as loader,
        pytest.raises(ConfigError, match="the state does not fit this loader"),
    ):
        loader.load_state_dict(state)


def test_pictures_that_cover_no_size_are_refused_without_enlarging(shapes: Path) -> None:
    large = fastpipe.Buckets(sizes=[(70, 70), (40, 40)], fit="cover", no_upscale=True)
    with pytest.raises(ConfigError, match=r"40 of 160 images are smaller than each of the sizes"):
        fastpipe.loader(shapes, 8, size=large, num_workers=1)
    data = fastpipe.open(shapes).select(lambda c: (c["width"] >= 40) & (c["height"] >= 40))
    for batch in batches_of(data, size=large, fields=("image", "crop_box")):  # type: ignore[arg-type]
        height, width = batch["image"].shape[2:]
        assert (batch["crop_box"][:, 2:] - batch["crop_box"][:, :2]).min() >= min(height, width)


def test_listed_sizes_with_padding(shapes: Path) -> None:
    size = fastpipe.Buckets(sizes=SIZES, fill=(9, 8, 7))
    for batch in batches_of(shapes, size=size, fields=("image", "image_size", "pixel_mask")):
        height, width = batch["image"].shape[2:]
        assert (height, width) in SIZES
        fills_a_side = (batch["image_size"] == torch.tensor([height, width])).any(dim=1)
        assert fills_a_side.all()
        padding = batch["image"].permute(0, 2, 3, 1)[~batch["pixel_mask"]]
        assert (padding == torch.tensor([9, 8, 7], dtype=torch.uint8)).all()


def test_nothing_is_padded_so_any_augmentation_goes(shapes: Path) -> None:
    for module in (k.RandomMosaic(p=1.0), torch.nn.AvgPool2d(3, 1, 1)):
        augment = fastpipe.Augment(module, mean=None, std=None)
        batch = batches_of(shapes, augment=augment)[0]
        assert tuple(batch.images.shape[2:]) in SIZES
    with pytest.raises(AttributeError, match="its images fill it"):
        _ = batch.image_sizes
    with pytest.raises(ConfigError, match="pixel_mask"):
        batches_of(shapes, fields=("image", "pixel_mask"))
