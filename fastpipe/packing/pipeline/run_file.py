"""Converted rows of a table <-> a file in packing order, of which a part can be read; see Note [exchange].

The file has the samples' blobs, one behind the other; their records, a line of JSON with its hash each; and a footer
with the places of some of them, so that a reader finds a place without reading the file. No field can run code.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.picture.convert import Packed
from fastpipe.store.store import Store

_EVERY = 128  # records between two places in the footer
_TAIL_BYTES = 16  # hash and size of the footer, 8 bytes each
_END_BYTES = 1 << 16  # read at once: all of most footers
_FACTS = (
    *("width", "height", "change", "oriented", "stray_bytes", "multi_frame"),
    *("source_size", "orientation", "jpeg_bytes", "identity", "class_name"),
)


Place = tuple[int, str]  # in packing order: see `packing_order`


class _Record(NamedTuple):
    """A sample without its bytes.

    Attributes:
        number, name: its place.
        source_bytes: of its image.
        reason: why there is no picture; None: there is one.
        blob_bytes, xxh3_64: of its blob.
        picture_bytes: of the picture, which the blob begins with.
        facts: of the picture, as in Packed.
        values: for each field the bytes of its member, or None, and those of its note in JSON, or None.
    """

    number: int
    name: str
    source_bytes: int
    reason: str | None = None
    blob_bytes: int = 0
    xxh3_64: int = 0
    picture_bytes: int = 0
    facts: Any = ()
    values: Any = ()


class Sample(NamedTuple):
    """A converted row.

    Attributes:
        place: in packing order.
        source_bytes: of its image.
        outcome: the picture, or why there is none.
    """

    place: Place
    source_bytes: int
    outcome: Packed | str


def write_run(store: Store, name: str, samples: Iterable[Sample]) -> None:
    """Writes samples, which are in packing order.

    Raises:
        PackError: the disk or server refuses.
    """
    lines: list[bytes] = []
    places: list[tuple[int, str, int, int]] = []
    blob_at = line_at = 0
    with store.whole(name) as file:
        for at, sample in enumerate(samples):
            if at % _EVERY == 0:
                places.append((*sample.place, line_at, blob_at))
            record, blob = _laid_out(sample)
            text = json.dumps(record, separators=(",", ":")).encode()
            lines.append(b"%b\t%x\n" % (text, xxhash.xxh3_64_intdigest(text)))
            file.write(blob)
            line_at, blob_at = line_at + len(lines[-1]), blob_at + len(blob)
        file.writelines(lines)
        footer = json.dumps([len(lines), line_at, blob_at, places]).encode()
        file.write(footer + xxhash.xxh3_64_digest(footer) + len(footer).to_bytes(8, "little"))


def is_whole(store: Store, name: str, there: Mapping[str, int]) -> bool:
    """Whether a run is among the files of a store, whose sizes are given, and ends as it should."""
    try:
        return name in there and RunFile(store, name, there[name]).count >= 0
    except (PackError, OSError, ValueError, TypeError):
        return False


class RunFile:
    """A run that is read, window by window.

    Raises:
        PackError: it is damaged.
    """

    def __init__(self, store: Store, name: str, size_bytes: int) -> None:
        self._store, self._name = store, name
        footer = self._tail(size_bytes)
        self.count, self._lines_bytes, self._blobs_bytes, self._places = footer

    def samples(self, first: Place, last: Place, window_bytes: int) -> Iterator[Sample]:
        """The samples from one place to another, both included; their bytes are read as they are asked for."""
        start = max(bisect_left(self._places, first, key=_place) - 1, 0)
        stop = bisect_right(self._places, last, key=_place)
        if start >= stop:
            return
        *_, line_at, blob_at = self._places[start]
        *_, lines_end, blobs_end = (
            self._places[stop] if stop < len(self._places) else (self._lines_bytes, self._blobs_bytes)
        )
        window = _Window(self._store, self._name, window_bytes, blobs_end)
        for record in self._records(line_at, lines_end, window_bytes):
            place = record.number, record.name
            if place > last:
                return
            if place >= first:
                yield self._sample(
                    record, b"" if record.reason is not None else window.read(blob_at, record.blob_bytes)
                )
            blob_at += record.blob_bytes

    def _records(self, at: int, stop: int, window_bytes: int) -> Iterator[_Record]:
        rest = b""
        while at < stop:
            start = self._blobs_bytes + at
            piece = self._store.read(self._name, start, min(start + window_bytes, self._blobs_bytes + stop))
            at += len(piece) or stop
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                text, _, digest = line.partition(b"\t")
                if digest != b"%x" % xxhash.xxh3_64_intdigest(text):
                    raise self._damaged("a record has another hash")
                yield _Record(*json.loads(text))
        if rest:
            raise self._damaged("a record is cut off")

    def _sample(self, record: _Record, blob: bytes) -> Sample:
        if record.reason is not None:
            return Sample((record.number, record.name), record.source_bytes, record.reason)
        if len(blob) != record.blob_bytes or xxhash.xxh3_64_intdigest(blob) != record.xxh3_64:
            raise self._damaged(f"the bytes of {record.name} have another hash")
        at = record.picture_bytes
        values = []
        for member_bytes, note_bytes in record.values:
            member = None if member_bytes is None else blob[at : at + member_bytes]
            at += member_bytes or 0
            note = None if note_bytes is None else json.loads(blob[at : at + note_bytes])
            at += note_bytes or 0
            values.append(Stored(note, member))
        facts = dict(zip(_FACTS, record.facts, strict=True))
        facts["source_size"] = tuple(facts["source_size"])
        packed = Packed(blob[: record.picture_bytes], **facts, values=tuple(values))
        return Sample((record.number, record.name), record.source_bytes, packed)

    def _tail(self, size_bytes: int) -> Any:
        end = self._store.read(self._name, max(size_bytes - _END_BYTES, 0), size_bytes)
        footer, tail = end[:-_TAIL_BYTES], end[-_TAIL_BYTES:]
        at = size_bytes - _TAIL_BYTES - int.from_bytes(tail[8:], "little")
        if 0 <= at < size_bytes - len(end):
            footer = self._store.read(self._name, at, size_bytes - _TAIL_BYTES)
        footer = footer[at - size_bytes + _TAIL_BYTES :]
        if xxhash.xxh3_64_digest(footer) != tail[:8]:
            raise self._damaged("its footer has another hash")
        return json.loads(footer)

    def _damaged(self, what: str) -> PackError:
        return PackError(
            f"{self._name} in the spool {self._store.place} has changed since it was written: {what}. Remove it, then "
            "run the same command again: it is made anew"
        )


def _place(entry: Sequence[Any]) -> Place:
    return entry[0], entry[1]


class _Window:
    """A part of a file that is in memory, and moves on."""

    def __init__(self, store: Store, name: str, window_bytes: int, stop: int) -> None:
        self._store, self._name, self._bytes, self._stop = store, name, window_bytes, stop
        self._data, self._at = b"", 0

    def read(self, at: int, size: int) -> bytes:
        if not self._at <= at <= at + size <= self._at + len(self._data):
            stop = max(at + size, min(at + self._bytes, self._stop))
            self._data, self._at = self._store.read(self._name, at, stop), at
        return self._data[at - self._at : at - self._at + size]


def _laid_out(sample: Sample) -> tuple[_Record, bytes]:
    outcome = sample.outcome
    if isinstance(outcome, str):
        return _Record(*sample.place, sample.source_bytes, outcome), b""
    pieces, values = [outcome.jpeg], []
    for note, member in outcome.values:
        text = None if note is None else json.dumps(note).encode()
        pieces += [member or b"", text or b""]
        values.append((None if member is None else len(member), None if text is None else len(text)))
    blob = b"".join(pieces)
    facts = [getattr(outcome, name) for name in _FACTS]
    digest = xxhash.xxh3_64_intdigest(blob)
    record = _Record(*sample.place, sample.source_bytes, None, len(blob), digest, len(outcome.jpeg), facts, values)
    return record, blob
