"""SRC of a pack, a folder of images or tar files -> the list of its files, in packing order; and the bytes of each."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.format.description import is_dataset, is_foreign
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.layout import DATASET_FILE, WORK_FOLDER
from fastpipe.format.read_at import read_at
from fastpipe.packing.source.folders import list_flat_folder, list_folder
from fastpipe.packing.source.listing import Listing, Source, put_in_order
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.reading import FLAGS, read_as_listed, read_member
from fastpipe.packing.source.table_splits import could_be_tables
from fastpipe.packing.source.tables import list_tables
from fastpipe.packing.source.tars import list_archives, list_dataset

__all__ = ["Listing", "Source", "could_be_source", "list_sources", "read_source", "read_start"]

_EXPECTED = (
    "expected a folder with one folder of images for each class, a tar file, a folder of tar files, or a folder of "
    "images without classes"
)
LARGE_BYTES = 16 << 20  # of such files the start is read first
START_BYTES = 4096
_COMPRESSED = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|-$")


def list_sources(
    root: Path, seed: int, *, shuffle: bool = True, with_fields: bool = True, how: SourceOptions | None = None
) -> Listing:
    """Lists what is to be packed.

    The packing order is that of a seeded hash of each path: a fair shuffle, in which a file keeps its place
    among the others when some come or go.

    Args:
        root: a folder of class folders, or of images without classes; or a tar file, a folder of tar files, or a
            packed dataset.
        seed: picks the order.
        shuffle: False: by class, then path.
        with_fields: further members of a WebDataset's samples are fields; else they are left out.
        how: what the user says about the source.

    Raises:
        PackError: there is nothing of that kind, or a tar is damaged.
        DatasetError: the dataset is unfinished or damaged.
    """
    taken_ns = time.time_ns()
    how = how or SourceOptions()
    if how.format in ("parquet", "arrow") or (how.format == "auto" and root.exists() and could_be_tables(root)):
        listing: Listing = list_tables(root, how)
    else:
        listing = _list(root, with_fields=with_fields)
    put_in_order(listing.sources, seed, shuffle=shuffle)
    return replace(listing, taken_ns=taken_ns)


def _list(root: Path, *, with_fields: bool) -> Listing:
    if not root.exists():
        hint = ""
        if _ADDRESS.match(str(root)):
            hint = ". fastpipe downloads nothing and runs no command: download the tars first, and pass their folder"
        elif "{" in str(root):
            hint = ". fastpipe does not expand braces: pass the folder with the tars"
        raise PackError(f"{readable(str(root))} does not exist; {_EXPECTED}{hint}")
    if not root.is_dir():
        return list_archives(root, [""], with_fields=with_fields)
    try:
        with os.scandir(root) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        folders = [entry.name for entry in listed if entry.is_dir()]
    except OSError as problem:
        raise PackError(f"{root} cannot be listed: {problem.strerror}") from problem
    others = [entry.name for entry in listed if not entry.is_dir()]
    described = root / DATASET_FILE
    try:
        ours = is_dataset(described)
    except OSError as problem:
        raise PackError(f"cannot read {described}: {problem.strerror}") from problem
    damaged = set(folders) <= {FIELDS_FOLDER} and described.name in others and not is_foreign(described)
    if ours or damaged or WORK_FOLDER in folders:
        return list_dataset(root)
    if folders:
        return list_folder(root, folders, others)
    compressed = next((name for name in others if _COMPRESSED.search(name)), None)
    if compressed is not None:
        raise PackError(
            f"{readable(str(root / compressed))} is compressed, so fastpipe cannot read single members from it; "
            "unpack the tars (gunzip, zstd -d, xz -d) and pack them or their files"
        )
    tars = [name for name in others if name.lower().endswith(".tar")]
    if not others:
        raise PackError(
            f"{root} holds no folders and no files; expected one folder of images for each class "
            f"({root.name}/cat/1.jpg, {root.name}/dog/2.jpg), images without classes, or tars"
        )
    if not tars:
        return list_flat_folder(root, others)
    stray = [name for name in others if name not in tars]
    return list_archives(root, tars, stray, with_fields=with_fields)


def read_start(root: Path, source: Source) -> bytes:
    """The first bytes of a source file, from which its format can be told.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(root / (source.path if source.archive is None else source.archive), FLAGS)
    try:
        return read_at(handle, min(source.size_bytes, START_BYTES), source.offset_bytes)
    finally:
        os.close(handle)


def could_be_source(path: Path) -> bool:
    """Whether it looks like a folder to pack, or a tar, and not like a dataset."""
    try:
        if not path.is_dir():
            return path.is_file() and path.suffix.lower() == ".tar"
        if is_dataset(path / DATASET_FILE) or (path / WORK_FOLDER).exists():
            return False
        return any(entry.is_dir() or entry.suffix.lower() == ".tar" for entry in path.iterdir())
    except OSError:
        return False


def read_source(root: Path, source: Source) -> bytes:
    """The whole content of a source file, which must be as it was listed.

    Raises:
        OSError: it cannot be read.
        PackError: it, or its tar, has changed since it was listed, or is gone; or its tar cannot be read.
    """
    if source.archive is None:
        return read_as_listed(root, source.path, source.size_bytes, source.mtime_ns)
    return read_member(root / source.archive, source)
