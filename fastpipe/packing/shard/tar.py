"""Samples in order -> a tar shard under a temporary name, with its index records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import readable
from fastpipe.format import tar_writer as tar
from fastpipe.format.fields import Field, image_format_of, member
from fastpipe.format.layout import INDEX_DTYPE, shard_name
from fastpipe.format.sample_layout import BEFORE_BYTES, OURS, after_picture, before_picture, key_hash, sample_key
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.picture.probe import form_of
from fastpipe.store.files import no_link
from fastpipe.store.store import NewFile, Store

# Written at once: with each write this thread lets go of the GIL, and waits until it gets it back.
_BUFFER_BYTES = 1 << 20
# The disk begins after so many bytes, so that little is left to wait for in the end.
_SYNC_BYTES = 32 << 20


class ShardFile:
    """A file that is written from start to end, and gets its name when it is on the disk."""

    def __init__(self, new: NewFile) -> None:
        self._new = new
        self._file = open(new.path, "wb", _BUFFER_BYTES, opener=no_link)  # noqa: SIM115 (held until finish or discard)
        self._hash = xxhash.xxh3_64()
        self._syncs = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-sync")
        self._syncing: Future[None] | None = None
        self._next_sync_bytes = _SYNC_BYTES
        self.size_bytes = 0

    def write(self, piece: bytes) -> None:
        """Appends a piece; raises OSError if the disk refuses, also where it refused an earlier piece only now."""
        self._hash.update(piece)
        self._file.write(piece)
        self.size_bytes += len(piece)
        if self.size_bytes >= self._next_sync_bytes and (self._syncing is None or self._syncing.done()):
            self._check_sync()
            self._file.flush()
            sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
            self._syncing = self._syncs.submit(sync, self._file.fileno())
            self._next_sync_bytes = self.size_bytes + _SYNC_BYTES

    def finish(self) -> str:
        """Syncs the file and gives it its name; returns the XXH3-64 of its bytes in hex."""
        self._check_sync()
        self._syncs.shutdown()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._new.commit(self._hash.hexdigest())
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Removes the file, if it has no name yet."""
        self._syncs.shutdown()
        with contextlib.suppress(OSError):  # a full disk refuses what is left in the buffer, too
            self._file.close()
        self._new.discard()

    def _check_sync(self) -> None:
        """Waits for the sync under way. The system tells of a piece that it lost once only, so its word is needed."""
        if self._syncing is not None:
            self._syncing.result()
            self._syncing = None


def laid_out(
    key: str, packed: Packed, label: int, path: str, kinds: Mapping[str, str]
) -> tuple[list[bytes], list[int]]:
    """A sample as a shard has it: its bytes, in pieces; of each field the offset of its member's first byte from the
    sample's, 0 where it has none.
    """
    ours = {} if packed.class_name is None else {"class": packed.class_name}
    note: dict[str, Any] = {OURS: {**ours, "identity": f"{packed.identity:016x}"}, "path": readable(path)}
    if packed.change is not None:
        note["reencoded"] = packed.change
    for name, value in zip(kinds, packed.values, strict=True):
        if value.note is not None:
            note[name] = value.note
    after = after_picture(key, len(packed.data), json.dumps(note).encode())
    pieces = [before_picture(key, label, packed.data), packed.data, after]
    offsets = []
    for (name, kind), value in zip(kinds.items(), packed.values, strict=True):
        data, offset = value.member, 0
        if data is not None:
            ending = member(Field(name, kind), image_format_of(data))
            assert ending is not None  # a value of this kind is a member
            head, tail = tar.header(f"{key}.{ending}", len(data)), tar.padding(len(data))
            offset = sum(map(len, pieces)) + len(head)
            pieces += (head, data, tail)
        offsets.append(offset)
    return pieces, offsets


class Tar(NamedTuple):
    """A shard that is written; `removed` further samples are in it, which the dataset does not have any more."""

    number: int
    samples: int
    size_bytes: int
    xxh3_64: str
    removed: int = 0

    @property
    def name(self) -> str:
        return shard_name(self.number)

    def recorded(self) -> dict[str, Any]:
        """For dataset.json."""
        said = {"name": self.name, "samples": self.samples, "size_bytes": self.size_bytes, "xxh3_64": self.xxh3_64}
        return said | ({"removed": self.removed} if self.removed else {})


class TarWriter:
    """Writes one shard in WebDataset's naming. Nothing in its bytes depends on machine, user or time.

    A sample is KEY.cls (the label), the image (KEY.jpg, .fpc or .png), KEY.json (its note), the members of its fields.
    """

    def __init__(self, store: Store, number: int, kinds: Mapping[str, str]) -> None:
        self._number, self._kinds = number, kinds
        self.file = ShardFile(store.new_file(shard_name(number)))
        self._records: list[tuple[int, ...]] = []

    def add(self, packed: Packed, label: int, path: str, most_bytes: int) -> list[int] | None:
        """Appends a sample; see `laid_out`. Nothing if the shard would have more than `most_bytes`; the first fits."""
        at = self.file.size_bytes
        pieces, offsets = laid_out(sample_key(self._number, at), packed, label, path, self._kinds)
        end = at + sum(map(len, pieces))
        if self._records and end + len(tar.end(end)) > most_bytes:
            return None
        for piece in pieces:
            self.file.write(piece)
        digest = xxhash.xxh3_64_intdigest(packed.data)
        size = len(packed.data), packed.width, packed.height, *form_of(packed.data)
        self._records.append((0, at + BEFORE_BYTES, *size, label, digest, packed.identity, key_hash(readable(path))))
        return [at + offset if offset else 0 for offset in offsets]

    @property
    def records(self) -> NDArray[np.void]:
        """Those so far, with 0 for the shard."""
        return np.array(self._records, dtype=INDEX_DTYPE)

    def finish(self) -> Tar:
        """Ends the tar file, and gives it its name when it is on the disk."""
        self.file.write(tar.end(self.file.size_bytes))
        digest = self.file.finish()
        return Tar(self._number, len(self._records), self.file.size_bytes, digest)
