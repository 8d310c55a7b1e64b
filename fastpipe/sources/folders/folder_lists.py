"""The lines of a list of classes -> the names of the classes, or the class folders that they name.

Lists of classes have more than names in their lines: ImageNet and Kaggle have a description behind
each (n01440764 tench, Tinca tinca), CUB has a number before and Places365 one behind. SUN397 and
Places365 have the path of a folder for each class (/a/airport_terminal/indoor).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fastpipe.sources.files import SourcePath

_DESCRIBED_SYNSET = re.compile(r"(n\d{8})[\s,:]+\S.*")
# A list of classes is small. A file that is larger lists something else.
_MAX_BYTES = 1 << 20


class FolderList(NamedTuple):
    """A list of the folders that are the classes of a source."""

    # The name of the file.
    file: str
    # Paths below the source, in the order of the list.
    folders: list[str]


def clean_class_names(lines: Sequence[str]) -> list[str]:
    """The names of the classes in the lines of a list; no line is empty."""
    names = _without_numbers(lines)
    described = [_DESCRIBED_SYNSET.fullmatch(name) for name in names]
    if all(described):
        names = [match[1] for match in described if match is not None]
    if all(name.startswith("/") and name.strip("/") for name in names):
        names = [name.strip("/") for name in names]
    return names


def _without_numbers(lines: Sequence[str]) -> list[str]:
    """The lines without the number of each, if they have numbers from 0 or 1 on."""
    pairs_before = [line.split(None, 1) for line in lines]
    pairs_after = [line.rsplit(None, 1)[::-1] for line in lines]
    for pairs in (pairs_before, pairs_after):
        if any(len(pair) != 2 for pair in pairs):
            continue
        numbers = [pair[0] for pair in pairs]
        names = [pair[1] for pair in pairs]
        # The names "class 1" and "class 2" would be the same without their numbers.
        are_distinct = len(set(names)) == len(names)
        for start in (0, 1):
            expected = [str(number) for number in range(start, start + len(lines))]
            if are_distinct and len(lines) > 1 and numbers == expected:
                return names
    return list(lines)


def find_folder_list(root: SourcePath, lists: Sequence[str]) -> FolderList | None:
    """The list that names the class folders of a source, which lie in one another.

    None if there is no such list. It is not looked for behind a URL.

    Args:
        root: the source.
        lists: the names of the lists beside the folders.
    """
    if not isinstance(root, Path):
        return None
    for name in lists:
        folders = _read_folders(root / name)
        num_existing = sum((root / folder).is_dir() for folder in folders)
        # Some classes of the list may be missing. If half of them are, it is another list.
        if num_existing > 1 and 2 * num_existing > len(folders):
            return FolderList(name, folders)
    return None


def _read_folders(path: Path) -> list[str]:
    """The paths in a list, if all are different and some are deeper than one folder; else none."""
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return []
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return []
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    folders = clean_class_names(lines)
    are_paths = any("/" in folder for folder in folders) and "\0" not in text
    if not are_paths or len(set(folders)) < len(folders):
        return []
    if any(".." in folder.split("/") or folder.startswith("/") for folder in folders):
        return []
    return folders
