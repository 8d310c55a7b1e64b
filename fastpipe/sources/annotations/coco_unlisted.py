"""COCO's files and the folder of their images -> what becomes of images there that no file lists.

Note [images without a row] says which images these are. The images of several splits may lie in one
folder, each split with a file of its own. So images that another file beside lists are not counted.

A file with its images first, as most are, is read up to their end. One with its annotations first,
as json.dump(..., sort_keys=True) writes it, has to be parsed up to its end: half a second for 30 MB.
If only a message depends on it, the search ends after _MAX_ENTRIES annotations, and nothing is said
of images that are not listed. With --unlisted keep the file is read to its end, since its images
would be packed without their boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from fastpipe.errors import PackError
from fastpipe.sources.annotations.coco_annotations import (
    IMAGE_ID,
    Annotations,
    image_path,
)
from fastpipe.sources.annotations.coco_fields import read_field_value
from fastpipe.sources.annotations.coco_folders import begins_like_coco
from fastpipe.sources.annotations.coco_paths import find_way_below
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.splits import FEW, split_of_name
from fastpipe.sources.json_stream import object_entries
from fastpipe.sources.listing import SourceField
from fastpipe.sources.options import DROP
from fastpipe.sources.tables.rows import Row
from fastpipe.sources.tables.unlisted import Unlisted

# Where the first images of another file are missing, all of them lie elsewhere.
_MAX_TRIED = 5
# In a folder with more JSON files than this, most files belong to one image each.
_MAX_JSON_FILES = 50
# Of a file whose images come later than so many other entries, a message does not wait for them.
_MAX_ENTRIES = 500_000  # a few seconds
_NO_IMAGE = Row("", {})


class _ImagesTooLateError(Exception):
    """The images of a file come later than a message waits for."""


def find_unlisted(
    annotations: Annotations,
    fields: Sequence[SourceField],
    root: SourcePath,
    choice: str | None,
) -> Unlisted:
    """What becomes of images that the files do not list.

    Args:
        annotations: the files.
        fields: of the images.
        root: the folder of the images.
        choice: one of UNLISTED; None if the user does not say it.
    """
    values = {}
    for field in fields:
        # An image that is not listed has no id.
        if field.column != IMAGE_ID:
            values[field.name] = read_field_value(
                annotations, field, "", _NO_IMAGE, (), ()
            )
    if choice == DROP:
        return Unlisted(choice, values)  # no message depends on other files
    most_entries = None
    if choice is None:
        most_entries = _MAX_ENTRIES
    return Unlisted(
        choice,
        values,
        lambda: _rows_of_other_files(annotations.paths, root, most_entries),
    )


def _rows_of_other_files(
    ours: Sequence[SourcePath], root: SourcePath, most_entries: int | None
) -> list[Row] | None:
    """The images that other files of COCO list, with their paths below the root.

    None: the images of a file come later than `most_entries` other entries.
    """
    rows = []
    for path in _other_files(ours, root):
        paths = _read_paths(path, most_entries)
        try:
            first_paths = list(itertools.islice(paths, _MAX_TRIED))
        except _ImagesTooLateError:
            return None
        below_root = find_way_below(root, first_paths)
        if below_root is None:
            continue
        for written_path in itertools.chain(first_paths, paths):
            row = Row(path.name, {}, path=below_root(written_path), is_of_another=True)
            rows.append(row)
    return rows


def _other_files(ours: Sequence[SourcePath], root: SourcePath) -> Iterator[SourcePath]:
    """The other files of COCO beside the files, in the folder of the images, and of other splits."""
    # Dicts in place of sets keep the order.
    folders: dict[SourcePath, None] = {}
    for path in ours:
        folders[path.parent] = None
        for folder in _folders_of_other_splits(path.parent):
            folders[folder] = None
    folders[root] = None
    for folder in folders:
        for path in _json_files(folder):
            if path not in ours and begins_like_coco(path):
                yield path


def _folders_of_other_splits(folder: SourcePath) -> Iterator[SourcePath]:
    if split_of_name(folder.name) is None:
        return
    for name in _names(folder.parent, are_folders=True):
        if name != folder.name and split_of_name(name) is not None:
            yield folder.parent / name


def _json_files(folder: SourcePath) -> Iterator[SourcePath]:
    names = [name for name in _names(folder) if name.lower().endswith(".json")]
    for name in names[:_MAX_JSON_FILES]:
        yield folder / name


def _names(folder: SourcePath, *, are_folders: bool = False) -> Iterable[str]:
    """The names of the files or of the folders in a folder; none if it cannot be listed."""
    try:
        names = names_in(folder, FEW if are_folders else None)
    except (PackError, OSError):
        return ()
    return names.folders if are_folders else names.files


def _read_paths(path: SourcePath, most_entries: int | None) -> Iterator[str]:
    """The paths of the images of a file; of a damaged one those before the damage.

    Raises:
        _ImagesTooLateError: before the first path, if it comes later than `most_entries` others.
    """
    has_images = False
    num_entries = 0  # before the images
    try:
        for name, _, entry in object_entries(path):
            if name == "images":
                has_images = True
                written_path = image_path(entry) if isinstance(entry, dict) else None
                if isinstance(written_path, str):
                    yield written_path
            elif has_images:
                return  # annotations follow, which are most of the file
            else:
                num_entries += 1
                if num_entries == most_entries:
                    raise _ImagesTooLateError
    except (PackError, OSError):
        return
