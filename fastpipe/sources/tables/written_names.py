"""The name of a file as a table writes it -> the file, where exactly one fits.

Note [names as written]
Tables are written on other systems than they are read on: with backslashes, with accents as one
character or as two (NFC, NFD), in other letter case, with spaces around the name, or as an id
without the ending. Such a name is looked for only where there is no file of exactly this name, so
most tables cost nothing more. Each folder is listed once.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, names_in

_MAX_SHOWN = 5


class WrittenNames:
    """Finds files below an image root by the names that a table writes. See Note [names as
    written].
    """

    def __init__(self, root: SourcePath) -> None:
        self._root = root
        self._folders: dict[str, _Folder | None] = {}

    def find(self, written: str) -> str | None:
        """The path of the only file that fits; None if there is none.

        Raises:
            ValueError: several files fit.
        """
        path = written.strip().replace("\\", "/")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if not isinstance(self._root, Path):
            can_look = self._root.objects.has_lists
            if not can_look or path.startswith("/") or ".." in parts:
                return None

        place = ""  # the folder that is reached so far
        if path.startswith("/"):
            place = "/"
        for index, part in enumerate(parts):
            if part == "..":
                # Not cut off: above a link to a folder lies another folder.
                place = os.path.join(place, part)
                continue
            folder = self._folder(place)
            if folder is None:
                return None
            names = folder.names_like(part, is_file=index == len(parts) - 1)
            if len(names) > 1:
                shown = ", ".join(map(readable, names[:_MAX_SHOWN]))
                raise ValueError(
                    f"several files fit {readable(written)!r}: {shown}; write the whole name of one"
                )
            if not names:
                return None
            place = os.path.join(place, names[0])
        return place

    def _folder(self, path: str) -> _Folder | None:
        if path not in self._folders:
            try:
                names = names_in(self._root / path)
                self._folders[path] = _Folder(names.folders, names.files)
            except PackError:  # it does not exist, or cannot be listed
                self._folders[path] = None
        return self._folders[path]


class _Folder:
    """The names in a folder, grouped by what a table may write for them."""

    def __init__(self, folders: list[str], files: list[str]) -> None:
        self._folders = folders
        self._files = files

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        return _group([*self._folders, *self._files], fold_name)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        pictures = filter(is_picture, self._files)
        return _group(list(pictures), lambda name: fold_name(os.path.splitext(name)[0]))

    def names_like(self, written: str, *, is_file: bool) -> list[str]:
        """The names for which a table may have written this; of a file also without the ending."""
        names = self._by_name.get(fold_name(written), [])
        composed = unicodedata.normalize("NFC", written)
        same_case = []
        for name in names:
            if unicodedata.normalize("NFC", name) == composed:
                same_case.append(name)
        # Among "a.jpg" and "A.jpg", the one in the case that the table writes is meant.
        if len(same_case) == 1:
            return same_case
        if not names and is_file and not is_picture(written):
            return self._by_stem.get(fold_name(written), [])
        return names


def _group(names: list[str], key_of: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(key_of(name), []).append(name)
    return groups


def fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def folded_stem(written_path: str) -> str:
    """The name of a file in a path of a table, without its ending, as `fold_name` writes it."""
    name = written_path.replace("\\", "/").rpartition("/")[2]
    return fold_name(os.path.splitext(name)[0])


def split_joined_id(name: str) -> tuple[str, str] | None:
    """The id of a folder and the name of a picture in it, which an id joins; None if it joins none.

    COTS writes 0-16 for the frame 16.jpg of video_0.
    """
    folder_id, separator, picture = name.rpartition("-")
    if not separator:
        folder_id, separator, picture = name.rpartition("_")
    if not folder_id or not picture.isdecimal():
        return None
    return folder_id, picture


def ends_with_id(folder_name: str, folder_id: str) -> bool:
    """Whether a folder is called by an id, or ends with it: video_0 has the id 0, video_10 not."""
    before = folder_name.removesuffix(folder_id)
    if before == folder_name:
        return False
    return not before or not before[-1].isalnum()
