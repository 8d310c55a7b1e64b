"""`fastpipe.add` and `fastpipe.remove`: a packed dataset -> its next version.

Note [versions]
Shards never change, and the index says which samples there are. So a version is an index with its columns, and new
shards if there are new samples. dataset.json is that of the newest version; it is written last, and only if it still is
that of the version which grows. Each version's own is kept beside its index, in DST/vN. So loaders see the old version
or the new one, and of two programs that write at the same time one ends with an error.

A source is known if its path is in the index, with its size, and if it has not changed since it was packed.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError, PackError, readable
from fastpipe.format.folder import Place
from fastpipe.format.identity import key_hash
from fastpipe.format.index import Index, read_info
from fastpipe.format.layout import DATASET_FILE, NO_LABEL
from fastpipe.packing.growth.kept import Columns, kept_pieces
from fastpipe.packing.growth.known import agreed_by, compared, fitting_fields, said_of, without_copies
from fastpipe.packing.job.destination import check_apart, opened
from fastpipe.packing.job.threads import Make, Progress, make_in_threads
from fastpipe.packing.picture.convert import EncodeOptions
from fastpipe.packing.shard.entry import Entries, Tally
from fastpipe.packing.shard.journal import Journal, made_with
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.packing.shard.publish import Before, Piece, publish_dataset, read_rejected
from fastpipe.packing.source.facts import Facts
from fastpipe.packing.source.files import SourcePath
from fastpipe.packing.source.kinds import list_sources
from fastpipe.packing.source.listing import Listing
from fastpipe.scan.opening import open_data
from fastpipe.store.opening import open_store

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


@dataclass(frozen=True)
class _Dataset:
    """The newest version of a dataset, which is locked against other programs of this machine.

    Attributes:
        journal: of its work.
        index, data: it; the bytes of its dataset.json.
        history: of it and the versions before it.
        time_ns: that its dataset.json has.
    """

    journal: Journal
    index: Index
    data: bytes
    history: list[dict[str, Any]]
    time_ns: int

    @property
    def info(self) -> dict[str, Any]:
        """The content of its dataset.json."""
        return self.index.info

    def before(self, now: dict[str, Any], rejected: list[tuple[str, str]], *, packs: bool) -> Before:
        """What publishing needs of it."""
        counts = self.info["counts"]
        tally = Tally(
            changes=dict(counts["reencoded"]),
            oriented=counts["exif_oriented"],
            stray_bytes=counts["stray_bytes"],
            multi_frame=counts["multi_frame"],
            rejected=rejected,
        )
        return Before(self.info, self.data, tally, self.history, now, packs)


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
    """Adds samples: see `fastpipe.add`.

    Args:
        source, destination: of what, to which dataset.
        given: the options that are not those of the dataset.
        by, changed, on_progress: as of `fastpipe.add`.
        make: makes the new shards.
    """
    started = time.monotonic()
    check_apart(source, destination, given.spool)
    with _opened(destination, given, shared_spool=make is not make_in_threads) as dataset:
        journal, index = dataset.journal, dataset.index
        options = packed_options(dataset.info["packs"][0]["options"], given.source)
        options = replace(options, workers=given.workers, fail_fast=given.fail_fast, spool=given.spool)
        listing = list_sources(source, options.seed, shuffle=options.shuffle, how=options.source)
        said = fitting_fields(listing, index)
        listing = relabelled(listing, index.classes)
        columns = Columns(index)
        found = compared(listing, index, dataset.history, columns, options, changed)
        if by == "content":
            found = without_copies(listing, found, index, options)
        grown = Grown(dataset.info, 0, 0, found.known, found.copies, found.skipped)
        gone = int((~found.stays).sum())
        if not found.new:
            return replace(grown, seconds=time.monotonic() - started)
        command = ["add", str(source), str(destination)]
        command += ["--by", by] * (by != "path") + ["--changed", changed] * (changed != "error")
        listing = replace(listing, sources=found.new)
        with _written(
            dataset, {"listing": listing.digest_with_times(), "options": options.shaping(listing.kinds)}, command
        ):
            kinds = {name: one.kind for name, one in index.fields.items()}

            def fitted(plan: Plan) -> Plan:
                agreed = agreed_by(index, plan.agreed, source)
                return Plan(plan.step, agreed, dataset.info["next_shard"], kinds)

            made = make(listing, options, journal, fitted, on_progress)
            everything = list(made.entries)
            entries = [entry for entry in everything if entry.tars]
            tally = Entries(everything).tally
            rejected = [(readable(path), reason) for path, reason in tally.rejected]
            if not entries:  # a changed source that cannot be packed any more takes no place
                journal.clear()
                return replace(grown, rejected=rejected, seconds=time.monotonic() - started)
            added = sum(entry.samples for entry in entries)
            stays = found.stays
            if gone and rejected:  # those that cannot be packed any more stay as they were
                lost = np.array([key_hash(path) for path, _ in rejected], np.uint64)
                stays = stays | np.isin(index.records["key"], lost)
                gone = int((~stays).sum())
            tried = {readable(one.path) for one in found.new}
            earlier = [each for each in _rejected(index) if each[0] not in tried]
            facts = replace(Facts.of(listing), fields=tuple(said), state="")
            before = dataset.before(_now(facts.time_ns, added, gone, command), earlier, packs=True)
            if journal.store.read(DATASET_FILE) != dataset.data:
                raise _meanwhile(destination)
            journal.check(entries)
            journal.clean(entries, dataset.info["next_shard"])
            pieces: list[Piece] = [*kept_pieces(index, columns, stays), *entries]
            packed = pieces, facts, tally, options.shaping(facts.kinds)
            info = publish_dataset(journal.store, *packed, plan=made.plan, before=before, told=made.publishing)
            journal.clear()
        grown = replace(grown, info=info, added=added, removed=gone, rejected=rejected)
        return replace(grown, seconds=time.monotonic() - started, uploaded_bytes=journal.store.uploaded_bytes)


def remove(
    destination: Place, given: PackOptions, chosen: Callable[[Index], NDArray[np.bool_]], command: Sequence[str]
) -> Grown:
    """Removes samples from the newest version.

    Args:
        destination: of the dataset.
        given: has how URLs are reached.
        chosen: (n,) which samples of the dataset go.
        command: for the history.
    """
    started = time.monotonic()
    with _opened(destination, given) as dataset:
        journal, index = dataset.journal, dataset.index
        goes = chosen(index)
        gone = int(goes.sum())
        if not gone:
            return Grown(dataset.info, seconds=time.monotonic() - started)
        if gone == len(index):
            raise PackError(
                f"that removes all {gone:,} samples of {destination}; a dataset has at least one. Remove the folder "
                "itself, or choose fewer samples"
            )
        with _written(dataset, {"removed": xxhash.xxh3_64_hexdigest(np.packbits(goes).tobytes())}, command):
            options = packed_options(dataset.info["packs"][0]["options"], given.source)
            said = tuple(said_of(one) for one in index.fields.values())
            facts = Facts("", index.classes, taken_ns=dataset.time_ns, fields=said)
            before = dataset.before(_now(dataset.time_ns, 0, gone, command), _rejected(index), packs=False)
            pieces = kept_pieces(index, Columns(index), ~goes)
            info = publish_dataset(journal.store, pieces, facts, Tally(), options.shaping(facts.kinds), before=before)
            journal.clear()
        uploaded = journal.store.uploaded_bytes
        return Grown(info, removed=gone, seconds=time.monotonic() - started, uploaded_bytes=uploaded)


def history(info: Mapping[str, Any], time_ns: int) -> list[dict[str, Any]]:
    """The versions of a dataset, from the first to that of `info`, whose dataset.json has this time."""
    if info["history"]:
        return list(info["history"])
    numbers = {"samples": info["samples"], "added": info["samples"], "removed": 0}
    return [
        {"version": info["version"], **numbers, "time_ns": time_ns, "listed_ns": time_ns, "command": "fastpipe pack"}
    ]


def versions(data: Place) -> list[dict[str, Any]]:
    """The versions of a dataset, the newest last.

    Raises:
        DatasetError: there is none, or it is not packed.
    """
    index = open_data(data)
    if not index.packed:
        raise DatasetError(f"{data} is not packed, so it has no versions; pack it first: fastpipe pack {data} DST")
    return history(index.info, open_store(data).written_ns(DATASET_FILE))


def packed_options(said: Mapping[str, Any], source: Any) -> PackOptions:
    """The options that a pack was made with: what "packs" of dataset.json has, and how its source is read."""
    encode = EncodeOptions(**{each.name: said[each.name] for each in fields(EncodeOptions)})
    given = {name: said[name] for name in ("shard_size", "seed", "shuffle")}
    return PackOptions(encode, source=source, **given)


def relabelled(listing: Listing, classes: Sequence[str]) -> Listing:
    """The listing with the labels of a dataset, whose classes stay in front; its new ones come behind them."""
    names = [*classes, *(name for name in listing.classes if name not in set(classes))]
    if names == listing.classes:
        return listing
    numbers = {name: number for number, name in enumerate(names)}
    labels = [numbers[name] for name in listing.classes]
    sources = [each if each.label == NO_LABEL else replace(each, label=labels[each.label]) for each in listing.sources]
    return replace(listing, classes=names, sources=sources)


@contextlib.contextmanager
def _opened(destination: Place, given: PackOptions, *, shared_spool: bool = False) -> Iterator[_Dataset]:
    """The newest version, locked.

    Raises:
        DatasetError: there is none.
        PackError: another program writes there.
    """
    if isinstance(destination, Path):
        read_info(destination)
    with opened(destination, given, shared_spool=shared_spool) as journal:
        store = journal.store
        try:
            data = store.read(DATASET_FILE)
        except FileNotFoundError:
            raise PackError(
                f"{destination} holds no packed dataset; pack one first: fastpipe pack SRC {destination}"
            ) from None
        index = open_data(destination, remote=given.source.remote)
        fetch = getattr(index, "fetch_small", None)
        if fetch is not None:  # behind a URL
            fetch()
        time_ns = store.written_ns(DATASET_FILE)
        if store.read(DATASET_FILE) != data:
            raise _meanwhile(destination)
        if (journal.plan() or {}).get("grows", index.fingerprint) != index.fingerprint:
            journal.clear()  # of a program that was killed at its very end, or came too late
        yield _Dataset(journal, index, data, history(index.info, time_ns), time_ns)


@contextlib.contextmanager
def _written(dataset: _Dataset, about: Mapping[str, Any], command: Sequence[str]) -> Iterator[None]:
    """Writes down what is done to a dataset, so that no other program begins.

    Raises:
        PackError: another one has begun, or has changed the dataset.
    """
    journal, store = dataset.journal, dataset.journal.store
    kinds = [one.kind for one in dataset.index.fields.values()]
    plan = {"grows": dataset.index.fingerprint, "command": shlex.join(["fastpipe", *command]), **about}
    began = journal.begin_growth({**plan, "made_with": made_with(kinds)})
    try:
        if store.read(DATASET_FILE) != dataset.data:
            raise _meanwhile(store.place)
        yield
    except BaseException:
        if began:
            journal.give_up()
        raise


def _meanwhile(place: Place) -> PackError:
    return PackError(
        f"{place} has got another version meanwhile: another program adds samples to it, or removes some. Run the same "
        "command again"
    )


def _now(listed_ns: int, added: int, removed: int, command: Sequence[str]) -> dict[str, Any]:
    times = {"time_ns": time.time_ns(), "listed_ns": listed_ns}
    return {"added": added, "removed": removed, **times, "command": shlex.join(["fastpipe", *command])}


def _rejected(index: Index) -> list[tuple[str, str]]:
    found = read_rejected(index.folder, index.version) if index.counts["rejected"] else []
    return [(each["path"], each["reason"]) for each in found]
