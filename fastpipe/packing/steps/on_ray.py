"""A pack on a Ray cluster: the steps as tasks, and their progress. Note [steps of a pack]"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

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
from fastpipe.packing.steps.job import PART_BYTES, Job, Listed, Part, read_parts
from fastpipe.packing.steps.listing_step import list_step
from fastpipe.packing.steps.plan_step import Plan, ShardPlan, plan_step

_MEMORY = 256 << 20  # of a worker, besides what it converts
_CONVERTED = 1.5  # a part in memory, as a multiple of its sources: coefficients are larger

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
        part_bytes: of the sources of a task.

    Raises:
        ConfigError: an option is wrong, or Ray is not installed.
        PackError: the source or destination cannot be used.
        ClusterError: the cluster cannot be reached, or its machines fail a task.
    """
    started = time.monotonic()
    check_apart(source, destination)
    job = Job.of(source, destination, options, part_bytes)
    with session(address, workers=options.workers) as cluster, opened(job) as journal:
        tasks = _Tasks(job, journal, cluster.cpus, on_progress)
        listed = tasks.list()
        done = begin(job, journal, listed)
        if done is not None:
            seconds = time.monotonic() - started
            return Summary(done.info, Tally(), 0, seconds, listed.stray, listed.dropped, already_packed=True)
        files = tasks.convert(listed)
        plan = plan_step(job)
        resumed = tasks.assemble(plan)
        made = publish(job, journal, plan, lambda: tasks.tell("uploading", listed.files, listed.size_bytes))
    return Summary(
        made["info"],
        made["tally"],
        files,
        time.monotonic() - started,
        listed.stray,
        listed.dropped,
        resumed,
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

    def list(self) -> Listed:
        """Lists the sources, in a task: the list may be larger than this machine's memory."""
        ((_, listed),) = run_tasks(partial(list_step, self._job), [0], name=lambda _: "list")
        self._files, self._bytes = listed.files, listed.size_bytes
        return listed

    def convert(self, listed: Listed) -> int:
        """Converts what is not converted; returns how many files that was."""
        store = self._job.store()
        parts, there = read_parts(store), store.sizes()
        left = [part for part in parts if not part.is_converted(there)]
        files = sum(part.files for part in left)
        done, done_bytes = listed.files - files, listed.size_bytes - sum(part.size_bytes for part in left)
        memory = _MEMORY + round(_CONVERTED * max((part.size_bytes for part in left), default=0))

        def name(part: Part) -> str:
            return f"convert {part.name.split('-')[1]}"

        self.tell("converting", done, done_bytes, 0, len(left))
        for number, (part, made) in enumerate(
            run_tasks(partial(convert_step, self._job), left, name=name, memory=memory), start=1
        ):
            done, done_bytes = done + part.files, done_bytes + part.size_bytes
            self._rejected += made.rejected
            self.tell("converting", done, done_bytes, number, len(left))
        return files

    def assemble(self, plan: Plan) -> int:
        """Makes the shards that are not there; returns how many there were."""
        self._journal.take_stock()
        left = [shard for shard in plan.shards() if self._journal.entry(shard.number) is None]
        files = plan.listed.files - sum(shard.stop - shard.start for shard in left)
        share = plan.listed.size_bytes / max(plan.listed.files, 1)

        def name(shard: ShardPlan) -> str:
            return f"assemble {shard.number:06d}"

        for number, (shard, _) in enumerate(
            run_tasks(partial(assemble_step, self._job), left, name=name, memory=_MEMORY), start=1
        ):
            files += shard.stop - shard.start
            self.tell("assembling", files, round(files * share), number, len(left))
        return len(plan) - len(left)

    def tell(self, step: str, files: int, size_bytes: int, tasks: int = 0, total_tasks: int = 0) -> None:
        """Tells how far the pack is."""
        uploaded = self._journal.uploaded_bytes
        so_far = files, self._files, size_bytes, self._bytes, self._rejected, step, uploaded
        self._on_progress(PackProgress(*so_far, tasks, total_tasks, self._workers))
