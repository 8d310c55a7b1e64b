"""The plan of a batch -> the engine's tasks, one a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.fields import PNG
from fastpipe.format.index import Index
from fastpipe.native import _engine
from fastpipe.plan.batch import BatchPlan


def tasks_of(index: Index, plan: BatchPlan, rows: NDArray[np.int64] | None = None) -> NDArray[np.void]:
    """The tasks of the plan's pictures.

    Args:
        index: of the dataset.
        plan: of n rows.
        rows: (n,) which row of the output each fills; None: the first n in order.

    Returns:
        (n,) of TASK_DTYPE.
    """
    tasks = _tasks(plan, rows)
    tasks["coefficients"] = index.in_coefficients(plan.records["shard"])
    return tasks


def field_tasks(plan: BatchPlan, records: NDArray[np.void], rows: NDArray[np.int64] | None = None) -> NDArray[np.void]:
    """The same of masks or second pictures.

    Args:
        plan, rows: as in tasks_of.
        records: (n,) of FIELD_IMAGE_DTYPE, of the plan's samples.
    """
    tasks = _tasks(plan, rows)
    for name in ("offset", "size", "xxh3_64"):
        tasks[name] = records[name]
    tasks["png"] = records["format"] == PNG
    return tasks


def _tasks(plan: BatchPlan, rows: NDArray[np.int64] | None) -> NDArray[np.void]:
    tasks = np.zeros(len(plan), dtype=_engine.TASK_DTYPE)
    for name in ("shard", "offset", "size", "width", "height", "xxh3_64"):
        tasks[name] = plan.records[name]
    tasks["box"] = plan.crops.boxes
    tasks["bounds"] = plan.crops.bounds
    tasks["flip"] = plan.flips
    tasks["out_row"] = np.arange(len(plan)) if rows is None else rows
    return tasks
