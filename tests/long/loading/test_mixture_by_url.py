"""Epochs of mixtures whose datasets lie behind URLs, with caches that keep all, some or nothing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.pictures.drawn import smooth_noise
from support.remote.range_server import RangeServer

import fastpipe

Row = tuple[int, bytes]


def loader_of(data: Any, batch_size: int, **options: Any) -> fastpipe.Loader:
    return fastpipe.loader(data, batch_size, **{"size": 12, "num_workers": 1, **options})


def rows_of(batch: Any) -> list[Row]:
    pixels = [image.contiguous().numpy().tobytes() for image in batch.images]
    return list(zip(batch.ids.tolist(), pixels, strict=True))


@pytest.mark.parametrize("limit", [0, "12MB", "1GB"])
def test_datasets_behind_urls(
    flat: Path, many_shards: Path, remote_packed: Path, range_server: RangeServer, tmp_path: Path, limit: Any
) -> None:
    """Some behind URLs, and some not, in any order; a cache that keeps all, some or nothing."""
    options = {"seed": 3, "epoch_size": 400}
    with RangeServer(many_shards) as other:
        first, last = (
            fastpipe.open(each.url, cache_dir=tmp_path / "cache", cache_limit=limit) for each in (other, range_server)
        )
        with (
            loader_of(fastpipe.mix({many_shards: 1, flat: 1, remote_packed: 2}), 16, **options) as local,
            loader_of(fastpipe.mix({first: 1, flat: 1, last: 2}), 16, **options) as remote,
        ):
            for _ in range(2):
                for mine, theirs in zip(remote, local, strict=True):
                    assert rows_of(mine) == rows_of(theirs)
                    assert torch.equal(mine.labels, theirs.labels)
            assert {True} == {any("shard" in name for name in each.sent_by_name) for each in (other, range_server)}
            assert remote.stats().fetched_bytes > 0


def test_photos_as_they_lie_beside_a_url(
    many_shards: Path, remote_packed: Path, range_server: RangeServer, tmp_path: Path
) -> None:
    """Some of them are no JPEGs, so they are converted while the shards are fetched."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(20):
        smooth_noise(40 + number, 90 - number, seed=number).save(photos / f"{number}.{'bmp' if number % 3 else 'jpg'}")
    there = fastpipe.open(range_server.url, cache_dir=tmp_path / "cache", cache_limit=0)
    for names in ({"verify": True}, {}):
        options = {"seed": 3, "epoch_size": 320, **names}
        with (
            loader_of(fastpipe.mix({remote_packed: 1, photos: 1, many_shards: 1}), 16, **options) as local,
            loader_of(fastpipe.mix({there: 1, photos: 1, many_shards: 1}), 16, **options) as remote,
        ):
            for _ in range(2):
                for mine, theirs in zip(remote, local, strict=True):
                    assert rows_of(mine) == rows_of(theirs)
            assert min(remote.stats().images_converted, local.stats().images_converted) > 0
            assert remote.stats().fetched_bytes > 0
