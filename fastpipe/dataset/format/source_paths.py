"""Samples -> the paths of their sources, which stand in KEY.json behind the images."""

from __future__ import annotations

import json
from functools import lru_cache

from fastpipe.arrays import Int64s, Records
from fastpipe.dataset.format import tar_writer as tar
from fastpipe.dataset.format.fields import MAX_VALUE_BYTES
from fastpipe.dataset.format.index import Index, ReadableShard
from fastpipe.dataset.format.layout import shard_number
from fastpipe.dataset.format.sample_layout import (
    BEFORE_BYTES,
    note_header_at,
    sample_key,
)
from fastpipe.errors import DatasetError

# So much of KEY.json is read together with its header. Most often it is all of it.
_NOTE_BYTES = 512
_MAX_OPEN_SHARDS = 32


class SourcePaths:
    """Reads the source paths of samples. Threads and forked children may share it."""

    def __init__(self, index: Index) -> None:
        self._index = index
        # A shard that falls out of the cache closes itself.
        self._open_shard = lru_cache(_MAX_OPEN_SHARDS)(index.open_shard)

    def of(self, samples: Int64s, records: Records) -> list[str]:
        """The source paths of samples (docs/explanation/format.md).

        Args:
            samples: (n,) their numbers.
            records: (n,) their index records.

        Raises:
            DatasetError: a shard or a note is damaged.
        """
        known_paths = self._index.paths_of(samples)
        paths = []
        for known_path, record in zip(known_paths, records, strict=True):
            if known_path is not None:
                paths.append(known_path)
                continue
            start = int(record["offset"]) - BEFORE_BYTES
            note_offset = note_header_at(record)
            try:
                shard = self._open_shard(int(record["shard"]))
                path = _path_in_note(shard, start, note_offset)
            except DatasetError:
                self._index.refuse_replaced()
                raise
            paths.append(path)
        return paths


def _path_in_note(shard: ReadableShard, start: int, note_offset: int) -> str:
    """The path in the KEY.json of the sample that begins at byte `start` of the shard; `note_offset`
    is that of its header.
    """
    name = str(shard.path).rpartition("/")[2]
    key = sample_key(shard_number(name), start)
    # A shard ends with more bytes than that, so this never reads beyond its end.
    data = shard.read(note_offset, tar.BLOCK + _NOTE_BYTES)
    header = data[: tar.BLOCK]
    try:
        size = int(header[tar.SIZE_FIELD], 8)
        if size > MAX_VALUE_BYTES or header != tar.header(key + ".json", size):
            raise ValueError("it does not begin with its header")
        note = data[tar.BLOCK :]
        if size > _NOTE_BYTES:
            note = shard.read(note_offset + tar.BLOCK, size)
        path = json.loads(note[:size])["path"]
        if not isinstance(path, str):
            raise TypeError(f"its path is {path!r:.40}")
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise DatasetError(
            f"{shard.path}: {key}.json is damaged ({problem}); expected a note with the path of "
            f"the source at byte {note_offset}. Restore it (fastpipe verify DATA --repair SRC)"
        ) from problem
    return path
