"""A selection of samples -> the facts and columns of a dataset, for all that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.completion import PublicNames
from fastpipe.dataset.column_values import Column, spans
from fastpipe.dataset.format.fields import FILE_KINDS, Field
from fastpipe.dataset.format.folder import Place
from fastpipe.dataset.format.index import Index
from fastpipe.dataset.format.layout import PICTURE
from fastpipe.dataset.other_order import note_column_read
from fastpipe.dataset.selection import Selection
from fastpipe.dataset.stored_dataset import StoredDataset
from fastpipe.dataset.targets import Targets
from fastpipe.errors import ConfigError, did_you_mean
from fastpipe.plan.content import ColumnReader, Content

_NAMES_OF_PATHS = ("path", "paths", "filename", "file_name", "filepath")
_NAMES_OF_CLASSES = ("class", "classes", "class_name", "category", "target", "labels")
_OWN_COLUMNS = ("label", *PICTURE, "id", "key", "source")


class BaseDataset(PublicNames):
    """The part of a Dataset that tells what it has. Modules below `dataset` get datasets as this.

    A sample's id is its position in the dataset.
    """

    # Other folders of fastpipe use these.
    _NOT_PUBLIC = frozenset(
        [
            "column",
            "content",
            "fold_level",
            "index",
            "missing_name_hint",
            "open_column",
            "stored",
        ]
    )

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    @property
    def stored(self) -> tuple[StoredDataset, ...]:
        """The stored datasets."""
        return self._selection.stored

    @property
    def index(self) -> Index:
        """The description of what is stored: shards, records of all samples, fields."""
        return self._selection.index

    @property
    def content(self) -> Content:
        """Which samples of the index these are, for plans."""
        return self._selection.content

    @property
    def fold_level(self) -> int:
        """How often `fold` has divided the samples."""
        return self._selection.fold_level

    def __len__(self) -> int:
        return len(self.content)

    @property
    def path(self) -> Place:
        """The folder or URL; of several datasets, all of them.

        Example:
            >>> str(fastpipe.open("data/train").path)
            'data/train'
        """
        return self.index.path

    @property
    def version(self) -> int:
        """The version of a packed dataset, as `fastpipe log` counts them.

        0 if it is not packed, or consists of several datasets.

        Example:
            >>> fastpipe.open("data/train").version
            1
        """
        return int(self.index.version)

    @property
    def classes(self) -> list[str]:
        """Class names; a label is a position in it.

        Example:
            >>> fastpipe.open("data/train").classes
            ['cat', 'dog']
        """
        return list(self.index.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name.

        Example:
            >>> fastpipe.open("data/train").class_to_idx
            {'cat': 0, 'dog': 1}
        """
        return self.index.class_to_idx

    @cached_property
    def class_counts(self) -> list[int]:
        """Samples of each class.

        Example:
            >>> fastpipe.open("data/train").class_counts
            [12, 12]
        """
        selection = self._selection
        if selection.samples is None and selection.labels is None:
            return list(self.index.class_counts)
        # (classes + 1,) The last one counts samples without a label: NO_LABEL is -1, and the
        # remainder of -1 is the last position.
        counts = np.zeros(len(self.classes) + 1, dtype=np.int64)
        labels = self.open_column("label")
        for ids in spans(len(self)):
            positions = labels.take(ids) % len(counts)
            counts += np.bincount(positions, minlength=len(counts))
        class_counts: list[int] = counts[:-1].tolist()
        return class_counts

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """The label of each sample, (samples,) int64, read-only.

        It takes 8 bytes a sample of this process's memory. `torch.tensor(data.targets)` is a tensor
        that may be changed.

        Example:
            >>> data = fastpipe.open("data/train")
            >>> data.targets.dtype, data.targets.shape
            (dtype('int64'), (24,))
        """
        note_column_read(self.index.fingerprint)
        selection = self._selection
        is_as_stored = (
            selection.samples is None
            and selection.labels is None
            and selection.relabelling is None
        )
        labels: NDArray[np.int64]
        if is_as_stored:
            # In the index the labels lie 54 bytes apart, which torch refuses.
            labels = np.ascontiguousarray(self.index.records["label"])
        else:
            labels = np.asarray(self.column("label"))
        # The next caller gets the same array.
        labels.flags.writeable = False
        return labels.view(Targets)

    @property
    def fields(self) -> dict[str, Field]:
        """The values that samples have besides image and label, by name.

        Example:
            >>> data = fastpipe.open("data/objects")
            >>> {name: field.kind for name, field in data.fields.items()}
            {'boxes': 'boxes', 'joints': 'keypoints', 'caption': 'text'}
        """
        fields = dict(self.index.fields)
        for name in self._selection.added:  # by with_column
            fields[name] = Field(name, "column")
        return fields

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns.

        Example:
            >>> "caption" in fastpipe.open("data/objects").columns
            True
        """
        names = list(_OWN_COLUMNS)
        for name, field in self.fields.items():
            # Masks, second images and arrays lie in the shards: they come with samples, and not as
            # a column. A table may have a column "width" or "source" of its own, which hides ours.
            if name not in names and field.kind not in FILE_KINDS:
                names.append(name)
        return tuple(names)

    def column(self, name: str) -> Column:
        """The values of a field, as a user gets them.

        Raises:
            ConfigError: there is no such column.
            DatasetError: its files are missing or damaged.
        """
        if name in self.columns:
            return Column(self.open_column(name), len(self), name)
        if name in self.fields:
            kind = self.fields[name].kind
            raise ConfigError(
                f"{self.path}: {name!r} is not a column: each sample has its {kind} in a shard; "
                f"data.with_fields([{name!r}]) gives samples with it"
            )
        raise ConfigError(
            f"{self.path} has the columns {', '.join(self.columns)}; got {name!r}"
            f"{self.missing_name_hint(name, self.columns)}"
        )

    def open_column(self, name: str) -> ColumnReader:
        """Opens a column: values by ids of samples, in the form in which they are stored.

        Raises:
            DatasetError: its files are missing or damaged.
        """
        return self._selection.open_column(name)

    def missing_name_hint(self, name: object, known: Iterable[str]) -> str:
        """The end of a message about a field or column that the dataset does not have.

        It says why there is none, which name is meant, or how such values come in.
        """
        if name in _NAMES_OF_PATHS:
            return "; the source path of a sample is 'key'"
        if name in _NAMES_OF_CLASSES and self.classes:
            return (
                "; the class of a sample is 'label', a number: data.classes has the names, and "
                f"data.only({self.classes[:1]!r}) chooses the samples of a class"
            )
        near = did_you_mean(name, known)
        if not self.index.packed:
            return f". It is not packed: `fastpipe pack` keeps captions and other members of tars{near}"
        reason = self.index.unjoined_fields.get(str(name))
        if reason:
            return f", but {reason}{near}"
        if near:
            return near
        return (
            "; other values come in when you pack (--field NAME=COLUMN), or by "
            "data.with_column(name, values)"
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        # They have a value for each class or sample. Other processes compute their own.
        for cache in ("class_counts", "targets"):
            state.pop(cache, None)
        return state
