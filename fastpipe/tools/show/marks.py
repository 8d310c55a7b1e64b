"""Values of fields, of a batch or of stored samples -> marks on a picture, and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import sample_fields
from fastpipe.dataset.format.fields import ARRAY_KINDS, Field
from fastpipe.dataset.sample_reader import SampleFormat, SampleReader
from fastpipe.errors import first_names, format_count
from fastpipe.plan.batch import BatchPlan
from fastpipe.tools.show.drawing import BoxMarks, Marks

_DRAWN = ("boxes", "mask", "keypoints")
_WRITTEN = ("text", "json", "int", "floats", "classes", *ARRAY_KINDS, "images")
VISIBLE = (*_DRAWN, *_WRITTEN)
"""Kinds of fields that a sheet can show."""

_MAX_SIZES = 4  # of the pictures in a list
_MAX_CHARACTERS = 1000  # of a text that are looked at: a line has far fewer


def visible(data: Dataset, names: tuple[str, ...]) -> dict[str, Field]:
    """Those of some names that are fields which a sheet can show."""
    fields = {}
    for name in names:
        if name in data.fields and data.fields[name].kind in VISIBLE:
            fields[name] = data.fields[name]
    return fields


def marks_of_row(
    batch: Mapping[str, Any],
    row: int,
    fields: Mapping[str, Field],
    size: tuple[int, int],
) -> Marks:
    """The marks on a row of a batch.

    Args:
        batch: as a training loop gets it, with boxes in any form.
        row: its number.
        fields: those that are shown.
        size: (height, width) of the rows.
    """
    values = {}
    for name, shown in fields.items():
        if shown.kind in _DRAWN:
            for key in (name, f"{name}_labels"):
                if key in batch:
                    values[key] = _values_of_row(batch, key, name, row)
    height, width = size
    return _marks((width, height), fields, values)


class ShownSample(NamedTuple):
    """What a sheet shows of a sample besides its whole picture.

    Attributes:
        marks: on the picture.
        lines: its texts and numbers.
        maps: its whole maps by field, (height, width) or (channels, height, width).
    """

    marks: Marks
    lines: list[str]
    maps: dict[str, NDArray[Any]]


def of_samples(
    data: Dataset, plan: BatchPlan, fields: Mapping[str, Field]
) -> Iterator[ShownSample]:
    """What a sheet shows of each sample of a plan."""
    chosen = {}
    if fields:
        chosen = sample_fields(data, list(fields))
    reader = SampleReader(data, SampleFormat(fields=chosen))
    for row, record in enumerate(plan.records):
        # One by one: a mask of a large picture takes much memory.
        ids = plan.ids[row : row + 1]
        (sample,) = reader.read(ids)
        arrays: dict[str, NDArray[Any]] = {}
        lines = []
        for name, value in sample.items():
            if isinstance(value, torch.Tensor):
                arrays[name] = _plain_array(value)
        for name, shown in fields.items():
            # Single samples have visibility beside the points, batches behind x and y.
            if shown.kind == "keypoints":
                points = arrays[name]
                visibility = arrays[f"{name}_visibility"][..., None]
                arrays[name] = np.concatenate([points, visibility], axis=2)
            if shown.kind in _WRITTEN:
                text = _as_text(sample[name], shown)
                lines.append(f"{name}: {text}")
        maps = {}
        for name, shown in fields.items():
            if shown.kind == "map":
                maps[name] = arrays[name]
        width = int(record["width"])
        height = int(record["height"])
        marks = _marks((width, height), fields, arrays)
        yield ShownSample(marks, lines, maps)


def _marks(
    size: tuple[int, int],
    fields: Mapping[str, Field],
    values: Mapping[str, NDArray[Any]],
) -> Marks:
    marks = Marks(size)
    for name, shown in fields.items():
        if shown.kind == "boxes":
            labels = values.get(f"{name}_labels")
            box_marks = BoxMarks(values[name], labels, shown.names)
            marks.boxes.append(box_marks)
        elif shown.kind == "mask":
            marks.masks.append(values[name])
        elif shown.kind == "keypoints":
            marks.points.append(values[name])
    return marks


def _values_of_row(
    batch: Mapping[str, Any], key: str, name: str, row: int
) -> NDArray[Any]:
    """A row's values of a field, or of its labels, in any form of Boxes."""
    values = batch[key]
    if f"{name}_offsets" in batch:
        # The values of all rows, one behind the other.
        offsets = batch[f"{name}_offsets"]
        start, end = offsets[row : row + 2].tolist()
        return _plain_array(values[start:end])
    if f"{name}_counts" in batch:
        # Rows of one length, filled up behind their values.
        counts = batch[f"{name}_counts"]
        count = int(counts[row])
        return _plain_array(values[row, :count])
    return _plain_array(values[row])


def _plain_array(value: torch.Tensor) -> NDArray[Any]:
    """An array, of a tv_tensor too."""
    return np.asarray(value.as_subclass(torch.Tensor).numpy())


def _as_text(value: Any, field: Field) -> str:
    if field.kind == "classes":
        labels = torch.nonzero(value).flatten().tolist()
        names = field.names or range(field.classes)
        return ", ".join(str(names[label]) for label in labels)
    if field.kind == "floats":
        return ", ".join(f"{number:g}" for number in value.tolist())
    if field.kind in ARRAY_KINDS:
        return _describe_array(value)
    if field.kind == "images":
        return _describe_pictures(value)
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return " ".join(text[:_MAX_CHARACTERS].split())


def _describe_array(array: torch.Tensor) -> str:
    """The dtype, the shape and the range of an array; a single number as it is."""
    dtype = str(array.dtype).removeprefix("torch.")
    if array.ndim == 0:
        return f"{array.item()} ({dtype})"
    text = f"{dtype} {tuple(array.shape)}"
    numbers = array.double()
    finite = numbers[torch.isfinite(numbers)]
    if not finite.numel():
        return text
    return f"{text}, {finite.min():g} to {finite.max():g}"


def _describe_pictures(pictures: Sequence[torch.Tensor]) -> str:
    """How many pictures a list has, and the width and height of each."""
    sizes = []
    for picture in pictures:
        height, width = picture.shape[-2:]
        sizes.append(f"{width} x {height}")
    text = format_count(len(pictures), "image")
    if not sizes:
        return text
    return f"{text}: {first_names(sizes, _MAX_SIZES)}"
