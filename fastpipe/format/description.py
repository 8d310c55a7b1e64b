"""A folder -> whether it holds a packed dataset, and whether its shards are there."""

from __future__ import annotations

import json
from pathlib import Path

from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FORMAT
from fastpipe.format.self_checksum import read_self_checksum


def is_dataset(file: Path) -> bool:
    """Whether a dataset.json is one of ours.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        info = json.loads(file.read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return False
    return isinstance(info, dict) and info.get("format") == DATASET_FORMAT


def is_foreign(file: Path) -> bool:
    """Whether it is JSON of another program: no dataset.json of ours, and none that was damaged."""
    try:
        data = file.read_bytes()
        return read_self_checksum(data) is None and json.loads(data).get("format") != DATASET_FORMAT
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def damage(index: Index) -> str | None:
    """Shards that are gone or of another size. To find changed bits everything would have to be read."""
    for shard in index.shards:
        try:
            size = shard.path.stat().st_size
        except OSError as problem:
            return f"{shard.path.name}: {problem.strerror}"
        if size != shard.size_bytes:
            return f"{shard.path.name} has {size:,} bytes, expected {shard.size_bytes:,}"
    return None
