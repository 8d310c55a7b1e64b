"""Sources -> a packed dataset: the destination is looked at, shards are made in threads, and published."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import Place
from fastpipe.format.layout import FORMAT_VERSION
from fastpipe.packing.job.destination import check_apart, opened, plan_run
from fastpipe.packing.pipeline.converting import converted
from fastpipe.packing.pipeline.exchange import outcomes_of
from fastpipe.packing.shard.journal import Entries, Entry, Journal, Tally, entry_name
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Outcomes, Plan, Run, plan_shards, runs_of
from fastpipe.packing.shard.publish import publish_dataset
from fastpipe.sources.files import SourcePath
from fastpipe.sources.kinds import could_be_source, list_sources
from fastpipe.sources.listing import Assumption, Facts, Listing, Source
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.tables import TableListing
from fastpipe.store.store import Store


class PackProgress(NamedTuple):
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
        assumed: what the source does not say for sure: how it was read, and the option that settles it.
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
    assumed: tuple[Assumption, ...] = ()
    resumed: int = 0
    already_packed: bool = False
    uploaded_bytes: int = 0


_LOG = logging.getLogger("fastpipe.pack")
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
    """What `fastpipe.pack` does, in threads of this process; with the errors that it has."""
    started = time.monotonic()
    options = options or PackOptions()
    check_apart(source, destination, options.spool)
    with ExitStack() as stack:
        try:
            listing = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
            journal = stack.enter_context(opened(destination, options))
        except PackError as problem:
            if not isinstance(destination, Path) or not could_be_source(destination):
                raise
            shown = readable(str(destination))
            raise PackError(
                f"{problem}. If {shown} is the source, it comes first: fastpipe pack {shown} DST"
            ) from problem
        facts = Facts.of(listing)
        done = plan_run(journal, facts, options, listing)
        journal.store.check_room(min(_AT_A_TIME * options.shard_size, 2 * listing.size_bytes))
        if done is not None:
            return already_packed(done, facts, started)
        made = make_in_threads(listing, options, journal, lambda plan: plan, on_progress)
        return publish(journal, facts, options, made, started)


def already_packed(info: dict[str, Any], facts: Facts, started: float) -> Summary:
    """The summary of a pack that has found its dataset, which has this `info`."""
    left_out = facts.stray, facts.dropped, (*facts.assumed, *assumed_of_images(info["counts"]))
    return Summary(info, Tally(), 0, time.monotonic() - started, *left_out, already_packed=True)


def assumed_of_images(counts: Mapping[str, Any]) -> list[Assumption]:
    """What was assumed of images when they were read, by the "counts" of dataset.json."""
    found = []
    if shown := counts.get("assumed_shown", 0):
        images = "1 image" if shown == 1 else f"{shown:,} images"
        text = f"boxes, points and masks of {images} that EXIF turns: of the image as it is shown, not as it is stored"
        found.append(Assumption(text, "--coordinates shown or stored"))
    if transparent := counts.get("transparent", 0):
        images = "1 image is transparent" if transparent == 1 else f"{transparent:,} images are transparent"
        text = f"{images} in part; where a loader gives RGB, the colours that are hidden there show"
        found.append(Assumption(text, "--background white"))
    return found


def tell_assumed(source: object, assumed: Iterable[Assumption]) -> None:
    """Logs what was assumed of a source: for programs, and commands that show no summary of it."""
    for each in assumed:
        _LOG.warning("%s: assumed %s", source, each)


@dataclass(frozen=True)
class Made:
    """Finished shards in order, and the sources read for the new ones. Without a plan, a program added the samples."""

    plan: Plan | None
    entries: Iterable[Entry]
    files: int = 0
    resumed: int = 0
    publishing: Callable[[], None] = lambda: None


# Makes the shards of a listing that are not there; `Fitted` makes the plan that of a dataset that grows.
Make = Callable[[Listing, PackOptions, Journal, Fitted, Progress], Made]


def plan_of(
    listing: Listing, options: PackOptions, known: dict[str, Outcome] | None = None, weight: int | None = None
) -> Plan:
    """The plan of a pack. `known` gets what became of the first sources that are converted for it, by path."""
    room = _KEPT_BYTES

    def convert(few: Sequence[Source]) -> Outcomes:
        nonlocal room
        with closing(converted(listing, few, options)) as found:
            for source, outcome in found:
                if known is not None and room > 0:
                    known[source.path] = outcome
                    room -= source.size_bytes
                yield source, outcome

    return plan_shards(listing, options.shard_size, convert, shuffle=options.shuffle, weight=weight)


def runs_by_name(listing: Listing, options: PackOptions, plan: Plan) -> dict[str, Run]:
    """The sources of each shard, by the name of its entry, which names their state and all that decides bytes."""
    deciding = [FORMAT_VERSION, options.shaping(listing.kinds), made_with(), *plan[1:]]
    how = xxhash.xxh3_128_hexdigest(json.dumps(deciding, sort_keys=True).encode())
    found = {}
    for run in runs_of(listing, plan.step, options.seed, shuffle=options.shuffle):
        state = listing.digest_with_times(run.start, run.stop)
        found[entry_name(run.number, xxhash.xxh3_64_hexdigest(f"{how} {state}".encode()))] = run
    return found


def make_in_threads(
    listing: Listing, options: PackOptions, journal: Journal, fitted: Fitted, on_progress: Progress
) -> Made:
    """Makes shards in threads of this process; see Make."""
    # Rows are converted with those beside them, so nothing is kept of tables.
    keeps = len(listing.sources) < _MOST_KEPT and not isinstance(listing, TableListing)
    known: dict[str, Outcome] | None = {} if keeps else None
    plan = fitted(plan_of(listing, options, known))
    named = runs_by_name(listing, options, plan)
    finished = {entry.name: entry for entry in journal.finished(named) if entry is not None}
    resumed = len(finished)
    left = {name: run for name, run in named.items() if name not in finished}
    wanted = list(left.values())
    count = sum(run.stop - run.start for run in wanted)
    rejected = sum(len(entry.tally.rejected) for entry in finished.values())
    store, total, total_bytes = journal.store, len(listing.sources), listing.size_bytes
    converting, packing = (Told(total, total_bytes, store, on_progress, rejected) for _ in range(2))
    converting.begin("converting", total, total_bytes)
    packing.begin("packing", count, total_bytes - total_bytes * (total - count) // max(total, 1))
    outcomes = outcomes_of(listing, wanted, options, store.scratch / "spool", converting.source, known)
    for entry in make_shards(store, listing, plan, options, left, outcomes, packing.source, journal.make_way):
        finished[entry.name] = entry
    return Made(plan, [finished[name] for name in named], count, resumed, packing.publishing)


class Told:
    """Tells how far a pack is."""

    def __init__(
        self, files: int, size_bytes: int, store: Store, on_progress: Progress, rejected: int = 0, workers: int = 0
    ) -> None:
        self._now = PackProgress(0, files, 0, size_bytes, rejected, workers=workers)
        self._store, self._on_progress = store, on_progress

    def begin(self, step: str, files: int, size_bytes: int, tasks: int = 0) -> None:
        """A step in which so much is left."""
        done, done_bytes = self._now.total_files - files, max(self._now.total_bytes - size_bytes, 0)
        self._now = self._now._replace(step=step, files=done, bytes=done_bytes, tasks=0, total_tasks=tasks)

    def add(self, files: int = 0, size_bytes: int = 0, rejected: int = 0, tasks: int = 0) -> None:
        now = self._now
        self._now = now._replace(
            files=now.files + files,
            bytes=min(now.bytes + size_bytes, now.total_bytes),
            rejected=now.rejected + rejected,
            tasks=now.tasks + tasks,
            uploaded_bytes=self._store.uploaded_bytes,
        )
        self._on_progress(self._now)

    def source(self, source: Source, outcome: Outcome) -> None:
        self.add(1, source.size_bytes, isinstance(outcome, str))

    def publishing(self) -> None:
        """A file of the dataset is there."""
        if self._store.uploaded_bytes or self._now.workers:
            self.begin("publishing", 0, 0)
            self.add()


def publish(journal: Journal, facts: Facts, options: PackOptions, made: Made, started: float) -> Summary:
    """Makes a dataset of finished shards, for a pack that began at this time."""
    pieces = Entries(made.entries)
    if not pieces:
        raise _nothing_packed(facts, pieces.tally)
    journal.make_way()
    journal.check(pieces)
    journal.clean(pieces)
    store, tally, shaping = journal.store, pieces.tally, options.shaping(facts.kinds, facts.coordinates)
    info = publish_dataset(store, pieces, facts, tally, shaping, plan=made.plan, told=made.publishing)
    journal.clear()
    seconds, uploaded = time.monotonic() - started, store.uploaded_bytes
    left_out = facts.stray, facts.dropped, (*facts.assumed, *assumed_of_images(info["counts"]))
    return Summary(info, tally, made.files, seconds, *left_out, resumed=made.resumed, uploaded_bytes=uploaded)


def _nothing_packed(facts: Facts, tally: Tally) -> PackError:
    what = "samples of" if facts.made_by else "files in"
    text = f"none of the {facts.files} {what} {facts.root} could be packed"
    path, reason = tally.rejected[0] if tally.rejected else ("", "")
    text += f"; the first: {path}: {reason}" if reason else ""
    if any(reason.startswith(f"field {name}: ") for name in facts.kinds) and not facts.made_by:
        text += (
            ". If the field is at fault, leave it out (--field names the fields to store), or give it another kind, "
            "such as --field NAME=COLUMN:image or :bytes"
        )
    if facts.made_by or (reason and facts.kinds):
        return PackError(text)
    text += ". Expected JPEG, PNG, WebP or other images in one folder for each class, or in tars"
    if any(name.endswith(".tar") for name in facts.stray):
        text += (
            f"; {facts.root} also holds tars, but if there are folders, fastpipe does not read tars: pass one "
            "of the tars, or move the tars to a separate folder"
        )
    return PackError(text)
