"""The folders of a source -> pairs of one with images and one with their labels or masks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fastpipe.dataset.format.picture_names import PICTURES, is_picture
from fastpipe.sources.annotations.annotation_files import is_voc, reader_of
from fastpipe.sources.files import Names, SourcePath, files_below, names_in, open_binary
from fastpipe.sources.folders.splits import FEW, split_of_name

# The groups of both patterns are the rest of the name: "train" in train_images and train_masks.
_IMAGE_FOLDER = re.compile(
    r"(?:(.*?)[-_ ]?)(?:images?|imgs?|jpegimages|leftimg8bit|photos?|pictures?)",
    re.IGNORECASE,
)
_LABELS = (
    "masks?|annotations?|annots?|labels?|segmentations?|segmentationclass|segs?|gtfine|gt|"
    "ground[-_ ]?truths?|trimaps?"
)
_LABEL_FOLDER = re.compile(
    rf"(.*?)[-_ ]?(?:{_LABELS})|(?:{_LABELS})[-_ ](.*)", re.IGNORECASE
)
# A line of a YOLO label file has only numbers. The file may begin with a byte order mark.
_NUMBERS = re.compile(rb"(?:\xef\xbb\xbf)?[-+0-9.eE\s]*")
_MAX_LINE_BYTES = 1 << 16
# A folder of labels is searched for its first files down to this many levels of folders.
_MAX_LEVELS = 3
# Ending of a label file -> the kind of its folder.
_KIND_OF_ENDING = {"txt": "yolo", "xml": "voc", **dict.fromkeys(PICTURES, "masks")}
# Behind the name of the image: a_mask.png, and a_mask_1.png where it has several.
_MASK_FILE = re.compile(
    r"[-_ ](?:mask|segmentation|seg|gt|label)s?(?:[-_ ]\d+)?\.\w+$", re.IGNORECASE
)
_MASK_FOLDER = re.compile(
    r"(?:.*[-_ ])?(?:masks|trimaps?|ground[-_ ]?truths?|segmentation(?:class|object|s)?|"
    r"seg(?:mentation)?[-_ ]masks?)",
    re.IGNORECASE,
)


class FolderPair(NamedTuple):
    """A folder of images, and one with labels or masks of these images.

    Attributes:
        kind: "yolo", "voc" or "masks"; "" if no file in it says so.
        images, labels: the two folders.
        split: the split, which both names have: "train" of train_images and train_masks. Or "".
        image_list: the file that lists the images of the split; None if it has all in the folder.
        folders: of a split with several folders: each with that of its labels. `images` and
            `labels` hold them.
        classes: of images in class folders, of which some have masks: those of all splits. See
            Note [masks of defects]
    """

    kind: str
    images: SourcePath
    labels: SourcePath
    split: str
    image_list: SourcePath | None = None
    folders: tuple[tuple[Path, Path], ...] = ()
    classes: tuple[str, ...] = ()


def pair_folders(root: SourcePath, names: Names) -> list[FolderPair]:
    """All pairs of a folder of images and one of their labels in a source."""
    label_folders = []
    for name in names.folders:
        split = _match_rest(_LABEL_FOLDER, name)
        if split is None:
            continue
        # "car_labels" may be a class, but "train_labels" and "labels" are not.
        if split == "" or split_of_name(split) is not None:
            label_folders.append((name, split))
    if not label_folders:
        return []

    image_folders = []
    for name in names.folders:
        split = _match_rest(_IMAGE_FOLDER, name)
        if split is None and split_of_name(name) is not None:
            # Carvana has the images of train_masks in train.
            split = name.lower()
        if split is not None:
            image_folders.append((name, split))

    pairs = []
    for label_folder, split in label_folders:
        for image_folder, split_of_images in image_folders:
            # One folder may match both patterns. It is not a pair with itself.
            if split != split_of_images or label_folder == image_folder:
                continue
            images = root / image_folder
            for labels in _label_folders_in(root / label_folder, images):
                kind = find_label_kind(labels)
                pairs.append(FolderPair(kind, images, labels, split))
    return pairs


def _label_folders_in(folder: SourcePath, images: SourcePath) -> list[SourcePath]:
    """The folders of labels in a folder; itself, unless others lie in it.

    Oxford's pets have the folders trimaps and xmls in the folder annotations. But where the images
    lie in folders of the same names, or of splits, the labels are one folder.
    """
    inner = names_in(folder, FEW).folders
    if any(split_of_name(name) is not None for name in inner):
        return [folder]
    if not inner or not set(inner).isdisjoint(names_in(images, FEW).folders):
        return [folder]
    labelled = [folder / name for name in inner if find_label_kind(folder / name)]
    return labelled or [folder]


def _match_rest(pattern: re.Pattern[str], name: str) -> str | None:
    """The rest of a name, in small letters, if it matches; "" if there is no rest."""
    match = pattern.fullmatch(name)
    if match is None:
        return None
    for group in match.groups():
        if group:
            return group.lower()
    return ""


def is_called_images(name: str) -> bool:
    """Whether a folder is called images or the like, which is no name of a class."""
    return _match_rest(_IMAGE_FOLDER, name) == ""


def is_called_masks(name: str) -> bool:
    """Whether a folder is called like one of masks alone: trimaps, train_masks, SegmentationClass.

    Classes may be called mask, with_mask and no_mask.
    """
    return _MASK_FOLDER.fullmatch(name) is not None


def is_called_mask_file(path: str) -> bool:
    """Whether a file is called like the mask of an image beside it: a_mask.png."""
    return _MASK_FILE.search(path) is not None


def without_mask_suffix(path: str) -> str:
    """The path without the end that makes it the name of a mask, and without the ending."""
    return _MASK_FILE.sub("", path)


def has_masks_beside_images(folder: SourcePath) -> bool:
    """Whether the first files of a folder have masks among them that are called a_mask.png."""
    return any(map(is_called_mask_file, _first_files(folder, _MAX_LEVELS)))


def is_usual_folder(name: str) -> bool:
    """Whether a folder is called like one of images or of labels, or like a split."""
    return (
        split_of_name(name) is not None
        or _IMAGE_FOLDER.fullmatch(name) is not None
        or _LABEL_FOLDER.fullmatch(name) is not None
    )


def find_label_kind(folder: SourcePath) -> str:
    """The kind of labels in a folder, by its first files: "yolo", "voc" or "masks"; or ""."""
    for path in _first_files(folder, _MAX_LEVELS):
        ending = PurePosixPath(path).suffix[1:].lower()
        # Stanford Dogs has its annotations in files without an ending.
        if not ending and is_voc(folder / path):
            return "voc"
        kind = _KIND_OF_ENDING.get(ending, "")
        if kind == "yolo" and not _is_yolo(folder / path):
            continue
        if kind == "voc" and reader_of(folder / path):
            continue  # the XML of another tool
        if kind:
            return kind
    return ""


def find_first_file(folder: SourcePath) -> SourcePath | None:
    """The first file in a folder, or in the folders in it."""
    for path in _first_files(folder, _MAX_LEVELS):
        return folder / path
    return None


def first_files(folder: SourcePath) -> Iterator[str]:
    """The paths of a few files in a folder, and in the folders in it."""
    return _first_files(folder, _MAX_LEVELS)


def find_first_picture(folder: SourcePath) -> SourcePath | None:
    """The first picture in a folder, or in the folders in it."""
    for path in _first_files(folder, _MAX_LEVELS):
        if is_picture(path):
            return folder / path
    return None


def _is_yolo(path: SourcePath) -> bool:
    """Whether the first line of a text has only numbers, or is empty.

    Captions and lists of names have other words.
    """
    try:
        with open_binary(path) as file:
            return _NUMBERS.fullmatch(file.readline(_MAX_LINE_BYTES)) is not None
    except OSError:
        return False


def _first_files(folder: SourcePath, levels_below: int) -> Iterator[str]:
    """A few files of a folder, and of the folders down to `levels_below` levels in it."""
    if not isinstance(folder, Path):
        # A listing of an object store has the files of all folders below.
        yield from islice(files_below(folder), FEW)
        return
    names = names_in(folder, FEW)
    yield from names.files
    if levels_below == 0:
        return
    for name in names.folders:
        for path in _first_files(folder / name, levels_below - 1):
            yield f"{name}/{path}"


def is_flat_voc(names: Names) -> bool:
    """Whether pictures and annotations lie in one folder, as in Roboflow's exports.

    That is so if more than half of the pictures have an annotation of the same name.
    """
    if names.folders:
        return False
    annotated_stems = set[str]()
    for name in names.files:
        if name.lower().endswith(".xml"):
            annotated_stems.add(PurePosixPath(name).stem)
    if not annotated_stems:
        # A folder may have a million pictures, so nothing is done for them.
        return False

    num_pictures = 0
    num_annotated = 0
    for name in names.files:
        if is_picture(name):
            num_pictures += 1
            num_annotated += PurePosixPath(name).stem in annotated_stems
    return num_annotated > num_pictures // 2
