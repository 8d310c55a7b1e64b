"""A folder -> the names of what it holds, without hidden ones: tools keep their notes there."""

from __future__ import annotations

import os
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.files import SourcePath, folders_and_files


def entries_of(folder: SourcePath) -> dict[str, bool]:
    """Name -> whether it is a folder, sorted.

    Raises:
        PackError: the folder cannot be listed.
    """
    try:
        folders, files = folders_and_files(folder)
    except OSError as problem:
        raise _cannot_be_listed(problem) from problem
    found = {**dict.fromkeys(folders, True), **dict.fromkeys(files, False)}
    return {name: found[name] for name in sorted(found) if not name.startswith(".")}


def files_below(root: SourcePath) -> list[str]:
    """The paths of all files below a folder, relative to it, with "/".

    Raises:
        PackError: a folder cannot be listed.
    """
    if not isinstance(root, Path):
        return [path for path in root.files_below() if not any(part.startswith(".") for part in path.split("/"))]

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
