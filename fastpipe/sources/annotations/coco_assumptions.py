"""Entries of COCO that are changed or left out -> assumptions, with the options that keep them."""

from __future__ import annotations

from collections.abc import Sequence

from fastpipe.sources.annotations.coco_annotations import Annotations
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.listing import Assumption, SourceField

# Entries of annotations that need no word: those of the format, ...
_USUAL_ENTRIES = {"id", "image_id", "category_id", "bbox", "area", "iscrowd", "ignore"}
_USUAL_ENTRIES |= {
    "segmentation",
    "keypoints",
    "num_keypoints",
    "caption",
    "attributes",
}
# ... and what COCO Annotator notes for itself.
_USUAL_ENTRIES |= {
    "isbbox",
    "color",
    "creator",
    "metadata",
    "deleted",
    "events",
    "milliseconds",
}
_USUAL_ENTRIES |= {"width", "height"}
# LVIS: classes that are certainly not in an image, or of which not all objects have a box.
_LVIS_ENTRIES = ("neg_category_ids", "not_exhaustive_category_ids")


def changed_boxes(annotations: Annotations) -> list[Assumption]:
    """Says which boxes are not as they were written, or may be no objects."""
    counts = annotations.box_counts
    texts: list[str] = []
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
    return [Assumption(text) for text in texts]


def skipped_entries(
    annotations: Annotations, fields: Sequence[SourceField]
) -> list[Assumption]:
    """Says which entries are in no field, where a user asks for no fields.

    `--field` packs only the fields that are named, so the options name the other fields, too.
    """
    options = "".join(f"--field {field.name} " for field in fields)
    assumed: list[Assumption] = []
    if annotations.segmentation_count:
        # A mask with categories cannot have the category 0, which is the background.
        mask = (
            "mask=instances:mask"
            if 0 in annotations.categories
            else "mask=segmentation:mask"
        )
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
