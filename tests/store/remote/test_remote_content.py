"""A part of a dataset behind a URL, and samples that come again: the batches of the folder, and no byte more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.remote.cases import digests
from support.remote.range_server import RangeServer

import fastpipe

Loaders = Callable[..., Any]
Choose = Callable[[fastpipe.Dataset], fastpipe.Dataset]
CHOSEN: dict[str, Choose] = {
    "samples": lambda data: data.select(range(0, 300, 7)),
    "a function of columns": lambda data: data.select(lambda column: column["id"] % 3 == 0),
    "classes": lambda data: data.only(["class-3", "class-1"]),
    "a part": lambda data: data.take(0.5),
    "a fold": lambda data: data.fold(1, of=3)[0],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "weights": {"sampler": fastpipe.Weighted({"class-2": 7})},
    "sample weights": {"sampler": fastpipe.Weighted(np.arange(300) % 5)},
    "no replacement": {"sampler": fastpipe.Weighted(np.arange(300), replacement=False), "epoch_size": 100},
    "repeats": {"sampler": fastpipe.Repeated(3)},
    "classes by turns": {"sampler": fastpipe.PerClass(8)},
    "a list": {"sampler": lambda epoch: np.arange(300)[epoch::2]},
    "short epochs": {"epoch_size": 100},
    "long epochs": {"epoch_size": 650},
    "buckets": {"size": fastpipe.Buckets(area=32 * 32)},
    "views": {"views": [fastpipe.View(), fastpipe.View(16, crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.14)))]},
}


LIMITS = (0, "10MB", "1GB")


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
    even = range(0, 300, 2)
    for rank in range(3):
        with (
            open_remote(fastpipe.open(remote_packed).select(even), rank=rank, **options) as ours,
            open_remote(remote.select(even), rank=rank, **options) as theirs,
        ):
            assert digests(theirs) == digests(ours)


@pytest.mark.parametrize(
    ("choose", "options"),
    [
        (lambda data: data.select(range(0, 300, 10)), {}),
        (lambda data: data, {"epoch_size": 32}),
        (lambda data: data, {"sampler": lambda _: range(0, 300, 10)}),
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
