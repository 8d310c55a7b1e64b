"""The samples of a dataset -> the part of each for cross-validation.

Note [folds]
Samples that must stay together are a unit: those of one picture, and with groups those of a
patient, a video and the like. Groups that have a picture in common are one unit. Each unit is in
one part. Without `stratify` the hash of a unit decides, so a unit keeps its part when others come
or go, as long as no new picture joins two groups. With `stratify` the part of a unit depends on all
units: the pictures of a class are dealt to the parts in turn, in the order of their hashes. Groups
are of several sizes and classes: the largest come first, each to the part that has least of its
classes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from fastpipe.arrays import Float64s, Int64s, Uint64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.choosing import check_index, hash_pictures, to_array
from fastpipe.dataset.column_values import Column
from fastpipe.dataset.format.parts import starts_of
from fastpipe.errors import ConfigError, choice, first_names, format_count
from fastpipe.plan.draws import Stream, key, uniform

_LOG = logging.getLogger("fastpipe")
_STRATIFY = ("label",)
_MAX_CLASSES_SHOWN = 5


def assign_parts(
    data: BaseDataset, count: int, *, level: int, stratify: str | None, groups: Any
) -> Int64s:
    """(n,) the part of each sample, 0 to count - 1. See Note [folds].

    Args:
        data: the samples.
        count: of the parts.
        level: how often they have been divided; the hashes of two levels are independent.
        stratify, groups: as of Dataset.fold.
    """
    if stratify is not None:
        _check_stratify(stratify)
    # (n,) a number for each sample that is the same for all samples of a unit.
    pictures = hash_pictures(data.content)
    units = pictures
    if groups is not None:
        units = _join_groups(_group_hashes(data, groups), pictures)
    # (n,) draws in [0, 1): all samples of a unit have the same.
    fold_key = key(0, level, Stream.FOLD)
    draws = uniform(fold_key, units.view(np.int64))
    if stratify is None:
        return _parts_by_draw(draws, count)

    # (units,) the first sample of each unit; (n,) the unit of each sample.
    _, first_samples, unit_of = np.unique(units, return_index=True, return_inverse=True)
    labels = np.asarray(data.column("label"))
    if groups is None:
        # A unit is one picture, so all its samples are of one class, or nearly always.
        parts = _deal_pictures(labels[first_samples], draws[first_samples], count)
    else:
        parts = _balance_groups(labels, draws[first_samples], unit_of, count)
    return parts[unit_of]


def _check_stratify(stratify: object) -> None:
    """Raises ConfigError unless it is the name of the column of labels."""
    if isinstance(stratify, str):
        choice("fold: stratify", stratify, _STRATIFY)
        return
    # scikit-learn takes the labels themselves here.
    got = "a column" if isinstance(stratify, Column) else type(stratify).__name__
    raise ConfigError(
        f'fold: stratify: expected "label" or None, got {got}; write stratify="label", for the '
        "classes of the samples"
    )


def warn_of_missing_classes(
    data: BaseDataset,
    part: BaseDataset,
    rest: BaseDataset,
    fold: str,
    *,
    stratified: bool,
    grouped: bool,
) -> None:
    """Logs which classes of a dataset one of two parts of it lacks. `fold` names the fold.

    `stratified` and `grouped`: the fold has `stratify` and `groups`.
    """
    if not data.classes:
        return
    for name, side in (("the part", part), ("the rest", rest)):
        missing = []
        largest = 0  # samples in a class that is missing
        counts = zip(data.classes, data.class_counts, side.class_counts, strict=True)
        for class_name, count, side_count in counts:
            if count and not side_count:
                missing.append(f"{class_name!r} ({format_count(count, 'sample')})")
                largest = max(largest, count)
        if missing:
            _LOG.warning(
                "%s: %s has no sample of %s: %s; %s",
                fold,
                name,
                format_count(len(missing), "class"),
                first_names(missing, _MAX_CLASSES_SHOWN),
                _missing_remedy(largest, stratified=stratified, grouped=grouped),
            )


def _missing_remedy(largest: int, *, stratified: bool, grouped: bool) -> str:
    """What helps if classes are missing, the largest of which has so many samples."""
    if largest == 1:
        return "a class with one sample cannot be in both"
    if stratified:
        return "they have fewer samples or groups than there are parts"
    if grouped:
        return (
            'fold(..., stratify="label", groups=...) divides the classes, and keeps each group '
            "in one part"
        )
    return 'fold(..., stratify="label") divides each class that has several samples'


def _parts_by_draw(draws: Float64s, count: int) -> Int64s:
    """(n,) the part k for which a draw is in [k / count, (k + 1) / count)."""
    bounds = np.arange(1, count) / count
    return np.searchsorted(bounds, draws, side="right").astype(np.int64)


def _group_hashes(data: BaseDataset, groups: Any) -> Uint64s:
    """(n,) a hash of the group of each sample. ConfigError: the groups are not valid."""
    expected = (
        "fold: groups: expected the name of a column of whole numbers or texts, or a value of "
        f"these for each of {len(data):,} samples"
    )
    check_index(data, "fold: groups", groups)
    column = groups
    if isinstance(groups, str):
        column = data.column(groups)
    values = to_array(column, expected)
    if values.shape != (len(data),):
        raise ConfigError(f"{expected}; got an array of shape {values.shape}")

    # The different groups, and (n,) the position of each sample's group among them.
    names: Sequence[Any]
    if values.dtype.kind in "iub":
        distinct, group_of = np.unique(values, return_inverse=True)
        names = distinct.tolist()
    else:
        numbers: dict[Any, int] = {}
        group_of = np.empty(len(values), dtype=np.int64)
        for sample, value in enumerate(values.tolist()):
            if not isinstance(value, (str, int)):
                raise ConfigError(f"{expected}; sample {sample} has {value!r:.60}")
            group_of[sample] = numbers.setdefault(value, len(numbers))
        names = list(numbers)
    # Hashes of the names, because the names' numbers change when other groups come or go. With the
    # hash, a group then keeps its part, unless `stratify` balances all groups anew.
    hashes = []
    for name in names:
        # Names of files may have bytes that are no text; Python keeps them as surrogates.
        text = str(name).encode(errors="surrogatepass")
        hashes.append(xxhash.xxh3_64_intdigest(text))
    return np.array(hashes, dtype=np.uint64)[group_of]


def _join_groups(groups: Uint64s, pictures: Uint64s) -> Uint64s:
    """(n,) groups, where those with a picture in common are one, named by the smallest.

    In each round the samples of a picture, and then those of a group, take over their smallest
    name, until no name changes.
    """
    names = groups
    while True:
        smaller_names = names
        for together in (pictures, groups):
            distinct, positions = np.unique(together, return_inverse=True)
            # The smallest name among the samples of each picture, or of each group.
            largest_number = np.iinfo(np.uint64).max
            least = np.full(len(distinct), largest_number, dtype=np.uint64)
            np.minimum.at(least, positions, smaller_names)
            smaller_names = least[positions]
        if np.array_equal(smaller_names, names):
            return names
        names = smaller_names


def _deal_pictures(labels: Int64s, draws: Float64s, count: int) -> Int64s:
    """(units,) the part of each unit, by its label.

    The next class goes on where the last one has ended, so that parts are equal in size, too.
    """
    # The units class by class, and within a class in the order of their draws: lexsort sorts by its
    # last key first.
    order = np.lexsort((draws, labels))
    parts = np.empty(len(labels), dtype=np.int64)
    parts[order] = np.arange(len(labels)) % count
    return parts


def _balance_groups(
    labels: Int64s, draws: Float64s, unit_of: Int64s, count: int
) -> Int64s:
    """(units,) the part of each unit; the largest first, to the part with least of its classes.

    Args:
        labels: (n,) of the samples.
        draws: (units,) which of two units of one size comes first.
        unit_of: (n,) the unit of each sample.
        count: of the parts.
    """
    unit_sizes = np.bincount(unit_of)
    _, class_of = np.unique(labels, return_inverse=True)
    class_sizes = np.bincount(class_of)
    # The samples, unit by unit: those of unit u are by_unit[bounds[u] : bounds[u + 1]].
    by_unit = np.argsort(unit_of, kind="stable")
    bounds = starts_of(unit_sizes)

    # (parts, classes): which share of each class a part has so far. Shares and not counts, so that
    # rare classes weigh as much as frequent ones.
    class_shares = np.zeros((count, len(class_sizes)))
    sample_counts = np.zeros(count, dtype=np.int64)
    parts = np.empty(len(unit_sizes), dtype=np.int64)
    for unit in np.lexsort((draws, -unit_sizes)).tolist():
        first, end = bounds[unit : unit + 2]
        samples = by_unit[first:end]
        classes, counts = np.unique(class_of[samples], return_counts=True)
        # (parts,) how much each part has of the unit's classes, weighed by the unit's samples.
        shares = class_shares[:, classes] @ counts
        # The part with the least; of parts with equal shares the one with the fewest samples.
        parts_in_order = np.lexsort((sample_counts, shares))
        part = int(parts_in_order[0])
        parts[unit] = part
        class_shares[part, classes] += counts / class_sizes[classes]
        sample_counts[part] += unit_sizes[unit]
    return parts
