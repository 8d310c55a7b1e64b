"""The plan of a batch -> its values besides pictures: of fields, and what a user's function makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.device.host_batch import HostFields
from fastpipe.engine.stats import Stats
from fastpipe.errors import ConfigError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.content import ById
from fastpipe.plan.geometry import geometry_of, move_boxes, move_points
from fastpipe.plan.placed import Boxes, PlacedBoxes, PlacedPoints, Points
from fastpipe.plan.recipe import Recipe
from fastpipe.samples.by_id import spans
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.field_names import Asked, keys_of, multi_hot, name_of, rows_of

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine, Job
    from fastpipe.engine.fetched_job import FetchedJob

Function = Callable[[dict[str, Any]], Mapping[str, Any]]
_MOST_NAMED = 8  # samples in a message


class FieldReader:
    """Reads what the rows of a batch carry besides their pictures: the fields `chosen`, as of chosen_fields."""

    def __init__(self, data: Dataset, recipe: Recipe, chosen: Mapping[str, Asked]) -> None:
        self._recipe = recipe
        self._options = {name_of(asked): asked for asked in chosen.values()}
        self._boxes = {name: each for name, each in self._options.items() if isinstance(each, Boxes)}
        self.names = tuple(self._options)
        self._plain: dict[str, tuple[ById, int | None]] = {}  # with how many classes, where a value is a set of them
        self._moved: dict[str, ById] = {}  # boxes and points
        # The records of masks and second pictures, and shape and type of a pixel. All batches are of one type.
        self._stored: dict[str, tuple[ById, tuple[int, ...], type[np.int32 | np.uint8]]] = {}
        for name in self.names:
            if name not in data.fields and name not in ("key", "source"):
                continue  # a label, say, is there already
            column, field = data.by_id(name), data.fields.get(name)
            kind = "" if field is None else field.kind
            if kind == "mask":
                wide = any((column.take(ids)["bits"] > 8).any() for ids in spans(len(data)))
                self._stored[name] = column, (), np.int32 if wide else np.uint8
            elif kind == "image":
                self._stored[name] = column, (3,), np.uint8
            elif kind in ("boxes", "keypoints"):
                self._moved[name] = column
            else:
                self._plain[name] = column, field.classes if field is not None and kind == "classes" else None
        self._keys = {
            key + own.removeprefix(name_of(asked)): own
            for key, asked in chosen.items()
            for own in keys_of(name_of(asked), asked, data)
        }

    def read(self, rows: BatchPlan) -> HostFields:
        """The values for the rows of a batch; DatasetError: a file cannot be read, or is damaged."""
        values = HostFields(self._keys, tuple(self._stored), self._boxes)
        for name, (column, classes) in self._plain.items():
            found: Any = column.take(rows.ids)
            found = found if classes is None else multi_hot(found, classes)
            (values.lists if isinstance(found, list) else values.arrays)[name] = found
        for view, recipe in zip(rows.views, self._recipe.views, strict=True):
            boxes, points = dict[str, PlacedBoxes](), dict[str, PlacedPoints]()
            values.places.append((boxes, points))
            if not self._moved:
                continue
            each = view.by_row()
            widths, heights = (each.records[side].astype(np.int64) for side in ("width", "height"))
            geometry = geometry_of(recipe.crop, each.crops, widths, heights, each.flips)
            for name, column in self._moved.items():
                given = column.take(each.ids)
                of, options = rows_of(given), self._options[name]
                if isinstance(options, Points):
                    pairs = options.flip_pairs or ()
                    points[name] = PlacedPoints(move_points(given.values, of, geometry, pairs), of, pairs)
                else:
                    boxes[name] = PlacedBoxes(move_boxes(given.values, of, geometry), of, given.labels)
        return values

    def slots(self, plan: BatchPlan) -> dict[str, NDArray[Any]]:
        """Memory for the masks and second pictures of a batch; see Note [entries of views]."""
        return {
            f"{number}.{name}": np.empty((len(view.flips), *view.crops.size, *pixel), dtype)
            for name, (_, pixel, dtype) in self._stored.items()
            for number, view in enumerate(plan.views)
        }

    def begin(
        self,
        engine: Engine,
        plan: BatchPlan,
        slots: Mapping[str, NDArray[Any]],
        exacts: Sequence[bool],
        rows: NDArray[np.int64] | None = None,
    ) -> Iterator[Job | FetchedJob]:
        """Has the masks and second pictures of a batch made; `exacts`, `rows`: of each view, as of Engine.submit."""
        for name, (column, _, _) in self._stored.items():
            records = column.take(plan.by_row().ids)
            for number, (view, exact) in enumerate(zip(plan.views, exacts, strict=True)):
                yield engine.submit_field(view.by_row(), records, slots[f"{number}.{name}"], exact=exact, rows=rows)


class Prepare:
    """Calls the function for one batch after the other, in a thread of its own that begins with the first batch."""

    def __init__(
        self,
        function: Function,
        read: Callable[[BatchPlan], HostFields],
        stats: Stats,
    ) -> None:
        self._function, self._read, self._stats = function, read, stats
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastpipe-prepare")

    def begin(self, rows: BatchPlan, epoch: int, number: int) -> Future[HostFields]:
        """What a batch has besides images, with what the function makes of it; soon. ConfigError if it fails."""
        return self._thread.submit(self._make, rows, epoch, number)

    def _make(self, rows: BatchPlan, epoch: int, number: int) -> HostFields:
        values = self._read(rows)
        started = time.perf_counter()
        try:
            return _with_entries(values, self._function(_given(values, rows, epoch)))
        except Exception as problem:
            named = ", ".join(map(str, rows.ids[:_MOST_NAMED])) + ", ..." * (len(rows.samples) > _MOST_NAMED)
            said = str(problem) if isinstance(problem, ConfigError) else f"the function failed: {problem!r}"
            raise ConfigError(f"prepare: batch {number} of epoch {epoch}, samples {named}: {said}") from problem
        finally:
            self._stats.prepare_s += time.perf_counter() - started

    def close(self) -> None:
        """Ends the thread, when the function has returned."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _given(values: HostFields, rows: BatchPlan, epoch: int) -> dict[str, Any]:
    """What the function gets: the batch's entries that are on the host already, by key."""
    own = {"label": rows.labels, "id": rows.ids, "valid": rows.valid, "epoch": epoch, **values.arrays, **values.lists}
    by_view: dict[str, list[Any]] = {}
    for view, (all_boxes, all_points) in zip(rows.views, values.places, strict=True):
        for name, boxes in all_boxes.items():
            by_view.setdefault(name, []).append(_by_row(boxes.edges, boxes.rows, view))
            if boxes.labels is not None:
                by_view.setdefault(f"{name}_labels", []).append(_by_row(boxes.labels, boxes.rows, view))
        for name, points in all_points.items():
            by_view.setdefault(name, []).append(_by_row(points.values, points.rows, view))
    own.update({name: each if rows.more else each[0] for name, each in by_view.items()})
    given = {key: own[name] for key, name in values.names.items() if name in own}
    return {key: value.copy() if isinstance(value, (np.ndarray, list)) else value for key, value in given.items()}


def _by_row(array: NDArray[Any], rows: NDArray[np.int64], plan: BatchPlan) -> list[Any]:
    """The values of each row; of several rows a sample, a list of these for each sample."""
    found, each = np.split(array, np.cumsum(np.bincount(rows, minlength=len(plan.flips)))[:-1]), plan.rows_per_sample
    return found if each == 1 else [found[at : at + each] for at in range(0, len(found), each)]


def _with_entries(values: HostFields, made: object) -> HostFields:
    """The values with what the function returned. Tensors and arrays of numbers go to the device, all else as it is."""
    if not isinstance(made, Mapping):
        raise ConfigError(f"expected a dict of entries to add or to replace, got {type(made).__name__}")
    names = dict(values.names)
    for key, value in made.items():
        if not isinstance(key, str):
            raise ConfigError(f"expected texts as keys, got {key!r}")
        if names.get(key) in ("image", "image_size", "pixel_mask", *values.images):
            raise ConfigError(f"{key!r} is made by other threads meanwhile, and cannot be replaced; use another key")
        names[key] = f"prepare.{key}"
        if isinstance(value, (torch.Tensor, np.ndarray)):
            values.arrays[names[key]] = _array(key, value)
        else:
            values.lists[names[key]] = value
    return replace(values, names=names)


def _array(key: str, value: torch.Tensor | NDArray[Any]) -> NDArray[Any]:
    try:
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        torch.from_numpy(np.empty(0, array.dtype))
    except (TypeError, RuntimeError) as problem:
        raise ConfigError(f"{key!r}: expected a tensor of the CPU, of a dtype that numpy has: {problem}") from problem
    return np.ascontiguousarray(array)
