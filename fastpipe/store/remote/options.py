"""What a user passes as a dataset, and beside it -> a URL, or a folder of this machine; checked options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fastpipe.errors import ConfigError, positive, size_bytes
from fastpipe.format.folder import Url, scheme_of
from fastpipe.machine.cache_folder import cache_folder

BUCKETS = "s3", "gs", "az"
_SCHEMES = *BUCKETS, "http", "https", "hf"


def place_of(data: object) -> object:
    """A Url or, of file://, a Path; else `data` as it is. ConfigError: a URL that nobody here reads."""
    if not isinstance(data, str) or not (scheme := scheme_of(data)):
        return data
    if scheme == "file":
        parts = urlsplit(data)
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"data: expected file:///FOLDER, got {data!r}, which names the host {parts.netloc!r}")
        if parts.query or parts.fragment:
            raise ConfigError(
                f"data: {data!r} has a query or a fragment, but file:// names a folder; write %3F for ? and %23 for #, "
                "or pass the folder without file://"
            )
        return Path(unquote(parts.path))
    if scheme not in _SCHEMES:
        known = ", ".join(f"{each}://" for each in (*_SCHEMES, "file"))
        raise ConfigError(f"data: {data!r} has the scheme {scheme}://, which fastpipe cannot read; it reads {known}")
    url, rest = Url(data.rstrip("/")), Url(data).path.strip("/")
    if scheme == "hf" and (not rest.startswith("datasets/") or rest.count("/") < 2):
        raise ConfigError(f"data: expected hf://datasets/ORG/NAME/FOLDER, got {data!r}")
    if not rest:
        raise ConfigError(f"data: expected {scheme}://BUCKET/FOLDER, got {data!r}")
    if scheme in BUCKETS and not {"", ".", ".."}.isdisjoint(url.path.split("/")):
        raise ConfigError(
            f"data: {data!r} has an empty name between slashes, or a name . or ..; expected {scheme}://BUCKET/FOLDER "
            "with one slash between names"
        )
    host = rest.split("/")[0]
    if "@" in host and url.is_web:
        raise ConfigError(
            f"data: the URL of {host.rpartition('@')[2]} has a user name or a password, which messages would show; "
            'leave them out, and pass storage_options={"client_options": {"default_headers": {"authorization": "Basic '
            '..."}}}'
        )
    if "?" in rest or "#" in rest:
        raise ConfigError(
            f"data: {data!r} has a query or a fragment, but names of files are put behind a URL; pass the URL of the "
            "folder, and credentials by storage_options="
        )
    return url


@dataclass(frozen=True)
class RemoteOptions:
    """How a remote dataset is read."""

    cache_dir: Path = field(default_factory=lambda: cache_folder() / "shards")
    cache_limit: int = 200 * 10**9  # bytes on the disk; 0: no shard is kept
    storage: Mapping[str, Any] = field(default_factory=dict)  # of obstore's store: credentials, region, endpoint
    read_timeout_s: float = 20.0  # without a byte, after which a request is made again

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
    """Checks the four, for `data` as users pass it, or some URL. ConfigError: one is wrong, or no URL is there."""
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
