"""A folder -> whether it holds a packed dataset, and whether its shards exist."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FORMAT
from fastpipe.format.self_checksum import read_self_checksum


class File(Protocol):
    """A path of a file."""

    def read_bytes(self) -> bytes:
        """Its content."""


def is_dataset(file: File) -> bool:
    """Whether a dataset.json is one of ours.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        info = json.loads(file.read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(info, dict) and info.get("format") == DATASET_FORMAT


def is_foreign(file: File) -> bool:
    """Whether it is JSON of another program: no dataset.json of ours, and none that was damaged."""
    try:
        data = file.read_bytes()
        return read_self_checksum(data) is None and json.loads(data).get("format") != DATASET_FORMAT
    except (MemoryError, OSError, ValueError, AttributeError, RecursionError):
        return False


def damage(index: Index, size_of: Callable[[str], int] | None = None) -> str | None:
    """Shards that are gone or of another size. To find changed bits everything would have to be read.

    Args:
        index: the dataset.
        size_of: gives the size of a file, by name, or raises OSError; None: the file system is asked.
    """
    for shard in index.shards:
        try:
            size = shard.path.stat().st_size if size_of is None else size_of(shard.path.name)
        except OSError as problem:
            return f"{shard.path.name}: {problem.strerror}"
        if size != shard.size_bytes:
            return f"{shard.path.name} has {size:,} bytes, expected {shard.size_bytes:,}"
    return None
