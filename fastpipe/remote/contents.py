"""A cache's folder -> the datasets in it: how much of each is there, whether it is sound; and removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE
from fastpipe.format.open_file import read_at
from fastpipe.remote.blocks import BLOCK_BYTES
from fastpipe.remote.cache import WRITTEN, Cache
from fastpipe.remote.cache_root import URL_FILE, Hold, datasets, disk_bytes, in_use, locked, remove


@dataclass(frozen=True)
class Kept:
    """A dataset in a cache.

    Attributes:
        url: where it came from last.
        fingerprint: of the dataset; its folder's name.
        resident_bytes: of its shards that are in the cache.
        disk_bytes: that its folder takes.
        in_use: by a process.
    """

    url: str
    fingerprint: str
    folder: str
    samples: int
    shard_bytes: int
    resident_bytes: int
    disk_bytes: int
    in_use: bool


def kept_datasets(root: Path) -> list[Kept]:
    """All datasets of a cache."""
    found = []
    for folder in datasets(root):
        used = in_use(folder)
        url = (folder / URL_FILE).read_text(encoding="utf-8").strip()
        samples = shard_bytes = resident = 0
        try:
            index = Index(folder)
            samples, shard_bytes = len(index), int(index.shard_sizes.sum())
            cache = _opened(folder, index, url)
            resident = int(cache.blocks.sizes_of(np.flatnonzero(cache.states >= WRITTEN)).sum())
        except DatasetError:  # its small files have not all come yet
            pass
        found.append(Kept(url, folder.name, str(folder), samples, shard_bytes, resident, disk_bytes(folder), used))
    return found


def chosen(root: Path, data: str | None) -> list[Kept]:
    """The datasets of a URL or fingerprint; None: all. ConfigError: there is none."""
    found = kept_datasets(root)
    if data is None:
        return found
    mine = [each for each in found if data.rstrip("/") in (each.url, each.fingerprint)]
    if not mine:
        known = ", ".join(each.url for each in found) or "nothing"
        raise ConfigError(f"DATA: the cache in {root} has no {data}; it has {known}")
    return mine


def check_kept(kept: Kept) -> tuple[int, int]:
    """Compares the hashes of all samples in the cache; blocks of those that differ are forgotten. DatasetError: the
    index is damaged. Returns how many samples are wholly in the cache, and how many of these are damaged.
    """
    folder = Path(kept.folder)
    if not (folder / DATASET_FILE).exists() or not any(folder.glob(f"**/{INDEX_FILE}")):  # they have not all come yet
        return 0, 0
    index = Index(folder)
    cache = _opened(folder, index, kept.url)
    checked = damaged = 0
    for number, shard in enumerate(index.shards):
        first = int(index.shard_starts[number])
        records = index.records_of(np.arange(first, first + shard.samples))
        base = int(cache.blocks.first[number])
        if not shard.path.exists():  # nothing of it has come
            continue
        with open(shard.path, "rb", buffering=0) as file:
            for offset, size, expected in zip(
                records["offset"].tolist(), records["size"].tolist(), records["xxh3_64"].tolist(), strict=True
            ):
                blocks = np.arange(base + offset // BLOCK_BYTES, base + (offset + size - 1) // BLOCK_BYTES + 1)
                if cache.states[blocks].min() < WRITTEN:
                    continue
                checked += 1
                if xxhash.xxh3_64_intdigest(read_at(file.fileno(), size, offset)) != expected:
                    damaged += 1
                    cache.forget(blocks)
    return checked, damaged


def clear(root: Path, kept: Kept) -> bool:
    """Removes a dataset; False where a process uses it."""
    with locked(root):
        return remove(Path(kept.folder))


def _opened(folder: Path, index: Index, url: str) -> Cache:
    """The blocks of a dataset. Its limit is that which the folder takes: nothing is added, and nothing given back."""
    names = [shard.name for shard in index.shards]
    return Cache(Hold(folder.parent, folder.name, url), names, index.shard_sizes, limit=1 << 62)
