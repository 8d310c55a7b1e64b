"""A folder as Pascal VOC or YOLO has it: images, and a file with boxes for each -> rows and fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fastpipe.errors import ImageError, PackError, readable
from fastpipe.sources.annotation_folders import Beside
from fastpipe.sources.darknet import listed_images, read_class_names
from fastpipe.sources.files import SourcePath, files_below, names_in, open_unchanged
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import is_picture, pick_split
from fastpipe.sources.rows import Row, list_rows
from fastpipe.sources.voc_annotation import Annotation, parse_annotation
from fastpipe.sources.yolo_labels import LabelReader
from fastpipe.sources.yolo_yaml import read_data_yaml

_MOST_BYTES = 4 << 20  # of a file with boxes


def list_voc(
    root: Path, beside: Beside, split: str | None, others: Sequence[Beside] = ()
) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order.

    All splits have the same classes: those in ImageSets/Main, and `others`, which have folders of
    their own.
    """
    # Name -> annotation, or why it cannot be parsed.
    by_name = _read_annotations(beside.labels)
    split_names = _names_of_split(root, split)
    names = list(by_name) if split_names is None else split_names
    ours = [entry for entry in by_name.values() if isinstance(entry, Annotation)]
    all_annotations = list(ours)
    for other in others:
        for entry in _read_annotations(other.labels).values():
            if isinstance(entry, Annotation):
                all_annotations.append(entry)

    classes = sorted({name for annotation in all_annotations for name in annotation.names})
    labels = {name: label for label, name in enumerate(classes)}
    # VOC counts pixels from 1. Some tools count from 0, which a box at 0 gives away.
    counts_from_zero = any(annotation.count_boxes_at_zero() for annotation in all_annotations)
    first_pixel = 0 if counts_from_zero else 1

    folder = _local(beside.images)
    files_of_stem: dict[str, list[str]] = {}
    for file in names_in(folder).files:
        if not file.endswith(".xml"):
            files_of_stem.setdefault(Path(file).stem, []).append(file)
    rows = (
        _voc_row(name, by_name.get(name, "no such annotation"), files_of_stem, labels, first_pixel)
        for name in names
    )
    fields = [SourceField("boxes", "boxes", names=tuple(classes)), SourceField("difficult", "json")]
    listing = list_rows(folder, rows, fields, place=folder.name)
    assumed = _assumed_of_voc(ours)
    if split_names is None:
        assumed += _images_without_annotation(by_name, files_of_stem)
    return replace(listing, assumed=tuple(assumed))


def _names_of_split(root: Path, split: str | None) -> list[str] | None:
    """The names of the annotations of a split; None where there are no splits."""
    folder = root / "ImageSets" / "Main"
    splits: list[str] = []
    if folder.is_dir():
        # cat_train.txt says for each image of train whether it shows a cat.
        splits = [name for name in _stems(folder, ".txt") if "_" not in name]
    if not splits and split is None:
        return None
    with open_unchanged(folder / f"{pick_split(split, splits, root)}.txt") as file:
        lines = file.read().decode("utf-8-sig", "replace").splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def _read_annotations(labels: SourcePath) -> dict[str, Annotation | str]:
    """Name of each file -> its annotation, or why it cannot be parsed."""
    folder = _local(labels)
    annotations: dict[str, Annotation | str] = {}
    for name in _stems(folder, ".xml"):
        try:
            annotations[name] = parse_annotation(_read_text(folder / f"{name}.xml"))
        except (ValueError, ElementTree.ParseError) as problem:  # also ImageError
            annotations[name] = f"{name}.xml is not an annotation of VOC: {problem}"
    return annotations


def _voc_row(
    name: str,
    annotation: Annotation | str,
    files_of_stem: Mapping[str, Sequence[str]],
    labels: Mapping[str, int],
    first_pixel: int,
) -> Row:
    where = f"Annotations/{name}.xml"
    if isinstance(annotation, str):
        return Row(where, problem=annotation)
    boxes: list[list[float]] = []
    for left, top, right, bottom in annotation.boxes:
        # The last pixel is inside the box.
        boxes.append([left - first_pixel, top - first_pixel, right, bottom])
    values = {
        "boxes": {"boxes": boxes, "labels": [labels[name] for name in annotation.names]},
        "difficult": annotation.difficult,
    }
    path = _image_path(name, annotation, files_of_stem)
    return Row(where, values, path=path, size=annotation.size)


def _image_path(
    name: str, annotation: Annotation, files_of_stem: Mapping[str, Sequence[str]]
) -> str:
    path = annotation.filename
    if "/" in path or path in files_of_stem.get(Path(path).stem, ()):
        return path
    # Many tools leave out its ending, or write another file's name. In VOC, an image has the name
    # of its annotation.
    for stem in (path, name):
        files = files_of_stem.get(stem, ())
        if len(files) == 1:
            return files[0]
    return path or f"{name}.jpg"


def _assumed_of_voc(annotations: Sequence[Annotation]) -> list[Assumption]:
    assumed: list[Assumption] = []
    box_count = sum(len(annotation.boxes) for annotation in annotations)
    at_zero_count = sum(annotation.count_boxes_at_zero() for annotation in annotations)
    if at_zero_count:
        text = (
            f"boxes that begin at 0: {at_zero_count:,} of {box_count:,}; so pixels are counted "
            "from 0, not from 1"
        )
        assumed.append(Assumption(text))
    unclear_count = sum(annotation.unclear_difficult_count for annotation in annotations)
    if unclear_count:
        text = (
            f"objects that say neither 0 nor 1 as difficult: {unclear_count:,}; they are taken as "
            "not difficult"
        )
        assumed.append(Assumption(text))
    around_count = sum(annotation.box_around_count for annotation in annotations)
    if around_count:
        text = (
            f"objects with a polygon and no bndbox: {around_count:,}; the boxes are those around "
            "them"
        )
        assumed.append(Assumption(text))
    skipped = {attribute for annotation in annotations for attribute in annotation.skipped}
    if skipped:
        text = f"attributes of objects that are not packed: {', '.join(sorted(skipped))}"
        assumed.append(Assumption(text))
    return assumed


def _images_without_annotation(
    annotations: Mapping[str, Annotation | str], files_of_stem: Mapping[str, Sequence[str]]
) -> list[Assumption]:
    """Says that images are left out because no annotation is about them."""
    annotated: set[str] = set()
    for name, annotation in annotations.items():
        annotated.update(files_of_stem.get(name, ()))
        if isinstance(annotation, Annotation):
            annotated.add(_image_path(name, annotation, files_of_stem))
    images = [file for files in files_of_stem.values() for file in files if is_picture(file)]
    without = [file for file in images if file not in annotated]
    if not without:
        return []
    text = (
        f"images without an annotation: {len(without):,} of {len(images):,}, such as "
        f"{readable(without[0])}; they are left out"
    )
    return [Assumption(text)]


def list_yolo(
    beside: Beside, split: str | None, tops: Sequence[Path], first_label: int = 0
) -> Listing:
    """Lists the files in images/, or images/SPLIT, in no order; those without a label file have no
    boxes.

    The names of the classes are in one of the folders `tops`.
    """
    images = _local(beside.images)
    labels = _local(beside.labels)
    if beside.only is None and not beside.folders:
        splits = names_in(images).folders
        if splits or split is not None:
            chosen = pick_split(split, splits, images)
            images = images / chosen
            labels = labels / chosen

    # Path of each image below `images` -> its label file below `labels`.
    label_of: dict[str, str] = {}
    label_files: set[str] = set()
    for image_folder, label_folder in beside.folders or [(images, labels)]:
        image_prefix = _prefix(image_folder, images)
        label_prefix = _prefix(label_folder, labels)
        is_flat = image_folder == label_folder  # label files lie beside the images
        for path in files_below(image_folder, hidden=False):
            if not is_flat or is_picture(path):
                label_of[image_prefix + path] = label_prefix + str(Path(path).with_suffix(".txt"))
        if label_folder.is_dir():
            for path in files_below(label_folder, hidden=False):
                if path.endswith(".txt") and Path(path).name != "classes.txt":
                    label_files.add(label_prefix + path)
    label_of = dict(sorted(label_of.items()))
    absent_count = 0
    if beside.only is not None:
        listed = set(listed_images(_local(beside.only), images))
        label_of = {path: label for path, label in label_of.items() if path in listed}
        absent_count = len(listed) - len(label_of)

    wanted_files = set(label_of.values())
    # The label files of a list's other splits are also in this folder.
    stray = label_files - wanted_files if beside.only is None else set()
    if label_files and len(stray) == len(label_files):
        example = next(iter(label_of.values()), "images")
        raise PackError(
            f"none of the {len(label_files):,} label files in {readable(str(labels))}, such as "
            f"{readable(min(label_files))}, is called after an image in {readable(str(images))}; "
            f"expected {example}"
        )

    data = read_data_yaml(tops)
    if not data.names:
        folders = [*tops, labels, _local(beside.labels)]
        if images == labels:
            folders.append(labels.parent)
        data = data._replace(names=read_class_names(folders))
    fields = [SourceField("boxes", "boxes", names=data.names)]
    if data.points is not None:
        fields.append(SourceField("keypoints", "keypoints", flip_pairs=data.flip_pairs))

    reader = LabelReader(data, first_label)
    has_points = data.points is not None
    listing = list_rows(
        images,
        (_yolo_row(path, labels / file, reader, has_points) for path, file in label_of.items()),
        fields,
        beside=(f"labels/{path}" for path in stray),
        place=images.name if beside.part else "images",
    )
    reader.check_first_label(readable(str(labels)))

    assumed = reader.assumed()
    if not data.names:
        text = "boxes: their classes have no names, for there is no data.yaml and no classes.txt"
        assumed.append(Assumption(text, "--classes-from FILE"))
    if not labels.is_dir():
        assumed.append(Assumption(f"boxes: none, for there is no folder {readable(str(labels))}"))
    else:
        bare_count = sum(file not in label_files for file in label_of.values())
        if bare_count:
            text = f"images without a label file: {bare_count:,} of {len(label_of):,}; they have no boxes"
            assumed.append(Assumption(text))
    if absent_count:
        text = (
            f"images that the list names, and that are not there: {absent_count:,}; they are left "
            "out"
        )
        assumed.append(Assumption(text))
    sharing_count = len(label_of) - len(wanted_files)
    if sharing_count:
        text = (
            "images whose names differ in the ending alone, such as 1.jpg and 1.png: "
            f"{sharing_count:,}; they have the same label file"
        )
        assumed.append(Assumption(text))
    return replace(listing, assumed=tuple(assumed))


def _prefix(folder: Path, top: Path) -> str:
    """What is before the paths of a folder's files, from another folder on; "" if they are one."""
    return "" if folder == top else f"{folder.relative_to(top)}/"


def _yolo_row(path: str, label_file: Path, reader: LabelReader, has_points: bool) -> Row:
    try:
        labels = reader.parse(_read_text(label_file), label_file.name)
    except ValueError as problem:  # also ImageError
        return Row(path, problem=str(problem), path=path)
    values: dict[str, Any] = {"boxes": {"shares": labels.boxes, "labels": labels.classes}}
    if has_points:
        values["keypoints"] = {"shares": labels.points}
    return Row(path, values, path=path)


def _read_text(path: Path) -> str:
    """The text of a small file; "" if it does not exist. ImageError: it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ImageError(f"{path.name}: expected at most {_MOST_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise ImageError(
            f"{path.name} cannot be read: {getattr(problem, 'strerror', problem)}"
        ) from None


def _stems(folder: Path, ending: str) -> list[str]:
    """The names of the files with this ending, without it."""
    return [name.removesuffix(ending) for name in names_in(folder).files if name.endswith(ending)]


def _local(path: SourcePath) -> Path:
    """VOC and YOLO are read only on this machine."""
    return Path(str(path))
