"""The name of a file as a table writes it -> the file, where exactly one fits.

Note [names as written]
Tables are written on other systems than they are read on: with backslashes, with accents as one character or as two
(NFC, NFD), in other letter case, or as an id without the ending. Such a name is looked for only where there is no file
of this very name, so usual tables ask nothing more of the file system. Each folder is then listed once.
"""

from __future__ import annotations

import os
import unicodedata
from functools import cached_property
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, names_in
from fastpipe.sources.options import is_picture

_MOST_SHOWN = 5


class _Folder:
    """The names in a folder, by what they have in common with others that mean the same."""

    def __init__(self, folders: list[str], files: list[str]) -> None:
        self._folders, self._files = folders, files

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        return _grouped(
            [*self._folders, *self._files],
            [_folded(name) for name in [*self._folders, *self._files]],
        )

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        pictures = [name for name in self._files if is_picture(name)]
        return _grouped(pictures, [_folded(os.path.splitext(name)[0]) for name in pictures])

    def fitting(self, name: str, *, last: bool) -> list[str]:
        """The names that a table may have written so; `last`: of the file itself, whose ending it may leave out."""
        fits = self._by_name.get(_folded(name), [])
        exact = [
            each
            for each in fits
            if unicodedata.normalize("NFC", each) == unicodedata.normalize("NFC", name)
        ]
        if exact or fits or not last or is_picture(name):
            return exact if len(exact) == 1 else fits
        return self._by_stem.get(_folded(name), [])


class WrittenNames:
    """Finds files below an image root by the names that a table writes. See Note [names as written]"""

    def __init__(self, root: SourcePath) -> None:
        self._root = root
        self._listed: dict[str, _Folder | None] = {}

    def find(self, written: str) -> str | None:
        """The path of the only file that fits; None: there is none. ValueError: several fit."""
        if not isinstance(self._root, Path) and not self._root.objects.has_lists:
            return None
        path = written.replace("\\", "/")
        if not isinstance(self._root, Path) and (path.startswith("/") or ".." in path.split("/")):
            return None
        found = "/" if path.startswith("/") else ""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for number, part in enumerate(parts):
            if part == "..":
                found = os.path.join(found, part)
                continue
            folder = self._folder(found)
            fits = [] if folder is None else folder.fitting(part, last=number == len(parts) - 1)
            if len(fits) > 1:
                shown = ", ".join(map(readable, fits[:_MOST_SHOWN]))
                raise ValueError(
                    f"several files fit {readable(written)!r}: {shown}; write the whole name of one"
                )
            if not fits:
                return None
            found = os.path.join(found, fits[0])
        return found

    def _folder(self, path: str) -> _Folder | None:
        if path not in self._listed:
            try:
                names = names_in(self._root / path)
            except PackError:  # it is not there, or cannot be listed
                self._listed[path] = None
            else:
                self._listed[path] = _Folder(names.folders, names.files)
        return self._listed[path]


def _grouped(names: list[str], keys: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, key in zip(names, keys, strict=True):
        found.setdefault(key, []).append(name)
    return found


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
