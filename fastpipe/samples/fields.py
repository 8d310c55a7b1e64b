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
from fastpipe.format.columns import Ragged, RaggedColumn, RowColumn, open_column
from fastpipe.format.fields import NO_IMAGE
from fastpipe.format.index import Index
from fastpipe.format.source_paths import SourcePaths
from fastpipe.loading.fields import OWN, SPATIAL, Asked, chosen_fields, multi_hot, name_of
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.geometry import large_enough, move_boxes, move_points
from fastpipe.plan.placed import Boxes, Points

if TYPE_CHECKING:
    from fastpipe.samples.cropping import Cropping

Values = dict[str, Any]
_OWN = ("image", "label", "id", "key")


@dataclass(frozen=True)
class _Rows:
    """Some samples, whole or cropped.

    Attributes:
        samples: (n,) their numbers.
        records: (n,) their index records.
        plans: of their rows; None: they are whole.
    """

    samples: NDArray[np.int64]
    records: NDArray[np.void]
    plans: list[BatchPlan] | None


# For each sample, what goes into its dict.
_Reader = Callable[[_Rows], Iterator[Values]]


class FieldValues:
    """Reads fields of single samples. One process's: it has open files.

    Args:
        index: of the dataset.
        chosen: the keys of a sample, in order, and the field of each, as of sample_fields.
        pictures: reads masks and second pictures.
        cropping: of the pictures; None: none.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(
        self, index: Index, chosen: Mapping[str, Asked], pictures: Pictures, cropping: Cropping | None = None
    ) -> None:
        self._readers = [
            (key, name, self._own(index, name) if name in OWN else _of(index, asked, pictures, cropping))
            for key, asked in chosen.items()
            for name in [name_of(asked)]
        ]

    def of(
        self,
        samples: NDArray[np.int64],
        records: NDArray[np.void],
        image_of: Callable[[int], Any],
        plans: list[BatchPlan] | None = None,
    ) -> Iterator[Values]:
        """The dict of each sample.

        Args:
            samples: (n,) their numbers.
            records: (n,) their index records.
            image_of: makes the image of samples[i]; called when its dict is asked for, if images were.
            plans: of their crops; None: they are whole.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        rows = _Rows(samples, records, plans)
        columns = [(key, name, reader(rows)) for key, name, reader in self._readers]
        for row in range(len(samples)):
            sample: Values = {}
            for key, name, column in columns:
                values = {name: image_of(row)} if name == "image" else next(column)
                sample.update({key + own.removeprefix(name): value for own, value in values.items()})
            yield sample

    @staticmethod
    def _own(index: Index, name: str) -> _Reader:
        if name == "key":
            paths = SourcePaths(index)
            return lambda rows: ({name: path} for path in paths.of(rows.samples, rows.records))
        if name == "label":
            return lambda rows: ({name: label} for label in rows.records["label"].tolist())
        return lambda rows: ({name: number} for number in rows.samples.tolist())


def as_image(image: torch.Tensor) -> torch.Tensor:
    """A tv_tensors.Image of the same memory, where torchvision is installed."""
    kinds = _tv_tensors()
    return image if kinds is None else kinds.Image(image, device=image.device)


def sample_fields(index: Index, fields: object) -> dict[str, Asked]:
    """What a user asks for, as of chosen_fields."""
    chosen = chosen_fields(index, fields, own=_OWN)
    for asked in chosen.values():
        if isinstance(asked, Boxes) and asked.form != "list":
            raise ConfigError(f"fields: a single sample has its boxes as one tensor, got {asked!r}; leave form out")
    return chosen


def check_croppable(index: Index, chosen: Iterable[Asked], cropping: Cropping) -> None:
    """Raises ConfigError where a field does not go with the crop."""
    kinds = {name: index.fields[name].kind for name in map(name_of, chosen) if name not in OWN}
    spatial = [name for name, kind in kinds.items() if kind in SPATIAL]
    if cropping.rows > 1 and spatial:
        raise ConfigError(
            f"fields: there are {cropping.rows} crops of each image, but {', '.join(spatial)} can be on one only; "
            "leave them out, or pass crop=fastpipe.CenterCrop()"
        )
    for asked in chosen:
        if isinstance(asked, Points) and cropping.mirrors and asked.flip_pairs is None:
            raise ConfigError(
                f"fields: {asked.name!r} has points, and hflip mirrors images: a left eye would become a right eye. "
                f"Pass fastpipe.Points({asked.name!r}, flip_pairs=[(1, 2), ...]), or hflip=False"
            )


def _of(index: Index, asked: Asked, pictures: Pictures, cropping: Cropping | None) -> _Reader:
    field = index.fields[name_of(asked)]
    column, name = open_column(index, field), field.name
    if isinstance(column, RowColumn):
        if field.kind in ("mask", "image"):
            images = _Images(pictures, cropping, mask=field.kind == "mask")
            return lambda rows: ({name: image} for image in images.of(rows, column.take(rows.samples)))
        if field.kind == "int":
            return lambda rows: ({name: number} for number in column.take(rows.samples).tolist())
        return lambda rows: ({name: row} for row in torch.from_numpy(column.take(rows.samples)))
    if not isinstance(column, RaggedColumn):
        return lambda rows: ({name: value} for value in column.take(rows.samples))
    if field.kind == "classes":
        return lambda rows: (
            {name: row} for row in torch.from_numpy(multi_hot(column.take(rows.samples), field.classes))
        )
    if isinstance(asked, Boxes):
        return lambda rows: _boxes(asked, column.take(rows.samples), rows, cropping)
    assert isinstance(asked, Points)
    return lambda rows: _points(asked, column.take(rows.samples), rows, cropping)


@dataclass(frozen=True)
class _Images:
    """Reads masks, or second pictures."""

    pictures: Pictures
    cropping: Cropping | None
    mask: bool

    def of(self, rows: _Rows, stored: NDArray[np.void]) -> Iterator[torch.Tensor]:
        """(height, width) of ids, or (3, height, width); filled where a sample has none."""
        kinds = _tv_tensors()
        for place, record in enumerate(stored):
            pixels = self._pixels(rows, place, record)
            if not self.mask:
                yield as_image(torch.from_numpy(pixels).permute(2, 0, 1))
            else:
                ids = torch.from_numpy(pixels)
                yield ids if kinds is None else kinds.Mask(ids, device=ids.device)

    def _pixels(self, rows: _Rows, place: int, stored: np.void) -> NDArray[Any]:
        sample, record = int(rows.samples[place]), rows.records[place]
        cut = self.cropping
        if stored["format"] == NO_IMAGE:
            size = (int(record["height"]), int(record["width"])) if cut is None else cut.size
            fill = rows.plans[place].crops.rendering.mask_fill if self.mask and rows.plans is not None else 0
            return np.full(size if self.mask else (*size, 3), fill, dtype=np.uint8)
        if cut is not None and rows.plans is not None:
            return self.pictures.field_row(rows.plans[place], cut.size, stored, exact=cut.exact, mask=self.mask)
        read = self.pictures.mask if self.mask else self.pictures.second_picture
        pixels: NDArray[Any] = read(sample, record, stored)
        return pixels


def _boxes(asked: Boxes, boxes: Ragged, rows: _Rows, cropping: Cropping | None) -> Iterator[Values]:
    name, kinds = asked.name, _tv_tensors()
    for place, (part, canvas) in enumerate(_parts(boxes, rows.records)):
        values = boxes.values[part]
        labels = None if boxes.labels is None else boxes.labels[part]
        if cropping is not None and rows.plans is not None:
            none = np.zeros(len(values), dtype=np.int64)
            values = move_boxes(values, none, cropping.geometry(rows.plans[place]))
            kept = large_enough(values, asked.min_size, asked.min_area)
            values, labels, canvas = values[kept], None if labels is None else labels[kept], cropping.size
        value = torch.from_numpy(values)
        if kinds is not None:
            value = kinds.BoundingBoxes(value, format="XYXY", canvas_size=canvas, device=value.device)
        sample = {name: value}
        if labels is not None:
            sample[f"{name}_labels"] = torch.from_numpy(labels)
        yield sample


def _points(asked: Points, points: Ragged, rows: _Rows, cropping: Cropping | None) -> Iterator[Values]:
    name, kinds = asked.name, _tv_tensors()
    for place, (part, canvas) in enumerate(_parts(points, rows.records)):
        values = points.values[part]
        if cropping is not None and rows.plans is not None:
            none = np.zeros(len(values), dtype=np.int64)
            values = move_points(values, none, cropping.geometry(rows.plans[place]), asked.flip_pairs or ())
            canvas = cropping.size
        value = torch.from_numpy(values)
        places = value[..., :2]
        if kinds is not None:
            places = kinds.KeyPoints(places, canvas_size=canvas, device=places.device)
        yield {name: places, f"{name}_visibility": value[..., 2]}


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
