"""Some datasets -> one index: their samples and shards one dataset behind the other, their labels in one numbering."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from fastpipe.errors import DatasetError, SampleError
from fastpipe.format.columns import JoinedColumn, located, of_parts, renumbered, starts_of
from fastpipe.format.folder import Url
from fastpipe.format.index import Index, ReadableShard
from fastpipe.format.layout import COEFFICIENTS_STORAGE, NO_LABEL
from fastpipe.format.pixel_form import PixelForm
from fastpipe.format.shard_list import Shards

ANY_TIME = -1  # the engine's word for a file of which no time is recorded


class MixedIndex(Index):
    """Some datasets as one, or one with other labels: of each (classes + 1,) new labels, the last that of NO_LABEL."""

    least_label = NO_LABEL
    why_not: dict[str, str]

    def __init__(self, parts: Sequence[Index], labels: Sequence[NDArray[np.int64]], classes: Sequence[str]) -> None:
        self.parts = tuple(parts)
        self.starts = starts_of([len(part) for part in parts])
        kind = Url if any(isinstance(part.path, Url) for part in parts) else Path  # a Path would damage URLs
        self.path = parts[0].path if len(parts) == 1 else kind(" + ".join(str(part.path) for part in parts))
        self.version = parts[0].version if len(parts) == 1 else 0
        self.packed = all(part.packed for part in parts)
        self.may_be_large = any(part.may_be_large for part in parts)
        self.shards = Shards.joined([part.shards for part in parts])
        self.shard_sizes, self.shard_starts = self.shards.sizes, self.shards.starts
        self._first_shards = starts_of([len(part.shards) for part in parts])
        self.form_counts = sum((part.form_counts for part in parts), Counter[PixelForm]())
        self.jpeg_bytes = sum(part.jpeg_bytes for part in parts)
        self.stored_bytes = sum(part.stored_bytes for part in parts)
        self.storage = " and ".join(sorted({part.storage for part in parts}))
        self.classes, self._labels = list(classes), list(labels)
        counts = np.zeros(len(self.classes) + 1, dtype=np.int64)  # the last one is that of NO_LABEL
        for part, new in zip(parts, self._labels, strict=True):
            np.add.at(counts, new[:-1], part.class_counts)
        self.class_counts = counts[:-1].tolist()
        names = "rejected", "converted"  # only an unpacked source has the second
        self.counts = {name: sum(int(part.counts.get(name, 0)) for part in parts) for name in names}
        self.fields, self.why_not = {}, {}
        self._field_labels: dict[str, list[NDArray[np.int64]]] = {}  # where the parts' names of classes differ
        for name in dict.fromkeys(name for part in parts for name in part.fields):
            self._take_field(name)
        self.fingerprint = _mixed([part.fingerprint for part in parts])
        self.content = _mixed([part.content for part in parts])
        self.mtimes_ns = _together([(part.mtimes_ns, len(part.shards)) for part in parts], ANY_TIME)
        self.odd = _together([(part.odd, len(part)) for part in parts], False)

    def _take_field(self, name: str) -> None:
        """Finds what the datasets have of a field in common."""
        without = [str(part.path) for part in self.parts if name not in part.fields]
        fields = [part.fields[name] for part in self.parts if name in part.fields]
        first, named = fields[0], [field.names for field in fields]
        if without:
            self.why_not[name] = f"{without[0]} has no field {name!r}"
        elif len({(field.kind, field.width, field.points, field.labelled) for field in fields}) > 1:
            self.why_not[name] = f"{name!r} is not of one kind and shape in all of the datasets"
        elif len(set(named)) == 1 and len({field.classes for field in fields}) == 1:
            pairs = first.flip_pairs if len({field.flip_pairs for field in fields}) == 1 else ()
            self.fields[name] = replace(first, files={}, flip_pairs=pairs)
        elif not all(named) or first.kind not in ("classes", "boxes"):
            self.why_not[name] = f"the classes of {name!r} have other names, or none, in some of the datasets"
        else:
            names, self._field_labels[name] = union(named)
            classes = len(names) if first.classes else 0
            self.fields[name] = replace(first, names=tuple(names), classes=classes, files={})

    def column(self, name: str) -> JoinedColumn:
        columns = [part.column(name) for part in self.parts]
        return JoinedColumn(self.starts, columns, self._field_labels.get(name))

    def in_coefficients(self, shards: NDArray[np.uint32]) -> NDArray[np.bool_]:
        stored = np.array([part.storage == COEFFICIENTS_STORAGE for part in self.parts])
        return stored[np.searchsorted(self._first_shards, shards, side="right") - 1]

    def part_of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.starts, samples, side="right") - 1

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def records(self) -> Any:  # type: ignore[override]
        return self.records_of(np.arange(len(self), dtype=np.int64))

    def hashed_files(self, fields: Iterable[str]) -> Iterator[tuple[Path, str, str]]:
        return (each for part in self.parts for each in part.hashed_files(fields))

    def check_same(self) -> None:
        for part in self.parts:
            part.check_same()

    def check_pixels(self, samples: NDArray[np.int64], records: NDArray[np.void]) -> None:
        """See Index; the message counts those of one dataset."""
        for part, positions, numbers in located(self.starts, samples):
            self.parts[part].check_pixels(numbers, records[positions])

    def read(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self._records([part.read for part in self.parts], samples)

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        return self._records([part.records_of for part in self.parts], samples.ravel()).reshape(samples.shape)

    def _records(self, reads: Sequence[Callable[..., Any]], samples: NDArray[np.int64]) -> NDArray[np.void]:
        def take(part: int, numbers: NDArray[np.int64]) -> Any:
            records = reads[part](numbers).copy()
            records["label"] = renumbered(records["label"], self._labels[part])
            records["shard"] += np.uint32(self._first_shards[part])
            return records

        return np.asarray(of_parts(self.starts, samples, take))

    def samples_at(self, places: NDArray[np.int64]) -> Any:
        return of_parts(self.starts, places, lambda part, at: self.parts[part].samples_at(at) + self.starts[part])

    @property
    def scattered(self) -> bool:  # type: ignore[override]
        return any(part.scattered for part in self.parts)

    def paths_of(self, samples: NDArray[np.int64]) -> Any:
        return of_parts(self.starts, samples, lambda part, numbers: self.parts[part].paths_of(numbers))

    def hashes(self, samples: NDArray[np.int64], name: str) -> Any:
        return of_parts(self.starts, samples, lambda part, numbers: self.parts[part].hashes(numbers, name))

    def sample_at(self, shard: int, offset: int) -> int | None:
        part, number = _place(self._first_shards, shard)
        found = self.parts[part].sample_at(number, offset)
        return None if found is None else found + int(self.starts[part])

    def open_shard(self, number: int) -> ReadableShard:
        part, inside = _place(self._first_shards, number)
        return self.parts[part].open_shard(inside)

    def where(self, sample: int) -> tuple[str, str, int]:
        part, number = self._part(sample)
        return part.where(number)

    def sample_error(
        self, sample: int, reason: str | Exception, more: str = "", *, replace: bool = False
    ) -> SampleError:
        """See Index; it names the sample's number in its own dataset."""
        part, number = self._part(sample)
        return part.sample_error(number, reason, more, replace=replace)

    def _part(self, sample: int) -> tuple[Index, int]:
        part, number = _place(self.starts, sample)
        return self.parts[part], number

    def reader(self, of: Index | None = None) -> object | None:
        return next((part.reader(self) for part in self.parts if isinstance(part.path, Url)), None)

    @property
    def convert(self) -> Callable[[int], bytes] | None:  # type: ignore[override]
        return None if all(part.convert is None for part in self.parts) else self._convert

    def _convert(self, sample: int) -> bytes:
        part, number = self._part(sample)
        if part.convert is None:
            raise DatasetError(f"sample {number} of {part.path} is no image that can be decoded; pack it again")
        return part.convert(number)


def _place(starts: NDArray[np.int64], number: int) -> tuple[int, int]:
    """In which part a shard or sample is, and its number there, by where the parts begin."""
    part = int(np.searchsorted(starts, number, side="right")) - 1
    return part, number - int(starts[part])


def _together(parts: Sequence[tuple[NDArray[Any] | None, int]], missing: object) -> NDArray[Any] | None:
    """The values of (values, how many) one behind the other, where some have none `missing`; None: all have none."""
    if all(values is None for values, _ in parts):
        return None
    return np.concatenate([np.full(count, missing) if values is None else values for values, count in parts])


def _mixed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"mixed-{xxhash.xxh3_128_hexdigest(json.dumps(names).encode())}"


def union(names: Sequence[Sequence[str]]) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Lists of names -> each name once; and of each list the places of its names there, and behind them NO_LABEL."""
    places: dict[str, int] = {}
    found = [np.array([*(places.setdefault(name, len(places)) for name in each), NO_LABEL]) for each in names]
    return list(places), found
