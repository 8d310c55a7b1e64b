"""A folder or URL -> its store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastpipe.format.folder import Place
from fastpipe.store.folder import Folder
from fastpipe.store.store import Store

if TYPE_CHECKING:
    from fastpipe.remote.options import RemoteOptions


def open_store(place: Place, remote: RemoteOptions | None = None, scratch: Path | None = None) -> Store:
    """The store of a folder or URL.

    Args:
        place: of the dataset.
        remote: credentials and timeouts for a URL.
        scratch: see Store; None: DST/.pack, or for a URL a folder of fastpipe's cache.

    Raises:
        ConfigError: a URL that nobody can write to, or an unknown option.
    """
    if isinstance(place, Path):
        return Folder(place, scratch)
    from fastpipe.store.bucket import Bucket  # most packs need no obstore

    return Bucket(place, remote, scratch)
