"""The categories of a COCO split and of the splits beside it -> an error where one number means two classes.

A class of COCO has the number of its category's id, which each file says for itself. Exports of the same categories
agree; where they do not, a model that was trained on one split would be scored wrong on the other.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.sources.coco import coco_files, entries, id_of
from fastpipe.sources.files import SourcePath, names_in

_PART_BYTES = 1 << 20  # at the end and the start of a file, where programs write the categories
_CATEGORIES = re.compile(rb'"categories"\s*:\s*(?=\[)')

Categories = dict[Any, str]  # id -> name


def check_same_categories(ours: Sequence[SourcePath], others: Iterable[SourcePath]) -> None:
    """Raises PackError if files of other splits number a class otherwise. Captions have no categories."""
    known: Categories = {}
    for path in ours:
        known.update(categories_of(path))
    for other in others:
        if other in ours or not known:
            continue
        problem = _difference(known, categories_of(other))
        if problem is not None:
            raise PackError(
                f"{readable(str(ours[0]))} and {readable(str(other))} number their classes differently: {problem}. "
                "Give all splits the numbers of one: --classes-from FILE with that of the training, or with a name on "
                "each line"
            )


def files_beside(path: SourcePath) -> list[SourcePath]:
    """The files of other splits in the folder of one that is called as COCO calls them: instances_val2017.json."""
    if not coco_files(path.parent, [path.name]):
        return []
    by_split = coco_files(path.parent, names_in(path.parent).files)
    return [file for files in by_split.values() if path not in files for file in files]


def categories_of(path: SourcePath) -> Categories:
    """Those that a file says; none if it is damaged, which packing it would say."""
    if path.name.startswith("captions_"):
        return {}
    found = _categories_near_an_end(path) if isinstance(path, Path) else None
    if found is None:
        with suppress(PackError):
            found = [entry for name, _, entry in entries(path) if name == "categories"]
    return {
        id_of(entry["id"]): entry["name"]
        for entry in found or ()
        if isinstance(entry, dict)
        and id_of(entry.get("id")) is not None
        and isinstance(entry.get("name"), str)
    }


def _categories_near_an_end(path: Path) -> list[Any] | None:
    """Reads the start and the end of a file, which may be large; None: they are in neither."""
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        for offset in (max(0, size_bytes - _PART_BYTES), 0):
            file.seek(offset)
            found = _categories_in(file.read(_PART_BYTES))
            if found is not None:
                return found
    return None


def _categories_in(data: bytes) -> list[Any] | None:
    matches = list(_CATEGORIES.finditer(data))
    if not matches:
        return None
    try:
        text = data[matches[-1].end() :].decode("utf-8", "replace")  # it may end in a character
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return (
        found
        if found and all(isinstance(entry, dict) and "id" in entry for entry in found)
        else None
    )


def _difference(ours: Mapping[Any, str], theirs: Mapping[Any, str]) -> str | None:
    """The first class with two numbers; None: there is none."""
    number_of = {name: number for number, name in ours.items()}
    for number, name in theirs.items():
        if name in number_of and number_of[name] != number:
            return f"{name!r} is {number_of[name]} in the first and {number} in the second"
        if ours.get(number, name) != name:
            return f"{number} is {ours[number]!r} in the first and {name!r} in the second"
    return None
