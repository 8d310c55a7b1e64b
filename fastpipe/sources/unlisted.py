"""The rows of a table, and the folders in which their images lie -> the images there that have no row.

Note [images without a row]
A row says what is on an image. An image without a row may be background, one whose boxes nobody has drawn yet, or one
of another table, as where train.csv and val.csv list the images of one folder. So it is left out, and this is said;
--unlisted keep packs it, without boxes and without a label. Only folders that hold an image of a row are looked into:
a folder costs one list of its names, whatever it holds.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.folder import scheme_of
from fastpipe.sources.files import SourcePath, is_left_behind, names_in
from fastpipe.sources.listing import Assumption
from fastpipe.sources.options import is_picture

_MOST_FOLDERS = 1000
_MOST_REMOTE_FOLDERS = 16  # a folder behind a URL costs a request
_OPTION = "--unlisted drop or keep"


class Unlisted(NamedTuple):
    """What becomes of images without a row. See Note [images without a row]"""

    choice: str | None  # one of UNLISTED; None: nobody says
    values: Mapping[str, Any] = {}  # of the fields of such an image


def images_without_row(
    root: SourcePath, listed: Collection[str], elsewhere: Collection[str]
) -> list[str]:
    """The images beside those of rows that have no row, sorted. `listed`: the files that rows name; `elsewhere`: those
    that rows of other splits name.
    """
    if not isinstance(root, Path) and not root.objects.has_lists:
        return []
    folders = {path[: path.rfind("/") + 1] for path in listed}
    most = _MOST_FOLDERS if isinstance(root, Path) else _MOST_REMOTE_FOLDERS
    images = []
    for folder in sorted(folder for folder in folders if not scheme_of(folder))[:most]:
        for name in _names(root, folder):
            path = folder + name
            if path not in listed and is_picture(name) and not _is_hidden(name):
                images.append(path)
    # Rows of other splits are not looked up, and may leave out the ending.
    written = {path.replace("\\", "/") for path in elsewhere}
    return sorted(path for path in images if written.isdisjoint((path, os.path.splitext(path)[0])))


def assumption_of(images: list[str], count_of_rows: int) -> Iterator[Assumption]:
    """Says that images have no row, and are left out."""
    if not images:
        return
    first = readable(images[0])
    has = "image has no row and is" if len(images) == 1 else "images have no row and are"
    yield Assumption(
        f"images: {len(images):,} {has} left out, beside {count_of_rows:,} with one: {first}",
        _OPTION,
    )


def _names(root: SourcePath, folder: str) -> list[str]:
    """The names in a folder, in no order; none where it cannot be listed."""
    try:
        if isinstance(root, Path):
            return os.listdir(os.path.join(root, folder))
        return names_in(root / folder).files
    except (OSError, PackError):  # the rows whose images lie in it say why
        return []


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or is_left_behind(name)
