"""Darknet's folders: label files beside the images, obj.data with the lists of the splits -> the folders of each split.

Format: https://github.com/AlexeyAB/darknet#how-to-train-to-detect-your-custom-objects; CVAT and Roboflow write it, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotation_folders import Beside
from fastpipe.sources.files import Names, SourcePath, open_binary, open_unchanged
from fastpipe.sources.options import is_picture
from fastpipe.sources.splits import FEW

NAME_LISTS = (
    "classes.txt",
    "obj.names",
    "_darknet.labels",
)  # a name a line; a fixed few, else *.names
_SPLITS = {"train": "train", "valid": "val", "val": "val", "test": "test"}
_LEAST_NUMBERS = 5  # of a line: a class and a box
_START_BYTES = 1 << 16
_FEW_TEXTS = 16  # of label files; those of images without a box are empty


def is_flat_yolo(root: SourcePath, names: Names) -> bool:
    """Whether a folder has pictures, and label files of YOLO of the same names beside them."""
    texts = {name[:-4] for name in names.files[:FEW] if name.lower().endswith(".txt")}
    if names.folders or not texts:
        return False
    stems = [PurePosixPath(name).stem for name in names.files[:FEW] if is_picture(name)]
    labelled = [stem for stem in stems if stem in texts]
    if not labelled or not (has_names(names) or len(labelled) > len(stems) // 2):
        return False
    return any(_is_labels(root / f"{stem}.txt") for stem in labelled[:_FEW_TEXTS])


def has_names(names: Names) -> bool:
    """Whether a folder has a list of names of classes, as YOLO's tools write it."""
    return any(name in NAME_LISTS or name.endswith(".names") for name in names.files[:FEW])


def _is_labels(path: SourcePath) -> bool:
    with suppress(OSError), open_binary(path) as file:
        words = file.readline(_START_BYTES).split()
        with suppress(ValueError):
            return len([float(word) for word in words]) >= _LEAST_NUMBERS
    return False


def darknet_folders(root: SourcePath, names: Names) -> list[Beside]:
    """The splits that a *.data file of Darknet says; none if there is no such file, or its images are not there."""
    files = [name for name in names.files[:FEW] if name.endswith(".data")]
    if len(files) != 1 or not isinstance(root, Path):
        return []
    entries = _entries(root / files[0])
    if "names" not in entries:
        return []
    splits: list[Beside] = []
    for key, part in _SPLITS.items():
        file = _file_below(root, entries.get(key, ""))
        images = None if file is None else _folder_of_images(file)
        if file is not None and images is not None and all(part != each.part for each in splits):
            splits.append(Beside("yolo", images, images, part, file))
    if len({each.only for each in splits}) == 1:
        return [splits[0]._replace(part="")]
    return splits


def _entries(path: Path) -> dict[str, str]:
    with open_unchanged(path) as file:
        lines = file.read(_START_BYTES).decode("utf-8-sig", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _file_below(folder: Path, written: str) -> Path | None:
    """A file that is written from another folder on: the longest end of its path counts that is there, in the folder or
    around it.
    """
    parts = [part for part in written.replace("\\", "/").split("/") if part not in ("", ".")]
    for dropped in range(len(parts)):
        for top in (folder, folder.parent):
            path = top.joinpath(*parts[dropped:])
            if path.is_file():
                return path
    return None


def _folder_of_images(list_file: Path) -> Path | None:
    """The folder that has the images of a list."""
    images = [_file_below(list_file.parent, line) for line in _lines(list_file)[:_FEW_TEXTS]]
    folders = {image.parent for image in images if image is not None}
    if not folders:
        return None
    return Path(os.path.commonpath(folders))


def _lines(file: Path) -> list[str]:
    with open_unchanged(file) as text:
        lines = text.read().decode("utf-8-sig", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def listed_images(file: Path, images: Path) -> list[str]:
    """The images of a list, relative to their folder. PackError: one lies elsewhere."""
    top = os.path.abspath(images)
    paths: list[str] = []
    folders: dict[str, str] = {}  # as lines write them -> where they are
    for line in _lines(file):
        written, _, name = line.replace("\\", "/").rpartition("/")
        if written not in folders:
            folders[written] = _folder_of_line(file, line)
        path = f"{folders[written]}/{name}"
        if not path.startswith(f"{top}/"):
            raise PackError(
                f"{readable(str(file))}: expected images below {readable(top)}, got {line[:200]!r}"
            )
        paths.append(os.path.relpath(path, top))
    return paths


def _folder_of_line(file: Path, line: str) -> str:
    """The folder of an image of a list: from the folder of the list on, or by the end of its path."""
    path = file.parent / line
    if not path.exists():
        path = _file_below(file.parent, line) or path
    return os.path.abspath(path.parent)


def names_file(folders: Sequence[Path]) -> Path | None:
    """The list of names of classes in the first folder that has one; of folders without, the only *.names in the first
    folder.
    """
    for folder in folders:
        for name in NAME_LISTS:
            if (folder / name).is_file():
                return folder / name
    with suppress(OSError):
        others = [name for name in os.listdir(folders[0]) if name.endswith(".names")]
        if len(others) == 1:
            return folders[0] / others[0]
    return None
