"""A pack, or an addition to a dataset, in tasks of a Ray cluster. Note [tasks of a pack]"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastpipe.dataset.format.folder import Place
from fastpipe.errors import PackError
from fastpipe.machine.cpus import count_granted_cpus
from fastpipe.packing.cluster import run_tasks, session
from fastpipe.packing.distributed.listing import list_in_tasks, write_listing
from fastpipe.packing.distributed.spool import (
    CONVERT,
    MAKE,
    Job,
    ListedSources,
    Part,
    read_parts,
    read_sources,
    sources_file,
)
from fastpipe.packing.job.destination import begin_pack, check_apart, open_journal
from fastpipe.packing.job.progress import Progress, ProgressReporter
from fastpipe.packing.job.summary import (
    PackedShards,
    Summary,
    publish,
    summarize_existing,
)
from fastpipe.packing.job.threads import AdjustPlan, MakeShards
from fastpipe.packing.pipeline.converting import convert_sources
from fastpipe.packing.pipeline.exchange import RowRun, convert_rows, read_rows
from fastpipe.packing.pipeline.run_file import is_whole_run
from fastpipe.packing.shard.entry import Entry, read_entry
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, ShardSlice
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.tables.tables import TableListing

# The memory that a worker needs whatever it does.
_WORKER_BYTES = 256 << 20
# A worker that converts holds, besides, a run of rows, its copy that is sorted, and the run before,
# which is written.
_RUNS_IN_MEMORY = 3


def pack_on_ray(
    source: SourcePath,
    destination: Place,
    options: PackOptions,
    *,
    address: str | None,
    on_progress: Progress,
) -> Summary:
    """Packs in tasks of a Ray cluster; see `fastpipe.pack`, also for the errors."""
    started = time.monotonic()
    check_apart(source, destination, options.spool)
    job = Job.of(source, destination, options)
    with (
        session(address, workers=options.workers) as cpus,
        open_journal(destination, options, shared_spool=True) as journal,
    ):
        listed = list_in_tasks(job, _map_tasks)
        # The driver writes its own versions into dataset.json.
        listed.check_version(job)
        existing_info = _begin(job, journal, listed)
        if existing_info is not None:
            return summarize_existing(existing_info, listed.facts, started)
        shards = _make_in_tasks(job, journal, listed, cpus, on_progress)
        summary = publish(journal, listed.facts, options, shards, started)
        remove_spool(job)
        return summary


def make_on_ray(workers: int) -> MakeShards:
    """A function that makes the shards of a dataset that grows, in so many tasks at a time."""

    def make(
        listing: Listing,
        options: PackOptions,
        journal: Journal,
        adjust_plan: AdjustPlan,
        on_progress: Progress,
    ) -> PackedShards:
        job = Job.of(listing.root, journal.store.place, options)
        listed = write_listing(job, listing, adjust_plan)
        shards = _make_in_tasks(job, journal, listed, workers, on_progress)
        entries = list(shards.entries)
        remove_spool(job)
        return replace(shards, entries=entries)

    return make


def _map_tasks(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """See `listing.MapTasks`."""
    for _, result in run_tasks(function, items, name=lambda _: "list"):
        yield result


def _begin(job: Job, journal: Journal, listed: ListedSources) -> dict[str, Any] | None:
    """As `begin_pack`; also removes files of the spool that are of other sources."""
    try:
        existing_info = begin_pack(journal, listed.facts, job.options)
    except PackError:
        # Nothing of this pack may stay where it must not pack.
        if journal.plan() is None:
            remove_spool(job)
            journal.clear()
        raise
    if existing_info is not None:
        remove_spool(job)
        return existing_info

    # The driver does this alone, before any task writes.
    journal.remove_old_dataset()
    spool = job.open_spool()
    stale = {
        name for name in spool.sizes() if name.startswith(("run-", "rows-", "shard-"))
    }
    for kind in (CONVERT, MAKE):
        for part in read_parts(job, listed, kind):
            stale.discard(sources_file(part.name))
            stale -= {name for name, _ in part.runs}
    spool.remove(stale)
    return None


def _make_in_tasks(
    job: Job,
    journal: Journal,
    listed: ListedSources,
    workers: int,
    on_progress: Progress,
) -> PackedShards:
    """Converts the rows that are not in the spool, and makes the shards that are not finished."""
    facts = listed.facts
    progress = ProgressReporter(
        facts.files, facts.size_bytes, journal.store, on_progress, workers=workers
    )
    # A part to make is a shard, and its name is that of the shard's entry in the journal.
    entry_names = [part.name for part in read_parts(job, listed, MAKE)]
    # A shard whose tar has vanished or been cut is not finished.
    finished = set()
    for entry in journal.read_finished(entry_names):
        if entry is not None:
            finished.add(entry.name)
    num_missing = len(entry_names) - len(finished)

    # A part to convert has runs of rows, each a file of the spool. Only the file shows whether a
    # run is whole, so each is looked at once. If all shards are finished, no row need be converted.
    names_to_convert = set[str]()
    spool = job.open_spool()
    spool_sizes = spool.sizes()
    if num_missing:
        for part in read_parts(job, listed, CONVERT):
            for run_name, _ in part.runs:
                if not is_whole_run(spool, run_name, spool_sizes):
                    names_to_convert.add(part.name)
                    break

    def parts_to_convert() -> Iterator[Part]:
        for part in read_parts(job, listed, CONVERT):
            if part.name in names_to_convert:
                yield part

    def parts_to_make() -> Iterator[Part]:
        for part in read_parts(job, listed, MAKE):
            if part.name not in finished:
                yield part

    files_read = 0
    if num_missing:
        convert = partial(convert_part, job, listed)
        files_converted = _run_parts(
            "converting",
            parts_to_convert,
            convert,
            workers,
            progress,
            runs_in_memory=_RUNS_IN_MEMORY,
        )
        make = partial(make_part, job, listed)
        files_packed = _run_parts("packing", parts_to_make, make, workers, progress)
        # A row that is converted and then packed is one file.
        files_read = max(files_converted, files_packed)
    return PackedShards(
        listed.plan,
        read_all_entries(job, journal, listed),
        files=files_read,
        resumed=len(finished),
        on_published_file=progress.on_published_file,
    )


def _run_parts(
    step: str,
    list_parts: Callable[[], Iterator[Part]],
    work_on: Callable[[Part], int],
    workers: int,
    progress: ProgressReporter,
    *,
    runs_in_memory: int = 0,
) -> int:
    """Runs a task for each part, and returns the number of their sources.

    Args:
        step: for the progress.
        list_parts: reads the parts; it is called twice, as there may be a million of them.
        work_on: does the work of a part, and returns the number of sources that are rejected.
        workers: tasks that can run at a time.
        progress: reports it.
        runs_in_memory: how many runs of rows a task holds in memory as a whole.
    """
    num_tasks = 0
    files = 0
    size_bytes = 0
    largest_run_bytes = 0
    for part in list_parts():
        num_tasks += 1
        files += part.files
        size_bytes += part.size_bytes
        # The mean of its runs: a part does not have the size of each.
        num_runs = max(len(part.runs), 1)
        run_bytes = part.size_bytes // num_runs
        largest_run_bytes = max(largest_run_bytes, run_bytes)
    if not num_tasks:
        return 0
    progress.begin(step, files, size_bytes, num_tasks)
    progress.add()  # shows that the step has begun

    # The last tasks are too few for all workers. They use the threads of those that have nothing to
    # do.
    num_last = num_tasks % workers
    threads_of_last = workers // num_last if num_last else 1

    def parts() -> Iterator[Part]:
        for index, part in enumerate(list_parts()):
            is_last = index >= num_tasks - num_last
            yield part._replace(threads=threads_of_last if is_last else 1)

    def task_name(part: Part) -> str:
        return f"{part.kind} {part.name}"

    memory = _WORKER_BYTES + runs_in_memory * largest_run_bytes
    for part, rejected in run_tasks(work_on, parts(), name=task_name, memory=memory):
        progress.add(part.files, part.size_bytes, rejected, 1)
    return files


def convert_part(job: Job, listed: ListedSources, part: Part) -> int:
    """Converts the rows of a part that are not in the spool; returns how many are rejected."""
    listed.check_version(job)
    spool = job.open_spool()
    sizes = spool.sizes()
    missing = []
    first = 0
    for name, num_rows in part.runs:
        # In the listing of a part, the rows stand in the order of the runs.
        if not is_whole_run(spool, name, sizes):
            rows = range(first, first + num_rows)
            missing.append(RowRun(name, rows, 0))
        first += num_rows

    rejected = 0

    def count_rejected(_: Source, outcome: Outcome) -> None:
        nonlocal rejected
        rejected += isinstance(outcome, str)

    if missing:
        listing = read_sources(job, listed, part)
        # Only rows are converted by themselves.
        assert isinstance(listing, TableListing)
        convert_rows(listing, missing, _options_of(job, part), spool, count_rejected)
    return rejected


def make_part(job: Job, listed: ListedSources, part: Part) -> int:
    """Makes a shard, unless it is finished; returns how many of its sources are rejected."""
    listed.check_version(job)
    options = _options_of(job, part)
    with closing(job.open_destination()) as store:
        # This task may run a second time because its worker has died.
        if read_entry(store, part.name, store.sizes()) is not None:
            return 0
        # The sources of the shard alone; its number is that in the whole listing.
        listing = read_sources(job, listed, part)
        shard_slice = ShardSlice(part.number, 0, len(listing.sources))
        if isinstance(listing, TableListing):
            # Each run may have rows of this shard.
            run_names = [
                name
                for rows in read_parts(job, listed, CONVERT)
                for name, _ in rows.runs
            ]
            outcomes = read_rows(
                listing.sources, [shard_slice], options, run_names, job.open_spool()
            )
        else:
            outcomes = convert_sources(listing, listing.sources, options)
        (entry,) = make_shards(
            store, listing, listed.plan, options, {part.name: shard_slice}, outcomes
        )
        return len(entry.tally.rejected)


def _options_of(job: Job, part: Part) -> PackOptions:
    """The options, with as many threads as the part may use and this machine has CPUs."""
    return replace(
        job.options,
        workers=min(part.threads, job.options.threads, count_granted_cpus()),
    )


def read_all_entries(
    job: Job, journal: Journal, listed: ListedSources
) -> Iterator[Entry]:
    """The entries of all shards, in order. PackError: a shard has vanished since it was made."""
    names = (part.name for part in read_parts(job, listed, MAKE))
    for index, entry in enumerate(journal.read_finished(names)):
        if entry is None:
            raise PackError(
                f"shard {index} is not in {job.destination} any more, though it was made. Run the "
                "same command again: it makes this shard, and keeps the others"
            )
        yield entry


def remove_spool(job: Job) -> None:
    """Removes the spool, wherever it is."""
    spool = job.open_spool()
    spool.remove(list(spool.sizes()))  # no other pack uses this folder
    if (
        isinstance(spool.place, Path)
        and job.options.spool is not None
        and spool.place.is_dir()
    ):
        spool.place.rmdir()
