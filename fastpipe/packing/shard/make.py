"""The converted sources of a shard -> its tar, and its entry in the journal."""

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

from fastpipe.dataset.format.fields import LARGE_KINDS
from fastpipe.dataset.format.layout import (
    SOURCES_DTYPE,
    WORK_FOLDER,
    needs_wide_index,
    shard_name,
)
from fastpipe.dataset.format.sample_layout import Stored
from fastpipe.errors import ImageError, PackError, readable
from fastpipe.packing.fields.agreement import Agreed, Agreement
from fastpipe.packing.fields.stored import parts_of, piece
from fastpipe.packing.shard.entry import SOURCES, Entry, Tally
from fastpipe.packing.shard.options import PackOptions
from fastpipe.packing.shard.plan import OnSource, Outcome, Outcomes, Plan, ShardSlice
from fastpipe.packing.shard.tar import Tar, TarWriter
from fastpipe.sources.listing import Listing
from fastpipe.sources.picture.convert import Packed
from fastpipe.store.files import write_error
from fastpipe.store.store import Store

# A larger piece of a column is kept in a file.
_MAX_PIECE_IN_MEMORY_BYTES = 4 << 20
_COPY_BYTES = 1 << 20
_MAX_JPEG_BYTES = 2**32 - 1  # that sources.npy can hold
# A shard of more than so many times shard_size is continued in another tar.
_MAX_SHARD_SIZES = 2


@dataclass(frozen=True)
class PackContext:
    """What the making of all shards of a pack has in common.

    Attributes:
        store: the destination.
        plan: of the pack. `plan.agreed` is what the values of fields share before the first sample.
        options: of the pack.
        kinds: name -> kind of the fields, in the order of the dataset.
        remove_old: is called before a shard gets its name; not if a dataset grows.
        root: of the sources, for messages.
        field_order: for each field of `kinds`, its position among the fields of the source; (): the
            same order.
    """

    store: Store
    plan: Plan
    options: PackOptions
    kinds: Mapping[str, str]
    remove_old: Callable[[], None] = lambda: None
    root: object = Path()
    field_order: tuple[int, ...] = ()


class ShardMaker:
    """Writes the samples of one shard, in order. The `name` of its entry may change meanwhile."""

    def __init__(self, context: PackContext, number: int, name: str) -> None:
        self.name = name
        self._context = context
        self._number = context.plan.base + number
        self._agreement = Agreement(context.kinds, context.plan.agreed)
        self._tally = Tally()
        self._tars: list[TarWriter] = []

        keys = [SOURCES]
        for field, kind in context.kinds.items():
            keys += [(field, part) for part in parts_of(kind)]
        # By field and part, the shard's piece of the column. The files are closed by `discard`.
        self._pieces: dict[tuple[str, str], tempfile.SpooledTemporaryFile[bytes]] = {}
        scratch = str(context.store.scratch)
        for key in keys:
            file = tempfile.SpooledTemporaryFile(  # noqa: SIM115
                _MAX_PIECE_IN_MEMORY_BYTES, dir=scratch
            )
            self._pieces[key] = file

    @property
    def agreed(self) -> dict[str, Any]:
        """What the values of fields share after the samples so far."""
        return self._agreement.state()

    def add(
        self,
        path: str,
        label: int,
        size_bytes: int,
        outcome: Outcome,
        max_bytes: int = 0,
    ) -> bool:
        """Adds what became of a source.

        Args:
            path: of the source.
            label: of the sample.
            size_bytes: of the source.
            outcome: what became of it.
            max_bytes: the largest size of the tar; for more, the caller begins the next shard. 0:
                a shard that grows too large goes on in another tar.

        Returns:
            False if the tar would get larger than `max_bytes`. Then nothing is added.

        Raises:
            PackError: writing fails, or the source cannot be packed and the options say to stop.
        """
        agreed: dict[str, Agreed] = {}
        if isinstance(outcome, Packed):
            if self._context.field_order:
                ordered = tuple(
                    outcome.values[index] for index in self._context.field_order
                )
                outcome = replace(outcome, values=ordered)
            try:
                agreed = self._agreement.compare(outcome.values)
            except ImageError as problem:
                outcome = str(problem)

        if isinstance(outcome, str):
            self._reject(path, outcome)
        else:
            with self._naming_shard():
                offsets = self._write(outcome, label, path, max_bytes)
                if offsets is None:
                    return False
                # Only now, so that a sample of the next shard gives this one no class names.
                values = self._agreement.admit(outcome.values, agreed)
                self._write_pieces(outcome, size_bytes, values, offsets)
            self._tally.count(outcome)
        self._tally.source_bytes += size_bytes
        return True

    def finish(self) -> Entry:
        """Gives the shard its name, and then writes its entry. May run in another thread."""
        try:
            with self._naming_shard():
                # A shard with a base is added to the dataset, which stays.
                if self._tars and self._context.plan.base == 0:
                    self._context.remove_old()
                # The tars come first: an entry says that they are complete.
                tars = tuple(tar.finish() for tar in self._tars)
                return self._write_entry(tars)
        finally:
            self.discard()

    def discard(self) -> None:
        """Removes the files that have no name yet."""
        for tar in self._tars:
            tar.file.discard()
        for file in self._pieces.values():
            file.close()

    def _reject(self, path: str, reason: str) -> None:
        if self._context.options.fail_fast:
            full_path = os.path.join(str(self._context.root), path)
            shown = readable(full_path)
            raise PackError(
                f"{shown} cannot be packed: {reason}. Repair or remove it, or pack without "
                "--on-error fail to leave out such files"
            )
        self._tally.rejected.append((path, reason))

    def _write(
        self, packed: Packed, label: int, path: str, max_bytes: int
    ) -> list[list[int]] | None:
        """Writes a sample; returns the offsets of each field's members. None: it does not fit."""
        limit = max_bytes or _MAX_SHARD_SIZES * self._context.options.shard_size
        if self._tars:
            last_tar = self._tars[-1]
            offsets = last_tar.add(packed, label, path, limit)
            if offsets is not None or max_bytes:
                return offsets
        # The numbers of other shards are below the stride, so that this one is free.
        stride = self._context.plan.stride
        number = self._number + len(self._tars) * stride
        tar = TarWriter(self._context.store, number, self._context.kinds)
        self._tars.append(tar)
        return tar.add(packed, label, path, limit)

    def _write_pieces(
        self,
        packed: Packed,
        size_bytes: int,
        values: list[Stored],
        offsets: list[list[int]],
    ) -> None:
        """Appends a sample to the shard's pieces of the columns and of sources.npy."""
        for (field, kind), value, offsets_of_field in zip(
            self._context.kinds.items(), values, offsets, strict=True
        ):
            for part, data in piece(kind, value, offsets_of_field).items():
                # `piece` gives all parts, and not every kind has all of them.
                if (field, part) in self._pieces:
                    self._pieces[field, part].write(data)
        jpeg_bytes = packed.jpeg_bytes or len(packed.data)
        for kind, value in zip(self._context.kinds.values(), values, strict=True):
            if kind in LARGE_KINDS:
                jpeg_bytes += sum(len(member) for member in value.members)
        jpeg_bytes = min(jpeg_bytes, _MAX_JPEG_BYTES)
        self._pieces[SOURCES].write(
            np.array((size_bytes, jpeg_bytes), SOURCES_DTYPE).tobytes()
        )

    def _write_entry(self, tars: tuple[Tar, ...]) -> Entry:
        """Writes the entry of the shard. Note [entry]"""
        parts = []
        for (field, part), file in self._pieces.items():
            parts.append((field, part, file.tell()))
        agreed = self._agreement.state()
        records_of_tars = []
        for tar_index, tar in enumerate(self._tars):
            records = tar.records
            records["shard"] = tar_index
            records_of_tars.append(records)
        is_wide = any(needs_wide_index(records) for records in records_of_tars)
        entry = Entry(
            self.name, tars, self._tally, agreed, tuple(parts), is_wide=is_wide
        )
        line = entry.line()
        with self._context.store.open_atomic(f"{WORK_FOLDER}/{self.name}") as out:
            out.write(line)
            for records in records_of_tars:
                out.write(records.astype(entry.dtype).tobytes())
            for file in self._pieces.values():
                file.seek(0)
                shutil.copyfileobj(file, out, _COPY_BYTES)
        return replace(entry, body_at=len(line))

    @contextlib.contextmanager
    def _naming_shard(self) -> Iterator[None]:
        """Names the shard in the error of a disk that refuses."""
        try:
            yield
        except OSError as problem:
            raise write_error(
                f"{self._context.store.place}/{shard_name(self._number)}", problem
            ) from problem


def make_shards(
    store: Store,
    listing: Listing,
    plan: Plan,
    options: PackOptions,
    slices: Mapping[str, ShardSlice],
    outcomes: Outcomes,
    on_source: OnSource = lambda *_: None,
    remove_old: Callable[[], None] = lambda: None,
) -> list[Entry]:
    """Makes shards. Each is a pure function of its sources, whoever makes it.

    Args:
        store: the destination.
        listing: the sources, in packing order.
        plan: of the pack.
        options: of the pack.
        slices: the sources of each shard, by the name of its entry.
        outcomes: what became of the sources of all slices, in order. It is closed in the end.
        on_source: is called with each source and what became of it.
        remove_old: see `PackContext`.
    """
    kinds = listing.kinds
    field_order: tuple[int, ...] = ()
    if plan.kinds is not None:
        # The dataset grows: its shards have its fields in its order, which may not be the source's.
        source_fields = list(listing.kinds)
        field_order = tuple(source_fields.index(field) for field in plan.kinds)
        kinds = plan.kinds
    context = PackContext(
        store, plan, options, kinds, remove_old, listing.root, field_order
    )

    entries: list[Entry] = []
    with contextlib.closing(outcomes), ShardFinisher(store) as finisher:
        for name, shard_slice in slices.items():
            maker = ShardMaker(context, shard_slice.number, name)
            try:
                for _ in range(shard_slice.start, shard_slice.stop):
                    source, outcome = next(outcomes)
                    # The picture of a packed dataset came from a file of another size.
                    size_bytes = source.origin_bytes or source.size_bytes
                    # Without max_bytes, the maker takes every sample.
                    maker.add(source.path, source.label, size_bytes, outcome)
                    on_source(source, outcome)
            except BaseException:
                # Its files are temporary: they have no name yet, and nobody else removes them.
                maker.discard()
                raise
            # The finisher writes this shard while the next one is filled. It returns the entry of
            # the one before.
            entries += finisher.submit(maker)
        entries += finisher.wait()
    return entries


class ShardFinisher:
    """Finishes shards in a thread: the disk or the upload takes a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-finish")
        self._finishing: Future[Entry] | None = None

    def __enter__(self) -> ShardFinisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._store.close()  # gives up an upload, which may take long
        self._thread.shutdown()

    def submit(self, maker: ShardMaker) -> list[Entry]:
        """Begins to finish a shard. Waits for the one before, and returns its entry."""
        try:
            # One shard is finished at a time. More would need more room on the disk.
            entries = self.wait()
        except BaseException:
            maker.discard()
            raise
        self._finishing = self._thread.submit(maker.finish)
        return entries

    def wait(self) -> list[Entry]:
        """Waits for the last shard, and returns its entry. Raises what finishing it raised."""
        if self._finishing is None:
            return []
        finishing = self._finishing
        self._finishing = None
        return [finishing.result()]
