"""The columns that a user has added to a dataset <-> files beside it: DST/columns (docs/format.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.description import file_hash, read_info
from fastpipe.format.index import Index
from fastpipe.samples.by_id import as_array, spans
from fastpipe.store.store import Folder

if TYPE_CHECKING:
    from fastpipe.samples.data import Data

_FOLDER = "columns"


def _list_of(fingerprint: str) -> str:
    """The name of the list of a version's columns: another version of the dataset has other samples."""
    return f"{_FOLDER}/{fingerprint}.json"


def with_saved(data: Any) -> Any:
    """The dataset with the columns that are beside it; DatasetError: they are damaged, or do not fit."""
    index = data.index
    file = index.folder / _list_of(index.fingerprint)
    if not index.packed or not file.exists():
        return data
    try:
        entries: dict[str, Any] = json.loads(file.read_bytes())
        for name, entry in entries["columns"].items():
            path = index.folder / _FOLDER / Path(entry["file"]).name  # in no other folder, whatever the list says
            if name == "label":
                data = data.with_labels(path, classes=entries["classes"])
            else:
                data = data.with_column(name, path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DatasetError) as problem:
        raise DatasetError(
            f"{file} does not describe columns that are there ({problem}); save them again with save_columns, or "
            "remove that file"
        ) from problem
    return data


def check_saved(index: Index) -> None:
    """Raises DatasetError if a column beside a dataset is not the one that was saved."""
    file = index.folder / _list_of(index.fingerprint)
    if index.packed and file.exists():
        for name, entry in json.loads(file.read_bytes())["columns"].items():
            path = index.folder / _FOLDER / entry["file"]
            if (found := file_hash(path)) != entry["xxh3_64"]:
                raise DatasetError(
                    f"{path}: the column {name!r} has changed: expected XXH3-64 {entry['xxh3_64']}, got {found}. Save "
                    "it again with save_columns"
                )


def save(data: Data, destination: Path) -> None:
    """See Dataset.save_columns."""
    content, columns = data.content, dict(data._added)
    has_labels = content.labels is not None or data._relabelled is not None
    if has_labels:
        columns["label"] = data.by_id("label")
    if not columns:
        raise ConfigError(
            "save_columns: this dataset has no columns of with_column, and no labels of with_labels or with_classes"
        )
    if content.samples is not None or len(data.stored) > 1 or not data.index.packed:
        raise ConfigError(
            f"save_columns: expected columns of all samples of one packed dataset, got {data!r}; add them to "
            "fastpipe.open(DATA) itself, and choose samples afterwards"
        )
    there = read_info(destination, version=data.version)["fingerprint"]
    if there != data.index.fingerprint:
        raise ConfigError(
            f"save_columns: {destination} holds another dataset: expected fingerprint {data.index.fingerprint}, got "
            f"{there}"
        )
    store, entries = Folder(destination, None), {}
    for name, column in columns.items():
        rows = np.concatenate([as_array(column.take(ids)) for ids in spans(len(data))])
        rows = rows.astype(str) if rows.dtype == object else rows
        with store.whole(f"{_FOLDER}/{name}.npy") as file:
            np.lib.format.write_array(file, rows, allow_pickle=False)
        digest = file_hash(destination / _FOLDER / f"{name}.npy")
        (destination / _FOLDER / f"{name}.npy").rename(destination / _FOLDER / f"{name}-{digest}.npy")
        entries[name] = {"file": f"{name}-{digest}.npy", "xxh3_64": digest}
    classes = data.classes if has_labels else None
    with store.whole(_list_of(there)) as file:
        file.write(json.dumps({"columns": entries, "classes": classes}, indent=1).encode())
