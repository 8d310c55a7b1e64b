"""A batch in host memory, between the engine and a device.

Boxes and points -> the entries that a user asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.parts import starts_of
from fastpipe.plan.arrays import ArrayBatch
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.maps import MapForm
from fastpipe.plan.patches import PatchLayout
from fastpipe.plan.picture_lists import PictureListBatch
from fastpipe.plan.placed import Boxes, Placed, is_large_enough, places_in_row

Places = Mapping[str, Placed]  # boxes and points, by name of the field


@dataclass(frozen=True)
class HostFields:
    """The fields of a batch that is a dict, besides images and labels.

    Note [entries of views]
    Each view has boxes, points, masks, second images and maps of its own. Their entries are called
    VIEW.NAME: "0.mask" is the mask of the first view.
    """

    # Key in the batch -> name of the field ("image" for the images), in the batch's order.
    names: Mapping[str, str]
    # The names of masks, second images and maps. In `arrays` a mask is (n * k, height, width), a
    # second image (n * k, height, width, channels), a map one or the other.
    images: tuple[str, ...] = ()
    # The names of fields of arrays, which the engine's threads copy.
    stored_arrays: tuple[str, ...] = ()
    # The names of fields of lists of pictures. In `arrays` these are (M * k, height, width,
    # channels), by view.
    picture_lists: tuple[str, ...] = ()
    # The options of the fields of boxes, by name.
    options: Mapping[str, Boxes] = field(default_factory=dict)
    # How the rows of those of `images` are made that are maps, by name.
    maps: Mapping[str, MapForm] = field(default_factory=dict)
    # Boxes and points of each view, until they no longer move.
    places: list[Places] = field(default_factory=list)
    # The arrays that become tensors on the device, by name or VIEW.NAME.
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    # The values of `stored_arrays`, by name, when they are copied.
    array_batches: dict[str, ArrayBatch] = field(default_factory=dict)
    # Of entries whose rows have sizes of their own: (rows, 2) height and width, by VIEW.NAME. In
    # `arrays` they are (pixels, 1, 1, ...).
    row_sizes: dict[str, Int64s] = field(default_factory=dict)
    # Of entries that are cut into patches: how these lie, by VIEW.NAME.
    layouts: dict[str, PatchLayout] = field(default_factory=dict)
    # Boxes or objects of each row, or pictures of each sample, for entries that become a list with
    # one tensor for each.
    counts: dict[str, list[int]] = field(default_factory=dict)
    # Values that stay on the host, by name.
    lists: dict[str, list[Any]] = field(default_factory=dict)

    def add_arrays(self, arrays: Mapping[str, ArrayBatch]) -> None:
        """Adds the values of `stored_arrays`, when they are copied."""
        self.array_batches.update(arrays)
        for name, batch in arrays.items():
            for ending, values in batch.more.items():
                self.arrays[name + ending] = values

    def add_picture_lists(self, lists: Mapping[str, PictureListBatch]) -> None:
        """Adds the values of `picture_lists`, when they are made."""
        for name, batch in lists.items():
            for view, slot in enumerate(batch.slots):
                entry = f"{view}.{name}"
                self.arrays[entry] = slot
                sizes = batch.row_sizes[view]
                if sizes is not None:
                    self.row_sizes[entry] = sizes
                layout = batch.layout
                if layout is not None and sizes is not None:
                    self.layouts[entry] = layout
                    for fact, values in layout.facts(sizes).items():
                        self.arrays[f"{name}_{fact}"] = values
            if batch.is_flat:
                self.arrays[f"{name}_offsets"] = batch.offsets
            else:
                self.counts[name] = np.diff(batch.offsets).tolist()

    def by_view(self, name: str) -> bool:
        """Whether each view has an entry of its own."""
        return f"0.{name}" in self.arrays


class HostBatch(NamedTuple):
    """A batch as the engine leaves it: n samples of k rows each.

    The images of each view are a slot of a SlotRing: (N, height, width, channels), uint8 or uint16,
    N >= n * k. A batch of fields alone has no views.
    """

    number: int  # in its epoch
    epoch: int
    plan: BatchPlan  # names the draws of the augmentation
    # The same with the samples that are in the images: damaged ones may have been replaced.
    filled_plan: BatchPlan
    views: tuple[NDArray[Any], ...]
    fields: HostFields | None = None  # None: the batch is (images, labels)


def lay_out(
    fields: HostFields, view: int, places: Places, rows: int, rows_per_sample: int
) -> None:
    """Adds the boxes and points of a view to `fields`, without boxes that are too small."""
    for name, placed in places.items():
        entry = f"{view}.{name}"
        if placed.are_boxes:
            _lay_out_boxes(
                fields, entry, fields.options[name], placed, rows, rows_per_sample
            )
        else:
            counts = np.bincount(placed.rows, minlength=rows)
            fields.arrays[entry] = placed.values
            fields.counts[entry] = counts.tolist()


def _lay_out_boxes(
    fields: HostFields,
    entry: str,
    options: Boxes,
    placed: Placed,
    rows: int,
    rows_per_sample: int,
) -> None:
    """Adds the boxes of one field and view, in the form that its options name."""
    is_kept = is_large_enough(placed.values, options.min_size, options.min_area)
    kept = placed.take(is_kept)
    # (rows,) how many boxes each row has; (M, 4) the boxes, and (M,) their labels.
    counts = np.bincount(kept.rows, minlength=rows)
    arrays: dict[str, NDArray[Any]] = {entry: kept.values}
    if kept.labels is not None:
        arrays[f"{entry}_labels"] = kept.labels

    if options.form == "list":
        for key in arrays:
            fields.counts[key] = counts.tolist()
    elif options.form == "flat":
        arrays[f"{entry}_offsets"] = starts_of(counts)
    else:
        for key, array in arrays.items():
            arrays[key] = _padded(array, kept.rows, counts)
        arrays[f"{entry}_counts"] = counts
        if rows_per_sample > 1:
            # (n * k, ...) -> (n, k, ...)
            samples = rows // rows_per_sample
            for key, array in arrays.items():
                shape = (samples, rows_per_sample, *array.shape[1:])
                arrays[key] = array.reshape(shape)
    fields.arrays.update(arrays)


def _padded(array: NDArray[Any], rows: Int64s, counts: Int64s) -> NDArray[Any]:
    """Boxes or labels (M, ...) -> (rows, most, ...).

    Boxes are filled up with zeros, labels with -1.
    """
    most = int(counts.max(initial=0))
    shape = (len(counts), most, *array.shape[1:])
    padding = 0 if array.ndim > 1 else -1
    out = np.full(shape, padding, dtype=array.dtype)
    places = places_in_row(rows, len(counts))
    out[rows, places] = array
    return out
