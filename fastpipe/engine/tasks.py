"""The plan of a batch -> the engine's tasks, one a row, and the slots that they fill."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.format.pixel_form import PixelForm
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crops import Rendering
from fastpipe.plan.draws import Int64s

Pixels = NDArray[Any]  # uint8 or uint16 pictures, (..., height, width, channels); masks, (..., height, width)
Tasks = NDArray[np.void]  # of TASK_DTYPE, (n,) or (n, views)


class Slot(NamedTuple):
    """Where the rows of one view go, and how they are made."""

    images: Pixels  # of N rows, C-contiguous
    exact: bool  # never decode at reduced size
    rendering: Rendering
    masks: bool = False

    @property
    def keywords(self) -> dict[str, Any]:
        images = self.images
        form = PixelForm(images.shape[3], images.itemsize * 8) if images.ndim == 4 else PixelForm()
        return self.rendering.keywords(form)


def tasks_of(index: Index, plan: BatchPlan, rows: Int64s | None = None) -> Tasks:
    """The tasks of the plan's n pictures. `rows`, (n,), says which row of the output each fills; None: in order."""
    made = [field_tasks(view, view.records, rows) for view in plan.views]
    tasks = made[0] if len(made) == 1 else np.stack(made, axis=1)
    tasks.T["coefficients"] = index.in_coefficients(plan.records["shard"])
    return tasks


def field_tasks(plan: BatchPlan, records: NDArray[np.void], rows: Int64s | None = None) -> Tasks:
    """The same of masks or second pictures; `records`, (n,) of FIELD_IMAGE_DTYPE, are of the plan's samples."""
    tasks = np.zeros(len(plan), dtype=_engine.TASK_DTYPE)
    for name in ("shard", "width", "height"):
        tasks[name] = plan.records[name]
    for name in ("offset", "size", "xxh3_64"):
        tasks[name] = records[name]
    tasks["box"] = plan.crops.boxes
    tasks["bounds"] = plan.crops.bounds
    tasks["flip"] = plan.flips
    tasks["out_row"] = np.arange(len(plan)) if rows is None else rows
    return tasks
