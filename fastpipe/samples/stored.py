"""The place of a stored dataset -> its index, which each process opens anew."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe.format.folder import Url, dataset_folder
from fastpipe.format.index import Index, refuse_other
from fastpipe.remote.options import RemoteOptions
from fastpipe.remote.urls import place_of
from fastpipe.scan.opening import open_data


class Store:
    """A stored dataset. Its pickle has the path, the version and the fingerprint; each process opens the files again,
    and a different dataset in its place is an error.
    """

    def __init__(self, data: object, remote: RemoteOptions, max_pixels: int, version: int | None) -> None:
        place = place_of(data)
        # Programs change their folder.
        self._place = place if isinstance(place, Url) else Path(os.path.abspath(dataset_folder(place)))
        self._remote, self._max_pixels = remote if isinstance(place, Url) else None, max_pixels
        self.index = open_data(data, max_pixels=max_pixels, remote=remote, version=version)
        self._fingerprint = self.index.fingerprint
        self._version = self.index.version or None  # the dataset may grow while it is in use

    @cached_property
    def index(self) -> Index:
        """Its description. A forked child goes on with its parent's, which is memory alone; others open theirs."""
        index = open_data(
            self._place,
            max_pixels=self._max_pixels,
            fingerprint=self._fingerprint,
            remote=self._remote,
            version=self._version,
        )
        refuse_other(self._place, self._fingerprint, index.fingerprint)
        return index

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "index"}
