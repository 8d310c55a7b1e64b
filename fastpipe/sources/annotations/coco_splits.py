"""The categories of all COCO splits, or an error where one number means two classes.

A class of COCO has the number of its category's id, and each file has its own list of categories.
Exports of the same categories agree; where they do not, a model that was trained on one split would
be scored wrong on the other.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.sources.annotations.coco_annotations import parse_id
from fastpipe.sources.annotations.coco_folders import group_coco_files
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.json_stream import object_entries

# Programs write the categories at the start or at the end of a file, which may be large.
_PART_BYTES = 1 << 20
_CATEGORIES = re.compile(rb'"categories"\s*:\s*(?=\[)')

Categories = dict[int, str]  # id -> name


def read_all_categories(
    ours: Sequence[SourcePath], others: Iterable[SourcePath]
) -> Categories:
    """The categories of the files of a split, and of those of other splits.

    Files of captions have no categories.

    Raises:
        PackError: files of other splits number a class otherwise.
    """
    known: Categories = {}
    for path in ours:
        known.update(_read_categories(path))
    all_categories = dict(known)
    for other in others:
        if other in ours or not known:
            continue
        categories = _read_categories(other)
        for number, name in categories.items():
            all_categories.setdefault(number, name)
        problem = _describe_difference(known, categories)
        if problem is not None:
            raise PackError(
                f"{readable(str(ours[0]))} and {readable(str(other))} number their classes "
                f"differently: {problem}. Give all splits the numbers of one: --classes-from FILE "
                "with that of the training, or with a name on each line"
            )
    return all_categories


def find_coco_files_beside(path: SourcePath) -> list[SourcePath]:
    """The files of other splits beside one that COCO names so: instances_val2017.json."""
    if not group_coco_files(path.parent, [path.name]):
        return []
    others: list[SourcePath] = []
    for files in group_coco_files(path.parent, names_in(path.parent).files).values():
        if path not in files:
            others += files
    return others


def _read_categories(path: SourcePath) -> Categories:
    """The categories of a file; none if it is damaged, which is an error when it is packed."""
    if path.name.startswith("captions_"):
        return {}
    entries = None
    if isinstance(path, Path):
        entries = _read_categories_near_an_end(path)
    if entries is None:
        # They lie somewhere inside the file, or it comes from a store: all of it is read.
        try:
            lists = object_entries(path)
            entries = [entry for name, _, entry in lists if name == "categories"]
        except PackError:
            return {}

    categories: Categories = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        number = parse_id(entry.get("id"))
        if isinstance(number, int):
            categories[number] = entry["name"]
    return categories


def _read_categories_near_an_end(path: Path) -> list[Any] | None:
    """The categories if they are at the end or at the start of a file."""
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        # The end comes first: the lists of images and annotations usually stand before.
        for offset in (max(0, size_bytes - _PART_BYTES), 0):
            file.seek(offset)
            entries = _find_categories(file.read(_PART_BYTES))
            if entries is not None:
                return entries
    return None


def _find_categories(data: bytes) -> list[Any] | None:
    """The last list of categories in a part of a file; None if the part does not have all of it."""
    matches = list(_CATEGORIES.finditer(data))
    if not matches:
        return None
    try:
        # The part may begin or end inside a character, which must not be an error.
        text = data[matches[-1].end() :].decode("utf-8", "replace")
        entries, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    # "categories" may also be a key inside an annotation, with a list of other things.
    for entry in entries:
        if not isinstance(entry, dict) or "id" not in entry:
            return None
    return entries or None


def _describe_difference(
    ours: Mapping[int, str], theirs: Mapping[int, str]
) -> str | None:
    """The first class with two numbers, or number with two classes; None if there is none."""
    numbers = {name: number for number, name in ours.items()}
    for number, name in theirs.items():
        if name in numbers and numbers[name] != number:
            return (
                f"{name!r} is {numbers[name]} in the first and {number} in the second"
            )
        if number in ours and ours[number] != name:
            return (
                f"{number} is {ours[number]!r} in the first and {name!r} in the second"
            )
    return None
