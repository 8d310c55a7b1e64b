"""Objects with the boxes of an image, as in Hugging Face's object detection -> boxes and classes.

An object is {"bbox": [[x, y, width, height], ...], "categories": [...]}, and may have more lists
such as "area"; or there is a list with such an object for each box. Hugging Face's documents say
that boxes are COCO's. Other box formats are in use, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastpipe.errors import ImageError
from fastpipe.sources.annotations.box_shares import ShareCheck, cut_shares
from fastpipe.sources.annotations.tools.annotated_image import parse_numbers
from fastpipe.sources.listing import Assumption, SourceField

# Names of the classes beside "bbox". The first one that an object has counts.
CATEGORIES = (
    "categories",
    "category",
    "labels",
    "label",
    "category_id",
    "class",
    "classes",
    "class_id",
    "name",
    "names",
)


def read_box_lists(value: object) -> Mapping[str, Any] | None:
    """An object of lists, also from a list of objects; None if the value has no boxes."""
    if isinstance(value, Mapping):
        if "bbox" not in value:
            return None
        return {**value, "bbox": _with_numbers(value["bbox"])}
    if not isinstance(value, list) or not value:
        return None
    for box in value:
        if not isinstance(box, Mapping) or "bbox" not in box:
            return None
    # The first object says which entries there are.
    lists: dict[str, list[Any]] = {}
    for name in value[0]:
        lists[name] = [box.get(name) for box in value]
    lists["bbox"] = _with_numbers(lists["bbox"])
    return lists


def _with_numbers(boxes: Any) -> Any:
    """Boxes whose numbers may be texts, with numbers."""
    if not isinstance(boxes, list):
        return boxes
    return [parse_numbers(box) for box in boxes]


def _categories_in(lists: Mapping[str, Any]) -> Any:
    """The classes of the boxes; None if there are none."""
    for name in CATEGORIES:
        if lists.get(name) is not None:
            return lists[name]
    return None


def make_boxes_value(
    lists: Mapping[str, Any], source_field: SourceField
) -> dict[str, Any]:
    """The value of a field of boxes: corners, and the classes by number where names are known.

    Args:
        lists: from `read_box_lists`; its boxes are in the box format of the field.
        source_field: the field.

    Returns:
        "boxes", left, top, right and bottom each (xyxy), or "shares" where these are shares of the
        image's size; and "labels" where there are classes.

    Raises:
        ImageError: a box does not have four numbers.
    """
    box_format = source_field.box_format or "xywh"
    try:
        boxes_xyxy = [box_corners(box, box_format) for box in lists["bbox"] or []]
    except (TypeError, ValueError):
        got = repr(lists["bbox"])[:60]
        raise ImageError(
            f"expected boxes of four numbers: x, y, width, height; got {got}"
        ) from None

    box_key = "boxes"
    if source_field.are_shares:
        box_key = "shares"
        boxes_xyxy = [cut_shares(box) for box in boxes_xyxy]
    labels = _categories_in(lists)
    if labels is None:
        return {box_key: boxes_xyxy}
    # Classes that are numbers already stay as they are. The numbers of the source become those of
    # all splits, or given ones, in `renumber_value`.
    source_names = source_field.source_names or source_field.names
    numbers = {name: number for number, name in enumerate(source_names)}
    numbered_labels = [numbers.get(label, label) for label in labels]
    return {box_key: boxes_xyxy, "labels": numbered_labels}


def box_corners(box: Sequence[float], box_format: str) -> list[float]:
    """Left, top, right and bottom (xyxy) of a box of four numbers in one of BOX_FORMATS."""
    first, second, third, fourth = box
    if box_format == "xywh":
        return [first, second, first + third, second + fourth]
    if box_format == "cxcywh":
        half_width = third / 2
        half_height = fourth / 2
        return [
            first - half_width,
            second - half_height,
            first + half_width,
            second + half_height,
        ]
    return [first, second, third, fourth]


def _is_box(value: object) -> bool:
    """Whether a value is a list of numbers."""
    if not isinstance(value, list):
        return False
    return all(type(number) in (int, float) for number in value)


@dataclass
class Detections:
    """A summary of a column that may hold such objects."""

    is_certain: bool = True  # all values that are not missing are such objects
    count: int = 0
    names: set[str] = field(default_factory=set)  # the classes that are texts
    shares: ShareCheck = field(default_factory=ShareCheck)

    def add(self, value: object) -> None:
        """Adds one more value."""
        if value is None or value == [] or not self.is_certain:
            return
        lists = read_box_lists(value)
        if lists is None:
            self.is_certain = False
            return
        self.count += 1
        boxes = lists["bbox"]
        if isinstance(boxes, list):
            for box in filter(_is_box, boxes):
                self.shares.add(box)
        labels = _categories_in(lists)
        if not isinstance(labels, Sequence) or isinstance(labels, str):
            return
        for label in labels:
            if isinstance(label, str):
                self.names.add(label)


class BoxObjects(NamedTuple):
    """A column whose values are such objects."""

    names: Sequence[str]  # of the classes; empty if they are numbers
    shares: ShareCheck  # of the boxes, where all values have been read


def find_detection_assumptions(
    detections: Mapping[str, BoxObjects],
    fields: Sequence[SourceField],
    box_format: str | None,
) -> list[Assumption]:
    """The assumptions on columns with such objects: stored as json, or boxes in COCO's format."""
    assumptions = []
    kinds = {source_field.column: source_field.kind for source_field in fields}
    for column, box_objects in detections.items():
        kind = kinds.get(column)
        if kind == "boxes":
            if box_format is None:
                text = f"boxes ({column}): left, top, width, height, as COCO has them"
                assumptions.append(Assumption(text, "--box-format xyxy or cxcywh"))
            if box_objects.shares.are_shares:
                assumptions.append(box_objects.shares.describe(column))
        elif kind == "json":
            text = (
                f"boxes: none, though column {column!r} has bbox and classes, and is stored "
                "as json"
            )
            assumptions.append(Assumption(text, f"--field boxes={column}:boxes"))
    return assumptions


def settle_box_fields(
    fields: Sequence[SourceField],
    detections: Mapping[str, BoxObjects],
    box_format: str | None,
) -> tuple[SourceField, ...]:
    """The fields, those of boxes with the box format and the names of their classes.

    Args:
        fields: all fields of the source.
        detections: column of boxes -> what its values are.
        box_format: one of BOX_FORMATS; None if the user gives none.
    """
    settled = []
    for source_field in fields:
        if source_field.kind == "boxes" and source_field.column in detections:
            box_objects = detections[source_field.column]
            source_field = source_field._replace(
                names=tuple(box_objects.names) or source_field.names,
                box_format=box_format or "",
                are_shares=box_objects.shares.are_shares,
            )
        settled.append(source_field)
    return tuple(settled)
