"""A folder in ImageFolder layout -> its classes and the list of its files, in packing order."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from fastpipe.errors import PackError
from fastpipe.pack.reading import read_as_listed


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the source folder.

    Attributes:
        path: relative to the source folder, with "/".
        label: position of its class in the sorted list of classes.
        size_bytes, mtime_ns, ctime_ns: as the file system had them.
        problem: why it cannot be read, found while listing; None where there is nothing against it.
    """

    path: str
    label: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    problem: str | None = None


@dataclass(frozen=True)
class Listing:
    """All that is in a source folder.

    Attributes:
        root: the folder.
        classes: names of its folders, sorted as torchvision's ImageFolder sorts them.
        sources: the files, in packing order.
        stray: files that lie beside the class folders; they have no label.
        taken_ns: when it was taken, in nanoseconds since 1970: what changes from then on may not be in it.
    """

    root: Path
    classes: list[str]
    sources: list[Source]
    stray: list[str]
    taken_ns: int

    def digest(self) -> str:
        """Names the content: classes, and each file's path and size, in packing order."""
        digest = xxhash.xxh3_128()
        for name in self.classes:
            digest.update(os.fsencode(name) + b"\0")
        for source in self.sources:
            digest.update(os.fsencode(source.path) + f"\0{source.label} {source.size_bytes}\n".encode())
        return digest.hexdigest()

    def digest_with_times(self, start: int = 0, stop: int | None = None) -> str:
        """Names the state of files, of all or of a run: written again or replaced, they have another."""
        digest = xxhash.xxh3_128()
        for source in self.sources[start:stop]:
            state = f"\0{source.label} {source.size_bytes} {source.mtime_ns} {source.ctime_ns}\n"
            digest.update(os.fsencode(source.path) + state.encode())
        return digest.hexdigest()

    def last_change_ns(self) -> int:
        """When the last of the files changed, was replaced or renamed, in nanoseconds since 1970.

        By the system's clock (ctime), which nobody sets: an old file that is moved into a new one's place counts.
        """
        return max((source.ctime_ns for source in self.sources), default=0)


def list_sources(root: Path, seed: int, *, shuffle: bool = True) -> Listing:
    """Lists `root/class/**/file`. Symbolic links are followed, cycles are not.

    The packing order is that of a seeded hash of each path: a fair shuffle, in which a file keeps its place
    among the others when some come or go.

    Args:
        root: the source folder.
        seed: picks the order.
        shuffle: False: by class, then path.

    Raises:
        PackError: there is no such folder, or no class folder in it.
    """
    taken_ns = time.time_ns()
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise PackError(f"{root} {what}; expected a folder with one folder of images a class")
    try:
        with os.scandir(root) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        classes = [entry.name for entry in listed if entry.is_dir()]
    except OSError as problem:
        raise PackError(f"{root} cannot be listed: {problem.strerror}") from problem
    if not classes:
        raise PackError(
            f"{root} holds no folders; expected one folder of images a class ({root.name}/cat/1.jpg, "
            f"{root.name}/dog/2.jpg). For images without classes put them into a single folder"
        )
    sources = [_source(root, path, label) for label, name in enumerate(classes) for path in _files(root, name)]
    if shuffle:
        sources.sort(key=lambda source: (xxhash.xxh3_64_intdigest(os.fsencode(source.path), seed), source.path))
    else:
        sources.sort(key=lambda source: (source.label, source.path))
    return Listing(root, classes, sources, [entry.name for entry in listed if not entry.is_dir()], taken_ns)


def _files(root: Path, name: str) -> Iterator[str]:
    """Paths of all files below root/name, relative to root.

    A link back to a folder that is being walked, or to one that holds the source folder, is not followed: it would
    bring the same files again, under the wrong class.
    """
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


def _source(root: Path, path: str, label: int) -> Source:
    try:
        info = os.stat(root / path)
    except OSError as problem:
        return Source(path, label, 0, 0, 0, f"cannot be read: {problem.strerror}")
    if not stat.S_ISREG(info.st_mode):
        why = "not a regular file (a pipe, socket or device)"
        return Source(path, label, 0, info.st_mtime_ns, info.st_ctime_ns, why)
    return Source(path, label, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def read_source(root: Path, source: Source) -> bytes:
    """The whole content of a source file.

    Raises:
        OSError: it cannot be read.
        PackError: it has changed since it was listed, or is gone.
    """
    return read_as_listed(root, source.path, source.size_bytes, source.mtime_ns)
