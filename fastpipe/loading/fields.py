"""The names of fields, and the plan of a batch -> their values for its rows, moved as the pictures are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostFields, Layout
from fastpipe.errors import ConfigError
from fastpipe.format.columns import BytesColumn, Ragged, RaggedColumn, RowColumn, open_column
from fastpipe.format.fields import Field
from fastpipe.format.index import Index
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.format.source_paths import SourcePaths
from fastpipe.loading.stored_images import StoredImages
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.geometry import Geometry, geometry_of, move_boxes, move_points
from fastpipe.plan.placed import Boxes, Points
from fastpipe.plan.recipe import Recipe

OWN = ("image", "label", "id", "key", "valid", "epoch")
OF_BUCKETS = ("image_size", "pixel_mask")
MOVED = ("boxes", "keypoints")  # kinds whose numbers are moved as the pictures are
SPATIAL = (*MOVED, "mask", "image")
FlipPairs = tuple[tuple[int, int], ...]


class FieldReader:
    """Reads what the rows of a batch carry besides their pictures.

    Args:
        index: of the dataset.
        recipe: of the loader.
        names: the keys of a batch, checked, in order.
        layout: of boxes.
        flip_pairs: of each field, the points that change places in mirrored pictures.

    Attributes:
        names: as given.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(
        self,
        index: Index,
        recipe: Recipe,
        names: tuple[str, ...],
        layout: Layout,
        flip_pairs: Mapping[str, FlipPairs],
    ) -> None:
        self._recipe = recipe
        self._layout = layout
        self._flip_pairs = flip_pairs
        self._spatial = any(index.fields[name].kind in MOVED for name in names if name in index.fields)
        self._stored: dict[str, StoredImages] = {}
        bucketed = isinstance(recipe.crop, Buckets)
        own: dict[str, _Part] = {"key": partial(_add_paths, SourcePaths(index)), "source": partial(_add_sources, index)}
        self._parts = [
            own.get(name, _nothing) if name in own_names(index, bucketed=bucketed) else self._part(index, name)
            for name in names
        ]
        self.names = names
        self._keys = tuple(key for name in names for key in keys_of(name, index.fields.get(name), layout.boxes))

    def read(self, rows: BatchPlan) -> HostFields:
        """The values for the rows of a batch.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        pictures = tuple(name for name, each in self._stored.items() if each.picture)
        masks = tuple(name for name, each in self._stored.items() if not each.picture)
        values = HostFields(self._keys, pictures, masks, self._layout)
        geometry = self._geometry(rows) if self._spatial else None
        for part in self._parts:
            part(values, rows, geometry)
        return values

    def slots(self, count: int, size: tuple[int, int]) -> dict[str, NDArray[Any]]:
        """Memory for the masks and second pictures of `count` rows of a (height, width), by field."""
        return {name: each.slot(count, size) for name, each in self._stored.items()}

    def stored(self, name: str, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """(n,) of FIELD_IMAGE_DTYPE: where the masks or second pictures of samples are.

        Raises:
            DatasetError: a file cannot be read.
        """
        return self._stored[name].column.take(samples)

    def _geometry(self, rows: BatchPlan) -> Geometry:
        widths, heights = (rows.records[side].astype(np.int64) for side in ("width", "height"))
        return geometry_of(self._recipe.crop, rows.crops, widths, heights, rows.flips)

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
        elif field.kind == "boxes":
            add = partial(_add_boxes, name)
        else:
            add = partial(_add_points, name, self._flip_pairs.get(name, ()))
        return lambda values, rows, geometry: add(values, column.take(rows.samples), geometry)


_Part = Callable[[HostFields, BatchPlan, Geometry | None], None]


def own_names(index: Index, *, bucketed: bool) -> tuple[str, ...]:
    """The names that are no fields of the dataset."""
    more = (*(["source"] if isinstance(index, MixedIndex) else []), *(OF_BUCKETS if bucketed else ()))
    return (*OWN, *more)


def keys_of(name: str, field: Field | None, layout: str) -> Iterable[str]:
    """The keys of a batch that a field fills: its own, and behind it those that boxes come with."""
    yield name
    if field is not None and field.kind == "boxes":
        if field.labelled:
            yield f"{name}_labels"
        if layout != "list":
            yield f"{name}_offsets" if layout == "flat" else f"{name}_counts"


def chosen_names(index: Index, fields: object, layout: str, *, own: tuple[str, ...]) -> tuple[str, ...]:
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
            if isinstance(index, MixedIndex):
                more = ". A mixture has no fields of its datasets: these work with one dataset only"
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
    """Images, labels, ids, `valid`, the epoch, masks and second pictures are there already."""


def _add_sources(index: Index, values: HostFields, rows: BatchPlan, geometry: Geometry | None) -> None:
    assert isinstance(index, MixedIndex)
    values.arrays["source"] = index.part_of(rows.samples)


def _add_paths(paths: SourcePaths, values: HostFields, rows: BatchPlan, geometry: Geometry | None) -> None:
    values.lists["key"] = paths.of(rows.samples, rows.records)


def _add_classes(name: str, classes: int, values: HostFields, tags: Ragged, geometry: Geometry | None) -> None:
    values.arrays[name] = multi_hot(tags, classes)


def _add_points(
    name: str, flip_pairs: FlipPairs, values: HostFields, points: Ragged, geometry: Geometry | None
) -> None:
    assert geometry is not None
    rows = rows_of(points)
    values.points[name] = Points(move_points(points.values, rows, geometry, flip_pairs), rows, flip_pairs)


def _add_boxes(name: str, values: HostFields, boxes: Ragged, geometry: Geometry | None) -> None:
    assert geometry is not None
    rows = rows_of(boxes)
    values.boxes[name] = Boxes(move_boxes(boxes.values, rows, geometry), rows, boxes.labels)
