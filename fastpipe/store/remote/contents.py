"""A cache's folder -> the datasets in it: how much of each is there, whether it is sound; and removed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE
from fastpipe.format.open_file import read_at
from fastpipe.format.packed_index import PackedIndex
from fastpipe.store.remote import cache_root
from fastpipe.store.remote.blocks import BLOCK_BYTES, Blocks
from fastpipe.store.remote.cache import WRITTEN, forget, shared_states
from fastpipe.store.remote.cache_root import URL_FILE, Hold


@dataclass(frozen=True)
class KeptDataset:
    """A dataset in a cache, as `fastpipe cache ls --json` shows it."""

    url: str  # where it came from last
    fingerprint: str
    folder: str
    samples: int
    shard_bytes: int
    resident_bytes: int  # of shards, in the cache
    disk_bytes: int  # that the folder takes
    in_use: bool  # by a process


def kept_datasets(root: Path) -> list[KeptDataset]:
    found = []
    for folder in cache_root.datasets(root):
        used = cache_root.in_use(folder)
        url = (folder / URL_FILE).read_text(encoding="utf-8").strip()
        samples = shard_bytes = resident = 0
        with suppress(DatasetError):  # its small files have not all come yet
            index = PackedIndex(folder)
            samples, shard_bytes = len(index), int(index.shard_sizes.sum())
            blocks, states = _opened(folder, index, url)
            resident = int(blocks.sizes_of(np.flatnonzero(states >= WRITTEN)).sum())
        taken = cache_root.disk_bytes(folder)
        found.append(KeptDataset(url, folder.name, str(folder), samples, shard_bytes, resident, taken, used))
    return found


def chosen(root: Path, data: str | None) -> list[KeptDataset]:
    """The datasets of a URL or fingerprint; None: all. ConfigError: there is none."""
    found = kept_datasets(root)
    if data is None:
        return found
    mine = [each for each in found if data.rstrip("/") in (each.url, each.fingerprint)]
    if not mine:
        known = ", ".join(each.url for each in found) or "nothing"
        raise ConfigError(f"DATA: the cache in {root} has no {data}; it has {known}")
    return mine


def check_kept(kept: KeptDataset) -> tuple[int, int]:
    """How many samples are wholly in the cache, and how many of these are damaged: their blocks are forgotten."""
    folder = Path(kept.folder)
    if not (folder / DATASET_FILE).exists() or not any(folder.glob(f"**/{INDEX_FILE}")):  # they have not all come yet
        return 0, 0
    index = PackedIndex(folder)
    blocks, states = _opened(folder, index, kept.url)
    checked = damaged = 0
    for number, shard in enumerate(index.shards):
        if not shard.path.exists():  # nothing of it has come
            continue
        records, base = index.records_of_shard(number), int(blocks.first[number])
        with open(shard.path, "rb", buffering=0) as file:
            for offset, size, expected in records[["offset", "size", "xxh3_64"]].tolist():
                touched = np.arange(base + offset // BLOCK_BYTES, base + (offset + size - 1) // BLOCK_BYTES + 1)
                if states[touched].min() < WRITTEN:
                    continue
                checked += 1
                if xxhash.xxh3_64_intdigest(read_at(file.fileno(), size, offset)) != expected:
                    damaged += 1
                    forget(states, touched)
    return checked, damaged


def clear(root: Path, kept: KeptDataset) -> bool:
    with cache_root.locked(cache_root.open_accounts(root)):
        return cache_root.remove(Path(kept.folder))


def _opened(folder: Path, index: PackedIndex, url: str) -> tuple[Blocks, NDArray[np.uint8]]:
    """The blocks of a dataset, and their states, which keep it in use."""
    blocks = Blocks(index.shard_sizes)
    hold = Hold(folder.parent, folder.name, url)
    with cache_root.writing(folder.parent), cache_root.locked(cache_root.open_accounts(folder.parent)):
        return blocks, shared_states(hold.descriptor, int(blocks.first[-1]))
