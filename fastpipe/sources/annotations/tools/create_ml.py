"""An entry of Create ML's JSON -> the image with its boxes.

Format: https://developer.apple.com/documentation/createml/building-an-object-detector-data-source: the
centre, width and height of each box, in pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    add_objects,
    box_of_size,
    number,
    object_of,
)

_CENTRES = "boxes: {}; x and y are taken as the centre of a box, as Create ML does"


def parse(entry: object) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the entry is not one of Create ML."""
    item = object_of(entry, "an entry")
    path = item.get("image") or item.get("imagefilename") or item.get("filename")
    image = AnnotatedImage(str(path or ""))
    annotations = item.get("annotations", item.get("annotation"))
    add_objects(image, annotations, "annotations", "an annotation", _add_box)
    yield image


def _add_box(image: AnnotatedImage, annotation: Mapping[str, Any]) -> None:
    coordinates = object_of(annotation.get("coordinates"), "coordinates")
    x, y, width, height = [
        number(coordinates.get(name)) for name in ("x", "y", "width", "height")
    ]
    left = x - width / 2
    top = y - height / 2
    box = box_of_size([left, top, width, height])
    image.add(box, annotation.get("label"))
    image.remarks[_CENTRES] += 1
