"""A part of a dataset behind a URL, and samples that come again: the batches of the folder, and no byte more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.remote.cases import IMAGES, digests
from support.remote.range_server import RangeServer

import fastpipe
from fastpipe.store.remote.blocks import BLOCK_BYTES

Loaders = Callable[..., Any]
Choose = Callable[[fastpipe.Dataset], fastpipe.Dataset]


def whole(data: fastpipe.Dataset) -> fastpipe.Dataset:
    return data


def a_part(data: fastpipe.Dataset) -> fastpipe.Dataset:
    return data.select(range(0, IMAGES, 7))


CASES: dict[str, tuple[Choose, dict[str, Any]]] = {
    "samples": (a_part, {}),
    "classes": (lambda data: data.only(["class-3", "class-1"]), {}),
    "a fold": (lambda data: data.fold(1, of=3)[0], {}),
    "evaluation": (whole, {"train": False}),
    "five crops": (a_part, {"crop": fastpipe.FiveCrop(), "train": False, "shuffle": True}),
    "repeats for a rank": (a_part, {"sampler": fastpipe.Repeated(2), "rank": 1, "world_size": 3}),
    "weights": (whole, {"sampler": fastpipe.Weighted({"class-2": 7})}),
    "no replacement": (
        whole,
        {"sampler": fastpipe.Weighted(np.arange(IMAGES), replacement=False), "epoch_size": 50},
    ),
    "classes by turns": (whole, {"sampler": fastpipe.PerClass(8)}),
    "a list": (whole, {"sampler": lambda epoch: np.arange(IMAGES)[epoch::2]}),
    "short epochs": (whole, {"epoch_size": 50}),
    "long epochs": (whole, {"epoch_size": 340}),
    "buckets": (whole, {"size": fastpipe.Buckets(area=32 * 32)}),
    "views": (
        whole,
        {
            "views": [
                fastpipe.View(),
                fastpipe.View(16, crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.14))),
            ]
        },
    ),
}


@pytest.mark.parametrize(
    ("name", "limit"), list(zip(CASES, cycle([0, "6MB", "1GB"]), strict=False))
)
def test_batches_are_those_of_the_folder(
    remote_packed: Path,
    range_server: RangeServer,
    open_remote: Loaders,
    tmp_path: Path,
    name: str,
    limit: Any,
) -> None:
    """Limits of the cache by turns."""
    choose, options = CASES[name]
    remote = fastpipe.open(range_server.url, cache_dir=tmp_path, cache_limit=limit)
    with (
        open_remote(choose(fastpipe.open(remote_packed)), drop_last=False, **options) as ours,
        open_remote(choose(remote), drop_last=False, **options) as theirs,
    ):
        assert digests(theirs, 2) == digests(ours, 2)


@pytest.mark.parametrize(
    ("choose", "options"),
    [
        (lambda data: data.select(range(0, IMAGES, 10)), {}),
        (lambda data: data, {"epoch_size": 16}),
        (lambda data: data, {"sampler": lambda _: range(0, IMAGES, 10)}),
    ],
    ids=["subset", "short", "list"],
)
def test_only_what_is_needed_is_fetched(
    range_server: RangeServer,
    open_remote: Loaders,
    remote_bytes: int,
    tmp_path: Path,
    choose: Choose,
    options: dict[str, Any],
) -> None:
    """A tenth of the samples; their first batch is fetched alone, and twice at most."""
    data = choose(fastpipe.open(range_server.url, cache_dir=tmp_path, cache_limit=0))
    with open_remote(data, drop_last=False, **options) as loader:
        digests(loader)
        assert loader.stats().fetched_bytes < 0.25 * remote_bytes


def test_a_sample_of_several_blocks(tmp_path: Path, open_remote: Loaders) -> None:
    source, packed = tmp_path / "source", tmp_path / "packed"
    source.mkdir()
    rng = np.random.default_rng(0)
    for name, side in (("a", 30), ("large", 1300), ("z", 30)):
        picture = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        picture.save(source / f"{name}.jpg", quality=95, subsampling=0)
    fastpipe.pack(source, packed)
    assert fastpipe.open(packed).index.records["size"].max() > 3 * BLOCK_BYTES
    options = {"batch_size": 1, "size": 32, "num_workers": 1}
    with fastpipe.loader(packed, **options) as local, RangeServer(packed) as server:
        expected = digests(local, 2)
        for limit in (0, "2MB", "1GB"):
            remote = fastpipe.open(server.url, cache_dir=tmp_path / str(limit), cache_limit=limit)
            with fastpipe.loader(remote, **options) as loader:
                assert digests(loader, 2) == expected
