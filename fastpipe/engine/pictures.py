"""Sample numbers -> images and masks, whole or cropped, read and decoded on the calling thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np

from fastpipe.engine.limits import CONVERTIBLE, most_open_shards
from fastpipe.engine.tasks import Pixels, Slot, Tasks, field_tasks, tasks_of
from fastpipe.errors import DatasetError
from fastpipe.format.index import Index
from fastpipe.format.pixel_form import PixelForm
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.draws import Int64s

if TYPE_CHECKING:  # most programs read folders
    from fastpipe.store.remote.reader import Reader

_STORED = ["offset", "size", "xxh3_64"]
_MOST_PIXELS = 65535 * 65535  # that an index can hold; what pack was let take must load


class Pictures:
    """One process's open files of a dataset, and pictures of this form: RGB of 8 bits. No threads, no lock to fork."""

    def __init__(self, index: Index, form: PixelForm | None = None) -> None:
        self._index, self.form = index, form or PixelForm()
        index.check_same()
        self._reader = cast("Reader | None", index.reader())
        self._shard = lru_cache(most_open_shards(index, 1))(partial(_opened, index, self._reader))
        if self._reader is not None:
            self._reader.begin(self)

    def fetched(self, samples: Int64s) -> AbstractContextManager[object]:
        """Has samples of a remote dataset fetched, all at a time, and keeps them inside the `with`; or DatasetError."""
        if self._reader is None:
            return nullcontext()
        return self._reader.brought(samples)

    def decode(self, sample: int, record: np.void) -> Pixels:
        """The whole picture of a sample, (height, width, channels), in memory of its own; or SampleError."""
        (channels, bits), out = self.form, self._empty(record["height"], record["width"])
        decoded = partial(_engine.decode, max_pixels=_MOST_PIXELS, channels=channels, bits=bits)
        return self._made(sample, record, record, _engine.Shard.read_picture, out, decoded)

    def rows(self, plan: BatchPlan, size: tuple[int, int], *, exact: bool) -> Pixels:
        """The rows of a plan of one sample, (rows, height, width, channels), made of what they need; or SampleError."""
        sample, tasks = int(plan.samples[0]), tasks_of(self._index, plan.by_row())
        slot = Slot(self._empty(plan.rows_per_sample, *size), exact, plan.crops.rendering)

        def decoded(data: bytes) -> Pixels:
            tasks["size"] = len(data)
            for _, reason in _engine.fill_rows([data] * len(tasks), tasks, slot.images, exact, **slot.keywords):
                raise self._index.sample_error(sample, reason)
            return slot.images

        return self._made(sample, tasks[0], tasks[0], partial(_fill, tasks, slot), slot.images, decoded)

    def field_row(self, plan: BatchPlan, size: tuple[int, int], record: np.void, *, exact: bool, mask: bool) -> Pixels:
        """As `rows`, of a mask, (height, width) of ids, or a second picture, of this record."""
        sample, by_row = int(plan.samples[0]), plan.by_row()
        shape, tasks = (len(by_row), *size), field_tasks(by_row, np.array([record] * len(by_row)))
        slot = Slot(_ids(record, *shape) if mask else self._empty(*shape), exact, plan.crops.rendering, mask)
        out = self._made(sample, tasks[0], tasks[0], partial(_fill, tasks, slot), slot.images)
        row: Pixels = out[0] if len(out) == 1 else out
        return row

    def whole_field(self, sample: int, record: np.void, field: np.void, *, mask: bool) -> Pixels:
        """The whole mask of a sample, (height, width) of ids, uint8, or int32 of 16 bits; or its second picture, as
        `decode`. `field` is its own record.
        """
        shape = record["height"], record["width"]
        if mask:
            return self._made(sample, record, field, _engine.Shard.read_mask, _ids(field, *shape))
        return self._made(sample, record, field, _engine.Shard.read_picture, self._empty(*shape))

    def _empty(self, *shape: int) -> Pixels:
        return np.empty((*shape, self.form.channels), dtype=self.form.dtype)

    def _made(
        self,
        sample: int,
        record: np.void,
        stored: np.void,
        read: Callable[[_engine.Shard, int, int, Pixels], None],
        out: Pixels,
        decoded: Callable[[bytes], Pixels] | None = None,
    ) -> Pixels:
        """`out`, filled of the stored bytes; of a picture that packing would convert first, what `decoded` makes."""
        index = self._index

        def filled() -> Pixels:
            with self._found(sample, record, stored) as found:
                read(*found, out)
            return out

        try:
            if decoded is None or index.convert is None:
                return filled()
            if index.odd is None or not index.odd[sample]:
                try:
                    return filled()
                except _engine.StatusError as problem:
                    if problem.code not in CONVERTIBLE:  # packing takes some that the engine does not
                        raise
            return decoded(_converted(index, sample))
        except ValueError as problem:
            raise index.sample_error(sample, problem) from None

    @contextmanager
    def _found(self, sample: int, record: np.void, stored: np.void) -> Iterator[tuple[_engine.Shard, int, int]]:
        """The file that has the stored bytes of a sample, where in it they begin, and how many; checked if fetched."""
        shard, (offset, size, expected) = int(record["shard"]), stored[_STORED].item()
        if self._reader is None:
            yield self._shard(shard), offset, size
            return
        one = np.array([sample], dtype=np.int64)
        with self._reader.brought(one):
            try:
                self._reader.check(sample, shard, offset, size, expected)
            except DatasetError as problem:
                raise self._index.sample_error(sample, problem) from None
            with self._reader.brought(np.array([sample], dtype=np.int64)) as where:  # elsewhere, if fetched again
                yield self._shard(int(where.shard[0])), offset + int(where.shift[0]), size


def _converted(index: Index, sample: int) -> bytes:
    assert index.convert is not None
    try:
        return index.convert(sample)
    except OSError as problem:
        raise index.sample_error(sample, f"the file cannot be read: {problem.strerror}") from None


def _fill(tasks: Tasks, slot: Slot, file: _engine.Shard, offset: int, _: int, out: Pixels) -> None:
    tasks["offset"] = offset
    file.fill_rows(tasks, out, slot.exact, slot.masks, **slot.keywords)


def _ids(record: np.void, *shape: int) -> Pixels:
    return np.empty(shape, dtype=np.int32 if record["bits"] == 16 else np.uint8)


def _opened(index: Index, reader: Reader | None, number: int) -> _engine.Shard:
    if number < len(index.shards):
        described, times = index.shards[number], index.mtimes_ns
        recorded = () if times is None else (int(times[number]),)
        return _engine.Shard(os.fsencode(described.path), described.size_bytes, *recorded)
    assert reader is not None
    return _engine.Shard(os.fsencode(reader.ring.path), reader.ring.size_bytes)


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height of a JPEG, KEY.fpc or PNG in pixels, from its header; ValueError: it has none."""
    return _engine.picture_size(data, _MOST_PIXELS)


def jpeg_of(coefficients: bytes) -> bytes:
    """The JPEG that a KEY.fpc was made of, byte for byte; ValueError: it is damaged."""
    return _engine.restore_jpeg(coefficients)


def flaw(data: bytes) -> str | None:
    """Why a JPEG, KEY.fpc or PNG cannot be decoded; None if it can. All of it is decoded."""
    try:
        _engine.decode(data, max_pixels=_MOST_PIXELS)
    except ValueError as problem:
        return str(problem)
    return None
