"""SRC of a pack -> what it is, where that is certain, and the list of its images, in packing order."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.format.description import is_dataset, is_foreign
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.layout import DATASET_FILE, NO_LABEL, WORK_FOLDER
from fastpipe.sources.class_names import with_given_classes
from fastpipe.sources.coco import coco_files, list_coco
from fastpipe.sources.files import Names, SourcePath, files_below, names_in, open_binary, state_or_problem
from fastpipe.sources.listing import Listing, Source, packing_order
from fastpipe.sources.manifest import METADATA, json_layout, list_manifest
from fastpipe.sources.options import IMAGE_COLUMNS, SourceOptions, pick_split
from fastpipe.sources.table_text import LISTS, header_of
from fastpipe.sources.tables import list_tables
from fastpipe.sources.tar_reader import compressed
from fastpipe.sources.tars import list_archives, list_dataset, list_tar_classes
from fastpipe.sources.voc_yolo import VOC_FOLDERS, YOLO_FOLDERS, list_voc, list_yolo

_MANIFESTS = ("csv", "jsonl")
_HEADER_BYTES = 1 << 16
_COMPRESSED = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)


class Recognised(NamedTuple):
    """What a source is."""

    format: str  # a key of _FORMATS
    root: SourcePath
    paths: Sequence[SourcePath]  # of the file, of files about the same images, or of the folder
    names: Names | None  # in the folder; None: it is a file


def list_sources(root: SourcePath, seed: int, *, shuffle: bool = True, how: SourceOptions | None = None) -> Listing:
    """Lists what is to be packed, in packing order. PackError, DatasetError: nothing is there, or it is damaged."""
    how, taken_ns = how or SourceOptions(), time.time_ns()
    if not root.exists():
        raise PackError(
            f"{readable(str(root))} does not exist; expected a folder with one folder of images for each class, a tar "
            "file, a folder of tar files, a folder of images without classes, a file that lists images (CSV, JSONL, "
            "COCO), or the URL of one of them as text. fastpipe runs no command, reads no streams and expands no braces"
        )
    found = recognise(root, how)
    listing = _FORMATS[found.format].listed(found, how)
    if how.classes is not None:
        listing = with_given_classes(listing, how.classes)
    listing.sources.sort(key=packing_order(seed, shuffle=shuffle))
    if not isinstance(listing.root, Path):
        listing.root.forget()
    # Behind a URL times are those of the server's clock, so only the files themselves tell when they were listed.
    here = isinstance(root, Path) and isinstance(listing.root, Path)
    return replace(listing, taken_ns=taken_ns if here else 0)


def format_of(name: str) -> str | None:
    """The format of a file by the ending of its name; None: that says none."""
    ending = os.path.splitext(name)[1].lower()
    return next((kind for kind, each in _FORMATS.items() if ending in each.endings), None)


def could_be_source(path: Path) -> bool:
    """Whether it looks like a folder to pack, or a tar, and not like a dataset."""
    with suppress(OSError):
        if not path.is_dir():
            return path.is_file() and format_of(path.name) is not None
        packed = is_dataset(path) or (path / WORK_FOLDER).exists()
        return not packed and any(entry.is_dir() or entry.suffix.lower() == ".tar" for entry in path.iterdir())
    return False


def _of_rows(found: Recognised, how: SourceOptions) -> Listing:
    path, *others = found.paths
    metadata = found.format == "metadata"
    if others:
        raise PackError(
            f"{readable(str(path.parent))} holds {' and '.join(each.name for each in found.paths)}; expected one of "
            f"them. Pass {path.name} with --format {format_of(path.name)} to pack what it lists"
        )
    kind = format_of(path.name) or "" if metadata else found.format
    return list_manifest(path, kind, how, metadata=metadata, alone=found.names is None)


def _of_boxes(found: Recognised, how: SourceOptions) -> Listing:
    if not isinstance(found.root, Path):
        remedy = "which fastpipe does not read by URL: copy it to a folder of this machine"
        raise PackError(f"{found.root} is a folder of the format {found.format}, {remedy}")
    if found.format == "voc":
        return list_voc(found.root, how.split)
    return list_yolo(found.root, how.split, how.first_label or 0)


def _of_images(found: Recognised, how: SourceOptions) -> Listing:
    """Class folders, images without classes, or tars."""
    root = found.root
    if found.names is None:
        return list_archives(root, [""], asked=how.fields)
    (folders, files, hidden), in_tars = found.names, found.format == "webdataset"
    if folders and not in_tars:
        paths = in_class_folders(root, enumerate(folders))
        return Listing(root, folders, list(sources_at(root, paths)), [*files, *hidden])
    for name in filter(_COMPRESSED.search, files):
        raise compressed(root / name)
    wanted = [name for name in files if not in_tars or name.lower().endswith(".tar")]
    if not wanted:
        raise PackError(
            f"{readable(str(root))} holds no {'tars' if in_tars else 'folders and no files'}; expected one folder of "
            f"images for each class ({root.name}/cat/1.jpg, {root.name}/dog/2.jpg), images without classes, or tars"
        )
    tars = [name for name in files if name.lower().endswith(".tar")]
    if not in_tars and tars:  # --format imagefolder says that each is a class
        return list_tar_classes(root, tars, [name for name in [*files, *hidden] if name not in tars])
    if not in_tars:
        return Listing(root, [], list(sources_at(root, ((name, NO_LABEL) for name in files))), hidden)
    stray = [name for name in files if name not in wanted] + [*folders, *hidden]
    return list_archives(root, wanted, stray, asked=how.fields)


def class_folders(root: SourcePath, how: SourceOptions) -> tuple[list[str], list[str]]:
    """The names of the class folders of a source, and of what lies beside them; none if it is anything else."""
    found = recognise(root, how)
    if found.format != "imagefolder" or found.names is None:
        return [], []
    return found.names.folders, [*found.names.files, *found.names.hidden]


def in_class_folders(root: SourcePath, folders: Iterable[tuple[int, str]]) -> Iterator[tuple[str, int]]:
    return ((path, label) for label, name in folders for path in files_below(root, name))


def sources_at(root: SourcePath, paths: Iterable[tuple[str, int]]) -> Iterator[Source]:
    for path, label in paths:
        found = state_or_problem(root, path)
        yield Source(path, label, *((0, 0, 0, found) if isinstance(found, str) else found[:3]))


class _SourceKind(NamedTuple):
    """A kind of source: who lists it, the options that mean something, the endings and the folders that tell it."""

    listed: Callable[[Recognised, SourceOptions], Listing]
    options: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()  # of a file's name
    folders: tuple[str, ...] = ()


_OF_TABLES = ("image_column", "label_column", "fields", "image_root", "split", "coordinates", "separator")
_OPTIONS = (*_OF_TABLES, "box_format")
_ALL_OPTIONS = (*_OPTIONS, "first_label")
_OF_COCO = ("fields", "image_root", "split", "coordinates")
_WITH_SPLITS = ("parquet", "arrow", *_MANIFESTS)  # files that may hold several splits
_FORMATS = {
    "dataset": _SourceKind(lambda found, how: list_dataset(found.root, how.remote)),
    "imagefolder": _SourceKind(_of_images),
    "webdataset": _SourceKind(_of_images, ("fields", "coordinates"), (".tar",)),
    "metadata": _SourceKind(_of_rows, _OPTIONS),  # of ImageFolder
    "csv": _SourceKind(_of_rows, _OPTIONS, (".csv", ".tsv", ".tab")),
    "jsonl": _SourceKind(_of_rows, _OPTIONS, (".jsonl", ".ndjson")),
    "parquet": _SourceKind(lambda found, how: list_tables(found.root, how), _OF_TABLES, (".parquet",)),
    "arrow": _SourceKind(lambda found, how: list_tables(found.root, how), _OF_TABLES, (".arrow",)),
    "coco": _SourceKind(lambda found, how: list_coco(found.paths, how), _OF_COCO, (".json",)),
    "voc": _SourceKind(_of_boxes, ("split", "coordinates"), folders=VOC_FOLDERS),
    "yolo": _SourceKind(_of_boxes, ("split", "coordinates", "first_label"), folders=YOLO_FOLDERS),
}


def recognise(root: SourcePath, how: SourceOptions) -> Recognised:
    """Tells what a source is, and which of its files count. PackError: not certain, or not with these options."""
    found = _folder(root, how) if root.is_dir() else _file(root, how)
    allowed = _FORMATS[found.format].options
    for name in _ALL_OPTIONS:
        no_parts = name == "split" and found.names is None and found.format not in _WITH_SPLITS
        if getattr(how, name) is not None and (name not in allowed or no_parts):
            what = "a single file" if name in allowed else f"{found.format} sources"
            option = "--field" if name == "fields" else "--" + name.replace("_", "-")
            raise PackError(f"{option} has no meaning for {what}, and {readable(str(root))} is one; leave it out")
    return found


def _file(path: SourcePath, how: SourceOptions) -> Recognised:
    if how.format == "auto" and path.name in METADATA:
        return Recognised("metadata", path, _metadata(path.parent, Names([], [], []))[""], None)
    if how.format in ("imagefolder", "voc", "yolo"):
        raise PackError(f"--format {how.format}: expected a folder, and {readable(str(path))} is a file")
    kind = (format_of(path.name) or "webdataset") if how.format == "auto" else how.format
    if how.format == "auto" and path.suffix.lower() in LISTS:
        kind = "csv"
    elif how.format == "auto" and kind == "coco" and json_layout(path) != "object":
        kind = "jsonl"  # an array of objects, or lines of them
    return Recognised(kind, path, [path], None)


def _folder(root: SourcePath, how: SourceOptions) -> Recognised:
    names = names_in(root)
    if how.format in ("auto", "webdataset") and _is_ours(root, names):
        return Recognised("dataset", root, [root], names)
    kinds = [how.format] if how.format != "auto" else _kinds(root, names, how)
    if len(kinds) > 1:
        remedy = "--format picks one; or pass the file that lists the images"
        raise PackError(f"{readable(str(root))} may be several kinds of source: {', '.join(kinds)}. {remedy}")
    kind, paths = kinds[0], [root]
    if kind in ("metadata", "coco", *_MANIFESTS):
        paths = _lists(kind, root, names, how.split)
    wanted = _FORMATS[kind].folders
    if not set(wanted) <= set(names.folders):
        raise PackError(f"--format {kind}: expected the folders {' and '.join(wanted)} in {readable(str(root))}")
    return Recognised(kind, root, paths, names)


def _lists(kind: str, root: SourcePath, names: Names, split: str | None) -> list[SourcePath]:
    """The files of a folder that list the images of a split."""
    if split == "":  # the key of what says none
        raise PackError("--split: expected the name of a split, got ''; leave it out if there are none")
    found = _metadata(root, names) if kind == "metadata" else _coco_splits(root, names) if kind == "coco" else {}
    if split is None and "" in found:  # beside the images themselves
        return found[""]
    if not found:  # files of the format, which may have a split in their names
        found = {name: [root / name] for name in names.files if format_of(name) == kind}
        if not found:
            raise PackError(f"{readable(str(root))} holds no file of the format {kind}")
        stems = {name: Path(name).stem for name in found}
        fitting = [name for name, stem in stems.items() if split in (stem, *re.split(r"[^A-Za-z0-9]+", stem))]
        split = fitting[0] if len(fitting) == 1 else split
    chosen = pick_split(split, found, root)
    if kind == "metadata" and split is None and len(names.folders) > 1:
        raise PackError(
            f"{readable(str(root))} has metadata in {chosen} and none in its other folders: --split {chosen} packs "
            "what it lists, --format imagefolder takes the folders as classes"
        )
    return found[chosen]


def _is_ours(root: SourcePath, names: Names) -> bool:
    """Whether it is a packed dataset, be it damaged or unfinished."""
    try:
        ours = is_dataset(root)
    except OSError as problem:
        raise PackError(f"cannot read {root / DATASET_FILE}: {problem.strerror}") from problem
    damaged = set(names.folders) <= {FIELDS_FOLDER} and DATASET_FILE in names.files and not is_foreign(root)
    return ours or damaged or (root / WORK_FOLDER).is_dir()


def _kinds(root: SourcePath, names: Names, how: SourceOptions) -> list[str]:
    """What a folder may be. More than one: the user has to say."""
    folders, files, _ = names
    if not folders and any(name.lower().endswith(".tar") for name in files):
        return ["webdataset"]  # what lies beside tars describes them
    if "dataset_dict.json" in files or "state.json" in files:
        return ["arrow"]
    found: list[str] = []
    if _metadata(root, names):
        found.append("metadata")
    in_data = names_in(root / "data").files if "data" in folders else []
    if any(name.lower().endswith(".parquet") and name not in METADATA for name in [*files, *in_data]):
        found.append("parquet")
    if _coco_splits(root, names):
        found.append("coco")
    found += [kind for kind, each in _FORMATS.items() if each.folders and set(each.folders) <= set(folders)]
    if found:
        return found
    manifests = [kind for name in files if (kind := format_of(name)) in _MANIFESTS and _lists_images(root / name)]
    found = sorted(set(filter(None, manifests)))
    if found and (folders or len(manifests) < len(files)) and how.split is None:
        found.append("imagefolder")
    return found or ["imagefolder"]


def _lists_images(path: SourcePath) -> bool:
    """Whether a manifest has a column that is called like a path."""
    with suppress(OSError, ValueError, RecursionError, PackError):
        if format_of(path.name) != "jsonl":
            return any(name.strip().lower() in IMAGE_COLUMNS for name in header_of(path))
        with open_binary(path) as file:
            names = json.loads(file.readline(_HEADER_BYTES).decode("utf-8-sig"))
        return isinstance(names, dict) and any(name.strip().lower() in IMAGE_COLUMNS for name in names)
    return False


def _metadata(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    """The folders with metadata, "" is the source itself -> these files."""
    folders = {"": root, **{name: root / name for name in names.folders}}
    found = {
        name: [folder / each for each in METADATA if (folder / each).is_file()] for name, folder in folders.items()
    }
    return {name: files for name, files in found.items() if files}


def _coco_splits(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    found = coco_files(root, names.files)
    if not found and "annotations" in names.folders:
        found = coco_files(root / "annotations", names_in(root / "annotations").files)
    return found
