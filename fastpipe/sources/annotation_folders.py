"""The folders of a source -> those with images, those with labels or masks beside them, and COCO's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fastpipe.sources.coco import coco_files
from fastpipe.sources.files import Names, SourcePath, files_below, names_in, open_binary
from fastpipe.sources.options import PICTURES, is_picture
from fastpipe.sources.splits import FEW, split_word

_IMAGES = re.compile(
    r"(?:(.*?)[-_ ]?)(?:images?|imgs?|jpegimages|leftimg8bit|photos?|pictures?)", re.IGNORECASE
)
_LABELS = (
    "masks?|annotations?|annots?|labels?|segmentations?|segmentationclass|segs?|gtfine|gt|"
    "ground[-_ ]?truths?|trimaps?"
)
_BESIDE = re.compile(rf"(.*?)[-_ ]?(?:{_LABELS})|(?:{_LABELS})[-_ ](.*)", re.IGNORECASE)
# By the ending of the first file that says it.
# An object whose first entry is one of COCO's lists, or "info".
_COCO = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:info"\s*:\s*\{|(?:images|annotations|categories|licenses)"\s*:\s*\[)'
)
_MOST_JSON_FILES = 16
_NAME_LIST, _NOTES = (
    "classes.txt",
    "notes.json",
)  # of Label Studio's YOLO; the notes begin as COCO's files do
_NUMBERS = re.compile(rb"(?:\xef\xbb\xbf)?[-+0-9.eE\s]*")
_START_BYTES = 1 << 16
_KINDS = {"txt": "yolo", "xml": "voc", **dict.fromkeys(PICTURES, "masks")}


class Beside(NamedTuple):
    """A folder of images, and one of what belongs to them."""

    kind: str  # "yolo", "voc" or "masks"; "": it holds no file that says it
    images: SourcePath
    labels: SourcePath
    part: str  # the split: what is in both names beside "images" and "masks", as train in train_images and train_masks
    only: SourcePath | None = (
        None  # the file that lists the images of the split; None: all of the folder
    )
    # Of a split with several folders: each with that of its labels. `images` and `labels` hold them.
    folders: tuple[tuple[Path, Path], ...] = ()


def beside_images(root: SourcePath, names: Names) -> list[Beside]:
    """All such folders of a source."""
    labels = [(name, part) for name in names.folders if (part := _part(_BESIDE, name)) is not None]
    if not labels:
        return []
    images = [(name, part) for name in names.folders if (part := _part(_IMAGES, name)) is not None]
    # Carvana has the images of train_masks in train.
    images += [
        (name, name.lower())
        for name in names.folders
        if split_word(name) and _part(_IMAGES, name) is None
    ]
    return [
        Beside(kind_of_labels(root / label), root / image, root / label, part)
        for label, part in labels
        for image, same in images
        if part == same and (not part or split_word(part)) and image != label
    ]


def _part(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.fullmatch(name)
    return None if match is None else next(filter(None, match.groups()), "").lower()


def is_called_images(name: str) -> bool:
    """Whether a folder is called images or the like, which says nothing of what they show."""
    return _part(_IMAGES, name) == ""


def other_folders(names: Names) -> list[str]:
    """The folders that are called neither like images nor like labels, nor like splits."""
    usual = (_IMAGES, _BESIDE)
    return [
        name
        for name in names.folders
        if split_word(name) is None and all(_part(pattern, name) is None for pattern in usual)
    ]


def kind_of_labels(folder: SourcePath) -> str:
    """What a folder of labels holds, by the first files in it."""
    for path in _first_files(folder):
        kind = _KINDS.get(PurePosixPath(path).suffix[1:].lower(), "")
        if kind and (kind != "yolo" or _is_yolo(folder / path)):
            return kind
    return ""


def _is_yolo(path: SourcePath) -> bool:
    """Whether the first line of a text has numbers alone, or is empty; lists of names and captions have others."""
    with suppress(OSError), open_binary(path) as file:
        return _NUMBERS.fullmatch(file.readline(_START_BYTES)) is not None
    return False


def _first_files(folder: SourcePath, depth: int = 3) -> Iterator[str]:
    """A few files of a folder, and of the first folders in it."""
    if not isinstance(folder, Path):
        yield from islice(files_below(folder), FEW)
        return
    names = names_in(folder, FEW)
    yield from names.files
    for name in names.folders if depth else ():
        for path in _first_files(folder / name, depth - 1):
            yield f"{name}/{path}"


def is_flat_voc(names: Names) -> bool:
    """Whether a folder has pictures, and an annotation of the same name beside nearly each, as Roboflow's exports."""
    if names.folders:
        return False
    stems = {PurePosixPath(name).stem for name in names.files if name.lower().endswith(".xml")}
    if not stems:  # of a folder of a million pictures
        return False
    pictures = [name for name in names.files if is_picture(name)]
    annotated = sum(PurePosixPath(name).stem in stems for name in pictures)
    return annotated > len(pictures) // 2


def coco_splits(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    """Split -> files about its images; "" where the one file says none."""
    found = coco_files(root, names.files) or _coco_exports(root, names.files)
    if not found and "annotations" in names.folders:
        inside = names_in(root / "annotations").files
        found = coco_files(root / "annotations", inside) or _coco_exports(
            root / "annotations", inside
        )
    return found


def _coco_exports(folder: SourcePath, names: Sequence[str]) -> dict[str, list[SourcePath]]:
    """The files of a folder that begin as COCO's do, such as _annotations.coco.json of Roboflow."""
    files = [name for name in names if name.lower().endswith(".json")]
    if _NAME_LIST in names:
        files = [name for name in files if name != _NOTES]
    if len(files) > _MOST_JSON_FILES:  # one for each image, as many tools write them
        return {}
    found = [name for name in files if _begins_as_coco(folder / name)]
    return {"" if len(found) == 1 else Path(name).stem: [folder / name] for name in found}


def _begins_as_coco(path: SourcePath) -> bool:
    with suppress(OSError), open_binary(path) as file:
        return _COCO.match(file.read(_START_BYTES)) is not None
    return False
