"""The names of fields, and sample numbers -> a dict for each sample; tv_tensors where torchvision is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.engine.pictures import Pictures
from fastpipe.errors import ConfigError
from fastpipe.format.columns import Ragged
from fastpipe.format.fields import NO_IMAGE
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.geometry import large_enough, move_boxes, move_points
from fastpipe.plan.placed import Boxes, Points
from fastpipe.samples.field_names import Asked, chosen_fields, multi_hot, name_of

if TYPE_CHECKING:
    from fastpipe.samples.cropping import Cropping
    from fastpipe.samples.data import Data

Values = dict[str, Any]
_OWN = ("image", "label", "id", "key", "source")


@dataclass(frozen=True)
class _Rows:
    """Some samples, whole or cropped.

    Attributes:
        ids: (n,) their places in the dataset.
        samples: (n,) their numbers in its index.
        records: (n,) their index records.
        plans: of their rows; None: they are whole.
    """

    ids: NDArray[np.int64]
    samples: NDArray[np.int64]
    records: NDArray[np.void]
    plans: list[BatchPlan] | None


# For each sample, what goes into its dict.
_Reader = Callable[[_Rows], Iterator[Values]]


class FieldValues:
    """Reads fields of single samples. One process's: it has open files.

    Args:
        data: the dataset.
        chosen: the keys of a sample, in order, and the field of each, as of sample_fields.
        pictures: reads masks and second pictures.
        cropping: of the pictures; None: none.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(
        self, data: Data, chosen: Mapping[str, Asked], pictures: Pictures, cropping: Cropping | None = None
    ) -> None:
        self._readers = [
            (key, name, _of(data, asked, pictures, cropping))
            for key, asked in chosen.items()
            for name in [name_of(asked)]
        ]

    def of(
        self,
        ids: NDArray[np.int64],
        samples: NDArray[np.int64],
        records: NDArray[np.void],
        image_of: Callable[[int], Any],
        plans: list[BatchPlan] | None = None,
    ) -> Iterator[Values]:
        """The dict of each sample.

        Args:
            ids, samples, records, plans: as of _Rows.
            image_of: makes the image of samples[i]; called when its dict is asked for, if images were.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        rows = _Rows(ids, samples, records, plans)
        columns = [(key, name, reader(rows)) for key, name, reader in self._readers]
        for row in range(len(samples)):
            sample: Values = {}
            for key, name, column in columns:
                values = {name: image_of(row)} if name == "image" else next(column)
                sample.update({key + own.removeprefix(name): value for own, value in values.items()})
            yield sample


def as_image(image: torch.Tensor) -> torch.Tensor:
    """A tv_tensors.Image of the same memory, where torchvision is installed."""
    kinds = _tv_tensors()
    return image if kinds is None else kinds.Image(image, device=image.device)


def sample_fields(data: Data, fields: object) -> dict[str, Asked]:
    """What a user asks for, as of chosen_fields."""
    chosen = chosen_fields(data, fields, own=_OWN)
    for asked in chosen.values():
        if isinstance(asked, Boxes) and asked.form != "list":
            raise ConfigError(f"fields: a single sample has its boxes as one tensor, got {asked!r}; leave form out")
    return chosen


def check_croppable(chosen: Iterable[Asked], cropping: Cropping) -> None:
    """Raises ConfigError where a field does not go with the crop."""
    for asked in chosen:
        if isinstance(asked, Points) and cropping.mirroring and asked.flip_pairs is None:
            raise ConfigError(
                f"fields: {asked.name!r} has points, and {cropping.mirroring} mirrors images: a left eye would become "
                f"a right eye. Pass fastpipe.Points({asked.name!r}, flip_pairs=[(1, 2), ...]), the numbers of the "
                f"points that change places; flip_pairs=[] if there are none; or leave {cropping.mirroring} out"
            )


def _of(data: Data, asked: Asked, pictures: Pictures, cropping: Cropping | None) -> _Reader:
    name = name_of(asked)
    if name == "image":
        return lambda rows: iter(())  # made apart
    column, field = data.by_id(name), data.fields.get(name)
    if isinstance(asked, Boxes):
        return lambda rows: _boxes(asked, column.take(rows.ids), rows, cropping)
    if isinstance(asked, Points):
        return lambda rows: _points(asked, column.take(rows.ids), rows, cropping)
    if field is not None and field.kind in ("mask", "image"):
        images = _Images(pictures, cropping, mask=field.kind == "mask")
        return lambda rows: ({name: image} for image in images.of(rows, column.take(rows.ids)))
    many = field.classes if field is not None and field.kind == "classes" else 0

    def values(rows: _Rows) -> Iterator[Values]:
        found: Any = column.take(rows.ids)
        if many:
            found = multi_hot(found, many)
        if isinstance(found, np.ndarray):
            found = found.tolist() if found.ndim == 1 else torch.from_numpy(found)
        return ({name: value} for value in found)

    return values


@dataclass(frozen=True)
class _Images:
    """Reads masks, or second pictures."""

    pictures: Pictures
    cropping: Cropping | None
    mask: bool

    def of(self, rows: _Rows, stored: NDArray[np.void]) -> Iterator[torch.Tensor]:
        """(height, width) of ids, or (3, height, width), of several crops (K, ...); filled where a sample has none."""
        kinds = _tv_tensors()
        for place, record in enumerate(stored):
            pixels = self._pixels(rows, place, record)
            if not self.mask:
                yield as_image(torch.from_numpy(np.moveaxis(pixels, -1, -3)))
            else:
                ids = torch.from_numpy(pixels)
                yield ids if kinds is None else kinds.Mask(ids, device=ids.device)

    def _pixels(self, rows: _Rows, place: int, stored: np.void) -> NDArray[Any]:
        sample, record = int(rows.samples[place]), rows.records[place]
        cut = self.cropping
        if stored["format"] == NO_IMAGE:
            size: tuple[int, ...] = (int(record["height"]), int(record["width"])) if cut is None else cut.size
            if cut is not None and cut.rows > 1:
                size = (cut.rows, *size)
            fill = rows.plans[place].crops.rendering.mask_fill if self.mask and rows.plans is not None else 0
            return np.full(size if self.mask else (*size, 3), fill, dtype=np.uint8)
        if cut is not None and rows.plans is not None:
            return self.pictures.field_row(rows.plans[place], cut.size, stored, exact=cut.exact, mask=self.mask)
        read = self.pictures.mask if self.mask else self.pictures.second_picture
        pixels: NDArray[Any] = read(sample, record, stored)
        return pixels


def _boxes(asked: Boxes, boxes: Ragged, rows: _Rows, cropping: Cropping | None) -> Iterator[Values]:
    name, kinds = asked.name, _tv_tensors()

    def of_row(values: NDArray[Any], labels: NDArray[Any] | None, canvas: tuple[int, int]) -> Values:
        value = torch.from_numpy(values)
        if kinds is not None:
            value = kinds.BoundingBoxes(value, format="XYXY", canvas_size=canvas, device=value.device)
        return {name: value} if labels is None else {name: value, f"{name}_labels": torch.from_numpy(labels)}

    for place, (part, canvas) in enumerate(_parts(boxes, rows.records)):
        values, labels, made = boxes.values[part], None if boxes.labels is None else boxes.labels[part], []
        if cropping is None or rows.plans is None:
            yield of_row(values, labels, canvas)
            continue
        geometry = cropping.geometry(rows.plans[place])
        for row in range(cropping.rows):
            moved = move_boxes(values, np.full(len(values), row), geometry)
            kept = large_enough(moved, asked.min_size, asked.min_area)
            made.append(of_row(moved[kept], None if labels is None else labels[kept], cropping.size))
        yield _as_one(made)


def _points(asked: Points, points: Ragged, rows: _Rows, cropping: Cropping | None) -> Iterator[Values]:
    name, kinds = asked.name, _tv_tensors()

    def of_row(values: NDArray[Any], canvas: tuple[int, int]) -> Values:
        value = torch.from_numpy(values)
        places = value[..., :2]
        if kinds is not None:
            places = kinds.KeyPoints(places, canvas_size=canvas, device=places.device)
        return {name: places, f"{name}_visibility": value[..., 2]}

    for place, (part, canvas) in enumerate(_parts(points, rows.records)):
        values = points.values[part]
        if cropping is None or rows.plans is None:
            yield of_row(values, canvas)
            continue
        geometry, pairs = cropping.geometry(rows.plans[place]), asked.flip_pairs or ()
        moved = [move_points(values, np.full(len(values), row), geometry, pairs) for row in range(cropping.rows)]
        yield _as_one([of_row(each, cropping.size) for each in moved])


def _as_one(rows: list[Values]) -> Values:
    """The values of a sample's crop; of several, lists of them."""
    return rows[0] if len(rows) == 1 else {key: [row[key] for row in rows] for key in rows[0]}


def _parts(ragged: Ragged, records: NDArray[np.void]) -> Iterator[tuple[slice, tuple[int, int]]]:
    """Of each sample, its part of the values, and the height and width of its picture."""
    offsets = ragged.offsets.tolist()
    sizes = zip(records["height"].tolist(), records["width"].tolist(), strict=True)
    for begin, end, canvas in zip(offsets, offsets[1:], sizes, strict=False):
        yield slice(begin, end), canvas


@cache
def _tv_tensors() -> Any:
    """torchvision's module; None where there is none, or one that does not work with this torch."""
    try:
        from torchvision import tv_tensors
    except (ImportError, RuntimeError):
        return None
    return tv_tensors if hasattr(tv_tensors, "KeyPoints") else None
