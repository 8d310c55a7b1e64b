"""COCO's files about the same images -> a listing of the images with their annotations as fields.

Format: https://cocodataset.org/#format-data
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotations.coco_annotations import Annotations
from fastpipe.sources.annotations.coco_assumptions import (
    find_box_assumptions,
    find_entry_assumptions,
)
from fastpipe.sources.annotations.coco_fields import (
    list_default_fields,
    list_entries,
    parse_fields,
    read_field_value,
    resolve_field,
)
from fastpipe.sources.annotations.coco_panoptic import list_panoptic
from fastpipe.sources.annotations.coco_paths import find_image_folder, use_image_root
from fastpipe.sources.annotations.coco_unlisted import find_unlisted
from fastpipe.sources.files import SourcePath
from fastpipe.sources.listing import Listing, SourceField
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

# The field of the classes of whole images.
CATEGORIES = "categories"


def list_category_names(categories: Mapping[int, str]) -> tuple[str, ...]:
    """The names of categories in the order of their ids, without gaps, each once."""
    names: dict[str, None] = {}  # in place of a set, as it keeps the order
    for number in sorted(categories):
        names[categories[number]] = None
    return tuple(names)


def list_coco(paths: Sequence[SourcePath], options: SourceOptions) -> Listing:
    """Lists the images of files about the same images, in no order.

    Annotations of several files with one id are one annotation.
    """
    requested = parse_fields(options.fields)
    annotations = Annotations(
        paths,
        list_entries(requested),
        drops_bad_objects=options.keeps_images,
        box_format=options.box_format,
    )
    has_boxes = "bbox" in annotations.entry_names and not annotations.is_panoptic
    if options.box_format is not None and not has_boxes:
        raise PackError(
            f"{readable(str(paths[0]))} has no boxes (bbox); leave it out",
            option="box_format",
        )
    if annotations.is_panoptic:
        return list_panoptic(annotations, options)
    if requested is None:
        requested = list_default_fields(annotations)
    fields = [resolve_field(annotations, field) for field in requested]
    classes = None
    if options.fields is None and annotations.have_only_classes():
        # The classes are those of whole images.
        if annotations.has_several_of_an_image():
            names = list_category_names(annotations.categories)
            field = SourceField(
                CATEGORIES, "classes", names=names, column="category_id"
            )
            fields.append(field)
        else:
            classes = annotations.category_names

    root = options.root_of_images()
    if root is None:
        folder = find_image_folder(annotations, options.split)
    else:
        folder = use_image_root(annotations, root)
    rows = _rows(annotations, fields, is_labelled=classes is not None)
    unlisted = find_unlisted(annotations, fields, folder.root, options.unlisted)
    listing = list_rows(folder.root, rows, fields, classes=classes, unlisted=unlisted)

    # Boxes are counted while the rows are read, so this comes last.
    assumed = [*listing.assumed, *folder.assumed, *find_box_assumptions(annotations)]
    if options.fields is None:
        assumed += find_entry_assumptions(annotations, fields)
    return replace(listing, assumed=tuple(assumed))


def _rows(
    annotations: Annotations, fields: Sequence[SourceField], *, is_labelled: bool
) -> Iterator[Row]:
    """A row for each image, and a rejected one for each annotation without an image.

    `is_labelled`: the class of the only annotation of an image is its label.
    """
    has_boxes = any(field.kind == "boxes" for field in fields)
    for image_id, image in annotations.images.items():
        image_annotations = annotations.read_annotations(image_id)
        values: dict[str, Any] = {}
        problem = image.problem
        objects = annotations.list_objects(image_annotations, has_boxes=has_boxes)
        for field in fields:
            try:
                values[field.name] = read_field_value(
                    annotations, field, image_id, image, image_annotations, objects
                )
            except ImageError as error:
                # Of several problems of an image, the first one is reported.
                if problem is None:
                    problem = f"field {field.name}: {error}"
        label = None
        if is_labelled and image_annotations:
            try:
                label = annotations.read_category(image_annotations[0].entry)
            except ImageError as error:
                problem = problem or str(error)
        yield image._replace(values=values, problem=problem, label=label)
    yield from annotations.rows_without_image()
