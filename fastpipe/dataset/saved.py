"""The columns that a user has added to a dataset <-> files in DST/columns (docs/explanation/format.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.column_values import as_array, spans
from fastpipe.dataset.format.description import file_hash, read_info
from fastpipe.dataset.format.folder import check_local
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.packed_index import PackedIndex
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.pages import name_page
from fastpipe.plan.content import ColumnReader
from fastpipe.store.saved_columns import (
    LABEL,
    SavedColumns,
    list_place,
    read_saved,
    unreadable_list,
    write_column,
    write_list,
)
from fastpipe.store.store import Folder
from fastpipe.warnings_once import warn_once

# Larger columns stay in files.
_MOST_BYTES_IN_MEMORY = 64 << 20


def with_saved(data: Any) -> Any:
    """The Dataset with the columns that are saved beside it.

    Raises:
        DatasetError: they are damaged, or do not fit.
    """
    index = data.index
    if not index.packed:
        return data
    saved = read_saved(index)
    if saved is None:
        return data
    _warn_of_left_behind(index, saved)
    # A column may hold anything, so every error of reading it becomes one that says what to do.
    try:
        for name, saved_file in saved.files.items():
            file = saved_file.fetched()
            values = file if isinstance(index.path, Path) else _read_small(file)
            if name == LABEL:
                data = data._add_labels(values, saved.classes)
            else:
                data = data._add_column(name, values)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        DatasetError,
    ) as problem:
        raise unreadable_list(index, problem) from problem
    return data


def _read_small(file: Path) -> Any:
    """The values of a file of the cache, so that another machine can open a pickle of the dataset;
    of a large one its path.
    """
    if file.stat().st_size > _MOST_BYTES_IN_MEMORY:
        return file
    return np.load(file, allow_pickle=False)


def _warn_of_left_behind(index: PackedIndex, saved: SavedColumns) -> None:
    """Says once that `fastpipe add` made this version without columns of the one before."""
    if not saved.left_behind:
        return
    names = ", ".join(saved.left_behind)
    version = max(saved.left_behind.values())
    file = list_place(index)
    warn_once(
        f"columns left behind {file}",
        f"{index.path}: save_columns wrote {names} for version {version}; version {index.version} "
        "has samples without a value, and is opened without. To carry the values over: "
        f'{name_page("growing")}, section "Saved labels and columns". If they '
        f'are not needed any more, remove "left_behind" from {file}',
    )


def check_saved(index: Index) -> None:
    """Raises DatasetError if a column beside a dataset has changed since it was saved."""
    if not isinstance(index, PackedIndex) or not isinstance(index.path, Path):
        return  # what is fetched is checked when it comes
    saved = read_saved(index)
    if saved is None:
        return
    for name, saved_file in saved.files.items():
        path = saved_file.fetched()
        digest = file_hash(path)
        if digest != saved_file.hash_text:
            raise DatasetError(
                f"{path}: the column {name!r} has changed: expected XXH3-64 {saved_file.hash_text}, "
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
        columns[LABEL] = data.open_column(LABEL)
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

    store = Folder(destination, None)
    entries = {}
    for name, column in columns.items():
        blocks = []
        for ids in spans(len(data)):
            blocks.append(as_array(column.take(ids)))
        rows = np.concatenate(blocks)
        if rows.dtype == object:  # texts; an .npy file of objects would need pickle
            rows = rows.astype(str)
        entries[name] = write_column(store, name, rows)
    classes = data.classes if has_labels else None
    write_list(store, fingerprint, entries, classes)
