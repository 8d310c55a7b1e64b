"""The names of fields, and sample numbers -> a dict for each sample; tv_tensors where torchvision is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.engine.pictures import Pictures
from fastpipe.format.columns import Ragged, RaggedColumn, RowColumn, open_column
from fastpipe.format.fields import NO_IMAGE, Field
from fastpipe.format.index import Index
from fastpipe.format.source_paths import SourcePaths
from fastpipe.loading.fields import OWN, multi_hot

Values = dict[str, Any]
# (samples, records) -> for each sample, what goes into its dict.
_Reader = Callable[[NDArray[np.int64], NDArray[np.void]], Iterator[Values]]


class FieldValues:
    """Reads fields of single samples. One process's: it has open files.

    Args:
        index: of the dataset.
        names: the keys of a sample, checked, in order.
        pictures: reads masks and second pictures.

    Raises:
        DatasetError: a field's files are missing or damaged.
    """

    def __init__(self, index: Index, names: tuple[str, ...], pictures: Pictures) -> None:
        self._readers = [
            self._own(index, name) if name in OWN else _of(index, index.fields[name], pictures) for name in names
        ]

    def of(
        self, samples: NDArray[np.int64], records: NDArray[np.void], image_of: Callable[[int], Any]
    ) -> Iterator[Values]:
        """The dict of each sample.

        Args:
            samples: (n,) their numbers.
            records: (n,) their index records.
            image_of: makes the image of samples[i]; called when its dict is asked for, if images were.

        Raises:
            DatasetError: a file cannot be read, or is damaged.
        """
        columns = [reader(samples, records) for reader in self._readers]
        for row in range(len(samples)):
            sample: Values = {}
            for column in columns:
                sample.update(next(column))
            if "image" in sample:
                sample["image"] = image_of(row)
            yield sample

    @staticmethod
    def _own(index: Index, name: str) -> _Reader:
        if name == "key":
            paths = SourcePaths(index)
            return lambda samples, records: ({name: path} for path in paths.of(samples, records))
        if name == "label":
            return lambda samples, records: ({name: label} for label in records["label"].tolist())
        return lambda samples, records: ({name: number} for number in samples.tolist())  # of images, a place is kept


def as_image(image: torch.Tensor) -> torch.Tensor:
    """A tv_tensors.Image of the same memory, where torchvision is installed."""
    kinds = _tv_tensors()
    return image if kinds is None else kinds.Image(image)


def _of(index: Index, field: Field, pictures: Pictures) -> _Reader:
    column, name = open_column(index, field), field.name
    if isinstance(column, RowColumn):
        if field.kind in ("mask", "image"):
            decode = partial(_mask if field.kind == "mask" else _picture, pictures)
            return lambda samples, records: (
                {name: decode(*row)} for row in zip(samples.tolist(), records, column.take(samples), strict=True)
            )
        if field.kind == "int":
            return lambda samples, _: ({name: number} for number in column.take(samples).tolist())
        return lambda samples, _: ({name: row} for row in torch.from_numpy(column.take(samples)))
    if not isinstance(column, RaggedColumn):
        return lambda samples, _: ({name: value} for value in column.take(samples))
    if field.kind == "classes":
        return lambda samples, _: (
            {name: row} for row in torch.from_numpy(multi_hot(column.take(samples), field.classes))
        )
    split = _boxes if field.kind == "boxes" else _points
    return lambda samples, records: split(name, column.take(samples), records)


def _mask(pictures: Pictures, sample: int, record: np.void, stored: np.void) -> torch.Tensor:
    """(height, width) of ids; zeros where the sample has no mask."""
    if stored["format"] == NO_IMAGE:
        ids = torch.zeros((int(record["height"]), int(record["width"])), dtype=torch.uint8)
    else:
        ids = torch.from_numpy(pictures.mask(sample, record, stored))
    kinds = _tv_tensors()
    return ids if kinds is None else kinds.Mask(ids)


def _picture(pictures: Pictures, sample: int, record: np.void, stored: np.void) -> torch.Tensor:
    """(3, height, width); zeros where the sample has no second picture."""
    if stored["format"] == NO_IMAGE:
        pixels = np.zeros((int(record["height"]), int(record["width"]), 3), dtype=np.uint8)
    else:
        pixels = pictures.second_picture(sample, record, stored)
    return as_image(torch.from_numpy(pixels).permute(2, 0, 1))


def _boxes(name: str, boxes: Ragged, records: NDArray[np.void]) -> Iterator[Values]:
    kinds = _tv_tensors()
    for part, canvas in _parts(boxes, records):
        value = torch.from_numpy(boxes.values[part])
        if kinds is not None:
            value = kinds.BoundingBoxes(value, format="XYXY", canvas_size=canvas)
        sample = {name: value}
        if boxes.labels is not None:
            sample[f"{name}_labels"] = torch.from_numpy(boxes.labels[part])
        yield sample


def _points(name: str, points: Ragged, records: NDArray[np.void]) -> Iterator[Values]:
    kinds = _tv_tensors()
    for part, canvas in _parts(points, records):
        value = torch.from_numpy(points.values[part])
        places = value[..., :2]
        if kinds is not None:
            places = kinds.KeyPoints(places, canvas_size=canvas)
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
