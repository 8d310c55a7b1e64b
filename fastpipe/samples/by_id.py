"""Where the values of a dataset's samples come from -> the values at some of its places; nothing else is in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, DatasetError
from fastpipe.format.columns import Ragged
from fastpipe.format.open_file import OpenFile, Rows
from fastpipe.plan.content import ById
from fastpipe.plan.draws import Int64s

_AT_ONCE = 1 << 20  # rows


class Values:
    """A value for each sample, from an array in memory, or from an .npy file of this machine, of which the rows that
    are asked for are read. What is pickled of a file is its path, its size and its time.
    """

    def __init__(self, given: NDArray[Any] | Path) -> None:
        self._given = given
        self._state: tuple[int, int] | None = None  # of the file, when its rows were first asked for

    @cached_property
    def _file(self) -> OpenFile:
        assert isinstance(self._given, Path)
        return OpenFile(self._given)

    @cached_property
    def rows(self) -> NDArray[Any]:
        """(n, ...) all values; of a file, a map of it. ConfigError: it holds none; DatasetError: it has changed."""
        if not isinstance(self._given, Path):
            return self._given
        now = os.fstat(self._file.descriptor)
        state = now.st_size, now.st_mtime_ns
        if self._state not in (None, state):
            raise DatasetError(
                f"{self._given} has changed since it became a column of a dataset: expected the same file; pass it to "
                "with_column or with_labels again"
            )
        self._state = state
        try:
            found: NDArray[Any] = np.load(self._given, mmap_mode="r", allow_pickle=False)
            if not found.flags.c_contiguous:
                raise ValueError("its rows are not in C order; save np.ascontiguousarray(values)")
        except (OSError, ValueError) as problem:
            raise ConfigError(
                f"{self._given}: expected an .npy file with a row for each sample: {problem}"
            ) from problem
        return found

    @cached_property
    def _read(self) -> Callable[[Int64s], NDArray[Any]]:
        rows = self.rows
        if not isinstance(rows, np.memmap) or not rows[:1].nbytes:
            return rows.__getitem__
        return Rows(self._file, rows.offset, np.dtype((rows.dtype, rows.shape[1:]))).take

    def take(self, ids: Int64s) -> Any:
        """(n, ...), or a list of n texts."""
        found = self._read(ids).astype(self.rows.dtype.newbyteorder("="))
        return found.tolist() if found.dtype.kind == "U" else found

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": self._given, "_state": self._state}


class Derived:
    """The values of another column, of all or some of its ids; as they are, or what a function makes of them."""

    def __init__(self, column: ById, function: Callable[[Any], Any] | None = None, ids: Int64s | None = None) -> None:
        self._column, self._function, self._ids = column, function, ids

    def take(self, ids: Int64s) -> Any:
        """As the column or the function gives them."""
        found = self._column.take(ids if self._ids is None else self._ids[ids])
        return found if self._function is None else self._function(found)


class Column(np.lib.mixins.NDArrayOperatorsMixin):
    """The values of one field of all samples of a dataset: `data["label"]`.

    `column[17]`, `column[3:9]` and `column[numbers]` read these values only, from the disk. `np.asarray(column)`, and
    any calculation or comparison with it, reads all of them. Numbers come as numpy arrays; texts as arrays of objects.
    """

    def __init__(self, column: ById, count: int, name: str) -> None:
        self._column, self._count, self._name = column, count, name

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: Any) -> Any:
        first, *more = which if isinstance(which, tuple) and which else (which,)
        ids = _ids(first, self._count)
        found = as_array(self._column.take(np.atleast_1d(ids)))[:, *more]
        return found if np.ndim(ids) else found[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                f"the column {self._name!r} is read from the disk, so an array of it is always a copy: use "
                "np.asarray(column), or copy=None"
            )
        parts = [self[ids] for ids in spans(self._count)]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return found if dtype is None else found.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [np.asarray(each) if isinstance(each, Column) else each for each in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return np.asarray(self[:0]).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """(samples, ...)"""
        return self._count, *self[:0].shape[1:]

    def __iter__(self) -> Iterator[Any]:
        return (value for ids in spans(self._count) for value in self[ids])

    def __getattr__(self, name: str) -> Any:
        """What numpy's arrays have: mean(), max(), tolist(), ..."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __repr__(self) -> str:
        few = ", ".join(" ".join(str(value).split()) for value in self[:5])
        return f"<column {self._name!r} of {self._count:,} samples: {few}{', ...' * (self._count > 5)}>"


def _ids(which: Any, count: int) -> Int64s:
    """What a user asks for of a column, as numpy takes it -> ids."""
    if isinstance(which, slice):
        return np.arange(*which.indices(count), dtype=np.int64)
    given = np.asarray(which)
    if given.dtype == np.bool_ and given.shape == (count,):
        return np.flatnonzero(given)
    ids = given.astype(np.int64) if given.dtype.kind in "iu" else np.empty(0, dtype=np.int64)
    if given.ndim > 1 or ids.size != given.size or bool(((ids < -count) | (ids >= count)).any()):
        raise IndexError(f"expected numbers of samples below {count}, or a mask of {count}, got {which!r:.60}")
    return np.where(ids < 0, ids + count, ids)


def as_array(values: Any) -> NDArray[Any]:
    """Values as numpy has them: those that are no numbers as an array of objects, such as the boxes of samples."""
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, Ragged):
        values = np.split(values.values, values.offsets[1:-1]) if len(values.offsets) > 1 else []
    return np.fromiter(values, dtype=object, count=len(values))


def spans(count: int) -> Iterator[Int64s]:
    """All ids, some at a time."""
    for start in range(0, count, _AT_ONCE):
        yield np.arange(start, min(start + _AT_ONCE, count), dtype=np.int64)
