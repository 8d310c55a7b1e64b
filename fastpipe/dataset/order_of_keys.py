"""A user's labels or values of all samples -> a warning if they are in the order of sorted keys.

ImageFolder and most tables are sorted, and a packed dataset is in another order. A list has nothing
that says to which samples its values belong, so its values tell: they follow the classes of the
samples, or one class comes after the other, as in sorted folders.
"""

from __future__ import annotations

import logging

import numpy as np

from fastpipe.arrays import Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.errors import DatasetError
from fastpipe.plan.content import ColumnReader

# Datasets of so many samples have their labels compared with those that are given.
_LEAST_COMPARED = 16
_MOST_COMPARED = 1_000_000
_MOST_PAIRS = 10_000_000  # of classes before and after
_CERTAIN_SHARE = 0.85  # of the samples, whose new labels follow their old ones
_CLEAR_DIFFERENCE = 0.15
# Of the runs of equal values that a random order has: far fewer, and nearly as many.
_FEW_RUNS = 0.3
_MANY_RUNS = 0.7
_LEAST_RUNS = 8
_LOG = logging.getLogger("fastpipe")


def warn_of_labels_in_order_of_keys(data: BaseDataset, labels: ColumnReader) -> None:
    """Says if labels are in the order of the sorted keys, and not in the samples' own.

    Corrected labels and coarser classes follow the present ones for most samples.
    """
    if not _LEAST_COMPARED <= len(data) <= _MOST_COMPARED:
        return
    ids = np.arange(len(data), dtype=np.int64)
    _warn(data, "with_labels", "labels", labels.take(ids))


def warn_of_values_in_order_of_keys(data: BaseDataset, values: ColumnReader) -> None:
    """The same for values of a column that have few different ones, such as names of classes."""
    if not _LEAST_COMPARED <= len(data) <= _MOST_COMPARED:
        return
    ids = np.arange(len(data), dtype=np.int64)
    array = np.asarray(values.take(ids))
    if array.ndim != 1 or array.dtype.kind not in "iubU":
        return
    distinct, numbers = np.unique(array, return_inverse=True)
    if len(distinct) > len(array) // 4:
        return
    numbers = numbers.astype(np.int64)
    # Keys are only read where values come in long runs, since most columns follow no class.
    if _share_of_runs(numbers) <= _FEW_RUNS:
        _warn(data, "with_column", "values", numbers)


def _warn(data: BaseDataset, method: str, values_word: str, values: Int64s) -> None:
    """`values`, (samples,), are numbers from -1 on."""
    try:
        labels = data.open_column("label").take(np.arange(len(data), dtype=np.int64))
        own_share = _share_that_follows(labels, values)
        if own_share >= _CERTAIN_SHARE and labels.max() > labels.min():
            return
        is_labelled = labels.max() > labels.min()
        in_runs = _is_shuffled(data) and _share_of_runs(values) <= _FEW_RUNS
        if not is_labelled and not in_runs:
            return
        keys = np.array(data.open_column("key").take(np.arange(len(data))))
    except DatasetError:
        return  # whoever reads a damaged record gets the error
    # The samples in the order of their keys: `order[k]` has the k-th key.
    order = np.argsort(keys, kind="stable")
    evidence = ""
    if is_labelled:
        sorted_share = _share_that_follows(labels[order], values)
        if (
            sorted_share >= _CERTAIN_SHARE
            and sorted_share > own_share + _CLEAR_DIFFERENCE
        ):
            evidence = f"fit the classes of {data.path} in the order of its sorted keys"
    elif _share_of_runs(values[order]) >= _MANY_RUNS:
        evidence = f"seem to be in the order of the sorted keys of {data.path}"
    if evidence:
        _LOG.warning(
            "%s: these %s %s, as ImageFolder lists files, and the samples are in another order: "
            "data['key'] has it. Pass them by key: data.%s{key: value}), for example "
            "dict(zip(sorted(data['key']), values))",
            method,
            values_word,
            evidence,
            "with_labels(" if method == "with_labels" else "with_column(name, ",
        )


def _is_shuffled(data: BaseDataset) -> bool:
    """Whether packing has put the samples into a random order: then equal labels lie in no runs."""
    return all(stored.index.is_shuffled for stored in data.stored)


def _share_of_runs(values: Int64s) -> float:
    """The runs of equal values, compared with those of the same values in a random order.

    1.0 where there would be so few that their number says nothing.
    """
    _, counts = np.unique(values, return_counts=True)
    shares = counts / len(values)
    num_neighbours = len(values) - 1
    expected = 1 + num_neighbours * (1 - float((shares**2).sum()))
    if expected < _LEAST_RUNS:
        return 1.0
    num_runs = 1 + int((values[1:] != values[:-1]).sum())
    return num_runs / expected


def _share_that_follows(labels: Int64s, new_labels: Int64s) -> float:
    """The share of samples whose new label is the most frequent one of their old label."""
    # With NO_LABEL, which is -1.
    num_new = int(new_labels.max()) + 2
    num_old = int(labels.max()) + 2
    num_pairs = num_old * num_new
    if num_pairs > _MOST_PAIRS:
        return 1.0
    # A number for each pair of an old and a new label.
    pairs = (labels + 1) * num_new + (new_labels + 1)
    counts = np.bincount(pairs, minlength=num_pairs)
    counts_by_label = counts.reshape(num_old, num_new)
    num_following = counts_by_label.max(axis=1).sum()
    return float(num_following / len(labels))
