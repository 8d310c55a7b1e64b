"""Tables of images -> the lists of splits beside them, and the tables that are no such lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.sources.files import files_below
from fastpipe.sources.listing import Listing, Source
from fastpipe.sources.split_lists import UnusedLists, find_unused_lists
from fastpipe.sources.tables.listed_images import ListingTable

# The message must not wait for a walk through millions of files.
_MAX_FILES = 100_000
_SPLIT_LIST = "--split-list"


def find_lists_of_splits(table: ListingTable) -> UnusedLists:
    """The lists beside a table that say the splits of its images."""
    folder = table.path.parent
    images = table.image_root or folder
    if not isinstance(folder, Path) or not isinstance(images, Path):
        return UnusedLists([], [])
    files = islice(files_below(images, hidden=False), _MAX_FILES)
    sources = []
    for path in filter(is_picture, files):
        sources.append(Source(path, NO_LABEL, 0, 0, 0))
    return find_unused_lists(folder, Listing(images, [], sources, []))


def describe_lists_of_splits(lists: UnusedLists) -> str:
    """Says which option takes the splits of a list, behind the arguments; "" if no list has any."""
    for assumption in lists.assumptions:
        if assumption.option.startswith(_SPLIT_LIST):
            return f" (add {assumption.option} to pack one split)"
    return ""


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
