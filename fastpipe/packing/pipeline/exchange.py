"""The sources of some shards -> their converted samples in packing order, for every kind of source.

Note [exchange]
The rows of a shard lie anywhere in the tables, and rows can only be read one after the other. So
the rows are converted in the order of their files. Each run of rows is written to a file of the
spool, sorted by packing order, and a shard then reads its part of every run. The name of a run
names the state of its rows, so that an interrupted pack does not convert them again. No other
module of packing knows this. A "run" here is always rows in the order of the tables; the rows of a
shard are a "slice" of the listing, which is in packing order.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import logging
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import xxhash

from fastpipe.dataset.format.layout import COEFFICIENTS_STORAGE, JPEG_STORAGE
from fastpipe.errors import PackError, readable
from fastpipe.packing.pipeline.ahead import read_ahead
from fastpipe.packing.pipeline.converting import convert_sources
from fastpipe.packing.pipeline.run_file import (
    KeyRange,
    Sample,
    find_ranges,
    is_whole_run,
    read_samples,
    write_run,
)
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import OnSource, Outcome, Outcomes, ShardSlice
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.tables.tables import TableListing
from fastpipe.store.store import Folder, Store

_LOG = logging.getLogger("fastpipe")
# Raise this number when the format of the spool's files changes. It is part of their names, so that
# files of the old format are not used.
_SPOOL_FORMAT = 5
# A run ends after so many bytes or rows. Two runs may be in memory.
_SPOOLED_BYTES = 128 << 20
_SPOOLED_ROWS = 1 << 16
# A shard is merged from all runs at once. This is the memory for that, and the limits of the part
# of it that one run gets: smaller reads are slow, larger ones gain nothing.
_WINDOWS_BYTES = 64 << 20
_MIN_WINDOW_BYTES = 1 << 15
_MAX_WINDOW_BYTES = 1 << 20
# A spool of so many bytes is worth a warning.
_LARGE_SPOOL_BYTES = 1_000_000_000
# A stored image takes about so many bytes for each byte of its file.
_GROWTH = {JPEG_STORAGE: 1.0, COEFFICIENTS_STORAGE: 1.4}


def convert_slices(
    listing: Listing,
    slices: Sequence[ShardSlice],
    options: PackOptions,
    spool: Path,
    on_row: OnSource = lambda *_: None,
    known_outcomes: dict[str, Outcome] | None = None,
) -> Outcomes:
    """Converts the sources of some shards, in packing order.

    Args:
        listing: the sources, in packing order.
        slices: the sources of each shard.
        options: of the pack.
        spool: folder of this machine for converted rows; tables only.
        on_row: is called with each row that is written to the spool.
        known_outcomes: sources that are converted already, by their path. They are removed from it.
    """
    if not isinstance(listing, TableListing):
        sources = list(_sources_of(listing.sources, slices))
        yield from convert_sources(listing, sources, options, known_outcomes)
        return
    if not slices:
        return

    spool.mkdir(parents=True, exist_ok=True)
    store = Folder(spool, spool)
    runs = cut_rows_into_runs(listing, spool_version(listing.kinds, options))
    names = [run.name for run in runs]
    sizes = store.sizes()
    # Files of an earlier state of the rows take room that this pack may need.
    store.remove(sizes.keys() - set(names))
    # Runs that an interrupted pack has finished are used again.
    missing = []
    for run in runs:
        if not is_whole_run(store, run.name, sizes):
            missing.append(run)
    _check_room(spool, listing, missing, options)
    convert_rows(listing, missing, options, store, on_row)
    yield from read_rows(listing.sources, slices, options, names, store)


def spool_version(kinds: Mapping[str, str], options: PackOptions) -> str:
    """A hash of all that decides the record of a sample in the spool, except its source."""
    deciding = [_SPOOL_FORMAT, options.shaping(kinds), made_with()]
    return xxhash.xxh3_128_hexdigest(json.dumps(deciding, sort_keys=True).encode())


class RowRun(NamedTuple):
    """Rows that follow one another in their files, and become one file of the spool.

    Attributes:
        name: of the file in the spool.
        positions: of the rows in the listing.
        group: runs with the same number have rows of the same group of a table, and are best
            converted together.
    """

    name: str
    positions: Sequence[int]
    group: int


def cut_rows_into_runs(listing: TableListing, version: str) -> list[RowRun]:
    """Cuts the rows of a listing into runs; `version` is its `spool_version`.

    A run may begin anywhere. But rows are read by groups (Parquet's row groups), and a group that
    is cut is read once for each of its runs, unless these are converted together. `RowRun.group`
    says which are.
    """
    # Positions in the order of files and rows, in which the rows can be read.
    sources = listing.sources
    order = sorted(
        range(len(sources)), key=lambda position: _row_address(sources[position])
    )
    sorted_sources = [sources[position] for position in order]
    in_file_order = replace(listing, sources=sorted_sources)

    group_starts = set()
    # The average size of a row, by table: the sizes of single rows are not known yet.
    row_bytes = {}
    for name, table in listing.tables.items():
        group_starts |= {(name, group.first_row) for group in table.groups}
        row_count = sum(group.rows for group in table.groups)
        row_bytes[name] = table.state.size_bytes / max(row_count, 1)

    # The positions in `order` at which runs begin, and for each run the number of its group.
    cuts = [0]
    groups = [0]
    size_bytes = 0.0
    for index, source in enumerate(in_file_order.sources):
        num_rows = index - cuts[-1]
        if size_bytes >= _SPOOLED_BYTES or num_rows >= _SPOOLED_ROWS:
            # A run that begins inside a group is converted together with the one before, so that
            # the group is read once.
            starts_group = _row_address(source) in group_starts
            group = len(cuts) if starts_group else groups[-1]
            groups.append(group)
            cuts.append(index)
            size_bytes = 0.0
        size_bytes += row_bytes[source.archive or ""]
    cuts.append(len(order))

    # The name hashes the rows with their files' times, and all that decides how they are stored.
    runs = []
    for (start, stop), group in zip(itertools.pairwise(cuts), groups, strict=True):
        state_digest = in_file_order.state_digest(start, stop)
        state = f"{version} {state_digest}"
        digest = xxhash.xxh3_128_hexdigest(state.encode())
        name = f"run-{digest}"
        runs.append(RowRun(name, order[start:stop], group))
    return runs


def _row_address(source: Source) -> tuple[str, int]:
    """The table that has a row, and the number of the row in it."""
    return source.archive or "", source.offset_bytes


def convert_rows(
    listing: TableListing,
    runs: Sequence[RowRun],
    options: PackOptions,
    spool: Store,
    on_row: OnSource,
) -> None:
    """Converts runs, and writes each to the spool; errors as of `convert_sources`."""
    rows: list[Source] = []
    for run in runs:
        rows += [listing.sources[position] for position in run.positions]
    order_key = packing_order(options.seed, shuffle=options.shuffle)
    writing: Future[None] | None = None
    with (
        ThreadPoolExecutor(1, thread_name_prefix="fastpipe-spool") as writer,
        closing(convert_sources(listing, rows, options)) as outcomes,
    ):
        for run in runs:
            samples = []
            for _ in run.positions:
                source, outcome = next(outcomes)
                samples.append(Sample(order_key(source), source.size_bytes, outcome))
                on_row(source, outcome)
            samples.sort(key=lambda sample: sample.order_key)
            # One run is written while the next one is converted. If writing is slower, conversion
            # waits here: more runs would take too much memory.
            if writing is not None:
                writing.result()
            writing = writer.submit(write_run, spool, run.name, samples)
        if writing is not None:
            writing.result()


def read_rows(
    sources: Sequence[Source],
    slices: Sequence[ShardSlice],
    options: PackOptions,
    names: Sequence[str],
    spool: Store,
) -> Outcomes:
    """The rows of shards in packing order, from the spool.

    Args:
        sources: all sources, in packing order.
        slices: the sources of each shard.
        options: of the pack.
        names: of all runs.
        spool: has their files.

    Raises:
        PackError: a run is missing, or the runs have other rows than the slices.
    """
    sizes = spool.sizes()
    for name in names:
        if name not in sizes:
            raise PackError(
                f"{name} is not in the spool {spool.place}. All machines have to see DST, or the "
                "folder of --spool, by the same path. If they do, run the same command again: it "
                "makes the file anew"
            ) from FileNotFoundError(errno.ENOENT, "no such file in the spool", name)

    window_bytes = _WINDOWS_BYTES // max(len(names), 1)
    window_bytes = min(max(window_bytes, _MIN_WINDOW_BYTES), _MAX_WINDOW_BYTES)
    key_ranges = _key_ranges_of(sources, slices, options)
    # For each run, the bytes of its file for each of the ranges of keys.
    bytes_of_runs = list(
        spool.map(lambda name: find_ranges(spool, name, sizes[name], key_ranges), names)
    )

    def samples() -> Generator[Sample, None, None]:
        for index, key_range in enumerate(key_ranges):
            readers = [
                read_samples(spool, name, bytes_of_run[index], window_bytes)
                for name, bytes_of_run in zip(names, bytes_of_runs, strict=True)
            ]
            # Each run is sorted, so that merging them gives packing order.
            for sample in heapq.merge(*readers, key=lambda sample: sample.order_key):
                # The bytes begin a little before the first sample of the range, and end behind its
                # last one.
                if key_range.first <= sample.order_key <= key_range.last:
                    yield sample

    expected = _sources_of(sources, slices)
    with closing(
        read_ahead(samples(), lambda sample: sample.source_bytes)
    ) as converted_samples:
        for sample in converted_samples:
            source = next(expected, None)
            # Without this check, a lost row would move all rows behind it into wrong shards.
            if source is None or sample.path != source.path:
                raise _wrong_rows_error(spool, sample.path)
            yield source._replace(size_bytes=sample.source_bytes), sample.outcome
    missing = next(expected, None)
    if missing is not None:
        raise _wrong_rows_error(spool, missing.path)


def _wrong_rows_error(spool: Store, path: str) -> PackError:
    return PackError(
        f"the spool {spool.place} lacks a row, or has one too many: {readable(path)}. Remove the "
        "spool, then run the same command again: it is made anew"
    )


def _sources_of(
    sources: Sequence[Source], slices: Sequence[ShardSlice]
) -> Iterator[Source]:
    for shard_slice in slices:
        yield from sources[shard_slice.start : shard_slice.stop]


def _key_ranges_of(
    sources: Sequence[Source], slices: Sequence[ShardSlice], options: PackOptions
) -> list[KeyRange]:
    """The keys of the slices; slices that follow one another are one range.

    So a whole pack reads each run once from its start to its end.
    """
    order_key = packing_order(options.seed, shuffle=options.shuffle)
    starts = {shard_slice.start for shard_slice in slices}
    stops = {shard_slice.stop for shard_slice in slices}
    # A position at which one slice ends and another one begins bounds no range.
    key_ranges = []
    first_rows = sorted(starts - stops)
    ends = sorted(stops - starts)
    for start, stop in zip(first_rows, ends, strict=True):
        key_ranges.append(
            KeyRange(order_key(sources[start]), order_key(sources[stop - 1]))
        )
    return key_ranges


def _check_room(
    folder: Path, listing: TableListing, missing: Sequence[RowRun], options: PackOptions
) -> None:
    """Raises PackError if the disk has no room for the missing runs; warns if they take much."""
    missing_count = sum(len(run.positions) for run in missing)
    share = missing_count / max(len(listing.sources), 1)
    growth = _GROWTH[options.encode.storage]
    needed = round(listing.size_bytes * share * growth)
    free = shutil.disk_usage(folder).free
    # How much images shrink is not known before they are converted.
    is_upper_bound = options.encode.max_size is not None
    text = (
        f"packing {readable(listing.root)} needs {'at most' if is_upper_bound else 'about'} "
        f"{needed / 1e6:,.1f} MB beside the dataset until it is done, in {readable(folder)}; "
        f"{free / 1e6:,.1f} MB are free there"
    )
    if free < needed and not is_upper_bound:
        raise PackError(
            f"{text}. Make room, or choose another disk (DST, or --spool where DST is a URL), then "
            "run the same command again"
        )
    if needed >= _LARGE_SPOOL_BYTES:
        _LOG.warning(text)
