"""The caches of ranks on one machine -> a warning if each rank has one of its own.

All processes of a machine can share a cache. Ranks with caches of their own fetch a dataset once
each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.folder import Url
from fastpipe.warnings_once import warn_once


def caches_of(data: Dataset) -> Iterator[tuple[str, str]]:
    """(key, folder) of the caches of a dataset by URL; ranks of one machine have the same keys."""
    remote_indices = [
        stored.index for stored in data.stored if isinstance(stored.index.path, Url)
    ]
    if not remote_indices:
        return
    # Here, because most programs read no URL.
    from fastpipe.store.remote.dataset import RemoteIndex

    for index in remote_indices:
        if isinstance(index, RemoteIndex):
            folder = os.path.realpath(index.options.cache_dir)
            yield f"cache/{os.uname().nodename}/{index.url}", folder


def warn_of_other_cache(key: str, folder: str, first_folder: str) -> None:
    """Says that another rank keeps a dataset in another folder.

    Args:
        key: of `caches_of`.
        folder: the one of this rank.
        first_folder: the one of the first rank of this machine.
    """
    if folder == first_folder:
        return
    url = key.split("/", 2)[2]
    warn_once(
        f"other {key}",
        f"ranks of this machine keep {url} in {folder} and in {first_folder}, so each of them fetches "
        "the whole dataset. Pass one cache_dir= to fastpipe.open on all ranks: they share what it has",
    )
