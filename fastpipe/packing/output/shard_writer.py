"""Packed images in order -> tar shards and their index records; each shard is published when it is complete."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import readable
from fastpipe.format import tar_writer as tar
from fastpipe.format.layout import INDEX_DTYPE, sample_key
from fastpipe.format.sample_layout import after_jpeg, before_jpeg
from fastpipe.packing.output.files import PARTIAL
from fastpipe.packing.output.shard_file import ShardFile
from fastpipe.packing.picture.convert import Packed


@dataclass(frozen=True)
class FinishedShard:
    """A whole shard, still under its temporary name.

    Attributes:
        file: the temporary file, synced.
        records: its index records.
        size_bytes, xxh3_64: of the file; the hash in hex.
    """

    file: Path
    records: NDArray[np.void]
    size_bytes: int
    xxh3_64: str


class ShardWriter:
    """Writes one shard, a tar file in WebDataset's naming, into a temporary file.

    Each sample is KEY.cls (the label as decimal text), KEY.jpg and KEY.json (the source's path, and the change made to
    it if any), in that order. Nothing in the bytes depends on the machine, the user or the time.

    Args:
        file: the temporary file's path.
        number: of the shard.
        first_sample: number of its first sample in the dataset.
        limit: bytes after which the shard is full.
    """

    def __init__(self, file: Path, number: int, first_sample: int, limit: int) -> None:
        self._path = file.with_name(file.name + PARTIAL)
        self._number = number
        self._first_sample = first_sample
        self._limit = limit
        self._file = ShardFile(self._path)
        self._records: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, packed: Packed, label: int, path: str) -> bool:
        """Appends a sample; False, and nothing written, if it would overfill the shard. An empty shard takes any."""
        note = {"path": readable(path)}
        if packed.change is not None:
            note["reencoded"] = packed.change
        key = sample_key(self._first_sample + len(self._records))
        before = before_jpeg(key, label, len(packed.jpeg))
        after = after_jpeg(key, len(packed.jpeg), json.dumps(note, sort_keys=True).encode())
        offset = self._file.size_bytes + len(before)
        end = offset + len(packed.jpeg) + len(after)
        if self._records and end + len(tar.end(end)) > self._limit:
            return False
        for piece in (before, packed.jpeg, after):
            self._file.write(piece)
        digest = xxhash.xxh3_64_intdigest(packed.jpeg)
        self._records.append((self._number, offset, len(packed.jpeg), packed.width, packed.height, label, digest))
        return True

    def finish(self) -> FinishedShard:
        """Ends the tar file and syncs it; it stays under its temporary name."""
        self._file.write(tar.end(self._file.size_bytes))
        digest = self._file.finish()
        return FinishedShard(self._path, np.array(self._records, dtype=INDEX_DTYPE), self._file.size_bytes, digest)

    def discard(self) -> None:
        """Removes the temporary file."""
        self._file.discard()
