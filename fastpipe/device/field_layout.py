"""Boxes and points of a batch -> the arrays that a user asked for; small boxes are dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostFields, Places
from fastpipe.plan.geometry import large_enough
from fastpipe.plan.placed import places_in_row


def lay_out(fields: HostFields, view: int, places: Places, rows: int, rows_per_sample: int) -> None:
    """Adds the boxes and points of a view, which has so many rows, to `fields.arrays`, and to `fields.counts`."""
    boxes, points = places
    for name, each in points.items():
        fields.arrays[f"{view}.{name}"] = each.values
        fields.counts[f"{view}.{name}"] = np.bincount(each.rows, minlength=rows).tolist()
    for name, all_of_them in boxes.items():
        options, entry = fields.options[name], f"{view}.{name}"
        kept = all_of_them.take(large_enough(all_of_them.edges, options.min_size, options.min_area))
        counts = np.bincount(kept.rows, minlength=rows)
        arrays: dict[str, NDArray[Any]] = {entry: kept.edges}
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
                arrays = {key: a.reshape(-1, rows_per_sample, *a.shape[1:]) for key, a in arrays.items()}
        fields.arrays.update(arrays)


def _padded(array: NDArray[Any], rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[Any]:
    """(M, ...) -> (n, most, ...): behind a row's boxes there are zeros, behind its labels -1."""
    most = int(counts.max(initial=0))
    out = np.full((len(counts), most, *array.shape[1:]), 0 if array.ndim > 1 else -1, dtype=array.dtype)
    out[rows, places_in_row(rows, len(counts))] = array
    return out
