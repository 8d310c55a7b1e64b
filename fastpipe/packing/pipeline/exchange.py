"""Rows of tables, which are read in the order of their files -> the same rows, converted, in packing order.

Note [exchange]
Shards have rows from anywhere in the tables, and rows can only be read one after the other. So the rows are converted
in the order of their files, and each run of them is written to a file of the spool, sorted by packing order; a shard
then reads its part of every run. What is converted is not converted again: the name of a run names the state of its
rows. No other part of packing knows of this.
"""

from __future__ import annotations

import heapq
import logging
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.ahead import read_ahead
from fastpipe.packing.pipeline.converting import RUN_BYTES
from fastpipe.packing.pipeline.run_file import Place, RunFile, Sample, write_run
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Run
from fastpipe.packing.source.listing import Source, packing_order
from fastpipe.packing.source.tables import TableListing
from fastpipe.store.store import Store

_LOG = logging.getLogger("fastpipe")
_SPOOLED_BYTES, _SPOOLED_ROWS = 128 << 20, 1 << 16  # of a run; two may be in memory
_WINDOWS_BYTES = 64 << 20  # of all runs that are read, each of them within these bounds
_LEAST_WINDOW_BYTES, _MOST_WINDOW_BYTES = 1 << 15, 1 << 20
_HANDED_OVER = 256  # samples
_TOLD_BYTES = 1_000_000_000
_GROWTH = {JPEG_STORAGE: 1.0, COEFFICIENTS_STORAGE: 1.4}  # of images when they are stored

Told = Callable[[Source, Packed | str], None]


class Rows(NamedTuple):
    """A run: rows that stand together in their files.

    Attributes:
        name: of its file in the spool.
        positions: places in the sources of a listing, in the order of the files.
        group: a number that runs share which are read from one group of rows.
    """

    name: str
    positions: Sequence[int]
    group: int


def runs_of_rows(listing: TableListing, how: str) -> list[Rows]:
    """Cuts the rows of a listing, which is in packing order.

    Args:
        listing: of the rows.
        how: names all that decides bytes, besides the rows.
    """
    sources = listing.sources
    order = sorted(range(len(sources)), key=lambda at: (sources[at].archive or "", sources[at].offset_bytes))
    found: list[Rows] = []
    first, group, size_bytes = 0, 0, 0.0
    starts = {(name, each.first_row) for name, table in listing.tables.items() for each in table.groups}
    shares = {
        name: table.state.size_bytes / max(sum(each.rows for each in table.groups), 1)
        for name, table in listing.tables.items()
    }

    def end(stop: int) -> None:
        run = order[first:stop]
        state = replace(listing, sources=[sources[at] for at in run]).digest_with_times()
        digest = xxhash.xxh3_128_hexdigest(f"{how} {state}".encode())
        found.append(Rows(f"run-{digest}", run, group))

    for at, position in enumerate(order):
        source = sources[position]
        new_group = (source.archive or "", source.offset_bytes) in starts
        full = size_bytes >= _SPOOLED_BYTES or at - first >= _SPOOLED_ROWS
        if at > first and full:
            end(at)
            first, size_bytes = at, 0.0
            group = len(found) if new_group else group
        size_bytes += shares[source.archive or ""]
    if first < len(order):
        end(len(order))
    return found


def convert_rows(
    listing: TableListing,
    runs: Sequence[Rows],
    options: PackOptions,
    workers: int,
    spool: Store,
    told: Told,
) -> None:
    """Converts runs that follow one another, and writes each to the spool.

    Raises:
        PackError: a file has changed since it was listed; or the system is at fault.
    """
    from fastpipe.packing.pipeline.table_rows import converted_rows  # it needs pyarrow

    rows = (listing.sources[position] for run in runs for position in run.positions)
    place = packing_order(options.seed, shuffle=options.shuffle)
    writing: Future[None] | None = None
    with (
        ThreadPoolExecutor(1, thread_name_prefix="fastpipe-spool") as writer,
        closing(converted_rows(listing, rows, options.encode, workers)) as found,
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
) -> Generator[tuple[Source, Packed | str], None, None]:
    """The rows of some shards, in packing order, from runs that are converted.

    Args:
        sources: these rows, and perhaps others, in packing order.
        wanted: the places of the shards in them, in order.
        options: of the pack.
        names: of the files of all runs.
        spool: that these are in.

    Raises:
        PackError: a run is not there, or has changed.
    """
    if not wanted:
        return
    sizes = spool.sizes()
    if missing := next((name for name in names if name not in sizes), None):
        raise PackError(
            f"{missing} is not in the spool {spool.place}: run --step convert for all parts first. All machines have "
            "to see DST, or the folder of --spool, by the same path"
        )
    files = list(spool.each(lambda name: RunFile(spool, name, sizes[name]), names))
    window_bytes = min(max(_WINDOWS_BYTES // max(len(files), 1), _LEAST_WINDOW_BYTES), _MOST_WINDOW_BYTES)
    place = packing_order(options.seed, shuffle=options.shuffle)
    bounds = [(place(sources[start]), place(sources[stop - 1])) for start, stop in _stretches(wanted)]
    expected = (source for run in wanted for source in sources[run.start : run.stop])
    with closing(read_ahead(_handed(files, bounds, window_bytes))) as handed:
        for sample in (each for some in handed for each in some):
            source = next(expected, None)
            if source is None or sample.place[1] != source.path:
                raise _does_not_fit(spool, sample.place[1])
            yield replace(source, size_bytes=sample.source_bytes), sample.outcome
    if (missing_row := next(expected, None)) is not None:
        raise _does_not_fit(spool, missing_row.path)


def _does_not_fit(spool: Store, name: str) -> PackError:
    return PackError(
        f"the spool {spool.place} has another sample than it should at {readable(name)}. Remove it, then run the same "
        "command again: it is made anew"
    )


def _handed(
    files: Sequence[RunFile], bounds: Sequence[tuple[Place, Place]], window_bytes: int
) -> Generator[list[Sample], None, None]:
    """Some samples at once: handing over each by itself would cost more than reading it."""
    some: list[Sample] = []
    size_bytes = 0
    for first, last in bounds:
        streams = [file.samples(first, last, window_bytes) for file in files]
        for sample in heapq.merge(*streams, key=lambda sample: sample.place):
            some.append(sample)
            size_bytes += sample.source_bytes
            if size_bytes >= RUN_BYTES or len(some) == _HANDED_OVER:
                yield some
                some, size_bytes = [], 0
    if some:
        yield some


def _stretches(wanted: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """The positions of shards that follow one another, as one range."""
    start, stop = wanted[0].start, wanted[0].stop
    for run in wanted[1:]:
        if run.start != stop:
            yield start, stop
            start = run.start
        stop = run.stop
    yield start, stop


def check_room(folder: Path, listing: TableListing, share: float, options: PackOptions) -> None:
    """Looks whether the disk has room for the spool, and says how much it takes.

    Raises:
        PackError: it has not.
    """
    needed = round(listing.size_bytes * share * _GROWTH[options.encode.storage])
    free = shutil.disk_usage(folder).free
    shrinks = options.encode.max_size is not None
    most = "at most " if shrinks else "about "
    words = f"packing {readable(str(listing.root))} needs {most}{_shown(needed)} beside the dataset until it is done"
    if free < needed and not shrinks:
        raise PackError(
            f"{words}, in {readable(str(folder))}; {_shown(free)} are free there. Make room, or choose another disk "
            "(DST, or --spool where DST is a URL), then run the same command again"
        )
    if needed >= _TOLD_BYTES:
        few = f"; only {_shown(free)} are free there" if free < 2 * needed else ""
        _LOG.warning("%s, in %s%s", words, readable(str(folder)), few)


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e8 else f"{size_bytes / 1e6:.1f} MB"
