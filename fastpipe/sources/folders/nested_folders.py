"""Class folders that hold folders and no images -> a question, or an assumption, which are classes.

torchvision's ImageFolder takes the first folders as the classes, whatever lies between them and
the images. But SUN397 has folders by the first letter of its classes (a/abbey, b/bakery/shop), and
iNaturalist has species in folders of kingdoms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.splits import first_paths, split_of_name
from fastpipe.sources.folders.variant_folders import check_variants
from fastpipe.sources.listing import Assumption
from fastpipe.sources.path_labels import (
    BY_FOLDER,
    LABEL_PATTERN,
    LAST_FOLDER_PATTERN,
)

# At most this many class folders are looked into. Behind a URL each is a request.
_MAX_FOLDERS = 100
_MAX_REMOTE_FOLDERS = 1
# So many names show that a folder holds folders alone, as it holds few then.
_MAX_NAMES = 16
_BY_LAST_FOLDER = f"{LABEL_PATTERN} '{LAST_FOLDER_PATTERN}'"


def check_nested_folders(
    root: SourcePath, folders: Sequence[str]
) -> Iterator[Assumption]:
    """The assumption that folders are classes, although some hold folders alone.

    PackError: all of them do, are called by a single character each, and hold different folders;
    or they hold the same folders and pictures.
    """
    max_folders = _MAX_REMOTE_FOLDERS
    if isinstance(root, Path):
        max_folders = _MAX_FOLDERS
    step = max(1, len(folders) // max_folders)
    looked_into = folders[::step][:max_folders]
    inner_by_folder: dict[str, list[str]] = {}
    for folder in looked_into:
        inner_folders = _folders_without_images(root, folder)
        if inner_folders:
            inner_by_folder[folder] = inner_folders
    paths: list[str] = []
    for inner_folders in inner_by_folder.values():
        paths += inner_folders
    inner_names = {path.rpartition("/")[2] for path in paths}
    if not _may_be_classes(inner_names):
        return

    holders = first_paths(inner_by_folder)
    # Digits may have a folder for each writer, which are the same in all of them.
    are_distinct = len(inner_names) == len(paths)
    are_letters = all(len(folder) == 1 for folder in folders)
    if are_letters and are_distinct and len(inner_by_folder) == len(looked_into):
        raise PackError(
            f"{readable(str(root))} has the folders {holders}, which hold folders "
            f"({first_paths(paths)}) and no images, so it is not certain which are the classes. "
            f"{BY_FOLDER} takes the folder of each image as its class, such as "
            f"{readable(paths[0])}. {AS_CLASSES} takes {first_paths(folders)}"
        )
    text = f"classes: the first folders; {holders} hold folders ({first_paths(paths)}) and no images"
    if are_distinct:
        yield Assumption(
            f"{text}. The label pattern takes the folder of each image as its class, such as "
            f"{readable(paths[0])}",
            f"{AS_CLASSES} or {BY_FOLDER}",
        )
        return
    variants = check_variants(root, folders)
    # The first folders may be domains, such as photo and sketch, which have the same classes.
    yield Assumption(
        f"{text}. The label pattern takes the last folder of each image as its class; "
        f"{BY_FOLDER} takes all of its folders, as one name{variants}",
        f"{AS_CLASSES} or {_BY_LAST_FOLDER}",
    )


def _folders_without_images(root: SourcePath, folder: str) -> list[str]:
    """The paths of the folders in a folder that holds no files; [] if it holds files.

    A folder between is passed: of amazon/images/bike and amazon/images/mug, amazon has these two.
    """
    names = names_in(root / folder, _MAX_NAMES)
    if names.files:
        return []
    paths = [f"{folder}/{name}" for name in names.folders]
    if len(paths) == 1:
        inner = names_in(root / paths[0], _MAX_NAMES)
        if inner.folders and not inner.files:
            return [f"{paths[0]}/{name}" for name in inner.folders]
    return paths


def _may_be_classes(inner_names: Collection[str]) -> bool:
    """Whether folders in class folders may be the classes; they are not if all have one name."""
    # Tiny ImageNet has n01443537/images. Of splits in class folders the user knows already.
    are_splits = all(split_of_name(name) is not None for name in inner_names)
    return len(inner_names) > 1 and not are_splits
