"""A file of Supervisely, in JSON -> the objects of the image that is called like it.

Format: https://docs.supervisely.com/data-organization/00_ann_format_navi. The right and lower pixels
that it writes are inside of an object.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.dataset.format.sample_layout import PNG_MAGIC
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    Bitmap,
    Box,
    Outline,
    PixelPolygon,
    box_around,
    image_size,
    list_of,
    load_json,
    number,
    object_of,
)

_ALPHA_MASK = "alpha_mask"
_LEFT_OUT = {
    "point": "points",
    "line": "lines",
    "polyline": "lines",
    "multiline": "lines",
    "graph": "graphs",
    "cuboid": "cuboids",
    "cuboid_2d": "cuboids",
    "cuboid_3d": "cuboids",
    _ALPHA_MASK: "alpha masks",
}
# Width and height stand in the first bytes of a PNG.
_HEADER_BYTES = 24
_INCLUSIVE = (
    "boxes: {}; the right and lower pixels that Supervisely writes are inside, so these sides are "
    "1 pixel larger than written"
)


def parse(text: str) -> Iterator[AnnotatedImage]:
    """Yields one image, without a path. ValueError: the text is not a file of Supervisely."""
    entry = object_of(load_json(text), "the file")
    if "objects" not in entry:
        raise ValueError("expected objects of Supervisely, got none")
    size = object_of(entry.get("size") or {}, "size")
    image = AnnotatedImage("", image_size(size.get("width"), size.get("height")))
    for index, item in enumerate(list_of(entry["objects"], "objects")):
        try:
            _add_object(image, object_of(item, "an object"))
        except ValueError as problem:
            image.reject_object(f"object {index}: {problem}")
    for tag in list_of(entry.get("tags"), "tags"):
        name = tag.get("name") if isinstance(tag, Mapping) else tag
        image.unpacked.add(f"tag {name}")
    yield image


def _add_object(image: AnnotatedImage, item: Mapping[str, Any]) -> None:
    bitmap = item.get("bitmap")
    outline: Outline
    # Old files do not write the type.
    kind = item.get("geometryType") or ("bitmap" if bitmap else "polygon")
    if kind == _ALPHA_MASK:
        image.unread_outlines = _LEFT_OUT[kind]
    if kind in _LEFT_OUT:
        image.left_out[_LEFT_OUT[kind]] += 1
        return
    if kind == "bitmap":
        image.around["bitmaps"] += 1
        entry = object_of(bitmap, "bitmap")
        box = _box_of_bitmap(entry)
        origin = (round(box[0]), round(box[1]))
        outline = Bitmap(str(entry.get("data")), origin, is_compressed=True)
    elif kind in ("rectangle", "polygon"):
        points = object_of(item.get("points"), "points")
        outline = _outline_of(kind, points)
        left, top, right, bottom = box_around(
            list_of(points.get("exterior"), "exterior")
        )
        width, height = image.size or (right + 1, bottom + 1)
        box = (
            left,
            top,
            max(right, min(right + 1, width)),
            max(bottom, min(bottom + 1, height)),
        )
        image.remarks[_INCLUSIVE] += 1
        if kind == "polygon":
            image.around["polygons"] += 1
    else:
        raise ValueError(f"expected a shape of Supervisely, got {kind!r:.60}")
    if kind != "rectangle":
        image.outlined_count += 1
    image.add(box, item.get("classTitle"), _attributes_of(item), outline)


def _outline_of(kind: str, points: Mapping[str, Any]) -> Outline:
    """The pixels of a rectangle or a polygon. ValueError: a corner is none."""
    exterior = list_of(points.get("exterior"), "exterior")
    if kind == "rectangle":
        left, top, right, bottom = box_around(exterior)
        return PixelPolygon(
            [[left, top], [right, top], [right, bottom], [left, bottom]]
        )
    holes = []
    for hole in list_of(points.get("interior"), "interior"):
        box_around(hole)  # checks the corners
        holes.append([list(map(number, corner[:2])) for corner in hole])
    return PixelPolygon([list(map(number, corner[:2])) for corner in exterior], holes)


def _box_of_bitmap(bitmap: Mapping[str, Any]) -> Box:
    """The box of a bitmap: a compressed PNG, whose left upper pixel lies at `origin`."""
    origin = list_of(bitmap.get("origin"), "origin")
    left, top, _, _ = box_around([origin])
    try:
        data = base64.b64decode(str(bitmap.get("data")))
        png = zlib.decompressobj().decompress(data, _HEADER_BYTES)
    except (binascii.Error, zlib.error, ValueError) as problem:
        raise ValueError(f"its bitmap is damaged: {problem}") from None
    if not png.startswith(PNG_MAGIC) or len(png) < _HEADER_BYTES:
        raise ValueError("its bitmap is damaged: expected a PNG")
    width = int.from_bytes(png[16:20], "big")
    height = int.from_bytes(png[20:24], "big")
    return (left, top, left + width, top + height)


def _attributes_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """The tags of an object: name -> value, or True if it has none."""
    attributes: dict[str, Any] = {}
    for tag in list_of(item.get("tags"), "tags"):
        if isinstance(tag, Mapping):
            value = tag.get("value")
            attributes[str(tag.get("name"))] = True if value is None else value
        else:
            attributes[str(tag)] = True
    return attributes
