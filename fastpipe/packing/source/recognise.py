"""SRC of a pack -> what it is, where that is certain."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastpipe.errors import PackError, readable
from fastpipe.format.description import is_dataset, is_foreign
from fastpipe.format.fields import FIELDS_FOLDER
from fastpipe.format.layout import DATASET_FILE, WORK_FOLDER
from fastpipe.packing.source.coco import coco_files
from fastpipe.packing.source.field_names import IMAGE_COLUMNS
from fastpipe.packing.source.files import Names, SourcePath, names_in, open_binary
from fastpipe.packing.source.manifest import MANIFESTS, METADATA, separator
from fastpipe.packing.source.options import SourceOptions, pick_split
from fastpipe.packing.source.voc_yolo import VOC_FOLDERS, YOLO_FOLDERS

SUFFIXES = {**MANIFESTS, ".json": "coco", ".parquet": "parquet", ".arrow": "arrow"}
_FOLDERS = {"voc": VOC_FOLDERS, "yolo": YOLO_FOLDERS}
_HEADER_BYTES = 1 << 16
# What a user may say about a kind of source.
_TABLE = ("image_column", "label_column", "fields", "image_root", "split")
_ALLOWED = {
    **dict.fromkeys(("csv", "jsonl", "metadata", "parquet", "arrow"), _TABLE),
    "coco": ("fields", "image_root", "split"),
    "voc": ("split",),
    "yolo": ("split",),
    "webdataset": ("fields",),
}


@dataclass(frozen=True)
class Recognised:
    """What a source is.

    Attributes:
        format: one of the formats of the options, but not "auto"; or "metadata": ImageFolder with metadata files.
        paths: of the file, or of files about the same images; or of the folder.
        names: of what a folder holds.
    """

    format: str
    paths: Sequence[SourcePath]
    names: Names


def recognise(root: SourcePath, how: SourceOptions) -> Recognised:
    """Finds out what a source is, and which of its files count.

    Raises:
        PackError: it is not certain, or does not go with an option; or it cannot be listed.
    """
    found = _folder(root, how) if root.is_dir() else _file(root, how)
    allowed = _ALLOWED.get(found.format, ())
    has_parts = root.is_dir() or found.format in ("parquet", "arrow")
    for name in _TABLE:
        if getattr(how, name) is not None and (name not in allowed or (name == "split" and not has_parts)):
            what = "a single file" if name in allowed else f"{found.format} sources"
            option = "--field" if name == "fields" else "--" + name.replace("_", "-")
            raise PackError(f"{option} has no meaning for {what}, and {readable(str(root))} is one; leave it out")
    return found


def _file(path: SourcePath, how: SourceOptions) -> Recognised:
    kind = how.format
    if kind == "auto" and path.name in METADATA:
        kind, path = "metadata", _metadata_of(path.parent)  # itself, if it is the only one
    elif kind == "auto":
        kind = SUFFIXES.get(path.suffix.lower(), "webdataset")
    elif kind in ("imagefolder", "voc", "yolo"):
        raise PackError(f"--format {kind}: expected a folder, and {readable(str(path))} is a file")
    return Recognised(kind, (path,), Names([], [], []))


def _folder(root: SourcePath, how: SourceOptions) -> Recognised:
    names = names_in(root)
    if how.format in ("auto", "webdataset") and _is_ours(root, names):
        return Recognised("dataset", (root,), names)
    kinds = [how.format] if how.format != "auto" else _kinds(root, names, how)
    if len(kinds) > 1:
        raise PackError(
            f"{readable(str(root))} may be several kinds of source: {', '.join(kinds)}. --format picks one; or "
            "pass the file that lists the images"
        )
    kind, paths = kinds[0], [root]
    if kind == "metadata":
        paths = [_metadata(root, names.folders, how.split)]
    elif kind == "coco":
        paths = _coco(root, names, how.split)
    elif kind in MANIFESTS.values():
        paths = [_only(root, names, kind, how.split)]
    wanted = _FOLDERS.get(kind, ())
    if not set(wanted) <= set(names.folders):
        raise PackError(f"--format {kind}: expected the folders {' and '.join(wanted)} in {readable(str(root))}")
    return Recognised(kind, paths, names)


def _is_ours(root: SourcePath, names: Names) -> bool:
    """Whether it is a packed dataset, be it damaged or unfinished."""
    described = root / DATASET_FILE
    try:
        ours = is_dataset(described)
    except OSError as problem:
        raise PackError(f"cannot read {described}: {problem.strerror}") from problem
    damaged = set(names.folders) <= {FIELDS_FOLDER} and described.name in names.files and not is_foreign(described)
    return ours or damaged or (root / WORK_FOLDER).is_dir()


def _kinds(root: SourcePath, names: Names, how: SourceOptions) -> list[str]:
    """What a folder may be. More than one: the user has to say."""
    folders, files, _ = names
    if not folders and any(name.lower().endswith(".tar") for name in files):
        return ["webdataset"]  # what lies beside tars describes them
    if "dataset_dict.json" in files or "state.json" in files:
        return ["arrow"]
    found: list[str] = []
    if any(_has_metadata(folder) for folder in (root, *(root / name for name in folders))):
        found.append("metadata")
    if _holds_parquet(root, names) or ("data" in folders and _holds_parquet(root / "data", names_in(root / "data"))):
        found.append("parquet")
    if _coco_splits(root, names):
        found.append("coco")
    found += [kind for kind, wanted in _FOLDERS.items() if set(wanted) <= set(folders)]
    if found:
        return found
    manifests = [name for name in files if _lists_images(root / name)]
    found = sorted({MANIFESTS[Path(name).suffix.lower()] for name in manifests})
    if found and (folders or len(manifests) < len(files)) and how.split is None:
        found.append("imagefolder")
    return found or ["imagefolder"]


def _holds_parquet(folder: SourcePath, names: Names) -> bool:
    tables = (name for name in names.files if name.lower().endswith(".parquet") and name not in METADATA)
    return any((folder / name).is_file() for name in tables)


def _lists_images(path: SourcePath) -> bool:
    """Whether a manifest has a column that is called like a path."""
    kind = MANIFESTS.get(path.suffix.lower())
    if kind is None:
        return False
    try:
        with open_binary(path) as file:
            line = file.readline(_HEADER_BYTES).decode("utf-8-sig")
        if kind == "jsonl":
            names = json.loads(line)
            return isinstance(names, dict) and any(name.lower() in IMAGE_COLUMNS for name in names)
        cells = next(csv.reader([line], delimiter=separator(path), skipinitialspace=True), [])
        return any(cell.strip().lower() in IMAGE_COLUMNS for cell in cells)
    except (OSError, ValueError, RecursionError, csv.Error):
        return False


def _has_metadata(folder: SourcePath) -> bool:
    return any((folder / name).is_file() for name in METADATA)


def _metadata_of(folder: SourcePath) -> SourcePath:
    """The metadata file of a folder that has some."""
    found = [name for name in METADATA if (folder / name).is_file()]
    if len(found) > 1:
        raise PackError(
            f"{readable(str(folder))} holds {' and '.join(found)}; expected one of them. Pass the file with "
            f"--format {'csv' if 'metadata.csv' in found else 'jsonl'} to pack what it lists"
        )
    return folder / found[0]


def _metadata(root: SourcePath, folders: Sequence[str], split: str | None) -> SourcePath:
    if split is None and _has_metadata(root):
        return _metadata_of(root)
    splits = [name for name in folders if _has_metadata(root / name)]
    chosen = pick_split(split, splits, root, "metadata files in the folders")
    if split is None and len(folders) > 1:
        raise PackError(
            f"{readable(str(root))} has metadata in {chosen} and none in its other folders: --split {chosen} packs "
            "what it lists, --format imagefolder takes the folders as classes"
        )
    return _metadata_of(root / chosen)


def _coco_splits(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    found = coco_files(root, names.files)
    if not found and "annotations" in names.folders:
        found = coco_files(root / "annotations", names_in(root / "annotations").files)
    return found


def _coco(root: SourcePath, names: Names, split: str | None) -> list[SourcePath]:
    splits = _coco_splits(root, names)
    return splits[pick_split(split, splits, root)] if splits else [_only(root, names, "coco", split)]


def _only(root: SourcePath, names: Names, kind: str, split: str | None) -> SourcePath:
    """The only file of a format, or the one that is called after a split."""
    there = [name for name in names.files if SUFFIXES.get(Path(name).suffix.lower()) == kind]
    fitting = [name for name in there if split is None or _called_after(Path(name).stem, split)]
    if len(fitting) != 1:
        several = "several files are" if fitting else "no file is"
        said = "" if split is None else f"--split {split}: {several} called after it; "
        raise PackError(
            f"{said}{readable(str(root))} has as files of the format {kind} {', '.join(map(readable, there)) or 'none'}"
            ": --split picks one by a part of its name, such as train; or pass the file itself"
        )
    return root / fitting[0]


def _called_after(stem: str, split: str) -> bool:
    return split in (stem, *re.split(r"[^A-Za-z0-9]+", stem))
