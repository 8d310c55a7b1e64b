"""The argument `sampler` of fastpipe.loader() -> what picks the samples of epochs, checked.

The classes that a user passes, and `parse_sampler`, which makes a `Sampling` of any sampler.
Weights are in weights.py, and torch's samplers and functions in listed_samples.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import BatchSampler, Sampler

from fastpipe.arguments import refusing_unknown, refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.dataset.dataset import Dataset
from fastpipe.errors import ConfigError, format_count, whole
from fastpipe.loading.listed_samples import make_numbers_function, num_replicas
from fastpipe.loading.weights import parse_weighted_draws
from fastpipe.plan.option_conflicts import conflict_error
from fastpipe.plan.partition import Ranks
from fastpipe.plan.picks import ByClass, Listed, Pick, WeightedDrawsWithoutReplacement
from fastpipe.plan.recipe import Recipe
from fastpipe.warnings_once import warn_once

_MAX_REPEATS = 1024
# PerClass may well repeat the samples of so many classes, as a share of all.
_FEW_SMALL_CLASSES = 0.1


@refusing_unknown_fields("fastpipe.Weighted")
@dataclass(frozen=True, eq=False)
class Weighted:
    """Samples are drawn by weights: `fastpipe.loader(data, sampler=fastpipe.Weighted(w))`.

    A sample that is due 2.4 times comes 1 to 4 times in an epoch, and exactly as often on average.
    In a mixture the shares of its datasets stay. `loader.set_weights` changes the weights between
    epochs.

    Args:
        weights: at least 0: {class name: weight} or {key: weight}, where others have 1, or one
            weight for each sample of the dataset, by number. `fastpipe.balanced(data)` gives each
            class the same share.
        replacement: False: no sample is drawn twice in an epoch. It needs `epoch_size`.

    Example:
        >>> data = fastpipe.open("data/train")
        >>> sampler = fastpipe.Weighted({"cat": 3.0, "dog": 1.0})
        >>> loader = fastpipe.loader(data, batch_size=8, sampler=sampler)
    """

    weights: Mapping[str, float] | ArrayLike
    replacement: bool = True


@refusing_unknown_fields("fastpipe.PerClass")
@dataclass(frozen=True)
class PerClass:
    """Batches of P classes and K samples of each, for metric learning.

    Each class is drawn equally often, and so is each sample of a class. Samples without a label are
    in no batch.

    Args:
        samples: K.
        classes: P; P * K is the global batch, of all ranks. None: as many as fill it.

    Example:
        >>> sampler = fastpipe.PerClass(classes=2, samples=4)
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, sampler=sampler)
        >>> next(iter(loader))[1].bincount()
        tensor([4, 4])
    """

    samples: int
    classes: int | None = None


@refusing_unknown_fields("fastpipe.Repeated")
@dataclass(frozen=True, eq=False)
class Repeated:
    """Each sample comes several times in a row, each time with another crop and augmentation, on
    different ranks (repeated augmentation). An epoch then has a part of the samples.

    Args:
        times: how often.
        sampler: which samples; None: all.

    Example:
        >>> sampler = fastpipe.Repeated(3)
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, sampler=sampler)
        >>> len(loader)  # an epoch is as long as without repeats: 8 samples, three times each
        3
    """

    times: int
    sampler: Any = None


@refusing_unknown_fields("fastpipe.Sequential")
@dataclass(frozen=True)
class Sequential:
    """The samples in the order of the dataset: the same as shuffle=False.

    Example:
        >>> sampler = fastpipe.Sequential()
        >>> loader = fastpipe.loader("data/train", batch_size=8, size=32, sampler=sampler)
        >>> next(iter(loader)).ids
        tensor([0, 1, 2, 3, 4, 5, 6, 7])
    """


@refusing_unknown("fastpipe.balanced")
def balanced(data: Dataset) -> dict[str, float]:
    """Weights with which all classes come equally often:
    `sampler=fastpipe.Weighted(fastpipe.balanced(data))`.

    Args:
        data: a dataset, as returned by `fastpipe.open`, or `loader.dataset`.

    Returns:
        1 / number of samples, by class name; 0 for a class without samples.

    Raises:
        ConfigError: `data` is not a dataset, or has no classes.

    Example:
        >>> data = fastpipe.open("data/train").select(range(20))
        >>> loader = fastpipe.loader(data, batch_size=8, sampler=fastpipe.Weighted(fastpipe.balanced(data)))
    """
    if not isinstance(data, Dataset):
        raise ConfigError(
            f"balanced: expected a dataset from fastpipe.open(FOLDER), got {data!r}"
        )
    if not data.classes:
        raise ConfigError(
            f"balanced: {data.path} has no classes; pass fastpipe.Weighted a weight for each sample"
        )
    return {
        name: 1 / count if count else 0.0
        for name, count in zip(data.classes, data.class_counts, strict=True)
    }


class ClassBatches(NamedTuple):
    """The batches of PerClass: P classes, K samples of each."""

    classes: int  # P; 0: as many as fill a global batch
    samples: int  # K
    labels: Int64s  # of all samples of the dataset


def _describe_per_class(
    recipe: Recipe, classes: int, samples: int, repeats: int, num_classes: int
) -> str:
    """The message about a PerClass whose batches cannot be filled, with one that can be."""
    world_size = recipe.ranks.world_size
    rows = recipe.batch_size * world_size
    batch = f"batch_size={recipe.batch_size}"
    if world_size > 1:
        batch += f" on {world_size} ranks, {rows} in all"
    text = f"sampler: PerClass(classes={classes}, samples={samples})"
    if repeats > 1:
        text += f", each sample {repeats} times,"
    rows_per_class = samples * repeats
    if classes == 0:
        text += f" takes {rows_per_class} rows for each class, more than {batch}"
    elif classes * rows_per_class != rows:
        text += (
            f" makes batches of {classes * rows_per_class}, but the loader has {batch}"
        )
    else:
        text += f" needs {classes} classes to fill {batch}, but the dataset has {num_classes}"

    advice = "Pass another batch_size"
    # The most classes with which whole batches can be made.
    for possible in range(min(num_classes, rows // repeats), 0, -1):
        if rows % (possible * repeats) == 0:
            possible_samples = rows // (possible * repeats)
            advice = (
                f"Pass PerClass(classes={possible}, samples={possible_samples}), or another "
                "batch_size"
            )
            break
    return f"{text}. {advice}"


@dataclass(frozen=True, eq=False)
class Sampling:
    """A checked sampler, which may depend on the size of the global batch.

    `picks`, `repeats` and `identity` go into a Recipe, which calls the last one `sampling`.
    """

    picks: tuple[Pick, ...] = ()
    repeats: int = 1
    by_class: ClassBatches | None = None
    # Rows of a global batch -> a pick that says how long an epoch is.
    listed: Callable[[int], Listed] | None = None
    ordered: bool = False  # the sampler gives the order, so nothing is shuffled
    labelled: bool = False  # it picks no sample without a label
    identity: Mapping[str, Any] = field(default_factory=dict)
    weighted: Weighted | None = None  # as it was passed
    # The class of a sampler that deals its numbers out to ranks, and to how many.
    dealer: str = ""
    num_replicas: int = 1

    def check_replicas(self, ranks: Ranks) -> None:
        """Raises ConfigError if the sampler is one of several ranks, but the loader is alone.

        The loader asks such a sampler for the numbers of all ranks, and shares them out itself. So
        each process would read all samples.
        """
        if self.num_replicas == 1 or ranks.world_size > 1:
            return
        raise ConfigError(
            f"sampler: a {self.dealer} of {self.num_replicas} replicas, but this loader is rank 0 "
            "of 1, so each process would read all samples. Leave the sampler out: the ranks of a "
            "loader share an epoch by themselves. Call torch.distributed.init_process_group() "
            f"before the loop, or pass rank= and world_size={self.num_replicas} to "
            "fastpipe.loader(...)"
        )

    def with_weights(self, weights: Any, data: Dataset, *, shuffle: bool) -> Sampling:
        """The same with other weights. Raises ConfigError if they are wrong."""
        if self.weighted is None:
            raise ConfigError(
                "set_weights: this loader has no weights; pass sampler=fastpipe.Weighted(...) "
                "to it"
            )
        # Repeated around Weighted stays as it is.
        weighted = replace(self.weighted, weights=weights)
        sampling = _sampling_by_weights(weighted, data, shuffle)
        identity = {**self.identity, **sampling.identity}
        return replace(sampling, repeats=self.repeats, identity=identity)

    def apply_to(self, recipe: Recipe) -> Recipe:
        """A recipe with this sampler. Raises ConfigError if its batches do not go with it."""
        recipe = replace(
            recipe,
            picks=self.picks,
            repeats=self.repeats,
            shuffle=recipe.shuffle and not self.ordered,
            sampling=self.identity,
        )
        rows = recipe.batch_size * recipe.ranks.world_size
        if recipe.crop.budget is not None:
            rows = 1  # batches have any number of samples
        # A list and batches by class depend on the global batch, so their picks are made here.
        if self.listed is not None:
            pick = self.listed(rows // self.repeats)
            return replace(recipe, picks=(pick,))
        if self.by_class is not None:
            return self._apply_by_class(self.by_class, recipe, rows)
        self._check_distinct(recipe)
        return recipe

    def _apply_by_class(
        self, batches: ClassBatches, recipe: Recipe, rows: int
    ) -> Recipe:
        labels = batches.labels
        num_classes = len(np.unique(labels[labels >= 0]))
        rows_per_class = batches.samples * self.repeats
        classes = batches.classes or rows // rows_per_class
        divides_rows = classes * rows_per_class == rows
        if not divides_rows or not 0 < classes <= num_classes:
            raise ConfigError(
                _describe_per_class(
                    recipe, classes, batches.samples, self.repeats, num_classes
                )
            )
        wanted = int(recipe.epoch_size or len(labels))
        epoch_size = max(wanted // rows * rows, rows)  # whole batches
        pick = ByClass(labels, classes, batches.samples)
        return replace(recipe, picks=(pick,), epoch_size=epoch_size)

    def _check_distinct(self, recipe: Recipe) -> None:
        """Raises ConfigError if an epoch needs more samples than can be drawn once each."""
        if not self.picks or not isinstance(
            self.picks[0], WeightedDrawsWithoutReplacement
        ):
            return
        # All sequences of an epoch draw the same number of samples.
        parts = recipe.sequences
        rows_of_parts = len(self.picks[0]) // parts * parts
        most = rows_of_parts * self.repeats
        if recipe.epoch_size is not None and int(recipe.epoch_size) <= most:
            return
        reason = ""
        if parts > 1:
            reason = f", with the {parts} parts of partition=, each of which draws as many samples"
        raise ConfigError(
            "Weighted(replacement=False) draws each sample once at most: expected epoch_size= of 1 "
            f"to {most:,}{reason}, got {recipe.epoch_size or 'no epoch_size='}; pass one of these, "
            "or replacement=True"
        )


def parse_sampler(sampler: Any, data: Dataset, *, shuffle: bool, seed: int) -> Sampling:
    """Checks `sampler`, for a loader with this shuffle and seed.

    Raises ConfigError if it is not a sampler, or does not go with the dataset.
    """
    if sampler is None:
        return Sampling()
    if isinstance(sampler, Sequential):
        return Sampling(ordered=True)
    if isinstance(sampler, Repeated):
        return _sampling_with_repeats(sampler, data, shuffle, seed)
    if isinstance(sampler, Weighted):
        return _sampling_by_weights(sampler, data, shuffle)
    _check_kind(sampler)
    if data.content.mixed:
        raise conflict_error("mixture + listing sampler")
    if isinstance(sampler, PerClass):
        return _sampling_by_class(sampler, data)
    numbers = make_numbers_function(sampler, data, seed)
    name = type(sampler).__name__
    return Sampling(
        listed=lambda rows: Listed(lambda epoch: numbers(epoch, rows)),
        ordered=True,
        identity={"sampler": name},
        dealer=name,
        num_replicas=num_replicas(sampler) or 1,
    )


def _check_kind(sampler: Any) -> None:
    # These are iterable or callable, too, but not as a sampler is: a class that the user forgot to
    # instantiate, a name, weights without Weighted, and what gives batches.
    is_wrong = isinstance(sampler, (type, str, Mapping, BatchSampler))
    # An iterator has one epoch alone. torch's Sampler may be an iterator of itself.
    is_used_up = isinstance(sampler, Iterator) and not isinstance(sampler, Sampler)
    is_wrong = is_wrong or is_used_up
    if not is_wrong and (
        isinstance(sampler, (PerClass, Iterable)) or callable(sampler)
    ):
        return
    hint = ""
    got = repr(sampler)
    if isinstance(sampler, BatchSampler):
        hint = "; pass the sampler in it, and batch_size="
    if is_used_up:
        hint = ", which is used up after one epoch; pass list(...) of it"
        got = f"a {type(sampler).__name__}"
    raise ConfigError(
        "sampler: expected fastpipe.Weighted(...), PerClass, Repeated or Sequential, a torch "
        "Sampler, or a function of the epoch that returns numbers of samples, got "
        f"{got}{hint}"
    )


def _sampling_with_repeats(
    sampler: Repeated, data: Dataset, shuffle: bool, seed: int
) -> Sampling:
    times = whole("Repeated(times=)", sampler.times, least=1, most=_MAX_REPEATS)
    inner = parse_sampler(sampler.sampler, data, shuffle=shuffle, seed=seed)
    repeats = times * inner.repeats
    identity = dict(inner.identity)
    if repeats > 1:
        identity["repeats"] = repeats
    return replace(inner, repeats=repeats, identity=identity)


def _sampling_by_class(sampler: PerClass, data: Dataset) -> Sampling:
    samples = whole("PerClass(samples=)", sampler.samples, least=1, most=2**20)
    classes = 0
    if sampler.classes is not None:
        classes = whole("PerClass(classes=)", sampler.classes, least=1, most=2**20)
    _warn_of_small_classes(data, samples)
    return Sampling(
        by_class=ClassBatches(classes, samples, data.targets),
        ordered=True,
        labelled=True,
        identity={"per_class": [classes, samples]},
    )


def _warn_of_small_classes(data: Dataset, samples: int) -> None:
    """Says if PerClass repeats images within a batch, and not in a rare class only."""
    counts = np.array([count for count in data.class_counts if count])
    num_small = int((counts < samples).sum())
    if num_small <= _FEW_SMALL_CLASSES * len(counts):
        return
    verb = "has" if num_small == 1 else "have"
    median = int(np.median(counts))
    remedy = f"Half of the classes have {median} or more: a smaller number fits them"
    if median >= samples:
        remedy = (
            "To leave them out: data.only([name for name, count in zip(data.classes, data.class_counts) "
            f"if count >= {samples}])"
        )
    warn_once(
        f"small classes {data.path} {samples}",
        f"PerClass({samples}): {num_small:,} of {format_count(len(counts), 'class')} of {data.path} "
        f"{verb} fewer than {samples} samples, so a batch has the same image several times. {remedy}",
    )


def _sampling_by_weights(sampler: Weighted, data: Dataset, shuffle: bool) -> Sampling:
    draws = parse_weighted_draws(
        sampler.weights, sampler.replacement, data, shuffle=shuffle
    )
    return Sampling(
        draws.picks,
        labelled=draws.of_classes,
        identity={"weights": draws.mark},
        weighted=sampler,
    )
