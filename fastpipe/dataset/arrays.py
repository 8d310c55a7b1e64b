"""A field of arrays -> where its values are in the shards, and the memory that they go to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.array_file import array_bytes, describe_shape
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.parts import starts_of
from fastpipe.device.array_tensors import numbers_of
from fastpipe.engine.slots import SlotRing
from fastpipe.errors import ConfigError
from fastpipe.plan.arrays import ArrayBatch, Arrays
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import ColumnReader

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job
    from fastpipe.engine.pictures import Pictures


def fit_arrays(request: Arrays, field: Field) -> Arrays:
    """The options of a field of arrays, with the form that they come in.

    Raises:
        ConfigError: arrays of these shapes cannot come so.
    """
    is_one_shape = None not in field.shape
    if request.form == "auto":
        return replace(request, form="tensor" if is_one_shape else "list")
    is_first_axis_alone = len(field.shape) > 0 and None not in field.shape[1:]
    can_come = {
        "tensor": is_one_shape,
        "list": True,
        "flat": is_first_axis_alone,
        "pad": is_first_axis_alone,
    }
    if not can_come[request.form]:
        raise ConfigError(
            f"fields: {request!r}: the arrays have the shape {describe_shape(field.shape)}. "
            '"tensor" needs one shape, "flat" and "pad" need arrays in which only the first length '
            'differs. Pass form="list"'
        )
    return request


class ArrayReader:
    """Reads the arrays of a field, for batches and of single samples.

    Args:
        field: of the arrays.
        request: the form in which they come; see `fit_arrays`.
        column: their records; see ArrayRecords.
    """

    def __init__(self, field: Field, request: Arrays, column: ColumnReader) -> None:
        self._field = field
        self._form = request.form
        self._column = column

    def begin(
        self, engine: Engine, plan: BatchPlan, ring: SlotRing
    ) -> tuple[ArrayBatch, Job | FetchedJob | None]:
        """Lets the engine copy the arrays of a batch into a slot of the ring.

        The job is None if the arrays have no numbers.
        """
        records = self._column.take(plan.ids)
        # (n, axes)
        shapes = records["shape"].astype(np.int64)
        value_counts = shapes.prod(axis=1)
        arrays, first_rows = self._lay_out(shapes, value_counts, ring)
        if not arrays.slot.size:
            return arrays, None
        value_bytes = value_counts * self._bytes_of_one_number()
        header_bytes = records["size"] - value_bytes
        job = engine.submit_arrays(plan, records, header_bytes, arrays.slot, first_rows)
        return arrays, job

    def _lay_out(
        self, shapes: Int64s, value_counts: Int64s, ring: SlotRing
    ) -> tuple[ArrayBatch, Int64s]:
        """The memory for some arrays, and (n,) the first row of each in it.

        Args:
            shapes: (n, axes).
            value_counts: (n,) how many numbers each array has.
            ring: lends the memory.
        """
        dtype = self._field.dtype
        count = len(shapes)
        if self._form == "tensor":
            # A row of the memory is an array.
            shape = _fixed_shape(self._field.shape)
            slot = ring.take((count, self._bytes_of(shape)))
            batch_shape = (count, *shape)
            batch = ArrayBatch(slot, dtype, batch_shape)
            return batch, np.arange(count)

        if self._form == "list":
            # A row is a number.
            total = int(value_counts.sum())
            slot = ring.take((total, self._bytes_of_one_number()))
            all_shapes = [tuple(lengths) for lengths in shapes.tolist()]
            batch = ArrayBatch(slot, dtype, shapes=all_shapes)
            first_rows = np.cumsum(value_counts) - value_counts
            return batch, first_rows

        # A row is an entry of the first axis. Only the length of this axis differs.
        entry_shape = _fixed_shape(self._field.shape[1:])
        entry_bytes = self._bytes_of(entry_shape)
        lengths = shapes[:, 0]
        if self._form == "flat":
            total = int(lengths.sum())
            slot = ring.take((total, entry_bytes))
            offsets = starts_of(lengths)
            batch_shape = (total, *entry_shape)
            batch = ArrayBatch(slot, dtype, batch_shape, more={"_offsets": offsets})
            return batch, offsets[:-1]

        # "pad": zeros behind each array, up to the length of the longest one. They are written
        # here, because the memory has the numbers of an earlier batch.
        most = int(lengths.max(initial=0))
        slot = ring.take((count * most, entry_bytes))
        first_rows = np.arange(count) * most
        padding_starts = (first_rows + lengths).tolist()
        padding_ends = (first_rows + most).tolist()
        for start, end in zip(padding_starts, padding_ends, strict=True):
            slot[start:end] = 0
        batch_shape = (count, most, *entry_shape)
        batch = ArrayBatch(slot, dtype, batch_shape, more={"_counts": lengths})
        return batch, first_rows

    def _bytes_of(self, shape: tuple[int, ...]) -> int:
        return array_bytes(self._field.dtype, shape)

    def _bytes_of_one_number(self) -> int:
        return self._bytes_of(())

    def records_of(self, ids: NDArray[np.int64]) -> NDArray[np.void]:
        """(n,) the records of samples, for `read`. DatasetError: one is impossible."""
        records: NDArray[np.void] = self._column.take(ids)
        return records

    def read(
        self, pictures: Pictures, sample: int, record: np.void, array_record: np.void
    ) -> torch.Tensor:
        """The array of a sample.

        Args:
            pictures: reads its shard.
            sample: its number.
            record: of the index.
            array_record: of the array.
        """
        shape: tuple[int, ...] = tuple(array_record["shape"].tolist())
        out = np.empty(self._bytes_of(shape), np.uint8)
        if out.size:
            pictures.read_array(sample, record, array_record, out)
        numbers = numbers_of(torch.from_numpy(out), self._field.dtype)
        return numbers.view(shape)


def _fixed_shape(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """A field's shape of which no length differs between its arrays."""
    return tuple(length for length in shape if length is not None)
