"""index.npy -> its records: all of them mapped, or the records of some samples, copied from the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.read_at import read_at
from fastpipe.native import _engine

# Rows that lie closer to one another are read in one go: 5 kB more of memory cost less than one more system call.
_NEAR = 128


class Records:
    """An open index.npy, for rows here and there.

    Note [records of the index]
    Loaders and `fastpipe.Dataset` read rows from the file, not from a map of it. A file that has become too short, or a
    disk that fails, is then an error; looking at a map of it ends the process by SIGBUS. And a process that looks up
    random rows of a map comes to have all of its pages, of which those that no other process has yet count as its
    private memory. What is read leaves nothing behind.

    Threads and forked children may use the same one: nothing in it changes.

    Args:
        file: index.npy.
        first_byte: where its first record begins.

    Raises:
        DatasetError: the file cannot be opened.
    """

    def __init__(self, file: Path, first_byte: int) -> None:
        self._file = file
        self._first_byte = first_byte
        try:
            self._descriptor = _engine.Descriptor(os.open(file, os.O_RDONLY | os.O_CLOEXEC))  # closes itself
        except OSError as problem:
            raise DatasetError(
                f"{file} cannot be opened: {problem.strerror}; check that it exists, and check the disk and the limit "
                "on open files (ulimit -n)"
            ) from problem

    @property
    def descriptor(self) -> int:
        """Of the file, as long as this object lives."""
        return self._descriptor.number()

    def of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """The records of some samples.

        Args:
            samples: sample numbers in [0, samples of the dataset), of any shape.

        Returns:
            Their records, of the same shape and dtype INDEX_DTYPE.

        Raises:
            DatasetError: the file cannot be read, or has become too short.
        """
        numbers, where = np.unique(samples, return_inverse=True)
        if not len(numbers):
            return np.empty(samples.shape, dtype=INDEX_DTYPE)
        cuts = np.flatnonzero(np.diff(numbers) > _NEAR) + 1
        firsts = numbers[np.concatenate([[0], cuts])]
        counts = numbers[np.concatenate([cuts - 1, [-1]])] - firsts + 1
        joined = b"".join(map(self._read, firsts.tolist(), counts.tolist()))
        before = np.cumsum(counts) - counts - firsts  # from a sample's number to its place in what was read
        places = numbers + np.repeat(before, np.diff(np.concatenate([[0], cuts, [len(numbers)]])))
        records: NDArray[np.void] = np.frombuffer(joined, dtype=INDEX_DTYPE)[places[where.reshape(samples.shape)]]
        return records

    def _read(self, first: int, count: int) -> bytes:
        offset = self._first_byte + first * INDEX_DTYPE.itemsize
        wanted = count * INDEX_DTYPE.itemsize
        try:
            data = read_at(self.descriptor, wanted, offset)
        except OSError as problem:
            raise DatasetError(
                f"{self._file} cannot be read: {problem.strerror}, for {wanted:,} bytes at byte {offset:,}; check the "
                "disk or the network, or copy the dataset to another disk"
            ) from problem
        if len(data) < wanted:
            raise DatasetError(
                f"{self._file} was truncated after it was opened: expected {wanted:,} bytes at byte {offset:,}, got "
                f"{len(data):,}. Restore it (fastpipe verify DATA --repair SRC). While a dataset is in use, pack into "
                "another folder"
            )
        return data


def map_records(file: Path, samples: int, repack: str) -> np.memmap[tuple[int], np.dtype[np.void]]:
    """All records, memory-mapped.

    Args:
        file: index.npy.
        samples: how many records it has to have.
        repack: how to make it anew, for messages.

    Raises:
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
        raise DatasetError(f"{file} is not a complete .npy file ({_in_short(problem)}); {repack}") from problem
    if records.dtype != INDEX_DTYPE or records.shape != (samples,):
        raise DatasetError(
            f"{file} holds {records.shape} of {records.dtype}; expected ({samples},) of {INDEX_DTYPE}. The index and "
            f"dataset.json do not belong to the same dataset: {repack}"
        )
    return records


def _in_short(problem: Exception) -> str:
    """In one line; what is not text of ours may be long, and of any kind."""
    words = " ".join(str(problem).split()) or type(problem).__name__
    return words if len(words) <= 200 else words[:200] + "..."
