"""Packed samples, in order -> a tar under a temporary name, and its index records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.arrays import Records
from fastpipe.dataset.format import tar_writer as tar
from fastpipe.dataset.format.fields import Field, image_format_of, member_ending
from fastpipe.dataset.format.layout import WIDE_INDEX_DTYPE, shard_name
from fastpipe.dataset.format.pixel_form import NO_FORM
from fastpipe.dataset.format.sample_layout import (
    BEFORE_BYTES,
    OURS,
    after_picture,
    before_picture,
    key_hash,
    sample_key,
)
from fastpipe.errors import readable
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.picture.probe import read_form
from fastpipe.store.files import no_link
from fastpipe.store.store import NewFile, Store

# So many bytes are written at once: each write releases the GIL, and then waits to get it back.
_BUFFER_BYTES = 1 << 20
# A sync begins after so many bytes, so that little is left to sync in the end.
_SYNC_BYTES = 32 << 20


class ShardFile:
    """A file that is written from start to end, and gets its name when all of it is on the disk."""

    def __init__(self, new: NewFile) -> None:
        self._new = new
        # `finish` or `discard` closes the file.
        self._file = open(new.path, "wb", _BUFFER_BYTES, opener=no_link)  # noqa: SIM115
        self._hash = xxhash.xxh3_64()
        self._syncs = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-sync")
        self._syncing: Future[None] | None = None
        self._next_sync_bytes = _SYNC_BYTES
        self.size_bytes = 0

    def write(self, piece: bytes) -> None:
        """Appends a piece. OSError: writing fails, or an earlier piece was lost."""
        # The hash is made of what should be written. So `fastpipe verify` notices a disk
        # that has written something else.
        self._hash.update(piece)
        self._file.write(piece)
        self.size_bytes += len(piece)
        can_sync = self._syncing is None or self._syncing.done()
        if self.size_bytes >= self._next_sync_bytes and can_sync:
            self._begin_sync()

    def finish(self) -> str:
        """Syncs the file and gives it its name; returns the XXH3-64 of its bytes in hex."""
        self._wait_for_sync()
        self._syncs.shutdown()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._new.commit(self._hash.hexdigest())
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Removes the file, unless it has its name already."""
        self._syncs.shutdown()
        # Closing writes the rest of the buffer, which a full disk refuses.
        with contextlib.suppress(OSError):
            self._file.close()
        self._new.discard()

    def _begin_sync(self) -> None:
        self._wait_for_sync()
        self._file.flush()
        sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
        self._syncing = self._syncs.submit(sync, self._file.fileno())
        self._next_sync_bytes = self.size_bytes + _SYNC_BYTES

    def _wait_for_sync(self) -> None:
        """Waits for the sync under way. Its result is read, as the system reports a loss once."""
        if self._syncing is not None:
            self._syncing.result()
            self._syncing = None


class EncodedSample(NamedTuple):
    """The bytes of a sample in a shard.

    Attributes:
        pieces: its bytes, one behind the other.
        described: what the index describes: the image, or the note of a sample without one.
        offsets: for each field those of its members, from the sample's start. An offset is that of a
            member's first byte, behind its tar header.
    """

    pieces: list[bytes]
    described: bytes
    offsets: list[list[int]]


def encode_sample(
    key: str, packed: Packed, label: int, path: str, kinds: Mapping[str, str]
) -> EncodedSample:
    """Encodes a sample.

    Args:
        key: of the sample.
        packed: its image, and the values of its fields.
        label: of its class, or NO_LABEL.
        path: its source path.
        kinds: name -> kind of each field, in the order of `packed.values`.
    """
    # These two entries come first, in this order: `read_ours` reads no more of a note.
    ours = {}
    if packed.class_name is not None:
        ours["class"] = packed.class_name
    ours["identity"] = f"{packed.identity:016x}"
    note: dict[str, Any] = {OURS: ours, "path": readable(path)}
    if packed.change is not None:
        note["reencoded"] = packed.change
    for name, value in zip(kinds, packed.values, strict=True):
        if value.note is not None:
            note[name] = value.note

    encoded_note = json.dumps(note).encode()
    after = after_picture(key, len(packed.data), encoded_note)
    before = before_picture(key, label, packed.data)
    pieces = [before, packed.data, after]
    size_bytes = sum(len(piece) for piece in pieces)
    offsets = []
    for (name, kind), value in zip(kinds.items(), packed.values, strict=True):
        offsets_of_field = []
        for number, data in enumerate(value.members):
            ending = member_ending(Field(name, kind), image_format_of(data), number)
            # Only kinds that are stored as members have a value with members.
            assert ending is not None
            header = tar.header(f"{key}.{ending}", len(data))
            padding = tar.padding(len(data))
            data_offset = size_bytes + len(header)
            offsets_of_field.append(data_offset)
            pieces += (header, data, padding)
            size_bytes = data_offset + len(data) + len(padding)
        offsets.append(offsets_of_field)
    return EncodedSample(pieces, packed.data or encoded_note, offsets)


class Tar(NamedTuple):
    """A finished tar. `removed` counts samples in it that the dataset does not have any more."""

    number: int
    samples: int
    size_bytes: int
    xxh3_64: str
    removed: int = 0

    @property
    def name(self) -> str:
        return shard_name(self.number)

    def recorded(self) -> dict[str, Any]:
        """The tar as dataset.json lists it."""
        entry = {
            "name": self.name,
            "samples": self.samples,
            "size_bytes": self.size_bytes,
            "xxh3_64": self.xxh3_64,
        }
        if self.removed:
            entry["removed"] = self.removed
        return entry


class TarWriter:
    """Writes one tar with WebDataset's names. Its bytes do not depend on the machine, the user or
    the time.

    A sample is KEY.cls (the label), the image (KEY.jpg, .fpc, .png or .tif), KEY.json (its note), the
    members of its fields. A sample without an image lacks that member.
    """

    def __init__(self, store: Store, number: int, kinds: Mapping[str, str]) -> None:
        self._number = number
        self._kinds = kinds
        self.file = ShardFile(store.new_file(shard_name(number)))
        self._records: list[tuple[int, ...]] = []

    def add(
        self, packed: Packed, label: int, path: str, max_bytes: int
    ) -> list[list[int]] | None:
        """Appends a sample; returns the offsets of each field's members in the tar.

        None, and nothing is written, if the tar would get larger than `max_bytes`. The first sample
        always fits.
        """
        start = self.file.size_bytes
        # The key names the place of the sample in its shard.
        sample = encode_sample(
            sample_key(self._number, start), packed, label, path, self._kinds
        )
        end = start + sum(len(piece) for piece in sample.pieces)
        closed_bytes = end + len(tar.end(end))
        if self._records and closed_bytes > max_bytes:
            return None

        for piece in sample.pieces:
            self.file.write(piece)
        form = NO_FORM
        if packed.data:
            form = read_form(packed.data)
        # As WIDE_INDEX_DTYPE; the number of the shard is known only when the shards are joined.
        record = (
            0,
            start + BEFORE_BYTES,
            len(sample.described),
            packed.width,
            packed.height,
            *form,
            label,
            xxhash.xxh3_64_intdigest(sample.described),
            packed.identity,
            key_hash(readable(path)),
        )
        self._records.append(record)
        return [[start + offset for offset in of_field] for of_field in sample.offsets]

    @property
    def records(self) -> Records:
        """(samples so far,) of WIDE_INDEX_DTYPE; `shard` is 0."""
        return np.array(self._records, dtype=WIDE_INDEX_DTYPE)

    def finish(self) -> Tar:
        """Ends the tar, and gives the file its name when it is on the disk."""
        self.file.write(tar.end(self.file.size_bytes))
        digest = self.file.finish()
        return Tar(self._number, len(self._records), self.file.size_bytes, digest)
