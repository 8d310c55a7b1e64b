"""fastpipe.loader(views=): several views of each image, each as a loader with that view alone gives it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.batches.views import options_of
from support.pictures.drawn import smooth_noise

import fastpipe
from fastpipe import View
from fastpipe.errors import ConfigError

pytestmark = [pytest.mark.usefixtures("one_thread")]

LOCAL = fastpipe.RandomResizedCrop(scale=(0.05, 0.14))
DINO = [View(64, count=2), View(32, crop=LOCAL, count=3)]
# Of every kind: views of one size each, that may be decoded reduced or not, padded, picked, of other aspect.
KINDS = [
    View(),
    View(48, crop=LOCAL, hflip=1.0),
    View(crop=fastpipe.CenterCrop(), hflip=False),
    View(
        (30, 70), crop=fastpipe.RandomCrop(padding=40, pad_if_needed=True, padding_mode="reflect")
    ),
    View(
        56,
        crop=fastpipe.RandomResizedCrop(interpolation="bicubic"),
        augment=fastpipe.Augment.simclr(),
    ),
    View(crop=fastpipe.Letterbox(interpolation="nearest")),
]


def loader_of(data: Path, **options: Any) -> fastpipe.Loader:
    chosen: dict[str, Any] = {
        "batch_size": 4,
        "size": 40,
        "num_workers": 2,
        "drop_last": False,
        **options,
    }
    return fastpipe.loader(data, **chosen)


@pytest.fixture(scope="module")
def source(large: Path) -> Path:
    """Photos as cameras and programs write them: no markers, progressive, gray, PNG."""
    folder = large.parent / "unpacked"
    shutil.copytree(large.parent / "source", folder)
    photo = smooth_noise(420, 310, seed=9, cell=30)
    photo.save(folder / "class-0" / "progressive.jpg", progressive=True)
    photo.convert("L").save(folder / "class-0" / "gray.jpg")
    photo.save(folder / "class-1" / "other.png")
    photo.save(folder / "class-1" / "full.jpg", subsampling=0)
    return folder


@pytest.fixture(scope="module", params=["jpeg", "coefficients", "unpacked"])
def data(request: pytest.FixtureRequest, source: Path) -> Path:
    if request.param == "unpacked":
        return source
    packed = source.parent / f"views-{request.param}"
    fastpipe.pack(source, packed, storage=request.param, workers=1)
    return packed


def test_each_view_is_bit_identical_to_its_own_loader(data: Path) -> None:
    """Over two epochs, in the order of the samples, with a last batch that is not full."""
    options = {"shuffle": False, "seed": 5}
    with loader_of(data, views=KINDS, **options) as loader:
        batches = [list(loader) for _ in range(2)]
        seeds = loader.view_seeds
    assert seeds[0] == 5
    assert len(set(seeds)) == len(KINDS)
    for view, kind in enumerate(KINDS):
        with loader_of(data, **{**options, **options_of(kind), "seed": seeds[view]}) as own:
            for epoch in batches:
                for batch, expected in zip(epoch, own, strict=True):
                    assert isinstance(batch.images, list)
                    assert torch.equal(batch.images[view], expected.images), f"view {view}"
                    assert torch.equal(batch.labels, expected.labels)
                    assert torch.equal(batch.ids, expected.ids)


def test_a_photo_is_read_once(data: Path) -> None:
    with (
        loader_of(data, size=64, shuffle=False) as plain,
        loader_of(data, views=DINO, shuffle=False) as loader,
    ):
        samples = sum(len(batch.labels) for batch in plain)
        assert sum(len(batch.labels) for batch in loader) == samples
        one, all_views = plain.stats(), loader.stats()
    assert all_views.images_read == one.images_read == samples
    assert all_views.images_decoded == 5 * samples
    if "coefficients" not in data.name:  # of which a crop needs a part
        assert all_views.bytes_read == one.bytes_read


def test_a_number_of_views_and_sizes_that_change(large: Path) -> None:
    with loader_of(large, views=np.int64(2), shuffle=False) as loader:
        assert [tuple(each.shape) for each in next(iter(loader)).images] == [(4, 3, 40, 40)] * 2
        loader.set_size(24)
        assert [each.shape[-1] for each in next(iter(loader)).images] == [24, 24]
    options: dict[str, Any] = {
        "views": [View(), View(crop=LOCAL)],
        "size": lambda epoch: 16 + 8 * epoch,
    }
    with loader_of(large, **options) as loader:
        assert [
            {each.shape[-1] for batch in loader for each in batch.images} for _ in range(2)
        ] == [{16}, {24}]
    with (
        loader_of(large, views=DINO) as loader,
        pytest.raises(
            ConfigError, match="set_size does not go with views= that all have a size of their own"
        ),
    ):
        loader.set_size(24)
    mixed = [View(count=2), View(32, crop=LOCAL)]
    with loader_of(large, views=mixed, shuffle=False) as loader:
        loader.set_size(24)
        assert [each.shape[-1] for each in next(iter(loader)).images] == [24, 24, 32]


def test_each_views_crop_has_room_for_sizes_that_change(large: Path) -> None:
    """Not found by a sample that cannot be decoded, which on_error="replace" would replace."""
    views = [View(), View(crop=fastpipe.CenterCrop(resize=30))]
    smaller = r"CenterCrop\(resize=30\) makes the image smaller than size=\(40, 40\)"
    with pytest.raises(ConfigError, match=smaller):
        loader_of(large, views=views, size=None, size_choices=[24, (20, 40), 40])
    with loader_of(
        large, views=views, size=lambda epoch: 24 + 16 * epoch, on_error="replace"
    ) as loader:
        assert {each.shape[-1] for batch in loader for each in batch.images} == {24}
        with pytest.raises(
            ConfigError,
            match=r"size: the function returned \(40, 40\) for epoch 1: crop: " + smaller,
        ):
            list(loader)


def test_a_crop_for_all_views_need_not_fit_the_default_size(large: Path) -> None:
    with loader_of(
        large, size=224, crop=fastpipe.CenterCrop(resize=40), views=[View(32), View(24)]
    ) as loader:
        assert [each.shape[-1] for each in next(iter(loader)).images] == [32, 24]


def test_the_preview_shows_a_column_a_view(large: Path, tmp_path: Path) -> None:
    with loader_of(large, views=DINO) as loader:
        assert fastpipe.preview(loader, tmp_path / "views.png", rows=2).photos == 2
    with loader_of(large) as loader:
        fastpipe.preview(loader, tmp_path / "epochs.png", rows=2)
    widths = []
    for name in ("views.png", "epochs.png"):
        with Image.open(tmp_path / name) as sheet:
            widths.append(sheet.width)
    assert round(widths[0] / widths[1], 1) == 0.7  # 2 + 5 columns, and 2 + 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"views": 1}, "views: expected 2 to 64, got 1; for one view, leave views out"),
        ({"views": True}, "expected a number, such as 2, or fastpipe.View objects"),
        ({"views": [224, 96]}, "got 224 among them"),
        ({"views": [View(64)]}, "got 1; for one, leave views out"),
        ({"views": [View(64, count=0), View(32)]}, "count"),
        ({"views": [View(-1, count=2)]}, "size"),
        (
            {"views": [View(64, crop=fastpipe.FiveCrop()), View(32)]},
            r"views= does not go with crop= .* \(FiveCrop\)",
        ),
        ({"views": [View(64, crop="random"), View(32)]}, "fastpipe.RandomResizedCrop"),
        ({"views": [View(64, hflip=3), View(32)]}, "hflip"),
        (
            {"views": [View(), View(augment=fastpipe.Augment(mixup=0.2))]},
            "a batch has its labels once, for all views",
        ),
        (
            {
                "views": [
                    View(augment=fastpipe.Augment(label_smoothing=share)) for share in (0.1, 0.2)
                ]
            },
            "a batch has its labels once, for all views",
        ),
        (
            {"views": [View(), View(32)], "size": "bucket"},
            "images are shown whole, and sizes follow",
        ),
        (
            {"views": [View(), View(crop=fastpipe.Resize())], "size": "bucket"},
            "images are shown whole",
        ),
    ],
)
def test_wrong_views(flat: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loader_of(flat, **options)


def test_views_of_a_mixture_in_sizes_by_batch(large: Path, flat: Path) -> None:
    """The first view is the loader without views; the second one has the same sizes, and crops of its own."""
    mixture = fastpipe.mix({large: 0.4, flat: 0.6})
    options: dict[str, Any] = {"size_choices": [24, 32, 40], "epoch_size": 40, "num_workers": 2}
    with (
        fastpipe.loader(mixture, 4, views=2, **options) as loader,
        fastpipe.loader(mixture, 4, **options) as plain,
    ):
        for batch, expected in zip(loader, plain, strict=True):
            first, second = batch.images
            assert torch.equal(first, expected.images)
            assert torch.equal(batch.labels, expected.labels)
            assert second.shape == first.shape
            assert not torch.equal(second, first)
