"""The begin and the end of a pack in steps: the plan of the destination, and the finished shards -> a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError
from fastpipe.format.index import Index
from fastpipe.format.layout import DATASET_FILE
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.job import nothing_packed
from fastpipe.packing.output.destination import open_journal, plan_run
from fastpipe.packing.output.journal import Journal, Tally
from fastpipe.packing.output.publish import publish_dataset
from fastpipe.packing.shard_series import disk_errors
from fastpipe.packing.steps.job import PART, Job
from fastpipe.packing.steps.records import rejected_sources
from fastpipe.packing.steps.sources import Sources


@contextmanager
def opened(job: Job) -> Iterator[Journal]:
    """The journal of the destination, locked; errors of the disk are named."""
    of_disk = job.destination if isinstance(job.destination, Path) else Path("the spool folder")
    with disk_errors(of_disk), open_journal(job.destination, None, job.options.source.remote) as journal:
        if isinstance(job.options.spool, Path):
            job.options.spool.mkdir(parents=True, exist_ok=True)
        yield journal


def begin(job: Job, journal: Journal, sources: Sources) -> Index | None:
    """Decides what there is to do; see `plan_run`.

    Returns:
        The dataset, if it is there and whole.
    """

    listed = sources.listed

    def unchanged(index: Index) -> bool:
        state = journal.recorded_state()
        if state is not None:
            return state == listed.state
        return listed.changed_ns <= (journal.destination / DATASET_FILE).stat().st_mtime_ns

    options = job.options
    how: dict[str, Any] = {"overwrite": options.overwrite, "fail_fast": options.fail_fast, "unchanged": unchanged}
    try:
        done = plan_run(journal, sources, options.shaping(listed.kinds), **how)
    except PackError:
        if journal.read_plan() is None:  # nothing of ours is left where a pack may not write
            remove_spool(job)
            journal.clear()
        raise
    if done is not None:
        remove_spool(job)
        journal.clear()  # a pack that was killed at its very end leaves its work behind
        return done
    journal.make_way()
    store = job.store()
    ours = {name for part in sources.parts for name in part.files_of_it()}
    store.remove([name for name in store.sizes() if name.startswith(PART) and name not in ours])
    return None


def publish(
    job: Job, journal: Journal, sources: Sources, count: int, on_upload: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Makes a dataset of the finished shards, of which there are to be `count`.

    Returns:
        The content of dataset.json, and what became of the sources.

    Raises:
        PackError: a shard is missing.
    """
    listed = sources.listed
    journal.take_stock()
    shards = journal.finished()
    if len(shards) < count:
        raise PackError(
            f"shard {len(shards)} of {count} is not finished. Run --step assemble for all parts again, then --step "
            "publish; shards that are there are not made again"
        )
    tally = Tally()
    for shard in shards:
        tally.add(shard.tally)
    if not shards:
        tally.rejected += rejected_sources(job.store(), sources.parts, 1)
        raise nothing_packed(listed.root, listed.files, listed.stray, tally)
    fields = Agreement(listed.kinds, shards[-1].agreed).fields()
    info = publish_dataset(journal, shards, listed.origin(), tally, job.options.shaping(listed.kinds), fields)
    journal.commit(listed.state, on_upload)
    remove_spool(job)
    return {"info": info, "tally": tally}


def remove_spool(job: Job) -> None:
    """Removes the spool, wherever it is."""
    store = job.store()
    store.remove(list(store.sizes()))  # the folder is its own
    store.end()
