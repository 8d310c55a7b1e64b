"""The arguments of fastpipe.loader() that choose samples -> a Content, or an error that says what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.checks import choice, flag, real_number, whole
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index
from fastpipe.format.layout import NO_LABEL
from fastpipe.loading.choice import Choice
from fastpipe.loading.weight_options import near, samples_of, weighting_of
from fastpipe.plan.content import MOST_ROWS, Content
from fastpipe.plan.draws import Stream, key, uniform

_AT_ONCE = 1 << 20  # records

Part = Callable[[NDArray[np.int64], NDArray[np.void]], NDArray[np.bool_]]  # samples, records -> which stay


def content_of(index: Index, chosen: Choice, *, train: bool, shuffle: bool) -> Content:
    """What epochs have of a dataset.

    Args:
        index: of the dataset.
        chosen: by the user; not everything.
        train: kfold's fold is left out; else nothing but the fold is taken.
        shuffle: of the loader.

    Raises:
        ConfigError: an argument is wrong, or nothing is left of the dataset.
        DatasetError: the index cannot be read.
    """
    repeats = whole("repeats", chosen.repeats, least=1, most=1024)
    size = None if chosen.epoch_size is None else whole("epoch_size", chosen.epoch_size, least=1, most=MOST_ROWS)
    old_labels = _class_numbers(index, chosen.classes)
    keep = chosen.labels is not None and choice("labels", chosen.labels, ("renumber", "keep")) == "keep"
    if keep and old_labels is None:
        raise ConfigError('labels="keep" works only with classes=; leave it out')
    parts = [part for part in (_of_classes(index, old_labels), _of_hash(index, chosen, train)) if part is not None]
    samples = _numbers(index, chosen.samples, shuffle=shuffle)
    if samples is None and not index.packed and shuffle and (parts or chosen.weights is not None):
        samples = index.samples_at(np.arange(len(index), dtype=np.int64))
    if parts:
        samples = _staying(index, samples, parts)
        if not len(samples):
            raise ConfigError(
                f"samples, classes, limit and kfold leave none of the {len(index):,} samples of {index.path}; choose "
                "more of them"
            )
    identity: dict[str, Any] = {}
    if samples is not None and (parts or chosen.samples is not None):
        identity["samples"] = f"{len(samples)} {xxhash.xxh3_64_hexdigest(samples.astype('<i8').tobytes())}"
    names = labels = None
    if old_labels is not None and not keep:
        names = tuple(index.classes[label] for label in old_labels)
        labels = np.full(len(index.classes) + 1, NO_LABEL, dtype=np.int64)
        labels[old_labels] = np.arange(len(old_labels))
        identity["classes"] = list(names) if len(names) <= 16 else xxhash.xxh3_64_hexdigest(repr(names).encode())
    content = Content(samples, None, repeats, size, labels, names)
    weighting = None
    replacement = flag("replacement", chosen.replacement)
    if chosen.weights is not None:
        weighting, mark = weighting_of(index, content, chosen.weights, replacement)
        identity["weights"] = f"{mark}{'' if replacement else ' without replacement'}"
    elif not replacement:
        raise ConfigError("replacement works only with weights=; leave it out")
    if repeats > 1:
        identity["repeats"] = repeats
    if size is not None:
        identity["epoch_size"] = size
    return Content(samples, weighting, repeats, size, labels, names, identity)


def _numbers(index: Index, samples: object, *, shuffle: bool) -> NDArray[np.int64] | None:
    """Checks `samples`: numbers or a mask -> numbers; ascending where their order is shuffled anyway."""
    if samples is None:
        return None
    expected = (
        f"samples: expected sample numbers from 0 to {len(index) - 1}, a mask of {len(index)} True and False, or keys"
    )
    if isinstance(samples, (list, tuple)) and samples and isinstance(samples[0], str):
        samples = samples_of(index, samples, "samples")
    try:
        given = np.asarray(samples)
    except (ValueError, TypeError) as problem:
        raise ConfigError(f"{expected}; got {type(samples).__name__}: {problem}") from problem
    if given.ndim != 1 or not len(given):
        raise ConfigError(f"{expected}; got {f'shape {given.shape}' if given.ndim else repr(samples)}")
    if given.dtype == np.bool_:
        if len(given) != len(index):
            raise ConfigError(f"{expected}; got a mask of {len(given)}")
        if not given.any():
            raise ConfigError(f"{expected}; got a mask without any True")
        return _in_reading_order(index, np.flatnonzero(given)) if shuffle else np.flatnonzero(given)
    if given.dtype.kind not in "iu":
        raise ConfigError(f"{expected}; got {given.dtype}")
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= len(index):
        raise ConfigError(f"{expected}; got {low if low < 0 else high}")
    numbers = given.astype(np.int64)
    ascending = np.sort(numbers)
    twice = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(twice):
        raise ConfigError(
            f"samples: expected each number once, got {int(twice[0])} again; for samples that come more often pass "
            "weights= or repeats="
        )
    return _in_reading_order(index, ascending) if shuffle else numbers


def _in_reading_order(index: Index, ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples in the order that shuffled epochs are cut from: an unpacked source has one of its own."""
    if index.packed:
        return ascending
    order = index.samples_at(np.arange(len(index), dtype=np.int64))
    return order[np.isin(order, ascending)]


def _class_numbers(index: Index, classes: object) -> NDArray[np.int64] | None:
    """Checks `classes`: names -> their labels in the dataset."""
    if classes is None:
        return None
    if isinstance(classes, str) or not isinstance(classes, (list, tuple)) or not classes:
        raise ConfigError(f"classes: expected names, for example {index.classes[:2]!r}, got {classes!r}")
    known = index.class_to_idx
    for name in classes:
        if not isinstance(name, str) or name not in known:
            raise ConfigError(f"classes: {index.path} has no class {name!r}{near(name, index.classes)}")
        if classes.count(name) > 1:
            raise ConfigError(f"classes: expected each name once, got {name!r} again")
    return np.array([known[name] for name in classes], dtype=np.int64)


def _of_classes(index: Index, labels: NDArray[np.int64] | None) -> Part | None:
    if labels is None:
        return None
    wanted = np.zeros(len(index.classes) + 1, dtype=np.bool_)
    wanted[labels] = True
    return lambda _, records: wanted[records["label"]]


def _of_hash(index: Index, chosen: Choice, train: bool) -> Part | None:
    """`limit` and `kfold`: by the identity of each sample's picture, however and wherever it is stored."""
    limit = 1.0
    if chosen.limit is not None:
        found = real_number(chosen.limit)
        if found is None or not 0 < found <= 1:
            raise ConfigError(f"limit: expected a fraction above 0 and at most 1, got {chosen.limit!r}")
        limit = found
    folds, fold = 1, 0
    if chosen.kfold is not None:
        if not isinstance(chosen.kfold, (tuple, list)) or len(chosen.kfold) != 2:
            raise ConfigError(f"kfold: expected (folds, fold), for example (5, 0), got {chosen.kfold!r}")
        folds = whole("kfold: folds", chosen.kfold[0], least=2, most=1 << 20)
        fold = whole("kfold: fold", chosen.kfold[1], least=0, most=folds - 1)
    if limit == 1 and folds == 1:
        return None

    def stays(samples: NDArray[np.int64], records: NDArray[np.void]) -> NDArray[np.bool_]:
        numbers = index.identities(samples, records).astype(np.uint64).view(np.int64)
        good = uniform(key(0, 0, Stream.LIMIT), numbers) < limit
        if folds > 1:
            inside = (uniform(key(0, 0, Stream.FOLD), numbers) * folds).astype(np.int64) == fold
            good &= ~inside if train else inside
        return good

    return stays


def _staying(index: Index, samples: NDArray[np.int64] | None, parts: list[Part]) -> NDArray[np.int64]:
    """The samples that stay, in their order."""
    found = [np.empty(0, dtype=np.int64)]
    count = len(index) if samples is None else len(samples)
    for start in range(0, count, _AT_ONCE):
        stop = min(start + _AT_ONCE, count)
        some = np.arange(start, stop, dtype=np.int64) if samples is None else samples[start:stop]
        records = index.records_of(some)
        stay = np.ones(len(some), dtype=np.bool_)
        for part in parts:
            stay &= part(some, records)
        found.append(some[stay])
    return np.concatenate(found)
