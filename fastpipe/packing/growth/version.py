"""The newest version of a dataset, and which of its samples stay -> the next version.

Note [versions]
Shards never change, and the index says which samples a dataset has. So a version is an index with
its columns, and new shards if there are new samples. DST/dataset.json is that of the newest
version. It is written last, and only if it still is that of the version which grows. Each version
also has its own dataset.json beside its index, in DST/vN. So a loader sees the old version or the
new one, and if two programs write at the same time, one of them ends with an error.
"""

from __future__ import annotations

import shlex
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Int64s, Records
from fastpipe.dataset.format.description import Intact, read_info
from fastpipe.dataset.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.layout import (
    DATASET_FILE,
    INDEX_FILE,
    WIDE_INDEX_DTYPE,
    shard_number,
)
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import DatasetError, PackError
from fastpipe.packing.fields.agreement import agreement_state_of
from fastpipe.packing.fields.stored import LENGTHS, columns
from fastpipe.packing.growth.carried_columns import carry_over, saved_columns_of
from fastpipe.packing.growth.command_line import pack_command
from fastpipe.packing.job.destination import open_journal
from fastpipe.packing.shard.entry import SOURCES, Entry, Tally
from fastpipe.packing.shard.join import FinishedShard
from fastpipe.packing.shard.journal import Journal, in_use_error
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.packing.shard.publish import (
    PreviousVersion,
    publish_dataset,
    read_rejected,
)
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.facts import Facts
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.remote.dataset import RemoteIndex
from fastpipe.store.saved_columns import SavedColumns
from fastpipe.store.store import Store, open_store


@dataclass(frozen=True)
class Version:
    """The newest version of a dataset, locked.

    Attributes:
        journal: of the change to the dataset.
        index: of the version.
        data: the bytes of dataset.json.
        history: the versions up to this one.
        options: that the dataset was packed with, and how this program works.
        command: that makes the next version.
        saved: the columns that `save_columns` wrote beside it.
    """

    journal: Journal
    index: PackedIndex
    data: bytes
    history: list[dict[str, Any]]
    options: PackOptions
    command: str
    saved: SavedColumns

    @cached_property
    def columns(self) -> dict[tuple[str, str], NDArray[Any]]:
        """The columns by field and part, and SOURCES. DatasetError: a file has changed."""
        index = self.index
        # Damage would be copied into the new version, so the hashes of the files are compared.
        intact = Intact(index.list_hashed_files(index.fields))
        intact.begin()
        intact.check(end=True)
        arrays: dict[tuple[str, str], NDArray[Any]] = {SOURCES: index.sources()}
        for field in index.fields.values():
            for name, column in zip(sidecars(field), columns(field), strict=True):
                file = index.files / FIELDS_FOLDER / name
                array = np.lib.format.open_memmap(file, mode="r")
                arrays[field.name, column.part] = array
        return arrays

    def check_newest(self) -> None:
        """Raises PackError if another program has made the next version."""
        # A folder is locked, but not a bucket: another program may have published meanwhile.
        store = self.journal.store
        if store.read(DATASET_FILE) != self.data:
            raise in_use_error(store, DATASET_FILE, "has changed meanwhile")

    @contextmanager
    def growing(self, change: Mapping[str, Any]) -> Iterator[None]:
        """Writes the plan of a change, so that no other begins. PackError: one has begun.

        `change` identifies it: a run with an equal plan continues the plan.
        """
        plan = {
            "grows": self.index.fingerprint,
            "command": self.command,
            **change,
            "made_with": made_with(),
        }
        has_begun = self.journal.begin_growth(plan)
        try:
            # After the plan is written: a program that has published in between would have removed
            # its own plan, and this one would grow an old version.
            self.check_newest()
            yield
        except BaseException:
            # A plan of an earlier run stays, as there may be finished shards of it.
            if has_begun:
                self.journal.give_up()
            raise

    def publish(
        self,
        is_kept: Bools,
        facts: Facts,
        tally: Tally,
        entries: Sequence[Entry] = (),
        tried: Collection[str] = (),
        plan: Plan | None = None,
        on_file: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Makes the next version, and returns the content of its dataset.json.

        Args:
            is_kept: (n,) which samples of this version stay.
            facts: about the listing of the new sources.
            tally: of the new sources.
            entries: of the new shards.
            tried: paths of the new sources; if they were rejected before, that does not count any
                more.
            plan: of the new shards.
            on_file: is called after each file.

        Raises:
            PackError: another program has changed the dataset or a new shard, or writing fails.
            DatasetError: a file of this version has changed since it was written.
        """
        self.check_newest()
        self.journal.check_shards(entries)
        # Shards and entries of another change, which was begun before this one.
        self.journal.remove_stale(entries, self.index.info["next_shard"])

        kept = self._kept_shards(is_kept)
        change = {
            "added": sum(entry.samples for entry in entries),
            "removed": int((~is_kept).sum()),
            "time_ns": time.time_ns(),
            "listed_ns": facts.time_ns,
            "command": self.command,
        }
        shards: list[FinishedShard] = [*kept, *entries]
        info = publish_dataset(
            self.journal.store,
            shards,
            facts,
            tally,
            self.options.shaping(facts.kinds, facts.coordinates),
            plan=plan,
            previous=PreviousVersion(
                self.index.info,
                self.data,
                self._tally_without(tried),
                self.history,
                change,
            ),
            on_file=on_file,
            on_described=lambda info: carry_over(
                self.saved, self.index, is_kept, entries, self.journal.store, info
            ),
        )
        self.journal.clear()
        return info

    def _kept_shards(self, is_kept: Bools) -> list[KeptShard]:
        """The shards of this version of which samples stay."""
        kept = []
        entries = self.index.info["shards"]
        starts = self.index.shard_starts.tolist()
        for entry, start in zip(entries, starts, strict=True):
            stop = start + entry["samples"]
            shard = KeptShard(self, entry, start, is_kept[start:stop])
            if shard.samples:
                kept.append(shard)
        # The first shard is joined first, so that class names keep their numbers.
        if kept:
            kept[0].agreed = agreement_state_of(self.index.fields.values())
        return kept

    def _tally_without(self, tried: Collection[str]) -> Tally:
        """The tally of all sources so far. Rejected ones that are tried again do not count."""
        counts = self.index.info["counts"]
        rejected = []
        if counts["rejected"]:
            for entry in read_rejected(self.index.folder, self.index.version):
                if entry["path"] not in tried:
                    rejected.append((entry["path"], entry["reason"]))
        return Tally(
            changes=dict(counts["reencoded"]),
            pngs=dict(counts["png"]),
            oriented=counts["exif_oriented"],
            # Datasets of older versions of fastpipe do not have all of the counts.
            assumed_shown=counts.get("assumed_shown", 0),
            assumed_stored=counts.get("assumed_stored", 0),
            stray_bytes=counts["stray_bytes"],
            multi_frame=counts["multi_frame"],
            transparent=counts.get("transparent", 0),
            cut_boxes=counts.get("cut_boxes", 0),
            dropped_boxes=counts.get("dropped_boxes", 0),
            tiled=counts.get("tiled", 0),
            rejected=rejected,
        )


class KeptShard:
    """A shard of a version of which some samples stay; see FinishedShard.

    Args:
        version: has the shard.
        entry: of the shard in dataset.json.
        start: row of its first sample in the index.
        is_kept: (samples of the shard,) which of them stay.
    """

    def __init__(
        self,
        version: Version,
        entry: dict[str, Any],
        start: int,
        is_kept: Bools,
    ) -> None:
        self.agreed: dict[str, Any] = {}
        self.samples = int(is_kept.sum())
        # Removed samples stay in the tar; dataset.json counts them.
        removed = len(is_kept) - self.samples + entry.get("removed", 0)
        tar = Tar(
            shard_number(entry["name"]),
            self.samples,
            entry["size_bytes"],
            entry["xxh3_64"],
            removed,
        )
        self.tars = (tar,)
        self._records = version.index.records
        self._columns = version.columns
        self._is_kept = is_kept
        self._start = start
        self._stop = start + len(is_kept)

    @property
    def is_wide(self) -> bool:
        """Whether the records are of WIDE_INDEX_DTYPE."""
        return bool(self._records.dtype == WIDE_INDEX_DTYPE)

    def records(self, store: Store) -> Records:
        """(samples,) records of the index; `shard` is 0."""
        # A copy, because the records are a map of the file of the old version.
        records = np.array(self._records[self._start : self._stop])
        records = records[self._is_kept]
        records["shard"] = 0
        return records

    def piece_readers(
        self, store: Store, field: str, part: str
    ) -> Iterator[Callable[[], bytes]]:
        """A function that reads the shard's piece of a column."""
        yield lambda: self._read_piece(field, part)

    def piece_size(self, field: str, part: str) -> int:
        """The size in bytes of the shard's piece of a column."""
        if part == LENGTHS:
            return 8 * self.samples
        values = self._columns.get((field, part))
        if values is None:
            return 0  # all boxes are without labels, so that there is no such column
        lengths, _ = self._lengths(field)
        num_values = int(lengths[self._is_kept].sum())
        numbers_per_value = int(np.prod(values.shape[1:], dtype=np.int64))
        return num_values * numbers_per_value * values.dtype.itemsize

    def _read_piece(self, field: str, part: str) -> bytes:
        lengths, first = self._lengths(field)
        if part == LENGTHS:
            # The pieces have lengths; joining makes offsets of them.
            kept_lengths = lengths[self._is_kept].astype("<i8")
            return kept_lengths.tobytes()
        column = self._columns[field, part]
        end = first + int(lengths.sum())
        values = column[first:end]
        if not self._is_kept.all():
            # (values,) whether the sample of each value stays
            is_value_kept = np.repeat(self._is_kept, lengths)
            values = values[is_value_kept]
        return values.tobytes()

    def _lengths(self, field: str) -> tuple[Int64s, int]:
        """How many values each sample had in a column, and the position of the first value."""
        offsets = self._columns.get((field, LENGTHS))
        if offsets is None:
            # A field without offsets has one value a sample.
            return np.ones(len(self._is_kept), np.int64), self._start
        end = self._stop + 1
        shard_offsets = np.array(offsets[self._start : end])
        return np.diff(shard_offsets), int(shard_offsets[0])


@contextmanager
def open_newest(
    destination: Place,
    given: PackOptions,
    command: Sequence[str],
    *,
    shared_spool: bool = False,
) -> Iterator[Version]:
    """Opens and locks the newest version of a dataset.

    Args:
        destination: of the dataset.
        given: options that say how this program works.
        command: arguments of the command that makes the next version.
        shared_spool: see `open_journal`.

    Raises:
        DatasetError: there is no dataset, or it is damaged.
        PackError: another program writes to the dataset, or writing fails.
        ConfigError: --spool does not go with the destination.
    """
    if isinstance(destination, Path):
        read_info(destination)  # raises DatasetError before anything is written
    with open_journal(
        destination, given, shared_spool=shared_spool, is_growing=True
    ) as journal:
        store = journal.store
        try:
            data = store.read(DATASET_FILE)
        except FileNotFoundError:
            raise PackError(
                f"{destination} holds no packed dataset; pack one first: fastpipe pack SRC "
                f"{destination}"
            ) from None
        index = cast("PackedIndex", open_data(destination, remote=given.source.remote))
        if isinstance(index, RemoteIndex):
            index.fetch_small()
        # New samples are converted with the options of the dataset.
        first_pack = index.info["packs"][0]
        packed = packed_options(first_pack["options"], given.source)
        options = replace(
            packed, workers=given.workers, fail_fast=given.fail_fast, spool=given.spool
        )
        versions_so_far = history(index.info, store)
        version = Version(
            journal,
            index,
            data,
            versions_so_far,
            options,
            shlex.join(["fastpipe", *command]),
            saved_columns_of(index),
        )
        version.check_newest()
        plan = journal.plan() or {}
        if plan.get("grows", index.fingerprint) != index.fingerprint:
            # A program was killed at its very end, or another one was faster.
            journal.clear()
        yield version


def history(info: Mapping[str, Any], store: Store) -> list[dict[str, Any]]:
    """The versions up to that of `info`, the content of dataset.json in this store."""
    if info["history"]:
        return list(info["history"])
    # A dataset that has only been packed has no history in dataset.json.
    first = {
        "version": info["version"],
        "samples": info["samples"],
        "added": info["samples"],
        "removed": 0,
        # A later pack of the same sources gives dataset.json the time of their newest listing.
        "time_ns": store.written_ns(INDEX_FILE),
        "listed_ns": store.written_ns(DATASET_FILE),
        "command": shlex.join(pack_command(info["packs"][0])),
    }
    return [first]


def find_packs(info: Mapping[str, Any], shards: Iterable[str]) -> list[dict[str, Any]]:
    """The pack that has made each shard, by the shard's name."""
    # A pack's numbers of shards begin at its base, and end at the base of the next pack.
    bases = [pack["plan"].get("base", 0) for pack in info["packs"]]
    packs = []
    for name in shards:
        pack_index = bisect_right(bases, shard_number(name)) - 1
        packs.append(info["packs"][pack_index])
    return packs


def versions(data: Place) -> list[dict[str, Any]]:
    """The versions of a dataset, the newest last. DatasetError: there are none."""
    index = open_data(data)
    if not isinstance(index, PackedIndex):
        raise DatasetError(
            f"{data} is not packed, so it has no versions; pack it first: fastpipe pack {data} DST"
        )
    return history(index.info, open_store(data))


def packed_options(recorded: Mapping[str, Any], source: Any) -> PackOptions:
    """The options of a pack, as "packs" of dataset.json has them, with those of its source."""
    encode = {
        option.name: recorded[option.name]
        for option in fields(EncodeOptions)
        if option.name in recorded
    }
    return PackOptions(
        EncodeOptions(**encode),
        source=source,
        shard_size=recorded["shard_size"],
        seed=recorded["seed"],
        shuffle=recorded["shuffle"],
    )
