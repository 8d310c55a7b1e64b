"""A field of maps -> where they are in the shards, and the rows that they become."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.array_file import describe_shape, numpy_dtype
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.format.map_file import channels_of, is_float, may_be_directions
from fastpipe.engine.tasks import Slot, map_tasks
from fastpipe.errors import ConfigError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import ColumnReader
from fastpipe.plan.maps import MapForm, Maps

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job
    from fastpipe.engine.pictures import Pictures


def fit_maps(request: Maps, field: Field) -> Maps:
    """The options of a field of maps, for its dtype and shape.

    `flip_signs` stays None where only the user can know it.

    Raises:
        ConfigError: the options do not fit these maps.
    """
    whole_numbers = not is_float(field.dtype)
    interpolation = request.interpolation
    if interpolation == "auto":
        interpolation = "nearest" if whole_numbers else "bilinear"
    flip_signs = request.flip_signs
    if flip_signs is None and not may_be_directions(field.dtype, field.shape):
        flip_signs = ()
    channels = channels_of(field.shape)
    for channel in flip_signs or ():
        if whole_numbers or channel >= channels:
            raise ConfigError(
                f"fields: {request!r}: the maps are {field.dtype} of shape "
                f"{describe_shape(field.shape)}; flip_signs= has channels of floats, from 0 to "
                f"{channels - 1}"
            )
    return replace(request, interpolation=interpolation, flip_signs=flip_signs)


class MapReader:
    """Reads the maps of a field, for batches and of single samples.

    Args:
        field: of the maps.
        request: their options; see `fit_maps`.
        column: their records; see ArrayRecords.
    """

    def __init__(self, field: Field, request: Maps, column: ColumnReader) -> None:
        flip_signs = tuple(request.flip_signs or ())
        channels = channels_of(field.shape)
        self.form = MapForm(
            field.dtype, channels, request.interpolation, request.invalid, flip_signs
        )
        self.has_channels = len(field.shape) == 3
        self._column = column

    def slot(self, view: BatchPlan) -> NDArray[Any]:
        """Memory for the maps of a view: (rows, height, width), or (rows, height, width, C)."""
        shape: tuple[int, ...] = view.crops.slot_shape()
        if self.has_channels:
            shape = (*shape, self.form.channels)
        return np.empty(shape, numpy_dtype(self.form.dtype))

    def begin(
        self,
        engine: Engine,
        view: BatchPlan,
        slot: NDArray[Any],
        rows: Int64s | None = None,
    ) -> Job | FetchedJob:
        """Lets the engine make the maps of a view.

        Args:
            engine: of the loader.
            view: the plan of its rows.
            slot: of `slot`.
            rows: (n,) the rows that are filled; None: in order.
        """
        records = self.records_of(view.ids)
        out = self._with_channels(slot)
        header_bytes = self._header_bytes(records)
        return engine.submit_maps(view, records, header_bytes, out, self.form, rows)

    def records_of(self, ids: Int64s) -> NDArray[np.void]:
        """(n,) the records of samples. DatasetError: one is impossible."""
        records: NDArray[np.void] = self._column.take(ids)
        return records

    def read(
        self, pictures: Pictures, sample: int, record: np.void, map_record: np.void
    ) -> NDArray[Any]:
        """The whole map of a sample, as it is stored.

        Args:
            pictures: reads its shard.
            sample: its number.
            record: of the index.
            map_record: of the map.
        """
        shape: tuple[int, ...] = tuple(map_record["shape"].tolist())
        dtype = numpy_dtype(self.form.dtype)
        value_count = int(np.prod(shape))
        out = np.empty(value_count * dtype.itemsize, np.uint8)
        pictures.read_array(sample, record, map_record, out)
        return out.view(dtype).reshape(shape)

    def read_rows(
        self,
        pictures: Pictures,
        plan: BatchPlan,
        size: tuple[int, int],
        map_record: np.void,
    ) -> NDArray[Any]:
        """The rows of the map of a plan of one sample; one row has no axis for rows.

        Args:
            pictures: reads its shard.
            plan: of the sample.
            size: (height, width) of the rows.
            map_record: of the map.
        """
        by_row = plan.by_row()
        row_count = len(by_row)
        records = np.array([map_record] * row_count)
        header_bytes = self._header_bytes(records)
        tasks = map_tasks(by_row, records, header_bytes)
        shape = (row_count, *size, self.form.channels)
        images = np.empty(shape, numpy_dtype(self.form.dtype))
        slot = Slot(images, True, plan.crops.rendering, self.form)
        sample = int(plan.samples[0])
        rows = pictures.fill_slot(sample, tasks, slot)
        if not self.has_channels:
            rows = rows[..., 0]
        return rows[0] if len(rows) == 1 else rows

    def _header_bytes(self, records: NDArray[np.void]) -> Int64s:
        item_bytes = numpy_dtype(self.form.dtype).itemsize
        shapes = records["shape"].astype(np.int64)  # (n, axes)
        value_bytes = shapes.prod(axis=1) * item_bytes
        header_bytes: Int64s = records["size"] - value_bytes
        return header_bytes

    def _with_channels(self, slot: NDArray[Any]) -> NDArray[Any]:
        """The engine takes (rows, height, width, channels)."""
        return slot if self.has_channels else slot[..., None]
