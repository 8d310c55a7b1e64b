"""An image with its boxes as a tool describes it, and what the readers of all tools share."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Box = tuple[float, float, float, float]


class RunsInBox(NamedTuple):
    """The pixels of an object in a box around it.

    Attributes:
        runs: how many pixels of the box are outside, inside, outside, ... along its rows, as a text
            with commas.
        box: on whole pixels.
        size: width and height of the image.
    """

    runs: str
    box: Box
    size: tuple[int, int]


class Bitmap(NamedTuple):
    """The pixels of an object as a PNG, as a tool writes it.

    Attributes:
        png: as base64.
        origin: x and y of its left upper pixel in the image.
        is_compressed: whether zlib has compressed the PNG.
    """

    png: str
    origin: tuple[int, int]
    is_compressed: bool = False


class PixelPolygon(NamedTuple):
    """A polygon whose corners are pixels inside of it.

    Attributes:
        corners: x and y of each.
        holes: the corners of each hole, whose line is outside of the object.
    """

    corners: Sequence[Sequence[float]]
    holes: Sequence[Sequence[Sequence[float]]] = ()


# What an object covers: polygons, each with x, y, x, y, ... in pixels, or another form. An empty
# list: the tool does not say it.
Outline = list[list[float]] | RunsInBox | Bitmap | PixelPolygon
_SIDES = ("left", "top", "width", "height")


@dataclass
class AnnotatedImage:
    """The annotations of one image. Boxes are in pixels of the image as viewers show it.

    Attributes:
        path: of the image, as the tool writes it; "": the file of annotations is called like it.
        size: width and height, if the tool writes them.
        boxes: left, top, right and bottom of each object.
        names: the class of each object.
        attributes: more values of each object, by name.
        outlines: of each object; see `Outline`.
        levels: of each object; those on higher levels cover others.
        outlined_count: the number of objects that are drawn as more than a box.
        unread_outlines: what the objects are called that only a mask would show, and whose outlines
            are not read; "": there are none.
        tags: classes of the whole image.
        class_numbers: class -> its number, where the tool writes numbers; classes here are numbered
            by their names.
        split: the split that the tool writes; "": none.
        other_paths: other names that the file of the image may have.
        may_leave_image: whether boxes may end outside the image; they are cut off at its edge.
        is_annotated: whether anybody has annotated the image. If not, it is left out.
        problem: why the image cannot be packed.
        object_problems: why objects cannot be read, which are not among the boxes.
        around: kind of shape -> number of boxes that were put around such shapes.
        left_out: kind of object -> number of objects that were left out.
        unpacked: names of values of the whole image that are not packed.
        remarks: other texts for the user, with {} for the number of objects that they are about.
    """

    path: str
    size: tuple[int, int] | None = None
    boxes: list[Box] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    attributes: list[dict[str, Any]] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    outlined_count: int = 0
    unread_outlines: str = ""
    tags: list[str] = field(default_factory=list)
    class_numbers: dict[str, int] = field(default_factory=dict)
    split: str = ""
    other_paths: tuple[str, ...] = ()
    may_leave_image: bool = False
    is_annotated: bool = True
    problem: str | None = None
    object_problems: list[str] = field(default_factory=list)
    around: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    unpacked: set[str] = field(default_factory=set)
    remarks: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        box: Box,
        name: object,
        attributes: Mapping[str, Any] | None = None,
        outline: Outline | None = None,
        level: float = 0,
    ) -> None:
        """Adds an object. ValueError: its class has no name."""
        self.names.append(class_name(name))
        self.boxes.append(box)
        self.attributes.append(dict(attributes or {}))
        self.outlines.append(outline or [])
        self.levels.append(level)

    def reject(self, problem: str) -> None:
        """Notes why the image cannot be packed; the first reason counts."""
        if self.problem is None:
            self.problem = problem

    def reject_object(self, problem: str) -> None:
        """Notes why an object cannot be read. The user may want the image without it."""
        self.object_problems.append(problem)


def class_name(name: object) -> str:
    """The name of a class. ValueError: it is no text, or an empty one."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"expected the name of a class, got {name!r:.60}")
    return name.strip()


def load_json(text: str) -> Any:
    """ValueError: the text is not JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("expected JSON, got values that are nested too deep") from None


def object_of(value: object, name: str) -> Mapping[str, Any]:
    """ValueError: the value is not an object of JSON."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected {name} as an object of JSON, got {value!r:.60}")
    return value


def list_of(value: object, name: str) -> list[Any]:
    """The list; an empty one for null. ValueError: the value is something else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"expected {name} as a list, got {value!r:.60}")
    return value


def add_objects(
    image: AnnotatedImage,
    values: object,
    name: str,
    noun: str,
    add: Callable[[AnnotatedImage, Mapping[str, Any]], None],
) -> None:
    """Adds the objects of a list to an image, which notes what cannot be read.

    Args:
        image: gets the objects. It is rejected if `values` is not a list.
        values: the list, as the tool writes it.
        name: of the list, for messages.
        noun: what an entry of the list is, for messages.
        add: adds one object. ValueError: it cannot be read.
    """
    try:
        entries = list_of(values, name)
    except ValueError as problem:
        image.reject(str(problem))
        return
    for entry in entries:
        try:
            add(image, object_of(entry, noun))
        except ValueError as problem:
            image.reject_object(str(problem))


def number(value: object) -> float:
    """A finite number, also from its text. ValueError: the value is something else."""
    is_number = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    try:
        result = float(value) if is_number else math.nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise ValueError(f"expected a number, got {value!r:.60}")
    return result


def parse_numbers(value: Any) -> Any:
    """Numbers that are written as texts: "12.5" is 12.5, also in a list. Other values stay."""
    if isinstance(value, list) and str in map(type, value):
        return [parse_numbers(part) for part in value]
    if not isinstance(value, str):
        return value
    try:
        return number(value)
    except ValueError:
        return value


def image_size(width: object, height: object) -> tuple[int, int] | None:
    """Width and height; None if a tool does not write them."""
    try:
        size = (int(number(width)), int(number(height)))
    except ValueError:
        return None
    return size if min(size) > 0 else None


def corners(values: Sequence[object]) -> Box:
    """A box from two opposite corners, x and y of each."""
    if len(values) != 4:
        raise ValueError(f"expected four numbers of a box, got {values!r:.60}")
    x0, y0, x1, y1 = [number(value) for value in values]
    left, right = sorted((x0, x1))
    top, bottom = sorted((y0, y1))
    return (left, top, right, bottom)


def box_of_size(values: Sequence[object]) -> Box:
    """A box from left, top, width and height."""
    if len(values) != 4:
        raise ValueError(f"expected four numbers of a box, got {values!r:.60}")
    left, top, width, height = [number(value) for value in values]
    if width < 0 or height < 0:
        raise ValueError(
            f"expected a width and height of 0 or more, got {values!r:.60}"
        )
    return (left, top, left + width, top + height)


def box_of_sides(entries: Mapping[str, Any]) -> Box:
    """A box from the entries left, top, width and height."""
    return box_of_size([entries.get(side) for side in _SIDES])


def box_around(points: Iterable[Sequence[object]]) -> Box:
    """The box around points, each with x and y."""
    xs: list[float] = []
    ys: list[float] = []
    for point in points:
        if not isinstance(point, (list, tuple)) or len(point) < 2:
            raise ValueError(f"expected points with x and y, got {point!r:.60}")
        xs.append(number(point[0]))
        ys.append(number(point[1]))
    if not xs:
        raise ValueError("expected points, got none")
    return (min(xs), min(ys), max(xs), max(ys))


def box_around_rotated(box: Box, degrees: float, pivot: tuple[float, float]) -> Box:
    """The box around a box that is turned clockwise, as images have y down."""
    left, top, right, bottom = box
    corners = ((left, top), (left, bottom), (right, top), (right, bottom))
    return box_around([turn(corner, degrees, pivot) for corner in corners])


def turn(
    point: tuple[float, float], degrees: float, pivot: tuple[float, float]
) -> tuple[float, float]:
    """A point, turned clockwise around another one, as images have y down."""
    angle = math.radians(degrees)
    cosine = math.cos(angle)
    sine = math.sin(angle)
    across = point[0] - pivot[0]
    down = point[1] - pivot[1]
    x = pivot[0] + across * cosine - down * sine
    y = pivot[1] + across * sine + down * cosine
    return x, y


def box_around_ellipse(
    centre: tuple[float, float], radii: tuple[float, float], degrees: float = 0
) -> Box:
    """The box around an ellipse that is turned clockwise."""
    angle = math.radians(degrees)
    cosine = math.cos(angle)
    sine = math.sin(angle)
    radius_x, radius_y = radii
    half_width = math.hypot(radius_x * cosine, radius_y * sine)
    half_height = math.hypot(radius_x * sine, radius_y * cosine)
    x, y = centre
    left = x - half_width
    top = y - half_height
    return (left, top, x + half_width, y + half_height)
