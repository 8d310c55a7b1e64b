"""Parquet files, or a folder of `datasets.save_to_disk` -> the files of each split."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from fastpipe.errors import PackError, readable
from fastpipe.sources.files import SourcePath, files_below, names_in, open_unchanged
from fastpipe.sources.folders.splits import split_in_path
from fastpipe.sources.options import pick_split

# `Dataset.save_to_disk` writes the first into its folder. `DatasetDict.save_to_disk` writes the
# second, and a folder for each split.
_STATE_FILE = "state.json"
_SPLITS_FILE = "dataset_dict.json"
# train-00000-of-00002.parquet, also with a hash behind it.
_PART = re.compile(
    r"(?P<split>.+?)-\d{3,}-of-\d{3,}(-[0-9a-f]+)?\.parquet", re.IGNORECASE
)
_SPLITS = frozenset(
    (
        "train",
        "training",
        "test",
        "testing",
        "val",
        "valid",
        "validation",
        "dev",
        "eval",
        "evaluation",
    )
)


class TablePaths(NamedTuple):
    """The files of a split."""

    # "parquet" or "arrow".
    kind: str
    folder: SourcePath
    # The files, relative to the folder, with "/".
    names: list[str]
    # Files in the folder that are not tables.
    stray: list[str]


def find_tables(root: SourcePath, split: str | None) -> TablePaths:
    """Finds the files of a split of a source; None stands for its only split.

    Raises:
        PackError: there is no such split, or there are several and none is named.
    """
    if not root.is_dir():
        # Nothing is chosen here: it raises the error if the file is of another split.
        pick_split(split, [split_of(root.name)], root)
        kind = "parquet"
        if root.suffix.lower() == ".arrow":
            kind = "arrow"
        return TablePaths(kind, root.parent, [root.name], [])

    splits = _saved_splits(root)
    if splits is not None:
        folder = pick_split(split, splits, root)
        return TablePaths("arrow", root, _saved_files(root, f"{folder}/"), [])
    if (root / _STATE_FILE).is_file():
        saved_split = _read_json(root / _STATE_FILE).get("_split")
        pick_split(split, [str(saved_split or "")], root)
        return TablePaths("arrow", root, _saved_files(root, ""), [])

    by_split, stray = _group_by_split(files_below(root, hidden=False))
    if not by_split:
        raise PackError(f"{readable(str(root))} holds no .parquet files")
    chosen = pick_split(split, by_split, root)
    return TablePaths("parquet", root, by_split[chosen], stray)


def find_other_splits(root: SourcePath, packed: str) -> dict[str, TablePaths]:
    """Finds the other splits of a source, or those beside it where it is a file."""
    if root.is_dir():
        saved_splits = _saved_splits(root)
        if saved_splits is not None:
            return _other_saved_splits(root, saved_splits, packed)
        folder = root
        by_split, _ = _group_by_split(files_below(root, hidden=False))
    else:
        folder = root.parent
        by_split, _ = _group_by_split(names_in(folder).files)
    splits = {}
    for split, names in by_split.items():
        if split not in ("", packed):
            splits[split] = TablePaths("parquet", folder, names, [])
    return splits


def _other_saved_splits(
    root: SourcePath, saved_splits: Iterable[str], packed: str
) -> dict[str, TablePaths]:
    splits = {}
    for split in saved_splits:
        if split == packed:
            continue
        try:
            names = _saved_files(root, f"{split}/")
        except PackError:
            continue  # the folder of another split may have been removed
        splits[split] = TablePaths("arrow", root, names, [])
    return splits


def split_of(name: str) -> str:
    """The split in the name of a file, in the layouts of Hugging Face; "" if there is none."""
    part = _PART.fullmatch(name.rpartition("/")[2])
    if part is not None:
        return part["split"]
    return split_in_path(name, _SPLITS)


def _group_by_split(names: Iterable[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The Parquet files of each split, and the other files."""
    by_split: dict[str, list[str]] = {}
    stray: list[str] = []
    for name in sorted(names):
        if name.lower().endswith(".parquet"):
            by_split.setdefault(split_of(name), []).append(name)
        else:
            stray.append(name)
    return by_split, stray


def _saved_splits(root: SourcePath) -> list[str] | None:
    """The splits in a folder of `DatasetDict.save_to_disk`; None if it is not one."""
    if not (root / _SPLITS_FILE).is_file():
        return None
    splits = _read_json(root / _SPLITS_FILE).get("splits")
    if not isinstance(splits, list):
        return []
    # A split is a folder. A name with "/" or ".." would lead out of the source.
    return [split for split in splits if _is_file_name(split)]


def _saved_files(root: SourcePath, prefix: str) -> list[str]:
    """The files that state.json names in a folder, with `prefix` before each."""
    state_file = root / prefix / _STATE_FILE
    files: Any = _read_json(state_file).get("_data_files")
    names: list[Any] = []
    if isinstance(files, list):
        for entry in files:
            is_file = isinstance(entry, dict)
            names.append(entry.get("filename") if is_file else None)
    are_names = bool(names) and all(map(_is_file_name, names))
    # A file that stands twice would give each of its rows twice.
    if not are_names or len(set(names)) < len(names):
        raise PackError(
            f"{readable(str(state_file))}: expected a list of files in the same folder, got "
            f"{str(files)[:100]!r}"
        )
    return [prefix + name for name in names]


def _is_file_name(name: object) -> bool:
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return "/" not in name and "\0" not in name


def _read_json(file: SourcePath) -> dict[str, Any]:
    try:
        with open_unchanged(file) as opened:
            content = json.load(opened)
        if not isinstance(content, dict):
            raise ValueError(f"got {type(content).__name__}")
    except (ValueError, RecursionError) as problem:
        raise PackError(
            f"{readable(str(file))}: expected an object in JSON, as save_to_disk writes it "
            f"({problem})"
        ) from problem
    return content
