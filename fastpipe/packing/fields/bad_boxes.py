"""Boxes that do not lie inside their image -> cut, dropped or refused, as --bad-boxes says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ImageError
from fastpipe.packing.fields.placement import Size
from fastpipe.packing.fields.values import (
    Boxes,
    clamp_boxes,
    cut_boxes,
    describe_outside,
    find_outside,
    naming_field,
)
from fastpipe.sources.listing import SourceField, list_masks_of_objects
from fastpipe.sources.options import CLIP, DROP, KEEP_IMAGE


class BoxRule(NamedTuple):
    """What becomes of the boxes of a source.

    Attributes:
        choice: one of BAD_BOXES; None: REJECT.
        fields_per_box: fields with an entry for each box, which go with their boxes.
        numbered_masks: masks whose pixels have the numbers of the objects.
        maybe_corners: fields of boxes that are assumed to be written as left, top, width and height.
    """

    choice: str | None = None
    fields_per_box: frozenset[str] = frozenset()
    numbered_masks: frozenset[str] = frozenset()
    maybe_corners: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fields: Collection[SourceField], choice: str | None) -> BoxRule:
        """From the fields of a listing."""
        return cls(
            choice,
            frozenset(field.name for field in fields if field.is_per_box),
            list_masks_of_objects(fields),
            frozenset(field.name for field in fields if field.may_be_corners),
        )


class BoxChanges(NamedTuple):
    """How many boxes of an image were changed."""

    cut: int = 0
    dropped: int = 0


class OtherFrame(NamedTuple):
    """The other picture that boxes may be of. See Note [frames]

    Attributes:
        coordinates: SHOWN or STORED.
        size: of the picture.
    """

    coordinates: str
    size: Size


def settle_boxes(
    values: dict[str, Any],
    kinds: Mapping[str, str],
    size: Size,
    rule: BoxRule,
    other: OtherFrame,
) -> BoxChanges:
    """Replaces the boxes among the values of a sample by boxes that lie inside the image.

    Edges at most a pixel outside are moved to the border in any case.

    Args:
        values: by field; `settle_boxes` changes them.
        kinds: name -> kind of the fields.
        size: of the picture that the values are of.
        rule: the user's choice.
        other: for the message about boxes that lie inside the other picture alone.

    Raises:
        ImageError: a box does not lie inside the image, and images with such boxes are rejected.
    """
    num_cut = 0
    num_dropped = 0
    for name, kind in kinds.items():
        boxes = values[name]
        if kind != "boxes" or boxes is None:
            continue
        may_be_corners = name in rule.maybe_corners
        with naming_field(name):
            settled, is_kept = _settle(boxes, size, rule.choice, other, may_be_corners)
        num_cut += settled.num_cut
        num_dropped += settled.num_dropped
        values[name] = settled
        if not is_kept.all():
            _drop_entries(values, is_kept, rule)
    return BoxChanges(num_cut, num_dropped)


def _settle(
    boxes: Boxes,
    size: Size,
    choice: str | None,
    other: OtherFrame,
    may_be_corners: bool,
) -> tuple[Boxes, NDArray[np.bool_]]:
    """The boxes that stay, and which of the boxes they are."""
    width, height = size
    if boxes.may_leave_image:
        boxes = cut_boxes(boxes, width, height)
    boxes = clamp_boxes(boxes, width, height)
    is_outside = find_outside(boxes, width, height)
    is_kept = ~is_outside
    if not is_outside.any():
        return boxes, is_kept
    if choice not in (CLIP, DROP):
        remedy = _remedy(boxes, other)
        if may_be_corners and _fit_as_corners(boxes, size):
            remedy = (
                "read as corners (x0, y0, x1, y1), all boxes of this image lie inside it: "
                "--box-format xyxy"
            )
        raise ImageError(f"{describe_outside(boxes, width, height)}; {remedy}")

    num_cut = 0
    if choice == CLIP:
        boxes = cut_boxes(boxes, width, height)
        is_kept = ~find_outside(boxes, width, height)
        num_cut = int((is_kept & is_outside).sum())
    labels = boxes.labels
    if labels is not None:
        labels = labels[is_kept]
    num_dropped = boxes.num_dropped + int((~is_kept).sum())
    kept = boxes._replace(
        boxes=boxes.boxes[is_kept],
        labels=labels,
        num_cut=num_cut,
        num_dropped=num_dropped,
    )
    return kept, is_kept


def _fit_as_corners(boxes: Boxes, size: Size) -> bool:
    """Whether boxes lie inside the image if the numbers taken as width and height are corners."""
    corners = boxes.boxes.copy()
    corners[:, 2:] -= corners[:, :2]
    written = clamp_boxes(boxes._replace(boxes=corners), *size)
    return not find_outside(written, *size).any()


def _remedy(boxes: Boxes, other: OtherFrame) -> str:
    """What to do with an image whose boxes lie outside."""
    clamped = clamp_boxes(boxes, *other.size)
    if find_outside(clamped, *other.size).any():
        return (
            "if this is so of many images, are their boxes of images of another size? Else "
            f"{KEEP_IMAGE}"
        )
    # Boxes of the other picture would be cut and moved to wrong places.
    return (
        f"they lie inside the image as it is {other.coordinates} by its EXIF orientation: "
        f"--coordinates {other.coordinates} packs them so"
    )


def _drop_entries(
    values: dict[str, Any], is_kept: NDArray[np.bool_], rule: BoxRule
) -> None:
    """Drops the entries of boxes that were dropped from the other fields of a sample."""
    for name in rule.numbered_masks:
        if values.get(name) is not None:
            raise ImageError(
                f"field {name}: a box of the image is dropped, and the mask has the numbers of all "
                "objects; leave this field out"
            )
    for name in rule.fields_per_box:
        entries = values.get(name)
        if entries is None or len(entries) != len(is_kept):
            continue
        if isinstance(entries, np.ndarray):
            values[name] = entries[is_kept]
        else:
            pairs = zip(entries, is_kept, strict=True)
            values[name] = [entry for entry, keeps in pairs if keeps]
