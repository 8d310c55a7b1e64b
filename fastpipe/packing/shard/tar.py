"""Samples in order -> a tar shard under a temporary name, with its index records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import readable
from fastpipe.format import tar_writer as tar
from fastpipe.format.identity import key_hash
from fastpipe.format.layout import INDEX_DTYPE, shard_name
from fastpipe.format.sample_layout import BEFORE_BYTES, sample_key
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.shard.shard_file import ShardFile
from fastpipe.packing.shard.stored_sample import StoredSample
from fastpipe.store.store import Store


class Tar(NamedTuple):
    """A shard that is written.

    Attributes:
        number: in its name.
        samples, size_bytes, xxh3_64: of the file; the hash in hex.
        removed: further samples in it, which the dataset does not have any more.
    """

    number: int
    samples: int
    size_bytes: int
    xxh3_64: str
    removed: int = 0


class TarWriter:
    """Writes one shard, a tar file in WebDataset's naming.

    Each sample is KEY.cls (the label as decimal text), KEY.jpg and KEY.json (the source's path, and the change made to
    it if any), in that order; then the members of its fields. Nothing in the bytes depends on the machine, the user or
    the time.

    Args:
        store: of the dataset.
        number: of the shard.
        kinds: name -> kind of the fields.
    """

    def __init__(self, store: Store, number: int, kinds: Mapping[str, str]) -> None:
        self.number = number
        self._kinds = kinds
        self._new = store.new_file(shard_name(number))
        self._file = ShardFile(self._new.path)
        self._records: list[tuple[int, ...]] = []

    def add(self, packed: Packed, label: int, path: str, most_bytes: int) -> list[int] | None:
        """Appends a sample; of each field the offset of its member's first byte, 0 where it has none.

        None, and nothing written, if the shard would have more than `most_bytes`. An empty shard takes any.
        """
        at = self._file.size_bytes
        sample = StoredSample(sample_key(self.number, at), packed, label, path, self._kinds)
        end = at + sample.size_bytes
        if self._records and end + len(tar.end(end)) > most_bytes:
            return None
        for piece in sample.pieces:
            self._file.write(piece)
        digest = xxhash.xxh3_64_intdigest(packed.jpeg)
        size = len(packed.jpeg), packed.width, packed.height
        named = packed.identity, key_hash(readable(path))
        self._records.append((0, at + BEFORE_BYTES, *size, label, digest, *named))
        return [at + offset if offset else 0 for offset in sample.offsets]

    @property
    def records(self) -> NDArray[np.void]:
        """Those so far, with 0 for the shard."""
        return np.array(self._records, dtype=INDEX_DTYPE)

    def finish(self) -> Tar:
        """Ends the tar file, and gives it its name when it is on the disk."""
        self._file.write(tar.end(self._file.size_bytes))
        digest = self._file.finish()
        self._new.commit(digest)
        return Tar(self.number, len(self._records), self._file.size_bytes, digest)

    def discard(self) -> None:
        """Removes the temporary file."""
        self._file.discard()
        self._new.discard()
