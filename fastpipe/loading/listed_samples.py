"""A torch Sampler, a list, or a function of the epoch -> numbers of samples, by the seed."""

from __future__ import annotations

import copy
import inspect
import random
import sys
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import torch

from fastpipe.arrays import Int64s
from fastpipe.dataset.choosing import parse_ids
from fastpipe.dataset.dataset import Dataset
from fastpipe.dataset.order_of_keys import warn_of_weights_in_order_of_keys
from fastpipe.device.augment.foreign import seeded
from fastpipe.errors import ConfigError
from fastpipe.plan.draws import Stream, key

# torch's samplers of a dataset -> the attribute that is the dataset. A class of a user may have the
# attribute and mean something else by it.
_SOURCES: dict[type, str] = {
    torch.utils.data.SequentialSampler: "data_source",
    torch.utils.data.RandomSampler: "data_source",
    torch.utils.data.DistributedSampler: "dataset",
}


class NumbersFunction(Protocol):
    """Epoch, rows of a global batch -> the numbers of the samples of all ranks."""

    def __call__(self, epoch: int, rows: int, num_calls: int = 1) -> Int64s:
        """`num_calls`: the sampler is called so often, and the last result counts."""


def make_numbers_function(sampler: Any, data: Dataset, seed: int) -> NumbersFunction:
    """Makes a function that asks the sampler.

    Raises ConfigError if the sampler's numbers do not follow from the epoch: a resumed run would
    get other samples.
    """
    _check_takes_epoch(sampler)
    _check_source(sampler, len(data))
    if isinstance(sampler, torch.utils.data.WeightedRandomSampler):
        num_weights = len(sampler.weights)
        if num_weights != len(data):
            raise ConfigError(
                f"sampler: expected a WeightedRandomSampler of {len(data)} weights, one for each "
                f"sample; got {num_weights}. With a weight for each class, pass the weight of each "
                "sample's class, weights[data['label'][:]]; or "
                "sampler=fastpipe.Weighted(fastpipe.balanced(data))"
            )
        if not data.content.mixed:
            weights = sampler.weights.numpy()
            warn_of_weights_in_order_of_keys(data, weights, "WeightedRandomSampler")

    def numbers(epoch: int, rows: int, num_calls: int = 1) -> Int64s:
        seed_of_epoch = key(seed, epoch, Stream.LIST)
        given = _numbers_of_ranks(sampler, seed_of_epoch, epoch, rows, num_calls)
        last = len(data) - 1
        expected = f"sampler: expected whole numbers from 0 to {last} for epoch {epoch}"
        ids = parse_ids(given, len(data), expected)
        if not len(ids):
            raise ConfigError(f"{expected}; got none")
        return ids

    first = numbers(0, 1)
    if np.array_equal(first, numbers(0, 1, num_calls=2)):
        return numbers
    # A second call may give others, as of a list that is shuffled in place, if the first call
    # follows from the epoch alone.
    is_fixed = np.array_equal(first, numbers(1, 1))
    if is_fixed or not np.array_equal(first, numbers(0, 1)):
        raise ConfigError(
            "sampler: expected the same numbers each time that it is asked for an epoch; asked "
            "twice for epoch 0, it gave others. It counts its calls, or draws from a generator "
            "that is not its attribute. Pass a function of the epoch, lambda epoch: "
            "np.random.default_rng(epoch).permutation(n), or one with set_epoch(epoch)"
        )
    return numbers


def num_replicas(sampler: object) -> int | None:
    """To how many ranks a sampler deals its numbers out, as torch's DistributedSampler; or None."""
    return getattr(sampler, "num_replicas", None)


def _check_takes_epoch(sampler: Any) -> None:
    """Raises ConfigError if a function cannot be called with the number of an epoch alone."""
    if isinstance(sampler, Iterable):
        return
    try:
        signature = inspect.signature(sampler)
    except (TypeError, ValueError):  # some functions written in C have none
        return
    try:
        signature.bind(0)
    except TypeError as problem:
        raise ConfigError(
            f"sampler: expected a function of the epoch's number, got one that takes {signature} "
            f"({problem}). Write lambda epoch: ..."
        ) from None


def _check_source(sampler: object, count: int) -> None:
    """Raises ConfigError if a sampler of torch was made of a dataset of another length.

    `count`: samples of the loader's dataset. A range says which numbers are wanted.
    """
    name = _SOURCES.get(type(sampler))
    if name is None:
        return
    source = getattr(sampler, name)
    if isinstance(source, range) or len(source) == count:
        return
    sampler_name = type(sampler).__name__
    raise ConfigError(
        f"sampler: expected a {sampler_name} of the loader's own dataset, which has {count} samples, "
        f"got one of a {type(source).__name__} with {len(source)}. Write {sampler_name}(data) with "
        f"the data of this loader; for the numbers from 0 on alone {sampler_name}(range({len(source)}))"
    )


def _numbers_of_ranks(
    sampler: Any, seed: int, epoch: int, rows: int, num_calls: int
) -> Any:
    """The numbers that a sampler or function gives for an epoch, with all generators seeded.

    Of a sampler that splits its numbers among ranks: those of all ranks, batch by batch. A sampler
    is called `num_calls` times, because a second call may give others than the first.

    `rows`: of a global batch.
    """
    # A DistributedSampler gives the numbers of one rank, `rank`, and the loader shares out the
    # numbers of all ranks. So it is asked for each rank.
    replicas = num_replicas(sampler)
    by_rank: list[Any] = []
    for rank in range(replicas or 1):
        sampler_copy = copy.copy(sampler)  # the user's own is not changed
        if replicas:
            sampler_copy.rank = rank
        if hasattr(sampler_copy, "set_epoch"):
            sampler_copy.set_epoch(epoch)
        for _ in range(num_calls):
            numbers = _call(sampler_copy, seed, epoch)
        by_rank.append(numbers)
    if not replicas:
        return by_rank[0]

    # In the order of a global batch: first the rows of rank 0, then those of rank 1, and so on. The
    # loader cuts a batch into the same pieces, so each rank gets what its own sampler would give.
    # Where the rows of a batch do not divide by the ranks, the numbers of ranks alternate.
    rows_of_rank = 1
    if rows % len(by_rank) == 0:
        rows_of_rank = max(1, rows // len(by_rank))
    most = max(len(numbers) for numbers in by_rank)
    numbers_of_all = []
    for start in range(0, most, rows_of_rank):
        for numbers in by_rank:
            numbers_of_all += numbers[start : start + rows_of_rank]
    return numbers_of_all


def _make_generator_like(value: object, seed: int) -> object | None:
    """Makes a generator of the same kind; None: the value is not a generator."""
    if isinstance(value, torch.Generator):
        return torch.Generator().manual_seed(seed)
    if isinstance(value, random.Random):
        return random.Random(seed)
    # NumPy imports its generators when a program first names them: with a value of them it has.
    if "numpy.random" not in sys.modules:
        return None
    if isinstance(value, np.random.Generator):
        return np.random.default_rng(seed)
    if isinstance(value, np.random.RandomState):
        return np.random.RandomState(seed % 2**32)
    return None


def _call(sampler: Any, seed: int, epoch: int) -> Any:
    """Calls a sampler once, with copies of its generators and lists."""
    # With another generator of the same kind the user's is not drawn from, and with a copy of a
    # list the user's is not shuffled.
    attributes = getattr(sampler, "__dict__", {})
    for name, value in attributes.items():
        if isinstance(value, (list, np.ndarray)):
            setattr(sampler, name, copy.copy(value))
        generator = _make_generator_like(value, seed)
        if generator is not None:
            setattr(sampler, name, generator)
    with seeded(torch.device("cpu"), seed), torch.device("cpu"):
        numbers = sampler
        if not isinstance(sampler, Iterable):
            numbers = sampler(epoch)
        is_array = isinstance(numbers, (np.ndarray, torch.Tensor))
        if isinstance(numbers, Iterable) and not is_array:
            # The draws of an iterator have to happen here, where the generators are seeded.
            return list(numbers)
        return numbers
