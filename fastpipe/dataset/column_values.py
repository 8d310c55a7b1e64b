"""The values of a dataset's samples, by their ids: read when they are needed, and only those.

A column has `take`, which gets (n,) ids of samples and returns their values (plan.content.ById).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.dataset.comparing import refuse_text_in
from fastpipe.dataset.format.columns import Ragged
from fastpipe.dataset.format.fields import RESERVED
from fastpipe.dataset.format.open_file import OpenFile, Rows
from fastpipe.errors import ConfigError, DatasetError, in_one_line
from fastpipe.plan.content import ColumnReader

# Rows that are read at once: few enough for memory, and enough that numpy's calls take no time.
_AT_ONCE = 1 << 20


class UserColumn:
    """A value for each sample that a user gave: an array in memory, or an .npy file.

    Of a file only the rows that are needed are read. Its pickle has the path, the size and the time
    of the file, and not its values. So it is small, and another process notices a changed file.
    """

    def __init__(self, source: NDArray[Any] | Path) -> None:
        self._source = source
        # Size and time of the file when it was first opened; None: not yet, or no file.
        self._state: tuple[int, int] | None = None

    @cached_property
    def _file(self) -> OpenFile:
        assert isinstance(self._source, Path)
        return OpenFile(self._source)

    @cached_property
    def rows(self) -> NDArray[Any]:
        """(n, ...) all values; of a file, a map of it.

        Raises:
            ConfigError: it is not an .npy file of rows.
            DatasetError: it has changed.
        """
        if not isinstance(self._source, Path):
            return self._source
        # Of the open file, and not of its path, which may be another file by now.
        status = os.fstat(self._file.descriptor)
        state = (status.st_size, status.st_mtime_ns)
        if self._state not in (None, state):
            raise DatasetError(
                f"{self._source} has changed since it became a column of a dataset: expected the "
                "same file; pass it to with_column or with_labels again"
            )
        self._state = state
        try:
            rows: NDArray[Any] = np.load(
                self._source, mmap_mode="r", allow_pickle=False
            )
            # In Fortran's order the numbers of a row lie far apart, so no row could be read alone.
            if not rows.flags.c_contiguous:
                raise ValueError(
                    "its rows are not in C order; save np.ascontiguousarray(values)"
                )
        except (OSError, ValueError) as problem:
            raise ConfigError(
                f"{self._source}: expected an .npy file with a row for each sample: {problem}"
            ) from problem
        return rows

    @cached_property
    def _read_rows(self) -> Callable[[Int64s], NDArray[Any]]:
        """Reads rows by their numbers: from the array, or from the file."""
        rows = self.rows
        # Rows of shape (0,) have no bytes to read.
        has_bytes = bool(rows[:1].nbytes)
        if not isinstance(rows, np.memmap) or not has_bytes:
            return rows.__getitem__
        # Not through the map: Note [records of the index] in format/open_file.py.
        row_dtype = np.dtype((rows.dtype, rows.shape[1:]))
        return Rows(self._file, rows.offset, row_dtype).take

    def take(self, ids: Int64s) -> Any:
        """(n, ...) numbers, or a list of n texts."""
        # A file may have the other byte order, which torch does not take.
        native_dtype = self.rows.dtype.newbyteorder("=")
        values = self._read_rows(ids).astype(native_dtype)
        if values.dtype.kind == "U":
            return values.tolist()
        return values

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source, "_state": self._state}


class DerivedColumn:
    """Another column, of all or some of its ids, and changed by a function.

    Args:
        column: the other column.
        function: gets its values; None: they stay as they are.
        ids: (n,) of the other column; None: all of them, in their order.
    """

    def __init__(
        self,
        column: ColumnReader,
        function: Callable[[Any], Any] | None = None,
        ids: Int64s | None = None,
    ) -> None:
        self._column = column
        self._function = function
        self._ids = ids

    def take(self, ids: Int64s) -> Any:
        """The values, in the form in which the column or the function returns them."""
        if self._ids is not None:
            ids = self._ids[ids]
        values = self._column.take(ids)
        if self._function is None:
            return values
        return self._function(values)


class Column(np.lib.mixins.NDArrayOperatorsMixin):
    """The values of one field of all samples of a dataset: `data["label"]`.

    `column[17]`, `column[3:9]` and `column[numbers]` read these values only, from the disk.
    `np.asarray(column)`, and any calculation or comparison with it, reads all of them. Numbers
    come as numpy arrays; texts as arrays of objects.
    """

    def __init__(self, column: ColumnReader, count: int, name: str) -> None:
        self._column = column
        self._count = count
        self._name = name

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: Any) -> Any:
        # As in numpy, the first index is that of samples, and further ones are of their values.
        value_indices: tuple[Any, ...] = ()
        if isinstance(key, tuple) and key:
            key, *rest = key
            value_indices = tuple(rest)
        ids = _parse_ids(key, self._count)
        samples = self._column.take(np.atleast_1d(ids))
        values = as_array(samples)[:, *value_indices]
        if (
            np.ndim(ids) == 0
        ):  # of a single sample its value, without the axis of samples
            return values[0]
        return values

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        message = (
            f"the column {self._name!r} is read from the disk and cannot be changed: change a "
            f"copy, values = np.array(data[{self._name!r}])"
        )
        if self._name == "label":
            message += ", and make a dataset with it: data = data.with_labels(values)"
        elif self._name not in RESERVED:
            call = f"data.with_column({self._name!r}, values)"
            message += f", and make a dataset with it: data = {call}"
        raise TypeError(message)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                f"the column {self._name!r} is read from the disk, so an array of it is always a "
                "copy: use np.asarray(column), or copy=None"
            )
        parts = [self[ids] for ids in spans(self._count)]
        # The usual case needs no second copy.
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return values if dtype is None else values.astype(dtype)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        for value in inputs:
            if value is not self:
                refuse_text_in(ufunc, self._name, self, value)
        arrays = []
        for value in inputs:
            if isinstance(value, Column):
                value = np.asarray(value)
            arrays.append(value)
        return getattr(ufunc, method)(*arrays, **kwargs)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values, found by reading none of them."""
        return np.asarray(self[:0]).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """(samples, ...)"""
        value_shape = self[:0].shape[1:]
        return self._count, *value_shape

    def __iter__(self) -> Iterator[Any]:
        for ids in spans(self._count):
            yield from self[ids]

    def __getattr__(self, name: str) -> Any:
        """The methods and attributes of numpy's arrays: mean(), max(), tolist(), ..."""
        # numpy, torch and pickle look for special methods. None of them may read the whole column.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __repr__(self) -> str:
        texts = [in_one_line(value) for value in self[:5]]
        if self._count > len(texts):
            texts.append("...")
        return f"<column {self._name!r} of {self._count:,} samples: {', '.join(texts)}>"


def _parse_ids(key: Any, count: int) -> Int64s:
    """An index of a user, as numpy takes it -> ids, (n,), or a single id, ().

    Raises:
        IndexError: it is out of range, or no index of samples.
    """
    if isinstance(key, slice):
        start, stop, step = key.indices(count)
        return np.arange(start, stop, step, dtype=np.int64)
    array = np.asarray(key)
    is_mask = array.dtype == np.bool_ and array.shape == (count,)
    if is_mask:
        return np.flatnonzero(array)
    # An empty list is an array of floats, and a valid choice of no samples.
    is_integer = array.dtype.kind in "iu"
    is_choice = is_integer or array.size == 0
    if array.ndim > 1 or not is_choice:
        raise _index_error(key, count)
    ids = array.astype(np.int64)
    is_outside = (ids < -count) | (ids >= count)
    if bool(is_outside.any()):
        raise _index_error(key, count)
    # Negative numbers count from the end.
    is_from_end = ids < 0
    return np.where(is_from_end, ids + count, ids)


def _index_error(key: Any, count: int) -> IndexError:
    return IndexError(
        f"expected numbers of samples below {count}, or a mask of {count}, got {key!r:.60}"
    )


def as_array(values: Any) -> NDArray[Any]:
    """Values of a column, as `take` returns them -> (n, ...) numbers, or (n,) objects.

    Objects are texts, or arrays of several lengths.
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, Ragged):
        # Of no samples, np.split would return one empty part.
        has_samples = len(values.offsets) > 1
        inner_offsets = values.offsets[1:-1]
        values = np.split(values.values, inner_offsets) if has_samples else []
    # np.array would make a matrix of arrays that happen to have one length.
    return np.fromiter(values, dtype=object, count=len(values))


def spans(count: int) -> Iterator[Int64s]:
    """The ids of `count` samples, (n,) at a time, so that a billion of them fit into memory."""
    for start in range(0, count, _AT_ONCE):
        stop = min(start + _AT_ONCE, count)
        yield np.arange(start, stop, dtype=np.int64)
