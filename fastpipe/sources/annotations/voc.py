"""A folder as Pascal VOC has it: images, and an annotation for each -> rows and fields.

Note [VOC in class folders]
Stanford Dogs has Images/n02085620-Chihuahua/n02085620_7.jpg, and its annotation in
Annotation/n02085620-Chihuahua/n02085620_7, without an ending. Where all images and annotations lie
in folders of the same names, these are the classes of the images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotated_pictures import OTHER_NAME
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.annotations.voc_annotation import Annotation, parse_annotation
from fastpipe.sources.annotations.written_paths import split_written_path
from fastpipe.sources.files import (
    SourcePath,
    files_below,
    names_in,
    open_unchanged,
)
from fastpipe.sources.folders.splits import FEW, first_paths, training_or_first
from fastpipe.sources.listing import Assumption, Listing, SourceField
from fastpipe.sources.options import KEEP, pick_split, quote_for_shell
from fastpipe.sources.tables.label_text import local_path, read_label_text
from fastpipe.sources.tables.list_rows import list_rows
from fastpipe.sources.tables.rows import Row

_ENDING = ".xml"
_NO_ANNOTATION = "no such annotation; --unlisted keep packs the image without boxes"
# The option that says from which number pixels are counted.
_FIRST_PIXEL = "--first-pixel 0 or 1"
# The folder with the lists of images that have masks, a list for each split.
MASK_LISTS = PurePosixPath("ImageSets/Segmentation")
_MASKS = "SegmentationClass"


def list_voc(
    root: Path,
    pair: FolderPair,
    split: str | None,
    others: Sequence[FolderPair] = (),
    *,
    drops_bad_objects: bool = False,
    unlisted: str | None = None,
    first_pixel: int | None = None,
) -> Listing:
    """Lists the images that have annotations, or those of a split, in no order.

    All splits have the same classes: those in ImageSets/Main, and `others`, which have folders of
    their own.

    Args:
        drops_bad_objects: an image is packed without the objects that cannot be read.
        unlisted: of images without an annotation, one of UNLISTED; None: they are left out, with an
            assumption.
        first_pixel: the number of the first pixel, 0 or 1; None: the boxes say it.
    """
    # Name -> annotation, or why it cannot be parsed.
    annotation_by_name = _read_annotations(
        pair.labels, drops_bad_objects=drops_bad_objects
    )
    split_names = read_split_names(root, "Main", split)
    names = split_names
    if names is None:
        names = list(annotation_by_name)
    annotations = _valid_annotations(annotation_by_name)
    all_annotations = list(annotations)
    for other in others:
        all_annotations += _valid_annotations(
            _read_annotations(other.labels, drops_bad_objects=drops_bad_objects)
        )

    class_names = set[str]()
    for annotation in all_annotations:
        class_names.update(annotation.names)
    is_first_pixel_given = first_pixel is not None
    if first_pixel is None:
        first_pixel = _find_first_pixel(all_annotations)
    classes = sorted(class_names)
    labels = {name: label for label, name in enumerate(classes)}

    folder = local_path(pair.images)
    are_in_folders = lie_in_class_folders(pair)
    image_files: Iterable[str] = names_in(folder).files
    if are_in_folders:
        image_files = files_below(folder)
    files_of_stem: dict[str, list[str]] = {}
    for file in image_files:
        # The annotations may lie in the same folder.
        if not file.endswith(_ENDING):
            files_of_stem.setdefault(_without_ending(file), []).append(file)
    if split_names is not None and unlisted == KEEP:
        for name in names:
            if len(_pictures_of_stem(name, files_of_stem)) == 1:
                annotation_by_name.setdefault(name, Annotation("", None))
    without_annotation: list[str] = []
    if split_names is None:
        without_annotation = _images_without_annotation(
            annotation_by_name, files_of_stem
        )
    rows = _voc_rows(names, annotation_by_name, files_of_stem, labels, first_pixel)
    if are_in_folders:
        rows = _with_labels(rows, names)
    if unlisted == KEEP:
        kept_rows = _rows_without_boxes(without_annotation)
        if are_in_folders:
            kept_rows = _with_labels(kept_rows, without_annotation)
        rows = chain(rows, kept_rows)
    fields = [
        SourceField("boxes", "boxes", names=tuple(classes)),
        SourceField("difficult", "json", is_per_box=True),
    ]
    listing = list_rows(folder, rows, fields, place=folder.name)
    assumed = _find_assumptions(
        annotations, first_pixel, is_first_pixel_given=is_first_pixel_given
    )
    if are_in_folders:
        assumed.append(
            Assumption(f"labels: the names of the folders in {pair.images.name}")
        )
    annotation_of_name = {}
    for name in names:
        entry = annotation_by_name.get(name)
        if isinstance(entry, Annotation):
            annotation_of_name[name] = entry
    assumed += _find_name_assumptions(annotation_of_name, files_of_stem)
    if unlisted is None:
        num_images = sum(map(is_picture, chain(*files_of_stem.values())))
        assumed += _assume_left_out(without_annotation, num_images)
    return replace(listing, assumed=tuple(assumed))


def _find_first_pixel(annotations: Iterable[Annotation]) -> int:
    """The number of the first pixel.

    VOC counts pixels from 1. Some tools count from 0, which a box at 0 gives away.
    """
    for annotation in annotations:
        if annotation.count_boxes_at_zero():
            return 0
    return 1


def read_split_names(root: Path, task: str, split: str | None) -> list[str] | None:
    """The names of the images of a split, without endings; None where there are no splits.

    `task`: the folder in ImageSets with the lists: "Main" for boxes, "Segmentation" for masks.
    """
    folder = root / "ImageSets" / task
    splits = _list_splits(folder)
    if not splits and split is None:
        return None
    if not splits and split is not None:
        _refuse_lists_of_other_tasks(root, folder, split)
    with open_unchanged(folder / f"{pick_split(split, splits, root)}.txt") as file:
        lines = file.read().decode("utf-8-sig", "replace").splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def _list_splits(folder: Path) -> list[str]:
    """The splits that have a list in a folder of ImageSets; none if it does not exist."""
    if not folder.is_dir():
        return []
    # cat_train.txt says for each image of train whether it shows a cat.
    return [name for name in _stems(folder, ".txt") if "_" not in name]


def describe_splits_of_voc(root: SourcePath) -> str:
    """Says which splits a folder of VOC has, behind its path, and how its masks are packed; or ""."""
    if not isinstance(root, Path):
        return ""
    text = ""
    splits = _list_splits(root / "ImageSets/Main")
    if len(splits) > 1:
        text = (
            f", which has the splits {first_paths(splits)} (--split "
            f"{quote_for_shell(training_or_first(splits))} packs one)"
        )
    splits_of_masks = _list_splits(root / MASK_LISTS)
    if splits_of_masks and (root / _MASKS).is_dir():
        text += (
            f"; --format masks --split {quote_for_shell(training_or_first(splits_of_masks))} packs the "
            f"masks in {_MASKS} in place of the boxes"
        )
    return text


def _refuse_lists_of_other_tasks(root: Path, folder: Path, split: str) -> None:
    """Raises PackError if a split has its list in another folder of ImageSets, as PASCAL Context."""
    if not folder.parent.is_dir():
        return
    for name in names_in(folder.parent).folders:
        file = folder.parent / name / f"{split}.txt"
        if file.is_file():
            raise PackError(
                f"{readable(str(root))} has no lists of splits in ImageSets/{folder.name}, but "
                f"{readable(str(file))}; --split-list {quote_for_shell(str(file))} in place of it "
                "packs the images in this list",
                option="split",
            )


def _read_annotations(
    labels: SourcePath, *, drops_bad_objects: bool
) -> dict[str, Annotation | str]:
    """Name of each file -> its annotation, or why it cannot be parsed."""
    folder = local_path(labels)
    files = [name for name in names_in(folder).files if name.endswith(_ENDING)]
    if not files:
        files = list(files_below(folder))
    annotations: dict[str, Annotation | str] = {}
    for file in files:
        name = file.removesuffix(_ENDING)
        try:
            annotations[name] = parse_annotation(
                read_label_text(folder / file),
                drops_bad_objects=drops_bad_objects,
            )
        except (ValueError, ElementTree.ParseError) as problem:  # also ImageError
            annotations[name] = f"{file} is not an annotation of VOC: {problem}"
    return annotations


def lie_in_class_folders(pair: FolderPair) -> bool:
    """Whether images and annotations lie in folders of the same names.

    See Note [VOC in class folders].
    """
    images = names_in(pair.images, FEW)
    labels = names_in(pair.labels, FEW)
    if any(map(is_picture, images.files)) or any(
        name.endswith(_ENDING) for name in labels.files
    ):
        return False
    return bool(labels.folders) and set(labels.folders) <= set(images.folders)


def _with_labels(rows: Iterable[Row], names: Iterable[str]) -> Iterator[Row]:
    """The rows with the folders of their annotations as labels. `names`: of the annotations."""
    for row, name in zip(rows, names, strict=True):
        yield row._replace(label=name.partition("/")[0])


def _without_ending(path: str) -> str:
    return str(PurePosixPath(path).with_suffix(""))


def _valid_annotations(
    annotations: Mapping[str, Annotation | str],
) -> list[Annotation]:
    """The annotations without those that cannot be parsed."""
    entries = annotations.values()
    return [entry for entry in entries if isinstance(entry, Annotation)]


def _voc_rows(
    names: Iterable[str],
    annotations: Mapping[str, Annotation | str],
    files_of_stem: Mapping[str, Sequence[str]],
    labels: Mapping[str, int],
    first_pixel: int,
) -> Iterator[Row]:
    """A row for each name; the other parameters are those of `_voc_row`."""
    for name in names:
        annotation = annotations.get(name, _NO_ANNOTATION)
        yield _voc_row(name, annotation, files_of_stem, labels, first_pixel)


def _rows_without_boxes(images: Iterable[str]) -> Iterator[Row]:
    """The rows of images without an annotation."""
    values = {"boxes": {"boxes": [], "labels": []}, "difficult": []}
    for path in images:
        yield Row(path, values, path=path)


def _voc_row(
    name: str,
    annotation: Annotation | str,
    files_of_stem: Mapping[str, Sequence[str]],
    labels: Mapping[str, int],
    first_pixel: int,
) -> Row:
    """The row of an image.

    Args:
        name: of its annotation, without the ending.
        annotation: or why there is none, or it cannot be parsed.
        files_of_stem: name without ending -> the files of images with this name.
        labels: class -> its number.
        first_pixel: the number of the first pixel, 0 or 1.
    """
    where = f"Annotations/{name}.xml"  # as in VOC, whatever the folder is called
    if isinstance(annotation, str):
        return Row(where, problem=annotation)
    boxes_xyxy: list[list[float]] = []
    for left, top, right, bottom in annotation.boxes:
        # In VOC, xmax is the last pixel inside the box. Its number, counted from 1, is that of the
        # box's right edge, counted from 0. Tools that count from 0 write the edges. So xmax and ymax
        # stay in both cases.
        boxes_xyxy.append([left - first_pixel, top - first_pixel, right, bottom])
    box_labels = [labels[class_name] for class_name in annotation.names]
    boxes: dict[str, Any] = {"boxes": boxes_xyxy, "labels": box_labels}
    if annotation.dropped_count:
        boxes["dropped"] = annotation.dropped_count
    values = {"boxes": boxes, "difficult": annotation.difficult}
    path = _image_path(name, annotation, files_of_stem)
    return Row(where, values, path=path, size=annotation.size)


def _image_path(
    name: str, annotation: Annotation, files_of_stem: Mapping[str, Sequence[str]]
) -> str:
    """The path of an image in its folder; the parameters are those of `_voc_row`.

    In VOC, an image has the name of its annotation. Else the name that is written counts.
    """
    path = annotation.filename
    named_alike = _pictures_of_stem(name, files_of_stem)
    if len(named_alike) == 1:
        return named_alike[0]
    if _names_other_picture(name, annotation, files_of_stem):
        return f"{name}.jpg"
    if "/" in path or path in files_of_stem.get(Path(path).stem, ()):
        return path
    # Many tools leave out its ending.
    for stem in (path, name):
        files = files_of_stem.get(stem, ())
        if len(files) == 1:
            return files[0]
    return path or f"{name}.jpg"


def _pictures_of_stem(
    stem: str, files_of_stem: Mapping[str, Sequence[str]]
) -> list[str]:
    """The pictures of a name without its ending."""
    return [file for file in files_of_stem.get(stem, ()) if is_picture(file)]


def _names_other_picture(
    name: str, annotation: Annotation, files_of_stem: Mapping[str, Sequence[str]]
) -> bool:
    """Whether an annotation is called like one picture, and names another one that exists."""
    parts = split_written_path(annotation.filename)
    if not parts or not _pictures_of_stem(name, files_of_stem):
        return False
    # The ending may be left out.
    stem = parts[-1] if parts[-1] in files_of_stem else Path(parts[-1]).stem
    return stem != name and bool(_pictures_of_stem(stem, files_of_stem))


def _find_name_assumptions(
    annotations: Mapping[str, Annotation], files_of_stem: Mapping[str, Sequence[str]]
) -> list[Assumption]:
    """Says which pictures were taken where the names of annotations leave it open."""
    other_count = 0
    path_counts: Counter[str] = Counter()
    for name, annotation in annotations.items():
        path_counts[_image_path(name, annotation, files_of_stem)] += 1
        if _names_other_picture(name, annotation, files_of_stem):
            other_count += 1

    assumed: list[Assumption] = []
    if other_count:
        assumed.append(Assumption(OTHER_NAME.format(f"{other_count:,}")))
    shared_paths = [path for path, count in path_counts.items() if count > 1]
    if shared_paths:
        text = (
            f"images that several annotations name: {len(shared_paths):,}, such as "
            f"{readable(shared_paths[0])}; each annotation is a sample of its own"
        )
        assumed.append(Assumption(text))
    return assumed


def _find_assumptions(
    annotations: Sequence[Annotation], first_pixel: int, *, is_first_pixel_given: bool
) -> list[Assumption]:
    """Says how boxes and other entries of the annotations were understood.

    Args:
        annotations: of the split that is packed.
        first_pixel: the number of the first pixel, by the annotations of all splits.
        is_first_pixel_given: whether the user says it.
    """
    box_count = 0
    at_zero_count = 0
    unclear_count = 0
    around_count = 0
    skipped = set[str]()
    for annotation in annotations:
        box_count += len(annotation.boxes)
        at_zero_count += annotation.count_boxes_at_zero()
        unclear_count += annotation.unclear_difficult_count
        around_count += annotation.box_around_count
        skipped |= annotation.skipped

    assumed: list[Assumption] = []
    if box_count and not is_first_pixel_given:
        text = _describe_first_pixel(first_pixel, box_count, at_zero_count)
        # A box at 0 leaves no choice.
        option = _FIRST_PIXEL if first_pixel == 1 else ""
        assumed.append(Assumption(text, option))
    if unclear_count:
        text = (
            f"objects that say neither 0 nor 1 as difficult: {unclear_count:,}; they are taken as "
            "not difficult"
        )
        assumed.append(Assumption(text))
    if around_count:
        text = (
            f"objects with a polygon and no bndbox: {around_count:,}; the boxes are those around "
            "them"
        )
        assumed.append(Assumption(text))
    if skipped:
        text = (
            f"attributes of objects that are not packed: {', '.join(sorted(skipped))}"
        )
        assumed.append(Assumption(text))
    return assumed


def _describe_first_pixel(first_pixel: int, box_count: int, at_zero_count: int) -> str:
    """Says from which number pixels are counted, and why.

    Args:
        first_pixel: the number of the first pixel.
        box_count: the number of boxes of the split that is packed.
        at_zero_count: the number of those that begin at 0.
    """
    if at_zero_count:
        return (
            f"boxes that begin at 0: {at_zero_count:,} of {box_count:,}; so pixels are counted "
            "from 0, not from 1"
        )
    if first_pixel == 0:
        return "boxes: pixels are counted from 0, not from 1, for boxes of other splits begin at 0"
    return (
        "boxes: pixels are counted from 1, as VOC counts them, for no box begins at 0; so xmin "
        "and ymin lose 1, xmax and ymax stay"
    )


def _images_without_annotation(
    annotations: Mapping[str, Annotation | str],
    files_of_stem: Mapping[str, Sequence[str]],
) -> list[str]:
    """The images that no annotation is about."""
    annotated: set[str] = set()
    for name, annotation in annotations.items():
        annotated.update(files_of_stem.get(name, ()))
        if isinstance(annotation, Annotation):
            annotated.add(_image_path(name, annotation, files_of_stem))
    images: list[str] = []
    for files in files_of_stem.values():
        images += filter(is_picture, files)
    return [file for file in images if file not in annotated]


def _assume_left_out(
    without_annotation: Sequence[str], num_images: int
) -> list[Assumption]:
    """Says that images are left out because no annotation is about them."""
    if not without_annotation:
        return []
    text = (
        f"images without an annotation: {len(without_annotation):,} of {num_images:,}, such as "
        f"{readable(without_annotation[0])}; they are left out"
    )
    return [Assumption(text, "--unlisted drop or keep")]


def _stems(folder: Path, ending: str) -> list[str]:
    """The names of the files with this ending, without it."""
    files = names_in(folder).files
    return [name.removesuffix(ending) for name in files if name.endswith(ending)]
