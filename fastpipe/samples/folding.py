"""The samples of a dataset -> the part of each for cross-validation: by hashes, in equal shares of classes, by groups.

Note [folds]
What must not be divided is a unit: the samples of one picture, and with groups those of a patient, a video and the
like. Each unit is in one part. Without `stratify` the hash of a unit decides, so a unit keeps its part when others come
or go. With it, the pictures of a class are dealt to the parts in turn, in the order of their hashes. Groups are of
several sizes and classes: the largest come first, each to the part that has least of its classes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, choice
from fastpipe.plan.draws import Int64s, Stream, key, uniform
from fastpipe.samples.choosing import array_of, pictures_of
from fastpipe.samples.data import Data

_LOG = logging.getLogger("fastpipe")
_STRATIFY = ("label",)
_MOST_NAMED = 5  # classes in a message

Uint64s = NDArray[np.uint64]


def parts_of(data: Data, count: int, *, level: int, stratify: str | None, groups: Any) -> Int64s:
    """(n,) the part of each sample, 0 to count - 1. See Note [folds]; hashes of two levels are independent."""
    if stratify is not None:
        choice("fold: stratify", stratify, _STRATIFY)
    pictures = pictures_of(data.content)
    names = pictures if groups is None else _whole_units(_group_hashes(data, groups), pictures)
    draws = uniform(key(0, level, Stream.FOLD), names.view(np.int64))
    if stratify is None:
        return _parts_by_draw(draws, count)
    _, first, unit_of = np.unique(names, return_index=True, return_inverse=True)
    labels = np.asarray(data.column("label"))
    if groups is None:
        return _dealt(labels[first], draws[first], count)[unit_of]
    return _balanced(labels, draws[first], unit_of, count)[unit_of]


def warn_of_missing_classes(data: Data, part: Data, rest: Data, what: str, *, stratified: bool) -> None:
    """Logs which classes of a dataset one of two parts of it lacks."""
    if not data.classes:
        return
    counts = data.class_counts
    for name, each in (("the part", part), ("the rest", rest)):
        pairs = zip(data.classes, counts, each.class_counts, strict=True)
        missing = [(class_name, whole) for class_name, whole, found in pairs if whole and not found]
        if missing:
            shown = ", ".join(f"{class_name!r} ({whole:,} samples)" for class_name, whole in missing[:_MOST_NAMED])
            more = ", ..." if len(missing) > _MOST_NAMED else ""
            remedy = 'fold(..., stratify="label") divides each class'
            if stratified:
                remedy = "they have fewer samples or groups than there are parts"
            _LOG.warning("%s: %s has none of %d classes: %s%s; %s", what, name, len(missing), shown, more, remedy)


def _parts_by_draw(draws: NDArray[np.float64], count: int) -> Int64s:
    """(n,) the part k for which a draw is in [k / count, (k + 1) / count)."""
    bounds = np.arange(1, count) / count
    return np.searchsorted(bounds, draws, side="right").astype(np.int64)


def _group_hashes(data: Data, groups: Any) -> Uint64s:
    """(n,) a hash of the group of each sample. ConfigError: they are no groups."""
    expected = (
        "fold: groups: expected the name of a column of whole numbers or texts, or a value of these for each of "
        f"{len(data):,} samples"
    )
    values = array_of(data.column(groups) if isinstance(groups, str) else groups, expected)
    if values.shape != (len(data),):
        raise ConfigError(f"{expected}; got an array of shape {values.shape}")
    if values.dtype.kind in "iub":
        different, inverse = np.unique(values, return_inverse=True)
        texts: Sequence[Any] = different.tolist()
    else:
        places: dict[Any, int] = {}
        inverse = np.empty(len(values), dtype=np.int64)
        for at, value in enumerate(values.tolist()):
            if not isinstance(value, (str, int)):
                raise ConfigError(f"{expected}; sample {at} has {value!r:.60}")
            inverse[at] = places.setdefault(value, len(places))
        texts = list(places)
    hashes = [xxhash.xxh3_64_intdigest(str(text).encode(errors="surrogatepass")) for text in texts]
    return np.array(hashes, dtype=np.uint64)[inverse]


def _whole_units(groups: Uint64s, pictures: Uint64s) -> Uint64s:
    """(n,) groups, where those that have a picture in common are one, named by the smallest."""
    found = groups
    while True:
        joined = found
        for names in (pictures, groups):
            _, places = np.unique(names, return_inverse=True)
            least = np.full(int(places.max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
            np.minimum.at(least, places, joined)
            joined = least[places]
        if np.array_equal(joined, found):
            return found
        found = joined


def _dealt(labels: Int64s, draws: NDArray[np.float64], count: int) -> Int64s:
    """(units,) the part of each unit, by its label. The next class goes on where the last one has ended, so that parts
    are equal in size, too.
    """
    parts = np.empty(len(labels), dtype=np.int64)
    parts[np.lexsort((draws, labels))] = np.arange(len(labels)) % count
    return parts


def _balanced(labels: Int64s, draws: NDArray[np.float64], unit_of: Int64s, count: int) -> Int64s:
    """(units,) the part of each unit; the largest first, each to the part that has least of its classes."""
    sizes = np.bincount(unit_of)
    _, classes = np.unique(labels, return_inverse=True)
    wholes = np.bincount(classes)
    by_unit = np.argsort(unit_of, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    shares = np.zeros((count, len(wholes)))  # of each class, that each part has
    samples = np.zeros(count, dtype=np.int64)
    parts = np.empty(len(sizes), dtype=np.int64)
    for unit in np.lexsort((draws, -sizes)).tolist():
        ours, counts = np.unique(classes[by_unit[bounds[unit] : bounds[unit + 1]]], return_counts=True)
        part = int(np.lexsort((samples, shares[:, ours] @ counts))[0])
        parts[unit] = part
        shares[part, ours] += counts / wholes[ours]
        samples[part] += sizes[unit]
    return parts
