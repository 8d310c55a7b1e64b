"""Stored datasets, and what was chosen of them -> an index, the samples in it, and columns of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.format.fields import Field
from fastpipe.format.folder import Place, Url
from fastpipe.format.index import Index
from fastpipe.format.layout import NO_LABEL
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.format.source_paths import SourcePaths
from fastpipe.plan.content import ById, Content
from fastpipe.samples.by_id import Column, spans
from fastpipe.samples.stored import Store

_OF_RECORDS = ("label", "width", "height")
OWN = (*_OF_RECORDS, "id", "key", "source")
_NO_COLUMN = ("mask", "image")


class Data:
    """What a Dataset is made of, for all that reads its samples or makes other datasets of it.

    Args:
        stores: the stored datasets, one behind the other.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = tuple(stores)
        # Names of classes, and of each store the new labels, as MixedIndex takes them.
        self._relabelled: tuple[list[str], list[NDArray[np.int64]]] | None = None
        self._samples: NDArray[np.int64] | None = None
        self._starts: NDArray[np.int64] | None = None
        self._weights: tuple[float, ...] = (1.0,)
        self._labels: ById | None = None
        self._added: Mapping[str, ById] = {}
        self._identity: Mapping[str, Any] = {}

    @property
    def _form(self) -> object:
        """Of single samples: datasets with other ones cannot be joined."""
        return None

    def _with(self, **changes: Any) -> Self:
        made = copy(self)  # without what was found out at need, of these samples
        vars(made).update({f"_{name}": value for name, value in changes.items()})
        return made

    def __getstate__(self) -> dict[str, Any]:
        found = ("index", "content", "class_counts", "targets")
        return {name: value for name, value in vars(self).items() if name not in found}

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stored datasets."""
        return self._stores

    @property
    def _store_labels(self) -> list[NDArray[np.int64]]:
        """Of each store the labels of these samples, and behind them NO_LABEL."""
        return self._relabelled[1] if self._relabelled else [unchanged(store.index) for store in self._stores]

    @property
    def added(self) -> Mapping[str, ById]:
        """The columns of `with_column`."""
        return self._added

    @cached_property
    def index(self) -> Index:
        """The description of what is stored: shards, records of all samples, counts of packing, fields."""
        stored = [store.index for store in self._stores]
        if self._relabelled is None:
            return stored[0]
        classes, labels = self._relabelled
        index = MixedIndex(stored, labels, classes)
        if any(isinstance(each.path, Url) for each in stored):
            from fastpipe.remote.dataset import reader_of

            index.reader_of = reader_of
        return index

    @cached_property
    def content(self) -> Content:
        """Which samples of the index these are, for plans."""
        starts = self._starts
        if starts is None:
            starts = np.array([0, len(self.index) if self._samples is None else len(self._samples)], dtype=np.int64)
        return Content(self.index, self._samples, starts, self._weights, self._labels, self._identity)

    def __len__(self) -> int:
        return len(self.content)

    @property
    def path(self) -> Place:
        """The folder or URL; of several datasets, all of them."""
        return self.index.path

    @property
    def version(self) -> int:
        """Of a packed dataset, as `fastpipe log` counts them; 0: it is not packed, or several."""
        found: int = self.index.version
        return found

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it."""
        return list(self.index.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return self.index.class_to_idx

    @cached_property
    def class_counts(self) -> list[int]:
        """Samples of each class."""
        if self._samples is None and self._labels is None:
            return list(self.index.class_counts)
        counts = np.zeros(len(self.classes) + 1, dtype=np.int64)  # the last one is that of samples without a label
        for ids in spans(len(self)):
            counts += np.bincount(self.by_id("label").take(ids) % len(counts), minlength=len(counts))
        found: list[int] = counts[:-1].tolist()
        return found

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """(samples,) int64: the label of each sample, read-only. Of all samples of one packed dataset it is a view of
        the index, which is mapped into memory: nothing is copied, and the distance between its elements is 52 bytes,
        which torch does not support. `torch.from_numpy(data.targets.copy())` is a tensor.
        """
        if self._samples is None and self._labels is None and self._relabelled is None:
            found: NDArray[np.int64] = self.index.records["label"].view(np.ndarray)
        else:
            found = np.asarray(self.column("label"))
        found.flags.writeable = False
        return found

    @property
    def fields(self) -> dict[str, Field]:
        """What samples carry besides image and label, by name."""
        added = {name: Field(name, "array") for name in self._added}
        return {**self.index.fields, **added}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        numbers = [name for name, field in self.fields.items() if field.kind not in _NO_COLUMN]
        return tuple(dict.fromkeys([*OWN, *numbers]))

    def column(self, name: str) -> Column:
        """The values of a field, as a user has them.

        Raises:
            ConfigError: there is no such column.
            DatasetError: its files are missing or damaged.
        """
        if name in self.columns:
            return Column(self.by_id(name), len(self), name)
        if field := self.fields.get(name):
            raise ConfigError(
                f"{self.path}: {name!r} is no column but a picture ({field.kind}) of each sample; "
                f"data.with_fields([{name!r}]) gives samples with it"
            )
        raise ConfigError(f"{self.path} has the columns {', '.join(self.columns)}; got {name!r}{self.why_not(name)}")

    def by_id(self, name: str) -> ById:
        """What reads the values of a field of the dataset, as they are stored.

        Raises:
            DatasetError: its files are missing or damaged.
        """
        if name in self._added:
            return self._added[name]
        # Without the forms of single samples, whose open files have columns: no circle of objects.
        data = Data(self._stores)
        vars(data).update({each: value for each, value in vars(self).items() if each in vars(data)})
        data.index, data.content = self.index, self.content
        return _Stored(data, name).opened()

    def why_not(self, name: object) -> str:
        """The end of a message about a field that is not there."""
        if not self.index.packed:
            return ". It is not packed: `fastpipe pack` keeps captions and other members of tars"
        reason = getattr(self.index, "why_not", {}).get(name)
        return f", but {reason}" if reason else ""


class _Stored:
    """A field as it is stored, by id."""

    def __init__(self, data: Data, name: str) -> None:
        self._data, self._name = data, name

    @cached_property
    def _take(self) -> Callable[[NDArray[np.int64], NDArray[np.int64]], Any]:
        """(ids, numbers) -> values."""
        data, name, index = self._data, self._name, self._data.index
        if name in index.fields:  # a table may have columns "width" and "source" of its own
            column = index.column(name)
            return lambda _, numbers: column.take(numbers)
        if name == "label" and data.content.labels is not None:
            return lambda ids, _: data.content.labels.take(ids)  # type: ignore[union-attr]
        if name == "label":
            return lambda _, numbers: _known(index.records_of(numbers)["label"], len(index.classes))
        if name in _OF_RECORDS:
            return lambda _, numbers: index.records_of(numbers)[name].astype(np.int64)
        if name == "id":
            return lambda ids, _: ids
        if name == "source":
            return lambda _, numbers: index.part_of(numbers)
        paths = SourcePaths(index)
        return lambda _, numbers: paths.of(numbers, index.read(numbers))

    def opened(self) -> _Stored:
        """Itself; its files are open, so that what is missing is said at once."""
        self.take(np.empty(0, dtype=np.int64))
        return self

    def take(self, ids: NDArray[np.int64]) -> Any:
        """As the field's column gives them."""
        return self._take(ids, self._data.content.numbers(ids))

    def __getstate__(self) -> dict[str, Any]:
        return {"_data": self._data, "_name": self._name}


def _known(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Labels that there are; NO_LABEL of a damaged record, which is an error when its sample is read."""
    return np.where((labels >= 0) & (labels < classes), labels, NO_LABEL)


def unchanged(index: Index) -> NDArray[np.int64]:
    """The labels of a dataset as they are, and behind them NO_LABEL."""
    return np.append(np.arange(len(index.classes), dtype=np.int64), NO_LABEL)
