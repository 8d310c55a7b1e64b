"""A remote dataset gives the batches of the local folder, bit by bit, whatever its cache keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from remote.cases import BATCH, digest, digests
from remote.range_server import RangeServer

Loaders = Callable[..., Any]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 2.0])
def test_batches_are_those_of_the_folder(
    source: Path, server: RangeServer, open_loader: Loaders, size: int, share: float
) -> None:
    with open_loader(source) as local, open_loader(server.url, cache_limit=int(share * size)) as remote:
        assert digests(remote, 2) == digests(local, 2)


@pytest.mark.parametrize("share", [0.1, 2.0])
@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks(source: Path, server: RangeServer, open_loader: Loaders, size: int, ranks: int, share: float) -> None:
    with ExitStack() as stack:
        options = [{"rank": rank, "world_size": ranks} for rank in range(ranks)]
        local = [stack.enter_context(open_loader(source, **each, prefetch_factor=1)) for each in options]
        limit = int(share * size)
        remote = [stack.enter_context(open_loader(server.url, **each, cache_limit=limit)) for each in options]
        assert BATCH * ranks <= 300
        for _ in range(2):
            for together in zip(*remote, *local, strict=True):
                found = [digest(batch) for batch in together]
                assert found[:ranks] == found[ranks:]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_resumed_in_the_middle(
    source: Path, server: RangeServer, open_loader: Loaders, size: int, share: float
) -> None:
    limit = int(share * size)
    with open_loader(source) as local:
        expected = digests(local, 2)
    with open_loader(server.url, cache_limit=limit) as first:
        batches = iter(first)
        found = [digest(next(batches)) for _ in range(4)]
        state = first.state_dict()
    with open_loader(server.url, cache_limit=limit) as second:
        second.load_state_dict(state)
        assert found + digests(second, 2) == expected


def test_evaluation_with_a_part_batch(source: Path, server: RangeServer, open_loader: Loaders) -> None:
    with open_loader(source, train=False) as local, open_loader(server.url, train=False, cache_limit=0) as remote:
        assert digests(remote) == digests(local)


def test_nodes_fetch_their_own_part(source: Path, server: RangeServer, open_loader: Loaders, size: int) -> None:
    options = {"rank": 1, "world_size": 2, "partition": "node", "canonical_nodes": 2}
    with open_loader(source, **options) as local, open_loader(server.url, **options, cache_limit=0) as remote:
        assert digests(remote) == digests(local)
        assert sum(sent for name, sent in server.sent_by_name.items() if "shard" in name) < 0.56 * size
        assert digests(remote) == digests(local)
