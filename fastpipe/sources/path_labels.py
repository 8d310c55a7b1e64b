"""Paths of images -> their classes, by a pattern that the user gives or by a list of folders.

Note [labels in paths]
A folder of images usually has a folder for each class. But SUN397 has its classes two or three
folders deep (a/airport_terminal/indoor/1.jpg), and other datasets write the class into the name of
the file (cat.7.jpg, Abyssinian_100.jpg). --label-pattern is a regular expression that is searched
in the path of each image, below the folder of the images. The text of its first group is the class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.errors import ConfigError, PackError, readable
from fastpipe.sources.listing import Source, replace_sources

LABEL_PATTERN = "--label-pattern"
# The class is the folder of the image, or the folders if they lie in one another.
FOLDER_PATTERN = "(.+)/"
BY_FIRST_FOLDER = f"{LABEL_PATTERN} '([^/]+)/'"
BY_FOLDER = f"{LABEL_PATTERN} '{FOLDER_PATTERN}'"
# The class is the last folder of these.
LAST_FOLDER_PATTERN = "([^/]+)/[^/]*$"

# Path of an image -> the name of its class; None if the path has none.
ClassOfPath = Callable[[str], str | None]


def compile_label_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern of a user. ConfigError: it is no regular expression, or it has no group."""
    try:
        compiled = re.compile(pattern)
    except re.error as problem:
        raise ConfigError(
            f"expected a regular expression, such as '{FOLDER_PATTERN}'; got {pattern!r} ({problem})",
            option="label_pattern",
        ) from None
    if compiled.groups == 0:
        raise ConfigError(
            "expected a group, in parentheses, around the class, such as "
            f"'{FOLDER_PATTERN}'; got {pattern!r}",
            option="label_pattern",
        )
    return compiled


def class_by_pattern(pattern: str) -> ClassOfPath:
    """Finds the class of a path by a pattern of the user."""
    compiled = compile_label_pattern(pattern)

    def class_of(path: str) -> str | None:
        match = compiled.search(path)
        if match is None:
            return None
        return match[1] or None  # a group may be empty, or take no part

    return class_of


def class_by_folder(folders: Collection[str]) -> ClassOfPath:
    """Finds the class of a path among folders: the innermost one that the image lies in."""

    def class_of(path: str) -> str | None:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folder = folder.rpartition("/")[0]
        return folder or None

    return class_of


def describe_unfit_path(pattern: str) -> str:
    """The problem of an image whose path has no class."""
    return f"expected a path with a class by {LABEL_PATTERN} {pattern!r}"


def label_by_path(
    sources: list[Source],
    class_of: ClassOfPath,
    unfit: str,
    classes: Sequence[str] | None = None,
) -> list[str]:
    """Gives sources, in place, the labels that their paths say. Returns the names of the classes.

    Args:
        sources: of a listing.
        class_of: finds the class of a path.
        unfit: the problem of a source whose path has no class.
        classes: names of the classes by number; None: those that the paths have, sorted.

    Raises:
        PackError: no path has a class.
    """
    names = {class_of(source.path) for source in sources if source.problem is None}
    if names == {None}:
        raise PackError(f"no image has a class; {readable(sources[0].path)}: {unfit}")
    if classes is None:
        classes = sorted(name for name in names if name is not None)
    numbers = {name: number for number, name in enumerate(classes)}

    def with_label(source: Source) -> Source:
        if source.problem is not None:
            return source
        label = numbers.get(class_of(source.path) or "", NO_LABEL)
        if label == NO_LABEL:
            return source._replace(label=label, problem=unfit)
        return source._replace(label=label)

    replace_sources(sources, with_label)
    return list(classes)
