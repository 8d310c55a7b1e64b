"""Converted samples in packing order -> a file of the spool; and a part of such a file -> its
samples.

Note [run]
The file of a run has records, one behind the other. A record is a hash and a size, and then a line
of JSON, the picture, and the members of fields. Behind the records is a footer, with its hash and
size behind it: marks, which are the order key and the offset of a record every 64 KiB. So a reader
finds its part without reading the whole file. No content of the file is run as code.
"""

from __future__ import annotations

import io
import json
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import xxhash

from fastpipe.dataset.format.sample_layout import Stored
from fastpipe.errors import PackError
from fastpipe.packing.shard.plan import Outcome
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.store import Store

# Bytes of records between two marks in the footer.
_MARK_EVERY_BYTES = 1 << 16
# One read of the end of a file gets most footers.
_END_BYTES = 1 << 17
# Before a record, and behind the footer: XXH3-64, and the size as a little-endian integer.
_HASH_BYTES = 8
_HEAD_BYTES = 16

# What `packing_order` sorts by: a hash of the source's path, or its label if the samples are not
# shuffled; and then the path.
OrderKey = tuple[int, str]


class KeyRange(NamedTuple):
    """The samples whose keys are from the first to the last one, both included."""

    first: OrderKey
    last: OrderKey


class Sample(NamedTuple):
    """A converted row.

    Attributes:
        order_key: by which samples are sorted.
        source_bytes: size of its image in the table.
        outcome: what became of it. A list of sources, which are not converted, has each as JSON
            here.
    """

    order_key: OrderKey
    source_bytes: int
    outcome: Outcome

    @property
    def path(self) -> str:
        """The path of its source."""
        return self.order_key[1]


def write_run(store: Store, name: str, samples: Iterable[Sample]) -> None:
    """Writes samples, which are in packing order. Note [run]"""
    # The order key of a record, as two values, and its offset.
    marks: list[tuple[int, str, int]] = []
    offset = 0
    next_mark_at = 0
    with store.open_atomic(name) as file:
        for sample in samples:
            if offset >= next_mark_at:
                marks.append((*sample.order_key, offset))
                next_mark_at = offset + _MARK_EVERY_BYTES
            record = _encode_record(sample)
            offset += file.write(_head(record))
            offset += file.write(record)
        footer = json.dumps(marks).encode()
        file.write(footer + _head(footer))


def is_whole_run(store: Store, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether a run is in a store, which has files of these sizes, and has its footer."""
    if name not in sizes:
        return False
    try:
        find_ranges(store, name, sizes[name], ())
    except (PackError, OSError):
        return False
    return True


def find_ranges(
    store: Store,
    name: str,
    size_bytes: int,
    key_ranges: Iterable[KeyRange],
) -> list[tuple[int, int]]:
    """For each range of keys the range of bytes of a run that has its samples.

    The bytes may have some samples more at both ends, as not every record has a mark.
    """
    end_at = max(size_bytes - _END_BYTES, 0)
    end = store.read(name, end_at, size_bytes)
    footer_bytes = int.from_bytes(end[-_HASH_BYTES:], "little")
    footer_at = size_bytes - _HEAD_BYTES - footer_bytes
    # A damaged size may lead before the file. The hash below finds that.
    if footer_at < size_bytes - len(end):
        end = store.read(name, max(footer_at, 0), size_bytes)
    footer = end[footer_at - size_bytes : -_HEAD_BYTES]
    if _head(footer) != end[-_HEAD_BYTES:]:
        raise damaged_error(store, name)

    marks = json.loads(footer)
    offsets = [mark[-1] for mark in marks] + [footer_at]
    ranges = []
    for first, last in key_ranges:
        # The offset of the footer is larger than that of any record. So the key sorts behind the
        # mark of a record with the same key.
        behind_first = bisect(marks, [*first, footer_at])
        behind_last = bisect(marks, [*last, footer_at])
        start = offsets[max(behind_first - 1, 0)]
        stop = offsets[behind_last]
        ranges.append((start, stop))
    return ranges


def read_samples(
    store: Store, name: str, part: tuple[int, int], window_bytes: int
) -> Iterator[Sample]:
    """The samples of one of the ranges of `find_ranges`. About `window_bytes` are read at once."""
    reader = _WindowReader(store, name, part, window_bytes)
    while not reader.is_at_end():
        head = reader.read(_HEAD_BYTES)
        record_bytes = int.from_bytes(head[_HASH_BYTES:], "little")
        record = reader.read(record_bytes)
        if _head(record) != head:
            raise damaged_error(store, name)
        # JSON escapes line breaks in texts, so the first one ends the line.
        line, _, pieces = record.partition(b"\n")
        order_hash, path, source_bytes, outcome = json.loads(line)
        if not isinstance(outcome, str):
            outcome = _decode_packed(outcome, pieces)
        yield Sample((order_hash, path), source_bytes, outcome)


class _WindowReader:
    """Reads a range of a file from start to end, a window at a time."""

    def __init__(
        self, store: Store, name: str, part: tuple[int, int], window_bytes: int
    ) -> None:
        self._store = store
        self._name = name
        self._offset, self._stop = part
        self._window_bytes = window_bytes
        self._window = b""
        self._used = 0

    def is_at_end(self) -> bool:
        is_window_used = self._used >= len(self._window)
        return is_window_used and self._offset >= self._stop

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer at the end of the range."""
        unused_bytes = len(self._window) - self._used
        missing = size_bytes - unused_bytes
        if missing > 0:
            num_bytes = max(missing, self._window_bytes)
            stop = min(self._offset + num_bytes, self._stop)
            data = self._store.read(self._name, self._offset, stop)
            self._offset += len(data)
            self._window = self._window[self._used :] + data
            self._used = 0
        start = self._used
        self._used += size_bytes
        return self._window[start : self._used]


def _head(data: bytes) -> bytes:
    size = len(data).to_bytes(_HEAD_BYTES - _HASH_BYTES, "little")
    return xxhash.xxh3_64_digest(data) + size


def _encode_record(sample: Sample) -> bytes:
    outcome: Any = sample.outcome
    pieces: list[bytes] = []
    if isinstance(outcome, Packed):
        # The line has the sizes of the bytes that follow it.
        pieces = [outcome.data]
        values = []
        for value in outcome.values:
            pieces += value.members
            sizes = [len(member) for member in value.members]
            values.append((value.note, sizes))
        outcome = {**vars(outcome), "data": len(outcome.data), "values": values}
    content = (*sample.order_key, sample.source_bytes, outcome)
    line = json.dumps(content).encode()
    return b"".join((line, b"\n", *pieces))


def _decode_packed(recorded: dict[str, Any], pieces: bytes) -> Packed:
    file = io.BytesIO(pieces)
    data = file.read(recorded["data"])
    values = []
    for note, sizes in recorded["values"]:
        members = tuple(file.read(size) for size in sizes)
        values.append(Stored(note, members))
    decoded = {
        "data": data,
        "source_size": tuple(recorded["source_size"]),
        "values": tuple(values),
    }
    return Packed(**(recorded | decoded))


def damaged_error(store: Store, name: str) -> PackError:
    return PackError(
        f"{name} in the spool {store.place} has changed since it was written. Remove it, then run "
        "the same command again: it is made anew"
    )
