"""A folder of images without labels -> the assumption that it is no class, like those beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.annotation_folders import is_called_images
from fastpipe.sources.files import names_in, shared_folders
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.folder_roles import has_pictures, is_called_target
from fastpipe.sources.folders.splits import (
    FEW,
    are_called_like_parts,
    first_paths,
    meaning_of_split,
)
from fastpipe.sources.listing import Assumption, Listing

# So many folders beside the one of the user are looked into.
_MAX_FOLDERS = 16


def describe_sibling_classes(passed: Path, listing: Listing) -> Iterator[Assumption]:
    """The assumption that images have no labels, though their folder lies beside others of images.

    A user may pass photos/cat, and mean photos.

    Args:
        passed: the folder that the user passes.
        listing: of the images in it.
    """
    folder = Path(os.path.abspath(passed))
    if listing.root.resolve() != folder.resolve() or folder in shared_folders(folder):
        return
    if any(
        source.label != NO_LABEL or "/" in source.path for source in listing.sources
    ):
        return
    if not _may_be_class(folder.name) or folder.parent in shared_folders(folder):
        return
    siblings = _folders_of_images(folder)
    if not siblings or are_called_like_parts([folder.name, *siblings]):
        return
    yield Assumption(
        f"labels: none, though {readable(folder.name)} lies beside other folders of images: "
        f"{first_paths(siblings)}. If each is a class, pack the folder around them, "
        f"{readable(str(folder.parent))}",
        AS_CLASSES,
    )


def _folders_of_images(folder: Path) -> list[str]:
    """The names of the folders beside a folder that hold images alone; [] if one holds others."""
    siblings = []
    try:
        names = names_in(folder.parent, FEW)
        # Images or tables beside the folders say that the folder is one of a dataset's parts.
        if names.files:
            return []
        for name in sorted(names.folders)[:_MAX_FOLDERS]:
            if name == folder.name:
                continue
            inner = names_in(folder.parent / name, FEW)
            if inner.folders or not has_pictures(inner) or not _may_be_class(name):
                return []
            siblings.append(name)
    except (PackError, OSError):
        return []  # a folder may be closed to the user
    return siblings


def _may_be_class(name: str) -> bool:
    """Whether a folder is called like no split, no folder of images and none of labels or masks."""
    is_part = meaning_of_split(name) or is_called_images(name)
    return not is_part and not is_called_target(name)
