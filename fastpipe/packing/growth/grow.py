"""`fastpipe.add` and `fastpipe.remove`: a packed dataset -> its next version. Note [versions]"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import Place
from fastpipe.format.identity import key_hash
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.growth.chosen import Chosen
from fastpipe.packing.growth.known import compared, fitting_fields, relabelled, said_of
from fastpipe.packing.growth.version import newest
from fastpipe.packing.job.destination import check_apart
from fastpipe.packing.job.threads import Make, Progress, make_in_threads
from fastpipe.packing.shard.entry import Entries, Tally
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.kinds import list_sources

BY = ("path", "content")
CHANGED = ("error", "replace", "skip")


@dataclass(frozen=True)
class Grown:
    """What became of a dataset that was to grow or to shrink.

    Attributes:
        info: the content of dataset.json.
        added, removed: samples.
        known: sources that the dataset has.
        copies: sources that were left out because the dataset has their picture.
        skipped: sources that have changed since they were packed, and were left out.
        rejected: path and reason of sources that could not be packed.
        seconds: it took.
        uploaded_bytes: that were written into a bucket.
    """

    info: dict[str, Any]
    added: int = 0
    removed: int = 0
    known: int = 0
    copies: int = 0
    skipped: int = 0
    rejected: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    uploaded_bytes: int = 0


def add(
    source: SourcePath,
    destination: Place,
    given: PackOptions,
    *,
    by: str,
    changed: str,
    on_progress: Progress,
    make: Make = make_in_threads,
) -> Grown:
    """See `fastpipe.add`. `given` has the options that are not those of the dataset; `make` makes the new shards."""
    started = time.monotonic()
    check_apart(source, destination, given.spool)
    command = ["add", str(source), str(destination)]
    command += ["--by", by] * (by != "path") + ["--changed", changed] * (changed != "error")
    with newest(destination, given, command, shared_spool=make is not make_in_threads) as version:
        journal, index, options = version.journal, version.index, version.options
        listing = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
        said = fitting_fields(listing, index)
        listing = relabelled(listing, index.classes)
        found = compared(listing, version, by, changed)
        grown = Grown(version.info, **found.counts)
        if not found.new:
            return replace(grown, seconds=time.monotonic() - started)
        listing = replace(listing, sources=found.new)
        with version.growing({"listing": listing.digest_with_times(), "options": options.shaping(listing.kinds)}):
            kinds = {name: one.kind for name, one in index.fields.items()}

            def fitted(plan: Plan) -> Plan:
                agreement = Agreement(kinds, version.agreed)
                agreement.join(plan.agreed, str(source))
                return Plan(plan.step, agreement.state(), version.info["next_shard"], kinds)

            made = make(listing, options, journal, fitted, on_progress)
            everything = list(made.entries)
            tally = Entries(everything).tally
            grown = replace(grown, rejected=[(readable(path), reason) for path, reason in tally.rejected])
            entries = [entry for entry in everything if entry.tars]
            if entries:
                # Changed sources that cannot be packed any more take no place: those samples stay as they were.
                lost = np.array([key_hash(path) for path, _ in grown.rejected], np.uint64)
                stays = found.stays | np.isin(index.records["key"], lost)
                facts = replace(Facts.of(listing), fields=tuple(said), state="")
                tried = {readable(one.path) for one in found.new}
                info = version.publish(stays, facts, tally, entries, tried, made.plan, made.publishing)
                added, removed = (info["history"][-1][name] for name in ("added", "removed"))
                grown = replace(grown, info=info, added=added, removed=removed)
            else:
                journal.clear()
        uploaded = journal.store.uploaded_bytes
        return replace(grown, seconds=time.monotonic() - started, uploaded_bytes=uploaded)


def remove(destination: Place, given: PackOptions, chosen: Chosen) -> Grown:
    """Removes samples from the newest version; `given` has how URLs are reached."""
    started = time.monotonic()
    with newest(destination, given, ["remove", str(destination), *chosen.words]) as version:
        index = version.index
        goes = chosen.of(index)
        gone = int(goes.sum())
        info = version.info
        if gone == len(index):
            raise PackError(
                f"that removes all {gone:,} samples of {destination}; a dataset has at least one. Remove the folder "
                "itself, or choose fewer samples"
            )
        if gone:
            said = tuple(said_of(one) for one in index.fields.values())
            facts = Facts("", index.classes, taken_ns=version.time_ns, fields=said)
            with version.growing({"removed": xxhash.xxh3_64_hexdigest(np.packbits(goes).tobytes())}):
                info = version.publish(~goes, facts, Tally())
        uploaded = version.journal.store.uploaded_bytes
        return Grown(info, removed=gone, seconds=time.monotonic() - started, uploaded_bytes=uploaded)
