"""Entries of COCO that are changed or left out -> assumptions, with the options that keep them."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.sources.annotations.coco_annotations import Annotations
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.listing import Assumption, SourceField

# The entries of annotations that the format defines. No message names these.
_FORMAT_ENTRIES = {
    "id",
    "image_id",
    "category_id",
    "bbox",
    "area",
    "iscrowd",
    "ignore",
    "segmentation",
    "keypoints",
    "num_keypoints",
    "caption",
    "attributes",
}
# COCO Annotator writes these for itself. They say nothing about the object.
_ANNOTATOR_ENTRIES = {
    "isbbox",
    "color",
    "creator",
    "metadata",
    "deleted",
    "events",
    "milliseconds",
    "width",
    "height",
}
_BOX_FORMATS = "--box-format xyxy or xywh"
_USUAL_ENTRIES = _FORMAT_ENTRIES | _ANNOTATOR_ENTRIES
# LVIS names classes that are certainly not in an image, and classes of which some objects have no
# box. Whoever evaluates needs them.
_LVIS_ENTRIES = ("neg_category_ids", "not_exhaustive_category_ids")


def find_box_assumptions(annotations: Annotations) -> list[Assumption]:
    """Says which boxes are not as they were written, or may be no objects."""
    counts = annotations.box_counts
    assumed: list[Assumption] = []
    texts: list[str] = []
    if annotations.doubt_of_boxes:
        assumed.append(Assumption(annotations.doubt_of_boxes, _BOX_FORMATS))
    if counts.around_segmentation:
        texts.append(
            f"annotations with a segmentation and no bbox: {counts.around_segmentation:,}; the "
            "boxes are those around it"
        )
    if counts.over_edge:
        texts.append(
            f"boxes that end outside the image, by a pixel at most: {counts.over_edge:,}; they are "
            "cut off at its edge"
        )
    if counts.empty:
        texts.append(
            f"boxes without width or height: {counts.empty:,}; they are packed as they are"
        )
    return assumed + [Assumption(text) for text in texts]


def find_entry_assumptions(
    annotations: Annotations, fields: Sequence[SourceField]
) -> list[Assumption]:
    """Says which entries are in no field, where a user asks for no fields.

    `--field` packs only the fields that are named, so the options name the other fields, too.
    """
    options = "".join(f"--field {field.name} " for field in fields)
    assumed: list[Assumption] = []
    if annotations.segmentation_count:
        mask = "mask=segmentation:mask"
        if 0 in annotations.categories:
            # In a mask of categories, 0 is the background and cannot be a category.
            mask = "mask=instances:mask"
        text = (
            f"annotations with polygons or runs (segmentation): {annotations.segmentation_count:,};"
            " they are left out"
        )
        assumed.append(Assumption(text, f"{options}--field {mask}"))

    if annotations.crowd_count and any(field.kind == "boxes" for field in fields):
        assumed.append(
            Assumption(
                f"boxes of crowds (iscrowd): {annotations.crowd_count:,}; they are boxes like the "
                "others, and field iscrowd tells which they are"
            )
        )

    entries = sorted(annotations.entry_names - _USUAL_ENTRIES)
    if annotations.attribute_names:
        entries.insert(0, "attributes")
    if entries:
        shown_entries = first_paths(entries)
        if annotations.attribute_names:
            shown_entries += (
                f"; attributes are {first_paths(sorted(annotations.attribute_names))}"
            )
        assumed.append(
            Assumption(
                f"entries of annotations that are not packed: {shown_entries}",
                f"{options}--field {entries[0]}",
            )
        )

    image_entries = [
        name for name in _LVIS_ENTRIES if name in annotations.image_entry_names
    ]
    if image_entries:
        text = f"entries of images that are not packed: {', '.join(image_entries)}"
        assumed.append(Assumption(text))
    return assumed
