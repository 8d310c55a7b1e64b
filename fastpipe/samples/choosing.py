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
from fastpipe.plan.draws import Bools, Float64s, Int64s, Stream, key, uniform
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


def array_of(given: Any, expected: str) -> NDArray[Any]:
    """As numpy has it; ConfigError, which begins with `expected`, if numpy makes no array of it."""
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as problem:  # RuntimeError: a tensor with a gradient
        raise ConfigError(f"{expected}; got {type(given).__name__}: {problem}") from problem


def checked_ids(given: Any, count: int, expected: str) -> Int64s:
    """(n,) numbers of samples below `count`; ConfigError, which begins with `expected`, if they are none."""
    found = array_of(given, expected)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        what = f"{found.dtype} of shape {found.shape}" if found.ndim else repr(found.tolist())
        raise ConfigError(f"{expected}; got {what}")
    if len(wrong := found[(found < 0) | (found >= count)]):
        raise ConfigError(f"{expected}; got {wrong[0]}")
    return found.astype(np.int64)


def chosen_ids(data: Data, chosen: Any) -> Int64s:
    """The ids that `select` keeps, each once; ConfigError: it is no choice of samples."""
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
    given = array_of(chosen, expected)
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise ConfigError(f"{expected}; got a mask of {' x '.join(map(str, given.shape))}")
        return np.flatnonzero(given)
    ascending = np.sort(ids := checked_ids(given, count, expected))
    if len(twice := ascending[1:][ascending[1:] == ascending[:-1]]):
        raise ConfigError(
            f"select: expected each number once, got {int(twice[0])} again; for samples that come more often pass "
            "sampler=fastpipe.Weighted(...), fastpipe.Repeated(...) or a function of the epoch to fastpipe.loader"
        )
    return ids


def _mask_of(data: Data, function: Callable[[Columns], Any], expected: str) -> Bools:
    found = [np.empty(0, dtype=np.bool_)]
    for ids in spans(len(data)):
        mask = np.asarray(function(Columns(data, int(ids[0]), int(ids[-1]) + 1)))
        if mask.dtype != np.bool_ or mask.shape != ids.shape:
            raise ConfigError(
                f"{expected}; the function returned {mask.dtype} of shape {mask.shape} for {len(ids)} samples"
            )
        found.append(mask)
    return np.concatenate(found)


def ids_of_keys(content: Content, keys: Sequence[object], option: str, end: str = "") -> Int64s:
    """The ids of the samples that have these keys: a key outlives a packing, a number does not. Where not exactly one
    sample has a key: ConfigError, which `option` begins and `end` ends.
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
    return np.asarray(found[inverse])


def draws_of_pictures(content: Content, stream: Stream) -> Float64s:
    """(n,) a draw of [0, 1) for each sample: by the identity of its picture, however and wherever it is stored."""
    return uniform(key(0, 0, stream), pictures_of(content).view(np.int64))


def pictures_of(content: Content) -> NDArray[np.uint64]:
    """(n,) the identity of the picture of each sample. DatasetError: a file that is not packed cannot be read."""
    found = np.empty(len(content), dtype=np.uint64)
    for ids in spans(len(content)):
        found[ids] = content.index.hashes(content.numbers(ids), "identity").astype(np.uint64)
    return found


def near(name: object, names: Sequence[str]) -> str:
    """The end of a message about a class that is not there."""
    if not names:
        return ": it has no classes"
    found = difflib.get_close_matches(str(name), names, n=1)
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"; did you mean {found[0]!r}?" if found else f"; it has {', '.join(map(repr, names[:5]))}{more}"
