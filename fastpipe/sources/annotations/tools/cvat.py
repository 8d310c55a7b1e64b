"""CVAT's XML "for images 1.1" -> the images that it annotates.

Format: https://docs.cvat.ai/docs/manual/advanced/xml_format/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from fastpipe.sources.annotations.tools import outline
from fastpipe.sources.annotations.tools.annotated_image import (
    AnnotatedImage,
    Box,
    Outline,
    RunsInBox,
    box_around,
    box_around_ellipse,
    box_around_rotated,
    box_of_sides,
    class_name,
    corners,
    image_size,
    number,
)
from fastpipe.sources.annotations.xml_text import parse_xml

_LEFT_OUT = {"points": "points", "polyline": "lines", "cuboid": "cuboids"}
_SHAPES = ("box", "polygon", "ellipse", "mask", "skeleton")
_VIDEO = (
    "the tracks of a video, and no images: in CVAT, export as CVAT for images 1.1 or as COCO 1.0, with "
    "images, and pack that"
)


def parse(text: str) -> Iterator[AnnotatedImage]:
    """ValueError, ElementTree.ParseError: the text is not CVAT's XML for images."""
    root = parse_xml(text)
    if root.find("track") is not None:
        raise ValueError(f"expected images, got {_VIDEO}")
    for element in root.iter("image"):
        image = AnnotatedImage(
            element.get("name", ""),
            image_size(element.get("width"), element.get("height")),
        )
        subset = element.get("subset", "")
        if subset.lower() != "default":
            image.split = subset
        for shape in element:
            try:
                _add_shape(image, shape)
            except ValueError as problem:
                image.reject_object(f"{shape.tag} of {shape.get('label')}: {problem}")
        yield image


def _add_shape(image: AnnotatedImage, shape: ElementTree.Element) -> None:
    kind = shape.tag
    label = shape.get("label")
    if kind in _LEFT_OUT:
        image.left_out[_LEFT_OUT[kind]] += 1
        return
    attributes = _attributes_of(shape)
    if kind == "tag":
        image.tags.append(class_name(label))
        image.unpacked.update(attributes)
    elif kind in _SHAPES:
        box = _box_of(image, shape)
        level = number(shape.get("z_order") or 0)
        image.add(box, label, attributes, _outline_of(image, shape, box), level)
    else:
        image.left_out[f"shapes of the kind {kind}"] += 1


def _box_of(image: AnnotatedImage, shape: ElementTree.Element) -> Box:
    """The box of a shape. The image counts the shapes that are none, by kind: it is around them.

    ValueError: the shape is damaged, or has no point.
    """
    if shape.tag == "box":
        box = corners([shape.get(side) for side in ("xtl", "ytl", "xbr", "ybr")])
        degrees = number(shape.get("rotation", "0"))
        if not degrees:
            return box
        image.around["rotated boxes"] += 1
        left, top, right, bottom = box
        # CVAT turns a box around its centre.
        centre = ((left + right) / 2, (top + bottom) / 2)
        return box_around_rotated(box, degrees, centre)
    if shape.tag == "ellipse":
        image.around["ellipses"] += 1
        x, y, radius_x, radius_y = [
            number(shape.get(name)) for name in ("cx", "cy", "rx", "ry")
        ]
        degrees = number(shape.get("rotation", "0"))
        return box_around_ellipse((x, y), (radius_x, radius_y), degrees)
    if shape.tag == "mask":
        image.around["masks"] += 1
        return box_of_sides(shape.attrib)
    if shape.tag == "skeleton":
        image.around["skeletons"] += 1
        points = []
        for point in shape.iter("points"):
            if point.get("outside") != "1":
                points += _points_of(point)
        return box_around(points)
    image.around["polygons"] += 1
    return box_around(_points_of(shape))


def _outline_of(image: AnnotatedImage, shape: ElementTree.Element, box: Box) -> Outline:
    """What a shape covers; nothing for a skeleton. CVAT's own masks fill its boxes, too."""
    kind = shape.tag
    if kind == "skeleton":
        return []
    if kind == "box":
        sides = corners([shape.get(side) for side in ("xtl", "ytl", "xbr", "ybr")])
        degrees = number(shape.get("rotation", "0"))
        centre = ((sides[0] + sides[2]) / 2, (sides[1] + sides[3]) / 2)
        return outline.rectangle(sides, degrees, centre)
    image.outlined_count += 1
    if kind == "ellipse":
        x, y, radius_x, radius_y = [
            number(shape.get(name)) for name in ("cx", "cy", "rx", "ry")
        ]
        degrees = number(shape.get("rotation", "0"))
        return outline.ellipse((x, y), (radius_x, radius_y), degrees)
    if kind == "mask":
        if image.size is None:
            return []
        return RunsInBox(shape.get("rle", ""), box, image.size)
    return outline.polygon(_points_of(shape))


def _points_of(shape: ElementTree.Element) -> list[list[str]]:
    """The points in a text such as "1.5,2;30,4"."""
    return [point.split(",") for point in shape.get("points", "").split(";") if point]


def _attributes_of(shape: ElementTree.Element) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if shape.get("occluded") == "1":
        attributes["occluded"] = True
    for attribute in shape.findall("attribute"):
        attributes[attribute.get("name", "")] = (attribute.text or "").strip()
    return attributes
