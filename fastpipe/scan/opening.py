"""DATA, as a user passes it to a loader -> its index: of a packed dataset, or of photos and tars by a scan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastpipe.checks import whole
from fastpipe.errors import ConfigError, DatasetError, PackError, readable
from fastpipe.format.description import is_foreign
from fastpipe.format.folder import Url, dataset_folder
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE
from fastpipe.remote.urls import place_of

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions


def open(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: int | str = "200GB",
    storage_options: Mapping[str, Any] | None = None,
    read_timeout: float = 20.0,
) -> Index:
    """Opens a dataset to inspect it.

    Args:
        path: the folder that `fastpipe pack` wrote, or its URL. Or what is not packed: a folder with one folder of
            images for each class, a folder of images, a tar file, a folder of tar files, or a pattern of tars
            ("shards/*.tar").
        version: of a packed dataset, as `fastpipe log` counts them; None: the newest.
        cache_dir, cache_limit, storage_options, read_timeout: for a URL; see fastpipe.loader.

    Raises:
        ConfigError: an argument is wrong.
        DatasetError: there is nothing of that kind, or a packed dataset is unfinished, damaged or of another format
            version.
    """
    from fastpipe.remote.options import remote_options

    return open_data(
        path, remote=remote_options(cache_dir, cache_limit, storage_options, read_timeout, path), version=version
    )


def open_data(
    data: object,
    *,
    max_pixels: int | None = None,
    fingerprint: str | None = None,
    remote: RemoteOptions | None = None,
    fields: object = None,
    version: int | None = None,
) -> Index:
    """The index of a dataset, packed or not, in a folder of this machine or behind a URL; raises as `open`.

    Args:
        data: as of `open`; or the Index that `open` gave: then the same version.
        max_pixels: as of `Index`.
        fingerprint: of an unpacked source that this program has scanned: if the scan is still in the cache, the source
            is not listed again. Reading a file tells whether it has changed.
        remote: how a URL is read; None: as by default.
        fields: as of fastpipe.loader: of which a remote dataset's columns are needed; unknown ones are left to others.
        version: as of `open`.
    """
    if isinstance(data, Index):
        remote, version = getattr(data, "options", None), data.version or None
        data = str(data.path)
    place = place_of(data)
    if version is not None:
        whole("version", version, least=1, most=2**31)
    if isinstance(place, Url):
        from fastpipe.remote.dataset import RemoteIndex  # most programs read folders
        from fastpipe.remote.options import RemoteOptions

        index = RemoteIndex(place, remote or RemoteOptions(), max_pixels=max_pixels, version=version)
        names = fields.values() if isinstance(fields, Mapping) else fields
        wanted: list[Any] = [getattr(each, "name", each) for each in (names if isinstance(names, Iterable) else ())]
        index.fetch_columns(wanted)
        return index
    path = dataset_folder(place)
    if (path / DATASET_FILE).exists():  # the usual case needs nothing of the scan's modules
        try:
            return Index(path, version=version, max_pixels=max_pixels)
        except DatasetError:
            if not is_foreign(path / DATASET_FILE):
                raise
    from fastpipe.scan.index import scanned
    from fastpipe.scan.source import unpacked_source

    try:
        source = unpacked_source(path)
        if source is None:
            return Index(path, max_pixels=max_pixels)
        if version is not None:
            raise ConfigError(f"version={version}: {path} is not packed, so it has no versions; leave it out")
        return scanned(path, source, max_pixels, fingerprint)
    except PackError as problem:  # of the listing, which packing makes, too
        raise DatasetError(str(problem)) from problem
    except OSError as problem:
        raise DatasetError(f"{readable(str(problem.filename or path))} cannot be read: {problem.strerror}") from problem
