"""A part of a dataset behind a URL, and samples that come again: the batches of the folder, and no byte more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remote.cases import digests
from remote.range_server import RangeServer

import fastpipe

Loaders = Callable[..., Any]
OPTIONS: dict[str, dict[str, Any]] = {
    "samples": {"samples": range(0, 300, 7)},
    "classes": {"classes": ["class-3", "class-1"]},
    "weights": {"weights": {"class-2": 7}},
    "sample weights": {"weights": np.arange(300) % 5},
    "no replacement": {"weights": np.arange(300), "replacement": False, "epoch_size": 100},
    "repeats": {"repeats": 3},
    "short epochs": {"epoch_size": 100},
    "long epochs": {"epoch_size": 650},
    "buckets": {"size": fastpipe.Buckets(area=32 * 32)},
    "views": {"views": [fastpipe.View(), fastpipe.View(16, crop=fastpipe.RandomResizedCrop(scale=(0.05, 0.14)))]},
}


@pytest.mark.parametrize("limit", [0, "10MB", "1GB"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_batches_are_those_of_the_folder(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, options: dict[str, Any], limit: Any
) -> None:
    with (
        open_remote(remote_packed, drop_last=False, **options) as local,
        open_remote(range_server.url, drop_last=False, cache_limit=limit, **options) as remote,
    ):
        assert digests(remote, 2) == digests(local, 2)


def test_ranks_get_the_rows_of_the_folder(remote_packed: Path, range_server: RangeServer, open_remote: Loaders) -> None:
    options = {"samples": range(0, 300, 2), "repeats": 2, "drop_last": False, "world_size": 3}
    for rank in range(3):
        with (
            open_remote(remote_packed, rank=rank, **options) as local,
            open_remote(range_server.url, rank=rank, cache_limit=0, **options) as remote,
        ):
            assert digests(remote) == digests(local)


@pytest.mark.parametrize("options", [{"samples": range(0, 300, 10)}, {"epoch_size": 32}], ids=["subset", "short"])
def test_only_what_is_needed_is_fetched(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int, options: dict[str, Any]
) -> None:
    """A tenth of the samples; their first batch is fetched alone, and twice at most."""
    with open_remote(range_server.url, drop_last=False, cache_limit=0, **options) as loader:
        digests(loader)
        assert loader.stats().fetched_bytes < 0.25 * remote_bytes
