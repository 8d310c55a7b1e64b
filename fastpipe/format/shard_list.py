"""The list of shards in dataset.json -> columns; an entry is created when it is needed."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray


class Shard(NamedTuple):
    """One shard of a dataset.

    Attributes:
        folder: the dataset's.
        name: of the tar file.
        samples: how many samples it holds.
        size_bytes: of the tar file.
    """

    folder: Path
    name: str
    samples: int
    size_bytes: int

    @property
    def path(self) -> Path:
        """The tar file. Made when it is asked for: paths of a hundred thousand shards take a second."""
        return self.folder / self.name


class ShardColumns:
    """What is gathered of the shards while dataset.json is parsed.

    A large dataset has thousands of shards, and every worker process of a DataLoader may open it. As Python objects
    they take megabytes, most of which a process keeps when the objects are gone.
    """

    def __init__(self) -> None:
        self.names = bytearray()
        self.name_ends = array("q")
        self.sample_ends = array("q")
        self.sizes = array("Q")

    def take(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """For json's object_hook: None for an entry that describes a shard, which is taken; others come back."""
        try:
            name, samples, size_bytes = _checked(entry)
            self.sample_ends.append(samples + (self.sample_ends[-1] if self.sample_ends else 0))
        except (KeyError, TypeError, ValueError, OverflowError):
            return entry
        self.names += name
        self.name_ends.append(len(self.names))
        self.sizes.append(size_bytes)
        return None

    def of(self, folder: Path, entries: object) -> Shards:
        """The shards.

        Args:
            folder: the dataset's.
            entries: what `take` has left of the list.

        Raises:
            KeyError, TypeError, ValueError: an entry is impossible, or was somewhere else than in the list.
        """
        if not isinstance(entries, list):
            raise TypeError(f"expected a list, got {entries!r}")
        for entry in entries:
            if entry is not None:
                _checked(entry)
                raise ValueError("the number of samples in all shards together is too large")
        if len(entries) != len(self.sizes):
            raise ValueError("a shard is described outside the list 'shards'")
        return Shards(folder, self)


class Shards(Sequence[Shard]):
    """Shards by number.

    Attributes:
        samples: of all shards.
        sizes: (n,) uint64: bytes of each.
        starts: (n,) int64: their first samples.
    """

    def __init__(self, folder: Path, columns: ShardColumns) -> None:
        self._folder = folder
        self._names = bytes(columns.names)
        self._name_bounds = _bounds(columns.name_ends)
        self._bounds = _bounds(columns.sample_ends)
        self.starts = self._bounds[:-1]
        self.samples = int(self._bounds[-1])
        self.sizes = np.array(columns.sizes, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, number: int) -> Shard: ...
    @overload
    def __getitem__(self, number: slice) -> list[Shard]: ...
    def __getitem__(self, number: int | slice) -> Shard | list[Shard]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        place = range(len(self))[number]
        start, stop = self._name_bounds[place : place + 2]
        first, end = self._bounds[place : place + 2].tolist()
        return Shard(self._folder, os.fsdecode(self._names[start:stop]), end - first, int(self.sizes[place]))

    def __iter__(self) -> Iterator[Shard]:
        """Much quicker than one by one."""
        starts, names = self._name_bounds.tolist(), self._names
        counts, sizes = np.diff(self._bounds).tolist(), self.sizes.tolist()
        for start, stop, samples, size_bytes in zip(starts, starts[1:], counts, sizes, strict=False):
            yield Shard(self._folder, os.fsdecode(names[start:stop]), samples, size_bytes)


def _bounds(ends: array[int]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.frombuffer(ends, dtype=np.int64)])


def count(value: object) -> int:
    """Checks a number of things in dataset.json."""
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"expected a whole number of 0 or more, got {value!r}")
    return value


def text(value: object) -> str:
    """Checks a text in dataset.json."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def one_of(value: object, choices: Collection[str]) -> str:
    """Checks a word in dataset.json."""
    if value not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")
    return text(value)


def _checked(entry: dict[str, Any]) -> tuple[bytes, int, int]:
    """A name in the dataset's own folder: a dataset never makes anyone read a file elsewhere."""
    name = text(entry["name"])
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(
            f"expected a file name without a folder, because shards are in the dataset's own folder, got {name!r}"
        )
    return os.fsencode(name), count(entry["samples"]), count(entry["size_bytes"])
