"""Folders, tars or tables of images -> a packed dataset: converts in threads, writes in order, publishes, resumes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import Place
from fastpipe.format.index import Index
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.options import PackOptions
from fastpipe.packing.output.destination import check_apart, open_journal, plan_run
from fastpipe.packing.output.journal import SPOOL_FOLDER, Journal, Tally
from fastpipe.packing.output.publish import origin_of, publish_dataset
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.shard_series import ShardSeries, disk_errors
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.kinds import could_be_source, list_sources
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.spooled import in_order
from fastpipe.packing.unchanged import unchanged_since


@dataclass(frozen=True)
class PackProgress:
    """How far a pack is: files and bytes of the source, done and in all.

    `step` is what it does: "packing"; or, for sources that are read as a stream, "converting" and then "assembling";
    last "uploading", where the dataset is in a bucket. `uploaded_bytes` are there. On a cluster, `tasks` of
    `total_tasks` are done in this step, and `workers` is how many can run at a time; 0: there are no tasks.
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


def pack(
    source: SourcePath,
    destination: Place,
    options: PackOptions | None = None,
    *,
    on_progress: Callable[[PackProgress], None] = lambda _: None,
) -> Summary:
    """Packs a folder of images in ImageFolder layout, or tar files, into a dataset.

    Run it again after an interruption and it goes on after the last whole shard; the bytes are those of an
    undisturbed run. Run it again on a finished dataset of the same sources and options and it does nothing.

    Args:
        source: holds one folder a class, with images at any depth; or a tar file, or a folder of tar files.
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
    of_disk = destination if isinstance(destination, Path) else Path(options.spool or "the spool folder")
    try:
        listing = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
        with disk_errors(of_disk):
            opened = open_journal(destination, options.spool, options.source.remote)
    except PackError as problem:
        if not isinstance(destination, Path) or not could_be_source(destination):
            raise
        raise PackError(
            f"{problem}. If {readable(str(destination))} is the source, it comes first: fastpipe pack "
            f"{readable(str(destination))} DST"
        ) from problem
    shaping = options.shaping(listing.kinds)
    workers = options.workers or granted_cpus()

    def unchanged(index: Index) -> bool:
        state = journal.recorded_state()
        if state is not None:
            return state == listing.digest_with_times()
        return unchanged_since(index, listing, options.encode, workers)

    with disk_errors(of_disk), opened as journal:
        done = plan_run(
            journal,
            listing,
            shaping,
            overwrite=options.overwrite,
            fail_fast=options.fail_fast,
            unchanged=unchanged,
        )
        if done is not None:
            journal.clear()  # a pack that was killed at its very end leaves its work behind
            return Summary(
                done.info, Tally(), 0, time.monotonic() - started, listing.stray, listing.dropped, already_packed=True
            )
        journal.check_room(options.shard_size, listing.size_bytes)
        series = ShardSeries(
            journal,
            options.shard_size,
            fail_fast=options.fail_fast,
            kinds=listing.kinds,
            sources=listing.digest_with_times,
            root=listing.root,
        )
        resumed = len(series.shards)
        files = len(listing.sources) - series.next_source
        _pack_shards(series, listing, options, workers, journal, on_progress)
        if not series.shards:
            raise nothing_packed(str(listing.root), len(listing.sources), listing.stray, series.tally)
        tally = series.tally
        info = publish_dataset(journal, series.shards, origin_of(listing), tally, shaping, series.fields)
        total, total_bytes, rejected = len(listing.sources), listing.size_bytes, len(tally.rejected)

        def uploaded() -> None:
            all_of_it = total, total, total_bytes, total_bytes, rejected
            on_progress(PackProgress(*all_of_it, "uploading", journal.uploaded_bytes))

        journal.commit(listing.digest_with_times(), uploaded)
    return Summary(
        info,
        tally,
        files,
        time.monotonic() - started,
        listing.stray,
        listing.dropped,
        resumed,
        uploaded_bytes=journal.uploaded_bytes,
    )


def _pack_shards(
    series: ShardSeries,
    listing: Listing,
    options: PackOptions,
    workers: int,
    journal: Journal,
    on_progress: Callable[[PackProgress], None],
) -> None:
    """Packs what is left of the sources; if they need a spool, it is in the journal's folder."""
    start, files, total_bytes = series.next_source, len(listing.sources), listing.size_bytes
    done_bytes = sum(source.size_bytes for source in listing.sources[:start])
    steps = _Steps(series, files, total_bytes, on_progress)
    spool = journal.folder / SPOOL_FOLDER
    pictures = in_order(listing, listing.sources, options, workers, spool, start, steps.converted)
    try:
        for position, source, outcome in pictures:
            series.add(position, source.path, source.label, source.size_bytes, outcome)
            done_bytes += source.size_bytes
            so_far = position + 1, files, done_bytes, total_bytes, series.rejected
            on_progress(PackProgress(*so_far, steps.last, journal.uploaded_bytes))
        series.finish(files)
    finally:
        pictures.close()  # now, not when the traceback is let go of: its threads stop
        series.discard()


class _Steps:
    """The progress of a pack while it converts sources into a spool. `last` is the step that is not followed by one."""

    def __init__(
        self, series: ShardSeries, files: int, total_bytes: int, on_progress: Callable[[PackProgress], None]
    ) -> None:
        self._series, self._files, self._total_bytes, self._on_progress = series, files, total_bytes, on_progress
        self._bytes = self._rejected = 0
        self.last = "packing"

    def converted(self, left: int, source: Source, outcome: Packed | str) -> None:
        """Notes one more source, of which so many are left."""
        self.last = "assembling"
        if isinstance(outcome, str):
            self._series.refuse(source.path, outcome)
            self._rejected += 1
        self._bytes += source.size_bytes
        done = self._files - left
        self._on_progress(PackProgress(done, self._files, self._bytes, self._total_bytes, self._rejected, "converting"))


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
