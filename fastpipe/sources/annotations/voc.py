"""A folder as Pascal VOC has it: images, and an annotation for each -> rows and fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from fastpipe.errors import readable
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.annotations.voc_annotation import Annotation, parse_annotation
from fastpipe.sources.files import SourcePath, names_in, open_unchanged
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import pick_split
from fastpipe.sources.picture_names import is_picture
from fastpipe.sources.tables.label_text import local_path, read_label_text
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

# The folder with the lists of images that have masks, a list for each split.
MASK_LISTS = PurePosixPath("ImageSets/Segmentation")


def list_voc(
    root: Path, pair: FolderPair, split: str | None, others: Sequence[FolderPair] = ()
) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order.

    All splits have the same classes: those in ImageSets/Main, and `others`, which have folders of
    their own.
    """
    # Name -> annotation, or why it cannot be parsed.
    by_name = _read_annotations(pair.labels)
    split_names = names_of_split(root, "Main", split)
    names = list(by_name) if split_names is None else split_names
    ours = [entry for entry in by_name.values() if isinstance(entry, Annotation)]
    all_annotations = list(ours)
    for other in others:
        for entry in _read_annotations(other.labels).values():
            if isinstance(entry, Annotation):
                all_annotations.append(entry)

    classes = sorted(
        {name for annotation in all_annotations for name in annotation.names}
    )
    labels = {name: label for label, name in enumerate(classes)}
    # VOC counts pixels from 1. Some tools count from 0, which a box at 0 gives away.
    counts_from_zero = any(
        annotation.count_boxes_at_zero() for annotation in all_annotations
    )
    first_pixel = 0 if counts_from_zero else 1

    folder = local_path(pair.images)
    files_of_stem: dict[str, list[str]] = {}
    for file in names_in(folder).files:
        if not file.endswith(".xml"):
            files_of_stem.setdefault(Path(file).stem, []).append(file)
    rows = (
        _voc_row(
            name,
            by_name.get(name, "no such annotation"),
            files_of_stem,
            labels,
            first_pixel,
        )
        for name in names
    )
    fields = [
        SourceField("boxes", "boxes", names=tuple(classes)),
        SourceField("difficult", "json"),
    ]
    listing = list_rows(folder, rows, fields, place=folder.name)
    assumed = _assumed_of_voc(ours)
    if split_names is None:
        assumed += _images_without_annotation(by_name, files_of_stem)
    return replace(listing, assumed=tuple(assumed))


def names_of_split(root: Path, task: str, split: str | None) -> list[str] | None:
    """The names of the images of a split, without endings; None where there are no splits.

    `task`: the folder in ImageSets with the lists: "Main" for boxes, "Segmentation" for masks.
    """
    folder = root / "ImageSets" / task
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
    folder = local_path(labels)
    annotations: dict[str, Annotation | str] = {}
    for name in _stems(folder, ".xml"):
        try:
            annotations[name] = parse_annotation(
                read_label_text(folder / f"{name}.xml")
            )
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
        "boxes": {
            "boxes": boxes,
            "labels": [labels[name] for name in annotation.names],
        },
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
    elif box_count:
        text = (
            "boxes: pixels are counted from 1, as VOC counts them, for no box begins at 0; so xmin "
            "and ymin lose 1, xmax and ymax stay"
        )
        assumed.append(Assumption(text))
    unclear_count = sum(
        annotation.unclear_difficult_count for annotation in annotations
    )
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
    skipped = {
        attribute for annotation in annotations for attribute in annotation.skipped
    }
    if skipped:
        text = (
            f"attributes of objects that are not packed: {', '.join(sorted(skipped))}"
        )
        assumed.append(Assumption(text))
    return assumed


def _images_without_annotation(
    annotations: Mapping[str, Annotation | str],
    files_of_stem: Mapping[str, Sequence[str]],
) -> list[Assumption]:
    """Says that images are left out because no annotation is about them."""
    annotated: set[str] = set()
    for name, annotation in annotations.items():
        annotated.update(files_of_stem.get(name, ()))
        if isinstance(annotation, Annotation):
            annotated.add(_image_path(name, annotation, files_of_stem))
    images = [
        file for files in files_of_stem.values() for file in files if is_picture(file)
    ]
    without = [file for file in images if file not in annotated]
    if not without:
        return []
    text = (
        f"images without an annotation: {len(without):,} of {len(images):,}, such as "
        f"{readable(without[0])}; they are left out"
    )
    return [Assumption(text)]


def _stems(folder: Path, ending: str) -> list[str]:
    """The names of the files with this ending, without it."""
    return [
        name.removesuffix(ending)
        for name in names_in(folder).files
        if name.endswith(ending)
    ]
