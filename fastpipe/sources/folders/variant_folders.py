"""Folders with the same class folders and the same pictures -> an error, or words of doubt.

PlantVillage has each leaf three times, in color/, grayscale/ and segmented/. Taken as classes they
are wrong, and taken together each leaf is there three times. Which of them are meant, only the user
knows.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.folders.doubtful_classes import AS_CLASSES
from fastpipe.sources.folders.splits import first_paths
from fastpipe.sources.options import quote_for_shell

# More folders than this are no variants of one dataset.
_MAX_FOLDERS = 8
# The pictures of this many class folders are compared.
_MAX_CLASSES = 3
# Some pictures may be missing in a variant.
_MIN_COMMON_SHARE = 0.9
# Names that only count, such as 00001 and frame_0001, are the same by chance: Office-31 has
# amazon/images/mug/frame_0001.jpg and dslr/images/mug/frame_0001.jpg.
_COUNTED = re.compile(r"\D*\d{1,8}\D*")


def check_variants(root: SourcePath, folders: Sequence[str]) -> str:
    """The end of a sentence on folders whose pictures have the same names; "" if they have not.

    PackError: folders have the same class folders, and pictures of names that do not only count.
    """
    names = _names_of_variants(root, folders)
    if not names:
        return ""
    source = root / folders[0]
    if all(_COUNTED.fullmatch(name) for name in names):
        return (
            ". The images have the same names in each: if they are variants of the same images, "
            f"pass one of the folders, such as {readable(str(source))}"
        )
    classes = names_in(source).folders
    raise PackError(
        f"{readable(str(root))} has the folders {first_paths(folders)}, which hold the same "
        f"folders ({first_paths(classes)}) and images of the same names, so they may be variants "
        f"of the same images. Pack one of them, such as: fastpipe pack "
        f"{quote_for_shell(str(source))} DST. {AS_CLASSES} takes {first_paths(folders)} as the "
        "classes"
    )


def _names_of_variants(root: SourcePath, folders: Sequence[str]) -> list[str]:
    """The names of some pictures that all folders have, without endings; [] if they differ."""
    # Behind a URL, each look at a folder is a request. Folders called by numbers are classes.
    if not isinstance(root, Path) or not 2 <= len(folders) <= _MAX_FOLDERS:
        return []
    if all(folder.isdigit() for folder in folders):
        return []
    classes = names_in(root / folders[0]).folders
    if len(classes) < 2:
        return []
    for folder in folders[1:]:
        if names_in(root / folder).folders != classes:
            return []

    names_in_all: list[str] = []
    for name_of_class in classes[:_MAX_CLASSES]:
        names = _names_of_pictures(root / folders[0] / name_of_class)
        if not names:
            return []
        for folder in folders[1:]:
            others = _names_of_pictures(root / folder / name_of_class)
            common = [name for name in names if _has_name(others, name)]
            if len(common) < _MIN_COMMON_SHARE * max(len(names), len(others)):
                return []
        names_in_all += names
    return names_in_all


def _names_of_pictures(folder: Path) -> list[str]:
    """The sorted names of the pictures in a folder, without their endings."""
    pictures = filter(is_picture, names_in(folder).files)
    return sorted(os.path.splitext(name)[0] for name in pictures)


def _has_name(names: Sequence[str], wanted: str) -> bool:
    """Whether a name is among sorted ones, or one with more behind it: leaf 1_final_masked."""
    index = bisect_left(names, wanted)
    if index == len(names):
        return False
    rest = names[index].removeprefix(wanted)
    if rest == names[index]:
        return False
    return not rest or not rest[0].isalnum()
