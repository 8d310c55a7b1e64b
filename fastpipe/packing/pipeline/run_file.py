"""Converted rows of a table, or sources <-> a file in packing order, of which a part can be read; see Note [exchange].

The file has records, one behind the other, each with its hash and size before it: a line of JSON, the picture, and the
members of fields. Behind them stands a footer, with its hash and size behind it: the places of some records, so that a
reader finds its part without reading the file. No field can run code.
"""

from __future__ import annotations

import io
import json
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.shard.plan import Outcome
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.store import Store

_EVERY_BYTES = 1 << 16  # of records between two places in the footer
_HASH_BYTES, _HEAD_BYTES = 8, 16
_END_BYTES = 1 << 17  # read at once: all of most footers

OrderKey = tuple[int, str]  # what `packing_order` sorts by


class Sample(NamedTuple):
    """A converted row; `source_bytes` is the size of its image. Of a listed source the outcome is itself as JSON."""

    place: OrderKey
    source_bytes: int
    outcome: Outcome


def write_run(store: Store, name: str, samples: Iterable[Sample]) -> None:
    """Writes samples, which are in packing order."""
    places: list[tuple[int, str, int]] = []
    at = 0
    with store.whole(name) as file:
        for sample in samples:
            if not places or at - places[-1][-1] >= _EVERY_BYTES:
                places.append((*sample.place, at))
            record = _laid_out(sample)
            at += file.write(_head(record)) + file.write(record)
        footer = json.dumps(places).encode()
        file.write(footer + _head(footer))


def is_whole(store: Store, name: str, there: Mapping[str, int]) -> bool:
    """Whether a run is among the files of a store, whose sizes are given, and ends as it should."""
    try:
        return name in there and not parts_of(store, name, there[name], ())
    except (PackError, OSError):
        return False


def parts_of(
    store: Store, name: str, size_bytes: int, bounds: Iterable[tuple[OrderKey, OrderKey]]
) -> list[tuple[int, int]]:
    """For each two places the bytes of a run that have what is between them, both included, and a little more."""
    end = store.read(name, max(size_bytes - _END_BYTES, 0), size_bytes)
    stop = size_bytes - _HEAD_BYTES - int.from_bytes(end[-_HASH_BYTES:], "little")
    if stop < size_bytes - len(end):
        end = store.read(name, max(stop, 0), size_bytes)
    footer = end[stop - size_bytes : -_HEAD_BYTES]
    if _head(footer) != end[-_HEAD_BYTES:]:
        raise damaged(store, name)
    places = json.loads(footer)
    offsets = [*(at for *_, at in places), stop]
    return [
        (offsets[max(bisect(places, [*first, stop]) - 1, 0)], offsets[bisect(places, [*last, stop])])
        for first, last in bounds
    ]


def samples_in(store: Store, name: str, part: tuple[int, int], window_bytes: int) -> Iterator[Sample]:
    """The samples of one of `parts_of`; so many of their bytes are read at once."""
    at, stop = part
    window, used = b"", 0

    def take(size_bytes: int) -> bytes:
        nonlocal at, window, used
        if used + size_bytes > len(window):
            missing = used + size_bytes - len(window)
            more = store.read(name, at, min(at + max(missing, window_bytes), stop))
            window, used, at = window[used:] + more, 0, at + len(more)
        used += size_bytes
        return window[used - size_bytes : used]

    while used < len(window) or at < stop:
        head = take(_HEAD_BYTES)
        record = take(int.from_bytes(head[_HASH_BYTES:], "little"))
        if _head(record) != head:
            raise damaged(store, name)
        line, _, rest = record.partition(b"\n")
        number, path, source_bytes, outcome = json.loads(line)
        yield Sample((number, path), source_bytes, outcome if isinstance(outcome, str) else _packed(outcome, rest))


def _head(data: bytes) -> bytes:
    return xxhash.xxh3_64_digest(data) + len(data).to_bytes(_HEAD_BYTES - _HASH_BYTES, "little")


def _laid_out(sample: Sample) -> bytes:
    outcome: Any = sample.outcome
    pieces: Sequence[bytes] = ()
    if isinstance(outcome, Packed):
        pieces = [outcome.data, *(value.member or b"" for value in outcome.values)]
        values = [(value.note, None if value.member is None else len(value.member)) for value in outcome.values]
        outcome = {**vars(outcome), "data": len(outcome.data), "values": values}
    line = json.dumps((*sample.place, sample.source_bytes, outcome)).encode()
    return b"".join((line, b"\n", *pieces))


def _packed(facts: dict[str, Any], pieces: bytes) -> Packed:
    file = io.BytesIO(pieces)
    read = {
        "data": file.read(facts["data"]),
        "source_size": tuple(facts["source_size"]),
        "values": tuple(Stored(note, None if size is None else file.read(size)) for note, size in facts["values"]),
    }
    return Packed(**(facts | read))


def damaged(store: Store, what: str) -> PackError:
    return PackError(
        f"{what} in the spool {store.place} has changed since it was written. Remove it, then run the same command "
        "again: it is made anew"
    )
