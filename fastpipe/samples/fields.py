"""The plan of samples -> the values of their fields: of a batch, or a dict of tensors for each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from fastpipe.engine.pictures import Pictures
from fastpipe.format.columns import Ragged
from fastpipe.format.fields import NO_IMAGE
from fastpipe.format.index import SourcePaths
from fastpipe.format.pixel_form import PixelForm
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ById
from fastpipe.plan.crops import Crop
from fastpipe.plan.geometry import geometry_of, large_enough, move_boxes, move_points
from fastpipe.plan.host_fields import HostFields, Places
from fastpipe.plan.placed import Boxes, PlacedBoxes, PlacedPoints, Points
from fastpipe.plan.recipe import Recipe
from fastpipe.samples.by_id import spans
from fastpipe.samples.cropping import Cropping
from fastpipe.samples.field_names import Asked, keys_of, name_of

if TYPE_CHECKING:
    from fastpipe.engine.engine import Engine
    from fastpipe.engine.jobs import FetchedJob, Job
    from fastpipe.samples.data import Data


class Fields:
    """Reads what samples have besides their pictures: the fields `chosen`, as of chosen_fields. `crops` says of each
    view how its pictures become rows; None: they are whole. DatasetError: a field's files are missing or damaged.
    """

    def __init__(self, data: Data, chosen: Mapping[str, Asked], crops: Sequence[Crop | Buckets | None]) -> None:
        self._crops = crops
        self._options = {name_of(asked): asked for asked in chosen.values()}
        self.names = tuple(self._options)
        self._paths = SourcePaths(data.index) if "key" in self.names else None
        self._plain: dict[str, tuple[ById, int | None]] = {}  # with how many classes, where a value is a set of them
        self._moved: dict[str, ById] = {}  # boxes and points
        self._stored: dict[str, tuple[ById, bool]] = {}  # records of pictures, and whether these are masks
        for name in self.names:
            field = data.fields.get(name)
            kind = "" if field is None else field.kind
            if kind in ("mask", "image"):
                self._stored[name] = data.by_id(name), kind == "mask"
            elif kind in ("boxes", "keypoints"):
                self._moved[name] = data.by_id(name)
            elif field is not None or name == "source":
                self._plain[name] = data.by_id(name), field.classes if field and kind == "classes" else None
        self._keys = {
            key + own.removeprefix(name_of(asked)): own
            for key, asked in chosen.items()
            for own in keys_of(name_of(asked), asked, data)
        }

    def read(self, plan: BatchPlan) -> HostFields:
        """The values for the rows of a plan; DatasetError: a file cannot be read, or is damaged."""
        boxes = {name: each for name, each in self._options.items() if isinstance(each, Boxes)}
        values = HostFields(self._keys, tuple(self._stored), boxes)
        if self._paths is not None:
            values.lists["key"] = self._paths.of(plan.samples, plan.records)
        for name, (column, classes) in self._plain.items():
            found: Any = column.take(plan.ids)
            found = found if classes is None else multi_hot(found, classes)
            (values.lists if isinstance(found, list) else values.arrays)[name] = found
        values.places.extend(self._placed(*each) for each in zip(plan.views, self._crops, strict=True))
        return values

    def _placed(self, view: BatchPlan, crop: Crop | Buckets | None) -> Places:
        """The boxes and points on its rows, moved as the pictures are."""
        boxes, points, rows, geometry = dict[str, PlacedBoxes](), dict[str, PlacedPoints](), view.by_row(), None
        if self._moved and crop is not None:
            widths, heights = (rows.records[side].astype(np.int64) for side in ("width", "height"))
            geometry = geometry_of(crop, rows.crops, widths, heights, rows.flips)
        for name, column in self._moved.items():
            given, options = column.take(rows.ids), self._options[name]
            of, placed = rows_of(given), given.values
            if isinstance(options, Points):
                pairs = options.flip_pairs or ()
                placed = placed if geometry is None else move_points(placed, of, geometry, pairs)
                points[name] = PlacedPoints(placed, of, pairs)
            else:
                placed = placed if geometry is None else move_boxes(placed, of, geometry)
                boxes[name] = PlacedBoxes(placed, of, given.labels)
        return boxes, points


class FieldReader(Fields):
    """Reads what the rows of a batch carry besides their pictures: the fields `chosen`, as of chosen_fields."""

    def __init__(self, data: Data, recipe: Recipe, chosen: Mapping[str, Asked], form: PixelForm) -> None:
        super().__init__(data, chosen, [view.crop for view in recipe.views])
        # Shape and type of a pixel of masks and second pictures, these as the images'. All batches are of one type.
        self._pixels: dict[str, tuple[tuple[int, ...], DTypeLike]] = {}
        for name, (column, mask) in self._stored.items():
            wide = mask and any((column.take(ids)["bits"] > 8).any() for ids in spans(len(data)))
            ids_or_pixels = ((), np.int32 if wide else np.uint8) if mask else ((form.channels,), form.dtype)
            self._pixels[name] = ids_or_pixels

    def slots(self, plan: BatchPlan) -> dict[str, NDArray[Any]]:
        """Memory for the masks and second pictures of a batch; see Note [entries of views]."""
        return {
            f"{number}.{name}": np.empty((len(view.flips), *view.crops.size, *pixel), dtype)
            for name, (pixel, dtype) in self._pixels.items()
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
        for name, (column, _) in self._stored.items():
            records = column.take(plan.by_row().ids)
            for number, (view, exact) in enumerate(zip(plan.views, exacts, strict=True)):
                yield engine.submit_field(view.by_row(), records, slots[f"{number}.{name}"], exact=exact, rows=rows)


class FieldValues(Fields):
    """Reads the dicts of single samples. One process's: it has open files."""

    def __init__(
        self, data: Data, chosen: Mapping[str, Asked], pictures: Pictures, cropping: Cropping | None = None
    ) -> None:
        super().__init__(data, chosen, [None if cropping is None else cropping.crop])
        self._pictures, self._cropping = pictures, cropping
        self._ends = {name: ("", "_visibility") for name, asked in self._options.items() if isinstance(asked, Points)}

    def of(self, plan: BatchPlan, pixels_of: Callable[[int], Any]) -> Iterator[dict[str, Any]]:
        """The dict of each sample of a plan, whose crops are those of `cropping`. `pixels_of` makes the image of the
        sample at a place of it, (..., height, width, channels), when its dict is asked for.
        """
        values = self.read(plan)
        columns: dict[str, Any] = {"label": plan.labels, "id": plan.ids, **values.arrays, **values.lists}
        makers: dict[str, Callable[[int], Any]] = {"image": lambda at: as_image(pixels_of(at))}
        for name, column in columns.items():
            if isinstance(column, np.ndarray):
                column = column.tolist() if column.ndim == 1 else torch.from_numpy(column)
            makers[name] = column.__getitem__
        for name, (records, mask) in self._stored.items():
            makers[name] = partial(self._picture, plan, records.take(plan.ids), mask)
        for name, of_rows in self._of_rows(plan, *values.places[0]):
            makers[name] = by_sample(list(of_rows), plan).__getitem__
        for at in range(len(plan)):
            yield {
                key + end: makers[own + end](at)
                for key, own in self._keys.items()
                for end in self._ends.get(own, ("",))
            }

    def _of_rows(
        self, plan: BatchPlan, boxes: Mapping[str, PlacedBoxes], points: Mapping[str, PlacedPoints]
    ) -> Iterator[tuple[str, Iterable[Any]]]:
        """The entries of boxes and points, with the value of each row."""
        cut = self._cropping
        rows = zip(plan.records["height"].tolist(), plan.records["width"].tolist(), strict=True)
        canvases = list(rows) if cut is None else [cut.size] * len(plan.flips)
        for name, placed in boxes.items():
            asked = self._options[name]
            if cut is not None and isinstance(asked, Boxes):
                placed = placed.take(large_enough(placed.edges, asked.min_size, asked.min_area))
            edges = split(placed.edges, placed.rows, plan)
            yield name, map(partial(tv_tensor, "BoundingBoxes", format="XYXY"), edges, canvases)
            if placed.labels is not None:
                yield f"{name}_labels", map(torch.from_numpy, split(placed.labels, placed.rows, plan))
        for name, objects in points.items():
            values = split(objects.values, objects.rows, plan)
            yield name, map(partial(tv_tensor, "KeyPoints"), [each[..., :2] for each in values], canvases)
            yield f"{name}_visibility", [torch.from_numpy(each[..., 2]) for each in values]

    def _picture(self, plan: BatchPlan, stored: NDArray[np.void], mask: bool, at: int) -> torch.Tensor:
        """(height, width) of ids, or (channels, height, width); of several crops (K, ...). Filled if there is none."""
        cut, record, field = self._cropping, plan.records[at], stored[at]
        if field["format"] == NO_IMAGE:
            size: tuple[int, ...] = (int(record["height"]), int(record["width"])) if cut is None else cut.size
            size = size if plan.rows_per_sample == 1 else (plan.rows_per_sample, *size)
            fill = plan.crops.rendering.mask_fill if mask and cut is not None else 0
            form = self._pictures.form
            pixels: NDArray[Any] = (
                np.full(size, fill, np.uint8) if mask else np.zeros((*size, form.channels), form.dtype)
            )
        elif cut is not None:
            pixels = self._pictures.field_row(plan.part(at, at + 1), cut.size, field, exact=cut.exact, mask=mask)
        else:
            read = self._pictures.mask if mask else self._pictures.second_picture
            pixels = read(int(plan.samples[at]), record, field)
        return tv_tensor("Mask", pixels) if mask else as_image(pixels)


def split(values: NDArray[Any], rows: NDArray[np.int64], plan: BatchPlan) -> list[NDArray[Any]]:
    """The values that are on each row of a plan; `rows`, ascending, says on which each is."""
    return np.split(values, np.cumsum(np.bincount(rows, minlength=len(plan.flips)))[:-1])


def by_sample(of_rows: list[Any], plan: BatchPlan) -> list[Any]:
    """The values of each row; of several rows a sample, a list of these for each sample."""
    each = plan.rows_per_sample
    return of_rows if each == 1 else [of_rows[at : at + each] for at in range(0, len(of_rows), each)]


def as_image(pixels: NDArray[Any]) -> torch.Tensor:
    """(..., height, width, channels) -> an Image of the same memory, (..., channels, height, width)."""
    return tv_tensor("Image", np.moveaxis(pixels, -1, -3))


def tv_tensor(kind: str, values: NDArray[Any], canvas_size: tuple[int, int] | None = None, **more: Any) -> torch.Tensor:
    """A tv_tensor of this kind, of the same memory; where torchvision is not installed, a tensor."""
    tensor, kinds = torch.from_numpy(values), _tv_tensors()
    if canvas_size is not None:
        more["canvas_size"] = canvas_size
    return tensor if kinds is None else getattr(kinds, kind)(tensor, device=tensor.device, **more)


@cache
def _tv_tensors() -> Any:
    """torchvision's module; None where there is none, or one that does not work with this torch."""
    try:
        from torchvision import tv_tensors
    except (ImportError, RuntimeError):
        return None
    return tv_tensors if hasattr(tv_tensors, "KeyPoints") else None


def multi_hot(tags: Ragged, classes: int) -> NDArray[np.float32]:
    """(n, classes) float32: 1 for the classes of each sample, else 0."""
    hot = np.zeros((len(tags.offsets) - 1, classes), dtype=np.float32)
    hot[rows_of(tags), tags.values] = 1
    return hot


def rows_of(ragged: Ragged) -> NDArray[np.int64]:
    """(M,) which of the n samples each value belongs to."""
    return np.repeat(np.arange(len(ragged.offsets) - 1), np.diff(ragged.offsets))
