"""Stored datasets, what was chosen of them, some joined -> an index, the samples in it, and columns of these."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, choice
from fastpipe.format.columns import JoinedColumn, starts_of
from fastpipe.format.fields import Field
from fastpipe.format.folder import Place, Url, dataset_folder
from fastpipe.format.index import Index, SourcePaths, refuse_other
from fastpipe.format.layout import NO_LABEL, PICTURE
from fastpipe.format.mixed_index import MixedIndex, union
from fastpipe.plan.content import ById, Content
from fastpipe.samples.by_id import Column, Derived, spans
from fastpipe.sources.scan.opening import open_data
from fastpipe.store.remote.options import RemoteOptions, place_of

_OWN = ("label", *PICTURE, "id", "key", "source")
_LABELS = ("union", "offset", "own")

D = TypeVar("D", bound="Data")


class StoredDataset:
    """A stored dataset. Its pickle has the path, the version and the fingerprint; each process opens the files again,
    and a different dataset in its place is an error.
    """

    def __init__(
        self,
        data: object,
        remote: RemoteOptions,
        max_pixels: int,
        version: int | None,
        split: str | None = None,
        background: str | None = None,
    ) -> None:
        place = place_of(data)
        # Programs change their folder.
        self._place = place if isinstance(place, Url) else Path(os.path.abspath(dataset_folder(place)))
        self._how: dict[str, Any] = {
            "max_pixels": max_pixels,
            "remote": remote if isinstance(place, Url) else None,
            "split": split,
            "background": background,
        }
        self.index = open_data(data, version=version, **{**self._how, "remote": remote})
        self._fingerprint = self.index.fingerprint
        self._version = self.index.version or None  # the dataset may grow while it is in use

    @cached_property
    def index(self) -> Index:
        """Its description. A forked child goes on with its parent's, which is memory alone; others open theirs."""
        index = open_data(self._place, fingerprint=self._fingerprint, version=self._version, **self._how)
        refuse_other(self._place, self._fingerprint, index.fingerprint)
        return index

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "index"}


class Data:
    """What a Dataset is made of, for all that reads its samples or makes other datasets of it."""

    # Names of classes, and of each stored dataset the new labels, as MixedIndex takes them.
    _relabelled: tuple[list[str], list[NDArray[np.int64]]] | None = None
    _samples: NDArray[np.int64] | None = None
    _starts: NDArray[np.int64] | None = None
    _weights: tuple[float, ...] = (1.0,)
    _folds: int = 0  # how often `fold` has divided what these are of
    _labels: ById | None = None
    _single: object = None  # how single samples come

    def __init__(self, stored: Sequence[StoredDataset]) -> None:
        self._stored = tuple(stored)  # one behind the other
        self._added: Mapping[str, ById] = {}
        self._identity: Mapping[str, Any] = {}

    def _with(self, **changes: Any) -> Self:
        made = copy(self)  # without what was found out at need, of these samples
        vars(made).update({f"_{name}": value for name, value in changes.items()})
        return made

    def __getstate__(self) -> dict[str, Any]:
        found = ("index", "content", "class_counts", "targets", "_opened")
        return {name: value for name, value in vars(self).items() if name not in found}

    @property
    def stored(self) -> tuple[StoredDataset, ...]:
        """The stored datasets."""
        return self._stored

    @property
    def _stored_labels(self) -> list[NDArray[np.int64]]:
        """Of each stored dataset the labels of these samples, and behind them NO_LABEL."""
        return self._relabelled[1] if self._relabelled else [unchanged(each.index.classes) for each in self._stored]

    @cached_property
    def index(self) -> Index:
        """The description of what is stored: shards, records of all samples, counts of packing, fields."""
        indexes = [each.index for each in self._stored]
        if self._relabelled is None:
            return indexes[0]
        classes, labels = self._relabelled
        return MixedIndex(indexes, labels, classes)

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
        return int(self.index.version)

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
        return [int(count) for count in counts[:-1]]

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """(samples,) int64: the label of each sample, read-only. Of all samples of one packed dataset it is a view of
        the index, which is mapped into memory: nothing is copied, and the distance between its elements is 54 bytes,
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
        return {**self.index.fields, **{name: Field(name, "array") for name in self._added}}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        numbers = [name for name, field in self.fields.items() if field.kind not in ("mask", "image")]
        return tuple(dict.fromkeys([*_OWN, *numbers]))

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
        """What reads the values of a field, as they are stored; DatasetError: its files are missing or damaged."""
        if name in self._added:
            return self._added[name]
        data = self._with()  # without the open files of single samples, which have columns: no circle of objects
        data.index, data.content = self.index, self.content
        return _Stored(data, name)

    def why_not(self, name: object) -> str:
        """The end of a message about a field that is not there."""
        if not self.index.packed:
            return ". It is not packed: `fastpipe pack` keeps captions and other members of tars"
        reason = self.index.why_not.get(str(name))
        return f", but {reason}" if reason else ""


class _Stored:
    """A field as it is stored, by id; its files are open, so that what is missing is said at once."""

    def __init__(self, data: Data, name: str) -> None:
        self._data, self._name = data, name
        self.take(np.empty(0, dtype=np.int64))

    @cached_property
    def _files(self) -> Any:
        name, index = self._name, self._data.index
        if name in index.fields:  # a table may have columns "width" and "source" of its own
            return index.column(name)
        return SourcePaths(index) if name == "key" else None

    def take(self, ids: NDArray[np.int64]) -> Any:
        """As the field's column gives them."""
        name, content, index = self._name, self._data.content, self._data.index
        numbers = content.numbers(ids)
        if name == "key":
            return self._files.of(numbers, index.read(numbers))
        if self._files is not None:
            return self._files.take(numbers)
        if name == "id":
            return ids
        if name == "source":
            return index.part_of(numbers)
        if name == "label" and content.labels is not None:
            return content.labels.take(ids)
        found = index.records_of(numbers)[name].astype(np.int64)
        if name == "label":  # a damaged record is an error when its sample is read
            found[(found < 0) | (found >= len(index.classes))] = NO_LABEL
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"_data": self._data, "_name": self._name}


def unchanged(classes: Sequence[str]) -> NDArray[np.int64]:
    """The labels of these classes as they are, and behind them NO_LABEL."""
    return np.append(np.arange(len(classes), dtype=np.int64), NO_LABEL)


def joined(parts: Sequence[D], mode: str) -> D:
    """See `concat` in opening.py."""
    choice("labels", mode, _LABELS)
    if any(part._single != parts[0]._single for part in parts):
        raise ConfigError(
            "the datasets have other transforms, crops, pixels or fields of single samples; leave these out, and call "
            "with_transform, cropped, with_pixels and with_fields on the dataset of all"
        )
    names, new = _classes_of(parts, mode)
    relabelled = [labels[old] for part, labels in zip(parts, new, strict=True) for old in part._stored_labels]
    starts = starts_of([len(part) for part in parts])
    by_id = None
    if any(part._labels is not None for part in parts):
        each = zip(parts, new, strict=True)
        by_id = _behind("label", [Derived(part.by_id("label"), labels.__getitem__) for part, labels in each], starts)
    added: dict[str, ById] = {}
    for name in dict.fromkeys(name for part in parts for name in part._added):
        for part in parts:
            if name not in part.columns:
                raise ConfigError(f"{part.path} has no column {name!r}; pass with_column({name!r}, ...) to it, too")
        added[name] = _behind(name, [part.by_id(name) for part in parts], starts)
    samples = None
    if any(part._samples is not None for part in parts):
        numbers = [part.content.numbers(np.arange(len(part), dtype=np.int64)) for part in parts]
        firsts = starts_of([len(part.index) for part in parts])
        samples = np.concatenate([each + first for each, first in zip(numbers, firsts, strict=False)])
    identities = [part._identity for part in parts]
    identity: dict[str, Any] = {"labels": mode} if len(parts) > 1 else {}
    if any(identities):
        identity["parts"] = identities
    return parts[0]._with(
        stored=tuple(each for part in parts for each in part._stored),
        relabelled=(names, relabelled),
        samples=samples,
        starts=None,
        weights=(1.0,),
        folds=max(part._folds for part in parts),
        labels=by_id,
        added=added,
        identity=identity,
    )


def _behind(name: str, columns: Sequence[ById], starts: NDArray[np.int64]) -> ById:
    """The values of some datasets, one behind the other; `starts` has the first id of each."""
    nothing = [column.take(np.empty(0, dtype=np.int64)) for column in columns]
    kinds = {(type(each), getattr(each, "shape", ())) for each in nothing}
    if len(kinds) > 1:
        found = [f"{each.dtype} of {each.shape[1:]}" if isinstance(each, np.ndarray) else "texts" for each in nothing]
        raise ConfigError(
            f"the column {name!r} needs values of one kind and shape in all datasets, got {', '.join(found)}; pass "
            "such values to with_column"
        )
    if isinstance(nothing[0], np.ndarray):
        dtype = np.result_type(*nothing)
        columns = [Derived(column, partial(np.asarray, dtype=dtype)) for column in columns]
    return JoinedColumn(starts, columns)


def _classes_of(parts: Sequence[Data], mode: str) -> tuple[list[str], list[NDArray[np.int64]]]:
    """The names of all classes; for each dataset the new labels of its own, and behind them that of NO_LABEL."""
    given = [part.classes for part in parts]
    if mode == "offset":
        given = [[f"{number}/{name}" for name in each] for number, each in enumerate(given)]
    elif mode == "own":
        longest = max(map(len, given))
        return [str(label) for label in range(longest)], [unchanged(each) for each in given]
    return union(given)
