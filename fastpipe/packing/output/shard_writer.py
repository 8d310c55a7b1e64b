"""Packed images in order -> tar shards and their index records; each shard is published when it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import readable
from fastpipe.format import tar_writer as tar
from fastpipe.format.identity import key_hash
from fastpipe.format.layout import INDEX_DTYPE, sample_key
from fastpipe.format.sample_layout import BEFORE_BYTES
from fastpipe.packing.output.files import PARTIAL
from fastpipe.packing.output.shard_file import ShardFile
from fastpipe.packing.output.sidecars import Parts
from fastpipe.packing.output.stored_sample import StoredSample
from fastpipe.packing.picture.convert import Packed


@dataclass(frozen=True)
class FinishedShard:
    """A whole shard, still under its temporary name.

    Attributes:
        file: the temporary file, synced.
        records: its index records.
        size_bytes, xxh3_64: of the file; the hash in hex.
        parts: the files with the values of its fields, and their sizes in bytes.
    """

    file: Path
    records: NDArray[np.void]
    size_bytes: int
    xxh3_64: str
    parts: dict[str, int] = field(default_factory=dict)


class ShardWriter:
    """Writes one shard, a tar file in WebDataset's naming, into a temporary file.

    Each sample is KEY.cls (the label as decimal text), KEY.jpg and KEY.json (the source's path, and the change made to
    it if any), in that order; then the members of its fields. Nothing in the bytes depends on the machine, the user or
    the time.

    Args:
        file: the temporary file's path.
        number: of the shard.
        first_sample: number of its first sample in the dataset.
        limit: bytes after which the shard is full.
        kinds: name -> kind of the fields.
        with_parts: also write the fields' columns, beside `file`.
    """

    def __init__(
        self,
        file: Path,
        number: int,
        first_sample: int,
        limit: int,
        kinds: Mapping[str, str] | None = None,
        *,
        with_parts: bool = True,
    ) -> None:
        self._path = file.with_name(file.name + PARTIAL)
        self._number = number
        self._first_sample = first_sample
        self._limit = limit
        self._kinds = kinds or {}
        self._parts = Parts(file.parent, number, self._kinds) if self._kinds and with_parts else None
        self._file = ShardFile(self._path)
        self._records: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, packed: Packed, label: int, path: str) -> bool:
        """Appends a sample; False, and nothing written, if it would overfill the shard. An empty shard takes any."""
        sample = StoredSample(sample_key(self._first_sample + len(self._records)), packed, label, path, self._kinds)
        at = self._file.size_bytes
        end = at + sample.size_bytes
        if self._records and end + len(tar.end(end)) > self._limit:
            return False
        for piece in sample.pieces:
            self._file.write(piece)
        if self._parts is not None:
            self._parts.add(packed.values, [at + offset for offset in sample.offsets])
        digest = xxhash.xxh3_64_intdigest(packed.jpeg)
        place = at + BEFORE_BYTES
        size = len(packed.jpeg), packed.width, packed.height
        named = packed.identity, key_hash(readable(path))
        self._records.append((self._number, place, *size, label, digest, *named))
        return True

    def finish(self) -> FinishedShard:
        """Ends the tar file and syncs it; it stays under its temporary name."""
        self._file.write(tar.end(self._file.size_bytes))
        digest = self._file.finish()
        parts = {} if self._parts is None else self._parts.finish()
        records = np.array(self._records, dtype=INDEX_DTYPE)
        return FinishedShard(self._path, records, self._file.size_bytes, digest, parts)

    def discard(self) -> None:
        """Removes the temporary files."""
        self._file.discard()
        if self._parts is not None:
            self._parts.discard()
