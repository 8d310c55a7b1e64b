"""Stored datasets and the choice of their samples -> an index, and the samples in it, for plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.joined_index import JoinedIndex
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.format.source_paths import SourcePaths
from fastpipe.dataset.stored_dataset import StoredDataset
from fastpipe.plan.content import ColumnReader, Content


class Relabelling(NamedTuple):
    """The classes that a dataset has in place of those that are stored."""

    classes: list[str]
    # For each stored dataset (classes + 1,): the new label of each of its classes. The last one is
    # that of samples without a label, as NO_LABEL, -1, indexes it.
    new_labels: list[Int64s]


def unchanged_labels(classes: Sequence[str]) -> Int64s:
    """(classes + 1,) the labels of these classes as they are, and at the end NO_LABEL."""
    labels = np.arange(len(classes), dtype=np.int64)
    return np.append(labels, NO_LABEL)


@dataclass(frozen=True, eq=False)
class Selection:
    """The state of a Dataset: its stored datasets, and the samples, labels and columns chosen.

    It never changes. Its pickle has no index: another process opens the stored datasets again.
    """

    stored: tuple[StoredDataset, ...]  # one behind the other
    # None: the classes are those of the stored dataset, of which there is one then.
    relabelling: Relabelling | None = None
    samples: Int64s | None = None  # (n,) numbers in the index; None: all, in its order
    share_starts: Int64s | None = None  # as Content.starts; None: one share
    weights: tuple[float, ...] = (1.0,)  # of the shares
    fold_level: int = 0  # how often `fold` has divided the samples
    # A label for each sample, in place of those of the index.
    labels: ColumnReader | None = None
    # Columns of `with_column`, by name.
    added: Mapping[str, ColumnReader] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)  # as Content.identity

    @property
    def new_labels(self) -> list[Int64s]:
        """For each stored dataset the labels that its classes have here: see Relabelling."""
        if self.relabelling is not None:
            return self.relabelling.new_labels
        return [unchanged_labels(stored.index.classes) for stored in self.stored]

    @cached_property
    def index(self) -> Index:
        """The description of all that is stored: shards, records, fields, counts of packing."""
        indexes = [stored.index for stored in self.stored]
        # The usual case, one dataset as it is, needs no index around its index.
        if self.relabelling is None:
            return indexes[0]
        return JoinedIndex(
            indexes, self.relabelling.new_labels, self.relabelling.classes
        )

    @cached_property
    def content(self) -> Content:
        """The chosen samples of the index."""
        starts = self.share_starts
        if starts is None:
            count = len(self.index) if self.samples is None else len(self.samples)
            starts = np.array([0, count], dtype=np.int64)
        return Content(
            self.index, self.samples, starts, self.weights, self.labels, self.identity
        )

    def open_column(self, name: str) -> ColumnReader:
        """Opens a column, by ids of samples. DatasetError: its files are missing or damaged."""
        if name in self.added:
            return self.added[name]
        return StoredColumn(self, name)

    def __getstate__(self) -> dict[str, Any]:
        # Without `index` and `content`, which cached_property keeps beside the fields.
        return {state.name: getattr(self, state.name) for state in fields(self)}


class StoredColumn:
    """A column that is stored: of the index, of a field's files, or of notes in the shards.

    Its files are opened at once, so that a missing file is an error here and not in an epoch.
    """

    def __init__(self, selection: Selection, name: str) -> None:
        self._selection = selection
        self._name = name
        self.take(np.empty(0, dtype=np.int64))

    @cached_property
    def _field_column(self) -> Any:
        """The open files of a field; None: the name is not that of a field."""
        index = self._selection.index
        if self._name in index.fields:
            return index.column(self._name)
        return None

    @cached_property
    def _source_paths(self) -> SourcePaths:
        return SourcePaths(self._selection.index)

    def take(self, ids: Int64s) -> Any:
        """The values of samples: (n, ...), a list of n, or a Ragged."""
        name = self._name
        content = self._selection.content
        index = self._selection.index
        numbers = content.numbers(ids)  # in the index
        # Fields come first: a table may have columns "width" and "source" of its own.
        if self._field_column is not None:
            return self._field_column.take(numbers)
        if name == "key":
            return self._source_paths.of(numbers, index.read(numbers))
        if name == "id":
            return ids
        if name == "source":
            return index.part_of(numbers)
        if name == "label" and content.labels is not None:
            return content.labels.take(ids)
        # The others, such as "width", are entries of the index's records.
        records = index.records_of(numbers)
        values = records[name].astype(np.int64)
        if name == "label":
            # A damaged label is reported when the sample is read.
            is_unknown = (values < 0) | (values >= len(index.classes))
            values[is_unknown] = NO_LABEL
        return values

    def __getstate__(self) -> dict[str, Any]:
        return {"_selection": self._selection, "_name": self._name}
