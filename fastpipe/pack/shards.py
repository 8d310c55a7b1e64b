"""Packed pictures in order -> tar shards and their index records, each shard published when it is whole."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import webdataset
import xxhash
from numpy.typing import NDArray

from fastpipe.format import INDEX_DTYPE, sample_key
from fastpipe.names import readable
from fastpipe.pack.convert import Packed
from fastpipe.pack.files import PARTIAL

_BLOCK = 512  # a tar header, and the unit that a member's bytes are padded to
_RECORD = 10240  # the unit that a tar file is padded to


def _padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


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


class _HashedFile:
    """A binary file that hashes what is written to it; once it is closed, writes go nowhere.

    (tarfile writes the end of an archive that was given up when it is collected.)
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = xxhash.xxh3_64()

    def write(self, data: bytes) -> int:
        if self._file.closed:
            return len(data)
        self.hash.update(data)
        return self._file.write(data)


class ShardWriter:
    """Writes one shard through webdataset.TarWriter into a temporary file.

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
        self._file = open(self._path, "wb")  # noqa: SIM115 (held until finish)
        self._hashed = _HashedFile(self._file)
        self._tar = webdataset.TarWriter(
            self._hashed, user="", group="", mode=0o444, compress=False, encoder=False, mtime=0
        )
        self._records: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, packed: Packed, label: int, path: str) -> bool:
        """Appends a sample; False, and nothing written, if it would overfill the shard. An empty shard takes any."""
        note = {"path": readable(path)}
        if packed.change is not None:
            note["reencoded"] = packed.change
        members = {
            "cls": str(label).encode(),
            "jpg": packed.jpeg,
            "json": json.dumps(note, sort_keys=True).encode(),
        }
        start = self._tar.tarstream.offset
        end = start + sum(_BLOCK + _padded(len(member), _BLOCK) for member in members.values())
        if self._records and _padded(end + 2 * _BLOCK, _RECORD) > self._limit:
            return False
        key = sample_key(self._first_sample + len(self._records))
        self._tar.write({"__key__": key, **members})
        assert self._tar.tarstream.offset == end, "webdataset wrote a header that is not one block"
        offset = start + _BLOCK + _padded(len(members["cls"]), _BLOCK) + _BLOCK
        digest = xxhash.xxh3_64_intdigest(packed.jpeg)
        self._records.append((self._number, offset, len(packed.jpeg), packed.width, packed.height, label, digest))
        return True

    def finish(self) -> FinishedShard:
        """Ends the tar file and syncs it; it stays under its temporary name."""
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        records = np.array(self._records, dtype=INDEX_DTYPE)
        return FinishedShard(self._path, records, size, self._hashed.hash.hexdigest())

    def discard(self) -> None:
        """Removes the temporary file."""
        with contextlib.suppress(OSError):  # a full disk refuses what is left in the buffer, too
            self._file.close()
        self._path.unlink(missing_ok=True)
