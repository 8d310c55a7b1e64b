"""A folder in ImageFolder layout -> its classes and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fastpipe.errors import PackError
from fastpipe.format.layout import NO_LABEL
from fastpipe.packing.source.files import SourcePath, state_at
from fastpipe.packing.source.listing import Listing, Source


def list_folder(root: SourcePath, classes: list[str], stray: list[str]) -> Listing:
    """Lists `root/class/**/file`, in no order. Symbolic links are followed, cycles are not.

    Raises:
        PackError: a folder cannot be listed.
    """
    sources = [_source(root, path, label) for label, name in enumerate(classes) for path in _files(root, name)]
    return Listing(root, classes, sources, stray)


def list_flat_folder(root: SourcePath, names: list[str], stray: list[str]) -> Listing:
    """Lists the files of a folder without folders: images without classes."""
    return Listing(root, [], [_source(root, name, NO_LABEL) for name in names], stray)


def _files(root: SourcePath, name: str) -> Iterator[str]:
    """Paths of all files below root/name, relative to root.

    A link back to a folder that is being walked, or to one that holds the source folder, is not followed: it would
    bring the same files again, under the wrong class.
    """
    if not isinstance(root, Path):
        yield from (f"{name}/{path}" for path in (root / name).files_below())
        return
    top = root.resolve()
    seen = {(info.st_dev, info.st_ino) for info in map(os.stat, (top, *top.parents))}

    def refuse(problem: OSError) -> None:
        raise PackError(f"{problem.filename} cannot be listed: {problem.strerror}") from problem

    for folder, folders, files in os.walk(root / name, followlinks=True, onerror=refuse):
        info = os.stat(folder)
        if (info.st_dev, info.st_ino) in seen:
            folders.clear()
            continue
        seen.add((info.st_dev, info.st_ino))
        folders.sort()
        prefix = os.path.relpath(folder, root).replace(os.sep, "/")
        for file in sorted(files):
            yield f"{prefix}/{file}"


def _source(root: SourcePath, path: str, label: int) -> Source:
    try:
        state = state_at(root, path)
    except OSError as problem:
        return Source(path, label, 0, 0, 0, f"cannot be read: {problem.strerror}")
    times = state.mtime_ns, state.ctime_ns
    if not state.is_regular:
        return Source(path, label, 0, *times, "not a regular file (a pipe, socket or device)")
    return Source(path, label, state.size_bytes, *times)
