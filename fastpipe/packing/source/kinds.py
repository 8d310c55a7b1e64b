"""SRC of a pack -> the list of its images, in packing order."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.format.description import is_dataset
from fastpipe.format.layout import DATASET_FILE, NO_LABEL, WORK_FOLDER
from fastpipe.packing.source.coco import list_coco
from fastpipe.packing.source.files import SourcePath, files_below, state_or_problem
from fastpipe.packing.source.listing import Listing, Source, packing_order
from fastpipe.packing.source.manifest import MANIFESTS, list_manifest
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.recognise import SUFFIXES, Recognised, recognise
from fastpipe.packing.source.tables import list_tables
from fastpipe.packing.source.tar_reader import compressed as compressed_tar
from fastpipe.packing.source.tars import list_archives, list_dataset
from fastpipe.packing.source.voc_yolo import list_voc, list_yolo

_EXPECTED = (
    "expected a folder with one folder of images for each class, a tar file, a folder of tar files, a folder of "
    "images without classes, or a file that lists images (CSV, JSONL, COCO)"
)
_FOLDERS_OF_BOXES = {"voc": list_voc, "yolo": list_yolo}
_COMPRESSED = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|-$")


def list_sources(root: SourcePath, seed: int, *, shuffle: bool = True, how: SourceOptions | None = None) -> Listing:
    """Lists what is to be packed.

    The packing order is that of a seeded hash of each path: a fair shuffle, in which a file keeps its place
    among the others when some come or go.

    Args:
        root: a folder of class folders, or of images without classes; a tar file, a folder of tar files, or a packed
            dataset; or annotations: see docs/sources.md.
        seed: picks the order.
        shuffle: False: by class, then path.
        how: what the user says about the source.

    Raises:
        PackError: there is nothing of that kind, or a tar is damaged.
        DatasetError: the dataset is unfinished or damaged.
    """
    # Behind a URL times are those of the server's clock, so only the files themselves tell when they were listed.
    taken_ns = time.time_ns() if isinstance(root, Path) else 0
    listing = _list(root, how or SourceOptions())
    listing.sources.sort(key=packing_order(seed, shuffle=shuffle))
    if not isinstance(listing.root, Path):
        listing.root.forget()
        taken_ns = 0
    return replace(listing, taken_ns=taken_ns)


def _list(root: SourcePath, how: SourceOptions) -> Listing:
    if not root.exists():
        hint = ""
        if _ADDRESS.match(str(root)):
            hint = (
                ". fastpipe runs no command and reads no streams: pass a file, a folder, or a URL (s3://, ...) as text"
            )
        elif "{" in str(root):
            hint = ". fastpipe does not expand braces: pass the folder with the tars"
        raise PackError(f"{readable(str(root))} does not exist; {_EXPECTED}{hint}")
    found = recognise(root, how)
    match found.format:
        case "dataset":
            return list_dataset(root, how.remote)
        case "metadata":
            path = found.paths[0]
            return list_manifest(path, MANIFESTS.get(path.suffix.lower(), "parquet"), how, metadata=True)
        case "csv" | "jsonl":
            return list_manifest(found.paths[0], found.format, how)
        case "coco":
            return list_coco(found.paths, how)
        case "voc" | "yolo":
            if not isinstance(root, Path):
                raise PackError(
                    f"{root} is a folder of the format {found.format}, which fastpipe does not read by URL: copy it to "
                    "a folder of this machine"
                )
            return _FOLDERS_OF_BOXES[found.format](root, how.split)
        case "parquet" | "arrow":
            return list_tables(root, how)
    return _list_images(root, found, how)


def _list_images(root: SourcePath, found: Recognised, how: SourceOptions) -> Listing:
    """Class folders, images without classes, or tars."""
    if not root.is_dir():
        return list_archives(root, [""], asked=how.fields)
    folders, files, hidden = found.names
    if folders and found.format == "imagefolder":
        return _list_files(root, folders, in_class_folders(root, enumerate(folders)), [*files, *hidden])
    compressed = next((name for name in files if _COMPRESSED.search(name)), None)
    if compressed is not None:
        raise compressed_tar(root / compressed)
    if not files:
        raise PackError(
            f"{root} holds no folders and no files; expected one folder of images for each class "
            f"({root.name}/cat/1.jpg, {root.name}/dog/2.jpg), images without classes, or tars"
        )
    if found.format == "imagefolder":
        return _list_files(root, [], ((name, NO_LABEL) for name in files), hidden)
    tars = [name for name in files if name.lower().endswith(".tar")]
    if not tars:
        raise PackError(f"--format webdataset: {readable(str(root))} holds no tars")
    stray = [name for name in files if name not in tars] + [*folders, *hidden]
    return list_archives(root, tars, stray, asked=how.fields)


def class_folders(root: SourcePath, how: SourceOptions) -> tuple[list[str], list[str]]:
    """The names of the class folders of a source, and of what lies beside them; none if it is anything else."""
    found = recognise(root, how)
    folders, files, hidden = found.names
    return (folders, [*files, *hidden]) if found.format == "imagefolder" else ([], [])


def in_class_folders(root: SourcePath, folders: Iterable[tuple[int, str]]) -> Iterator[tuple[str, int]]:
    """The paths of the files in some class folders, each with its label, in no order."""
    return ((path, label) for label, name in folders for path in files_below(root, name))


def sources_at(root: SourcePath, paths: Iterable[tuple[str, int]]) -> Iterator[Source]:
    """Files, each with its label, as sources."""
    for path, label in paths:
        found = state_or_problem(root, path)
        if isinstance(found, str):
            yield Source(path, label, 0, 0, 0, found)
        else:
            yield Source(path, label, found.size_bytes, found.mtime_ns, found.ctime_ns)


def _list_files(root: SourcePath, classes: list[str], paths: Iterable[tuple[str, int]], stray: list[str]) -> Listing:
    return Listing(root, classes, list(sources_at(root, paths)), stray)


def could_be_source(path: Path) -> bool:
    """Whether it looks like a folder to pack, or a tar, and not like a dataset."""
    try:
        if not path.is_dir():
            return path.is_file() and path.suffix.lower() in (".tar", *SUFFIXES)
        if is_dataset(path / DATASET_FILE) or (path / WORK_FOLDER).exists():
            return False
        return any(entry.is_dir() or entry.suffix.lower() == ".tar" for entry in path.iterdir())
    except OSError:
        return False
