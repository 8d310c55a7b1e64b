"""Weights of classes or samples, as a user passes them -> draws of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash

from fastpipe.arrays import Float64s, Int64s
from fastpipe.dataset.choosing import check_index, find_keys, to_array
from fastpipe.dataset.column_values import spans
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.format.layout import NO_LABEL
from fastpipe.dataset.order_of_keys import warn_of_weights_in_order_of_keys
from fastpipe.errors import ConfigError, flag, suggest_class
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.picks import (
    MAX_KEPT,
    MAX_TRIES,
    Pick,
    RejectionDraws,
    SpreadDraws,
    WeightedDrawsWithoutReplacement,
)


class WeightedDraws(NamedTuple):
    """Checked weights."""

    picks: tuple[Pick, ...]  # of each share of a mixture; one, if it is not a mixture
    of_classes: bool  # the weights are those of classes
    mark: str  # a hash of them, for a state


class _Weights(NamedTuple):
    # (samples,) of each sample; or (classes + 1,) of each class, where the last one, which NO_LABEL
    # = -1 indexes, is that of samples without a label.
    values: Float64s
    of_classes: bool


def parse_weighted_draws(
    weights: Any, replacement: object, data: Dataset, *, shuffle: bool
) -> WeightedDraws:
    """Makes the draws of fastpipe.Weighted. Raises ConfigError if the weights are wrong."""
    content = data.content
    may_repeat = flag("Weighted(replacement=)", replacement)
    if content.mixed and not may_repeat:
        raise conflict_error("mixture + no replacement")
    parsed = _parse_weights(data, weights)
    mark = xxhash.xxh3_64_hexdigest(parsed.values.tobytes())
    if not may_repeat:
        mark += " without replacement"
    labels = data.open_column("label")

    def weights_at(places: Int64s) -> Float64s:
        """The weights of the samples at places of the reading order."""
        ids = content.ids_at(places) if shuffle else places
        indices = labels.take(ids) if parsed.of_classes else ids
        weights: Float64s = parsed.values[indices]
        return weights

    picks: list[Pick] = []
    for start, end in pairwise(content.starts.tolist()):
        # Weights of so many samples would take too much memory; those of classes can be looked up.
        if parsed.of_classes and end - start > MAX_KEPT:
            pick = _draws_by_trying(data, start, end, parsed.values, weights_at)
            picks.append(pick)
            continue
        # Block by block, so that the places take little memory.
        blocks = []
        for places in spans(end - start):
            blocks.append(weights_at(places + start))
        share_weights = np.concatenate(blocks)
        # numpy would warn of a sum of inf; _check_sum raises the error that says what to do.
        with np.errstate(over="ignore"):
            _check_sum(float(share_weights.sum()))
        draws = SpreadDraws if may_repeat else WeightedDrawsWithoutReplacement
        picks.append(draws(share_weights))
    if not may_repeat and not isinstance(picks[0], WeightedDrawsWithoutReplacement):
        raise ConfigError(
            f"Weighted(replacement=False) works with at most {MAX_KEPT:,} samples, got "
            f"{len(data):,}; pass replacement=True"
        )
    return WeightedDraws(tuple(picks), parsed.of_classes, mark)


def _check_sum(total: float) -> None:
    if total == 0:
        raise ConfigError(
            "Weighted: expected a weight above 0, got only 0 for the samples of the dataset"
        )
    if total == math.inf:
        raise ConfigError(
            "Weighted: expected weights with a finite sum, got inf; divide them all by the largest "
            "one"
        )


def _parse_weights(data: Dataset, weights: Any) -> _Weights:
    """Checks weights by class name, by key, or one for each sample by number."""
    expected = (
        f"Weighted: expected a number at least 0 for each of {len(data)} samples, or {{class name: "
        "number}, or {key: number}"
    )
    if not isinstance(weights, Mapping):
        check_index(data, "Weighted", weights)
        values = _check_numbers(weights, range(len(data)), "sample", expected)
        if not data.content.mixed:
            warn_of_weights_in_order_of_keys(data, values, "Weighted")
        return _Weights(values, of_classes=False)

    # A mapping is by class name as soon as one of its names is a class.
    classes = data.class_to_idx
    names = list(weights)
    given = list(weights.values())
    of_classes = not names or any(name in classes for name in names)
    if not of_classes:
        numbers = _check_numbers(given, names, "key", expected)
        hint = f", nor a class of this name{suggest_class(names[0], data.classes)}"
        values = np.ones(len(data))
        values[find_keys(data.content, names, "Weighted", hint)] = numbers
        return _Weights(values, of_classes=False)

    for name in names:
        if name not in classes:
            raise ConfigError(
                f"Weighted: {data.path} has no class {name!r}, and names of classes do not go together "
                f"with keys of samples{suggest_class(name, data.classes)}"
            )
    numbers = _check_numbers(given, names, "class", expected)
    values = np.ones(len(classes) + 1)
    values[NO_LABEL] = 0  # -1, the last one: samples without a label are never drawn
    values[[classes[name] for name in names]] = numbers
    return _Weights(values, of_classes=True)


def _check_numbers(given: Any, names: Any, kind: str, expected: str) -> Float64s:
    """(len(names),) finite numbers at least 0; `names` and `kind` are for the message."""
    array = to_array(given, expected)  # also of a list or a tensor
    if array.dtype.kind not in "biuf":
        values = array.ravel().tolist()
        first = values[0]
        raise ConfigError(f"{expected}; got {type(first).__name__} {first!r}")
    numbers = array.astype(np.float64)
    if numbers.shape != (len(names),):
        if numbers.ndim:
            got = f"shape {numbers.shape}"
        else:
            got = repr(given)
        raise ConfigError(f"{expected}; got {got}")
    is_right = np.isfinite(numbers) & (numbers >= 0)
    if not is_right.all():
        first_wrong = int(np.flatnonzero(~is_right)[0])
        number = numbers[first_wrong]
        name = names[first_wrong]
        raise ConfigError(f"{expected}; got {number} for {kind} {name!r}")
    return numbers


def _draws_by_trying(
    data: Dataset,
    start: int,
    end: int,
    class_weights: Float64s,
    weights_at: Callable[[Int64s], Float64s],
) -> RejectionDraws:
    """Draws for a share, from start to end, whose weights would take too much memory."""
    count = end - start
    counts = np.append(data.class_counts, 0)  # by class; the last one is for NO_LABEL
    if data.content.mixed:
        counts = _count_classes(data, start, count)
    # A sample is proposed, and accepted with its weight's share of the greatest one. This takes
    # most / mean tries on average.
    mean = float((counts * class_weights).sum()) / count
    _check_sum(mean)
    most = float(class_weights[counts > 0].max(initial=0.0))
    if most > MAX_TRIES * mean:
        raise ConfigError(
            f"Weighted: of {count:,} samples, the greatest weight of a class may be {MAX_TRIES} "
            f"times the mean of all samples; got {most / mean:,.0f} times. Use less extreme "
            "weights, or a mixture: fastpipe.mix({data: 0.9, data.only(RARE): 0.1})"
        )
    return RejectionDraws(
        count, lambda places: weights_at(places + start), most, most / mean
    )


def _count_classes(data: Dataset, start: int, count: int) -> Int64s:
    """(classes + 1,) the number of samples of each class in a share of a mixture."""
    labels = data.open_column("label")
    num_classes = len(data.class_counts) + 1
    counts = np.zeros(num_classes, dtype=np.int64)
    for ids in spans(count):
        # NO_LABEL is -1, and the remainder of -1 is the last position.
        positions = labels.take(ids + start) % num_classes
        counts += np.bincount(positions, minlength=num_classes)
    return counts
