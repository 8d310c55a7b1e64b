"""DATA, as a user passes it to a loader -> its index: of a packed dataset, or of photos and tars by a scan."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fastpipe.errors import DatasetError
from fastpipe.format.folder import dataset_folder
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE

if TYPE_CHECKING:
    from fastpipe.scan.source import Source

_LOG = logging.getLogger("fastpipe")
_told: set[str] = set()


def open(path: str | os.PathLike[str]) -> Index:
    """Opens a dataset to inspect it.

    Args:
        path: the folder that `fastpipe pack` wrote. Or what is not packed: a folder with one folder of images for each
            class, a folder of images, a tar file, a folder of tar files, or a pattern of tars ("shards/*.tar").

    Raises:
        DatasetError: there is nothing of that kind, or a packed dataset is unfinished, damaged or of another format
            version.
    """
    return open_data(path)


def open_data(data: object, *, max_pixels: int | None = None, fingerprint: str | None = None) -> Index:
    """The index of a dataset, packed or not.

    Args:
        data: as of `open`.
        max_pixels: as of `Index`.
        fingerprint: of an unpacked source that this program has scanned: if the scan is still in the cache, the source
            is not listed again. Reading a file tells whether it has changed.

    Raises:
        ConfigError: it is no path.
        DatasetError: as `open`.
    """
    path = dataset_folder(data)
    if (path / DATASET_FILE).exists():  # the usual case needs nothing of the scan's modules
        try:
            return Index(path, max_pixels=max_pixels)
        except DatasetError:
            if not _another_programs(path / DATASET_FILE):
                raise
    from fastpipe.scan.source import unpacked_source

    source = unpacked_source(path)
    if source is None:
        return Index(path, max_pixels=max_pixels)
    return _scanned(path, source, max_pixels, fingerprint)


def _another_programs(file: Path) -> bool:
    try:
        from fastpipe.format.description import is_foreign  # a loader of a packed dataset needs no xxhash

        return is_foreign(file)
    except (MemoryError, OSError, ImportError):  # too little memory, or no more open files: so it was not opened
        return False


def _scanned(path: Path, source: Source, max_pixels: int | None, fingerprint: str | None) -> Index:
    from fastpipe.scan import cache
    from fastpipe.scan.columns import columns_of
    from fastpipe.scan.headers import read_headers
    from fastpipe.scan.index import UnpackedIndex

    before = cache.load(source.name)
    if before is not None and fingerprint is not None and not len(before.unknown):
        index = UnpackedIndex(path, before, max_pixels=max_pixels)
        if index.fingerprint == fingerprint:
            return index
    archives = source.archives()
    if before is not None and archives is not None and before.archives == archives and not len(before.unknown):
        columns = before  # tars are walked only if one of them has changed
    else:
        columns = columns_of(source.listing(), archives)
        if before is None or not columns.take_over(before):
            read_headers(columns, columns.unknown)
            cache.save(source.name, columns)
    index = UnpackedIndex(path, columns, max_pixels=max_pixels)
    if index.counts["rejected"] and index.fingerprint not in _told:
        _told.add(index.fingerprint)
        _LOG.warning("%s%s", path, index.rejected())
    return index
