"""Sample numbers -> images and masks, whole or cropped, read and decoded on the calling thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.engine.limits import CONVERTIBLE, most_open_shards
from fastpipe.engine.tasks import Pixels, Slot, Tasks, field_tasks, tasks_of
from fastpipe.errors import DatasetError
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan

if TYPE_CHECKING:  # most programs read packed folders
    from fastpipe.store.remote.reader import Reader

_STORED_FIELDS = ["offset", "size", "xxh3_64"]
# An index can hold images of this size. A user may have allowed `pack` to take them, so they load.
_MAX_PIXELS = 1 << 60

# Reads an image of `size` bytes at `offset` of a file into an array.
_ReadImage = Callable[[_engine.Shard, int, int, Pixels], None]


class Pictures:
    """The open files of a dataset in one process, and how to decode single samples of it.

    Images get the given form; by default RGB of 8 bits. It has no threads, and no lock, which a
    fork could leave locked.
    """

    def __init__(self, index: Index, form: PixelForm | None = None) -> None:
        self._index = index
        self.form = form or PixelForm()
        index.check_same()
        self._reader = cast("Reader | None", index.reader())
        open_shard = partial(_open_shard, index, self._reader)
        self._open_shard = lru_cache(most_open_shards(index, 1))(open_shard)
        if self._reader is not None:
            self._reader.begin(self)

    def fetched(self, samples: Int64s) -> AbstractContextManager[object]:
        """Fetches samples of a remote dataset, all at the same time, and keeps them in the `with`.

        Raises DatasetError if it cannot.
        """
        if self._reader is None:
            return nullcontext()
        return self._reader.brought(samples)

    def decode(self, sample: int, record: np.void) -> Pixels:
        """Decodes the whole image of a sample: (height, width, channels). Raises SampleError."""
        image = self._allocate(record["height"], record["width"])
        decode_bytes = partial(
            _engine.decode,
            max_pixels=_MAX_PIXELS,
            channels=self.form.channels,
            bits=self.form.bits,
        )
        return self._read(
            sample, record, record, _engine.Shard.read_picture, image, decode_bytes
        )

    def rows(self, plan: BatchPlan, size: tuple[int, int], *, exact: bool) -> Pixels:
        """Makes the rows of a plan of one sample: (rows, height, width, channels).

        Decodes only the parts of the image that they need. Raises SampleError.
        """
        sample = int(plan.samples[0])
        tasks = tasks_of(self._index, plan.by_row())
        images = self._allocate(plan.rows_per_sample, *size)
        slot = Slot(images, exact, plan.crops.rendering)

        def decode_bytes(data: bytes) -> Pixels:
            tasks["size"] = len(data)
            data_of_rows = [data] * len(tasks)
            errors = _engine.fill_rows(
                data_of_rows, tasks, slot.images, exact, **slot.keywords
            )
            if errors:
                _, reason = errors[0]
                raise self._index.sample_error(sample, reason)
            return slot.images

        # All rows are of one image, so the first task has its shard and its bytes.
        task = tasks[0]
        fill = partial(_fill_rows, tasks, slot)
        return self._read(sample, task, task, fill, slot.images, decode_bytes)

    def field_row(
        self,
        plan: BatchPlan,
        size: tuple[int, int],
        record: np.void,
        *,
        exact: bool,
        mask: bool,
    ) -> Pixels:
        """Makes the rows of a mask, (height, width) of ids, or of a second picture, as `rows`.

        `record` is the field's. Where the plan has one row, the result has no axis for rows.
        """
        by_row = plan.by_row()
        shape = (len(by_row), *size)
        records = np.array([record] * len(by_row))
        tasks = field_tasks(by_row, records)
        if mask:
            images = _allocate_mask(record, *shape)
        else:
            images = self._allocate(*shape)
        slot = Slot(images, exact, plan.crops.rendering)

        rows = self.fill_slot(int(plan.samples[0]), tasks, slot)
        return cast(Pixels, rows[0]) if len(rows) == 1 else rows

    def fill_slot(self, sample: int, tasks: Tasks, slot: Slot) -> Pixels:
        """Makes the rows of a field of one sample, by its tasks. Raises SampleError."""
        task = tasks[0]
        fill = partial(_fill_rows, tasks, slot)
        return self._read(sample, task, task, fill, slot.images)

    def whole_field(
        self, sample: int, record: np.void, field: np.void, *, mask: bool
    ) -> Pixels:
        """Reads the whole mask or second picture of a sample; `field` is its own record.

        A mask is (height, width) of ids, uint8, or int32 where it is stored in 16 bits.
        """
        shape = (record["height"], record["width"])
        if mask:
            out = _allocate_mask(field, *shape)
            return self._read(sample, record, field, _engine.Shard.read_mask, out)
        return self._read(
            sample, record, field, _engine.Shard.read_picture, self._allocate(*shape)
        )

    def read_array(
        self, sample: int, record: np.void, field: np.void, out: Pixels
    ) -> None:
        """Reads an array into `out`, (bytes,); `field` is its own record. Raises SampleError."""

        def read_bytes(
            file: _engine.Shard, offset: int, size: int, out: Pixels
        ) -> None:
            # The numbers are the end of the file, behind its header.
            file.read_bytes(offset + size - out.nbytes, out)

        self._read(sample, record, field, read_bytes, out)

    def _allocate(self, *shape: int) -> Pixels:
        return np.empty((*shape, self.form.channels), dtype=self.form.dtype)

    def _read(
        self,
        sample: int,
        record: np.void,
        stored: np.void,
        read_image: _ReadImage,
        out: Pixels,
        decode_bytes: Callable[[bytes], Pixels] | None = None,
    ) -> Pixels:
        """Returns the stored image, in `out` if the engine can read it as it is.

        Args:
            sample: its number.
            record: has the shard.
            stored: has the offset, size and hash of the image in it.
            read_image: reads the stored image.
            out: gets it.
            decode_bytes: decodes an image of an unpacked source that the engine cannot read as it
                is, after its conversion, and returns it. None: `out` is of a field, which needs no
                conversion.

        Raises:
            SampleError: the image cannot be read or decoded.
        """
        index = self._index
        try:
            if decode_bytes is None or index.convert is None:
                return self._read_stored(sample, record, stored, read_image, out)
            needs_conversion = index.needs_conversion is not None and bool(
                index.needs_conversion[sample]
            )
            if not needs_conversion:
                # It is not known in advance of every file whether the engine can decode it.
                try:
                    return self._read_stored(sample, record, stored, read_image, out)
                except _engine.StatusError as problem:
                    if problem.code not in CONVERTIBLE:
                        raise
            return decode_bytes(_convert(index, sample))
        except ValueError as problem:  # also the engine's StatusError
            raise index.sample_error(sample, problem) from None

    def _read_stored(
        self,
        sample: int,
        record: np.void,
        stored: np.void,
        read_image: _ReadImage,
        out: Pixels,
    ) -> Pixels:
        with self._stored_bytes(sample, record, stored) as (file, offset, size):
            read_image(file, offset, size, out)
        return out

    @contextmanager
    def _stored_bytes(
        self, sample: int, record: np.void, stored: np.void
    ) -> Iterator[tuple[_engine.Shard, int, int]]:
        """The file that has the stored bytes of a sample, their offset in it and their size.

        The hash of bytes that were fetched is checked.
        """
        shard = int(record["shard"])
        offset, size, expected_hash = stored[_STORED_FIELDS].item()
        samples = np.array([sample], dtype=np.int64)
        # Of several datasets, some may be on this machine.
        if self._reader is None or not self._reader.brings(samples)[0]:
            yield self._open_shard(shard), offset, size
            return

        with self._reader.brought(samples):
            try:
                self._reader.check(sample, shard, offset, size, expected_hash)
            except DatasetError as problem:
                raise self._index.sample_error(sample, problem) from None
            # Asked again, because `check` may have fetched the sample again, to another place.
            with self._reader.brought(samples) as where:
                yield (
                    self._open_shard(int(where.shard[0])),
                    offset + int(where.shift[0]),
                    size,
                )


def _convert(index: Index, sample: int) -> bytes:
    assert index.convert is not None
    try:
        return index.convert(sample)
    except OSError as problem:
        reason = f"the file cannot be read: {problem.strerror}"
        raise index.sample_error(sample, reason) from None


def _fill_rows(
    tasks: Tasks, slot: Slot, file: _engine.Shard, offset: int, size: int, out: Pixels
) -> None:
    """A _ReadImage for rows; the tasks know the size."""
    tasks["offset"] = offset
    file.fill_rows(tasks, out, slot.exact, **slot.keywords)


def _allocate_mask(record: np.void, *shape: int) -> Pixels:
    dtype = np.int32 if record["bits"] == 16 else np.uint8
    return np.empty(shape, dtype=dtype)


def _open_shard(index: Index, reader: Reader | None, number: int) -> _engine.Shard:
    """Opens a shard by its number. The number behind the last one is the reader's ring."""
    if number >= len(index.shards):
        assert reader is not None
        ring = reader.ring
        path = os.fsencode(ring.path)
        return _engine.Shard(path, ring.size_bytes)
    shard = index.shards[number]
    path = os.fsencode(shard.path)
    if index.mtimes_ns is None:
        return _engine.Shard(path, shard.size_bytes)
    mtime_ns = int(index.mtimes_ns[number])
    return _engine.Shard(path, shard.size_bytes, mtime_ns)


def size_of(data: bytes) -> tuple[int, int]:
    """Reads width and height in pixels from a stored picture; ValueError: it has none."""
    return _engine.picture_size(data, _MAX_PIXELS)


def jpeg_of(coefficients: bytes) -> bytes:
    """Restores the JPEG that a KEY.fpc was made of, byte for byte; ValueError: it is damaged."""
    return _engine.restore_jpeg(coefficients)


def flaw(data: bytes) -> str | None:
    """Decodes a stored picture; returns why it cannot be decoded, or None if it can."""
    try:
        _engine.check_picture(data, max_pixels=_MAX_PIXELS)
    except ValueError as problem:
        return str(problem)
    return None
