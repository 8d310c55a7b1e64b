"""index.npy -> its records: all of them mapped, or the records of some samples, copied from the file; other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.open_file import OpenFile


class Rows:
    """An open file of rows of one size, for rows here and there.

    Note [records of the index]
    Loaders and `fastpipe.Dataset` read rows from the file, not from a map of it. A file that has become too short, or a
    disk that fails, is then an error; looking at a map of it ends the process by SIGBUS. And a process that looks up
    random rows of a map comes to have all of its pages, of which those that no other process has yet count as its
    private memory. What is read leaves nothing behind.

    Threads and forked children may use the same one: nothing in it changes.
    """

    def __init__(self, file: OpenFile, first_byte: int, dtype: np.dtype[Any]) -> None:
        self._file = file
        self._first_byte = first_byte
        self._dtype = dtype

    @property
    def descriptor(self) -> int:
        """Of the file, as long as this object lives."""
        return self._file.descriptor

    def of(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """The rows of these numbers, which the file has; of the same shape, whatever it is. DatasetError: the file
        cannot be read, or has become too short.
        """
        size = self._dtype.itemsize
        starts = self._first_byte + numbers.ravel() * size
        data, places = self._file.gather(starts, starts + size)
        rows: NDArray[Any] = np.frombuffer(data, dtype=self._dtype)[places.reshape(numbers.shape) // size]
        return rows


class Records(Rows):
    """An open index.npy. DatasetError: it cannot be opened."""

    def __init__(self, file: Path, first_byte: int) -> None:
        super().__init__(OpenFile(file), first_byte, INDEX_DTYPE)


def map_records(file: Path, samples: int, repack: str) -> np.memmap[tuple[int], np.dtype[np.void]]:
    """All records of an index.npy, which has to have so many, memory-mapped; `repack` says how to make it anew.
    DatasetError: it is missing, damaged, or of another pack.
    """
    try:
        records = np.lib.format.open_memmap(file, mode="r")  # .npy only, no pickled objects
    except FileNotFoundError as problem:
        raise DatasetError(f"{file} is missing; {repack}") from problem
    except OSError as problem:  # of the system, which says nothing about the file
        raise DatasetError(
            f"{file} cannot be mapped: {problem.strerror}; expected a readable file of {samples:,} records of "
            f"{INDEX_DTYPE.itemsize} bytes. Check the disk and the limits on memory and open files (ulimit -v, ulimit "
            "-n)"
        ) from problem
    except Exception as problem:  # numpy reads the header with Python's own parser, which raises what it likes
        words = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise DatasetError(f"{file} is not a complete .npy file ({words}); {repack}") from problem
    if records.dtype != INDEX_DTYPE or records.shape != (samples,):
        raise DatasetError(
            f"{file} holds {records.shape} of {records.dtype}; expected ({samples},) of {INDEX_DTYPE}. The index and "
            f"dataset.json do not belong to the same dataset: {repack}"
        )
    return records
