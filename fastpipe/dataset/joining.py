"""Several datasets -> the selection of all their samples, with one numbering of their classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.column_values import DerivedColumn
from fastpipe.dataset.format.joined_index import union
from fastpipe.dataset.format.parts import JoinedColumn, starts_of
from fastpipe.dataset.selection import Relabelling, Selection, unchanged_labels
from fastpipe.dataset.stored_dataset import StoredDataset
from fastpipe.errors import ConfigError, choice
from fastpipe.plan.content import ColumnReader

_LABELS = ("union", "offset", "own")


def join_selections(parts: Sequence[BaseDataset], labels: str) -> Selection:
    """All samples of several datasets; see `concat` in opening.py.

    Raises:
        ConfigError: `labels` is wrong, or a column of with_column is not in all of them.
    """
    choice("labels", labels, _LABELS)
    selections = [part._selection for part in parts]
    # (parts + 1,) the id that the first sample of each part gets, and the number of all samples.
    starts = starts_of([len(part) for part in parts])
    class_names, label_tables = _join_classes(parts, labels)

    # A part may be joined of several stored datasets itself. Its table of labels is put behind
    # theirs, so that there is one table from each stored dataset to the labels of all.
    stored: list[StoredDataset] = []
    new_labels = []
    for selection, table in zip(selections, label_tables, strict=True):
        stored += selection.stored
        for old_labels in selection.new_labels:
            # NO_LABEL is -1, and so takes the last entry of the table, which is NO_LABEL again.
            new_labels.append(table[old_labels])

    # A loader's state has the identity, so that it is not loaded for another choice of samples.
    identity: dict[str, Any] = {}
    if len(parts) > 1:
        identity["labels"] = labels
    identities = [selection.identity for selection in selections]
    if any(identities):
        identity["parts"] = identities

    return Selection(
        stored=tuple(stored),
        relabelling=Relabelling(class_names, new_labels),
        samples=_join_samples(parts),
        fold_level=max(selection.fold_level for selection in selections),
        labels=_join_labels(parts, label_tables, starts),
        added=_join_added_columns(parts, starts),
        identity=identity,
    )


def _join_classes(
    parts: Sequence[BaseDataset], labels: str
) -> tuple[list[str], list[Int64s]]:
    """The names of all classes; and for each dataset the new labels: see Relabelling."""
    class_names = [part.classes for part in parts]
    if labels == "own":
        # A label has another meaning in each dataset, so the classes have numbers as names.
        most = max(len(names) for names in class_names)
        numbers = [str(label) for label in range(most)]
        return numbers, [unchanged_labels(names) for names in class_names]
    if labels == "offset":
        numbered_names = []
        for number, names in enumerate(class_names):
            numbered_names.append([f"{number}/{name}" for name in names])
        class_names = numbered_names
    return union(class_names)


def _join_samples(parts: Sequence[BaseDataset]) -> Int64s | None:
    """The numbers of the samples in the joined index; None: all, in its order."""
    if all(part._selection.samples is None for part in parts):
        return None
    # The joined index has the samples of the parts' indexes, chosen or not, behind one another.
    # `first_numbers` has one more, the number of all samples.
    first_numbers = starts_of([len(part.index) for part in parts])
    samples = []
    for part, first_number in zip(parts, first_numbers, strict=False):
        ids = np.arange(len(part), dtype=np.int64)
        numbers_in_part = part.content.numbers(ids)
        samples.append(numbers_in_part + first_number)
    return np.concatenate(samples)


def _join_labels(
    parts: Sequence[BaseDataset],
    label_tables: Sequence[Int64s],
    starts: Int64s,
) -> ColumnReader | None:
    """The labels of with_labels; None if no dataset has such labels."""
    if all(part._selection.labels is None for part in parts):
        return None
    # Datasets without such labels have those of their index. All are renumbered by the tables.
    columns = []
    for part, table in zip(parts, label_tables, strict=True):
        old_labels = part.open_column("label")
        columns.append(DerivedColumn(old_labels, table.__getitem__))
    return _join_columns("label", columns, starts)


def _join_added_columns(
    parts: Sequence[BaseDataset], starts: Int64s
) -> dict[str, ColumnReader]:
    """The columns of with_column that any of the datasets has."""
    names: dict[str, None] = {}  # in the order of the datasets, each once
    for part in parts:
        names.update(dict.fromkeys(part._selection.added))
    joined = {}
    for name in names:
        columns = []
        for part in parts:
            if name not in part.columns:
                raise ConfigError(
                    f"{part.path} has no column {name!r}; pass with_column({name!r}, ...) to it, "
                    "too"
                )
            columns.append(part.open_column(name))
        joined[name] = _join_columns(name, columns, starts)
    return joined


def _join_columns(
    name: str, columns: Sequence[ColumnReader], starts: Int64s
) -> ColumnReader:
    """One column of several, one behind the other; `starts` has the first id of each."""
    # Reading no rows shows the kind and shape of the values.
    no_ids = np.empty(0, dtype=np.int64)
    no_rows = [column.take(no_ids) for column in columns]
    kinds = {(type(values), getattr(values, "shape", ())) for values in no_rows}
    if len(kinds) > 1:
        descriptions = ", ".join(map(_describe_values, no_rows))
        raise ConfigError(
            f"the column {name!r} needs values of one kind and shape in all datasets, got "
            f"{descriptions}; pass such values to with_column"
        )
    if isinstance(no_rows[0], np.ndarray):
        # A batch may have rows of several datasets, and an array has one dtype.
        common_dtype = np.result_type(*no_rows)
        to_dtype = partial(np.asarray, dtype=common_dtype)
        columns = [DerivedColumn(column, to_dtype) for column in columns]
    return JoinedColumn(starts, columns)


def _describe_values(values: object) -> str:
    if isinstance(values, np.ndarray):
        return f"{values.dtype} of {values.shape[1:]}"
    return "texts"
