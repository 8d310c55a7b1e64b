"""The argument `sampler` of fastpipe.loader() -> what picks the samples of epochs, or an error that says why not."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import ArrayLike
from torch.utils.data import BatchSampler

from fastpipe.augment.foreign import seeded
from fastpipe.errors import ConfigError, flag, whole
from fastpipe.format.layout import NO_LABEL
from fastpipe.plan.draws import Float64s, Int64s, Stream, key
from fastpipe.plan.impossible import impossible
from fastpipe.plan.picks import MOST_KEPT, MOST_TRIES, ByClass, DistinctDraws, Listed, Pick, SpreadDraws, TriedDraws
from fastpipe.plan.recipe import Recipe
from fastpipe.samples.by_id import spans
from fastpipe.samples.choosing import array_of, checked_ids, ids_of_keys, near
from fastpipe.samples.dataset import Dataset

_MOST_REPEATS = 1024
# Of a sampler's own: what makes another one, with a seed.
_GENERATORS: dict[type, Callable[[int], object]] = {
    torch.Generator: lambda seed: torch.Generator().manual_seed(seed),
    np.random.Generator: np.random.default_rng,
    np.random.RandomState: lambda seed: np.random.RandomState(seed % 2**32),
    random.Random: random.Random,
}


@dataclass(frozen=True, eq=False)
class Weighted:
    """Samples are drawn by weights: `fastpipe.loader(data, sampler=fastpipe.Weighted(w))`.

    A sample that is due 2.4 times comes 1 to 4 times in an epoch, and exactly as often on average. In a mixture the
    shares of its datasets stay. `loader.set_weights` changes the weights between epochs.

    Args:
        weights: at least 0: {class name: weight} or {key: weight}, where others have 1, or one weight for each sample
            of the dataset, by number. `fastpipe.balanced(data)` gives each class the same share.
        replacement: False: no sample is drawn twice in an epoch. It needs `epoch_size`.
    """

    weights: Mapping[str, float] | ArrayLike
    replacement: bool = True


@dataclass(frozen=True)
class PerClass:
    """Batches of P classes and K samples of each, for metric learning: Note [P x K] in plan/picks.py.

    Each class comes equally often, and each of its samples, too. Samples without a label are in no batch.

    Args:
        samples: K.
        classes: P; P * K is the global batch, of all ranks. None: as many as fill it.
    """

    samples: int
    classes: int | None = None


@dataclass(frozen=True, eq=False)
class Repeated:
    """Each sample comes several times in a row, each time with another crop and augmentation, on different ranks
    (repeated augmentation). An epoch then has a part of the samples.

    Args:
        times: how often.
        sampler: which samples; None: all.
    """

    times: int
    sampler: Any = None


@dataclass(frozen=True)
class Sequential:
    """The samples in the order of the dataset: the same as shuffle=False."""


def balanced(data: Dataset) -> dict[str, float]:
    """Weights with which all classes come equally often: `sampler=fastpipe.Weighted(fastpipe.balanced(data))`.

    Args:
        data: of `fastpipe.open`, or `loader.dataset`.

    Returns:
        1 / number of samples, by class name; 0 for a class without samples.

    Raises:
        ConfigError: it is no dataset, or it has no classes.
    """
    if not isinstance(data, Dataset):
        raise ConfigError(f"balanced: expected a dataset from fastpipe.open(FOLDER), got {data!r}")
    if not data.classes:
        raise ConfigError(f"balanced: {data.path} has no classes; pass fastpipe.Weighted a weight for each sample")
    return {name: 1 / count if count else 0.0 for name, count in zip(data.classes, data.class_counts, strict=True)}


@dataclass(frozen=True, eq=False)
class Sampling:
    """A checked sampler; `picks`, `repeats` and `identity` are those of a Recipe, which calls the last one sampling."""

    picks: tuple[Pick, ...] = ()
    repeats: int = 1
    by_class: tuple[int, int, Int64s] | None = None  # P (0: as many as fill a global batch), K, labels of all samples
    listed: Callable[[int], Listed] | None = None  # rows of a global batch -> a pick that says how long an epoch is
    ordered: bool = False  # it gives the order, so nothing is shuffled
    labelled: bool = False  # it picks no sample without a label
    identity: Mapping[str, Any] = field(default_factory=dict)
    weighted: Weighted | None = None  # as it was passed

    def with_weights(self, weights: Any, data: Dataset, *, shuffle: bool) -> Sampling:
        if self.weighted is None:
            raise ConfigError("set_weights: this loader draws by no weights; pass sampler=fastpipe.Weighted(...) to it")
        other = _weighted(replace(self.weighted, weights=weights), data, shuffle)
        return replace(other, repeats=self.repeats, identity={**self.identity, **other.identity})

    def of(self, recipe: Recipe) -> Recipe:
        """A recipe with this sampler; ConfigError: its batches or its epoch do not go with it."""
        shuffle = recipe.shuffle and not self.ordered
        recipe = replace(recipe, picks=self.picks, repeats=self.repeats, shuffle=shuffle, sampling=self.identity)
        rows = recipe.batch_size * recipe.ranks.world_size
        if self.listed is not None:
            return replace(recipe, picks=(self.listed(rows // self.repeats),))
        if self.by_class is None:
            self._check_distinct(recipe)
            return recipe
        many, each, labels = self.by_class
        there = len(np.unique(labels[labels >= 0]))
        many = many or rows // (each * self.repeats)
        if many * each * self.repeats != rows or not 0 < many <= there:
            raise ConfigError(
                f"sampler: PerClass(classes={many}, samples={each}) makes batches of {many * each * self.repeats} from "
                f"{there} classes; expected batch_size={recipe.batch_size} times world_size={recipe.ranks.world_size}, "
                f"{rows}, and at most {there} classes. Pass other numbers of classes and samples, or another batch_size"
            )
        size = int(recipe.epoch_size or len(labels)) // rows * rows
        return replace(recipe, picks=(ByClass(labels, many, each),), epoch_size=max(size, rows))

    def _check_distinct(self, recipe: Recipe) -> None:
        """Raises ConfigError if epochs, whose sequences all draw as many, need more samples than can be drawn once."""
        if not self.picks or not isinstance(drawn := self.picks[0], DistinctDraws):
            return
        parts = recipe.sequences
        most = len(drawn) // parts * parts * self.repeats
        if recipe.epoch_size is None or int(recipe.epoch_size) > most:
            alike = f", with the {parts} parts of partition=, each of which draws as many samples" if parts > 1 else ""
            raise ConfigError(
                f"Weighted(replacement=False) draws each sample once at most: expected epoch_size= of 1 to {most:,}"
                f"{alike}, got {recipe.epoch_size or 'no epoch_size='}; pass one of these, or replacement=True"
            )


def sampling_of(sampler: Any, data: Dataset, *, shuffle: bool, seed: int) -> Sampling:
    """Checks `sampler`, for a loader with this shuffle and seed; ConfigError: it does not go with the dataset."""
    if sampler is None:
        return Sampling()
    if isinstance(sampler, Sequential):
        return Sampling(ordered=True)
    if isinstance(sampler, Repeated):
        times = whole("Repeated(times=)", sampler.times, least=1, most=_MOST_REPEATS)
        inside = sampling_of(sampler.sampler, data, shuffle=shuffle, seed=seed)
        repeats = times * inside.repeats
        said = {"repeats": repeats} if repeats > 1 else {}
        return replace(inside, repeats=repeats, identity={**inside.identity, **said})
    if isinstance(sampler, Weighted):
        return _weighted(sampler, data, shuffle)
    none = isinstance(sampler, (type, str, Mapping, BatchSampler))
    if none or not (isinstance(sampler, (PerClass, Iterable)) or callable(sampler)):
        more = "; pass the sampler in it, and batch_size=" if isinstance(sampler, BatchSampler) else ""
        raise ConfigError(
            "sampler: expected fastpipe.Weighted(...), PerClass, Repeated or Sequential, a torch Sampler, or a "
            f"function of the epoch that returns numbers of samples, got {sampler!r}{more}"
        )
    if data.content.mixed:
        raise impossible("listed mixture")
    if isinstance(sampler, PerClass):
        each = whole("PerClass(samples=)", sampler.samples, least=1, most=2**20)
        many = 0 if sampler.classes is None else whole("PerClass(classes=)", sampler.classes, least=1, most=2**20)
        identity: dict[str, Any] = {"per_class": [many, each]}
        return Sampling(by_class=(many, each, data.targets), ordered=True, labelled=True, identity=identity)

    def numbers(rows: int, epoch: int, times: int = 1) -> Int64s:
        found = _asked(sampler, key(seed, epoch, Stream.LIST), epoch, rows, times)
        expected = f"sampler: expected whole numbers from 0 to {len(data) - 1} for epoch {epoch}"
        if not len(ids := checked_ids(found, len(data), expected)):
            raise ConfigError(f"{expected}; got none")
        return ids

    same = partial(np.array_equal, numbers(1, 0))
    # A second call may give others, as of a list that is shuffled in place, if the first follows from the epoch alone.
    if not same(numbers(1, 0, times=2)) and (same(numbers(1, 1)) or not same(numbers(1, 0))):
        raise ConfigError(
            "sampler: expected the same numbers each time that it is asked for an epoch; asked twice for epoch 0, it "
            "gave others. It counts its calls, or draws from a generator that is not its attribute. Pass a function "
            "of the epoch, lambda epoch: np.random.default_rng(epoch).permutation(n), or one with set_epoch(epoch)"
        )
    identity = {"sampler": type(sampler).__name__}
    return Sampling(listed=lambda rows: Listed(partial(numbers, rows)), ordered=True, identity=identity)


def _asked(sampler: Any, seed: int, epoch: int, rows: int, times: int) -> Any:
    """What a sampler or function gives for an epoch, asked so many times, with all generators seeded; of one that deals
    out to ranks, what it gives all of them.
    """
    replicas = getattr(sampler, "num_replicas", None)
    lists: list[Any] = []
    for rank in range(replicas or 1):
        each = copy.copy(sampler)  # the user's stays as it is
        if replicas:
            each.rank = rank
        if hasattr(each, "set_epoch"):
            each.set_epoch(epoch)
        lists += [_drawn(each, seed, epoch) for _ in range(times)][-1:]
    if not replicas:
        return lists[0]
    share = max(1, rows // len(lists) if rows % len(lists) == 0 else 1)  # of each rank in a global batch
    starts = range(0, max(map(len, lists)), share)
    return [number for start in starts for each in lists for number in each[start : start + share]]


def _drawn(sampler: Any, seed: int, epoch: int) -> Any:
    for name, value in getattr(sampler, "__dict__", {}).items():  # the user's are not shuffled and not drawn from
        make = next((make for kind, make in _GENERATORS.items() if isinstance(value, kind)), None)
        if make is not None or isinstance(value, (list, np.ndarray)):
            setattr(sampler, name, copy.copy(value) if make is None else make(seed))
    with seeded(torch.device("cpu"), seed), torch.device("cpu"):
        found = sampler if isinstance(sampler, Iterable) else sampler(epoch)
        return [*found] if isinstance(found, Iterable) and not isinstance(found, (np.ndarray, torch.Tensor)) else found


def _weighted(sampler: Weighted, data: Dataset, shuffle: bool) -> Sampling:
    content, replacement = data.content, flag("Weighted(replacement=)", sampler.replacement)
    if content.mixed and not replacement:
        raise impossible("mixture without replacement")
    found, of_classes = _checked_weights(data, sampler.weights)
    mark = f"{xxhash.xxh3_64_hexdigest(found.tobytes())}{'' if replacement else ' without replacement'}"

    labels = data.by_id("label")

    def weights_at(places: Int64s) -> Float64s:
        """Of the samples at places of the reading order."""
        ids = content.ids_at(places) if shuffle else places
        return found[labels.take(ids)] if of_classes else found[ids]

    picks: list[Pick] = []
    for first, end in pairwise(content.starts.tolist()):
        if of_classes and end - first > MOST_KEPT:
            picks.append(_tried(data, first, end, found, weights_at))
        else:
            mine = np.concatenate([weights_at(ids + first) for ids in spans(end - first)])
            with np.errstate(over="ignore"):
                _check_sum(float(mine.sum()))
            picks.append((SpreadDraws if replacement else DistinctDraws)(mine))
    if not replacement and not isinstance(picks[0], DistinctDraws):
        raise ConfigError(
            f"Weighted(replacement=False) works with at most {MOST_KEPT:,} samples, got {len(data):,}; pass "
            "replacement=True"
        )
    return Sampling(tuple(picks), labelled=of_classes, identity={"weights": mark}, weighted=sampler)


def _check_sum(total: float) -> None:
    if total == 0:
        raise ConfigError("Weighted: expected a weight above 0, got only 0 for the samples of the dataset")
    if total == math.inf:
        raise ConfigError("Weighted: expected weights with a finite sum, got inf; divide them all by the largest one")


def _checked_weights(data: Dataset, weights: Any) -> tuple[Float64s, bool]:
    """(samples,), and False; of classes (classes + 1,), the last one that of samples without a label, and True."""
    count, known, named = len(data), data.class_to_idx, isinstance(weights, Mapping)
    of_classes = named and (not weights or any(name in known for name in weights))
    names: Sequence[Any] = [*weights] if named else range(count)
    if of_classes and (unknown := [name for name in names if name not in known]):
        raise ConfigError(
            f"Weighted: {data.path} has no class {unknown[0]!r}{near(unknown[0], data.classes)}; names of classes and "
            "keys of samples do not go together"
        )
    expected = (
        f"Weighted: expected a number at least 0 for each of {count} samples, or {{class name: number}}, or "
        "{key: number}"
    )
    given = array_of([*weights.values()] if named else weights, expected)
    if given.dtype.kind not in "biuf":
        first = given.ravel().tolist()[0]
        raise ConfigError(f"{expected}; got {type(first).__name__} {first!r}")
    given = given.astype(np.float64)
    if given.shape != (len(names),):
        raise ConfigError(f"{expected}; got {f'shape {given.shape}' if given.ndim else repr(weights)}")
    if len(wrong := np.flatnonzero(~(np.isfinite(given) & (given >= 0)))):
        kind = "class" if of_classes else "key" if named else "sample"
        raise ConfigError(f"{expected}; got {given[wrong[0]]} for {kind} {names[wrong[0]]!r}")
    if not named:
        return given, False
    found = np.ones(len(known) + 1 if of_classes else count)
    if of_classes:
        found[NO_LABEL] = 0
        found[[known[name] for name in names]] = given
    else:
        end = f". Nor is {names[0]!r} a class{near(names[0], data.classes)}"
        found[ids_of_keys(data.content, names, "Weighted", end)] = given
    return found, of_classes


def _tried(
    data: Dataset, first: int, end: int, of_classes: Float64s, weights_at: Callable[[Int64s], Float64s]
) -> TriedDraws:
    """Draws for more samples than memory should hold weights of."""
    count, labels = end - first, data.by_id("label")
    counts = np.append(data.class_counts, 0)
    if data.content.mixed:
        found = (labels.take(ids + first) % len(counts) for ids in spans(count))  # NO_LABEL is the last one
        counts = np.sum([np.bincount(each, minlength=len(counts)) for each in found], axis=0)
    mean = float((counts * of_classes).sum()) / count
    _check_sum(mean)
    most = float(of_classes[counts > 0].max(initial=0.0))
    if most > MOST_TRIES * mean:
        raise ConfigError(
            f"Weighted: of {count:,} samples, the greatest weight of a class may be {MOST_TRIES} times the mean of all "
            f"samples; got {most / mean:,.0f} times. Use less extreme weights, or a mixture: "
            "fastpipe.mix({data: 0.9, data.only(RARE): 0.1})"
        )
    return TriedDraws(count, lambda places: weights_at(places + first), most, most / mean)
