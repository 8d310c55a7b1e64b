"""Sources -> a packed dataset: the destination is looked at, shards are made in threads, and published."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import Place
from fastpipe.format.layout import DATASET_FILE
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.job.destination import check_apart, check_ours, opened, plan_run
from fastpipe.packing.job.remake import unchanged_since
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline.exchange import few_outcomes, outcomes_of
from fastpipe.packing.shard.entry import Entries, Entry, Tally
from fastpipe.packing.shard.journal import Journal, made_with
from fastpipe.packing.shard.make import entries_of, make_shards, making
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan, Run, plan_shards, runs_of, stride_of
from fastpipe.packing.shard.publish import publish_dataset
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.kinds import could_be_source, list_sources
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.source.tables import TableListing


@dataclass(frozen=True)
class PackProgress:
    """How far a pack is: files and bytes of the source, done and in all.

    `step` is what it does: "packing"; for tables, which are read as a stream, "converting" and then "packing"; last
    "publishing", where the dataset is in a bucket. `uploaded_bytes` are there. On a cluster, `tasks` of `total_tasks`
    are done in this step, and `workers` is how many can run at a time; 0: there are no tasks.
    """

    files: int
    total_files: int
    bytes: int
    total_bytes: int
    rejected: int
    step: str = "packing"
    uploaded_bytes: int = 0
    tasks: int = 0
    total_tasks: int = 0
    workers: int = 0


@dataclass(frozen=True)
class Summary:
    """What a pack did.

    Attributes:
        info: the content of dataset.json.
        tally: what became of the sources, those of earlier runs included.
        files: source files that this run read.
        seconds: this run took.
        stray: files beside the class folders or tars, which have no class and are left out.
        dropped: members of tars that are neither picture nor label, by extension; left out.
        resumed: shards that an earlier run had finished.
        already_packed: the dataset was there; nothing was done.
        uploaded_bytes: that this run wrote into a bucket.
    """

    info: dict[str, Any]
    tally: Tally
    files: int
    seconds: float
    stray: list[str]
    dropped: Mapping[str, int]
    resumed: int = 0
    already_packed: bool = False
    uploaded_bytes: int = 0


Progress = Callable[[PackProgress], None]
Fitted = Callable[[Plan], Plan]

_MOST_KEPT = 4096  # sources: of more, it takes less than 3 % to convert the plan's few again
_KEPT_BYTES = 64 << 20  # of them: where values of fields are rare, the plan is made of thousands of sources
_AT_A_TIME = 3  # shards that are made for a bucket: one is written, one uploaded, and one may be larger


def pack(
    source: SourcePath,
    destination: Place,
    options: PackOptions | None = None,
    *,
    on_progress: Progress = lambda _: None,
) -> Summary:
    """Packs images into a dataset, in threads.

    Run it again after an interruption and it goes on with the shards that are not there; the bytes are those of an
    undisturbed run. Run it again on a finished dataset of the same sources and options and it does nothing.

    Args:
        source: what `list_sources` lists.
        destination: a new or empty folder, or an unfinished or finished dataset; or its URL.
        options: how.
        on_progress: called now and then, in this thread.

    Raises:
        PackError: the source or destination cannot be used, or the disk refuses.
        ConfigError: the destination lies in the source or the other way round.
    """
    started = time.monotonic()
    options = options or PackOptions()
    check_apart(source, destination, options.spool)
    with exchanged_places(destination):
        listing = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
        check_ours(destination, options)
    with opened(destination, options) as journal:
        facts = Facts.of(listing)
        done = plan_run(journal, facts, options, lambda info: _unchanged(info, listing, facts, options, journal))
        journal.store.check_room(min(_AT_A_TIME * options.shard_size, 2 * listing.size_bytes))
        if done is not None:
            journal.clear()  # a pack that was killed at its very end leaves its work behind
            return summary(journal, facts, started, done)
        made = make_in_threads(listing, options, journal, lambda plan: plan, on_progress)
        info, tally = publish(journal, made.entries, facts, made.plan, options, made.publishing)
        return summary(journal, facts, started, info, tally, made)


def summary(
    journal: Journal,
    facts: Facts,
    started: float,
    info: dict[str, Any],
    tally: Tally | None = None,
    made: Made | None = None,
) -> Summary:
    """Of a pack that began at this time; without `made` there was nothing to do."""
    files, resumed = (0, 0) if made is None else (made.files, made.resumed)
    seconds, uploaded = time.monotonic() - started, journal.store.uploaded_bytes
    told = facts.stray, facts.dropped, resumed, made is None, uploaded
    return Summary(info, tally or Tally(), files, seconds, *told)


def is_older(journal: Journal, facts: Facts) -> bool:
    """Whether no source is newer than the dataset, which has sources of the same paths and sizes."""
    place = journal.store.place
    if isinstance(place, Path):
        return facts.changed_ns <= (place / DATASET_FILE).stat().st_mtime_ns
    return journal.store.note(DATASET_FILE) == facts.state  # the times of another machine tell nothing


def _unchanged(info: dict[str, Any], listing: Listing, facts: Facts, options: PackOptions, journal: Journal) -> bool:
    """Whether sources with the paths and sizes of a dataset's have its content."""
    place = journal.store.place
    older = is_older(journal, facts)
    if older or not isinstance(place, Path):
        return older
    file = place / DATASET_FILE
    same = unchanged_since(info, file.stat().st_mtime_ns, listing, options, journal.store.scratch)
    if same:
        os.utime(file, ns=(facts.time_ns, facts.time_ns))  # so that the next pack need not look again
    return same


@contextmanager
def exchanged_places(destination: Place) -> Iterator[None]:
    """An error names SRC and DST where they seem to have changed places."""
    try:
        yield
    except PackError as problem:
        if not isinstance(destination, Path) or not could_be_source(destination):
            raise
        raise PackError(
            f"{problem}. If {readable(str(destination))} is the source, it comes first: fastpipe pack "
            f"{readable(str(destination))} DST"
        ) from problem


@dataclass(frozen=True)
class Made:
    """Finished shards.

    Attributes:
        plan: see `plan_shards`.
        entries: of all of them, in order.
        files: sources that were read.
        resumed: shards that were there at first.
        publishing: tells the progress of publishing.
    """

    plan: Plan
    entries: Iterable[Entry]
    files: int
    resumed: int
    publishing: Callable[[], None]


# Makes the shards of a listing that are not there; `Fitted` makes the plan that of a dataset that grows.
Make = Callable[[Listing, PackOptions, Journal, Fitted, Progress], Made]


def planned(
    listing: Listing,
    options: PackOptions,
    fitted: Fitted = lambda plan: plan,
    known: dict[str, Packed | str] | None = None,
) -> tuple[Plan, int, dict[str, Run]]:
    """The plan of a pack, the stride of `Making`, and the run of each shard by the name of its entry.

    `known` gets what became of the first sources that are converted for the plan, by path.
    """
    room = _KEPT_BYTES

    def convert(few: Sequence[Source]) -> Iterator[tuple[Source, Packed | str]]:
        nonlocal room
        with closing(few_outcomes(listing, few, options, options.workers or granted_cpus())) as found:
            for source, outcome in found:
                if known is not None and room > 0:
                    known[source.path] = outcome
                    room -= source.size_bytes
                yield source, outcome

    shuffle = options.shuffle
    plan = fitted(plan_shards(listing, options.shard_size, convert, shuffle=shuffle))
    stride = stride_of(listing, plan.step, shuffle=shuffle)
    return plan, stride, runs_by_name(listing, options, plan, stride)


def runs_by_name(listing: Listing, options: PackOptions, plan: Plan, stride: int) -> dict[str, Run]:
    """The sources of each shard, by the name of its entry."""
    deciding = [options.shaping(listing.kinds), made_with(listing.kinds.values()), *plan[1:], stride]
    runs = runs_of(listing, plan.step, options.seed, shuffle=options.shuffle)
    return entries_of(listing, runs, deciding)


def make_in_threads(
    listing: Listing, options: PackOptions, journal: Journal, fitted: Fitted, on_progress: Progress
) -> Made:
    """Makes shards in threads of this process; see Make."""
    # Rows are converted with those beside them, so nothing is kept of tables.
    keeps = len(listing.sources) < _MOST_KEPT and not isinstance(listing, TableListing)
    known: dict[str, Packed | str] | None = {} if keeps else None
    plan, stride, named = planned(listing, options, fitted, known)
    finished = {entry.name: entry for entry in journal.finished(named) if entry is not None}
    resumed = len(finished)
    left = [(name, run) for name, run in named.items() if name not in finished]
    wanted = [run for _, run in left]
    count = sum(run.stop - run.start for run in wanted)
    told = _Told(listing, journal, sum(len(entry.tally.rejected) for entry in finished.values()), on_progress)
    how = making(
        *(journal.store, listing, plan, stride, options.shard_size),
        fail_fast=options.fail_fast,
        make_way=journal.make_way,
    )
    workers, spool = options.workers or granted_cpus(), journal.store.scratch / "spool"
    converted, packed = told.step("converting", len(listing.sources)), told.step("packing", count)
    with closing(outcomes_of(listing, wanted, options, workers, spool, converted, known)) as outcomes:
        for entry in make_shards(how, left, outcomes, packed):
            finished[entry.name] = entry
    return Made(plan, [finished[name] for name in named], count, resumed, told.publishing)


class _Told:
    """Tells the progress of a pack.

    Args:
        listing, journal: of the pack.
        rejected: sources that are, in shards that were there.
        on_progress: is told.
    """

    def __init__(self, listing: Listing, journal: Journal, rejected: int, on_progress: Progress) -> None:
        self._store, self._rejected, self._on_progress = journal.store, rejected, on_progress
        self._total, self._total_bytes = len(listing.sources), listing.size_bytes

    def step(self, name: str, left: int) -> Callable[[Source, Packed | str], None]:
        """What is called with each source that is done in a step, of so many that are left."""
        done = self._total - left
        rejected, size_bytes = self._rejected, self._total_bytes * done // max(self._total, 1)

        def told(source: Source, outcome: Packed | str) -> None:
            nonlocal done, rejected, size_bytes
            done, size_bytes = done + 1, min(size_bytes + source.size_bytes, self._total_bytes)
            rejected += isinstance(outcome, str)
            self._rejected = max(rejected, self._rejected)
            so_far = done, self._total, size_bytes, self._total_bytes, rejected
            self._on_progress(PackProgress(*so_far, name, self._store.uploaded_bytes))

        return told

    def publishing(self) -> None:
        """A file of the dataset is there."""
        uploaded = self._store.uploaded_bytes
        if uploaded:
            total = self._total, self._total, self._total_bytes, self._total_bytes
            self._on_progress(PackProgress(*total, self._rejected, "publishing", uploaded))


def publish(
    journal: Journal,
    entries: Iterable[Entry],
    facts: Facts,
    plan: Plan,
    options: PackOptions,
    told: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], Tally]:
    """Makes a dataset of finished shards.

    Returns:
        The content of dataset.json, and what became of the sources.
    """
    pieces = Entries(entries)
    if not pieces:
        raise nothing_packed(facts.root, facts.files, facts.stray, pieces.tally)
    journal.make_way()
    journal.check(pieces)
    journal.clean(pieces)
    info = publish_dataset(
        journal.store, pieces, facts, pieces.tally, options.shaping(facts.kinds), plan=plan, told=told
    )
    journal.clear()
    return info, pieces.tally


def nothing_packed(root: str, files: int, stray: Sequence[str], tally: Tally) -> PackError:
    """The error for a source of which no file can be packed."""
    text = f"none of the {files} files in {root} could be packed"
    if tally.rejected:
        path, reason = tally.rejected[0]
        text += f"; the first: {path}: {reason}"
        if match := re.match(r"field (\w+): ", reason):
            return PackError(
                f"{text}. --field names the fields to store: leave out this one, or give it another kind, such as "
                f"--field {match[1]}=COLUMN:image or :bytes"
            )
    text += ". Expected JPEG, PNG, WebP or other images in one folder for each class, or in tars"
    if any(name.endswith(".tar") for name in stray):
        text += (
            f"; {root} also holds tars, but if there are folders, fastpipe does not read tars: pass one "
            "of the tars, or move the tars to a separate folder"
        )
    return PackError(text)
