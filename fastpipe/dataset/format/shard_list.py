"""The list of shards in dataset.json -> columns; the entry of a shard is made when it is needed."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastpipe.arrays import Int64s, Uint64s


@dataclass(frozen=True, eq=False)
class Texts:
    """Many short texts in one piece of memory.

    As objects they would take megabytes, in each worker of a DataLoader.
    """

    data: bytes  # in the encoding of the file system
    bounds: Int64s  # (n + 1,) where each text begins, and the end of all

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Texts:
        encoded = [os.fsencode(text) for text in texts]
        lengths = [len(text) for text in encoded]
        bounds = np.cumsum([0, *lengths], dtype=np.int64)
        return cls(b"".join(encoded), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def bytes_at(self, number: int) -> bytes:
        start = self.bounds[number]
        end = self.bounds[number + 1]
        return self.data[start:end]

    def __getitem__(self, number: int) -> str:
        return os.fsdecode(self.bytes_at(number))

    def __iter__(self) -> Iterator[str]:
        """Much quicker than one by one."""
        for start, stop in pairwise(self.bounds.tolist()):
            yield os.fsdecode(self.data[start:stop])


class Shard(NamedTuple):
    """One shard of a dataset: a tar file, or a photo that is not packed."""

    folder: Path  # absolute
    name: str  # relative to the folder
    samples: int
    size_bytes: int

    @property
    def path(self) -> Path:
        """The file. Made when it is asked for: paths of a hundred thousand shards take a second."""
        return self.folder / self.name


class ShardColumns:
    """Collects the shards while dataset.json is parsed: a large dataset has thousands."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._name_bounds = array("q", [0])  # as of Texts
        self._sample_bounds = array("q", [0])  # as of Shards
        self._sizes = array("Q")

    def take(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """json's object_hook: adds an entry that describes a shard, and puts None in its place.

        Other entries are returned as they are.
        """
        try:
            name, samples, size_bytes = _parse_entry(entry)
            start = self._sample_bounds[-1]
            self._sample_bounds.append(start + samples)
        except (KeyError, TypeError, ValueError, OverflowError):
            return entry
        self._names += name
        self._name_bounds.append(len(self._names))
        self._sizes.append(size_bytes)
        return None

    def of(self, folder: Path, entries: Any) -> Shards:
        """The shards.

        Args:
            folder: that they are in.
            entries: the list of shards in dataset.json, as `take` has left it.

        Raises:
            KeyError, TypeError, ValueError: an entry is impossible.
        """
        # `take` has put None in the place of each shard, in the list of shards or elsewhere.
        for entry in a_list(entries):
            if entry is not None:
                _parse_entry(entry)  # raises for the entry that `take` refused
                raise ValueError(
                    "the number of samples in all shards together is too large"
                )
        if len(entries) != len(self._sizes):
            raise ValueError("a shard is described outside the list 'shards'")
        name_bounds = np.array(self._name_bounds, dtype=np.int64)
        names = Texts(bytes(self._names), name_bounds)
        sample_bounds = np.array(self._sample_bounds, dtype=np.int64)
        sizes = np.array(self._sizes, dtype=np.uint64)
        return Shards([(folder, names)], sample_bounds, sizes)


class Shards:
    """The shards of a dataset, by number.

    Args:
        names: folders, and the names of the shards in each; shards are numbered in this order.
        bounds: (n + 1,) the first sample of each shard, and the number of all samples.
        sizes: (n,) in bytes.
    """

    def __init__(
        self,
        names: Sequence[tuple[Path, Texts]],
        bounds: Int64s,
        sizes: Uint64s,
    ) -> None:
        self.samples = int(bounds[-1])
        self.starts = bounds[:-1]
        self.sizes = sizes
        self._names = names
        self._bounds = bounds
        # (folders + 1,) the first shard of each folder, and the number of all shards.
        counts = [len(group) for _, group in names]
        self._folder_bounds = np.cumsum([0, *counts])

    @classmethod
    def joined(cls, parts: Sequence[Shards]) -> Shards:
        """The shards of several datasets, one behind the other."""
        names: list[tuple[Path, Texts]] = []
        for part in parts:
            names += part._names
        # (all shards,) the number of samples in each, and their bounds in the whole.
        counts_of_parts = [np.diff(part._bounds) for part in parts]
        counts = np.concatenate(counts_of_parts)
        ends = np.cumsum(counts)
        bounds = np.concatenate([[0], ends])
        sizes_of_parts = [part.sizes for part in parts]
        sizes = np.concatenate(sizes_of_parts)
        return cls(names, bounds, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> Shard:
        # Also negative numbers; IndexError beyond the end.
        shard = range(len(self))[number]
        next_group = np.searchsorted(self._folder_bounds, shard, side="right")
        group = int(next_group) - 1
        first_of_folder = int(self._folder_bounds[group])
        folder, names = self._names[group]
        name = names[shard - first_of_folder]
        first, end = self._bounds[shard : shard + 2].tolist()
        size_bytes = int(self.sizes[shard])
        return Shard(folder, name, end - first, size_bytes)

    def __iter__(self) -> Iterator[Shard]:
        """Much quicker than one by one."""
        counts = iter(np.diff(self._bounds).tolist())
        sizes = iter(self.sizes.tolist())
        for folder, group in self._names:
            for name in group:
                yield Shard(folder, name, next(counts), next(sizes))


# Checks of values in dataset.json. They return the value.


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


def _parse_entry(entry: dict[str, Any]) -> tuple[bytes, int, int]:
    """Name, samples and size of a shard.

    The name is that of a file in the dataset's own folder: a dataset must never make anyone read a
    file elsewhere.
    """
    name = text(entry["name"])
    is_in_folder = "/" not in name and name not in ("", ".", "..")
    if not is_in_folder or "\0" in name:
        raise ValueError(
            "expected a file name without a folder, because shards are in the dataset's own "
            f"folder, got {name!r}"
        )
    samples = count(entry["samples"])
    size_bytes = count(entry["size_bytes"])
    return os.fsencode(name), samples, size_bytes
