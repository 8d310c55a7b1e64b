"""A loader's batches -> what is compared: rows, their numbers, bytes of each."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

BY_VIEW = (
    "boxes",
    "pose",
    "seg",
    "depth",
    "second",
    "pages",
    "relief",
    "mask",
    "pixel_mask",
)  # fields that move with images
OFFSETS = ("_offsets", "_counts")


@dataclass
class Taken:
    """A batch.

    Attributes:
        images: of each view; of rows with sizes of their own, a list of tensors. Empty where fields
            leave them out.
        labels: None where fields leave them out.
        values: of the fields, by key; empty without `fields`.
    """

    images: list[Any]
    labels: torch.Tensor | None
    ids: list[int]
    valid: list[bool]
    epoch: int
    values: dict[str, Any]

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
        """A row's values, boxes and their labels cut out of whatever form they have; of several views, lists."""
        found: dict[str, Any] = {}
        for key in self.values:
            if key not in ("image", "valid", "epoch") and not key.endswith(OFFSETS):
                several = len(self.images) > 1 and key.removesuffix("_labels") in BY_VIEW
                views = range(len(self.images)) if several else [None]
                made = [self._cut(key, place, view) for view in views]
                found[key] = made if several else made[0]
        return found

    def _cut(self, key: str, place: int, view: int | None) -> Any:
        """Of several crops, a list."""

        def of(name: str) -> Any:
            value = self.values.get(name)
            return value if value is None or view is None else value[view]

        name, crops = key.removesuffix("_labels"), 1
        if self.images and isinstance(self.images[0], torch.Tensor) and self.images[0].ndim == 5:
            crops = self.images[0].shape[1]
        if (offsets := of(f"{name}_offsets")) is not None:
            edges = offsets[place * crops :][: crops + 1].tolist()
            made = [of(key)[start:stop] for start, stop in itertools.pairwise(edges)]
            return made if crops > 1 else made[0]
        if (counts := of(f"{name}_counts")) is None:
            return of(key)[place]
        if crops == 1:
            return of(key)[place, : int(counts[place])]
        return [of(key)[place, crop, : int(counts[place, crop])] for crop in range(crops)]

    def rows(self) -> list[tuple[int, bytes]]:
        """Number and values of each row that counts."""
        return [
            (number, self.row(place)) for place, number in enumerate(self.ids) if self.valid[place]
        ]

    def whole(self) -> bytes:
        """All bytes of the batch."""
        return pickle.dumps(
            [
                self.epoch,
                self.valid,
                self.ids,
                [self.row(place) for place in range(len(self))],
                sorted(self.values),
            ]
        )


def as_bytes(value: Any) -> Any:
    """Shape and bytes of a tensor, and of those in a list; any other value as it is."""
    if isinstance(value, list):
        return [as_bytes(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.contiguous()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
    return str(value.dtype), tuple(value.shape), plain.numpy().tobytes()


def taken(batch: Any) -> Taken:
    values = dict(batch) if isinstance(batch, dict) else {}
    images, labels = (
        (values.get("image", []), values.get("label")) if isinstance(batch, dict) else batch
    )
    grids = values.get("grids") if values else getattr(batch, "grids", None)
    if grids is not None:
        images, values = _by_sample(images, values, grids)
    one_view = isinstance(images, torch.Tensor) or (
        bool(images) and isinstance(images[0], torch.Tensor) and images[0].ndim < 4
    )
    return Taken(
        [images] if one_view else list(images),
        labels,
        (values["id"] if values else batch.ids).tolist(),
        (values["valid"] if values else batch.valid).tolist(),
        values["epoch"] if values else batch.epoch,
        values,
    )


def _by_sample(
    images: Any, values: dict[str, Any], grids: torch.Tensor
) -> tuple[Any, dict[str, Any]]:
    """Patches and their coordinates, cut into those of each sample."""
    counts = grids.prod(1).tolist()
    own = dict(values)
    if "cu_seqlens" in own:
        own["cu_seqlens"] = own["cu_seqlens"].diff()
    if "patch_valid" in own and own["patch_valid"].ndim == 1:
        own["patch_valid"] = list(torch.split(own["patch_valid"][: sum(counts)], counts))
    named = {"image": images, "coords": values.get("coords")}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            continue
        is_padded = value.ndim == 3
        parts = list(value) if is_padded else list(torch.split(value[: sum(counts)], counts))
        own[name] = named[name] = parts
    return named["image"], own if values else values


def epochs_of(loader: Iterable[Any], count: int) -> list[list[Taken]]:
    return [[taken(batch) for batch in loader] for _ in range(count)]


def some(iterator: Iterator[Any], count: int) -> list[Taken]:
    """The next batches, at most so many."""
    return [taken(batch) for batch in itertools.islice(iterator, count)]
