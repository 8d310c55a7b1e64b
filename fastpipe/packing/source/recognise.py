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
from fastpipe.packing.source.files import SourcePath, folders_and_files, names_in, open_binary
from fastpipe.packing.source.metadata import metadata_in
from fastpipe.packing.source.options import SourceOptions
from fastpipe.packing.source.voc_yolo import VOC_FOLDERS, YOLO_FOLDERS

MANIFESTS = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
SUFFIXES = {**MANIFESTS, ".json": "coco", ".parquet": "parquet", ".arrow": "arrow"}
_FOLDERS = {"voc": VOC_FOLDERS, "yolo": YOLO_FOLDERS}
_HEADER_BYTES = 1 << 16
# What a user may say about a kind of source.
_TABLE = ("image_column", "label_column", "fields", "image_root", "split")
_ALLOWED = {
    "csv": _TABLE,
    "jsonl": _TABLE,
    "metadata": _TABLE,
    "parquet": _TABLE,
    "arrow": _TABLE,
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
        folders, files: names in a folder; without hidden ones, in which tools keep their notes.
        hidden: names of these.
    """

    format: str
    paths: tuple[SourcePath, ...]
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


def recognise(root: SourcePath, how: SourceOptions) -> Recognised:
    """Finds out what a source is, and which of its files count.

    Raises:
        PackError: it is not certain, or does not go with an option; or it cannot be listed.
    """
    found = _folder(root, how) if root.is_dir() else _file(root, how)
    allowed = _ALLOWED.get(found.format, ())
    for name in _TABLE:
        if getattr(how, name) is not None and (
            name not in allowed or (name == "split" and not _has_parts(root, found))
        ):
            what = "a single file" if name in allowed else f"{found.format} sources"
            option = "--field" if name == "fields" else "--" + name.replace("_", "-")
            raise PackError(f"{option} has no meaning for {what}, and {readable(str(root))} is one; leave it out")
    return found


def _has_parts(root: SourcePath, found: Recognised) -> bool:
    return root.is_dir() or found.format in ("parquet", "arrow")


def _file(path: SourcePath, how: SourceOptions) -> Recognised:
    if how.format != "auto":
        if how.format in ("imagefolder", "voc", "yolo"):
            raise PackError(f"--format {how.format}: expected a folder, and {readable(str(path))} is a file")
        return Recognised(how.format, (path,))
    if path.name in metadata_in(path.parent):
        return Recognised("metadata", (path,))
    return Recognised(SUFFIXES.get(path.suffix.lower(), "webdataset"), (path,))


def _folder(root: SourcePath, how: SourceOptions) -> Recognised:
    try:
        listed = folders_and_files(root)
    except OSError as problem:
        raise PackError(f"{root} cannot be listed: {problem.strerror}") from problem
    hidden = tuple(sorted(name for names in listed for name in names if name.startswith(".")))
    folders, files = (tuple(name for name in names if not name.startswith(".")) for names in listed)

    def found(name: str, *paths: SourcePath) -> Recognised:
        return Recognised(name, paths or (root,), folders, files, hidden)

    if how.format in ("auto", "webdataset") and _is_ours(root, folders, files):
        return found("dataset")
    kinds = [how.format] if how.format != "auto" else _kinds(root, folders, files, how)
    if len(kinds) > 1:
        raise PackError(
            f"{readable(str(root))} may be several kinds of source: {', '.join(kinds)}. --format picks one; or "
            "pass the file that lists the images"
        )
    if kinds == ["metadata"]:
        return found("metadata", _metadata(root, folders, how.split))
    if kinds[0] in MANIFESTS.values():
        return found(kinds[0], _manifest(root, files, kinds[0], how.split))
    if kinds == ["coco"]:
        return found("coco", *_coco(root, files, how.split))
    wanted = _FOLDERS.get(kinds[0], ())
    if not set(wanted) <= set(folders):
        raise PackError(f"--format {kinds[0]}: expected the folders {' and '.join(wanted)} in {readable(str(root))}")
    return found(kinds[0])


def _is_ours(root: SourcePath, folders: Sequence[str], files: Sequence[str]) -> bool:
    """Whether it is a packed dataset, be it damaged or unfinished."""
    described = root / DATASET_FILE
    try:
        ours = is_dataset(described)
    except OSError as problem:
        raise PackError(f"cannot read {described}: {problem.strerror}") from problem
    damaged = set(folders) <= {FIELDS_FOLDER} and described.name in files and not is_foreign(described)
    return ours or damaged or (root / WORK_FOLDER).is_dir()


def _kinds(root: SourcePath, folders: Sequence[str], files: Sequence[str], how: SourceOptions) -> list[str]:
    """What a folder may be. More than one: the user has to say."""
    if not folders and any(name.lower().endswith(".tar") for name in files):
        return ["webdataset"]  # what lies beside tars describes them
    if "dataset_dict.json" in files or "state.json" in files:
        return ["arrow"]
    found: list[str] = []
    if metadata_in(root) or any(metadata_in(root / name) for name in folders):
        found.append("metadata")
    if _holds_parquet(root, files) or ("data" in folders and _holds_parquet(root / "data")):
        found.append("parquet")
    if coco_files(root) or ("annotations" in folders and coco_files(root / "annotations")):
        found.append("coco")
    found += [kind for kind, wanted in _FOLDERS.items() if set(wanted) <= set(folders)]
    if found:
        return found
    manifests = [name for name in files if _lists_images(root / name)]
    found = sorted({MANIFESTS[Path(name).suffix.lower()] for name in manifests})
    if found and (folders or len(manifests) < len(files)) and how.split is None:
        found.append("imagefolder")
    return found or ["imagefolder"]


def _holds_parquet(folder: SourcePath, names: Sequence[str] | None = None) -> bool:
    tables = (name for name in names or names_in(folder) if name.lower().endswith(".parquet"))
    return any(name != "metadata.parquet" and (folder / name).is_file() for name in tables)  # a class may be called so


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
        delimiter = "," if path.suffix.lower() == ".csv" else "\t"
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
        return any(cell.strip().lower() in IMAGE_COLUMNS for cell in cells)
    except (OSError, ValueError, RecursionError, csv.Error):
        return False


def _metadata(root: SourcePath, folders: Sequence[str], split: str | None) -> SourcePath:
    here = metadata_in(root)
    splits = [name for name in folders if metadata_in(root / name)]
    if here and split is None:
        return root / here[0]
    _pick(root, splits, split, "metadata files in the folders")
    chosen = split if split is not None else splits[0]
    if split is None and len(folders) > 1:
        raise PackError(
            f"{readable(str(root))} has metadata in {chosen} and none in its other folders: --split {chosen} packs "
            "what it lists, --format imagefolder takes the folders as classes"
        )
    return root / chosen / metadata_in(root / chosen)[0]


def _manifest(root: SourcePath, files: Sequence[str], kind: str, split: str | None) -> SourcePath:
    there = [name for name in files if MANIFESTS.get(Path(name).suffix.lower()) == kind]
    if split is None:
        _pick(
            root,
            there,
            None,
            f"files of the format {kind}:",
            "--split picks one by a part of its name, such as train; or pass the file",
        )
        return root / there[0]
    fitting = [name for name in there if _called_after(name, split)]
    if len(fitting) != 1:
        names = ", ".join(map(readable, fitting or there)) or "none"
        several = "several files are called after it" if fitting else "no file is called after it"
        raise PackError(f"--split {split}: {several}; {readable(str(root))} has {names}. Pass the file itself")
    return root / fitting[0]


def _called_after(name: str, split: str) -> bool:
    return split in (Path(name).stem, *re.split(r"[^A-Za-z0-9]+", Path(name).stem))


def _coco(root: SourcePath, files: Sequence[str], split: str | None) -> list[SourcePath]:
    splits = coco_files(root) or (coco_files(root / "annotations") if (root / "annotations").is_dir() else {})
    if not splits:
        return [_json(root, files, split)]
    _pick(root, list(splits), split, "annotations of the splits")
    return splits[split if split is not None else next(iter(splits))]


def _json(root: SourcePath, files: Sequence[str], split: str | None) -> SourcePath:
    there = [name for name in files if name.endswith(".json")]
    fitting = [name for name in there if split is None or _called_after(name, split)]
    if len(fitting) != 1:
        names = ", ".join(map(readable, there)) or "no file in JSON"
        raise PackError(f"--format coco: {readable(str(root))} has {names}; pass the file itself")
    return root / fitting[0]


def _pick(
    root: SourcePath, there: Sequence[str], split: str | None, what: str, hint: str = "--split picks one"
) -> None:
    """Raises PackError unless exactly one is meant."""
    names = ", ".join(map(readable, there)) or "none"
    if split is not None and split not in there:
        raise PackError(f"--split {split}: {readable(str(root))} has {what} {names}")
    if split is None and len(there) != 1:
        raise PackError(f"{readable(str(root))} has {what} {names}: {hint}")
