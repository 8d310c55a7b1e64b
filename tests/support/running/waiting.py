"""Waits for what only a hang would keep from coming."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fastpipe.store.remote.cache_root import datasets, in_use


def wait_until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300.0
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_unused(cache: Path) -> None:
    """Until closed loaders have let go of all datasets in a cache."""
    wait_until(lambda: not any(in_use(folder) for folder in datasets(cache)))
