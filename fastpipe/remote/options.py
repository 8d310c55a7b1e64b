"""The arguments of a remote dataset -> checked values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastpipe.checks import positive, size_bytes
from fastpipe.errors import ConfigError
from fastpipe.format.folder import Url
from fastpipe.machine.cache_folder import cache_folder
from fastpipe.remote.urls import place_of


@dataclass(frozen=True)
class RemoteOptions:
    """How a remote dataset is read.

    Attributes:
        cache_dir: folder of the cache.
        cache_limit: bytes that it may take on the disk; 0: no shard is kept.
        storage: options of obstore's store: credentials, region, endpoint.
        read_timeout_s: seconds without a byte after which a request is made again.
    """

    cache_dir: Path = field(default_factory=lambda: cache_folder() / "shards")
    cache_limit: int = 200 * 10**9
    storage: Mapping[str, Any] = field(default_factory=dict)
    read_timeout_s: float = 20.0

    @property
    def patience_s(self) -> float:
        """How long a range is tried: 180 s by default."""
        return 9 * self.read_timeout_s


def remote_options(
    cache_dir: str | os.PathLike[str] | None,
    cache_limit: object,
    storage_options: object,
    read_timeout: object,
    *data: object,
) -> RemoteOptions:
    """Checks the four.

    Args:
        data: what they are for, as users pass it; nothing: some URL.

    Raises:
        ConfigError: one is wrong, or is given though no data is behind a URL.
    """
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ConfigError(
            "storage_options: expected a dict as obstore's stores take it, for example {'skip_signature': True} or "
            f"{{'region': 'eu-west-1'}}, got {type(storage_options).__name__}"
        )
    if cache_dir is not None and (not isinstance(cache_dir, (str, os.PathLike)) or cache_dir == ""):
        raise ConfigError(f"cache_dir: expected a folder, got {cache_dir!r}")
    found = RemoteOptions(
        RemoteOptions().cache_dir if cache_dir is None else Path(os.path.abspath(os.path.expanduser(cache_dir))),
        size_bytes("cache_limit", cache_limit),
        dict(storage_options or {}),
        positive("read_timeout", read_timeout),
    )
    given = {
        "cache_dir": cache_dir is not None,
        "cache_limit": found.cache_limit != RemoteOptions.cache_limit,
        "storage_options": bool(found.storage),
        "read_timeout": found.read_timeout_s != RemoteOptions.read_timeout_s,
    }
    if data and any(given.values()) and not any(isinstance(place_of(each), Url) for each in data):
        names = ", ".join(f"{name}=" for name in given if given[name])
        raise ConfigError(
            f"{names}: expected the URL of a dataset, because only such a dataset is fetched and cached, got "
            f"{', '.join(map(str, data))}. Leave that out, or pass the dataset's URL"
        )
    return found
