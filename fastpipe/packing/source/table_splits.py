"""SRC with tables -> the files of one split: Parquet as Hugging Face names it, or what `save_to_disk` wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastpipe.errors import PackError, readable
from fastpipe.packing.source.files import SourcePath, files_below

PARQUET, ARROW = "parquet", "arrow"
_STATE, _SPLITS = "state.json", "dataset_dict.json"
# train-00000-of-00002.parquet, also with a hash behind it.
_PART = re.compile(r"(?P<split>.+?)-\d{3,}-of-\d{3,}(-[0-9a-f]+)?\.parquet", re.IGNORECASE)
_USUAL = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval", "evaluation"}


@dataclass(frozen=True)
class Tables:
    """The files of a source.

    Attributes:
        root: the folder that their names are relative to.
        kind: PARQUET or ARROW.
        names: of the files, with "/".
        stray: names of files that are no tables.
    """

    root: SourcePath
    kind: str
    names: list[str]
    stray: list[str]


def find_tables(root: SourcePath, split: str | None) -> Tables:
    """Finds the files to pack.

    Args:
        root: a Parquet file, a folder of them, or one that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote.
        split: that is asked for; None: there is only one.

    Raises:
        PackError: there is nothing of that kind; or several splits and none asked for, or not the one asked for.
    """
    if not root.is_dir():
        name = root.name
        _choose({_split_of(name): [name]}, split, root)
        return Tables(root.parent, ARROW if root.suffix.lower() == ".arrow" else PARQUET, [name], [])
    if (root / _SPLITS).is_file():
        return _saved_splits(root, split)
    if (root / _STATE).is_file():
        _choose({_text(_json(root / _STATE).get("_split")): []}, split, root)
        return Tables(root, ARROW, _saved(root, ""), [])
    names = sorted(files_below(root))
    tables = [name for name in names if name.lower().endswith(".parquet")]
    if not tables:
        raise PackError(f"{readable(str(root))} holds no .parquet files")
    splits: dict[str | None, list[str]] = {}
    for name in tables:
        splits.setdefault(_split_of(name), []).append(name)
    return Tables(root, PARQUET, _choose(splits, split, root), [name for name in names if name not in set(tables)])


def _split_of(name: str) -> str | None:
    """The split that the name of a file says, in the layouts of Hugging Face; None: it says nothing."""
    if part := _PART.fullmatch(name.rpartition("/")[2]):
        return part["split"]
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word in _USUAL]
    return words[-1] if words else None


def _choose(splits: Mapping[str | None, list[str]], split: str | None, root: SourcePath) -> list[str]:
    """The files of the split that is asked for, or of the only one."""
    named = ", ".join(sorted(name for name in splits if name is not None)) or "none"
    if split is not None:
        if split not in splits:
            raise PackError(f"{readable(str(root))}: --split {split}: no such split; the names of files say: {named}")
        return splits[split]
    if len(splits) > 1:
        unnamed = splits.get(None)
        without = f", and {readable(unnamed[0])} says none" if unnamed else ""
        raise PackError(
            f"{readable(str(root))} holds several splits: the names of files say {named}{without}. Choose one with "
            "--split, or pass one file"
        )
    return next(iter(splits.values()))


def _saved_splits(root: SourcePath, split: str | None) -> Tables:
    said = _json(root / _SPLITS).get("splits")
    names = [name for name in said if _is_name(name)] if isinstance(said, list) else []
    if not names:
        raise PackError(f"{readable(str(root / _SPLITS))}: expected a list of splits")
    (name,) = _choose({name: [name] for name in names}, split, root)
    return Tables(root, ARROW, _saved(root, f"{name}/"), [])


def _saved(root: SourcePath, prefix: str) -> list[str]:
    """The files that state.json names, with the folder before them."""
    state = root / prefix / _STATE
    listed = _json(state).get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    if not names or not all(map(_is_name, names)) or len(set(names)) != len(names):
        raise PackError(
            f"{readable(str(state))}: expected a list of files in the same folder, got {str(listed)[:100]!r}"
        )
    return [prefix + str(name) for name in names]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _json(file: SourcePath) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except OSError as problem:
        raise PackError(f"cannot read {readable(str(file))}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise PackError(f"{readable(str(file))}: expected JSON, as save_to_disk writes it ({problem})") from problem
    if not isinstance(found, dict):
        raise PackError(f"{readable(str(file))}: expected a JSON object, as save_to_disk writes it")
    return found
