"""Values of fields, of a batch or of stored samples -> marks drawn into a picture, and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.fields import sample_fields
from fastpipe.dataset.format.fields import Field
from fastpipe.dataset.sample_reader import SampleFormat, SampleReader
from fastpipe.plan.batch import BatchPlan

_DRAWN = ("boxes", "mask", "keypoints")
_WRITTEN = ("text", "json", "int", "floats", "classes")
VISIBLE = (*_DRAWN, *_WRITTEN)
"""Kinds of fields that a sheet can show."""

_MOST_CHARACTERS = 1000  # of a text that are looked at: a line has far fewer

# RGB. A label, an id and the number of a point have the colour at this position, and start again
# beyond the last.
_COLOURS = (
    (230, 60, 60),
    (60, 190, 75),
    (70, 110, 255),
    (255, 150, 30),
    (170, 70, 220),
    (40, 200, 210),
    (245, 90, 190),
    (150, 200, 30),
    (150, 100, 60),
    (0, 140, 130),
)
_MASK_SHARE = 0.5
_DARK = (20, 20, 20)
_LIGHT = (255, 255, 255)
_BRIGHT_LUMA = 140  # from which on the text of a tag is dark
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_FONT_SCALE = 0.4
_TAG_HEIGHT = 13
_RADIUS = 3

Pixels = NDArray[np.uint8]
"""(height, width, 3) RGB."""
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Marks:
    """The marks on one picture, in pixels of a canvas that it fills.

    Each list has an entry for each field.
    """

    size: tuple[int, int]  # (width, height) of the canvas
    # (M, 4) x0, y0, x1, y1, and (M,) labels or None.
    boxes: list[tuple[NDArray[np.float32], NDArray[np.int64] | None]] = field(
        default_factory=list
    )
    # (height, width) of ids; 0 is not drawn.
    masks: list[NDArray[Any]] = field(default_factory=list)
    # (M, K, 3) x, y, visibility; 0 is not drawn, and 1 is drawn hollow.
    points: list[NDArray[np.float32]] = field(default_factory=list)


def with_marks(image: Pixels, marks: Marks) -> Pixels:
    """A copy of a picture with marks drawn into it, scaled to its size."""
    drawn = image.copy()
    height, width, _ = image.shape
    scale = np.array([width, height]) / marks.size
    for ids in marks.masks:
        _draw_mask(drawn, ids)
    for boxes, labels in marks.boxes:
        for number, corners in enumerate(boxes.reshape(-1, 2, 2) * scale):
            label = None if labels is None else int(labels[number])
            _draw_box(drawn, corners, number, label)
    for points in marks.points:
        for object_points in points:
            _draw_points(drawn, object_points[:, :2] * scale, object_points[:, 2])
    return drawn


def colour_of(number: int) -> Colour:
    """The RGB colour of a label, an id or a point's number."""
    return _COLOURS[number % len(_COLOURS)]


def _draw_mask(image: Pixels, ids: NDArray[Any]) -> None:
    height, width, _ = image.shape
    # Nearest: ids between two ids would be other objects.
    small = cv2.resize(
        ids.astype(np.int32), (width, height), interpolation=cv2.INTER_NEAREST
    )
    is_drawn = small != 0
    # (pixels, 3)
    colours = np.array(_COLOURS, dtype=np.float32)[small[is_drawn] % len(_COLOURS)]
    mixed = image[is_drawn] * (1 - _MASK_SHARE) + colours * _MASK_SHARE
    image[is_drawn] = np.rint(mixed)


def _draw_box(
    image: Pixels, corners: NDArray[np.float64], number: int, label: int | None
) -> None:
    """Draws a box: (2, 2) x, y of its corners. `number` gives it a colour if it has no label."""
    height, width, _ = image.shape
    last_pixel = (width - 1, height - 1)
    # The corners as pixels, both within the box. Of an empty box they are the same pixel.
    first_corner, end_corner = np.rint(corners).astype(int)
    x0, y0 = np.clip(first_corner, 0, last_pixel).tolist()
    x1, y1 = np.clip(end_corner - 1, (x0, y0), last_pixel).tolist()
    colour = colour_of(number if label is None else label)
    is_large = min(x1 - x0, y1 - y0) > 4
    cv2.rectangle(image, (x0, y0), (x1, y1), colour, 2 if is_large else 1)
    if label is not None:
        _draw_tag(image, str(label), x0, y0, colour)


def _draw_tag(image: Pixels, text: str, box_x: int, box_y: int, colour: Colour) -> None:
    """Writes a label above a box, or into it if there is no room above."""
    (text_width, _), _ = cv2.getTextSize(text, _FONT, _FONT_SCALE, 1)
    width = text_width + 3
    x = max(0, min(box_x, image.shape[1] - width))
    y = box_y
    if box_y >= _TAG_HEIGHT:
        y = box_y - _TAG_HEIGHT
    opposite = (x + width - 1, y + _TAG_HEIGHT - 1)
    cv2.rectangle(image, (x, y), opposite, colour, cv2.FILLED)
    red, green, blue = colour
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    ink = _DARK if luma > _BRIGHT_LUMA else _LIGHT
    baseline = (x + 1, y + _TAG_HEIGHT - 3)
    cv2.putText(image, text, baseline, _FONT, _FONT_SCALE, ink, 1, cv2.LINE_AA)


def _draw_points(
    image: Pixels, points: NDArray[np.float64], visibility: NDArray[np.float32]
) -> None:
    """Draws the points (K, 2) x, y of one object."""
    height, width, _ = image.shape
    for number, (x, y) in enumerate(points.tolist()):
        visible = float(visibility[number])
        is_inside = 0 <= x < width and 0 <= y < height
        if visible <= 0 or not is_inside:
            continue
        center = (int(x), int(y))
        thickness = 1 if visible == 1 else cv2.FILLED
        cv2.circle(image, center, _RADIUS + 1, _LIGHT, cv2.FILLED, cv2.LINE_AA)
        cv2.circle(image, center, _RADIUS, colour_of(number), thickness, cv2.LINE_AA)


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


def of_samples(
    data: Dataset, plan: BatchPlan, fields: Mapping[str, Field]
) -> Iterator[tuple[Marks, list[str]]]:
    """The marks on each whole picture of a plan, and lines with its texts and numbers."""
    chosen = sample_fields(data, list(fields)) if fields else {}
    reader = SampleReader(data, SampleFormat(fields=chosen))
    for row, record in enumerate(plan.records):
        # One by one: a mask of a large picture takes much memory.
        (sample,) = reader.read(plan.ids[row : row + 1])
        arrays: dict[str, NDArray[Any]] = {}
        lines = []
        for name, value in sample.items():
            if isinstance(value, torch.Tensor):
                arrays[name] = _plain_array(value)
        for name, shown in fields.items():
            # Single samples have visibility beside the points, batches behind x and y.
            if shown.kind == "keypoints":
                visibility = arrays[f"{name}_visibility"][..., None]
                arrays[name] = np.concatenate([arrays[name], visibility], axis=2)
            if shown.kind in _WRITTEN:
                lines.append(f"{name}: {_as_text(sample[name], shown)}")
        size = (int(record["width"]), int(record["height"]))
        yield _marks(size, fields, arrays), lines


def _marks(
    size: tuple[int, int],
    fields: Mapping[str, Field],
    values: Mapping[str, NDArray[Any]],
) -> Marks:
    marks = Marks(size)
    for name, shown in fields.items():
        if shown.kind == "boxes":
            marks.boxes.append((values[name], values.get(f"{name}_labels")))
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
        start, end = batch[f"{name}_offsets"][row : row + 2].tolist()
        return _plain_array(values[start:end])
    if f"{name}_counts" in batch:
        # Rows of one length, filled up behind their values.
        count = int(batch[f"{name}_counts"][row])
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
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text[:_MOST_CHARACTERS].split())
