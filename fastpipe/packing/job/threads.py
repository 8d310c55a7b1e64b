"""Sources -> a packed dataset, whose shards are made in threads of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fastpipe.dataset.format.folder import Place
from fastpipe.errors import PackError, readable
from fastpipe.packing.job.destination import begin_pack, check_apart, open_journal
from fastpipe.packing.job.planning import name_slices, plan_pack
from fastpipe.packing.job.progress import Progress, ProgressReporter
from fastpipe.packing.job.summary import (
    PackedShards,
    Summary,
    publish,
    summarize_existing,
)
from fastpipe.packing.pipeline.exchange import convert_slices
from fastpipe.packing.pipeline.picture_values import assume_picture_values
from fastpipe.packing.shard.journal import SPOOL_NAME, Journal
from fastpipe.packing.shard.make import make_shards
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Plan
from fastpipe.sources.facts import Facts
from fastpipe.sources.files import SourcePath
from fastpipe.sources.kinds import list_sources
from fastpipe.sources.listing import Listing
from fastpipe.sources.recognition import could_be_source
from fastpipe.sources.tables.tables import TableListing

# The results of the few sources that are converted for the plan are kept if there are fewer sources
# than these. With more of them, converting the few again takes less than 3 % of the time.
_MAX_SOURCES_TO_KEEP = 4096
# A pack into a bucket needs room for so many shards on this machine: one is written while another
# one is uploaded, and one of the two may be larger than --shard-size.
_SHARDS_AT_A_TIME = 3

# Changes the plan of a listing, if a dataset grows.
AdjustPlan = Callable[[Plan], Plan]
# Makes the shards of a listing that are not finished.
MakeShards = Callable[
    [Listing, PackOptions, Journal, AdjustPlan, Progress], PackedShards
]


def pack(
    source: SourcePath,
    destination: Place,
    options: PackOptions | None = None,
    *,
    on_progress: Progress = lambda _: None,
) -> Summary:
    """Packs in threads of this process; see `fastpipe.pack`, also for the errors."""
    started = time.monotonic()
    options = options or PackOptions()
    check_apart(source, destination, options.spool)
    with ExitStack() as stack:
        try:
            listing = list_sources(
                source, options.seed, shuffle=options.shuffle, options=options.source
            )
            listing = assume_picture_values(listing)
            journal = stack.enter_context(open_journal(destination, options))
        except PackError as problem:
            # Perhaps the user has exchanged SRC and DST.
            if not isinstance(destination, Path) or not could_be_source(destination):
                raise
            shown = readable(destination)
            raise PackError(
                f"{problem}. If {shown} is the source, it comes first: fastpipe pack {shown} DST"
            ) from problem

        facts = Facts.of(listing)
        existing_info = begin_pack(journal, facts, options, listing)
        if existing_info is not None:
            return summarize_existing(existing_info, facts, started)
        # Not earlier: a full disk must not refuse a pack whose dataset exists already.
        shards_bytes = _SHARDS_AT_A_TIME * options.shard_size
        # The shards of a small source may be larger than it, but hardly more than twice as large.
        largest_bytes = 2 * listing.size_bytes
        journal.store.check_room(min(shards_bytes, largest_bytes))
        shards = make_in_threads(listing, options, journal, _keep_plan, on_progress)
        return publish(journal, facts, options, shards, started)


def _keep_plan(plan: Plan) -> Plan:
    """An AdjustPlan for a new dataset."""
    return plan


def make_in_threads(
    listing: Listing,
    options: PackOptions,
    journal: Journal,
    adjust_plan: AdjustPlan,
    on_progress: Progress,
) -> PackedShards:
    """Makes shards in threads of this process; see MakeShards."""
    # Rows of tables are converted together with those beside them, so nothing is kept of them.
    is_table = isinstance(listing, TableListing)
    keeps_outcomes = not is_table and len(listing.sources) < _MAX_SOURCES_TO_KEEP
    known_outcomes: dict[str, Outcome] | None = {} if keeps_outcomes else None
    plan = adjust_plan(plan_pack(listing, options, known_outcomes))

    # An entry is named by the state of its sources, so an entry that is present is up to date.
    slices = name_slices(listing, options, plan)
    entries = {}
    for entry in journal.read_finished(slices):
        if entry is not None:
            entries[entry.name] = entry
    resumed = len(entries)
    missing_slices = {}
    for name, part in slices.items():
        if name not in entries:
            missing_slices[name] = part

    store = journal.store
    rejected = sum(len(entry.tally.rejected) for entry in entries.values())
    num_sources = len(listing.sources)
    num_missing = sum(part.stop - part.start for part in missing_slices.values())
    total_bytes = listing.size_bytes
    # Only tables are converted in a step of its own. It reads the rows that are not in the spool.
    # Each step has a reporter of its own, as it counts its files from 0.
    converting = ProgressReporter(
        num_sources, total_bytes, store, on_progress, rejected
    )
    converting.begin("converting", num_sources, total_bytes)
    packing = ProgressReporter(num_sources, total_bytes, store, on_progress, rejected)
    num_finished = num_sources - num_missing
    finished_bytes = total_bytes * num_finished // max(num_sources, 1)
    packing.begin("packing", num_missing, total_bytes - finished_bytes)

    outcomes = convert_slices(
        listing,
        list(missing_slices.values()),
        options,
        store.scratch / SPOOL_NAME,
        converting.on_source,
        known_outcomes,
    )
    new_entries = make_shards(
        store,
        listing,
        plan,
        options,
        missing_slices,
        outcomes,
        packing.on_source,
        journal.remove_old_dataset,
    )
    for entry in new_entries:
        entries[entry.name] = entry
    return PackedShards(
        plan,
        [entries[name] for name in slices],
        files=num_missing,
        resumed=resumed,
        on_published_file=packing.on_published_file,
    )
