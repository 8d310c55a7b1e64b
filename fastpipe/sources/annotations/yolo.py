"""A folder as YOLO has it: images, and a label file for each -> rows and fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.annotations.darknet import (
    NAME_LISTS,
    read_class_names,
    read_image_list,
)
from fastpipe.sources.annotations.outlines import (
    SEGMENTATION,
    find_fields,
    mask_fields,
)
from fastpipe.sources.annotations.yolo_labels import (
    LabelReader,
    Labels,
    describe_polygons,
)
from fastpipe.sources.annotations.yolo_yaml import DataYaml, read_data_yaml
from fastpipe.sources.field_columns import FieldColumn
from fastpipe.sources.files import files_below, names_in
from fastpipe.sources.folders.splits import training_or_first
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import pick_split
from fastpipe.sources.tables.label_text import local_path, read_label_text
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

# The columns that --field names.
_BOXES = "boxes"
_KEYPOINTS = "keypoints"
_MASK = "mask"


class _Files(NamedTuple):
    """The images of a split and their label files."""

    images: Path  # the folder
    labels: Path
    # Image below `images` -> the path where its label file would be.
    label_of: dict[str, str]
    label_files: set[str]  # those that exist
    absent_count: int  # images of a list that do not exist


def list_yolo(
    pair: FolderPair,
    split: str | None,
    tops: Sequence[Path],
    first_label: int = 0,
    wishes: Sequence[FieldColumn] | None = None,
    *,
    drops_bad_lines: bool = False,
) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order.

    Images without a label file have no boxes. The names of the classes are in one of the folders
    `tops`. `wishes` are the fields that a user asks for; None: boxes, and keypoints if there are some.
    `drops_bad_lines`: an image is packed without the lines that are no labels.
    """
    files = _find_files(pair, split, tops, has_wishes=wishes is not None)
    stray = set[str]()  # label files without an image
    # A folder may have the label files of all splits, of which a list names the images of one.
    if pair.image_list is None:
        stray = files.label_files.difference(files.label_of.values())
    if stray and len(stray) == len(files.label_files):
        example = next(iter(files.label_of.values()), "images")
        raise PackError(
            f"none of the {len(stray):,} label files in {readable(str(files.labels))}, such as "
            f"{readable(min(stray))}, is called after an image in {readable(str(files.images))}; "
            f"expected {example}"
        )

    data = read_data_yaml(tops)
    if not data.names:
        folders = [*tops, files.labels, local_path(pair.labels)]
        if files.images == files.labels:
            folders.append(files.labels.parent)
        data = data._replace(names=read_class_names(folders))
    fields = _choose_fields(data, wishes)

    reader = LabelReader(data, first_label, drops_bad_lines=drops_bad_lines)
    # How messages call the folder of the images.
    place = "images"
    if pair.split:
        place = files.images.name
    listing = list_rows(
        files.images,
        _rows(files, reader, fields),
        fields,
        beside=(f"labels/{path}" for path in stray),
        place=place,
    )
    # The reader has seen all labels only when the rows have been read.
    reader.check_first_label(readable(str(files.labels)))
    reader.check_points(readable(str(files.labels)))
    has_masks = any(field.kind == _MASK for field in fields)
    assumed = [
        *reader.assumptions(has_masks=has_masks),
        *_find_assumptions(files, data),
    ]
    return replace(listing, assumed=tuple(assumed))


def _find_files(
    pair: FolderPair, split: str | None, tops: Sequence[Path], *, has_wishes: bool
) -> _Files:
    """Lists the images and the label files of a split."""
    images = local_path(pair.images)
    labels = local_path(pair.labels)
    if pair.image_list is None and not pair.folders:
        splits = names_in(images).folders
        if splits or split is not None:
            more = ""
            if len(splits) > 1 and split is None and not has_wishes:
                more = describe_polygons(labels / training_or_first(splits), tops)
            chosen = pick_split(split, splits, images, more)
            images = images / chosen
            labels = labels / chosen

    label_of: dict[str, str] = {}
    label_files: set[str] = set()
    for image_folder, label_folder in pair.folders or [(images, labels)]:
        image_prefix = _prefix(image_folder, images)
        label_prefix = _prefix(label_folder, labels)
        # Where label files lie beside the images, only pictures are images. Else any file is one,
        # so that the pack reports those that it cannot read.
        is_flat = image_folder == label_folder
        for path in files_below(image_folder, hidden=False):
            if not is_flat or is_picture(path):
                label_file = str(Path(path).with_suffix(".txt"))
                label_of[image_prefix + path] = label_prefix + label_file
        if label_folder.is_dir():
            for path in files_below(label_folder, hidden=False):
                if path.endswith(".txt") and Path(path).name not in NAME_LISTS:
                    label_files.add(label_prefix + path)

    absent_count = 0
    if pair.image_list is not None:
        listed = set(read_image_list(local_path(pair.image_list), images))
        absent_count = len(listed - label_of.keys())
        label_of = {path: file for path, file in label_of.items() if path in listed}
    return _Files(
        images, labels, dict(sorted(label_of.items())), label_files, absent_count
    )


def _prefix(folder: Path, top: Path) -> str:
    """The start of the paths below `top` that leads to a folder; "" for `top` itself."""
    if folder == top:
        return ""
    return f"{folder.relative_to(top)}/"


def _choose_fields(
    data: DataYaml, wishes: Sequence[FieldColumn] | None
) -> list[SourceField]:
    """The fields that a user asks for, or else those of boxes and keypoints.

    Raises:
        PackError: label files have no such values, or masks need pycocotools.
    """
    # The column of --field -> the field as it is without one.
    known = {_BOXES: SourceField(_BOXES, _BOXES, names=data.names, column=_BOXES)}
    if data.points is not None:
        known[_KEYPOINTS] = SourceField(
            _KEYPOINTS,
            _KEYPOINTS,
            flip_pairs=data.flip_pairs,
            column=_KEYPOINTS,
            is_per_box=True,
        )
    if wishes is None:
        return list(known.values())
    # Number 0 of a mask is the background.
    mask_names = ("", *data.names) if data.names else ()
    known.update(mask_fields(mask_names))
    return find_fields(known, wishes, "label files of YOLO")


def _rows(
    files: _Files, reader: LabelReader, fields: Sequence[SourceField]
) -> Iterator[Row]:
    for image, label_file in files.label_of.items():
        yield _row(image, files.labels / label_file, reader, fields)


def _row(
    path: str, label_file: Path, reader: LabelReader, fields: Sequence[SourceField]
) -> Row:
    values: dict[str, Any] = {}
    try:
        labels = reader.parse(read_label_text(label_file), label_file.name)
        for field in fields:
            values[field.name] = _value_of(field, labels, label_file.name)
    except ValueError as problem:  # also ImageError
        return Row(path, problem=str(problem), path=path)
    return Row(path, values, path=path)


def _value_of(field: SourceField, labels: Labels, file_name: str) -> dict[str, Any]:
    """The value of a field of an image. ValueError: an object has no outline for a mask."""
    if field.kind == _BOXES:
        value = {"shares": labels.boxes, "labels": labels.classes}
        if labels.bad_line_count:
            value["dropped"] = labels.bad_line_count
        return value
    if field.kind == _KEYPOINTS:
        return {"shares": labels.points}
    shapes = []
    for index, polygon in enumerate(labels.polygons):
        if not polygon:
            raise ValueError(
                f"{file_name}: object {index + 1} is a box, and a mask needs a polygon"
            )
        number = index + 1
        if field.column == SEGMENTATION:
            number = labels.classes[index] + 1
        shapes.append((number, {"shares": polygon}))
    return {"shapes": shapes}


def _find_assumptions(files: _Files, data: DataYaml) -> list[Assumption]:
    """Says which names, label files and images are missing or shared."""
    assumed: list[Assumption] = []
    if not data.names:
        text = (
            "boxes: their classes have no names, because there is no data.yaml and no "
            "classes.txt"
        )
        assumed.append(Assumption(text, "--classes-from FILE"))
    unlabelled_count = sum(
        label_file not in files.label_files for label_file in files.label_of.values()
    )
    if not files.labels.is_dir():
        folder = readable(str(files.labels))
        assumed.append(Assumption(f"boxes: none, because there is no folder {folder}"))
    elif unlabelled_count:
        text = (
            f"images without a label file: {unlabelled_count:,} of {len(files.label_of):,}; "
            "they have no boxes"
        )
        assumed.append(Assumption(text))
    if files.absent_count:
        text = (
            f"images that the list names, and that are not there: {files.absent_count:,}; they are "
            "left out"
        )
        assumed.append(Assumption(text))
    sharing_count = len(files.label_of) - len(set(files.label_of.values()))
    if sharing_count:
        text = (
            "images whose names differ in the ending alone, such as 1.jpg and 1.png: "
            f"{sharing_count:,}; they have the same label file"
        )
        assumed.append(Assumption(text))
    return assumed
