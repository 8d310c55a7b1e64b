"""A file of labelme, in JSON -> the image that it annotates.

Format: https://github.com/wkentaro/labelme; what labelme's script labelme2coco.py makes of it.
AnyLabeling and X-AnyLabeling write it, too, with more entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools import outline
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    Bitmap,
    Box,
    Outline,
    box_around,
    box_around_ellipse,
    class_name,
    corners,
    image_size,
    list_of,
    load_json,
    object_of,
)

# Shapes -> what they are called in a message.
_WITHOUT_AREA = {
    "point": "points",
    "points": "points",
    "line": "lines",
    "linestrip": "lines",
}
_AROUND = {
    "polygon": "polygons",
    "mask": "masks",
    "rotation": "rotated boxes",
    "oriented_rectangle": "rotated boxes",
    "quadrilateral": "polygons",
}


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the text is not a file of labelme."""
    entry = object_of(load_json(text), "the file")
    if "shapes" not in entry:
        raise ValueError("expected shapes of labelme, got none")
    shapes = list_of(entry["shapes"], "shapes")
    image = AnnotatedImage(
        str(entry.get("imagePath") or ""),
        image_size(entry.get("imageWidth"), entry.get("imageHeight")),
    )
    # Name and group of an object in several shapes -> its number among the boxes.
    grouped: dict[tuple[str, Any], int] = {}
    for index, shape in enumerate(shapes):
        try:
            _add_shape(image, object_of(shape, "a shape"), grouped)
        except ValueError as problem:
            image.reject_object(f"shape {index}: {problem}")

    flags = entry.get("flags")
    if isinstance(flags, Mapping):
        image.tags = [str(name) for name, value in flags.items() if value is True]
    yield image


def _add_shape(
    image: AnnotatedImage,
    shape: Mapping[str, Any],
    grouped: dict[tuple[str, Any], int],
) -> None:
    # The first versions of labelme had polygons only, and no type.
    kind = str(shape.get("shape_type") or "polygon")
    if kind in _WITHOUT_AREA:
        image.left_out[_WITHOUT_AREA[kind]] += 1
        return
    points = list_of(shape.get("points"), "points")
    box = _box_of(kind, points)
    if kind == "circle":
        image.around["circles"] += 1
    elif kind in _AROUND:
        image.around[_AROUND[kind]] += 1

    shape_outline = _outline_of(kind, points, box)
    if kind == "mask" and isinstance(shape.get("mask"), str):
        shape_outline = Bitmap(shape["mask"], (round(box[0]), round(box[1])))
    if kind != "rectangle" and shape_outline:
        image.outlined_count += 1

    # Shapes of one name and one group are parts of one object.
    name = class_name(shape.get("label"))
    group = shape.get("group_id")
    if isinstance(group, (int, str)):
        first = grouped.setdefault((name, group), len(image.boxes))
        if first < len(image.boxes):
            image.boxes[first] = box_around(
                [image.boxes[first][:2], image.boxes[first][2:], box[:2], box[2:]]
            )
            image.outlines[first] = _joined(image.outlines[first], shape_outline)
            text = (
                "shapes of the class and group_id of another one: {}; as in labelme's scripts they "
                "are one object, with one box"
            )
            image.remarks[text] += 1
            return
    image.add(box, name, _attributes_of(shape), shape_outline)


def _joined(first: Outline, second: Outline) -> Outline:
    """The outline of an object of two shapes; none if one of them has none."""
    if first and second and isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    return []


def _outline_of(kind: str, points: list[Any], box: Box) -> Outline:
    """What a shape covers; nothing for a mask, whose picture is in the file."""
    if kind == "circle":
        left, top, right, bottom = box
        radius = (right - left) / 2
        centre = ((left + right) / 2, (top + bottom) / 2)
        return outline.ellipse(centre, (radius, radius))
    if kind == "mask":
        return []
    if kind == "rectangle":
        return outline.rectangle(box)
    return outline.polygon(points)


def _point(point: Any) -> tuple[float, float]:
    """x and y of a point. ValueError: it is none."""
    x, y, _, _ = box_around([point])
    return x, y


def _box_of(kind: str, points: list[Any]) -> Box:
    if kind == "circle":  # the centre, and a point on the circle
        if len(points) != 2:
            raise ValueError(f"expected two points of a circle, got {len(points)}")
        x, y = _point(points[0])
        edge_x, edge_y = _point(points[1])
        radius = math.hypot(edge_x - x, edge_y - y)
        return box_around_ellipse((x, y), (radius, radius))
    if kind == "mask":  # its first and last pixel
        left, top, right, bottom = box_around(points)
        return (left, top, right + 1, bottom + 1)
    if kind == "rectangle" and len(points) == 2:
        x0, y0 = _point(points[0])
        x1, y1 = _point(points[1])
        return corners([x0, y0, x1, y1])
    if kind != "rectangle" and kind not in _AROUND:
        raise ValueError(f"expected a shape of labelme, got {kind!r:.60}")
    # X-AnyLabeling writes all four corners of a rectangle.
    return box_around(points)


def _attributes_of(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a shape that say something."""
    attributes: dict[str, Any] = {}
    flags = shape.get("flags")
    if isinstance(flags, Mapping):
        attributes.update(
            {name: True for name, value in flags.items() if value is True}
        )
    more = shape.get("attributes")
    if isinstance(more, Mapping):
        attributes.update(more)
    for name in ("description", "difficult", "score"):
        if shape.get(name):
            attributes[name] = shape[name]
    return attributes
