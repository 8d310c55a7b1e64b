"""The names in a folder, and the starts of a few files -> the formats of source that it may be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from fastpipe.dataset.format.picture_names import is_picture
from fastpipe.errors import PackError
from fastpipe.sources.annotations.annotated_files import annotated_by_split
from fastpipe.sources.annotations.annotation_folders import is_usual_folder
from fastpipe.sources.annotations.coco_folders import find_coco_files
from fastpipe.sources.column_choice import IMAGE_COLUMNS
from fastpipe.sources.file_formats import (
    MANIFESTS,
    format_of,
    is_named_after,
    is_tar,
)
from fastpipe.sources.files import Names, SourcePath, names_in, open_binary
from fastpipe.sources.folders.labelled import (
    LABELLED_FORMATS,
    find_pairs,
    labelled_formats,
)
from fastpipe.sources.folders.splits import FEW, meaning_of_split, split_folders
from fastpipe.sources.options import SourceOptions
from fastpipe.sources.tables.listed_images import find_listing_tables
from fastpipe.sources.tables.manifest_reader import METADATA
from fastpipe.sources.tables.table_files import is_result_form, sort_labelled_first
from fastpipe.sources.tables.table_text import read_column_names

_MAX_LINE_BYTES = 1 << 16


def possible_formats(
    root: SourcePath, names: Names, options: SourceOptions
) -> list[str]:
    """The formats that a folder may have, at least one; if there are several, the user decides.

    Raises:
        PackError: see `labelled_formats`.
    """
    if not names.folders and tar_names(names):
        return ["webdataset"]  # other files beside tars describe them
    # `save_to_disk` of Hugging Face datasets writes these.
    if "dataset_dict.json" in names.files or "state.json" in names.files:
        return ["arrow"]

    formats = []
    if metadata_by_split(root, names):
        formats.append("metadata")
    if _has_parquet(root, names):
        formats.append("parquet")
    if find_coco_files(root, names):
        formats.append("coco")
    annotated = annotated_by_split(root, names)
    if annotated:
        formats.append("annotations")
    if "coco" in formats or _are_in(root, annotated):
        other_folders = [
            name
            for name in names.folders
            if not is_usual_folder(name) and not _has_files_alone(root / name)
        ]
        if len(other_folders) > 1 and not split_folders(root, names):
            # The folders may be classes, beside an export.
            formats.append("imagefolder")
    formats += labelled_formats(root, names, is_other_format=bool(formats))
    if formats:
        return formats

    # Any CSV may lie beside images. It counts if it has a column that is called like a path. Even
    # then the folders, or the other files, may be the source.
    manifests: list[str] = []
    for name in sort_labelled_first(manifest_names(names)):
        # People write predictions.csv into the folder of their class folders.
        if len(names.folders) > 1 and is_result_form(name):
            continue
        if _lists_images(root / name, options.encoding) or _is_table_of_split(
            root, names, name, options
        ):
            manifests.append(name)
    formats = sorted({format_of(name) or "" for name in manifests})
    has_others = bool(names.folders) or len(manifests) < len(names.files)
    if not formats or (has_others and options.split is None):
        formats.append("imagefolder")
    return formats


def _is_table_of_split(
    root: SourcePath, names: Names, name: str, options: SourceOptions
) -> bool:
    """Whether a table is called after the split that the user asks for, and lists the images.

    Where a folder is called so, it is the split.
    """
    split = options.split
    if not split or not is_named_after(name, split):
        return False
    if split_folders(root, names, split):
        return False
    return bool(find_listing_tables(root, [name], options.encoding))


def _has_files_alone(folder: SourcePath) -> bool:
    """Whether a folder has files, and no picture among them: parts and attributes of CUB."""
    names = names_in(folder, FEW)
    return bool(names.files) and not any(map(is_picture, names.files))


def lies_at_top(
    format_name: str, root: SourcePath, names: Names, options: SourceOptions
) -> bool:
    """Whether a folder with folders of splits is itself a source of a format, for all splits."""
    if format_name == "imagefolder":
        # The user says that the folders are classes, though they are called like splits.
        return options.format == format_name and options.split is None
    if format_name in LABELLED_FORMATS:
        return bool(find_pairs(format_name, root, names))
    if format_name == "coco":
        return bool(find_coco_files(root, names))
    if format_name == "annotations":
        return bool(annotated_by_split(root, names))
    if format_name in ("metadata", "parquet", "arrow"):
        return True  # their own listing finds the splits
    tables = [name for name in names.files if format_of(name) == format_name]
    meaning = meaning_of_split(options.split or "")
    if meaning and split_folders(root, names, options.split):
        # GT-final_test.csv of GTSRB says nothing of the folder Final_Training.
        tables = [name for name in tables if meaning_of_split(name) in ("", meaning)]
    return bool(tables)


def _are_in(
    folder: SourcePath, files_by_split: Mapping[str, Sequence[SourcePath]]
) -> bool:
    """Whether files lie in a folder itself."""
    return any(
        path.parent == folder and not path.is_dir()
        for paths in files_by_split.values()
        for path in paths
    )


def tar_names(names: Names) -> list[str]:
    """The names of the tars in a folder."""
    return [name for name in names.files if is_tar(name)]


def manifest_names(names: Names) -> list[str]:
    """The names of the CSV and JSONL files in a folder."""
    return [name for name in names.files if format_of(name) in MANIFESTS]


def metadata_by_split(root: SourcePath, names: Names) -> dict[str, list[SourcePath]]:
    """Folder -> the files with metadata in it, if it has some; "" is the root itself."""
    by_split: dict[str, list[SourcePath]] = {}
    files_of_root = metadata_in(root)
    if files_of_root:
        by_split[""] = files_of_root
    for name in names.folders:
        files = metadata_in(root / name)
        if files:
            by_split[name] = files
    return by_split


def metadata_in(folder: SourcePath) -> list[SourcePath]:
    """The files of ImageFolder's metadata in a folder."""
    return [folder / name for name in METADATA if (folder / name).is_file()]


def _has_parquet(root: SourcePath, names: Names) -> bool:
    """Whether a folder has files of Parquet, or its folder data, as Hugging Face exports them."""
    files = list(names.files)
    if "data" in names.folders:
        files += names_in(root / "data").files
    for name in files:
        # metadata.parquet describes images beside it, which are another format.
        if name.lower().endswith(".parquet") and name not in METADATA:
            return True
    return False


def _lists_images(path: SourcePath, encoding: str | None) -> bool:
    """Whether a manifest has a column that is called like the path of an image."""
    columns: Iterable[str]
    try:
        if format_of(path.name) == "jsonl":
            columns = _keys_of_first_line(path)
        else:
            columns = read_column_names(path, encoding)
    except (OSError, ValueError, RecursionError, PackError):
        return False  # it is no manifest, or nobody can read it
    return any(name.strip().lower() in IMAGE_COLUMNS for name in columns)


def _keys_of_first_line(path: SourcePath) -> list[str]:
    """The names in the first object of a JSONL file. ValueError: its first line is no JSON."""
    with open_binary(path) as file:
        row = json.loads(file.readline(_MAX_LINE_BYTES).decode("utf-8-sig"))
    if not isinstance(row, dict):
        return []
    return list(row)
