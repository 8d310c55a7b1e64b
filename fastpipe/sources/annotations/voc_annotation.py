"""An annotation of Pascal VOC, in XML -> the boxes, names and size that it says of its image.

Format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/devkit_doc.pdf; LabelImg, CVAT, Roboflow and
Label Studio write it, too, some with polygons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from fastpipe.sources.annotations.xml_text import parse_xml
from fastpipe.sources.options import KEEP_IMAGE

_SIDES = ("xmin", "ymin", "xmax", "ymax")
# Entries of an object that are not packed. The user is told of them, unless they have one of the
# texts with which tools fill empty entries.
_ATTRIBUTES = ("pose", "truncated", "occluded", "part", "actions", "attributes")
_EMPTY_TEXTS = ("", "0", "false", "unspecified")


@dataclass
class Annotation:
    """The annotation of one image. `boxes`, `names` and `difficult` have an entry an object."""

    filename: str  # "": there is none
    size: tuple[int, int] | None  # width and height
    # xmin, ymin, xmax, ymax (xyxy), as written: counted from 0 or from 1.
    boxes: list[list[float]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    difficult: list[int] = field(default_factory=list)  # 1 or 0
    # Objects that say neither 0 nor 1, such as "Unspecified".
    unclear_difficult_count: int = 0
    box_around_count: int = 0  # boxes that were put around polygons
    dropped_count: int = 0  # objects that cannot be read
    # Attributes of objects that say something.
    skipped: set[str] = field(default_factory=set)

    def count_boxes_at_zero(self) -> int:
        """How many boxes begin at 0. If any does, pixels are not counted from 1."""
        return sum(0 in box[:2] for box in self.boxes)


def parse_annotation(text: str, *, drops_bad_objects: bool = False) -> Annotation:
    """ValueError, ElementTree.ParseError: the text is not an annotation.

    `drops_bad_objects`: objects that cannot be read are counted and left out.
    """
    root = parse_xml(text)
    # Some tools write 640.0, or 0 where they do not know the size.
    width = int(float(root.findtext("size/width") or 0))
    height = int(float(root.findtext("size/height") or 0))
    size = (width, height) if width and height else None
    annotation = Annotation((root.findtext("filename") or "").strip(), size)
    for number, element in enumerate(root.findall("object")):
        try:
            _add_object(annotation, number, element)
        except ValueError as problem:
            if not drops_bad_objects:
                raise ValueError(f"{problem}; {KEEP_IMAGE}") from None
            annotation.dropped_count += 1
    return annotation


def _add_object(
    annotation: Annotation, number: int, element: ElementTree.Element
) -> None:
    name = (element.findtext("name") or "").strip()
    if not name:
        raise ValueError(f"object {number} has no name")
    # The box of the object itself. Its parts, such as a head, may have boxes, too.
    if element.find("bndbox") is not None:
        # A missing side becomes "none", which float refuses with a ValueError.
        box = [float(element.findtext(f"bndbox/{side}") or "none") for side in _SIDES]
    else:
        box = _box_around_polygon(element, f"object {number} ({name[:60]})")
        annotation.box_around_count += 1

    text = (element.findtext("difficult") or "").strip()
    is_difficult = _parse_flag(text)
    if is_difficult is None and text:
        annotation.unclear_difficult_count += 1
    for attribute in _ATTRIBUTES:
        entry = element.find(attribute)
        if entry is None:
            continue
        if len(entry) or (entry.text or "").strip().lower() not in _EMPTY_TEXTS:
            annotation.skipped.add(attribute)
    annotation.boxes.append(box)
    annotation.names.append(name)
    annotation.difficult.append(int(is_difficult or False))


def _box_around_polygon(element: ElementTree.Element, where: str) -> list[float]:
    """The box (xyxy) around a polygon, which has x1, y1, x2, y2, ... or points with x and y."""
    xs: list[float] = []
    ys: list[float] = []
    polygon = element.find("polygon")
    if polygon is not None:
        # <x1>, <y1>, ... are in the polygon, <x> and <y> in a point of it.
        for coordinate in polygon.iter():
            axis = coordinate.tag[:1]
            index = coordinate.tag[1:]
            if axis in ("x", "y") and (not index or index.isdecimal()):
                values = xs if axis == "x" else ys
                values.append(float(coordinate.text or "none"))
    if not xs or len(xs) != len(ys):
        other = "none"
        if element.find("robndbox") is not None:
            other = "a robndbox, which is a rotated box"
        raise ValueError(f"{where}: expected a bndbox or a polygon, got {other}")
    return [min(xs), min(ys), max(xs), max(ys)]


def _parse_flag(text: str) -> bool | None:
    """True or False; None for other texts, such as "Unspecified"."""
    word = text.lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        return float(text) != 0
    except ValueError:
        return None
