"""The JSON or CSV of VGG's image annotator (VIA) 1 or 2 -> the images that it annotates.

Format: the exports "annotations as JSON" and "as CSV", and the project, of https://www.robots.ox.ac.uk/~vgg/software/via/.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastpipe.sources.annotations.tools import outline
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    Box,
    Outline,
    box_around,
    box_around_ellipse,
    box_of_size,
    load_json,
    number,
    object_of,
)

# Names of attributes that say the class, the most certain one first.
_CLASS_ATTRIBUTES = (
    "class",
    "label",
    "category",
    "class_name",
    "name",
    "type",
    "object",
    "object_name",
    "species",
)
_ONLY_CLASS = "object"
_POLYLINES = ("polyline", "line")

_ImageAndRegions = tuple[Mapping[str, Any], list[Mapping[str, Any]]]


def parse(text: str) -> Iterator[AnnotatedImage]:
    """ValueError: the text is not a file of VIA."""
    project = object_of(load_json(text), "the file")
    entries = object_of(project.get("_via_img_metadata", project), "_via_img_metadata")
    regions_of_images: list[_ImageAndRegions] = []
    for entry in entries.values():
        image = object_of(entry, "an image")
        regions_of_images.append((image, _regions_of(image)))
    yield from _annotated_all(regions_of_images)


def parse_table(text: str) -> Iterator[AnnotatedImage]:
    """As `parse`, of the export "annotations as CSV", which has a row for each region."""
    images: dict[str, _ImageAndRegions] = {}
    for row in csv.DictReader(io.StringIO(text, newline="")):
        path = row.get("filename") or row.get("#filename") or ""
        file_attributes = load_json(row.get("file_attributes") or "{}")
        entry = {"filename": path, "file_attributes": file_attributes}
        _, regions = images.setdefault(path, (entry, []))
        shape = load_json(row.get("region_shape_attributes") or "{}")
        # An image without a region has a row as well.
        if shape:
            attributes = load_json(row.get("region_attributes") or "{}")
            region = {"shape_attributes": shape, "region_attributes": attributes}
            regions.append(region)
    yield from _annotated_all(list(images.values()))


def _annotated_all(
    regions_of_images: Sequence[_ImageAndRegions],
) -> Iterator[AnnotatedImage]:
    all_regions = [region for _, regions in regions_of_images for region in regions]
    class_attribute = _find_class_attribute(all_regions)
    for entry, regions in regions_of_images:
        yield _annotated(entry, regions, class_attribute)


def _regions_of(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The regions of an image: VIA 1 has them in an object, VIA 2 in a list."""
    regions = entry.get("regions")
    if isinstance(regions, Mapping):
        regions = list(regions.values())
    if not isinstance(regions, list):
        raise ValueError(f"expected regions of an image, got {entry!r:.60}")
    return [object_of(region, "a region") for region in regions]


def _find_class_attribute(regions: Sequence[Mapping[str, Any]]) -> str | None:
    """The attribute with the classes; None if the regions have no attributes."""
    counts: Counter[str] = Counter()
    for region in regions:
        attributes = region.get("region_attributes")
        if isinstance(attributes, Mapping):
            counts.update(
                name for name, value in attributes.items() if _class_in(value)
            )
    for name in _CLASS_ATTRIBUTES:
        for written in counts:
            if written.lower() == name:
                return written
    if len(counts) > 1:
        raise ValueError(
            f"its regions have the attributes {', '.join(sorted(counts))}, and none has the name "
            "of a class; rename the one with the classes to class"
        )
    return next(iter(counts), None)


def _class_in(value: object) -> str:
    """The class that an attribute says: a text, or the only box that is ticked; else ""."""
    if isinstance(value, Mapping):
        ticked = [str(name) for name, is_ticked in value.items() if is_ticked is True]
        return ticked[0] if len(ticked) == 1 else ""
    return str(value).strip() if isinstance(value, (str, int)) else ""


def _annotated(
    entry: Mapping[str, Any],
    regions: Sequence[Mapping[str, Any]],
    class_attribute: str | None,
) -> AnnotatedImage:
    image = AnnotatedImage(str(entry.get("filename") or ""))
    for index, region in enumerate(regions):
        attributes = dict(
            object_of(region.get("region_attributes") or {}, "attributes")
        )
        try:
            box = _box_of(image, object_of(region.get("shape_attributes"), "a shape"))
            if box is None:
                continue
            if class_attribute is None:
                text = f"regions without a class: {{}}; their class is called {_ONLY_CLASS}"
                image.remarks[text] += 1
                name = _ONLY_CLASS
            else:
                name = _class_in(attributes.pop(class_attribute, ""))
            written = {key: value for key, value in attributes.items() if value}
            region_outline = _outline_of(region["shape_attributes"], box)
            if region["shape_attributes"].get("name") != "rect":
                image.outlined_count += 1
            image.add(box, name, written, region_outline)
        except ValueError as problem:
            image.reject_object(f"region {index}: {problem}")
    if not regions:
        text = "images without a region: {}; they are packed as images without boxes"
        image.remarks[text] += 1
    more = entry.get("file_attributes")
    if isinstance(more, Mapping):
        image.unpacked.update(str(name) for name, value in more.items() if value)
    return image


def _outline_of(shape: Mapping[str, Any], box: Box) -> Outline:
    """What a region with a box covers."""
    kind = shape.get("name")
    if kind == "polygon":
        points = zip(shape["all_points_x"], shape["all_points_y"], strict=True)
        return outline.polygon(points)
    if kind == "rect":
        return outline.rectangle(box)
    centre = (number(shape.get("cx")), number(shape.get("cy")))
    if kind == "circle":
        radius = number(shape.get("r"))
        return outline.ellipse(centre, (radius, radius))
    radii = (number(shape.get("rx")), number(shape.get("ry")))
    degrees = math.degrees(number(shape.get("theta") or 0))
    return outline.ellipse(centre, radii, degrees)


def _box_of(image: AnnotatedImage, shape: Mapping[str, Any]) -> Box | None:
    """The box of a region; None if it has none."""
    kind = shape.get("name")
    if kind == "rect":
        return box_of_size([shape.get(side) for side in ("x", "y", "width", "height")])
    if kind in ("circle", "ellipse"):
        image.around[f"{kind}s"] += 1
        centre = (number(shape.get("cx")), number(shape.get("cy")))
        if kind == "circle":
            radius = number(shape.get("r"))
            return box_around_ellipse(centre, (radius, radius))
        # VIA 2 writes theta, in radians.
        degrees = math.degrees(number(shape.get("theta") or 0))
        radii = (number(shape.get("rx")), number(shape.get("ry")))
        return box_around_ellipse(centre, radii, degrees)
    if kind == "polygon":
        image.around["polygons"] += 1
        xs = shape.get("all_points_x")
        ys = shape.get("all_points_y")
        if not isinstance(xs, list) or not isinstance(ys, list) or len(xs) != len(ys):
            raise ValueError("expected as many all_points_x as all_points_y")
        points = list(zip(xs, ys, strict=True))
        return box_around(points)
    if kind == "point":
        image.left_out["points"] += 1
        return None
    if kind in _POLYLINES:
        image.left_out["lines"] += 1
        return None
    raise ValueError(f"expected a shape of VIA, got {kind!r:.60}")
