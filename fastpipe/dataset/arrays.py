"""A field of arrays -> where its values are in the shards, and the memory that they go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.dataset.format.array_file import array_bytes
from fastpipe.dataset.format.fields import Field
from fastpipe.device.array_tensors import numbers_of
from fastpipe.engine.slots import SlotRing
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import ColumnReader
from fastpipe.plan.host_batch import ArrayBatch

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job
    from fastpipe.engine.pictures import Pictures


class ArrayReader:
    """Reads the arrays of a field, for batches and of single samples.

    Args:
        field: of the arrays.
        column: its records; see ArrayRecords.
    """

    def __init__(self, field: Field, column: ColumnReader) -> None:
        self._field = field
        self._column = column
        self._item_bytes = array_bytes(field.dtype, ())

    def begin(
        self, engine: Engine, plan: BatchPlan, ring: SlotRing
    ) -> tuple[ArrayBatch, Job | FetchedJob | None]:
        """Lets the engine copy the arrays of a batch into a slot of the ring.

        The job is None if the arrays have no numbers.
        """
        records = self._column.take(plan.ids)
        # (n,) the numbers of each array.
        counts = records["shape"].astype(np.int64).prod(axis=1)
        value_bytes = counts * self._item_bytes
        shape = self._field.shape
        if None not in shape:
            # A row is an array.
            row_bytes = array_bytes(self._field.dtype, shape)  # type: ignore[arg-type]
            slot = ring.take((len(plan), row_bytes))
            first_rows = np.arange(len(plan))
            arrays = ArrayBatch(slot, self._field.dtype, shape=shape)  # type: ignore[arg-type]
        else:
            # A row is a number, and the arrays follow one another.
            slot = ring.take((int(counts.sum()), self._item_bytes))
            first_rows = np.cumsum(counts) - counts
            shapes = [tuple(lengths) for lengths in records["shape"].tolist()]
            arrays = ArrayBatch(slot, self._field.dtype, shapes=shapes)
        if not slot.size:
            return arrays, None
        header_bytes = records["size"] - value_bytes
        job = engine.submit_arrays(plan, records, header_bytes, slot, first_rows)
        return arrays, job

    def records_of(self, ids: NDArray[np.int64]) -> NDArray[np.void]:
        """(n,) the records of samples, for `read`. DatasetError: one is impossible."""
        records: NDArray[np.void] = self._column.take(ids)
        return records

    def read(
        self, pictures: Pictures, sample: int, record: np.void, field_record: np.void
    ) -> torch.Tensor:
        """The array of a sample.

        Args:
            pictures: reads its shard.
            sample: its number.
            record: of the index.
            field_record: of the array.
        """
        shape: tuple[int, ...] = tuple(field_record["shape"].tolist())
        out = np.empty(array_bytes(self._field.dtype, shape), np.uint8)
        if out.size:
            pictures.read_array(sample, record, field_record, out)
        return numbers_of(torch.from_numpy(out), self._field.dtype).view(shape)
