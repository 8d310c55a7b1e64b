"""Values of fields, of a batch or of stored samples -> marks to draw, and lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.engine.pictures import Pictures
from fastpipe.format.fields import Field
from fastpipe.plan.batch import BatchPlan
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.fields import sample_fields
from fastpipe.samples.single import FieldValues
from fastpipe.show.marks import Marks

_DRAWN = ("boxes", "mask", "keypoints")
_WRITTEN = ("text", "json", "int", "floats", "classes")
VISIBLE = (*_DRAWN, *_WRITTEN)
"""Kinds of fields that a sheet can show."""

_MOST_CHARACTERS = 1000  # of a text that are looked at: a line has far fewer


def visible(data: Dataset, names: tuple[str, ...]) -> dict[str, Field]:
    """Those of some names that are fields which a sheet can show."""
    return {name: data.fields[name] for name in names if name in data.fields and data.fields[name].kind in VISIBLE}


def marks_of_row(batch: Mapping[str, Any], row: int, fields: Mapping[str, Field], size: tuple[int, int]) -> Marks:
    """What a training loop gets for a row, whatever the form of boxes is.

    Args:
        batch: the values by key.
        row: of the batch.
        fields: to draw.
        size: (height, width) of the row.
    """
    marks = Marks((size[1], size[0]))
    for name, field in fields.items():
        if field.kind == "boxes":
            labels = _part(batch, f"{name}_labels", name, row) if field.labelled else None
            marks.boxes.append((_part(batch, name, name, row), labels))
        elif field.kind == "keypoints":
            marks.points.append(batch[name][row].numpy())
        elif field.kind == "mask":
            marks.masks.append(batch[name][row].numpy())
    return marks


def of_samples(data: Dataset, plan: BatchPlan, fields: Mapping[str, Field]) -> Iterator[tuple[Marks, list[str]]]:
    """The marks on each whole picture of a plan, and the lines that say its texts and numbers."""
    chosen = sample_fields(data, list(fields)) if fields else {}
    values = FieldValues(data, chosen, Pictures(data.index))
    for sample, record in zip(values.of(plan, lambda _: None), plan.records, strict=True):
        marks, lines = Marks((int(record["width"]), int(record["height"]))), []
        for name, field in fields.items():
            value = sample[name]
            if field.kind == "boxes":
                labels = sample[f"{name}_labels"].numpy() if field.labelled else None
                marks.boxes.append((_plain(value), labels))
            elif field.kind == "keypoints":
                visibility = sample[f"{name}_visibility"].numpy()
                marks.points.append(np.concatenate([_plain(value), visibility[..., None]], axis=2))
            elif field.kind == "mask":
                marks.masks.append(_plain(value))
            else:
                lines.append(f"{name}: {_written(value, field)}")
        yield marks, lines


def _part(batch: Mapping[str, Any], key: str, name: str, row: int) -> NDArray[Any]:
    """A row's boxes, or their labels, of any layout."""
    if (offsets := batch.get(f"{name}_offsets")) is not None:
        part = batch[key][int(offsets[row]) : int(offsets[row + 1])]
    elif (counts := batch.get(f"{name}_counts")) is not None:
        part = batch[key][row, : int(counts[row])]
    else:
        part = batch[key][row]
    array: NDArray[Any] = part.numpy()
    return array


def _plain(value: torch.Tensor) -> NDArray[Any]:
    """An array, of a tv_tensor too."""
    array: NDArray[Any] = value.as_subclass(torch.Tensor).numpy()
    return array


def _written(value: Any, field: Field) -> str:
    if field.kind == "classes":
        numbers = torch.nonzero(value).flatten().tolist()
        return ", ".join(field.names[number] if field.names else str(number) for number in numbers)
    if field.kind == "floats":
        return ", ".join(f"{number:g}" for number in value.tolist())
    text = value[:_MOST_CHARACTERS] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text[:_MOST_CHARACTERS].split())
