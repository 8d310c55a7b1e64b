"""The plan of a batch -> the engine's tasks, one a row, and the slots that they fill."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s, Records
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan, rows_of
from fastpipe.plan.crops import Rendering
from fastpipe.plan.maps import MapForm
from fastpipe.plan.patches import PatchLayout

_ROUNDING = (
    1e-7  # of a pixel: a product by a scale is no whole number where it should be one
)
# Images, (..., height, width, channels) of uint8 or uint16; masks, (..., height, width); or the bytes
# of arrays, (rows, bytes) of uint8.
Pixels = NDArray[Any]
Tasks = Records  # (n,), or (n, rows) where samples have several rows, of TASK_DTYPE


class Slot(NamedTuple):
    """The memory that the rows of one view go to, and how they are made."""

    images: Pixels  # N rows, C-contiguous
    exact: bool  # never decode at reduced size
    rendering: Rendering

    map_form: MapForm | None = None  # None: the rows are no maps
    layout: PatchLayout | None = None  # None: the rows are not cut into patches

    @property
    def keywords(self) -> dict[str, Any]:
        """The rendering as the keyword arguments of the native functions."""
        if self.map_form is not None:
            return {**asdict(self.rendering), **self.map_form.keywords()}
        form = PixelForm()
        if self.images.ndim == 4:
            form = PixelForm(
                channels=self.images.shape[3], bits=self.images.itemsize * 8
            )
        keywords = self.rendering.keywords(form)
        if self.layout is not None:
            keywords["patch_size"] = self.layout.patch_size
            keywords["merge"] = self.layout.merge
        return keywords


def tasks_of(index: Index, plan: BatchPlan, places: Int64s | None = None) -> Tasks:
    """The tasks for the plan's n images: (n,), or (n, rows) where they have several views or crops.

    The rows of an image stand together, so that it is read once and decoded once for all of them.

    `places`, (n,), are the places in the batch that the samples fill; None: in order.
    """
    tasks_by_view = []
    for view in plan.views:
        by_row = view.by_row()
        rows = None if places is None else rows_of(places, view.rows_per_sample)
        tasks = field_tasks(by_row, by_row.records, rows)
        tasks_by_view.append(tasks.reshape(len(view), -1))
    tasks = np.concatenate(tasks_by_view, axis=1)
    # Transposed, (rows, n), so that the flags of the n samples go to each of their rows.
    tasks.T["coefficients"] = index.in_coefficients(plan.records["shard"])
    return tasks[:, 0] if tasks.shape[1] == 1 else tasks


def field_tasks(plan: BatchPlan, records: Records, rows: Int64s | None = None) -> Tasks:
    """The same for masks or second pictures, whose `records` are (n,) of FIELD_IMAGE_DTYPE."""
    tasks = np.zeros(len(plan), dtype=_engine.TASK_DTYPE)
    for name in ("shard", "width", "height"):
        tasks[name] = plan.records[name]
    for name in ("offset", "size", "xxh3_64"):
        tasks[name] = records[name]

    tasks["box"] = plan.crops.boxes
    tasks["bounds"] = plan.crops.bounds
    tasks["flip"] = plan.flips
    row_sizes = plan.crops.row_sizes
    if row_sizes is not None:
        tasks["out_row"] = plan.crops.row_starts()
        tasks["out_height"] = row_sizes[:, 0]
        tasks["out_width"] = row_sizes[:, 1]
    elif rows is None:
        tasks["out_row"] = np.arange(len(plan))
    else:
        tasks["out_row"] = rows
    return tasks


def map_tasks(
    plan: BatchPlan,
    records: NDArray[np.void],
    header_bytes: Int64s,
    rows: Int64s | None = None,
) -> Tasks:
    """The tasks for the maps of a plan's n images, which have the images' shape and any scale.

    Args:
        plan: of the rows.
        records: (n,) of array_record_dtype.
        header_bytes: (n,) of the maps' files, before the numbers.
        rows: (n,) the rows of the output that they fill; None: in order.
    """
    tasks = field_tasks(plan, records, rows)
    # (n, 2) each: width and height.
    map_sizes = records["shape"][:, 1::-1].astype(np.int64)
    sides = [plan.records["width"], plan.records["height"]]
    image_sizes = np.stack(sides, axis=1)
    scales = map_sizes / image_sizes
    tasks["width"] = map_sizes[:, 0]
    tasks["height"] = map_sizes[:, 1]
    tasks["skip"] = header_bytes
    tasks["box"] *= np.tile(scales, 2)
    # All pixels of the map that a bound touches; of a map of the image's size these are the same.
    bounds = tasks["bounds"].astype(np.int64)
    left_top = bounds[:, :2]
    right_bottom = left_top + bounds[:, 2:]
    starts = np.floor(left_top * scales + _ROUNDING)
    ends = np.ceil(right_bottom * scales - _ROUNDING)
    tasks["bounds"][:, :2] = starts
    tasks["bounds"][:, 2:] = ends - starts
    return tasks


def array_tasks(
    plan: BatchPlan,
    records: NDArray[np.void],
    header_bytes: Int64s,
    rows: Int64s,
) -> Tasks:
    """The tasks for the arrays of a plan's n samples, which are copied as they are stored.

    Args:
        plan: of the samples.
        records: (n,) of array_record_dtype.
        header_bytes: (n,) of the arrays' files, before the numbers.
        rows: (n,) the first row of the output that each array fills.
    """
    tasks = np.zeros(len(plan), dtype=_engine.TASK_DTYPE)
    tasks["shard"] = plan.records["shard"]
    for name in ("offset", "size", "xxh3_64"):
        tasks[name] = records[name]
    tasks["skip"] = header_bytes
    tasks["out_row"] = rows
    return tasks
