"""A pack on a Ray cluster: the steps as tasks, and their progress. Note [steps of a pack]"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from fastpipe.format.folder import Place
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.cluster.session import session
from fastpipe.packing.cluster.tasks import run_tasks
from fastpipe.packing.job.destination import check_apart, opened
from fastpipe.packing.job.threads import Fitted, Made, Make, PackProgress, Progress, Summary, publish
from fastpipe.packing.shard.entry import Tally
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.steps.lists import list_all, write_parts
from fastpipe.packing.steps.parts import Job, Listed, Part, check, read_parts
from fastpipe.packing.steps.work import Done, begin, convert_step, finished, make_step, remove_spool
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
    """Packs as `job.threads.pack` does, to the same bytes, in tasks of a Ray cluster. See `fastpipe.pack`.

    Run it again after an interruption and it goes on: what is there stays. Of the options, `workers` counts only where
    this starts Ray on this machine.
    """
    started = time.monotonic()
    check_apart(source, destination, options.spool)
    job = Job.of(source, destination, options)
    with (
        session(address, workers=options.workers) as cluster,
        opened(destination, options, shared_spool=True) as journal,
    ):
        # In a task, for the list may be larger than this machine's memory; dataset.json, which is written here, says
        # what made the shards, so the libraries are compared.
        listed = list_all(job, _everywhere)
        check(job, listed)
        done = begin(job, journal, listed)
        if done is not None:
            return Summary(
                done, Tally(), 0, time.monotonic() - started, listed.stray, listed.dropped, already_packed=True
            )
        made = _made(job, journal, listed, cluster.cpus, on_progress)
        summary = publish(journal, listed, options, made, started)
        remove_spool(job)
        return summary


def _everywhere(do: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Calls a function with each item, in a task."""
    return (found for _, found in run_tasks(do, items, name=lambda _: "list"))


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
    tasks = _Tasks(job, journal, listed, workers, on_progress)
    tasks.run()
    return Made(listed.plan, finished(job, journal), tasks.read, tasks.resumed, lambda: tasks.tell("publishing"))


def _in_threads(do: Callable[[Part, int], Done], item: tuple[Part, int]) -> Done:
    part, threads = item
    return do(part, min(threads, granted_cpus()))


class _Tasks:
    """The steps of a pack as tasks, so many of them at a time.

    Attributes:
        read: sources that were read.
        resumed: shards that were there.
    """

    def __init__(self, job: Job, journal: Journal, listed: Listed, workers: int, on_progress: Progress) -> None:
        self._job, self._journal, self._workers, self._on_progress = job, journal, workers, on_progress
        self._files, self._bytes = listed.files, listed.size_bytes  # all of them
        self._done = self._done_bytes = self._rejected = 0
        self.read = self.resumed = 0

    def run(self) -> None:
        """Converts what is not converted, and makes the shards that are not there."""
        entries, spooled = self._journal.entries(), self._job.spool().sizes()

        def shards() -> Iterator[Part]:
            return (part for part in read_parts(self._job, "make") if part.name not in entries)

        def rows() -> Iterator[Part]:
            parts = read_parts(self._job, "convert")
            return (part for part in parts if any(name not in spooled for name, _ in part.runs))

        left = sum(1 for _ in shards())
        self.resumed = sum(1 for _ in read_parts(self._job, "make")) - left
        if left:
            self._step("converting", rows, partial(convert_step, self._job), _CONVERTED)
        self._step("packing", shards, partial(make_step, self._job), 0)

    def _step(self, name: str, parts: Callable[[], Iterator[Part]], do: Any, held: int) -> None:
        """Runs a task for each part. They are read again each time they are needed: there may be a million."""
        tasks = files = size_bytes = largest = 0
        for part in parts():
            tasks, files, size_bytes = tasks + 1, files + part.files, size_bytes + part.size_bytes
            largest = max(largest, part.size_bytes // max(len(part.runs), 1))
        if not tasks:
            return
        self._done, self._done_bytes = self._files - files, max(self._bytes - size_bytes, 0)
        self.read = max(self.read, files)
        self.tell(name, 0, tasks)
        memory = _MEMORY + held * largest
        # The last ones, which are too few for all workers, take the threads of those that have nothing to do.
        last = tasks % self._workers
        threads = self._workers // last if last else 1
        items = ((part, threads if at >= tasks - last else 1) for at, part in enumerate(parts()))
        ended = run_tasks(
            partial(_in_threads, do), items, name=lambda item: "{0.step} {0.name}".format(item[0]), memory=memory
        )
        for count, ((part, _), made) in enumerate(ended, start=1):
            self._done, self._done_bytes = self._done + part.files, self._done_bytes + part.size_bytes
            self._rejected += made.rejected
            self.tell(name, count, tasks)

    def tell(self, step: str, tasks: int = 0, total_tasks: int = 0) -> None:
        """Tells how far the pack is."""
        uploaded = self._journal.store.uploaded_bytes
        so_far = self._done, self._files, self._done_bytes, self._bytes, self._rejected, step, uploaded
        self._on_progress(PackProgress(*so_far, tasks, total_tasks, self._workers))
