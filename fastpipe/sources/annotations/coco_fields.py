"""The entries of COCO's annotations -> the fields of the images, and the values of these fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.coco_annotations import (
    IMAGE_ID,
    Annotation,
    Annotations,
    Entry,
    Id,
    is_object,
)
from fastpipe.sources.annotations.coco_shapes import check_pycocotools
from fastpipe.sources.column_names import describe_columns
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.listing import SourceField
from fastpipe.sources.options import KEEP_IMAGE
from fastpipe.sources.tables.rows import Row

Value = TypeVar("Value")


class _FieldOfEntry(NamedTuple):
    name: str
    kind: str


# Entries that are stored under a name of their own. Others keep their name and are JSON.
_FIELDS_OF_ENTRIES = {
    "bbox": _FieldOfEntry("boxes", "boxes"),
    "keypoints": _FieldOfEntry("keypoints", "keypoints"),
    "caption": _FieldOfEntry("captions", "json"),
}
_ENTRY_OF_NAME = {field.name: entry for entry, field in _FIELDS_OF_ENTRIES.items()}
_BOXES = FieldColumn("boxes", "bbox")
_DEFAULT_FIELDS = (
    _BOXES,
    FieldColumn("keypoints", "keypoints"),
    FieldColumn("captions", "caption"),
    FieldColumn("iscrowd", "iscrowd"),
    FieldColumn("area", "area"),
)
# A mask that has the number of the object at each pixel; it is drawn from "segmentation".
_INSTANCES = "instances"


def parse_fields(fields: Sequence[FieldColumn] | None) -> list[FieldColumn] | None:
    """The fields that a user asks for, with entries as columns. None: all that the files have."""
    if fields is None:
        return None
    requested: list[FieldColumn] = []
    for field in fields:
        # --field boxes means the entry bbox.
        entry = _ENTRY_OF_NAME.get(field.column, field.column)
        requested.append(field._replace(column=entry))
    return requested


def list_entries(fields: Sequence[FieldColumn] | None) -> set[str]:
    """The entries of annotations that fields are made of, with those that every file needs."""
    entries = {"category_id", "iscrowd"}
    for field in fields or _DEFAULT_FIELDS:
        entries.add(_entry_of(field.column))
    return entries


def list_default_fields(annotations: Annotations) -> list[FieldColumn]:
    """The fields that the files have, if the user asks for no fields."""
    fields = [
        field for field in _DEFAULT_FIELDS if field.column in annotations.entry_names
    ]
    if _BOXES not in fields and "segmentation" in annotations.entry_names:
        fields.insert(0, _BOXES)  # they are put around the segmentations
    return fields


def resolve_field(annotations: Annotations, field: FieldColumn) -> SourceField:
    """Finds the kind of a field and its names.

    Raises:
        PackError: the files do not have it, it is of another kind, or it needs pycocotools.
    """
    column = field.column
    if column == IMAGE_ID:
        return _id_field(annotations, field)
    file = readable(str(annotations.paths[0]))
    # Without a bbox, boxes are put around the segmentations.
    is_derived = column == "bbox" and "segmentation" in annotations.entry_names
    if _entry_of(column) not in annotations.entry_names and not is_derived:
        field.check_kind([*annotations.entry_names, *_ENTRY_OF_NAME, _INSTANCES])
        raise PackError(
            f"{field}: the annotations of {file} have {describe_columns(annotations.entry_names)}"
        )

    kind = _kind_of(annotations, field)
    if field.kind not in (None, kind):
        raise PackError(f"{field}: expected the kind {kind}, or none")
    is_class_mask = kind == "mask" and column == "segmentation"
    if kind == "mask":
        check_pycocotools(field)
    if is_class_mask and 0 in annotations.categories:
        raise PackError(
            f"{field}: category 0 of {file} has the number of the background; pack "
            "instances=instances:mask"
        )

    names: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    if kind == "keypoints":
        names = annotations.keypoint_names
        pairs = flip_pairs(names)
    elif kind == "boxes" or is_class_mask:
        names = annotations.category_names
    return SourceField(
        field.name,
        kind,
        names=names,
        flip_pairs=pairs,
        column=column,
        is_per_box=kind in ("keypoints", "json") and column != "caption",
        has_object_numbers=column == _INSTANCES,
    )


def _entry_of(column: str) -> str:
    """The entry of annotations that a column is made of."""
    return "segmentation" if column == _INSTANCES else column


def _kind_of(annotations: Annotations, field: FieldColumn) -> str:
    """The only kind that a field can have. A user who names another one gets an error."""
    if field.column == _INSTANCES:
        return "mask"
    # Polygons can also be packed as they are, as json.
    if field.column == "segmentation" and field.kind == "mask":
        return "mask"
    can_be_text = field.column == "caption" and field.kind != "json"
    if can_be_text and not annotations.has_several_captions():
        return "text"
    if field.column in _FIELDS_OF_ENTRIES:
        return _FIELDS_OF_ENTRIES[field.column].kind
    return "json"


def _id_field(annotations: Annotations, field: FieldColumn) -> SourceField:
    """The ids of the images, which evaluation needs; they are texts if one is a text."""
    kind = "int"
    for written_id in annotations.written_ids.values():
        if isinstance(written_id, str):
            kind = "text"
            break
    if field.kind not in (None, kind, "text"):
        raise PackError(f"{field}: expected the kind {kind}, or none")
    return SourceField(field.name, field.kind or kind, column=IMAGE_ID)


def flip_pairs(point_names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Pairs of points that change places in a mirrored image.

    Their names differ only in left and right.
    """
    # Name of a point -> its number.
    numbers = {name: number for number, name in enumerate(point_names)}
    pairs: list[tuple[int, int]] = []
    for number, name in enumerate(point_names):
        mirrored = numbers.get(re.sub("left|right", _other_side, name), number)
        # The pair would come again, in the other order, at its other point.
        if number < mirrored:
            pairs.append((number, mirrored))
    return tuple(pairs)


def _other_side(match: re.Match[str]) -> str:
    return "right" if match[0] == "left" else "left"


def read_field_value(
    annotations: Annotations,
    field: SourceField,
    image_id: Id,
    image: Row,
    image_annotations: Sequence[Annotation],
    objects: Sequence[Annotation],
) -> Any:
    """The value of a field for an image. ImageError: an annotation is wrong.

    `objects`: those of the annotations that are about objects, see `Annotations.list_objects`. All
    lists have an entry for each of them, in the same order, so that boxes, points and areas of an
    object stay together.
    """
    if field.column == IMAGE_ID:
        if field.kind == "int":
            return image_id
        return str(annotations.written_ids[image_id])
    if field.column == "caption":
        entries = [item.entry for item in image_annotations]
        captions = [entry["caption"] for entry in entries if "caption" in entry]
        if field.kind == "json":
            return captions
        return captions[0] if captions else None

    if field.kind == "boxes":
        try:
            labels = _values(objects, annotations.read_category)
            boxes_xyxy = _values(objects, annotations.read_box)
        except ImageError as problem:
            raise ImageError(f"{problem}; {KEEP_IMAGE}") from None
        annotations.box_counts.add(boxes_xyxy, image.size)
        value = {"boxes": boxes_xyxy, "labels": labels}
        num_objects = sum(is_object(item.entry) for item in image_annotations)
        if num_objects > len(objects):
            value["dropped"] = num_objects - len(objects)
        return value
    if field.kind == "keypoints":
        point_count = len(annotations.keypoint_names)
        return _values(objects, lambda entry: _points(entry, point_count))
    if field.kind == "classes":
        numbers = set(_values(objects, annotations.read_category))
        return [annotations.categories[number] for number in sorted(numbers)]
    if field.kind == "mask":
        return {"shapes": _shapes(annotations, field, objects)}
    return [item.entry.get(field.column) for item in objects]


def _shapes(
    annotations: Annotations, field: SourceField, objects: Sequence[Annotation]
) -> list[tuple[int, Any]]:
    """The number to draw and the segmentation of each object, in the order of drawing."""
    if field.column == _INSTANCES:
        numbers = list(range(1, len(objects) + 1))
    else:
        numbers = _values(objects, annotations.read_category)
    crowds: list[tuple[int, Any]] = []
    singles: list[tuple[int, Any]] = []
    for number, item in zip(numbers, objects, strict=True):
        shape = (number, item.entry.get("segmentation") or [])
        if item.entry.get("iscrowd"):
            crowds.append(shape)
        else:
            singles.append(shape)
    # Crowds come first, so that they do not cover single objects.
    return crowds + singles


def _values(
    annotations: Sequence[Annotation], read_value: Callable[[Entry], Value]
) -> list[Value]:
    """A value of each annotation; an error names the annotation."""
    values: list[Value] = []
    for annotation in annotations:
        try:
            values.append(read_value(annotation.entry))
        except ImageError as problem:
            raise ImageError(f"{annotation.name}: {problem}") from None
    return values


def _points(entry: Entry, point_count: int) -> list[list[float]]:
    """x, y and visibility of each point; all 0 for an object without points."""
    numbers = entry.get("keypoints")
    if numbers is None:
        # COCO writes visibility 0 for a point that is not labelled.
        return [[0, 0, 0]] * point_count
    if not isinstance(numbers, list) or len(numbers) != 3 * point_count:
        raise ImageError(
            f"expected 3 x {point_count} numbers as keypoints, got {numbers!r:.60}"
        )
    points = []
    for start in range(0, len(numbers), 3):
        points.append(numbers[start : start + 3])
    return points
