"""A user's classes or labels -> the classes and labels that a dataset gets by them, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.by_key import values_by_key
from fastpipe.dataset.choosing import check_index, to_array
from fastpipe.dataset.column_values import DerivedColumn, UserColumn, spans
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.label_names import number_names
from fastpipe.dataset.selection import Relabelling, Selection
from fastpipe.dataset.several_labels import refuse_lists
from fastpipe.errors import ConfigError, format_count, nearest_name, suggest_class

if TYPE_CHECKING:  # most programs give no classes
    from fastpipe.sources.class_names import ClassNames

# A loader's state has the names of classes, or a hash if there are more than these.
_CLASSES_IN_STATE = 16

# Method -> what to do about samples that a user's {key: value} lacks.
_MISSING_ADVICE = {
    "with_labels": "For samples without a label: {key: labels.get(key, -1) for key in data['key']}; "
    "or leave them out before: data.select([key in labels for key in data['key']])",
    "with_column": "Give each a value, or leave these samples out before: "
    "data.select([key in values for key in data['key']])",
}


def parse_user_column(data: BaseDataset, method: str, given: Any) -> UserColumn:
    """A user's values of all samples: an array, a list, a tensor, {key: value}, or the path of an
    .npy file.

    Args:
        data: the samples.
        method: begins the message of an error.
        given: the values.

    Raises:
        ConfigError: they are not numbers or texts, or not one row for each sample.
    """
    if isinstance(given, (str, os.PathLike)):
        column = UserColumn(Path(given).absolute())
    else:
        if isinstance(given, torch.Tensor):
            given = given.detach().cpu()
        elif isinstance(given, Mapping):
            given = values_by_key(data, method, given, _MISSING_ADVICE[method])
        check_index(data, method, given)
        refuse_lists(method, given)
        expected = f"{method}: expected rows of one shape"
        # A copy, since the user may change the array later.
        array = to_array(given, expected).copy()
        # pandas keeps texts in arrays of objects.
        if array.dtype == object:
            values = array.ravel().tolist()
            if all(isinstance(value, str) for value in values):
                array = array.astype(str)
        column = UserColumn(array)
    rows = column.rows
    has_row_each = rows.ndim > 0 and len(rows) == len(data)
    if rows.dtype.kind not in "biufU" or not has_row_each:
        raise ConfigError(
            f"{method}: expected {len(data):,} rows of numbers or texts, one for each sample, got "
            f"{rows.dtype} of shape {rows.shape}"
        )
    return column


def choose_classes(data: BaseDataset, classes: object) -> tuple[Int64s, list[int]]:
    """The samples of some classes, for `Dataset.only`.

    Returns:
        Their ids, in the order of the dataset, and the new label of each of its classes: the
        position in `classes`, or NO_LABEL.

    Raises:
        ConfigError: `classes` are not names of its classes, each once.
    """
    if not isinstance(classes, (list, tuple)) or not classes:
        raise ConfigError(
            f"only: expected a list of names of classes, for example {data.classes[:2]!r}, got "
            f"{classes!r}{_only_hint(data, classes)}"
        )
    known = data.class_to_idx
    for name in classes:
        name_of_label = _name_of_label(data, name)
        if name_of_label is not None:
            raise ConfigError(
                f"only: expected names of classes, got the number {name}; write "
                f"data.only([{name_of_label!r}]), or data.only([data.classes[{name}]])"
            )
        if not isinstance(name, str) or name not in known:
            hint = suggest_class(name, data.classes)
            raise ConfigError(f"only: {data.path} has no class {name!r}{hint}")
        if classes.count(name) > 1:
            raise ConfigError(f"only: expected each name once, got {name!r} again")

    # (classes + 1,) the new label of each class, or NO_LABEL if it is not chosen. The last one is
    # that of samples without a label: NO_LABEL is -1.
    label_count = len(known) + 1
    new_labels = np.full(label_count, NO_LABEL, dtype=np.int64)
    chosen_labels = [known[name] for name in classes]
    new_labels[chosen_labels] = np.arange(len(classes))
    labels = data.open_column("label")
    ids = []
    for span in spans(len(data)):
        old_labels = labels.take(span)
        new_labels_of_span = new_labels[old_labels]
        is_chosen = new_labels_of_span != NO_LABEL
        ids.append(span[is_chosen])
    return np.concatenate(ids), new_labels[:-1].tolist()


def _only_hint(data: BaseDataset, classes: object) -> str:
    """The end of a message about one class that is not in a list: the list to write."""
    if isinstance(classes, str):
        name = nearest_name(classes, data.classes)
    else:
        name = _name_of_label(data, classes)
    return "" if name is None else f"; write data.only([{name!r}])"


def _name_of_label(data: BaseDataset, value: object) -> str | None:
    """The name of the class with this number; None: no class has it, or it is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return None
    label = int(value)
    if 0 <= label < len(data.classes):
        return data.classes[label]
    return None


def parse_class_list(data: BaseDataset, classes: object) -> tuple[list[str], list[int]]:
    """The classes of `Dataset.with_classes`.

    Returns:
        All names, and the new label of each class of the dataset.

    Raises:
        ConfigError: they are not names, or a class that has samples is not among them.
    """
    # Most programs give no classes.
    from fastpipe.sources.classes_from import check_names

    if not isinstance(classes, (list, tuple)):
        raise ConfigError(
            f"with_classes: expected a list of the names of all classes, got {classes!r:.100}"
        )
    names = list(check_names(classes, "with_classes"))
    if not data.classes:
        raise ConfigError(
            f"with_classes: {data.path} has no classes; with_labels(labels, classes=) gives it some"
        )
    label_by_name = {name: label for label, name in enumerate(names)}
    new_labels = [label_by_name.get(name, NO_LABEL) for name in data.classes]
    # Counting the samples of each class may take long, so it is done only where a class is missing.
    if NO_LABEL not in new_labels:
        return names, new_labels
    classes_now = zip(data.classes, data.class_counts, new_labels, strict=True)
    for name, count, label in classes_now:
        if count and label == NO_LABEL:
            verb = "is" if count == 1 else "are"
            raise ConfigError(
                f"with_classes: {format_count(count, 'sample')} of {data.path} {verb} of the class "
                f"{name!r}, which is not among the {len(names):,} names. "
                f"{_missing_class_advice(data, name, names)}"
            )
    return names, new_labels


def _missing_class_advice(data: BaseDataset, name: str, names: Sequence[str]) -> str:
    """What to do about a class of the dataset that a user's list of classes lacks."""
    # A name that no sample has and that is like this one is the user's slip.
    unknown = [other for other in names if other not in data.class_to_idx]
    near = nearest_name(name, unknown)
    if near is not None:
        return f"The list has {near!r}, which {data.path} does not have; did you mean {name!r}?"
    return "Add it, or leave its samples out: data.only(classes)"


def class_list_by_number(
    data: BaseDataset, given: ClassNames
) -> tuple[list[str], list[int]] | None:
    """The classes of `open(classes_from=)`, if they only name the numbers that labels are.

    Returns:
        All names, and the new label of each class of the dataset; None: its classes have names
        that are to be found among those of `given`.
    """
    # Most programs give no classes.
    from fastpipe.sources.class_names import are_positions

    # The classes that samples have: a folder of numbers may have gaps.
    used = []
    for name, count in zip(data.classes, data.class_counts, strict=True):
        if count:
            used.append(name)
    names = list(given.labels)
    if not are_positions(data.classes, used, given.labels):
        return None
    # Labels stay as they are. A class behind the last name has no samples.
    labels = np.arange(len(data.classes))
    new_labels = np.where(labels < len(names), labels, NO_LABEL)
    return names, new_labels.tolist()


def check_field_classes(data: BaseDataset, given: ClassNames) -> None:
    """Raises ConfigError if a field has other classes than `open(classes_from=)` gives it."""
    for name, names in given.fields:
        field = data.index.fields.get(name)
        if field is not None and field.names and field.names != names:
            raise ConfigError(
                f"classes_from: the classes of the field {name!r} have other numbers in "
                f"{data.path}; only labels can be renumbered here. Pack its source again with "
                "classes_from"
            )


def with_new_classes(
    selection: Selection, classes: Sequence[str], new_labels: Sequence[int]
) -> Selection:
    """The same samples with other classes.

    Args:
        selection: the samples.
        classes: all names.
        new_labels: of each class that there is now.
    """
    names = list(classes)
    # (classes + 1,) old label -> new one. NO_LABEL is -1 and so takes the last entry.
    table = np.array([*new_labels, NO_LABEL], dtype=np.int64)
    # The tables of the stored datasets may have renumbered their labels before; this one is put
    # behind them, and behind the labels of with_labels.
    tables = [table[old_labels] for old_labels in selection.new_labels]
    labels = selection.labels
    if labels is not None:
        labels = DerivedColumn(labels, table.__getitem__)
    classes_in_state: list[str] | str = names
    if len(names) > _CLASSES_IN_STATE:
        classes_in_state = xxhash.xxh3_64_hexdigest(repr(names).encode())
    return replace(
        selection,
        relabelling=Relabelling(names, tables),
        labels=labels,
        identity={**selection.identity, "classes": classes_in_state},
    )


def with_user_labels(
    data: BaseDataset, labels: Any, classes: Sequence[str] | None
) -> Selection:
    """The same samples with other labels: see Dataset.with_labels."""
    column = parse_user_column(data, "with_labels", labels)
    if isinstance(classes, Mapping):
        # Most programs give no classes.
        from fastpipe.sources.classes_from import names_by_number

        classes = names_by_number(classes, "with_labels: classes")
    if classes is not None:
        distinct_names = set(map(str, classes))
        has_twins = len(distinct_names) < len(classes)
        # A text is a sequence of names, too: of its letters.
        if isinstance(classes, (str, set, frozenset)) or has_twins:
            raise ConfigError(
                f"with_labels: expected names of classes, each once, got {classes!r}"
            )
    if column.rows.dtype.kind == "U":
        numbers, classes = number_names(column.rows.tolist(), classes)
        column = UserColumn(numbers)
    if classes is None:
        names = data.classes
    else:
        names = [str(name) for name in classes]
    _check_labels(column, names)

    selection = data._selection
    label_column = DerivedColumn(column, partial(np.asarray, dtype=np.int64))
    # A loader's state has a hash of all labels, so that it is not loaded for others.
    digest = xxhash.xxh3_64()
    for ids in spans(len(data)):
        digest.update(label_column.take(ids).tobytes())
    # The labels of the index are not used any more, but its records are still checked: their labels
    # have to be below the number of classes.
    tables = []
    for table in selection.new_labels:
        known = np.where(table < len(names), table, NO_LABEL)
        tables.append(known)
    return replace(
        selection,
        relabelling=Relabelling(names, tables),
        labels=label_column,
        identity={**selection.identity, "with_labels": digest.hexdigest()},
    )


def _check_labels(column: UserColumn, names: Sequence[str]) -> None:
    """Raises ConfigError if labels are not numbers of these classes, or NO_LABEL."""
    rows = column.rows
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ConfigError(
            f"with_labels: expected whole numbers or names, got {rows.dtype} of shape {rows.shape}. "
            f"{_advise_labels(rows)}"
        )
    low = int(rows.min())
    high = int(rows.max())
    if low < NO_LABEL or high >= len(names):
        wrong_label = low if low < NO_LABEL else high
        if low == 1 and high == len(names):
            raise ConfigError(
                f"with_labels: the labels go from 1 to {high}, and {high} classes have the numbers 0 "
                f"to {high - 1}. If they count from 1, subtract 1"
            )
        raise ConfigError(
            f"with_labels: expected labels from -1 to {len(names) - 1}, of {len(names)} classes, "
            f"got {wrong_label}; pass classes=, the names of all classes"
        )


def _advise_labels(rows: NDArray[Any]) -> str:
    """What to pass in place of values that are no labels."""
    if rows.ndim == 2:
        sums = rows.sum(axis=1)
        if rows.dtype.kind != "U" and bool((sums == 1).all()) and rows.max() == 1:
            return "Of a row with a single 1, its place is the label: labels.argmax(axis=1)"
        return (
            "For several labels of a sample: data.with_column('labels', values), and "
            "fields=('image', 'labels')"
        )
    if rows.dtype.kind == "b":
        return "Write np.asarray(labels).astype(int), with classes=['no', 'yes']"
    if bool((rows == np.floor(rows)).all()):
        return "These are whole numbers: np.asarray(labels).astype(int)"
    return (
        "For numbers to predict (regression): data.with_column('target', values), and "
        "fields=('image', 'target')"
    )
