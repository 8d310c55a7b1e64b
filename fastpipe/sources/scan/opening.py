"""DATA, as a user passes it to a loader -> its index, of a packed dataset or of a scan."""

from __future__ import annotations

from fastpipe.dataset.format.description import is_foreign
from fastpipe.dataset.format.folder import Url, dataset_folder
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    SOURCES_FILE,
    shard_number,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import (
    ConfigError,
    DatasetError,
    PackError,
    no_permission,
    readable,
    whole,
)
from fastpipe.store.remote.options import RemoteOptions, place_of


def open_data(
    data: object,
    *,
    max_pixels: int | None = None,
    fingerprint: str | None = None,
    remote: RemoteOptions | None = None,
    version: int | None = None,
    background: str | None = None,
    split: str | None = None,
) -> Index:
    """Opens a dataset, packed or not. Raises as `fastpipe.open`.

    Args:
        data: a path, a pattern of tars, or a URL.
        max_pixels: a picture with more pixels is an error; None: no limit.
        fingerprint: of an unpacked source that this program has scanned. If the scan is still in
            the cache, the source is not listed again.
        remote: options for data behind a URL.
        version: of a packed dataset; None: the newest.
        background: "#rrggbb", on which transparent images of an unpacked source are put.
        split: of an unpacked source.
    """
    place = place_of(data)
    if background is not None and isinstance(place, Url):
        raise _background_error(data)
    if version is not None:
        whole("version", version, least=1, most=2**31)
    if split is not None and not isinstance(split, str):
        raise ConfigError(
            f"split: expected the name of a split, such as 'train', got {split!r}"
        )

    if isinstance(place, Url):
        _check_no_split(split, place)
        _refuse_file_of_dataset(place)
        # Most programs read folders, so only those with a URL import this.
        from fastpipe.store.remote.dataset import RemoteIndex

        return RemoteIndex(
            place, remote or RemoteOptions(), max_pixels=max_pixels, version=version
        )

    path = dataset_folder(place)
    try:
        has_description = (path / DATASET_FILE).exists()
    except PermissionError as problem:
        raise DatasetError(
            no_permission(problem)
            or f"{readable(path)} cannot be read: permission denied"
        ) from problem
    # This is the usual case, and imports no module of the scan.
    if has_description:
        try:
            index = PackedIndex(path, version=version, max_pixels=max_pixels)
        except DatasetError:
            # Other programs, too, write a file of this name, which may lie beside photos.
            if not is_foreign(path):
                raise
        else:
            if background is not None:
                raise _background_error(data)
            _check_no_split(split, path)
            return index

    from fastpipe.sources.scan.scanning import open_unpacked
    from fastpipe.sources.scan.source import find_source

    try:
        source = find_source(path, split)
        if source is None:
            # Part of a packed dataset: raises an error that says what is missing.
            return PackedIndex(path, max_pixels=max_pixels)
        if version is not None:
            raise ConfigError(
                f"version={version}: {path} is not packed, so it has no versions; leave it out"
            )
        return open_unpacked(path, source, max_pixels, fingerprint, background)
    except PackError as problem:
        # Packing makes the same listing. Whoever opens data expects a DatasetError.
        raise DatasetError(str(problem)) from problem
    except OSError as problem:
        file = readable(problem.filename or path)
        message = no_permission(problem) or f"{file} cannot be read: {problem.strerror}"
        raise DatasetError(message) from problem


def _background_error(data: object) -> ConfigError:
    return ConfigError(
        f"background: {data} is packed, and its images are as they were packed; leave it out, or "
        "pack the source with --background"
    )


def _refuse_file_of_dataset(url: Url) -> None:
    """Raises DatasetError if a URL is that of a file in a dataset, such as its dataset.json.

    Nothing is fetched. A folder may have such a name, but none that pack writes.
    """
    folder, _, name = url.rpartition("/")
    is_description = name in (DATASET_FILE, INDEX_FILE, SOURCES_FILE)
    if is_description or shard_number(name) >= 0:
        raise DatasetError(
            f"{url} is a file of a dataset; pass the URL of its folder: {folder}"
        )


def _check_no_split(split: str | None, place: object) -> None:
    if split is not None:
        raise ConfigError(
            f"split={split!r}: {place} is a packed dataset, which is one split already; leave it "
            "out, or open the dataset of that split"
        )
