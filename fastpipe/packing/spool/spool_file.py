"""Records and blobs of a run of sources <-> one file, sorted by packing order.

Note [spool file]
A line of JSON with sizes and what the file is of; a line of JSON for each record; then the blobs, in the order of the
records. So a reader goes through records and blobs from start to end, and a range of places is a range of each. A file
is published whole: one that has its name has all its bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.read_at import read_at
from fastpipe.packing.output.files import whole_file
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.spool.record import Record, outcome_of

_FORMAT = "fastpipe spool 2"
_MOST_HEAD_BYTES = 1 << 16


class Head(NamedTuple):
    """The first line of a spool file.

    Attributes:
        format: _FORMAT.
        made_with: names the options, and the libraries that decide bytes.
        archive: the file of the source; "" where the source is no table.
        first, sources: the run: positions among the sources of that file, in the file's order.
        state: names the state of these sources.
        records_bytes, records_xxh3_64: of the lines with records.
        blobs_bytes: of the blobs.
    """

    format: str
    made_with: str
    archive: str
    first: int
    sources: int
    state: str
    records_bytes: int
    records_xxh3_64: str
    blobs_bytes: int


def write_spool_file(
    file: Path, made_with: str, archive: str, first: int, state: str, samples: list[tuple[Record, bytes]]
) -> None:
    """Writes a run of samples, which are put in packing order.

    Args:
        file: its final name. It appears when all is written.
        made_with, archive, first, state: see Head.
        samples: records and blobs.

    Raises:
        PackError: the disk refuses.
    """
    samples.sort(key=lambda sample: sample[0].place)
    lines = b"".join(record.line() for record, _ in samples)
    blobs_bytes = sum(record.blob_bytes for record, _ in samples)
    facts = len(lines), xxhash.xxh3_64_hexdigest(lines), blobs_bytes
    head = json.dumps(Head(_FORMAT, made_with, archive, first, len(samples), state, *facts)).encode() + b"\n"
    with whole_file(file, file.parent) as out:
        for piece in chain((head, lines), (blob for _, blob in samples)):
            out.write(piece)


class SpoolFile:
    """A spool file that is read.

    Args:
        path: of it.

    Attributes:
        head: its first line.

    Raises:
        ValueError: it is none, or not whole.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        line = self._read(0, min(_MOST_HEAD_BYTES, path.stat().st_size)).partition(b"\n")[0]
        try:
            self.head = Head(*json.loads(line))
        except (TypeError, RecursionError) as problem:
            raise ValueError(f"{path} is no spool file") from problem
        self._records_at = len(line) + 1
        self._blobs_at = self._records_at + self.head.records_bytes
        if self.head.format != _FORMAT or path.stat().st_size != self._blobs_at + self.head.blobs_bytes:
            raise ValueError(f"{path} is no whole spool file")

    def samples(self, after: tuple[int, str] | None, buffer_bytes: int) -> Iterator[tuple[Record, Blob]]:
        """The samples, in order.

        Args:
            after: leaves out those up to this place; None: none.
            buffer_bytes: read at once, of records and of blobs each.

        Raises:
            PackError: the file has changed.
        """
        window = Window(str(self.path), self._read, buffer_bytes)
        at = self._blobs_at
        for record in self._records(buffer_bytes):
            if after is None or record.place > after:
                yield record, Blob(window, at, record)
            at += record.blob_bytes

    def _records(self, buffer_bytes: int) -> Iterator[Record]:
        rest, at = b"", self._records_at
        digest = xxhash.xxh3_64()
        while at < self._blobs_at:
            piece = self._read(at, min(buffer_bytes, self._blobs_at - at))
            digest.update(piece)
            at += len(piece) or self._blobs_at
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            try:
                yield from map(Record.of_line, lines)
            except (TypeError, ValueError, RecursionError) as problem:
                raise self._damaged() from problem
        if rest or digest.hexdigest() != self.head.records_xxh3_64:
            raise self._damaged()

    def _damaged(self) -> PackError:
        return PackError(
            f"{self.path} has changed since it was written: its records have another hash. Remove it, then run the "
            "same command again: it is made anew"
        )

    def _read(self, at: int, size: int) -> bytes:
        """Opens it each time: there may be more spool files than a process may have open."""
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return read_at(handle, size, at)
        finally:
            os.close(handle)


class Window:
    """A part of a spool file that is in memory, and moves on.

    Args:
        name: of the file.
        read: reads it, from an offset on, so many bytes.
        buffer_bytes: read at once.
    """

    def __init__(self, name: str, read: Callable[[int, int], bytes], buffer_bytes: int) -> None:
        self.name = name
        self._read, self._buffer_bytes = read, buffer_bytes
        self._data, self._at = b"", 0

    def read(self, at: int, size: int) -> bytes:
        """So many bytes; fewer where the file ends before."""
        if not self._at <= at <= at + size <= self._at + len(self._data):
            self._data, self._at = self._read(at, max(size, self._buffer_bytes)), at
        return self._data[at - self._at : at - self._at + size]


class Blob(NamedTuple):
    """The bytes of a sample, not yet read."""

    window: Window
    at: int
    record: Record

    def outcome(self) -> Packed | str:
        """The picture, or why there is none.

        Raises:
            PackError: the file has changed.
            OSError: it cannot be read.
        """
        return outcome_of(self.record, self.window.read(self.at, self.record.blob_bytes), self.window.name)
