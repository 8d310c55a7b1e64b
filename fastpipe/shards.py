"""The list of shards in dataset.json -> columns, of which an entry is made when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

_MOST_NAME_BYTES = 255


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


class Shards(Sequence[Shard]):
    """Shards by number.

    A large dataset has thousands, and every worker process of a DataLoader opens the index: a Python object for each
    shard would come to megabytes in each process.

    Args:
        folder: the dataset's.
        names: of the tar files.
        samples: of each.
        sizes: of each, in bytes.

    Attributes:
        sizes: (n,) uint64: bytes.
        starts: (n,) int64: their first samples.

    Raises:
        ValueError: a name or a sum is impossible.
    """

    def __init__(self, folder: Path, names: list[str], samples: list[int], sizes: list[int]) -> None:
        encoded = [os.fsencode(name) for name in names]
        if any(len(name) > _MOST_NAME_BYTES for name in encoded):  # the longest decides what each takes
            raise ValueError(f"the name of a shard is longer than {_MOST_NAME_BYTES} bytes")
        if sum(samples) >= 2**63:
            raise ValueError("the shards have more samples than can be counted")
        self._folder = folder
        self._names = np.array(encoded, dtype=np.bytes_)
        ends = np.cumsum([0, *samples], dtype=np.int64)
        self.starts = ends[:-1]
        self.sizes = np.array(sizes, dtype=np.uint64)
        self.samples = int(ends[-1])

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
        stop = int(self.starts[place + 1]) if place + 1 < len(self) else self.samples
        return Shard(
            self._folder, os.fsdecode(self._names[place]), stop - int(self.starts[place]), int(self.sizes[place])
        )

    def __iter__(self) -> Iterator[Shard]:
        counts = np.diff(self.starts, append=self.samples).tolist()
        for name, samples, size_bytes in zip(self._names.tolist(), counts, self.sizes.tolist(), strict=True):
            yield Shard(self._folder, os.fsdecode(name), samples, size_bytes)
