"""The sources of a pack, listed by tasks -> its plan, and files of the spool with the sources of
each part.

Note [listing by ranges]
One task lists a source with at most half a million files, or without class folders. A larger source
is listed by several tasks. Each lists some of the classes, and writes their sources into runs of
half a million, sorted by packing order. All that the plan needs can be added up: bytes, sums of
hashes, the few sources with the smallest hashes. Then each task reads one range of the order from
all runs, and writes down the sources of its shards. So no task holds many more than half a million
sources, and the driver holds none.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import xxhash

from fastpipe.errors import PackError
from fastpipe.packing.distributed.spool import (
    CONVERT,
    MAKE,
    Job,
    ListedSources,
    Part,
    encode_sources,
    sources_file,
    write_parts,
)
from fastpipe.packing.job.planning import name_slices, plan_pack
from fastpipe.packing.job.threads import AdjustPlan
from fastpipe.packing.pipeline.exchange import RowRun, cut_rows_into_runs, spool_version
from fastpipe.packing.pipeline.picture_values import assume_picture_values
from fastpipe.packing.pipeline.run_file import (
    KeyRange,
    Sample,
    find_ranges,
    read_samples,
    write_run,
)
from fastpipe.packing.shard.plan import FEW, HASHES, Plan, ShardSlice
from fastpipe.sources.class_names import names_of_numbers, numbered_folders
from fastpipe.sources.facts import Facts
from fastpipe.sources.files import files_below, source_path
from fastpipe.sources.folders.class_folders import (
    assume_hidden_left_out,
    in_class_folders,
    sources_at,
)
from fastpipe.sources.kinds import class_folders, list_sources
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.tables.tables import TableListing

# Sources that a task may hold.
MAX_SOURCES = 500_000
# Tasks that list classes.
_MAX_GROUPS = 1024
# So many bytes of a run are read at once.
_WINDOW_BYTES = 8 << 20
# Threads of a task that write lists of sources: a bucket takes many small files at a time.
_WRITERS = 16

# Calls a function with each item, here or in tasks. The results may come in any order.
MapTasks = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class ListedGroup:
    """Some classes of a folder, listed by a task.

    Attributes:
        facts: about their sources.
        weight: sum of `Listing.weight` over their sources.
        few: the sources with the smallest hashes.
        runs: files in the spool that have all of their sources.
        hidden_folders: folders in the classes that were passed over, for a dot in their names.
    """

    facts: Facts
    weight: int
    few: list[Source]
    runs: tuple[str, ...]
    hidden_folders: frozenset[str] = frozenset()

    def with_more(self, other: ListedGroup) -> ListedGroup:
        # As `Listing.samples` would choose them from all sources.
        order_key = packing_order(0, shuffle=True)
        few = heapq.nsmallest(FEW, [*self.few, *other.few], order_key)
        return ListedGroup(
            self.facts.with_more(other.facts),
            self.weight + other.weight,
            few,
            self.runs + other.runs,
            self.hidden_folders | other.hidden_folders,
        )

    def settled_facts(self) -> Facts:
        """The facts of all classes, with what only all of them together show."""
        hidden = assume_hidden_left_out(self.hidden_folders)
        return replace(self.facts, assumed=(*self.facts.assumed, *hidden))


def list_in_tasks(job: Job, map_tasks: MapTasks = map) -> ListedSources:
    """Lists the sources, and writes down those of each part. Note [listing by ranges]"""
    (listed,) = map_tasks(partial(_list_all, job), [0])
    if isinstance(listed, ListedSources):
        return listed

    num_classes = listed
    _make_spool_folder(job)
    # A task lists one class or more, so that its results are few.
    num_groups = min(num_classes, _MAX_GROUPS)
    groups = map_tasks(partial(_list_group, job, num_groups), range(num_groups))
    all_groups: ListedGroup = reduce(ListedGroup.with_more, groups)
    # A task plans, as the driver may not see the sources.
    (plan,) = map_tasks(partial(_plan_group, job), [all_groups])
    num_ranges = -(-all_groups.facts.files // MAX_SOURCES)  # rounded up
    listed = _listed_sources(job, all_groups.settled_facts(), plan, num_ranges)
    write = partial(_write_range, job, listed, all_groups.runs)
    for _ in map_tasks(write, range(num_ranges)):
        pass  # a task has no result; the loop waits for it
    job.open_spool().remove(all_groups.runs)
    return listed


def write_listing(
    job: Job, listing: Listing, adjust_plan: AdjustPlan = lambda plan: plan
) -> ListedSources:
    """Plans the pack of a listing in memory, and writes down the sources of each part."""
    plan = adjust_plan(plan_pack(listing, job.options))
    _make_spool_folder(job)
    # The whole listing is one range.
    slices = name_slices(listing, job.options, plan)
    _write_shards(job, listing, slices, range_index=0)
    return _listed_sources(job, Facts.of(listing), plan, num_ranges=1)


def _make_spool_folder(job: Job) -> None:
    """Makes the folder of --spool; not one in the destination, which this machine may not see."""
    if isinstance(job.options.spool, Path):
        job.options.spool.mkdir(parents=True, exist_ok=True)


def _listed_sources(
    job: Job, facts: Facts, plan: Plan, num_ranges: int
) -> ListedSources:
    version = spool_version(facts.kinds, job.options)
    return ListedSources(facts, plan, num_ranges, version)


def _list_all(job: Job, _: object) -> ListedSources | int:
    """Lists the sources in one task; the number of classes if there are too many sources for it."""
    root = job.source_path()
    options = job.options
    folders = None
    if options.shuffle:
        folders = class_folders(root, options.source)
    if folders is not None:
        paths = in_class_folders(folders.root, folders.folders)
        # The files are only counted, up to the limit: there may be a billion.
        first_paths = itertools.islice(paths, MAX_SOURCES + 1)
        num_paths = sum(1 for _ in first_paths)
        if num_paths > MAX_SOURCES:
            return len(folders.folders)
    listing = list_sources(
        root, options.seed, shuffle=options.shuffle, options=options.source
    )
    return write_listing(job, assume_picture_values(listing))


def _list_group(job: Job, num_groups: int, group_index: int) -> ListedGroup:
    """Lists every `num_groups`-th class, and writes the sources into runs."""
    taken_ns = time.time_ns()
    folders = class_folders(job.source_path(), job.options.source)
    if folders is None:
        raise PackError(
            f"{job.source} has changed while it was listed: its class folders are gone. Run this "
            "again"
        )
    root = folders.root
    given_classes = job.options.source.classes

    def is_empty(name: str) -> bool:
        return not any(files_below(root, name))

    folders_of_group = folders.folders[group_index::num_groups]
    names = [name for _, name in folders_of_group]
    numbered = numbered_folders(names, folders.classes, given_classes, is_empty)
    if given_classes is None:
        classes = folders.classes
    else:
        labels = given_classes.labels or names_of_numbers(
            folders.classes, given_classes
        )
        classes = list(labels)
    # The times of a bucket are those of another clock, so that a listing of it has none.
    if not isinstance(root, Path):
        taken_ns = 0
    empty = Listing(
        root, classes, [], folders.stray, assumed=folders.assumed, taken_ns=taken_ns
    )
    group = ListedGroup(Facts.of(empty), 0, [], ())

    order_key = packing_order(job.options.seed, shuffle=True)
    spool = job.open_spool()
    hidden_folders = set[str]()
    sources = sources_at(root, in_class_folders(root, numbered, hidden_folders))
    while run := list(itertools.islice(sources, MAX_SOURCES)):
        run.sort(key=order_key)
        listing = replace(empty, sources=run)
        name = f"listed-{group_index}-{len(group.runs)}"
        write_run(spool, name, encode_listed(run, order_key))
        weight = sum(map(listing.weight, run))
        few = listing.samples(FEW)
        of_run = ListedGroup(Facts.of(listing), weight, few, (name,))
        group = group.with_more(of_run)
    return replace(group, hidden_folders=frozenset(hidden_folders))


def encode_listed(
    sources: Iterable[Source], order_key: Callable[[Source], tuple[int, str]]
) -> Iterator[Sample]:
    """Files of class folders as samples of a run."""
    for source in sources:
        # The first six values of a Source are all that such a file has.
        yield Sample(order_key(source), 0, json.dumps(source[:6]))


def _listing_of(job: Job, facts: Facts, sources: list[Source]) -> Listing:
    """Some files of class folders as a listing."""
    root = source_path(facts.root, job.options.source.remote)
    return Listing(root, facts.classes or [], sources, [], taken_ns=facts.taken_ns)


def _plan_group(job: Job, group: ListedGroup) -> Plan:
    few = _listing_of(job, group.facts, group.few)
    return plan_pack(few, job.options, weight=group.weight)


def _read_listed(
    job: Job, run_names: Sequence[str], start: int, stop: int
) -> list[Source]:
    """The sources of runs whose hashes are from `start` to `stop`, in packing order."""
    spool = job.open_spool()
    sizes = spool.sizes()
    # No path is empty, so that a source with the hash `stop` is behind the range.
    key_ranges = [KeyRange((start, ""), (stop, ""))]

    def read(name: str) -> list[Sample]:
        if name not in sizes:
            # Perhaps this machine does not see the folder, and another one does.
            raise FileNotFoundError(errno.ENOENT, "no such run in the spool", name)
        (bytes_range,) = find_ranges(spool, name, sizes[name], key_ranges)
        samples = []
        for sample in read_samples(spool, name, bytes_range, _WINDOW_BYTES):
            order_hash, _ = sample.order_key
            if start <= order_hash < stop:
                samples.append(sample)
        return samples

    samples = itertools.chain.from_iterable(spool.map(read, run_names))
    in_order = sorted(samples, key=lambda sample: sample.order_key)
    sources = []
    for sample in in_order:
        values = json.loads(str(sample.outcome))
        sources.append(Source(*values))
    return sources


def _write_range(
    job: Job, listed: ListedSources, run_names: Sequence[str], range_index: int
) -> None:
    """Writes down the sources of the shards of one range of the order."""
    plan = listed.plan
    # A range has whole shards, so that each shard is written by one task.
    first_shard = plan.stride * range_index // listed.num_ranges
    end_shard = plan.stride * (range_index + 1) // listed.num_ranges
    start = first_shard * plan.step
    stop = min(end_shard * plan.step, HASHES)
    sources = _read_listed(job, run_names, start, stop)
    listing = _listing_of(job, listed.facts, sources)
    slices = name_slices(listing, job.options, plan)
    _write_shards(job, listing, slices, range_index)


def _write_shards(
    job: Job, listing: Listing, slices: dict[str, ShardSlice], range_index: int
) -> None:
    """Writes the sources of each part into a file, and the list of these parts."""
    spool = job.open_spool()
    sizes = spool.sizes()
    parts: list[Part] = []
    writing: list[Future[None]] = []
    with ThreadPoolExecutor(_WRITERS) as writers:
        for part, positions in _parts_of(listing, slices, job):
            parts.append(part)
            name = sources_file(part.name)
            # The name of a part names the state of its sources, so that an older file has the same
            # ones.
            if name not in sizes:
                content = encode_sources(listing, positions)
                writing.append(writers.submit(spool.write, name, content))
            # Else the sources of all parts would wait in memory.
            if len(writing) > 4 * _WRITERS:
                writing.pop(0).result()
        for write in writing:
            write.result()
    write_parts(spool, range_index, parts)


def _parts_of(
    listing: Listing, slices: dict[str, ShardSlice], job: Job
) -> Iterator[tuple[Part, Sequence[int]]]:
    """The parts of a pack, each with the positions of its sources in the listing."""
    if isinstance(listing, TableListing):
        version = spool_version(listing.kinds, job.options)
        row_runs = cut_rows_into_runs(listing, version)
        for _, group in itertools.groupby(row_runs, key=lambda rows: rows.group):
            yield _convert_part(listing, list(group))
    for name, shard_slice in slices.items():
        start = shard_slice.start
        stop = shard_slice.stop
        positions = range(start, stop)
        sources = listing.sources[start:stop]
        size_bytes = sum(source.size_bytes for source in sources)
        part = Part(MAKE, name, len(positions), size_bytes, number=shard_slice.number)
        yield part, positions


def _convert_part(
    listing: TableListing, row_runs: Sequence[RowRun]
) -> tuple[Part, Sequence[int]]:
    """The part of some runs of rows that are converted together, and the positions of the rows."""
    positions: list[int] = []
    for rows in row_runs:
        positions += rows.positions
    num_sources = len(listing.sources)
    size_bytes = listing.size_bytes * len(positions) // num_sources
    lengths = [(rows.name, len(rows.positions)) for rows in row_runs]
    digest = xxhash.xxh3_128_hexdigest(repr(lengths).encode())
    name = f"rows-{digest}"
    part = Part(CONVERT, name, len(positions), size_bytes, runs=lengths)
    return part, positions
