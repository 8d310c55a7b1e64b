"""Runs of sources -> their samples, converted, in packing order, whatever kind of source they are of."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import xxhash

from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.shard.journal import made_with
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Run
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.source.tables import TableListing
from fastpipe.store.folder import Folder

_SPOOL_FORMAT = 3  # another one when the spool's files change: nothing of the old ones is taken

Told = Callable[[Source, Packed | str], None]
Outcomes = Generator[tuple[Source, Packed | str], None, None]


def few_outcomes(listing: Listing, few: Sequence[Source], options: PackOptions, workers: int) -> Outcomes:
    """Converts some sources, in the order in which they are read best; close the generator to stop its threads.

    Yields:
        Sources, and what became of them: the picture with the values of its fields, or why there is none.

    Raises:
        PackError: the system, not a file, is at fault; or a file has changed since it was listed.
    """
    if isinstance(listing, TableListing):
        from fastpipe.packing.pipeline.table_rows import converted_rows  # it needs pyarrow

        return converted_rows(listing, few, options.encode, workers)
    return converted(listing, few, options.encode, workers)


def outcomes_of(
    listing: Listing,
    wanted: Sequence[Run],
    options: PackOptions,
    workers: int,
    spool: Path,
    told: Told = lambda *_: None,
    known: dict[str, Packed | str] | None = None,
) -> Outcomes:
    """Converts the sources of some shards in threads, and gives them in packing order; see `few_outcomes`.

    Args:
        listing: of all sources, in packing order.
        wanted: the runs of the shards, in order.
        options: of the pack.
        workers: threads.
        spool: a folder of this machine, for tables: Note [exchange].
        told: called with each row that is written to the spool.
        known: what became of some files, by path: they are not converted again, and leave it.
    """
    if isinstance(listing, TableListing):
        yield from _by_exchange(listing, wanted, options, workers, spool, told)
        return
    ours = [source for run in wanted for source in listing.sources[run.start : run.stop]]
    yield from converted(listing, ours, options.encode, workers, known or {})


def _by_exchange(
    listing: TableListing, wanted: Sequence[Run], options: PackOptions, workers: int, spool: Path, told: Told
) -> Outcomes:
    from fastpipe.packing.pipeline.exchange import check_room, convert_rows, exchanged, runs_of_rows
    from fastpipe.packing.pipeline.run_file import is_whole

    if not wanted:
        return
    spool.mkdir(parents=True, exist_ok=True)
    store = Folder(spool, spool)
    runs = runs_of_rows(listing, spool_of(listing.kinds, options))
    names, there = {run.name for run in runs}, store.sizes()
    store.remove(there.keys() - names)
    left = [run for run in runs if not is_whole(store, run.name, there)]
    rows = sum(len(run.positions) for run in left)
    check_room(spool, listing, rows / max(len(listing.sources), 1), options)
    convert_rows(listing, left, options, workers, store, told)
    yield from exchanged(listing.sources, wanted, options, [run.name for run in runs], store)


def spool_of(kinds: Mapping[str, str], options: PackOptions) -> str:
    """Names what decides the bytes of a sample, and where they are in the spool, besides its source."""
    said = _SPOOL_FORMAT, options.shaping(kinds), made_with(kinds.values())
    return xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())
