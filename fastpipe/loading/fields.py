"""The names of fields, and the plan of a batch -> their values for its rows, moved as the pictures are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostFields
from fastpipe.errors import ConfigError
from fastpipe.format.columns import BytesColumn, Ragged, RaggedColumn, RowColumn, open_column
from fastpipe.format.fields import Field
from fastpipe.format.index import Index
from fastpipe.format.source_paths import SourcePaths
from fastpipe.loading.stored_images import StoredImages
from fastpipe.plan.batch import BatchPlan, Recipe
from fastpipe.plan.geometry import Geometry, geometry_of, large_enough, move_boxes, move_points

OWN = ("image", "label", "id", "key", "valid")
MOVED = ("boxes", "keypoints")  # kinds whose numbers are moved as the pictures are
SPATIAL = (*MOVED, "mask", "image")


@dataclass(frozen=True)
class Layout:
    """How boxes and points are handed out, checked.

    Attributes:
        boxes: "list", one tensor a sample; "flat", one tensor and offsets; "pad", one tensor and counts.
        min_box_size: boxes of less width or height in the row are dropped.
        min_box_area: boxes of a smaller area are dropped.
        flip_pairs: points that change places in mirrored pictures.
    """

    boxes: str = "list"
    min_box_size: float = 1.0
    min_box_area: float = 0.0
    flip_pairs: tuple[tuple[int, int], ...] = ()


class FieldReader:
    """Reads what the rows of a batch carry besides their pictures.

    Args:
        index: of the dataset.
        recipe: of the loader.
        names: the keys of a batch, checked, in order.
        layout: of boxes and points.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(self, index: Index, recipe: Recipe, names: tuple[str, ...], layout: Layout) -> None:
        self._recipe = recipe
        self._layout = layout
        self._spatial = any(index.fields[name].kind in MOVED for name in names if name in index.fields)
        self._stored: dict[str, StoredImages] = {}
        own: dict[str, _Part] = {"id": _add_numbers, "key": partial(_add_paths, SourcePaths(index))}
        self._parts = [own.get(name, _nothing) if name in OWN else self._part(index, name) for name in names]
        self._names = tuple(key for name in names for key in keys_of(name, index.fields.get(name), layout.boxes))

    def read(self, rows: BatchPlan) -> HostFields:
        """The values for the rows of a batch.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        values = HostFields(self._names, pictures=tuple(name for name, each in self._stored.items() if each.picture))
        geometry = self._geometry(rows) if self._spatial else None
        for part in self._parts:
            part(values, rows, geometry)
        return values

    def slots(self, count: int) -> dict[str, NDArray[Any]]:
        """Memory for the masks and second pictures of `count` rows, by field."""
        return {name: each.slot(count, self._recipe.size) for name, each in self._stored.items()}

    def stored(self, name: str, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """(n,) of FIELD_IMAGE_DTYPE: where the masks or second pictures of samples are.

        Raises:
            DatasetError: a file cannot be read.
        """
        return self._stored[name].column.take(samples)

    def _geometry(self, rows: BatchPlan) -> Geometry:
        widths, heights = (rows.records[side].astype(np.int64) for side in ("width", "height"))
        return geometry_of(self._recipe.crop, self._recipe.size, rows.crops, widths, heights, rows.flips)

    def _part(self, index: Index, name: str) -> _Part:
        field = index.fields[name]
        column = open_column(index, field)
        if isinstance(column, RowColumn) and field.kind in ("mask", "image"):
            self._stored[name] = StoredImages(column, len(index), picture=field.kind == "image")
            return _nothing  # the engine makes them
        if isinstance(column, BytesColumn):
            return lambda values, rows, _: values.lists.update({name: column.take(rows.samples)})
        if not isinstance(column, RaggedColumn):
            return lambda values, rows, _: values.arrays.update({name: column.take(rows.samples)})
        add: Callable[[HostFields, Ragged, Geometry | None], None]
        if field.kind == "classes":
            add = partial(_add_classes, name, field.classes)
        else:
            add = partial(_add_boxes if field.kind == "boxes" else _add_points, name, self._layout)
        return lambda values, rows, geometry: add(values, column.take(rows.samples), geometry)


_Part = Callable[[HostFields, BatchPlan, Geometry | None], None]


def keys_of(name: str, field: Field | None, layout: str) -> Iterable[str]:
    """The keys of a batch that a field fills: its own, and behind it those that boxes come with."""
    yield name
    if field is not None and field.kind == "boxes":
        if field.labelled:
            yield f"{name}_labels"
        if layout != "list":
            yield f"{name}_offsets" if layout == "flat" else f"{name}_counts"


def chosen_names(index: Index, fields: object, layout: str, *, own: tuple[str, ...] = OWN) -> tuple[str, ...]:
    """Checks the names of fields.

    Args:
        index: of the dataset.
        fields: as a user gave them.
        layout: of boxes, since their companions are names, too.
        own: names that are no fields of the dataset.

    Raises:
        ConfigError: there is no such field, one is there twice, or it is no sequence of names.
    """
    known = (*own, *index.fields)
    if isinstance(fields, str) or not isinstance(fields, (tuple, list)) or not fields:
        raise ConfigError(f"fields: expected names, for example {known[:2]!r}, got {fields!r}")
    for name in fields:
        if name not in known:
            more = (
                "" if index.packed else ". It is not packed: `fastpipe pack` keeps captions and other members of tars"
            )
            raise ConfigError(f"fields: {index.path} has {', '.join(known)}; got {name!r}{more}")
    keys = [key for name in fields for key in keys_of(name, index.fields.get(name), layout)]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"fields: {key!r} would be twice in a batch; got {fields!r}")
    return tuple(fields)


def multi_hot(tags: Ragged, classes: int) -> NDArray[np.float32]:
    """(n, classes) float32: 1 for the classes of each sample, else 0."""
    hot = np.zeros((len(tags.offsets) - 1, classes), dtype=np.float32)
    hot[rows_of(tags), tags.values] = 1
    return hot


def rows_of(ragged: Ragged) -> NDArray[np.int64]:
    """(M,) which of the n samples each value belongs to."""
    return np.repeat(np.arange(len(ragged.offsets) - 1), np.diff(ragged.offsets))


def _nothing(values: HostFields, rows: BatchPlan, geometry: Geometry | None) -> None:
    """Images, labels, `valid`, masks and second pictures are there already."""


def _add_numbers(values: HostFields, rows: BatchPlan, geometry: Geometry | None) -> None:
    values.arrays["id"] = rows.samples


def _add_paths(paths: SourcePaths, values: HostFields, rows: BatchPlan, geometry: Geometry | None) -> None:
    values.lists["key"] = paths.of(rows.samples, rows.records)


def _add_classes(name: str, classes: int, values: HostFields, tags: Ragged, geometry: Geometry | None) -> None:
    values.arrays[name] = multi_hot(tags, classes)


def _add_points(name: str, layout: Layout, values: HostFields, points: Ragged, geometry: Geometry | None) -> None:
    assert geometry is not None
    values.arrays[name] = move_points(points.values, rows_of(points), geometry, layout.flip_pairs)
    values.counts[name] = np.diff(points.offsets).tolist()


def _add_boxes(name: str, layout: Layout, values: HostFields, boxes: Ragged, geometry: Geometry | None) -> None:
    assert geometry is not None
    rows = rows_of(boxes)
    moved = move_boxes(boxes.values, rows, geometry)
    kept = large_enough(moved, layout.min_box_size, layout.min_box_area)
    rows = rows[kept]
    counts = np.bincount(rows, minlength=len(boxes.offsets) - 1)
    arrays: dict[str, NDArray[Any]] = {name: moved[kept]}
    if boxes.labels is not None:
        arrays[f"{name}_labels"] = boxes.labels[kept]
    if layout.boxes == "list":
        values.counts.update(dict.fromkeys(arrays, counts.tolist()))
    elif layout.boxes == "flat":
        arrays[f"{name}_offsets"] = np.concatenate([[0], np.cumsum(counts)])
    else:
        arrays = {key: _padded(array, rows, counts) for key, array in arrays.items()}
        arrays[f"{name}_counts"] = counts
    values.arrays.update(arrays)


def _padded(array: NDArray[Any], rows: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[Any]:
    """(M, ...) -> (n, most, ...): behind a sample's boxes there are zeros, behind its labels -1."""
    most = int(counts.max(initial=0))
    out = np.full((len(counts), most, *array.shape[1:]), 0 if array.ndim > 1 else -1, dtype=array.dtype)
    out[rows, np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]] = array
    return out
