"""Lists of classes beside a table of boxes -> the number or the name of each class.

keras-retinanet writes classes.csv, with a line NAME,NUMBER for each class. Open Images has
class-descriptions-boxable.csv, with a line such as /m/01g317,Person for each class.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fastpipe.sources.files import SourcePath, names_in, open_unchanged
from fastpipe.sources.folders.folder_lists import clean_class_names

CLASS_LIST = "classes.csv"
_DESCRIPTIONS = (
    "class-descriptions-boxable.csv",
    "class-descriptions.csv",
    "oidv7-class-descriptions-boxable.csv",
    "oidv7-class-descriptions.csv",
    "oidv6-class-descriptions.csv",
    "challenge-2019-classes-description-500.csv",
)
# Open Images has identifiers of Freebase in place of names.
_CODE = re.compile(r"/[mgt]/\w+")
# A list of classes is small. A file of this name that is larger may be anything.
_MAX_BYTES = 4 << 20
_MAX_NAMES = 1000
_CALLED_CLASS_LIST = re.compile(
    r".*(?:class|label|categor)[\w-]*\.(?:txt|names)", re.IGNORECASE
)
_TEXT_FILE = re.compile(r".+\.txt", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"\s*[0-9]{1,4}\s*")


class Descriptions(NamedTuple):
    """The names of classes that a table has as codes."""

    # The name of the file.
    file: str
    # Code -> name.
    names: Mapping[str, str]


def read_descriptions(folder: SourcePath) -> Descriptions | None:
    """The names of Open Images' classes; None if no file in the folder has them."""
    paths = [folder / file for file in _DESCRIPTIONS]
    paths.append(
        folder.parent / "metadata" / CLASS_LIST
    )  # FiftyOne has the table in labels/
    for path in paths:
        names = {}
        for cells in _read_rows(path) or ():
            if len(cells) == 2 and _CODE.fullmatch(cells[0]):
                names[cells[0]] = cells[1].strip()
        # Two codes of one name would be one class.
        if names and len(set(names.values())) == len(names):
            return Descriptions(path.name, names)
    return None


def _read_rows(path: SourcePath) -> list[list[str]] | None:
    """The rows of a small CSV file in UTF-8; None if it does not exist, or is something else."""
    if not path.is_file():
        return None
    with open_unchanged(path) as file:
        content = file.read(_MAX_BYTES)
    try:
        lines = content.decode("utf-8-sig").splitlines()
        return [cells for cells in csv.reader(lines, strict=True) if cells]
    except (UnicodeDecodeError, csv.Error):
        return None


def find_class_list(folder: SourcePath, classes: Collection[str]) -> SourcePath | None:
    """The text file in a folder that has a class on each line, and these among them; or None."""
    for file in _small_files(folder, _TEXT_FILE):
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
        lines = [line.strip() for line in text.strip().split("\n")]
        names = clean_class_names(lines) if all(lines) else []
        if len(set(names)) == len(names) and set(names).issuperset(classes):
            return file
    return None


def find_names_of_numbers(folder: SourcePath, class_count: int) -> SourcePath | None:
    """The text file in a folder that is called a list of classes, and may name so many; or None."""
    for file, names in read_called_class_lists(folder):
        if len(names) >= class_count:
            return file
    return None


def read_called_class_lists(folder: SourcePath) -> Iterator[tuple[Path, list[str]]]:
    """The text files in a folder that are called lists of classes, and the lines that are not empty."""
    for file in _small_files(folder, _CALLED_CLASS_LIST):
        with open_unchanged(file) as opened:
            text = opened.read(_MAX_BYTES).decode("utf-8-sig", "replace")
        lines = [line.strip() for line in text.split("\n")]
        yield file, [line for line in lines if line]


def _small_files(folder: SourcePath, names: re.Pattern[str]) -> Iterator[Path]:
    """The small files of a folder that are called so; none of a folder behind a URL."""
    if not isinstance(folder, Path):
        return
    for name in names_in(folder, _MAX_NAMES).files:
        file = folder / name
        # A link may point to nothing.
        if not names.fullmatch(name) or not file.is_file():
            continue
        if file.stat().st_size <= _MAX_BYTES:
            yield file


def is_called_class_list(name: str) -> bool:
    """Whether a text file is called like a list of the names of classes: class_names.txt."""
    return _CALLED_CLASS_LIST.fullmatch(name) is not None


def read_class_list(folder: SourcePath) -> dict[str, int] | None:
    """The numbers of the classes by name; None if there is no such file, or if it has others."""
    rows = _read_rows(folder / CLASS_LIST)
    if rows is None:
        return None
    numbers: dict[str, int] = {}
    for cells in rows:
        if len(cells) != 2 or not _NUMBER.fullmatch(cells[1]):
            return None
        numbers[cells[0].strip()] = int(cells[1])
    # Two classes of one number would be one class, and of two rows of one name the last would win.
    num_distinct = len(set(numbers.values()))
    if not rows or num_distinct < len(rows) or len(numbers) < len(rows):
        return None
    return numbers
