"""The rows of a table, and the folders in which their images lie -> the images there without a row.

Note [images without a row]
A row says what is on an image. An image without a row may be background, one whose boxes nobody has
drawn yet. So it is left out, and the user is told. --unlisted keep packs it, without boxes and
without a label. An image that has a row in another split is neither, also if the split is a file of
its own, as where train.csv and val.csv list the images of one folder.
Only the folders that hold an image of a row are listed, each once, however many files they hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.dataset.format.folder import scheme_of
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, format_count, readable
from fastpipe.sources.files import SourcePath, is_left_behind, names_in
from fastpipe.sources.listing import Assumption
from fastpipe.sources.tables.rows import Row

_MAX_FOLDERS = 1000
_MAX_REMOTE_FOLDERS = 16  # listing a folder behind a URL costs a request


class Unlisted(NamedTuple):
    """The user's choice for images without a row. See Note [images without a row]."""

    # One of UNLISTED; None if the user does not say it.
    choice: str | None
    # The values of the fields of such an image.
    values: Mapping[str, Any] = {}
    # Reads the rows of files about other splits. It is called only if there are such images. None:
    # it would take long to read them, so nothing is said of such images.
    rows_of_other_files: Callable[[], Iterable[Row] | None] = tuple


def find_images_without_row(
    root: SourcePath, listed: Collection[str], other_split_paths: Collection[str]
) -> list[str]:
    """Finds the images beside those of rows that have no row. Returns their paths, sorted.

    Args:
        listed: the files that rows name.
        other_split_paths: the files that rows of other splits name.
    """
    if isinstance(root, Path):
        most_folders = _MAX_FOLDERS
    elif root.objects.has_lists:
        most_folders = _MAX_REMOTE_FOLDERS
    else:
        return []
    folders_of_rows = {path[: path.rfind("/") + 1] for path in listed}
    folders = [folder for folder in folders_of_rows if not scheme_of(folder)]
    images = []
    for folder in sorted(folders)[:most_folders]:
        for name in _list_names(root, folder):
            path = folder + name
            if path in listed or not is_picture(name):
                continue
            is_hidden = name[0] == "."
            if is_hidden or is_left_behind(name):
                continue
            images.append(path)
    return without_rows_of_other_splits(sorted(images), other_split_paths)


def without_rows_of_other_splits(
    images: Iterable[str], other_split_paths: Iterable[str]
) -> list[str]:
    """The images that are not among the files which rows of other splits name."""
    # Rows of other splits are not looked up, and may leave out the ending.
    written = {path.replace("\\", "/") for path in other_split_paths}
    without_row = []
    for path in images:
        if path not in written and os.path.splitext(path)[0] not in written:
            without_row.append(path)
    return without_row


def assume_unlisted_dropped(images: list[str]) -> list[Assumption]:
    """Says that images have no row and are left out."""
    if not images:
        return []
    count = format_count(len(images), "image")
    verb = "is" if len(images) == 1 else "are"
    text = (
        f"images: {count} in the same folders {verb} not listed and {verb} left out, such as "
        f"{readable(images[0])}"
    )
    return [Assumption(text, "--unlisted drop or keep")]


def _list_names(root: SourcePath, folder: str) -> list[str]:
    """The names in a folder, in no order; empty if it cannot be listed."""
    try:
        if isinstance(root, Path):
            return os.listdir(os.path.join(root, folder))
        return names_in(root / folder).files
    except (OSError, PackError):
        return []  # the errors of the rows whose images lie in it say why
