"""The first step of a pack: the sources are listed, planned, and written down for those who make their shards.

Note [listing by ranges]
One task lists a source, if that has at most half a million files, or no folders of classes. Of a larger folder, each
task lists some of the classes, and writes its sources down in runs of half a million, sorted by packing order. All that
the plan needs can be added up: bytes, sums of hashes, the few sources of the smallest hashes. Then each task reads one
range of the order from all runs, and writes down the sources of its shards. So nobody holds more than half a million
sources or so, and the driver holds none.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import xxhash

from fastpipe.errors import PackError
from fastpipe.packing.job.threads import Fitted, plan_of, runs_by_name
from fastpipe.packing.pipeline.exchange import Sample, parts_of, runs_of_rows, samples_in, spool_of, write_run
from fastpipe.packing.shard.plan import FEW, HASHES, Plan, Run
from fastpipe.packing.steps.parts import LISTED, Job, Listed, Part, parts_file, written_sources
from fastpipe.sources.class_folders import in_class_folders, sources_at
from fastpipe.sources.class_names import numbered_folders
from fastpipe.sources.files import files_below, source_path
from fastpipe.sources.kinds import class_folders, list_sources
from fastpipe.sources.listing import Facts, Listing, Source, packing_order
from fastpipe.sources.tables import TableListing

MOST_SOURCES = 500_000  # of a listing in memory, or a part of it
_MOST_GROUPS = 1024  # of classes, which are listed by a task each
_WINDOW_BYTES = 8 << 20  # of a run that is read
_WRITERS = 16

Everywhere = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Counted:
    """Some sources of a folder: their weight, those of the smallest hashes, and the files that have all of them."""

    facts: Facts
    weight: int
    few: list[Source]
    runs: tuple[str, ...]

    def with_more(self, other: Counted) -> Counted:
        few = heapq.nsmallest(FEW, [*self.few, *other.few], packing_order(0, shuffle=True))
        return Counted(self.facts.with_more(other.facts), self.weight + other.weight, few, self.runs + other.runs)

    def plan(self, job: Job) -> Plan:
        root = source_path(self.facts.root, job.options.source.remote)
        few = Listing(root, self.facts.classes or [], self.few, [], taken_ns=self.facts.taken_ns)
        return plan_of(few, job.options, weight=self.weight)


def list_all(job: Job, everywhere: Everywhere = map) -> Listed:
    """Writes down the sources of each part; `everywhere` maps, here or in tasks. Note [listing by ranges]"""
    (found,) = everywhere(partial(_list_whole, job), [0])
    if isinstance(found, Listed):
        return found
    _new_spool(job)
    groups = min(found, _MOST_GROUPS)
    counted: Counted = reduce(Counted.with_more, everywhere(partial(_list_group, job, groups), range(groups)))
    (plan,) = everywhere(partial(Counted.plan, job=job), [counted])
    listed = _listed(job, counted.facts, plan, -(-counted.facts.files // MOST_SOURCES))
    for _ in everywhere(partial(_write_range, job, listed, counted.runs), range(listed.ranges)):
        pass
    job.spool().remove(counted.runs)
    return _written(job, listed)


def write_parts(job: Job, listing: Listing, fitted: Fitted = lambda plan: plan) -> Listed:
    """Writes down the sources of each part; `fitted` as of Make."""
    plan = fitted(plan_of(listing, job.options))
    _new_spool(job)
    _write_pieces(job, listing, runs_by_name(listing, job.options, plan), 0)
    return _written(job, _listed(job, Facts.of(listing), plan))


def _list_whole(job: Job, _: object) -> Listed | int:
    """Lists the sources; of too many files the number of classes."""
    root, how, options = job.source_path(), job.options.source, job.options
    there = class_folders(root, how) if options.shuffle else None
    if there is not None:
        paths = in_class_folders(there.root, there.folders)
        if sum(1 for _ in itertools.islice(paths, MOST_SOURCES + 1)) > MOST_SOURCES:
            return len(there.folders)
    return write_parts(job, list_sources(root, options.seed, shuffle=options.shuffle, how=how))


def _list_group(job: Job, groups: int, group: int) -> Counted:
    """Lists some of the classes, and writes their sources down in runs."""
    taken_ns = time.time_ns()
    there = class_folders(job.source_path(), job.options.source)
    if there is None:
        raise PackError(f"{job.source} has changed while it was listed: its class folders are gone. Run this again")
    root, given = there.root, job.options.source.classes
    classes = there.classes if given is None else list(given.labels)
    names = [name for _, name in there.folders[group::groups]]
    ours = numbered_folders(names, there.classes, given, lambda name: not any(files_below(root, name)))
    whole = Listing(root, classes, [], there.stray, assumed=there.assumed)
    whole = replace(whole, taken_ns=taken_ns if isinstance(root, Path) else 0)
    sources = sources_at(root, in_class_folders(root, ours))
    found = Counted(Facts.of(whole), 0, [], ())
    place = packing_order(job.options.seed, shuffle=True)
    runs = iter(lambda: list(itertools.islice(sources, MOST_SOURCES)), [])
    for number, some in enumerate(runs):
        name, listing = f"listed-{group}-{number}", replace(whole, sources=some)
        some.sort(key=place)
        write_run(job.spool(), name, (Sample(place(each), 0, json.dumps(each[:6])) for each in some))
        weight = sum(map(listing.weight, some))
        found = found.with_more(Counted(Facts.of(listing), weight, listing.samples(FEW), (name,)))
    return found


def _read_listed(job: Job, names: Sequence[str], start: int, stop: int) -> list[Source]:
    """The sources of runs whose hashes are from `start` to `stop`, in packing order."""
    spool = job.spool()
    sizes, bounds = spool.sizes(), [((start, ""), (stop, ""))]

    def samples(name: str) -> list[Sample]:
        if name not in sizes:  # this machine, perhaps, does not see the folder
            raise FileNotFoundError(errno.ENOENT, "no such run in the spool", name)
        (part,) = parts_of(spool, name, sizes[name], bounds)
        return [each for each in samples_in(spool, name, part, _WINDOW_BYTES) if start <= each.place[0] < stop]

    found = sorted((each for some in spool.each(samples, names) for each in some), key=lambda each: each.place)
    return [Source(*json.loads(str(each.outcome))) for each in found]


def _write_range(job: Job, listed: Listed, names: Sequence[str], number: int) -> None:
    """Writes down the sources of the shards of one range of the order."""
    first, last = (listed.plan.stride * each // listed.ranges * listed.plan.step for each in (number, number + 1))
    sources = _read_listed(job, names, first, min(last, HASHES))
    root = source_path(listed.root, job.options.source.remote)
    listing = Listing(root, listed.classes or [], sources, [], taken_ns=listed.taken_ns)
    _write_pieces(job, listing, runs_by_name(listing, job.options, listed.plan), number)


def _write_pieces(job: Job, listing: Listing, named: dict[str, Run], number: int) -> None:
    """Writes the sources of each part into a file, and the list of these parts."""
    options, spool = job.options, job.spool()
    there = spool.sizes()
    parts: list[Part] = []
    with ThreadPoolExecutor(_WRITERS) as writers:
        writing = []

        def put(part: Part, positions: Sequence[int]) -> None:
            parts.append(part)
            if f"{part.name}.sources" not in there:
                writing.append(writers.submit(spool.write, f"{part.name}.sources", written_sources(listing, positions)))
            if len(writing) > 4 * _WRITERS:
                writing.pop(0).result()

        if isinstance(listing, TableListing):
            runs = runs_of_rows(listing, spool_of(listing.kinds, options))
            for _, ours in itertools.groupby(runs, key=lambda rows: rows.group):
                together = list(ours)
                positions = [at for rows in together for at in rows.positions]
                share = listing.size_bytes * len(positions) // len(listing.sources)
                lengths = [(rows.name, len(rows.positions)) for rows in together]
                name = f"rows-{xxhash.xxh3_128_hexdigest(repr(lengths).encode())}"
                put(Part("convert", name, len(positions), share, 0, lengths), positions)
        for name, run in named.items():
            size_bytes = sum(source.size_bytes for source in listing.sources[run.start : run.stop])
            put(Part("make", name, run.stop - run.start, size_bytes, run.number), range(run.start, run.stop))
        for each in writing:
            each.result()
    spool.write(parts_file(number), b"".join(json.dumps(part).encode() + b"\n" for part in parts))


def _new_spool(job: Job) -> None:
    """A spool whose list is not whole yet."""
    if isinstance(job.options.spool, Path):
        job.options.spool.mkdir(parents=True, exist_ok=True)
    job.spool().remove([LISTED])


def _listed(job: Job, facts: Facts, plan: Plan, ranges: int = 1) -> Listed:
    return Listed(**vars(facts), made_with=spool_of(facts.kinds, job.options), plan=plan, ranges=ranges)


def _written(job: Job, listed: Listed) -> Listed:
    job.spool().write(LISTED, json.dumps(asdict(listed)).encode())
    return listed
