"""The columns that a user has added to a dataset <-> files in DST/columns (docs/explanation/format.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.column_values import as_array, spans
from fastpipe.dataset.format.description import file_hash, read_info
from fastpipe.dataset.format.folder import check_local
from fastpipe.dataset.format.index import Index
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.plan.content import ColumnReader
from fastpipe.store.store import Folder

_FOLDER = "columns"


def _list_name(fingerprint: str) -> str:
    """The file that lists a version's columns: another version has other samples."""
    return f"{_FOLDER}/{fingerprint}.json"


def with_saved(data: Any) -> Any:
    """The Dataset with the columns that are saved beside it.

    Raises:
        DatasetError: they are damaged, or do not fit.
    """
    index = data.index
    list_file = index.folder / _list_name(index.fingerprint)
    if not index.packed or not list_file.exists():
        return data
    # The list may hold anything, so every error of reading it becomes one that says what to do.
    try:
        saved: dict[str, Any] = json.loads(list_file.read_bytes())
        for name, entry in saved["columns"].items():
            # The file's name alone: a list must not lead to another folder.
            file_name = Path(entry["file"]).name
            path = index.folder / _FOLDER / file_name
            if name == "label":
                data = data.with_labels(path, classes=saved["classes"])
            else:
                data = data.with_column(name, path)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        DatasetError,
    ) as problem:
        raise DatasetError(
            f"{list_file} lists columns that cannot be read ({problem}); save them again with "
            "save_columns, or remove that file"
        ) from problem
    return data


def check_saved(index: Index) -> None:
    """Raises DatasetError if a column beside a dataset has changed since it was saved."""
    file = index.folder / _list_name(index.fingerprint)
    if not index.packed or not file.exists():
        return
    for name, entry in json.loads(file.read_bytes())["columns"].items():
        path = index.folder / _FOLDER / entry["file"]
        digest = file_hash(path)
        if digest != entry["xxh3_64"]:
            raise DatasetError(
                f"{path}: the column {name!r} has changed: expected XXH3-64 {entry['xxh3_64']}, "
                f"got {digest}. Save it again with save_columns"
            )


def save(data: BaseDataset, folder_of_dataset: str | os.PathLike[str]) -> None:
    """See Dataset.save_columns."""
    check_local("save_columns", folder_of_dataset, "folder")
    if not isinstance(folder_of_dataset, (str, os.PathLike)):
        raise ConfigError(
            f"save_columns: expected the folder of the dataset, got {folder_of_dataset!r}; pass "
            f"{str(data.path)!r}"
        )
    destination = Path(folder_of_dataset)
    selection = data._selection
    columns: dict[str, ColumnReader] = dict(selection.added)
    has_labels = selection.labels is not None or selection.relabelling is not None
    if has_labels:
        columns["label"] = data.open_column("label")
    if not columns:
        raise ConfigError(
            "save_columns: this dataset has no columns of with_column, and no labels of "
            "with_labels or with_classes"
        )
    is_one_whole_dataset = selection.samples is None and len(data.stored) == 1
    if not is_one_whole_dataset or not data.index.packed:
        raise ConfigError(
            f"save_columns: expected columns of all samples of one packed dataset, got {data!r}; "
            "add them to fastpipe.open(DATA) itself, and choose samples afterwards"
        )
    fingerprint = read_info(destination, version=data.version)["fingerprint"]
    if fingerprint != data.index.fingerprint:
        raise ConfigError(
            f"save_columns: {destination} holds another dataset: expected fingerprint "
            f"{data.index.fingerprint}, got {fingerprint}"
        )

    # Each column is written whole or not at all, and the list that names them comes last. So a
    # reader, or a program that is killed, sees the old columns or the new ones.
    store = Folder(destination, None)
    folder = destination / _FOLDER
    entries = {}
    for name, column in columns.items():
        blocks = []
        for ids in spans(len(data)):
            blocks.append(as_array(column.take(ids)))
        rows = np.concatenate(blocks)
        if rows.dtype == object:  # texts; an .npy file of objects would need pickle
            rows = rows.astype(str)
        with store.open_atomic(f"{_FOLDER}/{name}.npy") as file:
            np.lib.format.write_array(file, rows, allow_pickle=False)
        # With its hash in the name, a file does not take the place of one that an older list names.
        digest = file_hash(folder / f"{name}.npy")
        file_name = f"{name}-{digest}.npy"
        (folder / f"{name}.npy").rename(folder / file_name)
        entries[name] = {"file": file_name, "xxh3_64": digest}
    classes = data.classes if has_labels else None
    text = json.dumps({"columns": entries, "classes": classes}, indent=1)
    with store.open_atomic(_list_name(fingerprint)) as file:
        file.write(text.encode())
