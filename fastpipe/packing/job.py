"""Folders or tars of images -> a packed dataset: converts in threads, writes in order, publishes, resumes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.format.layout import shard_name
from fastpipe.machine.cpus import granted_cpus
from fastpipe.packing.options import PackOptions
from fastpipe.packing.output.destination import check_apart, check_ours, plan_run
from fastpipe.packing.output.files import cannot_write
from fastpipe.packing.output.journal import Journal, ShardEntry, Tally
from fastpipe.packing.output.publish import publish_dataset
from fastpipe.packing.output.shard_writer import ShardWriter
from fastpipe.packing.picture.convert import Packed
from fastpipe.packing.pipeline import converted
from fastpipe.packing.source.kinds import could_be_source, list_sources
from fastpipe.packing.source.listing import Listing, Source
from fastpipe.packing.unchanged import unchanged_since


@dataclass(frozen=True)
class PackProgress:
    """How far a pack is: files and bytes of the source, done and in all."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int
    rejected: int


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
    """

    info: dict[str, Any]
    tally: Tally
    files: int
    seconds: float
    stray: list[str]
    dropped: Mapping[str, int]
    resumed: int = 0
    already_packed: bool = False


def pack(
    source: Path,
    destination: Path,
    options: PackOptions | None = None,
    *,
    on_progress: Callable[[PackProgress], None] = lambda _: None,
) -> Summary:
    """Packs a folder of images in ImageFolder layout, or tar files, into a dataset.

    Run it again after an interruption and it goes on after the last whole shard; the bytes are those of an
    undisturbed run. Run it again on a finished dataset of the same sources and options and it does nothing.

    Args:
        source: holds one folder a class, with images at any depth; or a tar file, or a folder of tar files.
        destination: a new or empty folder, or an unfinished or finished dataset.
        options: how.
        on_progress: called now and then, in this thread.

    Raises:
        PackError: the source or destination cannot be used, or the disk refuses.
        ConfigError: the destination lies in the source or the other way round.
    """
    started = time.monotonic()
    options = options or PackOptions()
    check_apart(source, destination)
    try:
        listing = list_sources(source, options.seed, shuffle=options.shuffle)
        with _disk_errors(destination):
            check_ours(destination)
    except PackError as problem:
        if not could_be_source(destination):
            raise
        raise PackError(
            f"{problem}. If {readable(str(destination))} is the source, it comes first: fastpipe pack "
            f"{readable(str(destination))} DST"
        ) from problem
    shaping = options.shaping()
    workers = options.workers or granted_cpus()
    tally = Tally()
    with _disk_errors(destination), Journal(destination) as journal:
        done = plan_run(
            journal,
            listing,
            shaping,
            overwrite=options.overwrite,
            fail_fast=options.fail_fast,
            unchanged=lambda index: unchanged_since(index, listing, options.encode, workers),
        )
        if done is not None:
            journal.clear()  # a pack that was killed at its very end leaves its work behind
            return Summary(
                done.info, tally, 0, time.monotonic() - started, listing.stray, listing.dropped, already_packed=True
            )
        shards = journal.finished()
        for shard in shards:
            tally.add(shard.tally)
        resumed = len(shards)
        files = len(listing.sources) - (shards[-1].next_source if shards else 0)
        _pack_shards(journal, listing, options, shards, tally, on_progress)
        if not shards:
            raise PackError(_nothing_packed(listing, tally))
        info = publish_dataset(journal, shards, listing, tally, shaping)
        journal.clear()
    return Summary(info, tally, files, time.monotonic() - started, listing.stray, listing.dropped, resumed)


def _pack_shards(
    journal: Journal,
    listing: Listing,
    options: PackOptions,
    shards: list[ShardEntry],
    total: Tally,
    on_progress: Callable[[PackProgress], None],
) -> None:
    """Packs what is left of the sources; appends to `shards` and adds to `total`."""
    start = shards[-1].next_source if shards else 0
    total_bytes = sum(source.size_bytes for source in listing.sources)
    done_bytes = sum(source.size_bytes for source in listing.sources[:start])
    writer: ShardWriter | None = None
    tally = Tally()  # since the last whole shard

    def finish(next_source: int) -> None:
        nonlocal writer, tally
        assert writer is not None
        sources = listing.digest_with_times(shards[-1].next_source if shards else 0, next_source + 1)
        shards.append(journal.publish_shard(len(shards), writer.finish(), next_source, sources, tally))
        total.add(tally)
        writer, tally = None, Tally()

    def write(position: int, source: Source, packed: Packed) -> None:
        nonlocal writer
        writer = writer or _new_writer(journal, shards, options)
        if not writer.add(packed, source.label, source.path):
            finish(position)
            writer = _new_writer(journal, shards, options)
            writer.add(packed, source.label, source.path)

    def disk() -> contextlib.AbstractContextManager[None]:
        return _disk_errors(journal.destination / shard_name(len(shards)), "write")

    pictures = converted(listing.root, listing.sources, start, options.encode, options.workers or granted_cpus())
    try:
        for position, source, outcome in pictures:
            if isinstance(outcome, str):
                if options.fail_fast:
                    raise PackError(
                        f"{readable(str(listing.root / source.path))} cannot be packed: {outcome}. Repair or remove "
                        "it, or pack without --on-error fail to leave out such files"
                    )
                tally.rejected.append((source.path, outcome))
            else:
                with disk():
                    write(position, source, outcome)
                tally.count(outcome)
            tally.source_bytes += source.size_bytes
            done_bytes += source.size_bytes
            rejected = len(total.rejected) + len(tally.rejected)
            on_progress(PackProgress(position + 1, len(listing.sources), done_bytes, total_bytes, rejected))
        if writer is not None:
            with disk():
                finish(len(listing.sources))
        total.add(tally)
    finally:
        pictures.close()  # now, not when the traceback is let go of: its threads stop
        if writer is not None:
            writer.discard()


@contextlib.contextmanager
def _disk_errors(path: Path, verb: str = "use") -> Iterator[None]:
    """Names the file that the disk refused: `path`, or what is being used of it."""
    try:
        yield
    except OSError as problem:
        named = (problem.filename2 or problem.filename) if verb == "use" else None
        raise cannot_write(Path(named or path), problem, verb) from problem


def _new_writer(journal: Journal, shards: list[ShardEntry], options: PackOptions) -> ShardWriter:
    number, first_sample = len(shards), sum(shard.samples for shard in shards)
    return ShardWriter(journal.folder / shard_name(number), number, first_sample, options.shard_size)


def _nothing_packed(listing: Listing, tally: Tally) -> str:
    text = f"none of the {len(listing.sources)} files in {listing.root} could be packed"
    if tally.rejected:
        path, reason = tally.rejected[0]
        text += f"; the first: {path}: {reason}"
    text += ". Expected JPEG, PNG, WebP or other images in one folder for each class, or in tars"
    if any(name.endswith(".tar") for name in listing.stray):
        text += (
            f"; {listing.root} also holds tars, but if there are folders, fastpipe does not read tars: pass one "
            "of the tars, or move the tars to a separate folder"
        )
    return text
