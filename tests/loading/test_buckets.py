"""Tests of size="bucket": whole images of any shape, in batches of like shape, padded as little as possible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kornia.augmentation as k
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.batches.asked_fields import asked
from support.datasets.packed import damage
from support.datasets.shapes import write_shapes

import fastpipe
from fastpipe.errors import ConfigError
from fastpipe.tools.show.preview import preview_samples

pytestmark = [pytest.mark.usefixtures("one_thread")]

SIZES = [
    (100, 60),
    (60, 100),
    (80, 80),
    (90, 30),
    (64, 48),
    (48, 64),
    (30, 90),
    (100, 75),
    (75, 100),
]  # of pictures
COUNT = 75
SMALL = fastpipe.Buckets(area=40 * 40, size_divisible=8)
SHORT = fastpipe.Buckets(min_size=30, max_size=50, size_divisible=16)
KINDS = {
    "area": SMALL,
    "min_size": SHORT,
    "options": fastpipe.Buckets(
        area=30 * 50, max_size=60, fill=(9, 200, 3), interpolation="bicubic", mask_fill=255
    ),
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of nine shapes with a box, a point and a mask each."""
    return write_shapes(tmp_path_factory.mktemp("shapes") / "data", SIZES, COUNT)


def opened(data: fastpipe.Dataset | Path, batch_size: int = 4, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(
        data, batch_size, **{"num_workers": 1, "size": SMALL, "seed": 5, **options}
    )


def fitted(buckets: fastpipe.Buckets, picture: Image.Image, torchvision: Any) -> tuple[int, int]:
    """Width and height of the resized picture, in exact arithmetic or as torchvision's Resize has them."""
    width, height = picture.size
    if buckets.area is None:
        resize = torchvision.transforms.Resize(buckets.min_size, max_size=buckets.max_size)
        resized: tuple[int, int] = resize(picture).size
        return resized
    sides = []
    for one, other in ((width, height), (height, width)):
        side = 1
        while (side + 1) ** 2 * other <= buckets.area * one:
            side += 1
        sides.append(side)
    assert buckets.max_size is not None
    if max(sides) > buckets.max_size:
        shorter = max(1, buckets.max_size * min(width, height) // max(width, height))
        return (buckets.max_size, shorter) if width >= height else (shorter, buckets.max_size)
    return sides[0], sides[1]


@pytest.mark.parametrize("flip", [False, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_pillows_resize_and_padding(
    shapes: Path, torchvision: Any, kind: str, flip: Any
) -> None:
    buckets, dataset, seen = KINDS[kind], fastpipe.open(shapes), 0
    resample = Image.Resampling[buckets.interpolation.upper()]
    with opened(shapes, size=buckets, train=False, hflip=flip) as loader:
        for batch in loader:
            height, width = batch.images.shape[2:]
            assert height % buckets.size_divisible == width % buckets.size_divisible == 0
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
            for image, number, size in zip(
                batch.images, batch.ids.tolist(), batch.image_sizes.tolist(), strict=True
            ):
                picture = Image.fromarray(dataset[number][0].permute(1, 2, 0).numpy())
                right = fitted(buckets, picture, torchvision)
                assert size == [right[1], right[0]]
                small = picture.resize(right, resample)
                expected = Image.new("RGB", (width, height), buckets.fill[:3])
                expected.paste(small.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else small)
                assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(expected))
                seen += 1
            # As large as the largest image, no larger.
            most = batch.image_sizes.max(dim=0).values
            assert [height, width] == [
                -(-side // buckets.size_divisible) * buckets.size_divisible for side in most
            ]
    assert seen == COUNT


@pytest.mark.parametrize("hflip", [False, 1.0])
def test_boxes_masks_and_points_move_with_the_image(
    shapes: Path, torchvision: Any, hflip: Any
) -> None:
    from torchvision import tv_tensors

    v2 = torchvision.transforms.v2
    names = ("image", "boxes", "points", "mask", "id", "image_size", "pixel_mask")
    dataset = fastpipe.open(shapes).with_fields(("image", "boxes", "points", "mask"))
    buckets = fastpipe.Buckets(area=40 * 40, mask_fill=255)
    with opened(
        shapes, size=buckets, fields=asked(names, {"flip_pairs": []}), hflip=hflip, drop_last=False
    ) as loader:
        for batch in loader:
            assert list(batch) == [
                "image",
                "boxes",
                "boxes_labels",
                "points",
                "mask",
                "id",
                "image_size",
                "pixel_mask",
            ]
            size = tuple(batch["image"].shape[2:])
            for row, number in enumerate(batch["id"].tolist()):
                sample, small = dataset[number], batch["image_size"][row].tolist()
                given = {
                    "boxes": tv_tensors.BoundingBoxes(
                        sample["boxes"], format="XYXY", canvas_size=sample["image"].shape[1:]
                    ),
                    "mask": tv_tensors.Mask(sample["mask"]),
                }
                moved = v2.Resize(small)(given)
                moved = (
                    v2.functional.horizontal_flip(moved["boxes"]),
                    v2.functional.horizontal_flip(moved["mask"]),
                )
                if not hflip:
                    resized = v2.Resize(small)(given)
                    moved = resized["boxes"], resized["mask"]
                assert torch.allclose(
                    batch["boxes"][row], moved[0].as_subclass(torch.Tensor), atol=1e-4
                )
                expected = torch.full(size, 255)
                expected[: small[0], : small[1]] = moved[1].as_subclass(torch.Tensor)
                assert torch.equal(batch["mask"][row].long(), expected)
                inside = torch.zeros(size, dtype=torch.bool)
                inside[: small[0], : small[1]] = True
                assert torch.equal(batch["pixel_mask"][row], inside)
                x, y = batch["points"][row][0, 0, :2].tolist()
                box = batch["boxes"][row][0].tolist()
                assert (x, y) == pytest.approx(
                    ((box[2] - 1) if hflip else box[0], box[1]), abs=1e-3
                )


def test_previews_are_drawn(shapes: Path, tmp_path: Path) -> None:
    with opened(shapes, augment=fastpipe.Augment.imagenet()) as loader:
        assert fastpipe.preview(loader, tmp_path / "sheet.png", rows=3).photos == 3
        assert len(preview_samples(loader, np.arange(5), 0)[0].images) == 5


def test_batches_of_images_know_their_mask(shapes: Path) -> None:
    with opened(shapes, size="bucket") as loader:
        assert repr(loader).endswith(f"{COUNT // 4} batches of 4, buckets, on cpu>")
        batch = next(iter(loader))
        assert batch.image_sizes.dtype == torch.int64
        assert torch.equal(batch.pixel_mask.sum(dim=(1, 2)), batch.image_sizes.prod(dim=1))
        assert (batch.images[(~batch.pixel_mask)[:, None].expand(-1, 3, -1, -1)] == 0).all()
        areas = batch.image_sizes.prod(dim=1)
        assert ((areas > 0.97 * 224 * 224) & (areas <= 224 * 224)).all()
    with (
        opened(shapes, size=32) as loader,
        pytest.raises(AttributeError, match='Batches of size="bucket" have it'),
    ):
        next(iter(loader)).pixel_mask  # noqa: B018


def padding(batches: list[NDArray[np.int64]], buckets: fastpipe.Buckets) -> float:
    """Pixels of padding for each pixel of an image, of batches of (n, 2) sizes."""
    of_images = sum(int(sizes.prod(axis=1).sum()) for sizes in batches)
    shapes = [
        [buckets.rounded_up(side) for side in sizes.max(axis=0).tolist()] for sizes in batches
    ]
    return (
        sum(len(sizes) * high * wide for sizes, (high, wide) in zip(batches, shapes, strict=True))
        / of_images
        - 1
    )


@pytest.mark.parametrize("options", [{"train": True, "drop_last": False}, {"train": False}])
def test_every_sample_comes_once_with_little_padding(shapes: Path, options: dict[str, Any]) -> None:
    with opened(shapes, **options) as loader:
        epochs = [list(loader) for _ in range(2)]
        assert len(loader) == 19
    for batches in epochs:
        assert [len(batch.labels) for batch in batches] == [4] * 18 + [3]
        assert sorted(number for batch in batches for number in batch.ids.tolist()) == list(
            range(COUNT)
        )
    sizes = [batch.image_sizes.numpy() for batch in epochs[0]]
    mixed = np.random.default_rng(0).permutation(np.concatenate(sizes))
    apart = np.concatenate(sizes)
    least = padding([each[None] for each in apart], SMALL)  # each image in a batch of its own
    found = padding(sizes, SMALL)
    assert least < 0.2
    assert found < least + 0.1
    assert padding(np.array_split(mixed, 19), SMALL) > 4 * found
    orders = [[batch.ids.tolist() for batch in batches] for batches in epochs]
    assert (orders[0] != orders[1]) == options["train"]


def test_a_state_belongs_to_its_buckets(shapes: Path) -> None:
    with opened(shapes) as loader:
        state = loader.state_dict()
    with (
        opened(shapes, size=SHORT) as loader,
        pytest.raises(ConfigError, match="the state does not fit this loader: buckets"),
    ):
        loader.load_state_dict(state)


def test_a_bad_sample_is_replaced_inside_its_batch(
    shapes: Path, copied: Callable[[Path], Path]
) -> None:
    dataset = copied(shapes)
    for sample in range(0, COUNT, 5):
        damage(dataset, sample)
    with (
        opened(dataset, on_error="replace", train=False) as loader,
        opened(shapes, train=False) as whole,
    ):
        for batch, expected in zip(loader, whole, strict=True):
            assert batch.images.shape == expected.images.shape
            sides = torch.tensor(batch.images.shape[2:])
            assert ((batch.image_sizes > 0) & (batch.image_sizes <= sides)).all()
            sizes = batch.image_sizes.tolist()
            assert all(
                image[:, :high, :wide].any()
                for image, (high, wide) in zip(batch.images, sizes, strict=True)
            )
        assert loader.stats().replaced == 15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"size": "buckets"},
            r'size: expected a number, \(height, width\), "bucket" or a function, got \'buckets\'',
        ),
        (
            {"size": fastpipe.Buckets},
            r'"bucket" .*, got <class .*Buckets.*; for options of buckets fastpipe.Buckets\(area=\.\.\.\)',
        ),
        ({"crop": SMALL, "size": 224}, r"crop: expected a crop, got Buckets\(.*pass it as size="),
        ({"crop": fastpipe.CenterCrop()}, r"\(CenterCrop\): images are shown whole"),
        ({"size_choices": [32, 64]}, r"\(size_choices=\[32, 64\]\): sizes follow from the images"),
        (
            {"augment": k.RandomMosaic()},
            "kornia's mosaic does not go with size=.*: a part of a mosaic may be padding",
        ),
        (
            {"augment": k.RandomFisheye(*[torch.tensor([-0.1, 0.1])] * 3)},
            r"\(RandomFisheye\): the padding could not be tracked",
        ),
        (
            {"augment": torch.nn.AvgPool2d(2)},
            r"\(AvgPool2d\): the padding could not be tracked",
        ),
        ({"size": lambda epoch: SMALL}, "the function returned Buckets"),
    ],
)
def test_what_makes_no_sense(shapes: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        opened(shapes, **options)


def test_options_that_only_buckets_have_or_lack(shapes: Path) -> None:
    with (
        opened(shapes) as loader,
        pytest.raises(ConfigError, match=r"set_size \(set_size\(64\)\): sizes follow"),
    ):
        loader.set_size(64)
    with pytest.raises(ConfigError, match=r"fields: .*got 'pixel_mask'"):
        opened(shapes, size=32, fields=("image", "pixel_mask"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"area": 100, "min_size": 10},
            "one of area= and min_size=, got both, area=100 and min_size=10",
        ),
        ({"area": 0}, "area: expected 1 to"),
        ({"min_size": 800, "max_size": 600}, "max_size=600 is shorter than min_size, 800"),
        (
            {"area": 100 * 100, "max_size": 90},
            "max_size=90 is shorter than the sides of a square of that area, 100",
        ),
        ({"size_divisible": 0}, "size_divisible: expected 1 to 1024"),
        (
            {"ratio": 3},
            "expected area=, min_size=, max_size=, size_divisible=, sizes=, .* by name, got ratio=",
        ),
    ],
)
def test_wrong_buckets(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fastpipe.Buckets(**options)
    with pytest.raises(ConfigError, match=r"size=fastpipe.Buckets\(min_size=800\)") as caught:
        fastpipe.Buckets(800)  # type: ignore[misc]
    assert " crop=" not in str(caught.value), "a loader refuses that"


def test_more_ranks_than_batches_of_a_budget(flat: Path) -> None:
    size = fastpipe.Buckets(area=32 * 32, pixels=100_000)
    words = (
        r"has fewer batches than there are ranks, 64\. Pass a smaller pixels=, or drop_last=False"
    )
    with pytest.raises(ConfigError, match=words):
        fastpipe.loader(flat, size=size, rank=0, world_size=64, num_workers=1)
