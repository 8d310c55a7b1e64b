"""A loader's batches -> what is compared: rows, their numbers, bytes of each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

OFFSETS = ("_offsets", "_counts")

told_of_batch: list[Callable[[], None]] = []
"""Called for each batch: a draw hangs where none comes, not where there are many."""


@dataclass
class Taken:
    """A batch.

    Attributes:
        images: of each view.
        labels: None where fields leave them out.
        values: of the fields, by key; empty without `fields`.
    """

    images: list[torch.Tensor]
    labels: torch.Tensor | None
    ids: list[int]
    valid: list[bool]
    epoch: int
    values: dict[str, Any]
    sizes: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def row(self, place: int) -> bytes:
        """All of a row's values."""
        parts: list[Any] = [as_bytes(image[place]) for image in self.images]
        if self.labels is not None:
            parts.append(as_bytes(self.labels[place]))
        parts += [as_bytes(value) for value in self.fields(place).values()]
        return pickle.dumps(parts)

    def fields(self, place: int) -> dict[str, Any]:
        """A row's values, boxes and their labels cut out of whatever form they have."""
        found = {}
        for key, value in self.values.items():
            if key in ("image", "valid", "epoch") or key.endswith(OFFSETS):
                continue
            name = key.removesuffix("_labels")
            if f"{name}_offsets" in self.values:
                start, stop = self.values[f"{name}_offsets"][place : place + 2].tolist()
                found[key] = value[start:stop]
            elif f"{name}_counts" in self.values:
                found[key] = value[place, : int(self.values[f"{name}_counts"][place])]
            else:
                found[key] = value[place]
        return found

    def rows(self) -> list[tuple[int, bytes]]:
        """Number and values of each row that counts."""
        return [(number, self.row(place)) for place, number in enumerate(self.ids) if self.valid[place]]

    def whole(self) -> bytes:
        """All bytes of the batch."""
        return pickle.dumps(
            [self.epoch, self.valid, self.ids, [self.row(place) for place in range(len(self))], sorted(self.values)]
        )


def as_bytes(value: Any) -> Any:
    """Shape and bytes of a tensor; any other value as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.contiguous()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
    return str(value.dtype), tuple(value.shape), plain.numpy().tobytes()


def taken(batch: Any) -> Taken:
    for tell in told_of_batch:
        tell()
    values = dict(batch) if isinstance(batch, dict) else {}
    images, labels = (values["image"], values.get("label")) if isinstance(batch, dict) else batch
    return Taken(
        list(images) if isinstance(images, list) else [images],
        labels,
        (values["id"] if values else batch.ids).tolist(),
        (values["valid"] if values else batch.valid).tolist(),
        values["epoch"] if values else batch.epoch,
        values,
    )


def epochs_of(loader: Iterable[Any], count: int) -> list[list[Taken]]:
    return [[taken(batch) for batch in loader] for _ in range(count)]


def some(iterator: Iterator[Any], count: int) -> list[Taken]:
    """The next batches, at most so many."""
    found = []
    for _ in range(count):
        batch = next(iterator, None)
        if batch is None:
            break
        found.append(taken(batch))
    return found
