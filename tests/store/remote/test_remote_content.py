"""A part of a dataset behind a URL, and samples that come again: the batches of the folder, and no byte more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
CHOSEN: dict[str, Choose] = {
    "samples": lambda data: data.select(range(0, IMAGES, 7)),
    "classes": lambda data: data.only(["class-3", "class-1"]),
    "a fold": lambda data: data.fold(1, of=3)[0],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "weights": {"sampler": fastpipe.Weighted({"class-2": 7})},
    "no replacement": {"sampler": fastpipe.Weighted(np.arange(IMAGES), replacement=False), "epoch_size": 50},
    "classes by turns": {"sampler": fastpipe.PerClass(8)},
    "a list": {"sampler": lambda epoch: np.arange(IMAGES)[epoch::2]},
    "short epochs": {"epoch_size": 50},
    "long epochs": {"epoch_size": 340},
    "buckets": {"size": fastpipe.Buckets(area=32 * 32)},
    "views": {"views": [fastpipe.View(), fastpipe.View(16, crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.14)))]},
}


LIMITS = (0, "6MB", "1GB")


def each_with_a_limit(names: Iterable[str]) -> list[tuple[str, Any]]:
    """The limits by turns."""
    return list(zip(names, cycle(LIMITS), strict=False))


@pytest.mark.parametrize(("name", "limit"), each_with_a_limit(OPTIONS))
def test_batches_are_those_of_the_folder(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, name: str, limit: Any
) -> None:
    options = OPTIONS[name]
    with (
        open_remote(remote_packed, drop_last=False, **options) as local,
        open_remote(range_server.url, drop_last=False, cache_limit=limit, **options) as remote,
    ):
        assert digests(remote, 2) == digests(local, 2)


@pytest.mark.parametrize(("name", "limit"), each_with_a_limit(CHOSEN))
def test_batches_of_a_part_are_those_of_the_folder(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, tmp_path: Path, name: str, limit: Any
) -> None:
    choose = CHOSEN[name]
    remote = fastpipe.open(range_server.url, cache_dir=tmp_path, cache_limit=limit)
    with (
        open_remote(choose(fastpipe.open(remote_packed)), drop_last=False) as ours,
        open_remote(choose(remote), drop_last=False) as theirs,
    ):
        assert digests(theirs, 2) == digests(ours, 2)


def test_ranks_get_the_rows_of_the_folder(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, tmp_path: Path
) -> None:
    options = {"sampler": fastpipe.Repeated(2), "drop_last": False, "world_size": 3}
    remote = fastpipe.open(range_server.url, cache_dir=tmp_path, cache_limit=0)
    even = range(0, IMAGES, 2)
    for rank in range(3):
        with (
            open_remote(fastpipe.open(remote_packed).select(even), rank=rank, **options) as ours,
            open_remote(remote.select(even), rank=rank, **options) as theirs,
        ):
            assert digests(theirs) == digests(ours)


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
