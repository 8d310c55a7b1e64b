"""A path or pattern of a user's -> the listing of an unpacked source, or an error if it is none."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fastpipe.errors import DatasetError, PackError, readable
from fastpipe.format.description import is_dataset
from fastpipe.format.folder import why_no_dataset
from fastpipe.format.layout import DATASET_FILE, INDEX_FILE, WORK_FOLDER
from fastpipe.packing.source.files import names_in
from fastpipe.packing.source.kinds import SUFFIXES, list_sources, recognise
from fastpipe.packing.source.listing import Listing, packing_order
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.tars import list_archives
from fastpipe.scan.columns import Archive

_MOST_PATTERNS = 1_000_000
_MAGIC = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Source:
    """A source that is not packed."""

    name: str  # what the user passed, absolute: a path or a pattern
    root: Path  # the folder or tar; of a pattern, the folder that all its tars are in
    tars: list[str] | None  # paths of the tars below the root; [""]: the root itself; None: files lie there

    def archives(self) -> list[Archive] | None:
        """Path, size and time of each tar now. OSError: one cannot be looked at."""
        if self.tars is None:
            return None
        states = [(tar, os.stat(self.root / tar)) for tar in self.tars]
        return [(tar or self.root.name, state.st_size, state.st_mtime_ns) for tar, state in states]

    def listing(self) -> Listing:
        """All that is in it, in the order of `fastpipe pack --no-shuffle`. PackError, DatasetError: it has none."""
        if str(self.root) != self.name:
            listing = list_archives(self.root, self.tars or [])
            listing.sources.sort(key=packing_order(0, shuffle=False))
            return listing
        try:
            form = recognise(self.root, SourceOptions()).format
        except PackError as problem:
            if isinstance(problem.__cause__, OSError):
                raise
            raise DatasetError(
                f"{problem}. These are options of `fastpipe pack`. Without packing, a loader reads only folders of "
                "images and tars: pack the source, or move what is none of these to another folder"
            ) from problem
        _refuse_others(self.root, form)
        return list_sources(self.root, seed=0, shuffle=False)


def unpacked_source(path: Path) -> Source | None:
    """What a path or pattern stands for; None: a dataset without dataset.json. PackError, OSError: not readable."""
    name = os.path.abspath(path)
    if path.is_dir():
        if (path / WORK_FOLDER).exists() or (path / INDEX_FILE).exists():
            return None
        return _folder(Path(name))
    if path.is_file() and path.suffix.lower() == ".tar":
        return Source(name, Path(name), [""])
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        _refuse_others(path, SUFFIXES[path.suffix.lower()])
    folder = os.path.dirname(name)
    while not os.path.isdir(folder):  # a folder is no part of the pattern, whatever characters are in its name
        folder = os.path.dirname(folder)
    rest = os.path.relpath(name, folder)
    if path.exists() or not _MAGIC.search(rest):
        raise DatasetError(why_no_dataset(path))
    return _pattern(name, folder, rest)


def _refuse_others(path: Path, form: str) -> None:
    """Raises DatasetError for what only packing reads."""
    if form not in ("imagefolder", "webdataset"):
        name = readable(str(path))
        raise DatasetError(
            f"{name} is a source of the format {form}, which has to be packed first: fastpipe pack {name} DST, then "
            "pass DST. Without packing, a loader reads folders of images and tars"
        )


def _folder(path: Path) -> Source:
    there = names_in(path)
    packed = [name for name in there.folders if is_dataset(path / name / DATASET_FILE)]
    if packed:
        raise DatasetError(
            f"{path} is not a packed dataset, but holds some: {', '.join(packed[:5])}. Pass one of them: "
            f"{path / packed[0]}"
        )
    if not any(there):
        raise DatasetError(
            f"{path} is not a packed dataset, and it is empty; expected a folder that `fastpipe pack` wrote, or one "
            "folder of images for each class, images without classes, or tars"
        )
    tars = [name for name in there.files if name.lower().endswith(".tar")]
    return Source(str(path), path, tars if tars and not there.folders else None)


def _pattern(name: str, folder: str, rest: str) -> Source:
    """The tars of a pattern: `rest`, in a folder; `name` is both."""
    found = set()
    patterns = [rest]
    if "{" in rest:  # train-{000..146}.tar, as WebDataset has them
        from braceexpand import braceexpand

        with contextlib.suppress(ValueError):  # braces that do not match
            patterns = list(itertools.islice(braceexpand(rest), _MOST_PATTERNS))
    for pattern in patterns:
        there = glob.glob(os.path.join(glob.escape(folder), pattern))
        if not there and not glob.has_magic(pattern):
            raise DatasetError(
                f"{readable(os.path.join(folder, pattern))} does not exist, and {readable(name)} names it"
            )
        found.update(there)
    tars = [tar for tar in sorted(found) if tar.lower().endswith(".tar") and os.path.isfile(tar)]
    if not tars:
        other = f"; it matches {min(found)}, which is no tar" if found else ""
        raise DatasetError(f"{name} matches no tar file{other}. Expected a pattern of tars, such as shards/*.tar")
    root = os.path.commonpath([os.path.dirname(tar) for tar in tars])
    return Source(name, Path(root), [os.path.relpath(tar, root) for tar in tars])
