"""A line of Labelbox's NDJSON export -> the image with its boxes.

Format: https://docs.labelbox.com/reference/label-export. A line has the labels of an image in each
project, and data_row.external_id is the name of the file that was uploaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    add_objects,
    box_of_sides,
    image_size,
    list_of,
    object_of,
)


def parse(line: object) -> Iterator[AnnotatedImage]:
    """Yields one image. ValueError: the entry is not a line of Labelbox."""
    entry = object_of(line, "a line")
    data_row = object_of(entry.get("data_row"), "data_row")
    attributes = object_of(entry.get("media_attributes") or {}, "media_attributes")
    image = AnnotatedImage(
        str(data_row.get("external_id") or ""),
        image_size(attributes.get("width"), attributes.get("height")),
        is_annotated=False,
    )
    if not image.path:
        image.reject("expected the name of a file as data_row.external_id, got none")
    projects = object_of(entry.get("projects") or {}, "projects")
    for project in projects.values():
        for label in list_of(object_of(project, "a project").get("labels"), "labels"):
            image.is_annotated = True
            annotations = object_of(
                object_of(label, "a label").get("annotations") or {}, "annotations"
            )
            add_objects(
                image, annotations.get("objects"), "objects", "an object", _add_object
            )
            if annotations.get("classifications"):
                image.unpacked.add("classifications")
    yield image


def _add_object(image: AnnotatedImage, entry: Mapping[str, Any]) -> None:
    box = entry.get("bounding_box")
    if box is None:
        image.left_out[
            str(entry.get("annotation_kind") or "objects without a box")
        ] += 1
        return
    sides = object_of(box, "bounding_box")
    image.add(box_of_sides(sides), entry.get("name"))
