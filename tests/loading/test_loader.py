"""Tests of the batches that a loader hands out: which samples, what pixels, what labels, the same for any threads."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.batches.epochs import epoch_of, numbers_of, same
from support.datasets.packed import pillow_picture
from support.pictures.drawn import FLAT_IMAGES, smooth_noise

import fastpipe
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions
from fastpipe.sources.picture.convert import EncodeOptions


def test_batches_have_the_promised_form(textured: Path) -> None:
    with fastpipe.loader(textured, 4, size=(20, 28), num_workers=2) as loader:
        assert loader.classes == ["class-0", "class-1"]
        batches = list(loader)
        assert len(batches) == len(loader) == 5
    for images, labels in batches:
        assert images.shape == (4, 3, 20, 28)
        assert images.dtype == torch.uint8
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert labels.shape == (4,)
        assert labels.dtype == torch.int64


def test_a_loader_says_what_scripts_ask_of_a_data_loader(textured: Path) -> None:
    with fastpipe.loader(textured, 4, size=8, num_workers=3) as loader:
        assert len(loader.dataset) == 23
        assert loader.dataset.classes == ["class-0", "class-1"]
        assert loader.dataset.class_to_idx == {"class-0": 0, "class-1": 1}
        assert loader.batch_size == 4
        assert (loader.num_workers, loader.prefetch_factor) == (0, None), "of worker processes"
        assert loader.stats().threads == 3
    assert fastpipe.open(textured).class_to_idx == {"class-0": 0, "class-1": 1}


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [10, 10, 10, 7]), (True, [10, 10, 10])])
def test_drop_last(flat: Path, drop_last: bool, sizes: list[int]) -> None:
    with fastpipe.loader(flat, 10, size=16, num_workers=2, drop_last=drop_last) as loader:
        assert len(loader) == len(sizes)
        assert [len(labels) for _, labels in loader] == sizes
        iterator = iter(loader)
        left = [len(iterator)]  # type: ignore[arg-type]
        for _ in iterator:
            left.append(len(iterator))  # type: ignore[arg-type]
        assert left == list(range(len(sizes), -1, -1))


def test_a_batch_may_be_the_whole_dataset_or_more(flat: Path) -> None:
    with fastpipe.loader(flat, 1000, size=16, num_workers=1, drop_last=False) as loader:
        (images, labels), *rest = list(loader)
    assert (len(images), len(labels), rest) == (FLAT_IMAGES, FLAT_IMAGES, [])
    with fastpipe.loader(flat, FLAT_IMAGES, size=16, num_workers=1) as loader:
        assert len(list(loader)) == 1


@pytest.mark.parametrize("train", [True, False])
def test_an_epoch_holds_each_sample_once_with_its_label(flat: Path, train: bool) -> None:
    with fastpipe.loader(flat, 5, size=16, train=train, drop_last=False, num_workers=2) as loader:
        for _ in range(3):
            images, labels = epoch_of(loader)
            numbers = numbers_of(images)
            assert sorted(numbers) == list(range(FLAT_IMAGES))
            assert labels.tolist() == [number % 3 for number in numbers]


def test_the_same_seed_gives_the_same_bytes_for_any_threads_and_prefetch(textured: Path) -> None:
    """And for any batch_size."""
    expected = None
    for workers, prefetch, batch_size in (
        (1, 1, 4),
        (2, 8, 4),
        (3, 1, 4),
        (8, 2, 4),
        (2, 2, 1),
        (2, 2, 23),
    ):
        options: dict[str, Any] = {"size": 24, "seed": 5, "drop_last": False}
        with fastpipe.loader(
            textured, batch_size, num_workers=workers, prefetch_factor=prefetch, **options
        ) as loader:
            got = (*epoch_of(loader), *epoch_of(loader))
        expected = expected or got
        assert same(got, expected), (workers, prefetch, batch_size)


@pytest.mark.parametrize("exact", [True, False])
def test_tiles_change_no_row(exact: bool, tmp_path: Path) -> None:
    """The same rows come of a source whatever the tiles that it was packed with."""
    for number, (width, height) in enumerate(
        [(320, 240), (240, 320), (400, 130), (97, 203), (64, 64), (350, 350)]
    ):
        for kind, (mode, options) in enumerate([("RGB", {"subsampling": number % 3}), ("L", {})]):
            (tmp_path / "source" / mode).mkdir(parents=True, exist_ok=True)
            picture = smooth_noise(width, height, seed=2 * number + kind, cell=20).convert(mode)
            picture.save(tmp_path / "source" / mode / f"{number}.jpg", quality=90, **options)
    expected = None
    sizes = set()
    for tile in (0, 16, 32, 10_000):
        packed = tmp_path / f"tile-{tile}"
        pack(tmp_path / "source", packed, PackOptions(EncodeOptions(tile=tile), workers=1))
        sizes.add(PackedIndex(packed).jpeg_bytes)
        got: tuple[torch.Tensor, ...] = ()
        for train, crop in [
            (True, None),
            (True, fastpipe.RandomResizedCrop(scale=(0.02, 0.3))),
            (False, None),
        ]:
            options = {
                "train": train,
                "crop": crop,
                "shuffle": False,
                "drop_last": False,
                "exact": exact,
            }
            with fastpipe.loader(packed, 4, size=40, num_workers=2, **options) as loader:
                got = (*got, *epoch_of(loader), *epoch_of(loader))
        expected = expected or got
        assert same(got, expected), tile
    assert len(sizes) >= 3, "tiles of 16 pixels may be too dear, but the others are there"


def test_epochs_and_seeds_differ(flat: Path) -> None:
    orders = []
    for seed in (0, 1):
        with fastpipe.loader(flat, 37, size=16, seed=seed, num_workers=2) as loader:
            orders += [tuple(numbers_of(epoch_of(loader)[0])) for _ in range(3)]
    assert len(set(orders)) == 6


def test_set_epoch_names_the_next_epoch(textured: Path) -> None:
    with fastpipe.loader(textured, 4, size=24, num_workers=2) as loader:
        epochs = [epoch_of(loader) for _ in range(4)]
        assert loader.stats().epoch == 3
        loader.set_epoch(2)
        assert same(epoch_of(loader), epochs[2])
        assert same(epoch_of(loader), epochs[3])  # and counts on
        loader.set_epoch(0)
        loader.set_epoch(1)
        assert same(epoch_of(loader), epochs[1])
    with fastpipe.loader(textured, 4, size=24, num_workers=2) as other:
        other.set_epoch(3)
        assert same(epoch_of(other), epochs[3])


def test_wrong_epochs(textured: Path) -> None:
    with fastpipe.loader(textured, 4, num_workers=1) as loader:
        for epoch in (-1, 1.5, "1", None, True, 2**64):
            with pytest.raises(fastpipe.ConfigError, match=r"^epoch:"):
                loader.set_epoch(epoch)  # type: ignore[arg-type]


def test_shuffle_is_a_choice_of_its_own(flat: Path) -> None:
    with fastpipe.loader(flat, 37, size=16, shuffle=False, num_workers=2) as loader:
        in_order = numbers_of(epoch_of(loader)[0])
        assert numbers_of(epoch_of(loader)[0]) == in_order
    with fastpipe.loader(flat, 37, size=16, train=False, num_workers=2) as loader:
        assert numbers_of(epoch_of(loader)[0]) == in_order
    with fastpipe.loader(flat, 37, size=16, train=False, shuffle=True, num_workers=2) as loader:
        assert numbers_of(epoch_of(loader)[0]) != in_order


def test_flips_mirror(textured: Path) -> None:
    options: dict[str, Any] = {"size": 24, "shuffle": False, "drop_last": False, "num_workers": 2}
    results = {}
    for hflip in (False, True, 1.0, 0.5, 0.3, None):
        with fastpipe.loader(textured, 23, hflip=hflip, **options) as loader:
            results[repr(hflip)] = epoch_of(loader)[0]
    plain, mirrored = results["False"], results["1.0"].flip(3)
    assert not torch.equal(plain, mirrored.flip(3))
    assert torch.equal(plain, mirrored)
    for name, least, most in (("True", 5, 18), ("0.3", 1, 13)):
        unchanged = [
            torch.equal(row, other) for row, other in zip(results[name], plain, strict=True)
        ]
        turned = [
            torch.equal(row.flip(2), other) for row, other in zip(results[name], plain, strict=True)
        ]
        assert all(a != b for a, b in zip(unchanged, turned, strict=True))
        assert least <= sum(turned) <= most
    assert torch.equal(results["None"], results["True"])
    assert torch.equal(results["0.5"], results["True"])


def assert_evaluates_as_torchvision(torchvision: ModuleType, dataset: Path, worst: float) -> None:
    transforms = torchvision.transforms
    transform = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    index = PackedIndex(dataset)
    with fastpipe.loader(dataset, 4, train=False, num_workers=2) as loader:
        images, labels = epoch_of(loader)
    assert torch.equal(labels, torch.from_numpy(index.records["label"].astype(np.int64)))
    assert len(images) == len(index)
    for sample, image in enumerate(images):
        expected = np.asarray(transform(pillow_picture(index, sample)))
        difference = np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected)
        assert difference.mean() < 0.5, sample
        assert difference.max() <= worst, sample


def test_evaluation_is_torchvisions(torchvision: ModuleType, large: Path, textured: Path) -> None:
    assert_evaluates_as_torchvision(torchvision, large, worst=3)
    assert_evaluates_as_torchvision(torchvision, textured, worst=3)  # all of them are enlarged


@pytest.mark.photos
def test_evaluation_is_torchvisions_on_photos(torchvision: ModuleType, packed_photos: Path) -> None:
    assert_evaluates_as_torchvision(torchvision, packed_photos, worst=4)


def test_exact_decodes_at_full_size(large: Path) -> None:
    """By default crops of at least twice the output's size are decoded at reduced size: nearly the same pixels."""
    crop = fastpipe.RandomResizedCrop(scale=(0.5, 1.0))
    results = {}
    for exact in (True, False):
        with fastpipe.loader(large, 6, size=48, crop=crop, exact=exact, num_workers=2) as loader:
            results[exact] = epoch_of(loader)
    assert torch.equal(results[True][1], results[False][1])
    difference = (results[True][0].int() - results[False][0].int()).abs().float()
    assert difference.max() > 0
    assert difference.mean() < 4
    assert abs(results[True][0].float().mean() - results[False][0].float().mean()) < 0.5


def test_where_nothing_is_shrunk_much_all_is_exact_anyway(large: Path, textured: Path) -> None:
    """Small crops, and evaluation."""
    for data, options in (
        (textured, {"size": 96}),
        (large, {"size": 32, "train": False}),
        (large, {"size": 32, "train": False, "crop": fastpipe.Resize()}),
    ):
        results = []
        for exact in (True, False):
            with fastpipe.loader(data, 6, exact=exact, num_workers=2, **options) as loader:
                results.append(epoch_of(loader))
        assert same(*results)
