"""A dataset as the user passes it -> a URL, or a folder of this machine; checked options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fastpipe.dataset.format.folder import Url, check_local, scheme_of
from fastpipe.errors import ConfigError, nearest_name, positive, size_bytes
from fastpipe.machine.cache_folder import cache_folder

# The schemes of URLs that fastpipe can write to, and all that it can read.
BUCKETS = ("s3", "gs", "az")
_SCHEMES = (*BUCKETS, "http", "https", "hf")


def place_of(data: object) -> object:
    """A Url for a URL, a Path for file://, and any other value as it is.

    Raises:
        ConfigError: fastpipe cannot read the URL, or it has one slash.
    """
    if not isinstance(data, str):
        return data
    _refuse_single_slash(data)
    scheme = scheme_of(data)
    if not scheme:
        return data
    if scheme == "file":
        return _path_of_file_url(data)
    if scheme not in _SCHEMES:
        schemes = [*_SCHEMES, "file"]
        readable = ", ".join(f"{known}://" for known in schemes)
        near = nearest_name(scheme, _SCHEMES)
        rest = data.partition("://")[2]
        meant = ""
        if near is not None:
            meant = f"; did you mean '{near}://{rest}'?"
        raise ConfigError(
            f"{data!r} has the scheme {scheme}://, which fastpipe cannot read; it reads "
            f"{readable}{meant}"
        )
    url = Url(data.rstrip("/"))
    _check_url(url, scheme, data)
    return url


def _refuse_single_slash(data: str) -> None:
    """Raises ConfigError for s3:/bucket/folder, which would make a folder "s3:" here."""
    scheme, _, rest = data.partition(":/")
    if scheme.lower() in _SCHEMES and not rest.startswith("/"):
        raise ConfigError(
            f"{data!r} has one slash behind {scheme}:, and a URL has two: pass "
            f"'{scheme}://{rest}'. A folder of this name is './{data}'"
        )


def _path_of_file_url(data: str) -> Path:
    parts = urlsplit(data)
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"data: expected file:///FOLDER, got {data!r}, which names the host {parts.netloc!r}"
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            f"data: {data!r} has a query or a fragment, but file:// names a folder; write %3F for "
            "? and %23 for #, or pass the folder without file://"
        )
    return Path(unquote(parts.path))


def _check_url(url: Url, scheme: str, data: str) -> None:
    """Raises ConfigError if a URL cannot name a folder. `data` is the text as the user wrote it."""
    path = Url(data).path.strip("/")
    is_dataset = path.startswith("datasets/") and path.count("/") >= 2
    if scheme == "hf" and not is_dataset:
        raise ConfigError(f"data: expected hf://datasets/ORG/NAME/FOLDER, got {data!r}")
    if not path:
        raise ConfigError(f"data: expected {scheme}://BUCKET/FOLDER, got {data!r}")
    unusable = {"", ".", ".."}.intersection(url.path.split("/"))
    if scheme in BUCKETS and unusable:
        raise ConfigError(
            f"data: {data!r} has an empty name between slashes, or a name . or ..; expected "
            f"{scheme}://BUCKET/FOLDER with one slash between names"
        )
    host = path.split("/")[0]
    if "@" in host and url.is_web:
        raise ConfigError(
            f"data: the URL of {host.rpartition('@')[2]} has a user name or a password, which "
            "messages would show; leave them out, and pass storage_options={"
            '"client_options": {"default_headers": {"authorization": "Basic ..."}}}'
        )
    if "?" in path or "#" in path:
        raise ConfigError(
            f"data: {data!r} has a query or a fragment, but names of files are appended to the URL; "
            "pass the URL of the folder, and credentials by storage_options="
        )


_LEAST_CACHE_BYTES = 1_000_000


@dataclass(frozen=True)
class RemoteOptions:
    """How a remote dataset is read."""

    cache_dir: Path = field(default_factory=lambda: cache_folder() / "shards")
    # The most bytes on the disk; 0 keeps no shard.
    cache_limit: int = 200 * 10**9
    # The options of obstore's store: credentials, region, endpoint.
    storage: Mapping[str, Any] = field(default_factory=dict)
    # A request is made again after this time without a byte.
    read_timeout_s: float = 20.0

    @property
    def patience_s(self) -> float:
        """How long a range is tried: 180 s by default."""
        return 9 * self.read_timeout_s


def _parse_cache_limit(value: object) -> int:
    """Raises ConfigError if it is no size, or one that could not keep a single shard."""
    limit = size_bytes("cache_limit", value)
    if 0 < limit < _LEAST_CACHE_BYTES:
        raise ConfigError(
            f"cache_limit: expected a number of bytes, at least {_LEAST_CACHE_BYTES:,}, or 0 to keep "
            f"nothing; got {value!r}. Write gigabytes as cache_limit='200GB'"
        )
    return limit


def remote_options(
    cache_dir: str | os.PathLike[str] | None,
    cache_limit: object,
    storage_options: object,
    read_timeout: object,
    *data: object,
) -> RemoteOptions:
    """Checks the options that only datasets behind URLs have.

    Args:
        data: the datasets as the user passes them; none if it is known that there is a URL.

    Raises:
        ConfigError: an option is wrong, or no dataset is a URL.
    """
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ConfigError(
            "storage_options: expected a dict as obstore's stores take it, for example "
            "{'skip_signature': True} or {'region': 'eu-west-1'}, got "
            f"{type(storage_options).__name__}"
        )
    check_local("cache_dir", cache_dir, "folder")
    if cache_dir is None:
        folder = RemoteOptions().cache_dir
    elif isinstance(cache_dir, (str, os.PathLike)) and cache_dir != "":
        expanded = os.path.expanduser(cache_dir)
        folder = Path(os.path.abspath(expanded))
    else:
        raise ConfigError(f"cache_dir: expected a folder, got {cache_dir!r}")

    options = RemoteOptions(
        cache_dir=folder,
        cache_limit=_parse_cache_limit(cache_limit),
        storage=dict(storage_options or {}),
        read_timeout_s=positive("read_timeout", read_timeout),
    )

    passed: list[str] = []
    if cache_dir is not None:
        passed.append("cache_dir=")
    if options.cache_limit != RemoteOptions.cache_limit:
        passed.append("cache_limit=")
    if options.storage:
        passed.append("storage_options=")
    if options.read_timeout_s != RemoteOptions.read_timeout_s:
        passed.append("read_timeout=")
    has_url = any(isinstance(place_of(dataset), Url) for dataset in data)
    if data and passed and not has_url:
        raise ConfigError(
            f"{', '.join(passed)}: expected the URL of a dataset, because only such a dataset is "
            f"fetched and cached, got {', '.join(map(str, data))}. Leave that out, or pass the "
            "dataset's URL"
        )
    return options
