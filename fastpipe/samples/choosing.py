"""What a user says of the samples that stay (numbers, a mask, keys, a function, a part) -> their ids, or an error."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.format.sample_layout import key_hash
from fastpipe.plan.content import Content
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.samples.by_id import Column, spans
from fastpipe.samples.data import Data


class Columns(Mapping[str, Any]):
    """The columns of some samples of a dataset, as a function that chooses gets them: numpy arrays, read when they are
    asked for.
    """

    def __init__(self, data: Data, start: int, stop: int) -> None:
        self._data, self._span = data, slice(start, stop)

    def __getitem__(self, name: str) -> Any:
        return self._data.column(name)[self._span]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data.columns)

    def __len__(self) -> int:
        return len(self._data.columns)


def chosen_ids(data: Data, chosen: Any) -> NDArray[np.int64]:
    """The ids that `select` keeps, each once.

    Raises:
        ConfigError: it is no choice of samples, or none is left.
    """
    count = len(data)
    expected = (
        f"select: expected numbers of samples from 0 to {count - 1}, a mask of {count} True and False, keys, or a "
        "function of columns that returns a mask"
    )
    if callable(chosen):
        chosen = _mask_of(data, chosen, expected)
    if isinstance(chosen, str):
        chosen = [chosen]
    if isinstance(chosen, (np.ndarray, Column)) and chosen.dtype.kind in "UO":
        chosen = chosen.tolist()
    if isinstance(chosen, (list, tuple)) and chosen and isinstance(chosen[0], str):
        chosen = ids_of_keys(data.content, chosen, "select")
    try:
        given = np.asarray(chosen)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise ConfigError(f"{expected}; got {type(chosen).__name__}: {problem}") from problem
    if given.ndim != 1:
        raise ConfigError(f"{expected}; got {f'shape {given.shape}' if given.ndim else repr(chosen)}")
    if given.dtype == np.bool_:
        if len(given) != count:
            raise ConfigError(f"{expected}; got a mask of {len(given)}")
        given = np.flatnonzero(given)
    elif len(given) and given.dtype.kind not in "iu":
        raise ConfigError(f"{expected}; got {given.dtype}")
    elif len(given):
        low, high = int(given.min()), int(given.max())
        if low < 0 or high >= count:
            raise ConfigError(f"{expected}; got {low if low < 0 else high}")
        ascending = np.sort(given)
        twice = ascending[1:][ascending[1:] == ascending[:-1]]
        if len(twice):
            raise ConfigError(
                f"select: expected each number once, got {int(twice[0])} again; for samples that come more often pass "
                "sampler=fastpipe.Weighted(...), fastpipe.Repeated(...) or a function of the epoch to fastpipe.loader"
            )
    return given.astype(np.int64)


def _mask_of(data: Data, function: Callable[[Columns], Any], expected: str) -> NDArray[np.bool_]:
    found = [np.empty(0, dtype=np.bool_)]
    for ids in spans(len(data)):
        mask = np.asarray(function(Columns(data, int(ids[0]), int(ids[-1]) + 1)))
        if mask.dtype != np.bool_ or mask.shape != ids.shape:
            raise ConfigError(
                f"{expected}; the function returned {mask.dtype} of shape {mask.shape} for {len(ids)} samples"
            )
        found.append(mask)
    return np.concatenate(found)


def ids_of_keys(content: Content, keys: Sequence[object], option: str, end: str = "") -> NDArray[np.int64]:
    """The ids of the samples that have these keys: a key outlives a packing, a number does not.

    Raises:
        ConfigError: not exactly one sample has a key; `option` begins the message, and `end` ends it.
        DatasetError: the index cannot be read.
    """
    wanted = np.array([key_hash(str(key)) for key in keys], dtype=np.uint64)
    ascending, inverse = np.unique(wanted, return_inverse=True)
    found, times = np.zeros((2, len(ascending)), dtype=np.int64)
    for ids in spans(len(content)):
        hashes = content.index.hashes(content.numbers(ids), "key")
        places = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
        hit = ascending[places] == hashes
        found[places[hit]] = ids[hit]
        np.add.at(times, places[hit], 1)
    wrong = np.flatnonzero(times[inverse] != 1)
    if len(wrong):
        raise ConfigError(
            f"{option}: {content.index.path} has {int(times[inverse][wrong[0]]) or 'no'} samples with the key "
            f'{keys[wrong[0]]!r}; expected one. A key is the path of the source, as fields= gives it as "key"{end}'
        )
    numbers: NDArray[np.int64] = found[inverse]
    return numbers


def by_hash(content: Content, stream: Stream, low: float, high: float) -> NDArray[np.bool_]:
    """(n,) which samples have a hash in [low, high) of [0, 1): by the identity of each picture, however and wherever it
    is stored.
    """
    found = np.empty(len(content), dtype=np.bool_)
    name = key(0, 0, stream)
    for ids in spans(len(content)):
        identities = content.index.hashes(content.numbers(ids), "identity")
        draws = uniform(name, identities.astype(np.uint64).view(np.int64))
        found[ids] = (draws >= low) & (draws < high)
    return found


def near(name: object, names: Sequence[str]) -> str:
    """The end of a message about a class that is not there."""
    if not names:
        return ": it has no classes"
    found = difflib.get_close_matches(str(name), names, n=1)
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"; did you mean {found[0]!r}?" if found else f"; it has {', '.join(map(repr, names[:5]))}{more}"
