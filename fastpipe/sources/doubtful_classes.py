"""Names of classes -> doubts about them: folders called like parts of one dataset, two names of one class."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from fastpipe.errors import PackError, readable
from fastpipe.sources.listing import Assumption
from fastpipe.sources.splits import some

AS_CLASSES = "--format imagefolder"
_SEPARATORS = re.compile(r"[-_\s]+")
_MOST_CLASSES = 100_000  # that are compared; longer lists come from programs


def parts_as_classes(folders: Sequence[str], inside: Sequence[str] = ()) -> Assumption:
    """Told of folders that are taken for classes, though they may be parts; `inside`: the folders in those of a tar."""
    text = f"classes: the folders {some(folders)}, though they are called like parts of one dataset"
    if inside:
        one = f"--split {readable(folders[0])}"
        return Assumption(
            f"{text}; if the folders in them ({some(inside)}) are the classes, pack one part", one
        )
    return Assumption(
        f"{text}; if they are no classes, move their images into one folder", AS_CLASSES
    )


def refused_parts(root: object, parts: Sequence[str], classes: Sequence[str]) -> PackError:
    """The error for parts of a dataset with class folders in them."""
    first = readable(parts[0])
    return PackError(
        f"{readable(str(root))} has the folders {some(parts)}, which are called like parts of one dataset, and class "
        f"folders in them ({some(classes)}). --split {first} packs {first}, with the classes of all parts. To pack all "
        f"of them, move the class folders together. {AS_CLASSES} takes {some(parts)} as the classes"
    )


def similar_names(classes: Sequence[str]) -> list[str]:
    """Names of classes that differ from another one in letter case, in separators, or in how Unicode writes them."""
    if len(classes) > _MOST_CLASSES:
        return []
    groups: dict[str, list[str]] = {}
    for name in classes:
        if name:
            groups.setdefault(_plain(name), []).append(name)
    return [
        name for names in groups.values() if len(set(names)) > 1 for name in dict.fromkeys(names)
    ]


def _plain(name: str) -> str:
    return _SEPARATORS.sub("_", unicodedata.normalize("NFKC", name).casefold().strip())


def similar_classes(classes: Sequence[str], whose: str = "classes") -> list[Assumption]:
    """Told where two classes may be one, as Cat and cat."""
    similar = similar_names(classes)
    if not similar:
        return []
    return [
        Assumption(
            f"{whose}: {some(map(repr, similar))} differ in letter case, spaces or separators alone, and are different "
            "classes; if they mean the same, give them one name"
        )
    ]
