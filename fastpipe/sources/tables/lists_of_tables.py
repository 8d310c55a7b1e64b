"""Tables of images -> the lists of splits beside them, and the tables that are no such lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.files import files_below
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.split_lists import UnusedLists, find_unused_lists
from fastpipe.sources.tables.listed_images import ListingTable, first_cells
from fastpipe.sources.tables.written_names import folded_stem

# The message must not wait for a walk through millions of files.
_MAX_FILES = 100_000
_SPLIT_LIST = "--split-list"


class ListsOfTable(NamedTuple):
    """The lists of splits beside a table."""

    lists: UnusedLists
    # The images in the folder that the table is about; it may list some of them alone.
    images: Listing


def find_lists_of_splits(table: ListingTable) -> ListsOfTable:
    """The lists beside a table that say the splits of the images in its folder."""
    folder = table.path.parent
    root = table.image_root or folder
    sources: list[Source] = []
    images = Listing(root, [], sources, [])
    if not isinstance(folder, Path) or not isinstance(root, Path):
        return ListsOfTable(UnusedLists([], []), images)
    files = islice(files_below(root, hidden=False), _MAX_FILES)
    for path in filter(is_picture, files):
        sources.append(Source(path, NO_LABEL, 0, 0, 0))
    return ListsOfTable(find_unused_lists(folder, images), images)


def describe_lists_of_splits(table: ListingTable, found: ListsOfTable) -> str:
    """Says which option takes the splits of a list, behind the arguments of a table.

    "" if no list has any. Kaggle's test.csv names other images than train.csv does.
    """
    lists = found.lists
    listed = _images_of_table(table, found.images)
    if lists.files and len(listed.sources) < len(found.images.sources):
        lists = find_unused_lists(Path(str(table.path.parent)), listed)
    for assumption in lists.assumptions:
        if assumption.option.startswith(_SPLIT_LIST):
            return f" (add {assumption.option} to pack one split)"
    return ""


def _images_of_table(table: ListingTable, images: Listing) -> Listing:
    """The images that a table lists; all of them if it is not read whole, or names them otherwise."""
    rows = first_cells(table.path, _MAX_FILES)
    if len(rows) == _MAX_FILES:
        return images
    stems: set[str] = set()
    for row in rows:
        stems.update(map(folded_stem, row.values()))
    sources = []
    for source in images.sources:
        if folded_stem(source.file_path) in stems:
            sources.append(source)
    if not sources:
        return images
    return replace(images, sources=sources)


def without_lists(
    tables: Sequence[ListingTable], lists: UnusedLists
) -> list[ListingTable]:
    """The tables that are no lists of splits; all if nothing else is there."""
    paths_of_lists = set(map(os.path.abspath, lists.files))
    others = []
    for table in tables:
        if os.path.abspath(str(table.path)) not in paths_of_lists:
            others.append(table)
    return others or list(tables)
