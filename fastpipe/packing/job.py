"""Sources -> a packed dataset: the destination is looked at, shards are made in threads, and published."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import Place
from fastpipe.format.layout import DATASET_FILE
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.destination import Wanted, check_apart, check_ours, opened, plan_run
from fastpipe.packing.options import PackOptions
from fastpipe.packing.outcomes import few_outcomes, outcomes_of
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.remake import set_time, unchanged_since
from fastpipe.packing.shard.entry import Entries, Entry
from fastpipe.packing.shard.journal import Journal, made_with
from fastpipe.packing.shard.make import entries_of, make_shards, making
from fastpipe.packing.shard.plan import Plan, Run, plan_shards, runs_of, stride_of
from fastpipe.packing.shard.publish import Origin, origin_of, publish_dataset
from fastpipe.packing.shard.tally import Tally
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.kinds import could_be_source, list_sources
from fastpipe.packing.source.listing import Listing, Source


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
        done = plan_run(
            journal, wanted_of(listing, options, journal), overwrite=options.overwrite, fail_fast=options.fail_fast
        )
        journal.store.check_room(min(_AT_A_TIME * options.shard_size, 2 * listing.size_bytes))
        if done is not None:
            journal.clear()  # a pack that was killed at its very end leaves its work behind
            seconds = time.monotonic() - started
            return Summary(done, Tally(), 0, seconds, listing.stray, listing.dropped, already_packed=True)
        work = Work.of(listing, options, journal)
        made = work.make(on_progress)
        origin = origin_of(listing, work.plan)
        info, tally = publish(journal, work.entries(), origin, options, listing, work.published(on_progress))
    return Summary(
        info,
        tally,
        made,
        time.monotonic() - started,
        listing.stray,
        listing.dropped,
        work.resumed,
        uploaded_bytes=journal.store.uploaded_bytes,
    )


def wanted_of(listing: Listing, options: PackOptions, journal: Journal) -> Wanted:
    """The dataset that a pack of listed sources makes."""

    def unchanged(info: dict[str, Any]) -> bool:
        place = journal.store.place
        if not isinstance(place, Path):  # the times of another machine tell nothing
            return journal.store.note(DATASET_FILE) == listing.digest_with_times()
        packed_ns = (place / DATASET_FILE).stat().st_mtime_ns
        if listing.last_change_ns() <= packed_ns:
            return True
        same = unchanged_since(info, packed_ns, listing, options, journal.store.scratch)
        if same:
            set_time(place, listing)
        return same

    kinds = listing.kinds
    state = listing.digest_with_times()
    return Wanted(listing.resolved_root(), listing.digest(), state, options.shaping(kinds), kinds, unchanged)


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


@dataclass
class Work:
    """The shards of a pack in this process.

    Attributes:
        listing, options, journal: of the pack.
        plan: see `plan_shards`.
        named: the run of each entry.
        finished: entries that are there.
        resumed: how many of them were there at first.
    """

    listing: Listing
    options: PackOptions
    journal: Journal
    plan: Plan
    named: dict[str, Run]
    finished: dict[str, Entry]
    resumed: int

    @classmethod
    def of(cls, listing: Listing, options: PackOptions, journal: Journal, fitted: Fitted = lambda plan: plan) -> Work:
        """Plans the shards, and finds those that are there; `fitted` makes the plan that of a dataset that grows."""
        plan, _, named = cls.planned(listing, options, options.workers or granted_cpus(), fitted)
        finished = {entry.name: entry for entry in journal.finished(named) if entry is not None}
        return cls(listing, options, journal, plan, named, finished, len(finished))

    @staticmethod
    def planned(
        listing: Listing, options: PackOptions, workers: int, fitted: Fitted = lambda plan: plan
    ) -> tuple[Plan, int, dict[str, Run]]:
        """The plan, the stride of `Making`, and the run of each shard by the name of its entry."""

        def convert(few: Sequence[Source]) -> Iterable[tuple[Source, Packed | str]]:
            return few_outcomes(listing, few, options, workers)

        shuffle, kinds = options.shuffle, listing.kinds
        plan = fitted(plan_shards(listing, options.shard_size, convert, shuffle=shuffle))
        stride = stride_of(listing, plan.step, shuffle=shuffle)
        deciding = [options.shaping(kinds), made_with(kinds.values()), *plan[1:], stride]
        runs = runs_of(listing, plan.step, options.seed, shuffle=shuffle)
        return plan, stride, entries_of(listing, runs, deciding)

    def make(self, on_progress: Progress) -> int:
        """Makes the shards that are not there; how many sources were read."""
        left = [(name, run) for name, run in self.named.items() if name not in self.finished]
        wanted = [run for _, run in left]
        count = sum(run.stop - run.start for run in wanted)
        packed = _Step(self, "packing", count, on_progress)
        converted = _Step(self, "converting", len(self.listing.sources), on_progress)
        how = making(
            self.journal.store,
            self.listing,
            self.plan,
            stride_of(self.listing, self.plan.step, shuffle=self.options.shuffle),
            self.options.shard_size,
            fail_fast=self.options.fail_fast,
            make_way=self.journal.make_way,
        )
        workers, spool = self.options.workers or granted_cpus(), self.journal.store.scratch / "spool"
        with closing(outcomes_of(self.listing, wanted, self.options, workers, spool, converted.told)) as outcomes:
            for entry in make_shards(how, left, outcomes, packed.told):
                self.finished[entry.name] = entry
        return count

    def published(self, on_progress: Progress) -> Callable[[], None]:
        """Tells the progress of publishing."""
        total, size_bytes = len(self.listing.sources), self.listing.size_bytes
        rejected = sum(len(entry.tally.rejected) for entry in self.finished.values())

        def told() -> None:
            uploaded = self.journal.store.uploaded_bytes
            if not uploaded:
                return
            on_progress(PackProgress(total, total, size_bytes, size_bytes, rejected, "publishing", uploaded))

        return told

    def entries(self) -> list[Entry]:
        """All of them, in order."""
        return [self.finished[name] for name in self.named]


class _Step:
    """Tells the progress of one step of a pack.

    Args:
        work: the pack.
        name: of the step.
        left: sources that are not done in it.
        on_progress: is told.
    """

    def __init__(self, work: Work, name: str, left: int, on_progress: Progress) -> None:
        self._store, self._name, self._on_progress = work.journal.store, name, on_progress
        self._total, self._total_bytes = len(work.listing.sources), work.listing.size_bytes
        self._done = self._total - left
        self._rejected = sum(len(entry.tally.rejected) for entry in work.finished.values())
        self._bytes = self._total_bytes * self._done // max(self._total, 1)

    def told(self, source: Source, outcome: Packed | str) -> None:
        """One more source is done."""
        self._done += 1
        self._bytes = min(self._bytes + source.size_bytes, self._total_bytes)
        self._rejected += isinstance(outcome, str)
        so_far = self._done, self._total, self._bytes, self._total_bytes, self._rejected
        self._on_progress(PackProgress(*so_far, self._name, self._store.uploaded_bytes))


class Facts(Protocol):
    """What publishing has to know of a listing."""

    @property
    def root(self) -> object: ...
    @property
    def files(self) -> int: ...
    @property
    def stray(self) -> list[str]: ...
    @property
    def kinds(self) -> dict[str, str]: ...


def publish(
    journal: Journal,
    entries: Iterable[Entry],
    origin: Origin,
    options: PackOptions,
    of: Facts,
    told: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], Tally]:
    """Makes a dataset of finished shards.

    Returns:
        The content of dataset.json, and what became of the sources.
    """
    pieces = Entries(entries)
    if not pieces:
        raise nothing_packed(str(of.root), of.files, of.stray, pieces.tally)
    journal.make_way()
    journal.check(pieces)
    journal.clean(pieces)
    info = publish_dataset(journal.store, pieces, origin, pieces.tally, options.shaping(of.kinds), of.kinds, told=told)
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
