"""A batch in host memory, between the engine and a device; boxes and points -> the entries that a user asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.placed import Boxes, Placed, large_enough, places_in_row

Places = Mapping[str, Placed]  # boxes and points, by name of the field


@dataclass(frozen=True)
class HostFields:
    """What a batch that is a dict has besides images and labels.

    Note [entries of views]: each view has boxes, points, masks and second pictures of its own. Their entries are called
    VIEW.NAME: "0.mask" is that of the first view.
    """

    # The keys of the batch, in order, and the name of what each has: "image" is that of images.
    names: Mapping[str, str]
    images: tuple[str, ...] = ()  # masks, (n * k, height, width) ids, second pictures, (n * k, height, width, channels)
    options: Mapping[str, Boxes] = field(default_factory=dict)  # of boxes, by name of the field
    places: list[Places] = field(default_factory=list)  # of each view; arrays when nothing moves them any more
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)  # for the device, by name or entry of a view
    # Of the entries that become one tensor a row: how many boxes or objects each row has.
    counts: dict[str, list[int]] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)  # what stays on the host, by name

    def by_view(self, name: str) -> bool:
        return f"0.{name}" in self.arrays


@dataclass(frozen=True)
class HostBatch:
    """A batch as the engine leaves it: n samples of k rows each. Its images are, by view, (N, height, width, channels)
    uint8 or uint16, N >= n * k, a slot of a SlotRing.
    """

    number: int  # in its epoch
    epoch: int
    plan: BatchPlan  # by which the augmentation is drawn
    there: BatchPlan  # the same with the samples that are there: bad ones may have been replaced
    views: tuple[NDArray[Any], ...]
    fields: HostFields | None = None  # what else the batch has; None: it is (images, labels)


def lay_out(fields: HostFields, view: int, places: Places, rows: int, rows_per_sample: int) -> None:
    """Adds the boxes and points of a view, which has so many rows, to `fields`; drops small boxes."""
    for name, each in places.items():
        entry = f"{view}.{name}"
        if not each.are_boxes:
            fields.arrays[entry] = each.values
            fields.counts[entry] = np.bincount(each.rows, minlength=rows).tolist()
            continue
        options = fields.options[name]
        kept = each.take(large_enough(each.values, options.min_size, options.min_area))
        counts = np.bincount(kept.rows, minlength=rows)
        arrays: dict[str, NDArray[Any]] = {entry: kept.values}
        if kept.labels is not None:
            arrays[f"{entry}_labels"] = kept.labels
        if options.form == "list":
            fields.counts.update(dict.fromkeys(arrays, counts.tolist()))
        elif options.form == "flat":
            arrays[f"{entry}_offsets"] = np.concatenate([[0], np.cumsum(counts)])
        else:
            arrays = {key: _padded(array, kept.rows, counts) for key, array in arrays.items()}
            arrays[f"{entry}_counts"] = counts
            if rows_per_sample > 1:
                grid = rows // rows_per_sample, rows_per_sample
                arrays = {key: a.reshape(*grid, *a.shape[1:]) for key, a in arrays.items()}
        fields.arrays.update(arrays)


def _padded(array: NDArray[Any], rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[Any]:
    """(M, ...) -> (n, most, ...): behind a row's boxes there are zeros, behind its labels -1."""
    most = int(counts.max(initial=0))
    out = np.full((len(counts), most, *array.shape[1:]), 0 if array.ndim > 1 else -1, dtype=array.dtype)
    out[rows, places_in_row(rows, len(counts))] = array
    return out
