"""The steps of a pack -> a dataset: as tasks of a Ray cluster; or one step in this process, for Slurm, ssh and all else
that starts programs. Note [steps of a pack]
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastpipe.errors import ConfigError, PackError
from fastpipe.format.folder import Place
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.cluster import run_tasks, session
from fastpipe.packing.job.destination import check_apart, destination_of, first_pack, opened, plan_run
from fastpipe.packing.job.threads import Fitted, Made, Make, Progress, Summary, Told, already_packed, publish
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.pipeline.exchange import Rows, convert_rows, exchanged, is_whole
from fastpipe.packing.shard.journal import Entry, Journal, read_entry
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import BY_RULE, PackOptions, pack_options
from fastpipe.packing.shard.plan import Outcome, Run
from fastpipe.packing.steps.lists import list_all, write_parts
from fastpipe.packing.steps.parts import Job, Listed, Part, check, read_listed, read_parts, read_sources
from fastpipe.sources.files import SourcePath, source_path
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.tables import TableListing

_MEMORY = 256 << 20  # of a worker
_CONVERTED = 3  # a run of rows, which is sorted in memory, and the one before it, which is written
_PART = re.compile(r"(\d+)/(\d+)")


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
        return done
    journal.make_way()
    spool = job.spool()
    stale = {name for name in spool.sizes() if name.startswith(("run-", "rows-", "shard-"))}
    for step in ("convert", "make"):
        for part in read_parts(job, step):
            stale -= {f"{part.name}.sources", *(name for name, _ in part.runs)}
    spool.remove(stale)
    return None


def convert_step(job: Job, part: Part) -> tuple[int, int]:
    """Converts runs of rows, but for those that are there: how many rows, and how many rejected. Note [exchange]"""
    listed, spool = read_listed(job), job.spool()
    there, left, at = spool.sizes(), [], 0
    for name, rows in part.runs:
        if not is_whole(spool, name, there):
            left.append(Rows(name, range(at, at + rows), 0))
        at += rows
    rejected = 0

    def told(_: Source, outcome: Outcome) -> None:
        nonlocal rejected
        rejected += isinstance(outcome, str)

    if left:
        listing = read_sources(job, listed, part)
        assert isinstance(listing, TableListing)  # no other source has such parts
        convert_rows(listing, left, _in_threads(job, part), spool, told)
    return sum(len(rows.positions) for rows in left), rejected


def make_step(job: Job, part: Part) -> tuple[int, int]:
    """Makes a shard, if it is not there: of how many files, and how many rejected. Note [steps of a pack]"""
    listed, store, options = read_listed(job), job.store(), _in_threads(job, part)
    with closing(store):
        if read_entry(store, part.name, store.sizes()) is not None:
            return 0, 0
        listing = read_sources(job, listed, part)
        run = Run(part.number, 0, len(listing.sources))
        if isinstance(listing, TableListing):
            names = [name for each in read_parts(job, "convert") for name, _ in each.runs]
            outcomes = exchanged(listing.sources, [run], options, names, job.spool())
        else:
            outcomes = converted(listing, listing.sources, options)
        (entry,) = make_shards(store, listing, listed.plan, options, {part.name: run}, outcomes)
        return len(listing.sources), len(entry.tally.rejected)


def _in_threads(job: Job, part: Part) -> PackOptions:
    """The options, with so many threads as a part takes, and this machine has CPUs."""
    return replace(job.options, workers=min(part.threads, job.options.threads, granted_cpus()))


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


def pack_on_ray(
    source: SourcePath, destination: Place, options: PackOptions, *, address: str | None, on_progress: Progress
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
    spool = job.spool()
    whole, spooled = _whole(journal, read_parts(job, "make")), spool.sizes()
    told = Told(listed.files, listed.size_bytes, journal.store, on_progress, workers=workers)

    def shards() -> Iterator[Part]:
        return (part for part in read_parts(job, "make") if part.name not in whole)

    def rows() -> Iterator[Part]:
        parts = read_parts(job, "convert")
        return (part for part in parts if not all(is_whole(spool, name, spooled) for name, _ in part.runs))

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


def run_step(src: str, dst: str, step: str, part: str | None, options: Mapping[str, Any]) -> str:
    """Runs "list", "convert", "make" or "publish", or I/N of its parts, but for what is done; says what it has done."""
    if part is not None and step not in ("convert", "make"):
        raise ConfigError(f"--part: the step {step} has no parts; leave it out")
    share = _share(part)
    checked = pack_options(**options)
    source, destination = source_path(src, checked.source.remote), destination_of(dst)
    check_apart(source, destination, checked.spool)
    job = Job.of(source, destination, checked)
    if step == "list":
        return _begun(job)
    if _is_packed(job):
        return f"{job.destination} is already packed with these options; nothing to do"
    if step == "publish":
        listed = read_listed(job)
        with opened(job.destination, checked, shared_spool=True) as journal:
            made = Made(listed.plan, finished(job, journal))
            summary = publish(journal, listed, checked, made, time.monotonic())
            remove_spool(job)
        info, assumed = summary.info, "".join(f"\nassumed, please check: {each}" for each in summary.assumed)
        return f"packed {info['samples']:,} samples in {len(info['shards']):,} shards into {dst}{assumed}"
    read_listed(job)
    parts, work = list(read_parts(job, step)), convert_step if step == "convert" else make_step
    if step == "convert" and not parts:
        return "nothing to convert: only rows of tables are; next: --step make"
    ours, whole = parts[share], set[str]()
    if step == "make":
        with closing(job.store()) as store:
            whole = _whole(Journal(store), ours)
    left = [part for part in ours if part.name not in whole]
    done = [work(job, part._replace(threads=checked.threads)) for part in left]
    files, rejected = (sum(each[at] for each in done) for at in (0, 1))
    if step == "convert":
        return f"converted {files:,} rows, {rejected:,} rejected; the others of this part were there"
    were = f"{len(ours) - len(left)} of {len(ours)} were there"
    return f"made {len(left):,} shards of {files:,} files, {rejected:,} rejected; {were}"


def _whole(journal: Journal, parts: Iterable[Part]) -> set[str]:
    """The parts whose shards are there as they were made: one may have vanished, or have been cut, since then."""
    names = [part.name for part in parts]
    return {name for name, entry in zip(names, journal.finished(names), strict=True) if entry is not None}


def _begun(job: Job) -> str:
    with opened(job.destination, job.options, shared_spool=True) as journal:
        listed = list_all(job)
        if begin(job, journal, listed) is not None:
            return f"{job.destination} is already packed from these sources with these options; nothing to do"
        rows = sum(len(part.runs) for part in read_parts(job, "convert"))
        shards = sum(1 for _ in read_parts(job, "make"))
    converted = f"--step convert ({rows:,} runs of rows), then " if rows else ""
    return f"listed {listed.files:,} files; next: {converted}--step make ({shards:,} shards)"


def _is_packed(job: Job) -> bool:
    """Whether the step "list" has found nothing to do: there is a dataset with these options, and no plan."""
    journal = Journal(job.store())
    info = journal.description()
    if info is None or journal.plan() is not None:
        return False
    made = first_pack(info)["options"]
    return bool(made == job.options.shaping(made.get("fields"), made.get(BY_RULE)))


def _share(part: str | None) -> slice:
    """Of a list of parts, those of I/N."""
    found = _PART.fullmatch("1/1" if part is None else part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"--part: expected I/N with I from 1 to N, such as 3/64, got {part!r}")
    return slice(int(found[1]) - 1, None, int(found[2]))
