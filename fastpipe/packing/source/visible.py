"""A folder -> the names of what it holds, without hidden ones: tools keep their notes there."""

from __future__ import annotations

import os
from pathlib import Path

from fastpipe.errors import PackError, readable


def entries_of(folder: Path) -> dict[str, bool]:
    """Name -> whether it is a folder, sorted.

    Raises:
        PackError: the folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: entry.is_dir() for entry in entries if not entry.name.startswith(".")}
    except OSError as problem:
        raise _cannot_be_listed(problem) from problem
    return dict(sorted(found.items()))


def files_below(root: Path) -> list[str]:
    """The paths of all files below a folder, relative to it, with "/".

    Raises:
        PackError: a folder cannot be listed.
    """

    def refuse(problem: OSError) -> None:
        raise _cannot_be_listed(problem) from problem

    found = []
    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        prefix = os.path.relpath(folder, root).replace(os.sep, "/") + "/"
        found += [prefix.removeprefix("./") + name for name in files if not name.startswith(".")]
    return found


def _cannot_be_listed(problem: OSError) -> PackError:
    return PackError(f"{readable(str(problem.filename))} cannot be listed: {problem.strerror}")
