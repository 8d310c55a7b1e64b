"""The newest version of a dataset, and which of its samples stay -> the next version.

Note [versions]
Shards never change, and the index says which samples there are. So a version is an index with its columns, and new
shards if there are new samples. dataset.json is that of the newest version; it is written last, and only if it still is
that of the version which grows. Each version's own is kept beside its index, in DST/vN. So loaders see the old version
or the new one, and of two programs that write at the same time one ends with an error.
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

from fastpipe.errors import DatasetError, PackError
from fastpipe.format.description import Intact, read_info
from fastpipe.format.fields import FIELDS_FOLDER, sidecars
from fastpipe.format.folder import Place
from fastpipe.format.layout import DATASET_FILE, shard_number
from fastpipe.format.packed_index import PackedIndex
from fastpipe.packing.fields.agreement import agreed_in
from fastpipe.packing.fields.stored import LENGTHS, columns
from fastpipe.packing.job.destination import opened
from fastpipe.packing.shard.journal import SOURCES, Entry, Journal, Tally, another
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Plan
from fastpipe.packing.shard.publish import Before, publish_dataset, read_rejected
from fastpipe.packing.shard.tar import Tar
from fastpipe.sources.listing import Facts
from fastpipe.sources.picture.convert import EncodeOptions
from fastpipe.sources.picture.jpeg import made_with
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.store import Store, open_store


@dataclass(frozen=True)
class Version:
    """The newest version of a dataset, locked, with those before it, and the command that makes the next one."""

    journal: Journal
    index: PackedIndex
    data: bytes
    history: list[dict[str, Any]]
    options: PackOptions
    command: str

    @cached_property
    def columns(self) -> dict[tuple[str, str], NDArray[Any]]:
        """By field and part, mapped into memory; SOURCES is one of them. DatasetError: a file has changed."""
        index = self.index
        intact = Intact(index.hashed_files(index.fields))
        intact.begin()
        intact.check(end=True)
        found: dict[tuple[str, str], NDArray[Any]] = {SOURCES: index.sources()}
        for field in index.fields.values():
            for name, column in zip(sidecars(field), columns(field), strict=True):
                file = index.files / FIELDS_FOLDER / name
                found[field.name, column.part] = np.lib.format.open_memmap(file, mode="r")
        return found

    def check_newest(self) -> None:
        """Raises PackError if another program has made the next version."""
        store = self.journal.store
        if store.read(DATASET_FILE) != self.data:
            raise another(store, DATASET_FILE, "has changed meanwhile")

    @contextmanager
    def growing(self, about: Mapping[str, Any]) -> Iterator[None]:
        """Writes down what is done, so that no other program begins; PackError: one has."""
        plan = {"grows": self.index.fingerprint, "command": self.command, **about, "made_with": made_with()}
        began = self.journal.begin_growth(plan)
        try:
            self.check_newest()
            yield
        except BaseException:
            if began:
                self.journal.give_up()
            raise

    def publish(
        self,
        stays: NDArray[np.bool_],
        facts: Facts,
        tally: Tally,
        entries: Sequence[Entry] = (),
        tried: Collection[str] = (),
        plan: Plan | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Makes the next version, of the samples that `stays` has and of new shards; the content of its dataset.json.

        All else is of the new sources. Those `tried` are not among the rejected ones any more.
        """
        self.check_newest()
        self.journal.check(entries)
        self.journal.clean(entries, self.index.info["next_shard"])
        counts = self.index.info["counts"]
        rejected = read_rejected(self.index.folder, self.index.version) if counts["rejected"] else []
        sources = Tally(
            changes=dict(counts["reencoded"]),
            pngs=dict(counts["png"]),
            oriented=counts["exif_oriented"],
            assumed_shown=counts.get("assumed_shown", 0),
            stray_bytes=counts["stray_bytes"],
            multi_frame=counts["multi_frame"],
            transparent=counts.get("transparent", 0),
            rejected=[(each["path"], each["reason"]) for each in rejected if each["path"] not in tried],
        )
        shards = zip(self.index.info["shards"], self.index.shard_starts.tolist(), strict=True)
        all_kept = (Kept(self, entry, start, stays[start : start + entry["samples"]]) for entry, start in shards)
        kept = [each for each in all_kept if each.samples]
        for first in kept[:1]:  # numbers of class names stay what they are, for these pieces come first
            first.agreed = agreed_in(self.index.fields.values())
        now = {
            "added": sum(entry.samples for entry in entries),
            "removed": int((~stays).sum()),
            "time_ns": time.time_ns(),
            "listed_ns": facts.time_ns,
            "command": self.command,
        }
        info = publish_dataset(
            self.journal.store,
            [*kept, *entries],
            facts,
            tally,
            self.options.shaping(facts.kinds),
            plan=plan,
            before=Before(self.index.info, self.data, sources, self.history, now),
            told=told,
        )
        self.journal.clear()
        return info


class Kept:
    """A shard of a version, of which some samples stay; read as an Entry is. `start` is that of its first sample."""

    def __init__(self, version: Version, entry: dict[str, Any], start: int, stays: NDArray[np.bool_]) -> None:
        self._records, self._columns, self._stays = version.index.records, version.columns, stays
        self.agreed: dict[str, Any] = {}
        self._rows = slice(start, start + len(stays))
        self.samples = int(stays.sum())
        gone = len(stays) - self.samples + entry.get("removed", 0)
        self.tars = (Tar(shard_number(entry["name"]), self.samples, entry["size_bytes"], entry["xxh3_64"], gone),)

    def records(self, store: Store) -> NDArray[np.void]:
        """(samples,) of INDEX_DTYPE; `shard` is 0."""
        records = np.array(self._records[self._rows])[self._stays]
        records["shard"] = 0
        return records

    def part(self, store: Store, of: str, part: str) -> Iterator[Callable[[], bytes]]:
        """A function that reads its piece of a column."""
        yield lambda: self._part(of, part)

    def _part(self, of: str, part: str) -> bytes:
        lengths, first = self._lengths(of)
        if part == LENGTHS:
            return lengths[self._stays].astype("<i8").tobytes()
        values = self._columns[of, part][first : first + int(lengths.sum())]
        return (values if self._stays.all() else values[np.repeat(self._stays, lengths)]).tobytes()

    def part_bytes(self, of: str, part: str) -> int:
        if part == LENGTHS:
            return 8 * self.samples
        values = self._columns.get((of, part))
        if values is None:  # boxes without labels
            return 0
        count = int(self._lengths(of)[0][self._stays].sum())
        return count * values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))

    def _lengths(self, of: str) -> tuple[NDArray[np.int64], int]:
        """(all of its samples,) how many values each has in the columns of a field; and where the first value is."""
        offsets = self._columns.get((of, LENGTHS))
        if offsets is None:
            return np.ones(len(self._stays), np.int64), self._rows.start
        ours = np.array(offsets[self._rows.start : self._rows.stop + 1])
        return np.diff(ours), int(ours[0])


@contextmanager
def newest(
    destination: Place, given: PackOptions, command: Sequence[str], *, shared_spool: bool = False
) -> Iterator[Version]:
    """The newest version, locked; `given` says how this program works, `shared_spool` as of `opened`."""
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
        index = cast("PackedIndex", open_data(destination, remote=given.source.remote))
        getattr(index, "fetch_small", lambda: None)()  # of a dataset behind a URL
        then = packed_options(index.info["packs"][0]["options"], given.source)
        options = replace(then, workers=given.workers, fail_fast=given.fail_fast, spool=given.spool)
        before = history(index.info, store.written_ns(DATASET_FILE))
        version = Version(journal, index, data, before, options, shlex.join(["fastpipe", *command]))
        version.check_newest()
        if (journal.plan() or {}).get("grows", index.fingerprint) != index.fingerprint:
            journal.clear()  # of a program that was killed at its very end, or came too late
        yield version


def history(info: Mapping[str, Any], time_ns: int) -> list[dict[str, Any]]:
    """The versions of a dataset, from the first to that of `info`, whose dataset.json has this time."""
    first = {"version": info["version"], "samples": info["samples"], "added": info["samples"], "removed": 0}
    packed = {**first, "time_ns": time_ns, "listed_ns": time_ns, "command": "fastpipe pack"}
    return list(info["history"]) or [packed]


def packs_of(info: Mapping[str, Any], shards: Iterable[str]) -> list[dict[str, Any]]:
    """The pack that has made each shard, by its name: the last one whose numbers begin at or below the shard's."""
    bases = [pack["plan"].get("base", 0) for pack in info["packs"]]
    return [info["packs"][bisect_right(bases, shard_number(name)) - 1] for name in shards]


def versions(data: Place) -> list[dict[str, Any]]:
    """The versions of a dataset, the newest last; DatasetError: there is none, or it is not packed."""
    index = open_data(data)
    if not isinstance(index, PackedIndex):
        raise DatasetError(f"{data} is not packed, so it has no versions; pack it first: fastpipe pack {data} DST")
    return history(index.info, open_store(data).written_ns(DATASET_FILE))


def packed_options(said: Mapping[str, Any], source: Any) -> PackOptions:
    """The options that a pack was made with: what "packs" of dataset.json has, and how its source is read."""
    encode = EncodeOptions(**{each.name: said[each.name] for each in fields(EncodeOptions) if each.name in said})
    return PackOptions(encode, source=source, **{name: said[name] for name in ("shard_size", "seed", "shuffle")})
