"""Samples -> the paths of the files that they were packed from, read from the notes in the shards."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format import tar_writer as tar
from fastpipe.format.index import Index, ReadableShard
from fastpipe.format.layout import shard_number
from fastpipe.format.sample_layout import BEFORE_BYTES, sample_key

_MOST_NOTE_BYTES = 256 << 20
_USUAL_BYTES = 512  # of a note, read together with its header
_MOST_OPEN = 32


class SourcePaths:
    """Reads KEY.json, which lies behind the JPEG in the shard: its pages were read together with the JPEG's. Several
    threads and forked children may use the same one.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._shard = lru_cache(_MOST_OPEN)(index.open_shard)  # what is dropped closes itself

    def of(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> list[str]:
        """The paths of samples with these records (docs/format.md). DatasetError: a shard or a note is damaged."""
        places = zip(self._index.paths_of(samples), records[["shard", "offset", "size"]].tolist(), strict=True)
        return [
            _path(self._shard(shard), offset, tar.padded(offset + size, tar.BLOCK)) if known is None else known
            for known, (shard, offset, size) in places
        ]


def _path(shard: ReadableShard, offset: int, at: int) -> str:
    """The path in the note whose header begins at byte `at`, of the sample whose image begins at `offset`."""
    key = sample_key(shard_number(str(shard.path).rpartition("/")[2]), offset - BEFORE_BYTES)
    data = shard.read(at, tar.BLOCK + _USUAL_BYTES)  # a shard ends with more than that
    header = data[: tar.BLOCK]
    try:
        size = int(header[tar.SIZE_FIELD], 8)
        if size > _MOST_NOTE_BYTES or header != tar.header(key + ".json", size):
            raise ValueError("it does not begin with its header")
        note = data[tar.BLOCK :] if size <= _USUAL_BYTES else shard.read(at + tar.BLOCK, size)
        path = json.loads(note[:size])["path"]
        if not isinstance(path, str):
            raise TypeError(f"its path is {path!r:.40}")
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise DatasetError(
            f"{shard.path}: {key}.json is damaged ({problem}); expected a note with the path of the source at byte "
            f"{at}. Restore it (fastpipe verify DATA --repair SRC)"
        ) from problem
    return path
