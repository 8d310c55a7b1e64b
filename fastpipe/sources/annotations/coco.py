"""COCO's files about the same images -> a listing of the images with their annotations as fields.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fastpipe.errors import ImageError
from fastpipe.sources.annotations.coco_annotations import Annotations
from fastpipe.sources.annotations.coco_assumptions import changed_boxes, skipped_entries
from fastpipe.sources.annotations.coco_fields import (
    default_fields,
    entries_of,
    field_value,
    requested_fields,
    resolve_field,
)
from fastpipe.sources.annotations.coco_paths import find_image_folder, use_image_root
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Listing, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

_TASKS = ("instances", "person_keypoints", "captions")


def coco_files(folder: SourcePath, names: Sequence[str]) -> dict[str, list[SourcePath]]:
    """Split -> the files of a folder that COCO calls after it, such as instances_val2017.json.

    The files of a split are in the order of the tasks.
    """
    files: dict[str, list[SourcePath]] = {}
    for task in _TASKS:
        for name in names:
            split = name.removeprefix(f"{task}_").removesuffix(".json")
            if split and name == f"{task}_{split}.json":
                files.setdefault(split, []).append(folder / name)
    return dict(sorted(files.items()))


def list_coco(paths: Sequence[SourcePath], options: SourceOptions) -> Listing:
    """Lists the images of files about the same images, in no order.

    Annotations of several files with one id are one annotation.
    """
    requested = requested_fields(options.fields)
    annotations = Annotations(paths, entries_of(requested))
    if requested is None:
        requested = default_fields(annotations)
    fields = [resolve_field(annotations, field) for field in requested]
    classes = None
    if options.fields is None and annotations.have_only_classes():
        # The classes are those of whole images.
        if annotations.has_several_of_an_image():
            fields.append(SourceField("categories", "classes", column="category_id"))
        else:
            classes = annotations.category_names

    root = options.root_of_images()
    if root is None:
        folder = find_image_folder(annotations, options.split)
    else:
        folder = use_image_root(annotations, root)
    rows = _rows(annotations, fields, is_labelled=classes is not None)
    listing = list_rows(folder.root, rows, fields, classes=classes)

    # Boxes are counted while the rows are read, so this comes last.
    assumed = [*listing.assumed, *folder.assumed, *changed_boxes(annotations)]
    if options.fields is None:
        assumed += skipped_entries(annotations, fields)
    return replace(listing, assumed=tuple(assumed))


def _rows(
    annotations: Annotations, fields: Sequence[SourceField], *, is_labelled: bool
) -> Iterator[Row]:
    """A row for each image. `is_labelled`: the class of its annotation is its label."""
    for image_id, image in annotations.images.items():
        image_annotations = annotations.of_image(image_id)
        values: dict[str, Any] = {}
        problem = image.problem
        for field in fields:
            try:
                values[field.name] = field_value(
                    annotations, field, image_id, image, image_annotations
                )
            except ImageError as error:
                if problem is None:
                    problem = f"field {field.name}: {error}"
        label = None
        if is_labelled and image_annotations:
            try:
                label = annotations.category(image_annotations[0].entry)
            except ImageError as error:
                problem = problem or str(error)
        yield image._replace(values=values, problem=problem, label=label)
    yield from annotations.rows_without_image()
