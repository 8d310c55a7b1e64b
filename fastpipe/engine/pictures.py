"""Sample numbers -> images and masks, whole or cropped, read and decoded on the calling thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastpipe.engine.limits import CONVERTIBLE, most_open_shards
from fastpipe.engine.tasks import field_tasks, keywords_of, tasks_of
from fastpipe.errors import DatasetError
from fastpipe.format.index import Index
from fastpipe.format.pixel_form import PixelForm
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crops import Rendering

if TYPE_CHECKING:  # most programs read folders
    from fastpipe.store.remote.reader import Reader

_PLACE = ["shard", "offset", "size", "width", "height", "xxh3_64"]
_MOST_PIXELS = 65535 * 65535  # that an index can hold; what pack was let take must load


class Pictures:
    """One process's open files of a dataset, whose pictures are converted to `form`; None: RGB of 8 bits. It has no
    threads, and no lock that a fork could leave held. DatasetError: the index cannot be opened, or another dataset is
    there by now.
    """

    def __init__(self, index: Index, form: PixelForm | None = None) -> None:
        self._index, self.form = index, form or PixelForm()
        index.check_same()
        self._reader = cast("Reader | None", index.reader())
        self._shard = lru_cache(most_open_shards(index, 1))(partial(_opened, index, self._reader))
        if self._reader is not None:
            self._reader.begin(self)

    def fetched(self, samples: NDArray[np.int64]) -> AbstractContextManager[object]:
        """Has samples of a remote dataset fetched, all at a time, and keeps them here inside the `with`; DatasetError:
        they cannot be fetched.
        """
        if self._reader is None:
            return nullcontext()
        return self._reader.brought(samples)

    def decode(self, sample: int, record: np.void) -> NDArray[Any]:
        """The whole picture of a sample, (height, width, channels) uint8 or uint16, in memory of its own; SampleError:
        it cannot be read or decoded.
        """
        index = self._index
        if index.convert is not None and index.odd is not None and index.odd[sample]:
            return self._converted(sample)
        shard, offset, size, width, height, expected = record[_PLACE].item()
        picture = self._empty(height, width)
        try:
            with self._found(sample, shard, offset, size, expected) as (file, place):
                file.read_picture(place, size, picture)
        except _engine.StatusError as problem:
            if index.convert is not None and problem.code in CONVERTIBLE:
                return self._converted(sample)  # packing takes some that the engine does not
            raise index.sample_error(sample, problem) from None
        return picture

    def _empty(self, *shape: int) -> NDArray[Any]:
        return np.empty((*shape, self.form.channels), dtype=self.form.dtype)

    def rows(self, plan: BatchPlan, size: tuple[int, int], *, exact: bool) -> NDArray[Any]:
        """The rows of a plan of one sample, (rows, height, width, channels), of which only what they need is decoded;
        SampleError: it cannot be read or decoded.
        """
        index, sample = self._index, int(plan.samples[0])
        out = self._empty(plan.rows_per_sample, *size)
        tasks = tasks_of(index, plan.by_row())
        if index.convert is None or index.odd is None or not index.odd[sample]:
            try:
                self._fill(sample, tasks, out, exact, plan.crops.rendering)
                return out
            except _engine.StatusError as problem:
                if index.convert is None or problem.code not in CONVERTIBLE:
                    raise index.sample_error(sample, problem) from None
        data = self._converted_bytes(sample)
        tasks["size"] = len(data)
        keywords = keywords_of(plan.crops.rendering, out)
        for _, reason in _engine.fill_rows([data] * len(out), tasks, out, exact, **keywords):
            raise index.sample_error(sample, reason)
        return out

    def field_row(
        self, plan: BatchPlan, size: tuple[int, int], record: np.void, *, exact: bool, mask: bool
    ) -> NDArray[Any]:
        """The row of a sample's mask or second picture, which it has, cropped as the picture is: (height, width) of
        ids, as `mask`, or (height, width, channels), as `rows`. Of several rows, (k, ...). `record`: its own.
        """
        sample, by_row = int(plan.samples[0]), plan.by_row()
        wide, shape = mask and record["bits"] == 16, (len(by_row), *size)
        out: NDArray[Any] = np.empty(shape, dtype=np.int32 if wide else np.uint8) if mask else self._empty(*shape)
        try:
            self._fill(sample, field_tasks(by_row, np.array([record] * len(by_row))), out, exact, plan.crops.rendering)
        except ValueError as problem:
            raise self._index.sample_error(sample, problem) from None
        row: NDArray[Any] = out[0] if len(out) == 1 else out
        return row

    def _fill(self, sample: int, tasks: NDArray[np.void], out: NDArray[Any], exact: bool, rendering: Rendering) -> None:
        one = tasks[0]
        place = (int(one["shard"]), int(one["offset"]), int(one["size"]), int(one["xxh3_64"]))
        with self._found(sample, *place) as (file, offset):
            tasks["offset"] = offset
            file.fill_rows(tasks, out, exact, out.ndim == 3, **keywords_of(rendering, out))

    def _converted_bytes(self, sample: int) -> bytes:
        assert self._index.convert is not None
        try:
            return self._index.convert(sample)
        except (OSError, ValueError) as problem:
            reason = f"the file cannot be read: {problem.strerror}" if isinstance(problem, OSError) else problem
            raise self._index.sample_error(sample, reason) from None

    def _converted(self, sample: int) -> NDArray[Any]:
        try:
            channels, bits = self.form
            return _engine.decode(self._converted_bytes(sample), max_pixels=_MOST_PIXELS, channels=channels, bits=bits)
        except ValueError as problem:
            raise self._index.sample_error(sample, problem) from None

    def mask(self, sample: int, record: np.void, field: np.void) -> NDArray[np.uint8] | NDArray[np.int32]:
        """The whole mask of a sample, in memory of its own: (height, width) of ids, uint8, or int32 of 16 bits.
        `record` is that of the index, whose size the mask has, `field` its own; SampleError: it cannot be read.
        """
        ids = np.empty((record["height"], record["width"]), dtype=np.int32 if field["bits"] == 16 else np.uint8)
        return self._read(sample, record, field, _engine.Shard.read_mask, ids)

    def second_picture(self, sample: int, record: np.void, field: np.void) -> NDArray[Any]:
        """The whole second picture of a sample: as `decode`, and as `mask` with a field of kind "image"."""
        out = self._empty(record["height"], record["width"])
        return self._read(sample, record, field, _engine.Shard.read_picture, out)

    def _read(
        self,
        sample: int,
        record: np.void,
        field: np.void,
        read: Callable[[_engine.Shard, int, int, NDArray[Any]], None],
        out: NDArray[Any],
    ) -> NDArray[Any]:
        try:
            size = int(field["size"])
            with self._found(sample, int(record["shard"]), int(field["offset"]), size, int(field["xxh3_64"])) as found:
                read(*found, size, out)
        except ValueError as problem:
            raise self._index.sample_error(sample, problem) from None
        return out

    @contextmanager
    def _found(
        self, sample: int, shard: int, offset: int, size: int, expected: int
    ) -> Iterator[tuple[_engine.Shard, int]]:
        """The file that has a range of a sample's bytes, and where in it they begin; checked if they were fetched."""
        if self._reader is None:
            yield self._shard(shard), offset
            return
        one = np.array([sample], dtype=np.int64)
        with self._reader.brought(one):
            try:
                self._reader.check(sample, shard, offset, size, expected)
            except DatasetError as problem:
                raise self._index.sample_error(sample, problem) from None
            with self._reader.brought(one) as where:  # elsewhere, if fetched again
                yield self._shard(int(where.shard[0])), offset + int(where.shift[0])


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
