"""Runs of sources -> their samples, converted, in packing order, whatever kind of source they are of.

Note [exchange]
Shards have rows from anywhere in the tables, and rows can only be read one after the other. So the rows are converted
in the order of their files, and each run of them is written to a file of the spool, sorted by packing order; a shard
then reads its part of every run. What is converted is not converted again: the name of a run names the state of its
rows. No other part of packing knows of this.

Note [run]
Such a file has records, one behind the other, each with its hash and size before it: a line of JSON, the picture, and
the members of fields. Behind them stands a footer, with its hash and size behind it: the places of some records, so a
reader finds its part without reading the file. No field can run code.
"""

from __future__ import annotations

import heapq
import io
import itertools
import json
import logging
import shutil
from bisect import bisect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.pipeline.ahead import read_ahead
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Outcomes, Run, Told
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.tables import TableListing
from fastpipe.store.store import Folder, Store

_LOG = logging.getLogger("fastpipe")
_SPOOL_FORMAT = 5  # another one when the spool's files change: nothing of the old ones is taken
_SPOOLED_BYTES, _SPOOLED_ROWS = 128 << 20, 1 << 16  # of a run; two may be in memory
_WINDOWS_BYTES = 64 << 20  # of all runs that are read, each of them within these bounds
_LEAST_WINDOW_BYTES, _MOST_WINDOW_BYTES = 1 << 15, 1 << 20
_TOLD_BYTES = 1_000_000_000
_EVERY_BYTES, _END_BYTES = 1 << 16, 1 << 17  # of records between two places in a footer; read at once: most footers
_HASH_BYTES, _HEAD_BYTES = 8, 16
_GROWTH = {JPEG_STORAGE: 1.0, COEFFICIENTS_STORAGE: 1.4}  # of images when they are stored


def outcomes_of(
    listing: Listing,
    wanted: Sequence[Run],
    options: PackOptions,
    spool: Path,
    told: Told = lambda *_: None,
    known: dict[str, Outcome] | None = None,
) -> Outcomes:
    """Converts the sources of some shards in packing order, but for the `known` ones, which it removes.

    Tables need a spool on this machine; `told` is called with each row that is written there.
    """
    if not isinstance(listing, TableListing):
        ours = [source for run in wanted for source in listing.sources[run.start : run.stop]]
        yield from converted(listing, ours, options, known)
    elif wanted:
        spool.mkdir(parents=True, exist_ok=True)
        store = Folder(spool, spool)
        runs = runs_of_rows(listing, spool_of(listing.kinds, options))
        names, there = [run.name for run in runs], store.sizes()
        store.remove(there.keys() - set(names))
        left = [run for run in runs if not is_whole(store, run.name, there)]
        _check_room(spool, listing, left, options)
        convert_rows(listing, left, options, store, told)
        yield from exchanged(listing.sources, wanted, options, names, store)


def spool_of(kinds: Mapping[str, str], options: PackOptions) -> str:
    """Names what decides the bytes of a sample, and where they are in the spool, besides its source."""
    said = _SPOOL_FORMAT, options.shaping(kinds), made_with()
    return xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())


class Rows(NamedTuple):
    """Rows that stand together in their files, as a file of the spool. Those of one `group` are read together."""

    name: str
    positions: Sequence[int]
    group: int


def runs_of_rows(listing: TableListing, how: str) -> list[Rows]:
    """Cuts the rows of a listing, which is in packing order; `how` is its `spool_of`."""
    order = sorted(range(len(listing.sources)), key=lambda at: _row(listing.sources[at]))
    in_files = replace(listing, sources=[listing.sources[at] for at in order])
    starts = {(name, each.first_row) for name, table in listing.tables.items() for each in table.groups}
    shares = {
        name: table.state.size_bytes / max(sum(each.rows for each in table.groups), 1)
        for name, table in listing.tables.items()
    }
    cuts, groups, size_bytes = [0], [0], 0.0
    for at, source in enumerate(in_files.sources):
        if size_bytes >= _SPOOLED_BYTES or at - cuts[-1] >= _SPOOLED_ROWS:
            groups.append(len(cuts) if _row(source) in starts else groups[-1])
            cuts.append(at)
            size_bytes = 0.0
        size_bytes += shares[source.archive or ""]
    found = []
    for (start, stop), group in zip(itertools.pairwise([*cuts, len(order)]), groups, strict=True):
        state = f"{how} {in_files.digest_with_times(start, stop)}"
        found.append(Rows(f"run-{xxhash.xxh3_128_hexdigest(state.encode())}", order[start:stop], group))
    return found


def _row(source: Source) -> tuple[str, int]:
    return source.archive or "", source.offset_bytes


def convert_rows(listing: TableListing, runs: Sequence[Rows], options: PackOptions, spool: Store, told: Told) -> None:
    """Converts runs that follow one another, and writes each to the spool; errors as of `converted`."""
    rows = [listing.sources[position] for run in runs for position in run.positions]
    place = packing_order(options.seed, shuffle=options.shuffle)
    writing: Future[None] | None = None
    with (
        ThreadPoolExecutor(1, thread_name_prefix="fastpipe-spool") as writer,
        closing(converted(listing, rows, options)) as found,
    ):
        for run in runs:
            samples = []
            for _ in run.positions:
                source, outcome = next(found)
                samples.append(Sample(place(source), source.size_bytes, outcome))
                told(source, outcome)
            samples.sort(key=lambda sample: sample.place)
            if writing is not None:
                writing.result()
            writing = writer.submit(write_run, spool, run.name, samples)
        if writing is not None:
            writing.result()


def exchanged(
    sources: Sequence[Source], wanted: Sequence[Run], options: PackOptions, names: Sequence[str], spool: Store
) -> Outcomes:
    """The rows of shards in packing order, from the files of all runs; `wanted` has their places in `sources`."""
    sizes = spool.sizes()
    if missing := next((name for name in names if name not in sizes), None):
        raise PackError(
            f"{missing} is not in the spool {spool.place}: run --step convert for all parts first. All machines have "
            "to see DST, or the folder of --spool, by the same path"
        )
    window_bytes = min(max(_WINDOWS_BYTES // max(len(names), 1), _LEAST_WINDOW_BYTES), _MOST_WINDOW_BYTES)
    place = packing_order(options.seed, shuffle=options.shuffle)
    starts, stops = {run.start for run in wanted}, {run.stop for run in wanted}
    stretches = zip(sorted(starts - stops), sorted(stops - starts), strict=True)  # of shards that follow one another
    bounds = [(place(sources[start]), place(sources[stop - 1])) for start, stop in stretches]
    parts = list(spool.each(lambda name: parts_of(spool, name, sizes[name], bounds), names))

    def samples() -> Generator[Sample, None, None]:
        for at, (first, last) in enumerate(bounds):
            runs = [samples_in(spool, name, part[at], window_bytes) for name, part in zip(names, parts, strict=True)]
            for sample in heapq.merge(*runs, key=lambda sample: sample.place):
                if first <= sample.place <= last:
                    yield sample

    expected = (source for run in wanted for source in sources[run.start : run.stop])
    with closing(read_ahead(samples(), lambda sample: sample.source_bytes)) as found:
        for sample in found:
            source = next(expected, None)
            if source is None or sample.place[1] != source.path:
                raise damaged(spool, readable(sample.place[1]))
            yield source._replace(size_bytes=sample.source_bytes), sample.outcome
    if (missing_row := next(expected, None)) is not None:
        raise damaged(spool, readable(missing_row.path))


def _check_room(folder: Path, listing: TableListing, left: Sequence[Rows], options: PackOptions) -> None:
    """Looks whether the disk has room for runs that are not in the spool, and says how much they take."""
    share = sum(len(run.positions) for run in left) / max(len(listing.sources), 1)
    needed = round(listing.size_bytes * share * _GROWTH[options.encode.storage])
    free = shutil.disk_usage(folder).free
    shrinks = options.encode.max_size is not None
    words = (
        f"packing {readable(str(listing.root))} needs {'at most' if shrinks else 'about'} {needed / 1e6:,.1f} MB "
        f"beside the dataset until it is done, in {readable(str(folder))}; {free / 1e6:,.1f} MB are free there"
    )
    if free < needed and not shrinks:
        disk = "another disk (DST, or --spool where DST is a URL)"
        raise PackError(f"{words}. Make room, or choose {disk}, then run the same command again")
    if needed >= _TOLD_BYTES:
        _LOG.warning(words)


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
