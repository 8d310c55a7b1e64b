"""DATA, as a user passes it to a loader -> its index: of a packed dataset, or of photos and tars by a scan."""

from __future__ import annotations

from fastpipe.errors import ConfigError, DatasetError, PackError, readable, whole
from fastpipe.format.description import is_foreign
from fastpipe.format.folder import Url, dataset_folder
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE
from fastpipe.store.remote.options import RemoteOptions, place_of


def open_data(
    data: object,
    *,
    max_pixels: int | None = None,
    fingerprint: str | None = None,
    remote: RemoteOptions | None = None,
    version: int | None = None,
    background: str | None = None,
) -> Index:
    """The index of a dataset, packed or not; raises as `fastpipe.open`. `fingerprint` is of an unpacked source that
    this program has scanned: if the scan is still in the cache, the source is not listed again. `background`: on which
    transparent images of an unpacked source are put.
    """
    place = place_of(data)
    if background is not None and isinstance(place, Url):
        raise _packed_already(data)
    if version is not None:
        whole("version", version, least=1, most=2**31)
    if isinstance(place, Url):
        from fastpipe.store.remote.dataset import RemoteIndex  # most programs read folders

        return RemoteIndex(place, remote or RemoteOptions(), max_pixels=max_pixels, version=version)
    path = dataset_folder(place)
    if (path / DATASET_FILE).exists():  # the usual case needs nothing of the scan's modules
        try:
            found = Index(path, version=version, max_pixels=max_pixels)
            if background is not None:
                raise _packed_already(data)
            return found
        except DatasetError:
            if not is_foreign(path):
                raise
    from fastpipe.sources.scan.index import scanned, unpacked_source

    try:
        source = unpacked_source(path)
        if source is None:
            return Index(path, max_pixels=max_pixels)
        if version is not None:
            raise ConfigError(f"version={version}: {path} is not packed, so it has no versions; leave it out")
        return scanned(path, source, max_pixels, fingerprint, background)
    except PackError as problem:  # of the listing, which packing makes, too
        raise DatasetError(str(problem)) from problem
    except OSError as problem:
        raise DatasetError(f"{readable(str(problem.filename or path))} cannot be read: {problem.strerror}") from problem


def _packed_already(data: object) -> ConfigError:
    return ConfigError(
        f"background: {data} is packed, and its images are as they were packed; leave it out, or pack the source with "
        "--background"
    )
