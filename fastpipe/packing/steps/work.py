"""The steps of a pack but the first: the destination is looked at, rows are converted, shards are made and read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.errors import PackError
from fastpipe.packing.job.destination import plan_run
from fastpipe.packing.pipeline.exchange import Rows, convert_rows, exchanged, few_outcomes
from fastpipe.packing.pipeline.run_file import is_whole
from fastpipe.packing.shard.entry import Entry, read_entry
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.plan import Run
from fastpipe.packing.steps.parts import Job, Listed, Part, read_listed, read_parts, read_sources
from fastpipe.sources.listing import Source
from fastpipe.sources.picture.convert import Packed
from fastpipe.sources.tables import TableListing


class Done(NamedTuple):
    """What became of a part."""

    files: int
    rejected: int


def begin(job: Job, journal: Journal, listed: Listed) -> dict[str, Any] | None:
    """Decides what there is to do; see `plan_run`."""
    try:
        done = plan_run(journal, listed, job.options)
    except PackError:
        if journal.plan() is None:  # nothing of ours is left where a pack may not write
            remove_spool(job)
            journal.clear()
        raise
    if done is not None:
        remove_spool(job)
        journal.clear()  # a pack that was killed at its very end leaves its work behind
        return done
    journal.make_way()
    spool = job.spool()
    stale = {name for name in spool.sizes() if name.startswith(("run-", "rows-", "shard-"))}
    for step in ("convert", "make"):
        for part in read_parts(job, step):
            stale -= {f"{part.name}.sources", *(name for name, _ in part.runs)}
    spool.remove(stale)
    return None


def convert_step(job: Job, part: Part, workers: int = 1) -> Done:
    """Converts runs of rows, but for those that are there. Note [exchange]"""
    listed, spool = read_listed(job), job.spool()
    there, left, at = spool.sizes(), [], 0
    for name, rows in part.runs:
        if not is_whole(spool, name, there):
            left.append(Rows(name, range(at, at + rows), 0))
        at += rows
    rejected = 0

    def told(_: Source, outcome: Packed | str) -> None:
        nonlocal rejected
        rejected += isinstance(outcome, str)

    if left:
        listing = read_sources(job, listed, part)
        assert isinstance(listing, TableListing)  # no other source has such parts
        convert_rows(listing, left, replace(job.options, workers=workers), spool, told)
    return Done(sum(len(rows.positions) for rows in left), rejected)


def make_step(job: Job, part: Part, workers: int = 1) -> Done:
    """Makes a shard, if it is not there. Note [steps of a pack]"""
    listed, store, options = read_listed(job), job.store(), replace(job.options, workers=workers)
    with closing(store):
        if read_entry(store, part.name, store.sizes()) is not None:
            return Done(0, 0)
        listing = read_sources(job, listed, part)
        run = Run(part.number, 0, len(listing.sources))
        if isinstance(listing, TableListing):
            names = [name for each in read_parts(job, "convert") for name, _ in each.runs]
            outcomes = exchanged(listing.sources, [run], options, names, job.spool())
        else:
            outcomes = few_outcomes(listing, listing.sources, options)
        (entry,) = make_shards(store, listing, listed.plan, options, {part.name: run}, outcomes)
        return Done(len(listing.sources), len(entry.tally.rejected))


def finished(job: Job, journal: Journal) -> Iterator[Entry]:
    """All shards, in order; raises PackError if one is missing."""
    for number, entry in enumerate(journal.finished(part.name for part in read_parts(job, "make"))):
        if entry is None:
            raise PackError(
                f"shard {number} of {sum(1 for _ in read_parts(job, 'make'))} is not finished. Run --step make for "
                "all parts again, then --step publish; shards that are there are not made again"
            )
        yield entry


def remove_spool(job: Job) -> None:
    """Removes the spool, wherever it is."""
    spool = job.spool()
    spool.remove(list(spool.sizes()))  # the folder is its own
    if isinstance(spool.place, Path) and job.options.spool is not None and spool.place.is_dir():
        spool.place.rmdir()
