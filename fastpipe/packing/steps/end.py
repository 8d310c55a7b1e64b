"""The begin and the end of a pack in steps: the plan of the destination, and the finished shards -> a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError
from fastpipe.packing.job.destination import plan_run
from fastpipe.packing.job.threads import is_older
from fastpipe.packing.shard.entry import Entry
from fastpipe.packing.shard.journal import Journal
from fastpipe.packing.steps.parts import Job, Listed, read_parts


def begin(job: Job, journal: Journal, listed: Listed) -> dict[str, Any] | None:
    """Decides what there is to do; see `plan_run`.

    Returns:
        The content of dataset.json, if the dataset is there and whole.
    """
    try:
        done = plan_run(journal, listed, job.options, lambda _: is_older(journal, listed))
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
    stale = {name for name in spool.sizes() if name.startswith(("run-", "shard-"))}
    for step in ("convert", "make"):
        for part in read_parts(job, step):
            stale -= {part.name, f"{part.name}.sources"}
    spool.remove(stale)
    return None


def finished(job: Job, journal: Journal) -> Iterator[Entry]:
    """All shards, in order.

    Raises:
        PackError: one is missing.
    """
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
