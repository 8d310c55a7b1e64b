"""A pack on a Ray cluster: the steps as tasks, and their progress. Note [steps of a pack]"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from fastpipe.format.folder import Place
from fastpipe.packing.cluster.session import session
from fastpipe.packing.cluster.tasks import run_tasks
from fastpipe.packing.job.destination import check_apart, opened
from fastpipe.packing.job.threads import Fitted, Made, Make, Progress, Summary, Told, already_packed, publish
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.steps.lists import list_all, write_parts
from fastpipe.packing.steps.parts import Job, Listed, Part, check, read_parts
from fastpipe.packing.steps.work import begin, convert_step, finished, make_step, remove_spool
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Listing

_MEMORY = 256 << 20  # of a worker
_CONVERTED = 3  # a run of rows, which is sorted in memory, and the one before it, which is written


def pack_on_ray(
    source: SourcePath,
    destination: Place,
    options: PackOptions,
    *,
    address: str | None = None,
    on_progress: Progress = lambda _: None,
) -> Summary:
    """As `job.threads.pack`, in tasks of a Ray cluster; `workers` counts only where this starts Ray on this machine."""
    started = time.monotonic()
    check_apart(source, destination, options.spool)
    job = Job.of(source, destination, options)
    with session(address, workers=options.workers) as cpus, opened(destination, options, shared_spool=True) as journal:
        # In a task, for the list may be larger than this machine's memory; dataset.json, which is written here, says
        # what made the shards, so the libraries are compared.
        listed = list_all(job, lambda do, items: (found for _, found in run_tasks(do, items, name=lambda _: "list")))
        check(job, listed)
        done = begin(job, journal, listed)
        if done is not None:
            return already_packed(done, listed, started)
        made = _made(job, journal, listed, cpus, on_progress)
        summary = publish(journal, listed, options, made, started)
        remove_spool(job)
        return summary


def make_on_ray(workers: int) -> Make:
    """Makes the shards of a dataset that grows in tasks of the connected cluster, so many at a time."""

    def make(listing: Listing, options: PackOptions, journal: Journal, fitted: Fitted, on_progress: Progress) -> Made:
        job = Job.of(listing.root, journal.store.place, options)
        made = _made(job, journal, write_parts(job, listing, fitted), workers, on_progress)
        entries = list(made.entries)
        remove_spool(job)
        return replace(made, entries=entries)

    return make


def _made(job: Job, journal: Journal, listed: Listed, workers: int, on_progress: Progress) -> Made:
    """Converts what is not converted, and makes the shards that are not there, in so many tasks at a time."""
    entries, spooled = journal.entries(), job.spool().sizes()
    told = Told(listed.files, listed.size_bytes, journal.store, on_progress, workers=workers)

    def shards() -> Iterator[Part]:
        return (part for part in read_parts(job, "make") if part.name not in entries)

    def rows() -> Iterator[Part]:
        return (part for part in read_parts(job, "convert") if any(name not in spooled for name, _ in part.runs))

    left, read = sum(1 for _ in shards()), 0
    resumed = sum(1 for _ in read_parts(job, "make")) - left
    if left:
        read = _step("converting", rows, partial(convert_step, job), _CONVERTED, workers, told)
        read = max(read, _step("packing", shards, partial(make_step, job), 0, workers, told))
    return Made(listed.plan, finished(job, journal), read, resumed, told.publishing)


def _step(name: str, parts: Callable[[], Iterator[Part]], do: Any, held: int, workers: int, told: Told) -> int:
    """Runs a task for each part, read anew each time: there may be a million. Gives how many sources they have."""
    tasks = files = size_bytes = largest = 0
    for part in parts():
        tasks, files, size_bytes = tasks + 1, files + part.files, size_bytes + part.size_bytes
        largest = max(largest, part.size_bytes // max(len(part.runs), 1))
    if not tasks:
        return 0
    told.begin(name, files, size_bytes, tasks)
    told.add()
    memory = _MEMORY + held * largest
    # The last ones, which are too few for all workers, take the threads of those that have nothing to do.
    last = tasks % workers
    threads = workers // last if last else 1
    items = (part._replace(threads=threads if at >= tasks - last else 1) for at, part in enumerate(parts()))
    for part, (_, rejected) in run_tasks(do, items, name="{0.step} {0.name}".format, memory=memory):
        told.add(part.files, part.size_bytes, rejected, 1)
    return files
