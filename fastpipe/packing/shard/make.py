"""Converted sources of a shard -> its tar and its entry in the journal, whoever makes it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.format.layout import SOURCES_DTYPE, WORK_FOLDER, shard_name
from fastpipe.format.sample_layout import Stored
from fastpipe.packing.fields.agreement import Agreement
from fastpipe.packing.fields.stored import parts_of, piece
from fastpipe.packing.shard.journal import SOURCES, Entry, Tally
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import Outcome, Outcomes, Plan, Run, Told
from fastpipe.packing.shard.tar import TarWriter
from fastpipe.sources.listing import Listing
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.files import cannot_write
from fastpipe.store.store import Store

_IN_MEMORY_BYTES = 4 << 20  # of a shard's piece of a column
_COPY_BYTES = 1 << 20
_MOST = 2  # times shard_size: a larger shard is continued in another file


@dataclass(frozen=True)
class Making:
    """What the making of all shards of a pack has in common; `plan.agreed` is what values of fields share before it."""

    store: Store
    plan: Plan
    options: PackOptions
    kinds: Mapping[str, str]  # of the fields
    make_way: Callable[[], None] = lambda: None  # called before a shard gets its name, unless a dataset grows
    root: object = Path()  # of the sources, for messages
    order: tuple[int, ...] = ()  # of the fields, as places among the source's; (): as there


class ShardMaker:
    """Takes the samples of one shard, from 0, in order. Before `finish` it may get another name for its entry."""

    def __init__(self, how: Making, number: int, name: str) -> None:
        self._how, self._number, self.name = how, how.plan.base + number, name
        self._agreement = Agreement(how.kinds, how.plan.agreed)
        self._tally = Tally()
        self._tars: list[TarWriter] = []
        self._parts = {
            (of, part): tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(how.store.scratch))  # noqa: SIM115
            for of, part in (SOURCES, *((of, part) for of, kind in how.kinds.items() for part in parts_of(kind)))
        }

    @property
    def agreed(self) -> dict[str, Any]:
        """What the values of fields share, after the samples so far."""
        return self._agreement.state()

    def add(self, path: str, label: int, size_bytes: int, outcome: Outcome, most_bytes: int = 0) -> bool:
        """Adds what became of a source; PackError: the pack has to stop. False: it is too large; 0 sets no limit."""
        values: list[Stored] = []
        if not isinstance(outcome, str):
            if self._how.order:
                outcome = replace(outcome, values=tuple(outcome.values[at] for at in self._how.order))
            try:
                values = self._agreement.admit(outcome.values)
            except ImageError as problem:
                outcome = str(problem)
        if isinstance(outcome, str):
            if self._how.options.fail_fast:
                raise PackError(
                    f"{readable(os.path.join(str(self._how.root), path))} cannot be packed: {outcome}. Repair or "
                    "remove it, or pack without --on-error fail to leave out such files"
                )
            self._tally.rejected.append((path, outcome))
        else:
            with self._disk():
                offsets = self._written(outcome, label, path, most_bytes)
                if offsets is None:
                    return False
                for (of, kind), value, offset in zip(self._how.kinds.items(), values, offsets, strict=True):
                    for part, data in piece(kind, value, offset).items():
                        if (of, part) in self._parts:
                            self._parts[of, part].write(data)
                known = np.array((size_bytes, outcome.jpeg_bytes or len(outcome.data)), SOURCES_DTYPE)
                self._parts[SOURCES].write(known.tobytes())
            self._tally.count(outcome)
        self._tally.source_bytes += size_bytes
        return True

    def finish(self) -> Entry:
        """Gives the shard its name, and then writes its entry. May run in another thread."""
        try:
            with self._disk():
                if self._tars and not self._how.plan.base:
                    self._how.make_way()
                tars = tuple(tar.finish() for tar in self._tars)
                sizes = tuple((*key, file.tell()) for key, file in self._parts.items())
                entry = Entry(self.name, tars, self._tally, self._agreement.state(), sizes)
                line = entry.line()
                with self._how.store.whole(f"{WORK_FOLDER}/{self.name}") as out:
                    out.write(line)
                    for at, tar in enumerate(self._tars):
                        records = tar.records
                        records["shard"] = at
                        out.write(records.tobytes())
                    for file in self._parts.values():
                        file.seek(0)
                        shutil.copyfileobj(file, out, _COPY_BYTES)
            return replace(entry, body_at=len(line))
        finally:
            self.discard()

    def discard(self) -> None:
        """Removes what has no name yet."""
        for tar in self._tars:
            tar.file.discard()
        for file in self._parts.values():
            file.close()

    def _written(self, packed: Packed, label: int, path: str, most_bytes: int) -> list[int] | None:
        """Writes a sample; of each field the offset of its member. None: it would be too large."""
        limit = most_bytes or _MOST * self._how.options.shard_size
        offsets = self._tars[-1].add(packed, label, path, limit) if self._tars else None
        if offsets is None and not (self._tars and most_bytes):
            number = self._number + len(self._tars) * self._how.plan.stride
            self._tars.append(TarWriter(self._how.store, number, self._how.kinds))
            offsets = self._tars[-1].add(packed, label, path, limit)
        return offsets

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise cannot_write(f"{self._how.store.place}/{shard_name(self._number)}", problem) from problem


def make_shards(
    store: Store,
    listing: Listing,
    plan: Plan,
    options: PackOptions,
    runs: Mapping[str, Run],
    outcomes: Outcomes,
    told: Told = lambda *_: None,
    make_way: Callable[[], None] = lambda: None,
) -> list[Entry]:
    """Makes shards, each a pure function of its sources, whoever calls. `outcomes`, of all in order, is closed."""
    order = tuple(map(list(listing.kinds).index, plan.kinds or ()))
    how = Making(store, plan, options, plan.kinds or listing.kinds, make_way, listing.root, order)
    made: list[Entry] = []
    with contextlib.closing(outcomes), Finishing(store) as finishing:
        for name, run in runs.items():
            maker = ShardMaker(how, run.number, name)
            try:
                for _ in range(run.start, run.stop):
                    source, outcome = next(outcomes)
                    maker.add(source.path, source.label, source.origin_bytes or source.size_bytes, outcome)
                    told(source, outcome)
            except BaseException:
                maker.discard()
                raise
            made += finishing.put(maker)
        made += finishing.rest()
    return made


class Finishing:
    """Brings shards to the disk, or to the bucket, one at a time, while the next one is made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-finish")
        self._last: Future[Entry] | None = None

    def __enter__(self) -> Finishing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._store.close()  # an upload may take long
        self._thread.shutdown()

    def put(self, maker: ShardMaker) -> Iterator[Entry]:
        """Waits for the shard before, gives its entry, and begins with this one; errors as of `make_shards`."""
        try:
            yield from self.rest()
        except BaseException:
            maker.discard()
            raise
        self._last = self._thread.submit(maker.finish)

    def rest(self) -> Iterator[Entry]:
        """Waits for the last one."""
        last, self._last = self._last, None
        if last is not None:
            yield last.result()
