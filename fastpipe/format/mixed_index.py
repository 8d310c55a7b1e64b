"""Some datasets -> one index: their samples and shards one dataset behind the other, their labels in one numbering."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import DatasetError, SampleError
from fastpipe.format.index import Index, ReadableShard
from fastpipe.format.layout import COEFFICIENTS_STORAGE, INDEX_DTYPE, NO_LABEL
from fastpipe.format.open_file import Records
from fastpipe.format.shard_list import Shard
from fastpipe.format.source_paths import SourcePaths

_ANY_TIME = -1  # the engine's word for a file of which no time is recorded


class MixedShards(Sequence[Shard]):
    """The shards of some datasets, one dataset behind the other. Their names are paths from the root folder on.

    Args:
        parts: the datasets.
    """

    def __init__(self, parts: Sequence[Index]) -> None:
        self._parts = parts
        self._starts = starts_of([len(part.shards) for part in parts])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, number: int) -> Shard: ...
    @overload
    def __getitem__(self, number: slice) -> list[Shard]: ...
    def __getitem__(self, number: int | slice) -> Shard | list[Shard]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        place = range(len(self))[number]
        part = int(np.searchsorted(self._starts, place, side="right")) - 1
        return _moved(self._parts[part].shards[place - int(self._starts[part])], self._parts[part].folder)

    def __iter__(self) -> Iterator[Shard]:
        for part in self._parts:
            yield from (_moved(shard, part.folder) for shard in part.shards)


def _moved(shard: Shard, folder: Path) -> Shard:
    return shard._replace(folder=Path("/"), name=os.path.join(folder, shard.name)[1:])


def starts_of(counts: Sequence[int]) -> NDArray[np.int64]:
    """(n + 1,) where each of n things of these lengths begins, and the end of all."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


class MixedIndex(Index):
    """The description of some datasets as one.

    Args:
        parts: the datasets, at least one.
        labels: "union": classes of one name are one class; "offset": those of each dataset are classes of their own,
            behind those of the datasets before it; "own": labels stay, and mean what their dataset says.

    Attributes:
        parts: as given.
        starts: (parts + 1,) the first sample of each dataset, and the end.
        reader_of: makes what brings the bytes of shards that are not here; None: all are here.
    """

    reader_of: Callable[[MixedIndex], object] | None = None

    def __init__(self, parts: Sequence[Index], labels: str) -> None:
        self.parts = tuple(parts)
        self.starts = starts_of([len(part) for part in parts])
        self.path = Path(" + ".join(str(part.path) for part in parts))
        self.folder = Path("/")
        self.version = 0
        self.packed = all(part.packed for part in parts)
        self.fields = {}
        self.shards = MixedShards(self.parts)  # type: ignore[assignment]
        self._shard_starts = starts_of([len(part.shards) for part in parts])
        self.shard_sizes = np.concatenate([part.shard_sizes for part in parts])
        self.shard_starts = np.concatenate(
            [part.shard_starts + start for part, start in zip(parts, self.starts, strict=False)]
        )
        self.jpeg_bytes = sum(part.jpeg_bytes for part in parts)
        self.stored_bytes = sum(part.stored_bytes for part in parts)
        self.storage = " and ".join(sorted({part.storage for part in parts}))
        self.least_label = min(part.least_label for part in parts)
        self.classes, self._labels = _classes_of(parts, labels)
        self.class_counts = np.zeros(len(self.classes), dtype=np.int64).tolist()
        for part, new in zip(parts, self._labels, strict=True):
            for label, count in zip(new.tolist(), part.class_counts, strict=False):
                self.class_counts[label] += count
        self.counts = {
            "rejected": sum(int(part.counts["rejected"]) for part in parts),
            "converted": sum(int(part.counts.get("converted", 0)) for part in parts),
        }
        import xxhash  # most programs mix nothing

        def mixed(names: Iterable[str]) -> str:
            return f"mixed-{xxhash.xxh3_128_hexdigest(json.dumps([*names]).encode())}"

        self.fingerprint = mixed(part.fingerprint for part in parts)
        self.content = mixed(part.content for part in parts)
        self.mtimes_ns = None
        if any(part.mtimes_ns is not None for part in parts):
            self.mtimes_ns = np.concatenate(
                [np.full(len(part.shards), _ANY_TIME) if part.mtimes_ns is None else part.mtimes_ns for part in parts]
            )
        self.odd = None
        if any(part.odd is not None for part in parts):
            self.odd = np.concatenate(
                [np.zeros(len(part), np.bool_) if part.odd is None else part.odd for part in parts]
            )

    def in_coefficients(self, shards: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """(n,) whether the images of (n,) shards are stored as coefficients."""
        stored = np.array([part.storage == COEFFICIENTS_STORAGE for part in self.parts])
        return stored[np.searchsorted(self._shard_starts, shards, side="right") - 1]

    def part_of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) which dataset each sample is of."""
        return np.searchsorted(self.starts, samples, side="right") - 1

    def local(self, samples: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.int64]]]:
        """(dataset, (m,) positions in `samples`, (m,) numbers in that dataset) of each dataset that some are of."""
        parts = self.part_of(samples)
        for part in np.unique(parts).tolist():
            positions = np.flatnonzero(parts == part)
            yield part, positions, samples[positions] - self.starts[part]

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def records(self) -> Any:  # type: ignore[override]
        """All records, in memory."""
        return self.records_of(np.arange(len(self), dtype=np.int64))

    @cached_property
    def info(self) -> dict[str, Any]:
        """What is known of all together."""
        return {
            "format": "mixed",
            "samples": len(self),
            "classes": self.classes,
            "class_counts": self.class_counts,
            "counts": self.counts,
            "fingerprint": self.fingerprint,
        }

    def hashed_files(self, fields: Iterable[str]) -> Iterator[tuple[Path, str, str]]:
        """See Index: those of all datasets."""
        return (each for part in self.parts for each in part.hashed_files(fields))

    def open_records(self) -> None:
        """Each dataset has its own."""

    def read(self, samples: NDArray[np.int64], records: Records | None = None) -> NDArray[np.void]:
        """See Index."""
        return self._gathered(samples, lambda part, numbers: part.read(numbers))

    @property
    def may_be_large(self) -> bool:  # type: ignore[override]
        """See Index."""
        return any(part.may_be_large for part in self.parts)

    def check_pixels(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> None:
        """See Index; it counts those of a dataset."""
        for number, positions, numbers in self.local(samples):
            self.parts[number].check_pixels(numbers, records[positions])

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        """See Index."""
        flat = self._gathered(samples.ravel(), lambda part, numbers: part.records_of(numbers))
        found: NDArray[np.void] = flat.reshape(samples.shape)
        return found

    def _gathered(
        self, samples: NDArray[np.int64], read: Callable[[Index, NDArray[np.int64]], NDArray[np.void]]
    ) -> NDArray[np.void]:
        found = np.empty(len(samples), dtype=INDEX_DTYPE)
        for number, positions, numbers in self.local(samples):
            records = read(self.parts[number], numbers).copy()
            labels, new = records["label"], self._labels[number]
            known = (labels >= 0) & (labels < len(new) - 1)
            records["label"] = np.where(known, new[np.where(known, labels, NO_LABEL)], labels)
            records["shard"] += np.uint32(self._shard_starts[number])
            found[positions] = records
        return found

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """See Index: each dataset's own order, one dataset behind the other."""
        found = np.empty(len(places), dtype=np.int64)
        for number, positions, numbers in self.local(places):
            found[positions] = self.parts[number].samples_at(numbers) + self.starts[number]
        return found

    @property
    def scattered(self) -> bool:
        """See Index; each dataset has its own answer."""
        return any(part.scattered for part in self.parts)

    def paths_of(self, samples: NDArray[np.int64]) -> list[str]:
        """The paths of the sources of some samples."""
        found = [""] * len(samples)
        for number, positions, numbers in self.local(samples):
            part = self.parts[number]
            paths = SourcePaths(part).of(numbers, part.records_of(numbers))
            for position, path in zip(positions.tolist(), paths, strict=True):
                found[position] = path
        return found

    def identities(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> NDArray[np.uint64]:
        """See Index."""
        found = np.empty(len(samples), dtype=np.uint64)
        for number, positions, numbers in self.local(samples):
            found[positions] = self.parts[number].identities(numbers, records[positions])
        return found

    def sample_at(self, shard: int, offset: int) -> int | None:
        """See Index."""
        part, number = self._shard(shard)
        found = self.parts[part].sample_at(number, offset)
        return None if found is None else found + int(self.starts[part])

    def open_shard(self, number: int) -> ReadableShard:
        """See Index."""
        part, inside = self._shard(number)
        return self.parts[part].open_shard(inside)

    def _shard(self, number: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._shard_starts, number, side="right")) - 1
        return part, number - int(self._shard_starts[part])

    def where(self, sample: int) -> tuple[str, str, int]:
        """See Index."""
        part, number = self._part(sample)
        return part.where(number)

    def sample_error(self, sample: int, reason: str, *, replace: bool = False) -> SampleError:
        """See Index; it names the sample's number in its own dataset."""
        part, number = self._part(sample)
        return part.sample_error(number, reason, replace=replace)

    def _part(self, sample: int) -> tuple[Index, int]:
        number = int(self.part_of(np.array([sample]))[0])
        return self.parts[number], sample - int(self.starts[number])

    def reader(self) -> object | None:
        """See Index."""
        return None if self.reader_of is None else self.reader_of(self)

    @property
    def convert(self) -> Callable[[int], bytes] | None:  # type: ignore[override]
        """See Index."""
        return None if all(part.convert is None for part in self.parts) else self._convert

    def _convert(self, sample: int) -> bytes:
        part, number = self._part(sample)
        if part.convert is None:
            raise DatasetError(f"sample {number} of {part.path} is no JPEG that can be decoded; pack it again")
        return part.convert(number)

    def __repr__(self) -> str:
        return f"<fastpipe mixture of {', '.join(map(repr, self.parts))}>"

    def __reduce__(self) -> NoReturn:
        raise DatasetError("a mixture of datasets cannot be pickled; open it in the process that uses it")


def _classes_of(parts: Sequence[Index], labels: str) -> tuple[list[str], list[NDArray[np.int64]]]:
    """The names of all classes; for each dataset the new labels of its own, and behind them that of NO_LABEL."""
    names: list[str] = []
    known: dict[str, int] = {}
    found = []
    for number, part in enumerate(parts):
        new = np.full(len(part.classes) + 1, NO_LABEL, dtype=np.int64)
        if labels == "union":
            for name in part.classes:
                if name not in known:
                    known[name] = len(names)
                    names.append(name)
            new[:-1] = [known[name] for name in part.classes]
        elif labels == "offset":
            new[:-1] = np.arange(len(part.classes)) + len(names)
            names += [f"{number}/{name}" for name in part.classes]
        else:
            new[:-1] = np.arange(len(part.classes))
            names += [str(label) for label in range(len(names), len(part.classes))]
        found.append(new)
    return names, found
