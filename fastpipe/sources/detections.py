"""Values with the boxes of an image, as Hugging Face's object detection has them -> boxes and the numbers of classes.

A value is {"bbox": [[x, y, width, height], ...], "categories": [...]}, also with further lists such as "area", or a
list with such an object for each box. Hugging Face's documents say that boxes are COCO's; others are in use, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.sources.listing import Assumption, SourceField

# What the classes are called, besides "bbox"; the first that a value has counts.
CATEGORIES = (
    *("categories", "category", "labels", "label", "category_id"),
    *("class", "classes", "class_id", "name", "names"),
)


def in_lists(value: object) -> Mapping[str, Any] | None:
    """A value as an object of lists; None: it has no boxes."""
    if isinstance(value, Mapping):
        return value if "bbox" in value else None
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, Mapping) and "bbox" in each for each in value)
    ):
        return {name: [each.get(name) for each in value] for name in value[0]}
    return None


def categories_in(value: Mapping[str, Any]) -> Any:
    """The classes of its boxes; None: it has none."""
    return next((value[name] for name in CATEGORIES if value.get(name) is not None), None)


def detection(value: Mapping[str, Any], field: SourceField) -> dict[str, Any]:
    """The boxes as corners, and the numbers of their classes. ImageError: there are none."""
    try:
        corners = [corners_of(*box, form=field.box_format or "xywh") for box in value["bbox"] or []]
    except (TypeError, ValueError):
        got = repr(value["bbox"])[:60]
        raise ImageError(
            f"expected boxes of four numbers: x, y, width, height; got {got}"
        ) from None
    labels = categories_in(value)
    if labels is None:
        return {"boxes": corners}
    numbers = {name: number for number, name in enumerate(field.names)}
    return {"boxes": corners, "labels": [numbers.get(label, label) for label in labels]}


def corners_of(one: float, two: float, three: float, four: float, *, form: str) -> list[float]:
    """Left, top, right and bottom of a box, whose four numbers are of a form, one of BOX_FORMATS."""
    if form == "xywh":
        return [one, two, one + three, two + four]
    if form == "cxcywh":
        return [one - three / 2, two - four / 2, one + three / 2, two + four / 2]
    return [one, two, three, four]


@dataclass
class Detections:
    """What is known of a column with such values."""

    is_certain: bool = True  # whether all values are such
    count: int = 0
    names: set[str] = field(default_factory=set)  # of classes that are texts

    def add(self, value: object) -> None:
        """One more value."""
        if value is None or value == [] or not self.is_certain:
            return
        lists = in_lists(value)
        if lists is None:
            self.is_certain = False
            return
        self.count += 1
        labels = categories_in(lists)
        if isinstance(labels, Sequence) and not isinstance(labels, str):
            self.names.update(label for label in labels if isinstance(label, str))


def assumed_of_detections(
    columns: Iterable[str], fields: Sequence[SourceField], box_format: str | None
) -> list[Assumption]:
    """What is assumed of columns with such values: no boxes are made of them, or the boxes are COCO's."""
    assumed = []
    kinds = {each.column: each.kind for each in fields}
    for column in columns:
        if kinds.get(column) == "boxes" and box_format is None:
            text = f"boxes ({column}): left, top, width, height, as COCO has them"
            assumed.append(Assumption(text, "--box-format xyxy or cxcywh"))
        elif kinds.get(column) == "json":
            text = (
                f"boxes: none, though column {column!r} has bbox and classes, and is stored as json"
            )
            assumed.append(Assumption(text, f"--field boxes={column}:boxes"))
    return assumed


def with_names(
    fields: Sequence[SourceField], names: Mapping[str, Sequence[str]], box_format: str | None
) -> tuple[SourceField, ...]:
    """Fields of boxes with the names of their classes, by column, and what four numbers of a box are."""
    settled = []
    for each in fields:
        if each.kind == "boxes" and each.column in names:
            each = each._replace(
                names=tuple(names[each.column]) or each.names, box_format=box_format or ""
            )
        settled.append(each)
    return tuple(settled)
