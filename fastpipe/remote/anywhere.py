"""What a user passes as a dataset -> an Index: of a folder of this machine, or of a URL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from fastpipe.format.folder import Url
from fastpipe.format.index import Index
from fastpipe.remote.options import RemoteOptions, remote_options
from fastpipe.remote.urls import place_of


def open_anywhere(
    data: object, *, max_pixels: int | None = None, remote: RemoteOptions | None = None, fields: Iterable[str] = ()
) -> Index:
    """A packed dataset: in a folder of this machine, or behind a URL.

    Args:
        data: the folder or the URL.
        max_pixels: reading the record of an image with more pixels is an error; None: no limit.
        remote: how a remote one is read; None: as by default.
        fields: names of fields whose columns are needed; those that the dataset does not have are left to others.

    Raises:
        ConfigError: it is neither, or its scheme is not known.
        DatasetError: there is no dataset, or it cannot be read.
    """
    place = place_of(data)
    if isinstance(place, Url):
        from fastpipe.remote.dataset import RemoteIndex  # most programs read folders

        index = RemoteIndex(place, remote or RemoteOptions(), max_pixels=max_pixels)
        index.fetch_columns(fields)
        return index
    return Index(place, max_pixels=max_pixels)  # type: ignore[arg-type]


def open(
    path: str | os.PathLike[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: int | str = "200GB",
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = 20.0,
) -> Index:
    """Opens a packed dataset to inspect it.

    Args:
        path: the folder that `fastpipe pack` wrote, or its URL.
        cache_dir, cache_limit, storage_options, read_timeout: for a URL; see fastpipe.loader.

    Raises:
        ConfigError: an argument is wrong.
        DatasetError: there is no dataset, or it is unfinished, damaged or of another format version.
    """
    return open_anywhere(path, remote=remote_options(cache_dir, cache_limit, storage_options, read_timeout))
