"""Names of classes -> assumptions and errors where it is doubtful that they are classes, or which.

For example where folders are called like the parts of one dataset, or where two names may mean one
class.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from fastpipe.errors import PackError, readable
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.listing import Assumption
from fastpipe.sources.path_labels import LABEL_PATTERN
from fastpipe.sources.tables.likely import out_of_place

# The option by which the user says that folders are classes.
AS_CLASSES = "--format imagefolder"
# The classes are the folders in the first folders.
_BY_SECOND_FOLDER = f"{LABEL_PATTERN} '^[^/]+/([^/]+)/'"
_SEPARATORS = re.compile(r"[-_\s]+")
# Longer lists of classes come from programs, so comparing their names would only take time.
_MAX_COMPARED = 100_000


def parts_as_classes(folders: Sequence[str], inside: Sequence[str] = ()) -> Assumption:
    """The assumption that folders are classes, though they are called like parts of a dataset.

    `inside` are the folders in them, of a tar.
    """
    text = (
        f"classes: the folders {first_paths(folders)}, though they look like parts of "
        "one dataset"
    )
    if inside:
        return Assumption(
            f"{text}; if the folders in them ({first_paths(inside)}) are the classes, pack "
            "one part",
            f"--split {readable(folders[0])}",
        )
    return Assumption(
        f"{text}; if they are no classes, move their images into one folder", AS_CLASSES
    )


def parts_error(
    root: object, parts: Sequence[str], classes: Sequence[str]
) -> PackError:
    """The error for the parts of a dataset with class folders in each of them."""
    first = readable(parts[0])
    shown_parts = first_paths(parts)
    return PackError(
        f"{readable(str(root))} has the folders {shown_parts}, which look like parts of "
        f"one dataset, and class folders in them ({first_paths(classes)}). --split {first} "
        f"packs {first}, with the classes of all parts. {_BY_SECOND_FOLDER} packs all of "
        f"them, with these classes. {AS_CLASSES} takes {shown_parts} as the classes"
    )


def split_as_class(folders: Sequence[str]) -> Assumption:
    """The assumption that folders are classes, though they are called like splits."""
    return Assumption(
        f"{first_paths(folders)}: a class, though it looks like a split",
        f"--split {folders[0]}",
    )


def numbers_as_texts(classes: Sequence[str]) -> Iterator[Assumption]:
    """The assumption on classes that are whole numbers, if their labels are other numbers."""
    if not classes or not all(name.isascii() and name.isdigit() for name in classes):
        return
    example = None
    others = ""
    moved = out_of_place(classes)
    if moved:
        # "10" behind "1" is the example that everybody knows.
        example = "10" if "10" in moved else moved[0]
        reason = "are sorted as texts"
    else:
        reason = "are numbered from 0"
        others = "; a folder with other classes has other numbers, unless both are packed with one list of them"
        for label, name in enumerate(classes):
            if int(name) != label:
                example = name
                break
    if example is None:
        return
    label = classes.index(example)
    yield Assumption(
        f"labels: classes that are whole numbers {reason}: {example!r} is label {label}"
        f"{others}",
        "--classes-from FILE",
    )


def similar_classes(classes: Sequence[str], whose: str = "classes") -> list[Assumption]:
    """The assumption that similar names, such as Cat and cat, are different classes."""
    similar = _similar_names(classes)
    if not similar:
        return []
    names = first_paths(repr(name) for name in similar)
    return [
        Assumption(
            f"{whose}: {names} differ in letter case, spaces or separators alone, and are "
            "different classes; if they mean the same, give them one name"
        )
    ]


def find_similar_class(name: str, classes: Sequence[str]) -> str | None:
    """A class that differs from `name` in letter case, spaces or separators alone."""
    if not name or len(classes) > _MAX_COMPARED:
        return None
    simple_name = _simplify(name)
    for other in classes:
        if other and other != name and _simplify(other) == simple_name:
            return other
    return None


def _similar_names(classes: Sequence[str]) -> list[str]:
    """Names that differ from another one in letter case, separators, or how Unicode writes them."""
    if len(classes) > _MAX_COMPARED:
        return []
    # A dict in place of a set keeps the order of the names.
    groups: dict[str, dict[str, None]] = {}
    for name in classes:
        if name:
            groups.setdefault(_simplify(name), {})[name] = None
    similar: list[str] = []
    for names in groups.values():
        if len(names) > 1:
            similar += names
    return similar


def _simplify(name: str) -> str:
    # NFKC makes one text of the ways in which Unicode can write a letter with an accent.
    text = unicodedata.normalize("NFKC", name).casefold().strip()
    return _SEPARATORS.sub("_", text)
