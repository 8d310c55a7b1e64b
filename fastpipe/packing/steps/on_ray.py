"""A pack on a Ray cluster: the steps as tasks, and their progress. Note [steps of a pack]"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fastpipe.cluster.session import session
from fastpipe.cluster.tasks import run_tasks
from fastpipe.format.folder import Place
from fastpipe.packing.job import PackProgress, Summary
from fastpipe.packing.options import PackOptions
from fastpipe.packing.output.destination import check_apart
from fastpipe.packing.output.journal import Journal, Tally
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.steps.assemble_step import assemble_step
from fastpipe.packing.steps.convert_step import convert_step
from fastpipe.packing.steps.dataset import begin, opened, publish
from fastpipe.packing.steps.job import PART_BYTES, Job, Part, read_parts
from fastpipe.packing.steps.listing_step import list_step
from fastpipe.packing.steps.shard_plan import ShardPlan
from fastpipe.packing.steps.sources import Sources
from fastpipe.packing.steps.work import Work

_MEMORY = 256 << 20  # of a worker
_CONVERTED = 1.5  # a part of a table, which is sorted in memory, as a multiple of its sources: coefficients are larger

Progress = Callable[[PackProgress], None]


def pack_on_ray(
    source: SourcePath,
    destination: Place,
    options: PackOptions,
    *,
    address: str | None = None,
    on_progress: Progress = lambda _: None,
    part_bytes: int = PART_BYTES,
) -> Summary:
    """Packs as `job.pack` does, to the same bytes, in tasks of a Ray cluster.

    Run it again after an interruption and it goes on: parts that are converted and shards that are there stay.

    Args:
        source, destination: that all workers can reach by the same name.
        options: how. `workers` counts only where this starts Ray on this machine.
        address: of the cluster; see `session`.
        on_progress: called in this thread when a task has ended.
        part_bytes: of the sources of a task, at most.

    Raises:
        ConfigError: an option is wrong, or Ray is not installed.
        PackError: the source or destination cannot be used.
        ClusterError: the cluster cannot be reached, or its machines fail a task.
    """
    started = time.monotonic()
    check_apart(source, destination, options.spool)
    job = Job.of(source, destination, options, part_bytes)
    with session(address, workers=options.workers) as cluster, opened(job) as journal:
        tasks = _Tasks(job, journal, cluster.cpus, on_progress)
        sources = tasks.list()
        listed = sources.listed
        done = begin(job, journal, sources)
        if done is not None:
            seconds = time.monotonic() - started
            return Summary(done.info, Tally(), 0, seconds, listed.stray, listed.dropped, already_packed=True)
        work = tasks.run(sources)
        made = publish(
            job, journal, sources, work.shards, lambda: tasks.tell("uploading", listed.files, listed.size_bytes)
        )
    return Summary(
        made["info"],
        made["tally"],
        sum(part.files for part in work.parts),
        time.monotonic() - started,
        listed.stray,
        listed.dropped,
        work.resumed,
        uploaded_bytes=journal.uploaded_bytes,
    )


class _Tasks:
    """The steps of a pack as tasks.

    Args:
        job: the pack.
        journal: of its destination.
        workers: how many can run at a time.
        on_progress: gets the progress.
    """

    def __init__(self, job: Job, journal: Journal, workers: int, on_progress: Progress) -> None:
        self._job, self._journal, self._workers, self._on_progress = job, journal, workers, on_progress
        self._files = self._bytes = self._rejected = 0  # all of them, and rejected ones

    def list(self) -> Sources:
        """Lists the sources, in a task: the list may be larger than this machine's memory."""
        ((_, listed),) = run_tasks(partial(list_step, self._job), [0], name=lambda _: "list")
        self._job.check(listed)  # dataset.json, which is written here, says what made the shards
        self._files, self._bytes = listed.files, listed.size_bytes
        return Sources(listed, read_parts(self._job.store()))

    def run(self, sources: Sources) -> Work:
        """Converts what is not converted, and makes the shards that are not there. Note [a rolling plan]"""
        self._journal.take_stock()
        work = Work(self._job, self._journal, sources)
        files = self._files - sum(part.files for part in work.parts)
        size_bytes = self._bytes - sum(part.size_bytes for part in work.parts)
        share = self._bytes / max(self._files, 1)
        memory, parts = _MEMORY, 0
        if sources.listed.kind:
            memory += round(_CONVERTED * max((part.size_bytes for part in work.parts), default=0))
        self.tell("converting", files, size_bytes, 0, len(work.parts))
        do = partial(_do, convert_step, assemble_step, self._job)
        for ended, (item, made) in enumerate(run_tasks(do, work, name=_name, memory=memory), start=1):
            work.done(item)
            if isinstance(item, Part):
                parts, files, size_bytes = parts + 1, files + item.files, size_bytes + item.size_bytes
                self._rejected += made.rejected
                self.tell("converting", files, size_bytes, parts, len(work.parts))
            elif parts == len(work.parts):
                at = ended - parts, work.shards - work.resumed
                self.tell("assembling", work.assembled, round(work.assembled * share), *at)
        return work

    def tell(self, step: str, files: int, size_bytes: int, tasks: int = 0, total_tasks: int = 0) -> None:
        """Tells how far the pack is."""
        uploaded = self._journal.uploaded_bytes
        so_far = files, self._files, size_bytes, self._bytes, self._rejected, step, uploaded
        self._on_progress(PackProgress(*so_far, tasks, total_tasks, self._workers))


def _do(
    convert: Callable[[Job, Part], Any], assemble: Callable[[Job, ShardPlan], Any], job: Job, item: Part | ShardPlan
) -> Any:
    """A task."""
    return convert(job, item) if isinstance(item, Part) else assemble(job, item)


def _name(item: Part | ShardPlan) -> str:
    return f"{'convert' if isinstance(item, Part) else 'assemble'} {item.number:06d}"
