"""A file of SA-1B (Segment Anything) -> its image with the boxes of the masks.

Format: https://ai.meta.com/datasets/segment-anything/: an object with `image` and `annotations`.
Each annotation has `bbox` (left, top, width, height), `segmentation` as COCO's runs, and scores.
There are no classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    add_objects,
    box_of_size,
    image_size,
    list_of,
    load_json,
    object_of,
)

_CLASS = "object"
_ATTRIBUTES = ("area", "predicted_iou", "stability_score")
_WITHOUT_CLASS = (
    "boxes: {}, those of the masks; SA-1B has no classes, so their class is called "
    + _CLASS
)
_MASKS = (
    "masks of objects that are not packed: {}; they overlap, and one field of masks cannot hold "
    "them"
)


def parse(text: str) -> Iterator[AnnotatedImage]:
    """ValueError: the text is not a file of SA-1B."""
    fields = object_of(load_json(text), "the file")
    entry = object_of(fields.get("image"), "image")
    image = AnnotatedImage(
        str(entry.get("file_name") or ""),
        image_size(entry.get("width"), entry.get("height")),
    )
    annotations = list_of(fields.get("annotations"), "annotations")
    add_objects(image, annotations, "annotations", "an annotation", _add_mask)
    yield image


def _add_mask(image: AnnotatedImage, annotation: Mapping[str, Any]) -> None:
    attributes = {}
    for name in _ATTRIBUTES:
        if name in annotation:
            attributes[name] = annotation[name]
    box = box_of_size(list_of(annotation.get("bbox"), "bbox"))
    image.add(box, _CLASS, attributes)
    image.remarks[_WITHOUT_CLASS] += 1
    if annotation.get("segmentation"):
        image.remarks[_MASKS] += 1
