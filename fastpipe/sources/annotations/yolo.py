"""A folder as YOLO has it: images, and a label file for each -> rows and fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.annotations.darknet import listed_images, read_class_names
from fastpipe.sources.annotations.yolo_labels import LabelReader
from fastpipe.sources.annotations.yolo_yaml import DataYaml, read_data_yaml
from fastpipe.sources.files import files_below, names_in
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import pick_split
from fastpipe.sources.picture_names import is_picture
from fastpipe.sources.tables.label_text import local_path, read_label_text
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row


class _Files(NamedTuple):
    """The images of a split and their label files."""

    images: Path  # the folder
    labels: Path
    # Image below `images` -> the path where its label file would be.
    label_of: dict[str, str]
    label_files: set[str]  # those that exist
    absent_count: int  # images of a list that do not exist


def list_yolo(
    pair: FolderPair, split: str | None, tops: Sequence[Path], first_label: int = 0
) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order.

    Images without a label file have no boxes. The names of the classes are in one of the folders
    `tops`.
    """
    files = _find_files(pair, split)
    wanted = set(files.label_of.values())
    # A folder may have the label files of all splits, of which a list names the images of one.
    stray = files.label_files - wanted if pair.image_list is None else set()
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
    fields = [SourceField("boxes", "boxes", names=data.names)]
    if data.points is not None:
        fields.append(SourceField("keypoints", "keypoints", flip_pairs=data.flip_pairs))

    reader = LabelReader(data, first_label)
    rows = (
        _row(
            image, files.labels / label_file, reader, has_points=data.points is not None
        )
        for image, label_file in files.label_of.items()
    )
    listing = list_rows(
        files.images,
        rows,
        fields,
        beside=(f"labels/{path}" for path in stray),
        place=files.images.name if pair.split else "images",
    )
    reader.check_first_label(readable(str(files.labels)))
    reader.check_points(readable(str(files.labels)))
    return replace(
        listing, assumed=tuple(reader.assumed() + _assumed_of_files(files, data))
    )


def _find_files(pair: FolderPair, split: str | None) -> _Files:
    images = local_path(pair.images)
    labels = local_path(pair.labels)
    if pair.image_list is None and not pair.folders:
        splits = names_in(images).folders
        if splits or split is not None:
            chosen = pick_split(split, splits, images)
            images = images / chosen
            labels = labels / chosen

    label_of: dict[str, str] = {}
    label_files: set[str] = set()
    for image_folder, label_folder in pair.folders or [(images, labels)]:
        image_prefix = _prefix(image_folder, images)
        label_prefix = _prefix(label_folder, labels)
        is_flat = image_folder == label_folder  # label files lie beside the images
        for path in files_below(image_folder, hidden=False):
            if not is_flat or is_picture(path):
                label_of[image_prefix + path] = label_prefix + str(
                    Path(path).with_suffix(".txt")
                )
        if label_folder.is_dir():
            for path in files_below(label_folder, hidden=False):
                if path.endswith(".txt") and Path(path).name != "classes.txt":
                    label_files.add(label_prefix + path)

    absent_count = 0
    if pair.image_list is not None:
        listed = set(listed_images(local_path(pair.image_list), images))
        absent_count = len(listed - label_of.keys())
        label_of = {path: file for path, file in label_of.items() if path in listed}
    return _Files(
        images, labels, dict(sorted(label_of.items())), label_files, absent_count
    )


def _prefix(folder: Path, top: Path) -> str:
    """The part of the paths below `top` that leads to a folder; "" to itself."""
    return "" if folder == top else f"{folder.relative_to(top)}/"


def _row(path: str, label_file: Path, reader: LabelReader, *, has_points: bool) -> Row:
    try:
        labels = reader.parse(read_label_text(label_file), label_file.name)
    except ValueError as problem:  # also ImageError
        return Row(path, problem=str(problem), path=path)
    values: dict[str, Any] = {
        "boxes": {"shares": labels.boxes, "labels": labels.classes}
    }
    if has_points:
        values["keypoints"] = {"shares": labels.points}
    return Row(path, values, path=path)


def _assumed_of_files(files: _Files, data: DataYaml) -> list[Assumption]:
    assumed: list[Assumption] = []
    if not data.names:
        text = "boxes: their classes have no names, because there is no data.yaml and no classes.txt"
        assumed.append(Assumption(text, "--classes-from FILE"))
    bare_count = sum(file not in files.label_files for file in files.label_of.values())
    if not files.labels.is_dir():
        folder = readable(str(files.labels))
        assumed.append(Assumption(f"boxes: none, because there is no folder {folder}"))
    elif bare_count:
        text = (
            f"images without a label file: {bare_count:,} of {len(files.label_of):,}; they have no "
            "boxes"
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
