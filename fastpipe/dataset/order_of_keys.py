"""A user's labels, values or weights of all samples -> a warning if they are in the order of sorted keys.

ImageFolder and most tables are sorted, and a packed dataset is in another order. A list has nothing
that says to which samples its values belong, so its values tell: they follow the classes of the
samples; or they have a pattern, such as one class after the other, which nothing can have that was
packed in a random order.
"""

from __future__ import annotations

import logging
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Float64s, Int64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.errors import DatasetError
from fastpipe.plan.content import ColumnReader
from fastpipe.warnings_once import is_known, remember

# Datasets of so many samples have their labels compared with those that are given.
_LEAST_COMPARED = 16
_MOST_COMPARED = 1_000_000
_MOST_PAIRS = 10_000_000  # of classes before and after
# See _agreement_of.
_CERTAIN_AGREEMENT = 0.7
_CLEAR_DIFFERENCE = 0.2
_LEAST_BEYOND_CHANCE = 5
# See _disorder_of.
_ORDERLY = 0.4
_RANDOM = 0.8
_LEAST_BYTES = 15
_LOG = logging.getLogger("fastpipe")


def warn_of_labels_in_order_of_keys(data: BaseDataset, labels: ColumnReader) -> None:
    """Says if labels are in the order of the sorted keys, and not in the samples' own.

    Corrected labels and coarser classes follow the present ones for most samples.
    """
    if not _LEAST_COMPARED <= len(data) <= _MOST_COMPARED:
        return
    ids = np.arange(len(data), dtype=np.int64)
    call = "data.with_labels({key: value})"
    _warn(data, "with_labels: these labels", call, labels.take(ids))


def warn_of_values_in_order_of_keys(data: BaseDataset, values: ColumnReader) -> None:
    """The same for texts of a column that have few different ones, such as names of classes.

    Numbers may have a pattern on purpose, such as those of folds.
    """
    if not _LEAST_COMPARED <= len(data) <= _MOST_COMPARED:
        return
    ids = np.arange(len(data), dtype=np.int64)
    array = np.asarray(values.take(ids))
    if array.ndim != 1 or array.dtype.kind != "U":
        return
    distinct, numbers = np.unique(array, return_inverse=True)
    if len(distinct) > len(array) // 4:
        return
    numbers = numbers.astype(np.int64)
    # Keys are only read where values have a pattern, since reading them takes time.
    if _disorder_of(numbers) <= _ORDERLY:
        call = "data.with_column(name, {key: value})"
        _warn(data, "with_column: these values", call, numbers)


def warn_of_weights_in_order_of_keys(
    data: BaseDataset, weights: Float64s, argument: str
) -> None:
    """The same for a weight for each sample, if few differ, such as those of classes; once.

    `argument` has the weights, for the message.
    """
    # Weights may be set anew for each epoch.
    warning = f"weights in the order of keys {data.path}"
    if not _LEAST_COMPARED <= len(data) <= _MOST_COMPARED or is_known(warning):
        return
    distinct, numbers = np.unique(weights, return_inverse=True)
    if not 1 < len(distinct) <= len(weights) // 4:
        return
    call = "fastpipe.Weighted({key: value})"
    if _warn(data, f"{argument}: these weights", call, numbers.astype(np.int64)):
        remember(warning)


def _warn(data: BaseDataset, subject: str, call: str, values: Int64s) -> bool:
    """Whether the log says that values are in the order of sorted keys.

    Args:
        data: the dataset.
        subject: the method and the values, for the message.
        call: the one to write in its place.
        values: (samples,) numbers from -1 on.
    """
    ids = np.arange(len(data), dtype=np.int64)
    own_agreement = 0.0
    try:
        labels = data.open_column("label").take(ids)
        is_labelled = labels.max() > labels.min()
        if is_labelled:
            own_agreement = _agreement_of(labels, values)
            if own_agreement >= _CERTAIN_AGREEMENT + _CLEAR_DIFFERENCE:
                return False
        elif not _is_shuffled(data) or _disorder_of(values) > _ORDERLY:
            return False
        keys = np.array(data.open_column("key").take(ids))
    except DatasetError:
        return False  # whoever reads a damaged record gets the error
    # The samples in the order of their keys: `order[k]` has the k-th key.
    order = np.argsort(keys, kind="stable")
    evidence = ""
    if is_labelled:
        sorted_agreement = _agreement_of(labels[order], values)
        is_certain = sorted_agreement >= _CERTAIN_AGREEMENT
        if is_certain and sorted_agreement > own_agreement + _CLEAR_DIFFERENCE:
            evidence = f"fit the classes of {data.path} in the order of its sorted keys"
    elif _disorder_of(values[order]) >= _RANDOM:
        evidence = f"seem to be in the order of the sorted keys of {data.path}"
    if not evidence:
        return False
    _LOG.warning(
        "%s %s, as ImageFolder lists files, and the samples are in another order: data['key'] has it. "
        "Pass them by key: %s, for example dict(zip(sorted(data['key']), values))",
        subject,
        evidence,
        call,
    )
    return True


def _is_shuffled(data: BaseDataset) -> bool:
    """Whether packing has put the samples into a random order: then labels have no pattern."""
    return all(stored.index.is_shuffled for stored in data.stored)


def _disorder_of(values: Int64s) -> float:
    """How much of a random order values have: 1.0, or little where they come class by class, in turn
    or in another pattern.

    It is the size to which they are compressed, compared with that of the same values in a random
    order. 1.0, too, where there are so few that it says nothing.
    """
    distinct, numbers = np.unique(values, return_inverse=True)
    narrow = np.uint8 if len(distinct) <= 256 else np.uint32
    numbers = numbers.astype(narrow)
    shuffled = np.random.default_rng(0).permutation(numbers)
    size_of_constants = _compressed_bytes(np.zeros_like(numbers))
    size_of_shuffled = _compressed_bytes(shuffled) - size_of_constants
    if size_of_shuffled < _LEAST_BYTES:
        return 1.0
    return (_compressed_bytes(numbers) - size_of_constants) / size_of_shuffled


def _compressed_bytes(numbers: NDArray[Any]) -> int:
    return len(zlib.compress(numbers.tobytes(), 9))


def _agreement_of(labels: Int64s, new_labels: Int64s) -> float:
    """How far new labels follow the old ones: 1.0, or about 0.0 if they follow them as by chance.

    Where most samples are of one class, most follow it in any order. So the share that follows is
    compared with that of the same labels in a random order. 0.0, too, where this leaves so few
    samples that it says nothing.
    """
    shuffled = np.random.default_rng(0).permutation(new_labels)
    chance = _share_that_follows(labels, shuffled)
    if (1.0 - chance) * len(labels) < _LEAST_BEYOND_CHANCE:
        return 0.0
    return (_share_that_follows(labels, new_labels) - chance) / (1.0 - chance)


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
