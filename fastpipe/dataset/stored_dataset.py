"""A user's name of a dataset -> its index, which each process opens for itself."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.description import read_info
from fastpipe.dataset.format.folder import Place, Url, dataset_folder
from fastpipe.dataset.format.index import Index, refuse_other
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.remote.options import RemoteOptions, place_of


class StoredDataset:
    """A dataset as it is stored: packed, or photos and tars where they lie.

    Its pickle has the path, the version and the fingerprint. Each process opens the files again,
    and raises DatasetError if another dataset has taken their place.
    """

    def __init__(
        self,
        data: object,
        remote: RemoteOptions | None,
        max_pixels: int,
        version: int | None,
        split: str | None = None,
        background: str | None = None,
    ) -> None:
        place = place_of(data)
        if isinstance(place, Url):
            self._place: Place = place
        else:
            # Absolute, because a program may change its working directory.
            self._place = Path(os.path.abspath(dataset_folder(place)))
        self._options: dict[str, Any] = {
            "max_pixels": max_pixels,
            "remote": remote if isinstance(place, Url) else None,
            "split": split,
            "background": background,
        }
        # Sets the value of the cached property, so that this process opens the files once.
        self.index = open_data(data, version=version, **self._options)
        self._fingerprint = self.index.fingerprint
        # From now on the same version, even if the dataset grows while it is in use.
        self._version = self.index.version or None
        # As it was when this one was opened; of a URL it is not looked up.
        self.newest_version = self.index.version
        if version is not None and isinstance(self._place, Path):
            self.newest_version = int(read_info(self._place)["version"])

    @cached_property
    def index(self) -> Index:
        """Its description.

        A forked child goes on with that of its parent, which is memory alone; other processes open
        their own when they first ask for it.
        """
        index = open_data(
            self._place,
            fingerprint=self._fingerprint,
            version=self._version,
            **self._options,
        )
        refuse_other(self._place, self._fingerprint, index.fingerprint)
        return index

    def at_version(self, version: int) -> StoredDataset:
        """Another version of it. DatasetError: its files are gone."""
        options = self._options
        return StoredDataset(
            self._place, options["remote"], options["max_pixels"], version
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        state.pop("index", None)  # another process opens its own
        return state
