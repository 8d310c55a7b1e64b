"""An annotation of Pascal VOC, in XML -> the boxes, names and size that it says of its image.

Format: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/devkit_doc.pdf; LabelImg, CVAT, Roboflow and Label Studio write
it, too, some with polygons.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree

_SIDES = ("xmin", "ymin", "xmax", "ymax")


class Annotation(NamedTuple):
    """What an annotation says of its image."""

    filename: str  # "": it says none
    size: tuple[int, int] | None  # width and height
    boxes: list[list[float]]  # xmin, ymin, xmax, ymax, as they stand there
    names: list[str]
    difficult: list[int]
    unsaid: int = 0  # objects that do not say whether they are difficult, but something else
    around: int = 0  # boxes that are those around polygons

    @property
    def from_zero(self) -> int:
        """How many boxes begin at 0: then pixels are not counted from 1."""
        return sum(0 in box[:2] for box in self.boxes)


def parse_annotation(text: str) -> Annotation:
    """ValueError, ElementTree.ParseError: it is none."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("expected no DOCTYPE, for entities could grow without end")
    root = ElementTree.fromstring(text)
    width, height = (int(float(root.findtext(f"size/{side}") or 0)) for side in ("width", "height"))
    size = (width, height) if width and height else None
    boxes: list[list[float]] = []
    names: list[str] = []
    difficult: list[int] = []
    unsaid = around = 0
    for number, each in enumerate(root.findall("object")):
        name = (each.findtext("name") or "").strip()
        if not name:
            raise ValueError(f"object {number} has no name")
        box = _box(each)
        if box is None:
            box = _box_around(each, f"object {number} ({name[:60]})")
            around += 1
        said = (each.findtext("difficult") or "").strip()
        is_difficult = _flag(said)
        unsaid += is_difficult is None and bool(said)
        boxes.append(box)
        names.append(name)
        difficult.append(is_difficult or 0)
    return Annotation(
        (root.findtext("filename") or "").strip(), size, boxes, names, difficult, unsaid, around
    )


def _box(thing: ElementTree.Element) -> list[float] | None:
    """The box of an object itself, not of its parts."""
    if thing.find("bndbox") is None:
        return None
    return [float(thing.findtext(f"bndbox/{side}") or "none") for side in _SIDES]


def _box_around(thing: ElementTree.Element, where: str) -> list[float]:
    """Around a polygon, as x1, y1, x2, y2, ... or as points with x and y."""
    polygon = thing.find("polygon")
    numbers = {"x": list[float](), "y": list[float]()}
    for each in [] if polygon is None else polygon.iter():
        if each.tag[:1] in numbers and (each.tag[1:].isdecimal() or each.tag in numbers):
            numbers[each.tag[:1]].append(float(each.text or "none"))
    if not numbers["x"] or len(numbers["x"]) != len(numbers["y"]):
        other = (
            "a robndbox, which is a rotated box" if thing.find("robndbox") is not None else "none"
        )
        raise ValueError(f"{where}: expected a bndbox or a polygon, got {other}")
    return [min(numbers["x"]), min(numbers["y"]), max(numbers["x"]), max(numbers["y"])]


def _flag(text: str) -> int | None:
    """0 or 1; None: it is neither, such as Unspecified."""
    word = text.lower()
    if word in ("true", "false"):
        return int(word == "true")
    try:
        return int(float(text) != 0)
    except ValueError:
        return None
