"""Boxes and points of a batch -> the arrays that a user asked for; small boxes are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostFields
from fastpipe.plan.geometry import large_enough
from fastpipe.plan.placed import PlacedBoxes, PlacedPoints, places_in_row


def lay_out(
    fields: HostFields, boxes: Mapping[str, PlacedBoxes], points: Mapping[str, PlacedPoints], count: int
) -> None:
    """Adds the boxes and points of `count` rows to `fields.arrays`, and to `fields.counts`."""
    for name, each in points.items():
        fields.arrays[name] = each.values
        fields.counts[name] = np.bincount(each.rows, minlength=count).tolist()
    for name, all_of_them in boxes.items():
        options = fields.options[name]
        kept = all_of_them.take(large_enough(all_of_them.edges, options.min_size, options.min_area))
        counts = np.bincount(kept.rows, minlength=count)
        arrays: dict[str, NDArray[Any]] = {name: kept.edges}
        if kept.labels is not None:
            arrays[f"{name}_labels"] = kept.labels
        if options.form == "list":
            fields.counts.update(dict.fromkeys(arrays, counts.tolist()))
        elif options.form == "flat":
            arrays[f"{name}_offsets"] = np.concatenate([[0], np.cumsum(counts)])
        else:
            arrays = {key: _padded(array, kept.rows, counts) for key, array in arrays.items()}
            arrays[f"{name}_counts"] = counts
        fields.arrays.update(arrays)


def _padded(array: NDArray[Any], rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[Any]:
    """(M, ...) -> (n, most, ...): behind a sample's boxes there are zeros, behind its labels -1."""
    most = int(counts.max(initial=0))
    out = np.full((len(counts), most, *array.shape[1:]), 0 if array.ndim > 1 else -1, dtype=array.dtype)
    out[rows, places_in_row(rows, len(counts))] = array
    return out
