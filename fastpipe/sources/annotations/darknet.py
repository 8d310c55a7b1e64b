"""Darknet's folders: labels beside the images, lists of the splits in obj.data -> their folders.

Format: https://github.com/AlexeyAB/darknet#how-to-train-to-detect-your-custom-objects; CVAT and
Roboflow write it, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import FolderPair
from fastpipe.sources.annotations.written_paths import split_written_path
from fastpipe.sources.files import Names, SourcePath, open_binary, open_unchanged
from fastpipe.sources.folders.splits import FEW, split_of_name

# Files with a name of a class on each line. Others are called *.names.
NAME_LISTS = ("classes.txt", "Classes.txt", "obj.names", "_darknet.labels")
_SPLITS = {"train": "train", "valid": "val", "val": "val", "test": "test"}
# A line of a label file has at least a class and a box (cxcywh).
_MIN_NUMBERS = 5
_START_BYTES = 1 << 16
# Label files without a line are usual, since their images have no boxes. So several are tried.
_NUM_CHECKED = 16


def is_flat_yolo(root: SourcePath, names: Names) -> bool:
    """Whether a folder has pictures, and label files of YOLO of the same names beside them."""
    files = names.files[:FEW]
    text_stems = {name[:-4] for name in files if name.lower().endswith(".txt")}
    if names.folders or not text_stems:
        return False
    picture_stems = [PurePosixPath(name).stem for name in files if is_picture(name)]
    labelled = [stem for stem in picture_stems if stem in text_stems]
    # Texts beside pictures may be captions. Names of classes, or a text for most pictures, speak
    # against it; the first lines decide.
    has_names = any(name in NAME_LISTS or name.endswith(".names") for name in files)
    is_mostly_labelled = len(labelled) > len(picture_stems) // 2
    if not has_names and not is_mostly_labelled:
        return False
    return any(_is_label_file(root / f"{stem}.txt") for stem in labelled[:_NUM_CHECKED])


def _is_label_file(path: SourcePath) -> bool:
    """Whether the first line of a file is numbers, and enough for a box."""
    try:
        with open_binary(path) as file:
            words = file.readline(_START_BYTES).split()
        numbers = [float(word) for word in words]
    except (OSError, ValueError):
        return False
    return len(numbers) >= _MIN_NUMBERS


def find_darknet_folders(root: SourcePath, names: Names) -> list[FolderPair]:
    """The splits in a *.data file of Darknet; none if there is no such file, or no image of it."""
    data_files = [name for name in names.files[:FEW] if name.endswith(".data")]
    # With several, nobody can tell which one is meant.
    if len(data_files) != 1 or not isinstance(root, Path):
        return []
    entries = _read_entries(root / data_files[0])
    if "names" not in entries:
        return []

    splits: dict[str, FolderPair] = {}
    for key, split in _SPLITS.items():
        image_list = _find_near(root, entries.get(key, ""))
        if image_list is None or not image_list.is_file() or split in splits:
            continue
        images = _folder_of_images(image_list)
        if images is not None:
            splits[split] = FolderPair("yolo", images, images, split, image_list)
    # One list alone, or the same list for train and valid, makes no splits.
    if len({split.image_list for split in splits.values()}) == 1:
        return [next(iter(splits.values()))._replace(split="")]
    return list(splits.values())


def _read_entries(file: Path) -> dict[str, str]:
    """The lines NAME = VALUE of a *.data file."""
    entries: dict[str, str] = {}
    # A file of this name may be anything, and large.
    for line in _read_lines(file, _START_BYTES):
        name, equals, value = line.partition("=")
        if equals:
            entries[name.strip()] = value.strip()
    return entries


def find_by_end(folders: Sequence[Path], written_path: str) -> Path | None:
    """The file or folder of a path that was written in another folder, or on another machine.

    It is the longest end of the path that exists in one of the folders.
    """
    parts = split_written_path(written_path)
    for dropped_count in range(len(parts)):
        for folder in folders:
            path = folder.joinpath(*parts[dropped_count:])
            if path.exists():
                return path
    return None


def _find_near(folder: Path, written_path: str) -> Path | None:
    """As `find_by_end`, in a folder or the one around it."""
    return find_by_end((folder, folder.parent), written_path)


def find_listed_splits(
    root: SourcePath, names: Names, images: SourcePath
) -> list[FolderPair]:
    """The splits of train.txt, val.txt and so on, if two of them list the images of a folder.

    The label files lie in the folder labels beside that of the images, or among the images.
    """
    if not isinstance(root, Path) or not isinstance(images, Path):
        return []
    splits: dict[str, FolderPair] = {}
    for name in names.files[:FEW]:
        stem, ending = os.path.splitext(name)
        split = split_of_name(stem)
        if ending.lower() != ".txt" or split is None or split in splits:
            continue
        folder = _folder_of_images(root / name)
        if folder is not None and folder.is_relative_to(images):
            splits[split] = FolderPair("yolo", images, images, split, root / name)
    # One such file alone may be anything, such as a list of all images.
    if len(splits) < 2:
        return []
    return list(splits.values())


def _folder_of_images(image_list: Path) -> Path | None:
    """The folder of the first images of a list; None if they do not exist."""
    folders: set[Path] = set()
    for line in _read_lines(image_list, _START_BYTES)[:_NUM_CHECKED]:
        if not is_picture(line):
            continue
        image = _find_near(image_list.parent, line)
        if image is not None:
            folders.add(image.parent)
    if not folders:
        return None
    return Path(os.path.commonpath(folders))


def _read_lines(file: Path, max_bytes: int = -1) -> list[str]:
    """The lines of a text, or of its start, that are not empty."""
    with open_unchanged(file) as text:
        lines = text.read(max_bytes).decode("utf-8-sig", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def read_image_list(image_list: Path, images: Path) -> list[str]:
    """The images of a list, relative to their folder. PackError: one lies elsewhere."""
    top = os.path.abspath(images)
    paths: list[str] = []
    folders: dict[str, str] = {}  # as lines write them -> where they are
    for line in _read_lines(image_list):
        written_folder, _, name = line.replace("\\", "/").rpartition("/")
        if written_folder not in folders:
            # A list may have a million lines, so the disk is asked only once for each folder.
            path = image_list.parent / line
            if not path.exists():
                path = _find_near(image_list.parent, line) or path
            folders[written_folder] = os.path.abspath(path.parent)
        image = f"{folders[written_folder]}/{name}"
        if not image.startswith(f"{top}/"):
            raise PackError(
                f"{readable(str(image_list))}: expected images below {readable(top)}, got "
                f"{line[:200]!r}"
            )
        paths.append(os.path.relpath(image, top))
    return paths


def read_class_names(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names of the classes in the first folder with a list of them; () if none has one."""
    file = _find_name_list(folders)
    if file is None:
        return ()
    # Empty lines at the end are no classes. An empty line before them keeps its number.
    lines = file.read_bytes().decode("utf-8-sig", "replace").rstrip().splitlines()
    return tuple(line.strip() for line in lines)


def _find_name_list(folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        for name in NAME_LISTS:
            if (folder / name).is_file():
                return folder / name
    # Darknet's own files have names such as coco.names. Of several, none is certain.
    others = [name for name in os.listdir(folders[0]) if name.endswith(".names")]
    if len(others) != 1:
        return None
    return folders[0] / others[0]
