"""A frame of BDD100K's or Scalabel's JSON -> the image with its boxes.

Format: https://doc.bdd100k.com/format.html and https://doc.scalabel.ai/format.html. Boxes are taken
as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    add_objects,
    corners,
    image_size,
    object_of,
)

_SHAPES = {
    "poly2d": "polygons and lines (poly2d)",
    "box3d": "boxes in space (box3d)",
    "rle": "masks (rle)",
    "graph": "graphs",
}


def parse(frame: object) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the entry is not a frame."""
    entry = object_of(frame, "a frame")
    if "name" not in entry and "objects" in entry:
        raise ValueError(
            "expected a frame with the name of its image; a file for each image, as in BDD100K's "
            "first release, is not read: convert the files to COCO (bdd2coco)"
        )
    image = AnnotatedImage(str(entry.get("name") or ""))
    size = entry.get("size")
    if isinstance(size, Mapping):
        image.size = image_size(size.get("width"), size.get("height"))
    add_objects(image, entry.get("labels"), "labels", "a label", _add_label)

    attributes = entry.get("attributes")
    if isinstance(attributes, Mapping):
        image.unpacked.update(str(name) for name, value in attributes.items() if value)
    yield image


def _add_label(image: AnnotatedImage, label: Mapping[str, Any]) -> None:
    box = label.get("box2d")
    if not isinstance(box, Mapping):
        kinds = [text for name, text in _SHAPES.items() if label.get(name)]
        image.left_out[kinds[0] if kinds else "labels without a shape"] += 1
        return
    attributes = label.get("attributes")
    values: dict[str, Any] = {}
    if isinstance(attributes, Mapping):
        values = {
            name: value
            for name, value in attributes.items()
            if value not in (None, False, "none")
        }
    if label.get("score") is not None:
        values["score"] = label["score"]
    image.add(
        corners([box.get(side) for side in ("x1", "y1", "x2", "y2")]),
        label.get("category"),
        values,
    )
