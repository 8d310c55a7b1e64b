"""Values of fields, of a batch or of stored samples -> marks, drawn into a picture, and lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.engine.pictures import Pictures
from fastpipe.format.fields import Field
from fastpipe.plan.batch import BatchPlan
from fastpipe.samples.dataset import Dataset
from fastpipe.samples.fields import sample_fields
from fastpipe.samples.single import FieldValues

_DRAWN = ("boxes", "mask", "keypoints")
_WRITTEN = ("text", "json", "int", "floats", "classes")
VISIBLE = (*_DRAWN, *_WRITTEN)
"""Kinds of fields that a sheet can show."""

_MOST_CHARACTERS = 1000  # of a text that are looked at: a line has far fewer

# RGB; a label, an id and the number of a point have the colour at this place, over again beyond the last.
_COLOURS = (
    *((230, 60, 60), (60, 190, 75), (70, 110, 255), (255, 150, 30), (170, 70, 220)),
    *((40, 200, 210), (245, 90, 190), (150, 200, 30), (150, 100, 60), (0, 140, 130)),
)
_MASK_SHARE = 0.5
_DARK, _LIGHT = (20, 20, 20), (255, 255, 255)
_BRIGHT = 140  # luma of a tag from which its text is dark
_FONT, _FONT_SCALE, _TAG_HEIGHT = cv2.FONT_HERSHEY_SIMPLEX, 0.4, 13
_RADIUS = 3


@dataclass(frozen=True)
class Marks:
    """What is drawn on one picture, in pixels of a canvas (width, height) that it fills; of each field:
    boxes (M, 4) x0, y0, x1, y1 with (M,) labels or None; masks (height, width) of ids, of which 0 is not drawn;
    points (M, K, 3) x, y, visibility, of which 0 is not drawn and 1 is drawn hollow.
    """

    size: tuple[int, int]
    boxes: list[tuple[NDArray[np.float32], NDArray[np.int64] | None]] = field(default_factory=list)
    masks: list[NDArray[Any]] = field(default_factory=list)
    points: list[NDArray[np.float32]] = field(default_factory=list)


def with_marks(image: NDArray[np.uint8], marks: Marks) -> NDArray[np.uint8]:
    """A copy of a picture (h, w, 3) RGB with masks, boxes and points drawn into it, scaled to its size."""
    drawn = image.copy()
    height, width, _ = image.shape
    scale = np.array([width / marks.size[0], height / marks.size[1]])
    for ids in marks.masks:
        _draw_mask(drawn, ids)
    for boxes, labels in marks.boxes:
        for number, box in enumerate(boxes.reshape(-1, 2, 2) * scale):
            _draw_box(drawn, box, number, None if labels is None else int(labels[number]))
    for points in marks.points:
        for thing in points:
            _draw_points(drawn, thing[:, :2] * scale, thing[:, 2])
    return drawn


def colour_of(number: int) -> tuple[int, int, int]:
    """The RGB colour of a label, an id or a point's number."""
    return _COLOURS[number % len(_COLOURS)]


def _draw_mask(image: NDArray[np.uint8], ids: NDArray[Any]) -> None:
    height, width, _ = image.shape
    small = cv2.resize(ids.astype(np.int32), (width, height), interpolation=cv2.INTER_NEAREST)
    there = small != 0
    colours = np.array(_COLOURS, dtype=np.float32)[small[there] % len(_COLOURS)]
    image[there] = np.rint(image[there] * (1 - _MASK_SHARE) + colours * _MASK_SHARE)


def _draw_box(image: NDArray[np.uint8], box: NDArray[np.float64], number: int, label: int | None) -> None:
    last_pixel = np.array([image.shape[1] - 1, image.shape[0] - 1])
    first = np.clip(np.rint(box[0]).astype(int), 0, last_pixel)
    last = np.clip(np.rint(box[1]).astype(int) - 1, first, last_pixel)
    colour = colour_of(number if label is None else label)
    left, top, right, bottom = *map(int, first), *map(int, last)
    cv2.rectangle(image, (left, top), (right, bottom), colour, 2 if min(right - left, bottom - top) > 4 else 1)
    if label is None:
        return
    text = str(label)
    wide = cv2.getTextSize(text, _FONT, _FONT_SCALE, 1)[0][0] + 3
    # Above the box, or in it if there is no room above.
    tag_top = top - _TAG_HEIGHT if top >= _TAG_HEIGHT else top
    tag_left = max(0, min(left, image.shape[1] - wide))
    cv2.rectangle(image, (tag_left, tag_top), (tag_left + wide - 1, tag_top + _TAG_HEIGHT - 1), colour, cv2.FILLED)
    luma = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    ink = _DARK if luma > _BRIGHT else _LIGHT
    cv2.putText(image, text, (tag_left + 1, tag_top + _TAG_HEIGHT - 3), _FONT, _FONT_SCALE, ink, 1, cv2.LINE_AA)


def _draw_points(image: NDArray[np.uint8], places: NDArray[np.float64], visibility: NDArray[np.float32]) -> None:
    for number, (place, seen) in enumerate(zip(places, visibility.tolist(), strict=True)):
        if seen <= 0 or not (place >= 0).all() or not (place < image.shape[1::-1]).all():
            continue
        x, y = (int(value) for value in place)
        cv2.circle(image, (x, y), _RADIUS + 1, _LIGHT, cv2.FILLED, cv2.LINE_AA)
        cv2.circle(image, (x, y), _RADIUS, colour_of(number), 1 if seen == 1 else cv2.FILLED, cv2.LINE_AA)


def visible(data: Dataset, names: tuple[str, ...]) -> dict[str, Field]:
    """Those of some names that are fields which a sheet can show."""
    return {name: data.fields[name] for name in names if name in data.fields and data.fields[name].kind in VISIBLE}


def marks_of_row(batch: Mapping[str, Any], row: int, fields: Mapping[str, Field], size: tuple[int, int]) -> Marks:
    """What a training loop gets for a row of (height, width), whatever the form of boxes is."""
    drawn = [name for name, kept in fields.items() if kept.kind in _DRAWN]
    keys = {key: name for name in drawn for key in (name, f"{name}_labels") if key in batch}
    return _marks((size[1], size[0]), fields, {key: _part(batch, key, name, row) for key, name in keys.items()})


def of_samples(data: Dataset, plan: BatchPlan, fields: Mapping[str, Field]) -> Iterator[tuple[Marks, list[str]]]:
    """The marks on each whole picture of a plan, and the lines that say its texts and numbers."""
    chosen = sample_fields(data, list(fields)) if fields else {}
    values = FieldValues(data, chosen, Pictures(data.index))
    for sample, record in zip(values.of(plan, lambda _: None), plan.records, strict=True):
        arrays = {name: _plain(value) for name, value in sample.items() if isinstance(value, torch.Tensor)}
        for name, kept in fields.items():
            if kept.kind == "keypoints":
                arrays[name] = np.concatenate([arrays[name], arrays[f"{name}_visibility"][..., None]], axis=2)
        lines = [f"{name}: {_written(sample[name], kept)}" for name, kept in fields.items() if kept.kind in _WRITTEN]
        yield _marks((int(record["width"]), int(record["height"])), fields, arrays), lines


def _marks(size: tuple[int, int], fields: Mapping[str, Field], values: Mapping[str, NDArray[Any]]) -> Marks:
    boxes, masks, points = ([name for name, kept in fields.items() if kept.kind == kind] for kind in _DRAWN)
    return Marks(
        size,
        [(values[name], values.get(f"{name}_labels")) for name in boxes],
        [values[name] for name in masks],
        [values[name] for name in points],
    )


def _part(batch: Mapping[str, Any], key: str, name: str, row: int) -> NDArray[Any]:
    """A row's values of a field, of any layout."""
    if (offsets := batch.get(f"{name}_offsets")) is not None:
        return _plain(batch[key][int(offsets[row]) : int(offsets[row + 1])])
    if (counts := batch.get(f"{name}_counts")) is not None:
        return _plain(batch[key][row, : int(counts[row])])
    return _plain(batch[key][row])


def _plain(value: torch.Tensor) -> NDArray[Any]:
    """An array, of a tv_tensor too."""
    return np.asarray(value.as_subclass(torch.Tensor).numpy())


def _written(value: Any, field: Field) -> str:
    if field.kind == "classes":
        numbers = torch.nonzero(value).flatten().tolist()
        return ", ".join(field.names[number] if field.names else str(number) for number in numbers)
    if field.kind == "floats":
        return ", ".join(f"{number:g}" for number in value.tolist())
    text = value[:_MOST_CHARACTERS] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text[:_MOST_CHARACTERS].split())
