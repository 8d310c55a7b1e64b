"""A user's choice of samples (numbers, a mask, keys, a function, a share) -> their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Bools, Float64s, Int64s, Uint64s
from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.column_values import Column, spans
from fastpipe.dataset.comparing import Labels
from fastpipe.dataset.format.sample_layout import key_hashes
from fastpipe.errors import ConfigError, DatasetError
from fastpipe.plan.content import Content
from fastpipe.plan.draws import Stream, key, uniform


class Columns(Mapping[str, Any]):
    """The columns of some samples, for a function that chooses among them.

    They are numpy arrays, read when they are asked for.
    """

    def __init__(self, data: BaseDataset, start: int, stop: int) -> None:
        self._data = data
        self._ids = slice(start, stop)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise ConfigError(
                f"select: the function gets the columns of many samples, and not a sample; got "
                f"[{name!r}]. Write data.select(lambda columns: columns['label'] == 2)"
            )
        values = self._data.column(name)[self._ids]
        return values.view(Labels) if name == "label" else values

    def __iter__(self) -> Iterator[str]:
        return iter(self._data.columns)

    def __len__(self) -> int:
        return len(self._data.columns)


def to_array(given: Any, expected: str) -> NDArray[Any]:
    """A user's value as an array. ConfigError, which begins with `expected`: it cannot be one."""
    try:
        return np.asarray(given)
    # ValueError: rows of several lengths. TypeError: a tensor on a GPU. RuntimeError: a tensor that
    # needs a gradient.
    except (ValueError, TypeError, RuntimeError) as problem:
        raise ConfigError(
            f"{expected}; got {type(given).__name__}: {problem}"
        ) from problem


def check_index(data: BaseDataset, method: str, given: object) -> None:
    """Raises ConfigError if values of pandas are indexed by the samples' keys in another order.

    `method` begins the message. An index of numbers says nothing: those of a sorted table are in
    another order, too.
    """
    index: Any = getattr(given, "index", None)
    if not hasattr(index, "to_numpy") or len(index) != len(data):
        return
    names = index.to_numpy().tolist()
    if not names or not isinstance(names[0], str):
        return
    try:
        keys = np.asarray(data.column("key")).tolist()
    except DatasetError:
        return  # whoever reads a damaged record gets the error
    if names != keys and set(names) == set(keys):
        raise ConfigError(
            f"{method}: expected values in the order of data['key'], got a {type(given).__name__} "
            "whose index has the keys in another order. Pass values.reindex(list(data['key']))"
        )


def parse_ids(given: Any, count: int, expected: str) -> Int64s:
    """A user's numbers of samples as ids.

    Args:
        given: (n,) whole numbers, or none.
        count: of the samples; each number is below it.
        expected: begins the message of an error.

    Raises:
        ConfigError: they are not such numbers.
    """
    numbers = to_array(given, expected)
    if numbers.ndim == 0:  # shown itself, since a single value is short
        raise ConfigError(f"{expected}; got {numbers.tolist()!r}")
    # An empty list becomes an array of float64, and is a choice of no sample.
    is_integer = numbers.dtype.kind in "iu"
    is_choice = is_integer or len(numbers) == 0
    if numbers.ndim != 1 or not is_choice:
        raise ConfigError(f"{expected}; got {numbers.dtype} of shape {numbers.shape}")
    is_outside = (numbers < 0) | (numbers >= count)
    wrong = numbers[is_outside]
    if len(wrong):
        raise ConfigError(f"{expected}; got {wrong[0]}")
    return numbers.astype(np.int64)


def parse_choice(data: BaseDataset, chosen: Any) -> Int64s:
    """The ids that `select` keeps, each once. ConfigError: it is not a choice of samples."""
    count = len(data)
    expected = (
        f"select: expected numbers of samples from 0 to {count - 1}, a mask of {count} True and "
        "False, keys, or a function of columns that returns a mask"
    )
    if callable(chosen):
        return np.flatnonzero(_call_by_spans(data, chosen, expected))

    # Keys: one text, or a list, an array or a column of texts.
    if isinstance(chosen, str):
        chosen = [chosen]
    if isinstance(chosen, (np.ndarray, Column)) and chosen.dtype.kind in "UO":
        chosen = chosen.tolist()
    is_sequence = isinstance(chosen, (list, tuple)) and len(chosen) > 0
    if is_sequence and isinstance(chosen[0], str):
        chosen = find_keys(data.content, chosen, "select")

    check_index(data, "select", chosen)
    # Numbers or a mask, also as a tensor. The ids of keys pass through here, too.
    array = to_array(chosen, expected)
    if array.dtype == np.bool_:
        if array.shape != (count,):
            shape = " x ".join(map(str, array.shape))
            raise ConfigError(f"{expected}; got a mask of {shape}")
        return np.flatnonzero(array)

    ids = parse_ids(array, count, expected)
    _check_each_once(ids)
    return ids


def _check_each_once(ids: Int64s) -> None:
    """Raises ConfigError if a number comes again."""
    ascending = np.sort(ids)
    # (n - 1,) whether a number equals the one before it.
    is_repeated = ascending[1:] == ascending[:-1]
    if is_repeated.any():
        repeated = ascending[1:][is_repeated]
        raise ConfigError(
            f"select: expected each number once, got {repeated[0]} again; for samples that "
            "come more often pass sampler=fastpipe.Weighted(...), fastpipe.Repeated(...) or a "
            "function of the epoch to fastpipe.loader"
        )


def _call_by_spans(
    data: BaseDataset, function: Callable[[Columns], Any], expected: str
) -> Bools:
    """(samples,) the mask that a user's function returns; it gets some samples at a time."""
    masks = [np.empty(0, dtype=np.bool_)]  # np.concatenate needs at least one
    for ids in spans(len(data)):
        first = int(ids[0])
        end = int(ids[-1]) + 1
        columns = Columns(data, first, end)
        mask = np.asarray(_call_with_columns(function, columns))
        if mask.dtype != np.bool_ or mask.shape != ids.shape:
            raise ConfigError(
                f"{expected}; the function returned {mask.dtype} of shape {mask.shape} for "
                f"{len(ids)} samples"
            )
        masks.append(mask)
    return np.concatenate(masks)


def _call_with_columns(function: Callable[[Columns], Any], columns: Columns) -> Any:
    """What a user's function of columns returns. ConfigError: it is one of a single sample."""
    try:
        return function(columns)
    except ValueError as problem:
        # numpy's words about an array of several values in place of one True or False.
        if "truth value of an array" not in str(problem):
            raise
        raise ConfigError(
            "select: the function gets columns, with the values of many samples at once, and used "
            "one as a single True or False. Write & for and, | for or, ~ for not, and brackets "
            "around comparisons: (columns['width'] > 64) & (columns['height'] > 64)"
        ) from problem


def find_keys(
    content: Content, keys: Sequence[object], option: str, end: str = ""
) -> Int64s:
    """The ids of the samples that have these keys.

    Keys stay the same when a source is packed again, and numbers do not.

    Args:
        content: the samples.
        keys: source paths.
        option: begins the message of an error.
        end: ends it.

    Raises:
        ConfigError: a key is that of no sample, or of several.
    """
    # The index has the hashes of keys alone. So the hashes of all samples are compared with the
    # wanted ones, some samples at a time, and no path is read.
    wanted_hashes = key_hashes(map(str, keys))
    # (d,) the different hashes, ascending; (keys,) where the hash of each key is among them.
    distinct, position_of_key = np.unique(wanted_hashes, return_inverse=True)
    # (d,) the last sample that has the hash, and how many samples have it.
    sample_ids = np.zeros(len(distinct), dtype=np.int64)
    counts = np.zeros(len(distinct), dtype=np.int64)
    last_position = len(distinct) - 1
    for ids in spans(len(content)):
        hashes = content.index.hashes(content.numbers(ids), "key")
        # (samples,) where each hash would be among the wanted ones; a hash above all of them is
        # put at the last, and does not equal it.
        positions = np.searchsorted(distinct, hashes)
        positions = np.minimum(positions, last_position)
        is_wanted = distinct[positions] == hashes
        wanted_positions = positions[is_wanted]
        sample_ids[wanted_positions] = ids[is_wanted]
        # Not counts[...] += 1, which counts a position that comes twice once.
        np.add.at(counts, wanted_positions, 1)

    counts_of_keys = counts[position_of_key]
    wrong = np.flatnonzero(counts_of_keys != 1)
    if len(wrong):
        first_wrong = int(wrong[0])
        count = int(counts_of_keys[first_wrong])
        if count:
            raise ConfigError(
                f"{option}: {content.index.path} has {count} samples with the source path "
                f"{keys[first_wrong]!r}; expected one. Pass numbers of samples"
            )
        if not end:
            end = ". Source paths are like 'cat/10.jpg': data[\"key\"] has them"
        raise ConfigError(
            f"{option}: {content.index.path} has no sample with the source path "
            f"{keys[first_wrong]!r}{end}"
        )
    return np.asarray(sample_ids[position_of_key])


def draw_by_picture(content: Content, stream: Stream) -> Float64s:
    """(n,) a draw of [0, 1) for each sample.

    The hash of its picture decides, however and wherever it is stored.
    """
    # uniform() takes int64; the bits are the same.
    hashes = hash_pictures(content).view(np.int64)
    return uniform(key(0, 0, stream), hashes)


def hash_pictures(content: Content) -> Uint64s:
    """(n,) a hash of the source file of each sample's picture.

    Raises:
        DatasetError: a file that is not packed cannot be read.
    """
    hashes = np.empty(len(content), dtype=np.uint64)
    for ids in spans(len(content)):
        numbers = content.numbers(ids)
        identities = content.index.hashes(numbers, "identity")
        hashes[ids] = identities.astype(np.uint64)
    return hashes
