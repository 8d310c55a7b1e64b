"""A remote dataset gives the batches of the local folder, bit by bit, whatever its cache keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from remote.cases import BATCH, digest, digests
from remote.range_server import RangeServer

import fastpipe

Loaders = Callable[..., Any]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 2.0])
def test_batches_are_those_of_the_folder(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int, share: float
) -> None:
    with (
        open_remote(remote_packed) as local,
        open_remote(range_server.url, cache_limit=int(share * remote_bytes)) as remote,
    ):
        assert digests(remote, 2) == digests(local, 2)


@pytest.mark.parametrize("share", [0.1, 2.0])
@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int, ranks: int, share: float
) -> None:
    with ExitStack() as stack:
        options = [{"rank": rank, "world_size": ranks} for rank in range(ranks)]
        local = [stack.enter_context(open_remote(remote_packed, **each, prefetch_factor=1)) for each in options]
        limit = int(share * remote_bytes)
        remote = [stack.enter_context(open_remote(range_server.url, **each, cache_limit=limit)) for each in options]
        assert BATCH * ranks <= 300
        for _ in range(2):
            for together in zip(*remote, *local, strict=True):
                found = [digest(batch) for batch in together]
                assert found[:ranks] == found[ranks:]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_resumed_in_the_middle(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int, share: float
) -> None:
    limit = int(share * remote_bytes)
    with open_remote(remote_packed) as local:
        expected = digests(local, 2)
    with open_remote(range_server.url, cache_limit=limit) as first:
        batches = iter(first)
        found = [digest(next(batches)) for _ in range(4)]
        state = first.state_dict()
    with open_remote(range_server.url, cache_limit=limit) as second:
        second.load_state_dict(state)
        assert found + digests(second, 2) == expected


def test_evaluation_with_a_part_batch(remote_packed: Path, range_server: RangeServer, open_remote: Loaders) -> None:
    with (
        open_remote(remote_packed, train=False) as local,
        open_remote(range_server.url, train=False, cache_limit=0) as remote,
    ):
        assert digests(remote) == digests(local)


def test_nodes_fetch_their_own_part(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int
) -> None:
    options = {"rank": 1, "world_size": 2, "partition": "node", "canonical_nodes": 2}
    with (
        open_remote(remote_packed, **options) as local,
        open_remote(range_server.url, **options, cache_limit=0) as remote,
    ):
        assert digests(remote) == digests(local)
        assert sum(sent for name, sent in range_server.sent_by_name.items() if "shard" in name) < 0.56 * remote_bytes
        assert digests(remote) == digests(local)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_several_crops_of_each_image(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int, share: float
) -> None:
    options: dict[str, Any] = {"crop": fastpipe.TenCrop(), "train": False, "shuffle": True}
    with (
        open_remote(remote_packed, **options) as local,
        open_remote(range_server.url, cache_limit=int(share * remote_bytes), **options) as remote,
    ):
        assert digests(remote, 2) == digests(local, 2)


def test_single_crops(remote_packed: Path, range_server: RangeServer, tmp_path: Path) -> None:
    options: dict[str, Any] = {"crop": fastpipe.RandomResizedCrop(), "size": 32, "hflip": True}
    local = fastpipe.Dataset(remote_packed, **options)
    remote = fastpipe.Dataset(range_server.url, cache_dir=tmp_path / "cache", **options)
    for dataset in (local, remote):
        dataset.set_epoch(1)
    assert all(local[sample][0].equal(remote[sample][0]) for sample in range(5))
