"""A cache's folder -> the datasets in it: how much of each is kept, checked, and removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from fastpipe.arrays import Uint8s
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_FILE
from fastpipe.dataset.format.open_file import read_at
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.store.remote import cache_root
from fastpipe.store.remote.blocks import BLOCK_BYTES, Blocks
from fastpipe.store.remote.cache import WRITTEN, forget, shared_states
from fastpipe.store.remote.cache_root import URL_FILE, Hold


@dataclass(frozen=True)
class KeptDataset:
    """A dataset in a cache, as `fastpipe cache ls --json` shows it."""

    url: str  # the last one that it was fetched from
    fingerprint: str
    folder: str
    samples: int
    shard_bytes: int
    resident_bytes: int  # of shards, in the cache
    disk_bytes: int  # that the folder takes
    in_use: bool  # by a process


def kept_datasets(root: Path, data: str | None = None) -> list[KeptDataset]:
    """The datasets of a cache: those with a URL or fingerprint, or all.

    Raises:
        ConfigError: the cache has no such dataset.
    """
    # Only the chosen ones are described: to open the index of each takes time.
    folders = cache_root.datasets(root)
    if data is not None:
        name = data.rstrip("/")
        urls = [_read_url(folder) for folder in folders]
        folders = [
            folder
            for folder, url in zip(folders, urls, strict=True)
            if name in (url, folder.name)
        ]
        if not folders:
            known = ", ".join(urls) or "nothing"
            raise ConfigError(
                f"DATA: the cache in {root} has no {data}; it has {known}"
            )
    return [_describe_dataset(folder) for folder in folders]


def _read_url(folder: Path) -> str:
    return (folder / URL_FILE).read_text(encoding="utf-8").strip()


def _describe_dataset(folder: Path) -> KeptDataset:
    # This comes before `_open_blocks`, which would itself count as a user of the dataset.
    in_use = cache_root.in_use(folder)
    url = _read_url(folder)
    samples = 0
    shard_bytes = 0
    resident_bytes = 0
    try:
        index = PackedIndex(folder)
        samples = len(index)
        shard_bytes = int(index.shard_sizes.sum())
        blocks, states = _open_blocks(folder, index, url)
        written = np.flatnonzero(states >= WRITTEN)
        resident_bytes = int(blocks.sizes_of(written).sum())
    except DatasetError:
        # Some of the dataset's small files have not been fetched yet.
        pass
    return KeptDataset(
        url=url,
        fingerprint=folder.name,
        folder=str(folder),
        samples=samples,
        shard_bytes=shard_bytes,
        resident_bytes=resident_bytes,
        disk_bytes=cache_root.disk_bytes(folder),
        in_use=in_use,
    )


def check_kept(kept: KeptDataset) -> tuple[int, int]:
    """Compares the samples that are wholly in the cache with their hashes.

    The blocks of a damaged sample are forgotten, so that they are fetched again.

    Returns:
        How many samples were checked, and how many of these are damaged.
    """
    folder = Path(kept.folder)
    has_info = (folder / DATASET_FILE).exists()
    if not has_info or not any(folder.glob(f"**/{INDEX_FILE}")):
        # Some of the dataset's small files have not been fetched yet.
        return 0, 0
    index = PackedIndex(folder)
    blocks, states = _open_blocks(folder, index, kept.url)
    num_checked = 0
    num_damaged = 0
    for shard_index, shard in enumerate(index.shards):
        if not shard.path.exists():
            # None of its blocks has been fetched.
            continue
        first_block = int(blocks.first_blocks[shard_index])
        records = index.records_of_shard(shard_index)[["offset", "size", "xxh3_64"]]
        with open(shard.path, "rb", buffering=0) as file:
            for offset, size, expected in records.tolist():
                start = first_block + offset // BLOCK_BYTES
                last_byte = offset + size - 1
                stop = first_block + last_byte // BLOCK_BYTES + 1
                touched = np.arange(start, stop)
                if states[touched].min() < WRITTEN:
                    continue
                num_checked += 1
                data = read_at(file.fileno(), size, offset)
                digest = xxhash.xxh3_64_intdigest(data)
                if digest != expected:
                    num_damaged += 1
                    forget(states, touched)
    return num_checked, num_damaged


def clear(root: Path, kept: KeptDataset) -> bool:
    """Removes a dataset. Returns False if it is in use."""
    # A loader that opens the dataset meanwhile waits for the lock, and then makes the folder anew.
    with cache_root.locked(cache_root.open_accounts(root)):
        return cache_root.remove(Path(kept.folder))


def _open_blocks(folder: Path, index: PackedIndex, url: str) -> tuple[Blocks, Uint8s]:
    """The blocks of a dataset, and their states. The array of states keeps the dataset in use."""
    root = folder.parent
    blocks = Blocks(index.shard_sizes)
    hold = Hold(root, folder.name, url)
    with cache_root.writing(root), cache_root.locked(cache_root.open_accounts(root)):
        num_blocks = int(blocks.first_blocks[-1])
        return blocks, shared_states(hold.descriptor, num_blocks)
