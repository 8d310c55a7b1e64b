"""A remote dataset gives the batches of the local folder, bit by bit, whatever its cache keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.remote.cases import BATCH, IMAGES, digest, digests
from support.remote.range_server import RangeServer
from support.running.soak import Tried, long_form

import fastpipe

Loaders = Callable[..., Any]


RANKS, SHARES = (1, 2, 8), (0.0, 0.1, 0.5, 2.0)
# The shares of the dataset that the cache may keep. `make soak` tries all of them with each number of ranks.
CHOSEN = list(product(RANKS, SHARES)) if long_form() else [(1, 0.0), (2, 0.1), (8, 2.0)]


@pytest.mark.parametrize(("ranks", "share"), CHOSEN)
def test_batches_are_those_of_the_folder(
    remote_packed: Path,
    range_server: RangeServer,
    open_remote: Loaders,
    remote_bytes: int,
    ranks: int,
    share: float,
    tried: Tried,
) -> None:
    assert BATCH * ranks <= IMAGES
    options = [{"rank": rank, "world_size": ranks, "prefetch_factor": 1} for rank in range(ranks)]
    with ExitStack() as stack:
        local = [stack.enter_context(open_remote(remote_packed, **each)) for each in options]
        expected = [
            [digest(batch) for batch in rows] for _ in range(2) for rows in zip(*local, strict=True)
        ]
    with ExitStack() as stack:
        limit = int(share * remote_bytes)
        remote = [
            stack.enter_context(open_remote(range_server.url, **each, cache_limit=limit))
            for each in options
        ]
        found = [
            [digest(batch) for batch in rows]
            for _ in range(2)
            for rows in zip(*remote, strict=True)
        ]
    assert found == expected
    tried(
        "remote: 2 epochs with 1, 2 and 8 ranks, and a cache of 0, 10, 50 and 200 % of the data",
        1,
        "the batches of the local dataset",
    )


def test_resumed_in_the_middle(
    local_digests: Callable[..., list[str]], range_server: RangeServer, open_remote: Loaders
) -> None:
    with open_remote(range_server.url, cache_limit="6MB") as first:
        batches = iter(first)
        found = [digest(next(batches)) for _ in range(4)]
        state = first.state_dict()
    with open_remote(range_server.url, cache_limit="6MB") as second:
        second.load_state_dict(state)
        assert found + digests(second, 2) == local_digests(2)


def test_nodes_fetch_their_own_part(
    remote_packed: Path, range_server: RangeServer, open_remote: Loaders, remote_bytes: int
) -> None:
    options = {"rank": 1, "world_size": 2, "partition": 2}
    with (
        open_remote(remote_packed, **options) as local,
        open_remote(range_server.url, **options, cache_limit=0) as remote,
    ):
        assert digests(remote) == digests(local)
        assert (
            sum(sent for name, sent in range_server.sent_by_name.items() if "shard" in name)
            < 0.56 * remote_bytes
        )
        assert digests(remote) == digests(local)


def test_single_crops(remote_packed: Path, range_server: RangeServer, tmp_path: Path) -> None:
    local, remote = (
        data.cropped(fastpipe.RandomResizedCrop(), 32, hflip=True)
        for data in (
            fastpipe.open(remote_packed),
            fastpipe.open(range_server.url, cache_dir=tmp_path / "cache"),
        )
    )
    for dataset in (local, remote):
        dataset.set_epoch(1)
    assert all(local[sample][0].equal(remote[sample][0]) for sample in range(5))
