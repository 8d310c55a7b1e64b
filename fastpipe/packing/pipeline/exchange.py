"""Runs of sources -> their samples, converted, in packing order, whatever kind of source they are of.

Note [exchange]
Shards have rows from anywhere in the tables, and rows can only be read one after the other. So the rows are converted
in the order of their files, and each run of them is written to a file of the spool, sorted by packing order; a shard
then reads its part of every run. What is converted is not converted again: the name of a run names the state of its
rows. No other part of packing knows of this.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import shutil
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE
from fastpipe.packing.pipeline.ahead import read_ahead
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.pipeline.run_file import Sample, damaged, is_whole, parts_of, samples_in, write_run
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Outcomes, Run, Told
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.tables import TableListing
from fastpipe.store.store import Folder, Store

_LOG = logging.getLogger("fastpipe")
_SPOOL_FORMAT = 5  # another one when the spool's files change: nothing of the old ones is taken
_SPOOLED_BYTES, _SPOOLED_ROWS = 128 << 20, 1 << 16  # of a run; two may be in memory
_WINDOWS_BYTES = 64 << 20  # of all runs that are read, each of them within these bounds
_LEAST_WINDOW_BYTES, _MOST_WINDOW_BYTES = 1 << 15, 1 << 20
_TOLD_BYTES = 1_000_000_000
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
