"""The list of shards in dataset.json -> columns; an entry is created when it is needed."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Texts:
    """Many short texts in one piece of memory: as objects they take megabytes, in each worker of a DataLoader."""

    data: bytes  # of the file system
    bounds: NDArray[np.int64]  # (n + 1,) where each begins, and the end of all

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Texts:
        encoded = [os.fsencode(text) for text in texts]
        return cls(b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def bytes_at(self, number: int) -> bytes:
        return self.data[self.bounds[number] : self.bounds[number + 1]]

    def __getitem__(self, number: int) -> str:
        return os.fsdecode(self.bytes_at(number))

    def __iter__(self) -> Iterator[str]:
        """Much quicker than one by one."""
        return (os.fsdecode(self.data[start:stop]) for start, stop in pairwise(self.bounds.tolist()))


class Shard(NamedTuple):
    """One shard of a dataset: a tar file in the dataset's folder, of which the path is absolute; a photo as it lies."""

    folder: Path
    name: str
    samples: int
    size_bytes: int

    @property
    def path(self) -> Path:
        """The tar file. Made when it is asked for: paths of a hundred thousand shards take a second."""
        return self.folder / self.name


class ShardColumns:
    """Gathers the shards while dataset.json is parsed: a large dataset has thousands."""

    def __init__(self) -> None:
        self._names, self._sizes = bytearray(), array("Q")
        self._name_bounds, self._bounds = array("q", [0]), array("q", [0])  # as of Texts and Shards

    def take(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """For json's object_hook: None for an entry that describes a shard, which is taken; others come back."""
        try:
            name, samples, size_bytes = _checked(entry)
            self._bounds.append(self._bounds[-1] + samples)
        except (KeyError, TypeError, ValueError, OverflowError):
            return entry
        self._names += name
        self._name_bounds.append(len(self._names))
        self._sizes.append(size_bytes)
        return None

    def of(self, folder: Path, entries: Any) -> Shards:
        """The shards; `entries` are what `take` has left. KeyError, TypeError, ValueError: an entry cannot be there."""
        for entry in a_list(entries):
            if entry is not None:
                _checked(entry)
                raise ValueError("the number of samples in all shards together is too large")
        if len(entries) != len(self._sizes):
            raise ValueError("a shard is described outside the list 'shards'")
        names = Texts(bytes(self._names), np.array(self._name_bounds, dtype=np.int64))
        bounds, sizes = np.array(self._bounds, dtype=np.int64), np.array(self._sizes, dtype=np.uint64)
        return Shards([(folder, names)], bounds, sizes)


class Shards:
    """Shards by number: files' names in each folder, (n + 1,) first samples and the end of all, (n,) sizes in bytes."""

    def __init__(
        self, names: Sequence[tuple[Path, Texts]], bounds: NDArray[np.int64], sizes: NDArray[np.uint64]
    ) -> None:
        self._names, self._bounds = names, bounds
        self._groups = np.cumsum([0, *(len(group) for _, group in names)])
        self.samples, self.sizes, self.starts = int(bounds[-1]), sizes, bounds[:-1]

    @classmethod
    def joined(cls, parts: Sequence[Shards]) -> Shards:
        names = [each for part in parts for each in part._names]
        counts = np.concatenate([np.diff(part._bounds) for part in parts])
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(names, np.concatenate([[0], np.cumsum(counts)]), sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> Shard:
        place = range(len(self))[number]
        group = int(np.searchsorted(self._groups, place, side="right")) - 1
        folder, names = self._names[group]
        first, end = self._bounds[place : place + 2].tolist()
        return Shard(folder, names[place - int(self._groups[group])], end - first, int(self.sizes[place]))

    def __iter__(self) -> Iterator[Shard]:
        """Much quicker than one by one."""
        names = ((folder, name) for folder, group in self._names for name in group)
        counts = np.diff(self._bounds).tolist()
        for (folder, name), samples, size_bytes in zip(names, counts, self.sizes.tolist(), strict=True):
            yield Shard(folder, name, samples, size_bytes)


# Checks of what stands in dataset.json: a number of things, a text, a list, a word. They give the value.
def count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"expected a whole number of 0 or more, got {value!r}")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def a_list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {value!r}")
    return value


def one_of(value: object, choices: Collection[str]) -> str:
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
