"""The arguments weights= and replacement= of fastpipe.loader() -> what draws by them, or an error that says why not."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.checks import real_number
from fastpipe.errors import ConfigError
from fastpipe.format.index import Index
from fastpipe.format.layout import NO_LABEL
from fastpipe.format.sample_layout import key_hash
from fastpipe.plan.content import Content
from fastpipe.plan.weights import MOST_KEPT, MOST_TRIES, DistinctDraws, SpreadDraws, TriedDraws, Weighting

_AT_ONCE = 1 << 20  # records


def near(name: object, names: list[str]) -> str:
    """The end of a message about a class that is not there."""
    if not names:
        return ": it has no classes"
    found = difflib.get_close_matches(str(name), names, n=1)
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"; did you mean {found[0]!r}?" if found else f"; it has {', '.join(map(repr, names[:5]))}{more}"


def samples_of(index: Index, keys: Sequence[object], option: str, end: str = "") -> NDArray[np.int64]:
    """The numbers of the samples that have these keys: a key outlives a packing, a number does not.

    Raises:
        ConfigError: not exactly one sample has a key; `option` begins the message, and `end` ends it.
        DatasetError: the index cannot be read.
    """
    wanted = np.array([key_hash(str(key)) for key in keys], dtype=np.uint64)
    ascending, inverse = np.unique(wanted, return_inverse=True)
    found, times = np.zeros((2, len(ascending)), dtype=np.int64)
    for start in range(0, len(index), _AT_ONCE):
        samples = np.arange(start, min(start + _AT_ONCE, len(index)), dtype=np.int64)
        hashes = index.key_hashes(samples)
        places = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
        hit = ascending[places] == hashes
        found[places[hit]] = samples[hit]
        np.add.at(times, places[hit], 1)
    wrong = np.flatnonzero(times[inverse] != 1)
    if len(wrong):
        raise ConfigError(
            f"{option}: {index.path} has {int(times[inverse][wrong[0]]) or 'no'} samples with the key "
            f'{keys[wrong[0]]!r}; expected one. A key is the path of the source, as fields= gives it as "key"{end}'
        )
    numbers: NDArray[np.int64] = found[inverse]
    return numbers


def weighting_of(index: Index, content: Content, weights: object, replacement: bool) -> tuple[Weighting, str]:
    """What draws by the weights, and what a state says of them.

    Args:
        index: of the dataset.
        content: what is chosen of it.
        weights: as a user passed them.
        replacement: with it.

    Raises:
        ConfigError: the weights are wrong, or nothing can be drawn by them.
        DatasetError: the index cannot be read.
    """
    count = content.count(len(index))
    known = index.class_to_idx
    if isinstance(weights, Mapping) and (not weights or any(name in known for name in weights)):
        of_classes = _class_weights(index, weights)
        mark = xxhash.xxh3_64_hexdigest(of_classes.tobytes())
        if count > MOST_KEPT:
            return _tried(index, content, of_classes, replacement), mark
        found = np.concatenate(
            [of_classes[_labels(index, content, start)] for start in range(0, count, _AT_ONCE)], dtype=np.float64
        )
    else:
        found = _sample_weights(index, weights)
        mark = xxhash.xxh3_64_hexdigest(found.tobytes())
        if content.samples is not None:
            found = found[content.samples]
    if not found.any():
        raise ConfigError("weights: expected a weight above 0, got only 0 for the samples that are chosen")
    with np.errstate(over="ignore"):
        total = float(found.sum())
    if total == math.inf:
        raise ConfigError("weights: expected weights with a finite sum, got inf; divide them all by the largest one")
    return (SpreadDraws if replacement else DistinctDraws)(found), mark


def check_distinct(content: Content, sequences: int) -> None:
    """Raises ConfigError if epochs, whose sequences all draw as many, need more samples than can be drawn once."""
    if not isinstance(drawn := content.weighting, DistinctDraws):
        return
    most = len(drawn) // sequences * sequences * content.repeats
    if content.epoch_size is None or content.epoch_size > most:
        alike = f", with {sequences} canonical nodes, each of which draws as many samples" if sequences > 1 else ""
        raise ConfigError(
            f"replacement=False draws each sample once at most: expected epoch_size= of 1 to {most:,}{alike}, got "
            f"{content.epoch_size or 'no epoch_size='}; pass one of these, or replacement=True"
        )


def _sample_weights(index: Index, weights: object) -> NDArray[np.float64]:
    expected = (
        f"weights: expected a number at least 0 for each of {len(index)} samples, or {{class name: number}}, or "
        "{key: number}"
    )
    numbers, given = None, weights
    if isinstance(weights, Mapping):
        no_class = f". Nor is {next(iter(weights))!r} a class{near(next(iter(weights)), index.classes)}"
        numbers, given = samples_of(index, [*weights], "weights", no_class), [*weights.values()]
    try:
        found = np.asarray(given, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError) as problem:  # RuntimeError: a tensor with a gradient
        raise ConfigError(f"{expected}; got {type(weights).__name__}: {problem}") from problem
    if numbers is not None and found.shape == numbers.shape:
        found, given = np.ones(len(index)), found
        found[numbers] = given
    if found.shape != (len(index),):
        raise ConfigError(f"{expected}; got {f'shape {found.shape}' if found.ndim else repr(weights)}")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        at = int(np.flatnonzero(~(np.isfinite(found) & (found >= 0)))[0])
        raise ConfigError(f"{expected}; got {found[at]} for sample {at}")
    return found


def _class_weights(index: Index, weights: Mapping[Any, Any]) -> NDArray[np.float64]:
    """(classes + 1,) the last one is that of samples without a label."""
    found = np.ones(len(index.classes) + 1)
    found[NO_LABEL] = 0
    known = index.class_to_idx
    for name, given in weights.items():
        if name not in known:
            raise ConfigError(
                f"weights: {index.path} has no class {name!r}{near(name, index.classes)}; names of classes and keys of "
                "samples do not go together"
            )
        weight = real_number(given)
        if weight is None or not 0 <= weight < math.inf:
            raise ConfigError(f"weights: expected a number at least 0 for class {name!r}, got {given!r}")
        found[known[name]] = weight
    return found


def _labels(index: Index, content: Content, start: int) -> NDArray[np.int64]:
    """Of the chosen samples from position `start` on, some at once."""
    stop = min(start + _AT_ONCE, content.count(len(index)))
    positions = np.arange(start, stop, dtype=np.int64)
    return _labels_at(index, content, positions)


def _labels_at(index: Index, content: Content, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    samples = positions if content.samples is None else content.samples[positions]
    labels = index.records_of(samples)["label"]
    # A damaged record is found when its sample is read.
    return np.where((labels >= 0) & (labels < len(index.classes)), labels, NO_LABEL)


def _tried(index: Index, content: Content, of_classes: NDArray[np.float64], replacement: bool) -> TriedDraws:
    """Draws for more samples than memory should hold weights of."""
    count = content.count(len(index))
    if not replacement:
        raise ConfigError(
            f"replacement=False works with at most {MOST_KEPT:,} samples, got {count:,}; pass replacement=True"
        )
    counts = np.append(index.class_counts, 0)
    if content.samples is not None:
        counts = np.zeros_like(counts)
        for start in range(0, count, _AT_ONCE):  # NO_LABEL is the last one
            counts += np.bincount(_labels(index, content, start) % len(counts), minlength=len(counts))
    mean = float((counts * of_classes).sum()) / count
    most = float(of_classes[counts > 0].max(initial=0.0))
    if mean == 0:
        raise ConfigError("weights: expected a weight above 0, got only 0 for the classes that are chosen")
    if most > MOST_TRIES * mean:
        raise ConfigError(
            f"weights: of {count:,} samples, the greatest weight of a class may be {MOST_TRIES} times the mean of all "
            f"samples; got {most / mean:,.0f} times. Use less extreme weights, or pack the rare classes by themselves "
            "and mix the two datasets: fastpipe.loader({FOLDER: 0.9, RARE: 0.1})"
        )
    return TriedDraws(count, lambda positions: of_classes[_labels_at(index, content, positions)], most, most / mean)
