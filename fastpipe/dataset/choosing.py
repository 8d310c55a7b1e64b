"""A user's choice of samples (numbers, a mask, keys, a function, a share) -> their ids."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.dataset.base_dataset import BaseDataset
from fastpipe.dataset.by_id import Column, spans
from fastpipe.dataset.format.sample_layout import key_hash
from fastpipe.errors import ConfigError, first_names
from fastpipe.plan.content import Content
from fastpipe.plan.draws import Bools, Float64s, Int64s, Stream, key, uniform

_NAMES_SHOWN = 5  # in a message


class Columns(Mapping[str, Any]):
    """The columns of some samples, for a function that chooses among them.

    They are numpy arrays, read when they are asked for.
    """

    def __init__(self, data: BaseDataset, start: int, stop: int) -> None:
        self._data = data
        self._ids = slice(start, stop)

    def __getitem__(self, name: str) -> Any:
        return self._data.column(name)[self._ids]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data.columns)

    def __len__(self) -> int:
        return len(self._data.columns)


def array_of(given: Any, expected: str) -> NDArray[Any]:
    """A user's value as an array. ConfigError, which begins with `expected`: it cannot be one."""
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as problem:
        # RuntimeError: it needs a gradient.
        raise ConfigError(
            f"{expected}; got {type(given).__name__}: {problem}"
        ) from problem


def parse_ids(given: Any, count: int, expected: str) -> Int64s:
    """A user's numbers of samples as ids.

    Args:
        given: (n,) whole numbers, or none.
        count: of the samples; each number is below it.
        expected: begins the message of an error.

    Raises:
        ConfigError: they are not such numbers.
    """
    numbers = array_of(given, expected)
    if numbers.ndim == 0:
        raise ConfigError(f"{expected}; got {numbers.tolist()!r}")
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise ConfigError(f"{expected}; got {numbers.dtype} of shape {numbers.shape}")
    wrong = numbers[(numbers < 0) | (numbers >= count)]
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

    if isinstance(chosen, str):
        chosen = [chosen]
    # Numbers, a mask or keys, in whatever a user has them in: a list, an array, a column, a tensor.
    if isinstance(chosen, (np.ndarray, Column)) and chosen.dtype.kind in "UO":
        chosen = chosen.tolist()
    if isinstance(chosen, (list, tuple)) and chosen and isinstance(chosen[0], str):
        chosen = find_keys(data.content, chosen, "select")

    array = array_of(chosen, expected)
    if array.dtype == np.bool_:
        if array.shape != (count,):
            shape = " x ".join(map(str, array.shape))
            raise ConfigError(f"{expected}; got a mask of {shape}")
        return np.flatnonzero(array)

    ids = parse_ids(array, count, expected)
    ascending = np.sort(ids)
    repeated = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(repeated):
        raise ConfigError(
            f"select: expected each number once, got {int(repeated[0])} again; for samples that "
            "come more often pass sampler=fastpipe.Weighted(...), fastpipe.Repeated(...) or a "
            "function of the epoch to fastpipe.loader"
        )
    return ids


def _call_by_spans(
    data: BaseDataset, function: Callable[[Columns], Any], expected: str
) -> Bools:
    """(samples,) the mask that a user's function returns; it gets some samples at a time."""
    masks = [np.empty(0, dtype=np.bool_)]
    for ids in spans(len(data)):
        columns = Columns(data, int(ids[0]), int(ids[-1]) + 1)
        mask = np.asarray(function(columns))
        if mask.dtype != np.bool_ or mask.shape != ids.shape:
            raise ConfigError(
                f"{expected}; the function returned {mask.dtype} of shape {mask.shape} for "
                f"{len(ids)} samples"
            )
        masks.append(mask)
    return np.concatenate(masks)


def find_keys(
    content: Content, keys: Sequence[object], option: str, end: str = ""
) -> Int64s:
    """The ids of the samples that have these keys: a key outlives a packing, a number does not.

    Args:
        content: the samples.
        keys: source paths.
        option: begins the message of an error.
        end: ends it.

    Raises:
        ConfigError: a key is that of no sample, or of several.
    """
    # The index has the hashes of keys alone. So all of them are compared with the wanted ones, some
    # samples at a time, and no path is read.
    key_hashes = np.array([key_hash(str(key)) for key in keys], dtype=np.uint64)
    distinct, position_of_key = np.unique(key_hashes, return_inverse=True)
    # (distinct,) the last sample that has the hash, and how many have it.
    sample_ids = np.zeros(len(distinct), dtype=np.int64)
    counts = np.zeros(len(distinct), dtype=np.int64)
    for ids in spans(len(content)):
        hashes = content.index.hashes(content.numbers(ids), "key")
        positions = np.minimum(np.searchsorted(distinct, hashes), len(distinct) - 1)
        is_hit = distinct[positions] == hashes
        sample_ids[positions[is_hit]] = ids[is_hit]
        np.add.at(counts, positions[is_hit], 1)

    wrong = np.flatnonzero(counts[position_of_key] != 1)
    if len(wrong):
        count = int(counts[position_of_key][wrong[0]])
        raise ConfigError(
            f"{option}: {content.index.path} has {count or 'no'} samples with the key "
            f"{keys[wrong[0]]!r}; expected one. A key is the path of the source, as fields= gives "
            f'it as "key"{end}'
        )
    return np.asarray(sample_ids[position_of_key])


def draws_of_pictures(content: Content, stream: Stream) -> Float64s:
    """(n,) a draw of [0, 1) for each sample.

    The identity of its picture decides, however and wherever it is stored.
    """
    return uniform(key(0, 0, stream), pictures_of(content).view(np.int64))


def pictures_of(content: Content) -> NDArray[np.uint64]:
    """(n,) the identity of the picture of each sample.

    Raises:
        DatasetError: a file that is not packed cannot be read.
    """
    identities = np.empty(len(content), dtype=np.uint64)
    for ids in spans(len(content)):
        hashes = content.index.hashes(content.numbers(ids), "identity")
        identities[ids] = hashes.astype(np.uint64)
    return identities


def near(name: object, names: Sequence[str]) -> str:
    """The end of a message about a class that the dataset does not have: a similar name."""
    if not names:
        return ": it has no classes"
    matches = difflib.get_close_matches(str(name), names, n=1)
    if matches:
        return f"; did you mean {matches[0]!r}?"
    shown = first_names([repr(known) for known in names], _NAMES_SHOWN)
    return f"; it has {shown}"
