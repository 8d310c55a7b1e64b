"""The fields of annotated images, with masks of the outlines that a tool has drawn around objects.

A mask has the number of the class + 1 at each pixel of an object, or with the column "instances" the
number of the object, from 1 on; 0 is the background. Objects on a higher level cover others; on one
level later objects cover earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastpipe.errors import PackError
from fastpipe.sources.annotations.coco_shapes import check_pycocotools
from fastpipe.sources.annotations.tools.annotated_image import AnnotatedImage
from fastpipe.sources.annotations.tools.outline import as_segmentation
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.listing import SourceField

SEGMENTATION = "segmentation"
_INSTANCES = "instances"
_MASK = "mask"


def choose_fields(
    known: Sequence[SourceField],
    classes: Sequence[str],
    images: Iterable[AnnotatedImage],
    wishes: Sequence[FieldColumn] | None,
) -> list[SourceField]:
    """The fields that a user asks for; without a wish, those that the source has.

    Args:
        known: the fields that need no wish.
        classes: their names by number.
        images: all images of the source.
        wishes: of the user.

    Raises:
        PackError: the source has no such field, or masks need pycocotools.
    """
    if wishes is None:
        return list(known)
    field_of_column = {field.column: field for field in known}
    if _has_outlines(images):
        field_of_column.update(mask_fields(("", *classes)))
    return find_fields(field_of_column, wishes, "the annotations")


def mask_fields(names: tuple[str, ...]) -> dict[str, SourceField]:
    """The masks that outlines make, by the column that --field names.

    `names`: of the values of the mask of classes, of which 0 is the background.
    """
    return {
        SEGMENTATION: SourceField(_MASK, _MASK, names=names, column=SEGMENTATION),
        _INSTANCES: SourceField(
            _MASK, _MASK, column=_INSTANCES, has_object_numbers=True
        ),
    }


def find_fields(
    field_of_column: Mapping[str, SourceField],
    wishes: Iterable[FieldColumn],
    source: str,
) -> list[SourceField]:
    """The fields that a user asks for, by the columns that the source has.

    `source`: what an error calls it, in the plural.

    Raises:
        PackError: it has no such field, or masks need pycocotools.
    """
    fields = []
    for wish in wishes:
        field = field_of_column.get(wish.column)
        if field is None:
            wish.check_kind(field_of_column)
            raise PackError(f"{wish}: {source} have {', '.join(field_of_column)}")
        if wish.kind not in (None, field.kind):
            raise PackError(f"{wish}: expected the kind {field.kind}, or none")
        if field.kind == _MASK:
            check_pycocotools(wish)
        fields.append(field._replace(name=wish.name))
    return fields


def _has_outlines(images: Iterable[AnnotatedImage]) -> bool:
    """Whether any object has an outline that is more than its box."""
    return any(image.outlined_count for image in images)


def can_draw_all(images: Sequence[AnnotatedImage]) -> bool:
    """Whether masks of all objects can be drawn, and have more than their boxes have."""
    if not _has_outlines(images):
        return False
    return all(all(image.outlines) and not image.unread_outlines for image in images)


def option_of_masks(fields: Iterable[SourceField]) -> str:
    """The option that packs masks, too, beside these fields."""
    options = [f"--field {field.name}" for field in fields]
    options.append(f"--field {_MASK}={SEGMENTATION}:{_MASK}")
    return " ".join(options)


def mask_value(
    image: AnnotatedImage, column: str, labels: Mapping[str, int]
) -> dict[str, Any]:
    """The value of a field of masks. ValueError: an object has no outline.

    `labels`: class -> its number.
    """
    if image.unread_outlines:
        raise ValueError(
            f"{image.unread_outlines} are not read, and a mask would lack these objects"
        )
    shapes: list[tuple[int, Any]] = []
    for index in _drawing_order(image):
        name = image.names[index]
        outline = image.outlines[index]
        if not outline:
            raise ValueError(
                f"object {index + 1} ({name}) has no outline, and a mask needs one"
            )
        number = index + 1
        if column == SEGMENTATION:
            number = labels[name] + 1
        try:
            shapes.append((number, as_segmentation(outline)))
        except ValueError as problem:
            raise ValueError(f"object {index + 1} ({name}): {problem}") from None
    return {"shapes": shapes}


def _drawing_order(image: AnnotatedImage) -> list[int]:
    """The numbers of the objects, those on lower levels first."""
    indexes = range(len(image.outlines))
    return sorted(indexes, key=lambda index: image.levels[index])
