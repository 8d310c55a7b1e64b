"""What is wanted when a plan ends early: what was queued for it alone is forgotten, and fetched again when due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.remote.cases import digests
from support.remote.range_server import RangeServer

from fastpipe.store.remote import fetcher


@pytest.mark.parametrize("cache_limit", [0, "1GB"])
def test_an_epoch_that_ends_early_leaves_nothing_that_never_comes(
    range_server: RangeServer,
    open_remote: Callable[..., Any],
    local_digests: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    cache_limit: int | str,
) -> None:
    monkeypatch.setattr(fetcher, "MIN_REQUESTS", 1)  # requests at a time, so that most ranges wait
    range_server.latency_s = 0.02
    with open_remote(range_server.url, cache_limit=cache_limit) as loader:
        for epoch in (1, 2, 3):
            loader.set_epoch(epoch)
            next(iter(loader))
            assert loader.stats().ranges_waiting > 0
        loader.set_epoch(0)
        assert digests(loader) == local_digests()
