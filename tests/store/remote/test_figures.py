"""What stats(), the monitor, Prometheus and the log say of a remote dataset."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remote.cases import digests
from support.remote.range_server import RangeServer

from fastpipe.engine.stats import Stats
from fastpipe.loading.monitor import describe

Loaders = Callable[..., Any]


def test_stats_count_what_the_server_sent(
    range_server: RangeServer, open_remote: Loaders, remote_bytes: int
) -> None:
    range_server.latency_s = 0.03
    with open_remote(range_server.url, drop_last=False) as loader:
        before = len(range_server.requests)
        digests(loader)
        stats = loader.stats()
        assert stats.fetched_bytes == sum(
            sent for name, sent in range_server.sent_by_name.items() if "shard" in name
        )
        assert stats.requests == len(range_server.requests) - before
        assert (stats.retries, stats.cache_hit_bytes, stats.ring_bytes) == (0, 0, 0)
        assert 0.02 < stats.fetch_wait_s <= stats.wait_s
        digests(loader)
        again = loader.stats().since(stats)
        assert again.fetched_bytes == 0
        assert again.cache_hit_bytes > 0.8 * remote_bytes
        assert (again.requests_under_way, again.ranges_waiting) == (0, 0)


def test_the_monitor_has_a_line_on_the_network() -> None:
    done = Stats(
        requests=9,
        retries=2,
        fetched_bytes=30_000_000,
        cache_hit_bytes=90_000_000,
        requests_under_way=4,
    )
    words = describe(Stats(), done, 2.0, 10)
    assert (
        words["network"]
        == "15 MB/s, 4 requests under way; 75% from the cache; 2 requests made again"
    )
    assert "network" not in describe(Stats(), Stats(), 2.0, 10)
    waiting = describe(
        Stats(), Stats(load_s=1.0, step_s=2.0, wait_s=1.0, fetch_wait_s=0.9), 2.0, 10
    )
    assert "most of it for the network" in waiting["loop"]


def test_several_nodes_are_told_what_they_fetch(
    range_server: RangeServer,
    open_remote: Loaders,
    remote_packed: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")

    def told(data: object, **options: Any) -> list[str]:
        caplog.clear()
        with (
            caplog.at_level(logging.WARNING, "fastpipe"),
            open_remote(data, world_size=4, **options),
        ):
            return [record.message for record in caplog.records]

    (text,) = told(range_server.url, rank=0)
    assert "2 nodes" in text
    assert 'fastpipe.loader(..., partition="node")' in text
    assert not told(range_server.url, rank=1)
    assert not told(range_server.url, rank=0, partition="node")
    assert not told(remote_packed, rank=0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert not told(range_server.url, rank=0)
