"""A batch in host memory, between the engine and a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.placed import Boxes, PlacedBoxes, PlacedPoints

Places = tuple[Mapping[str, PlacedBoxes], Mapping[str, PlacedPoints]]  # boxes and points, by name of the field


@dataclass(frozen=True)
class HostFields:
    """What a batch that is a dict has besides images and labels.

    Note [entries of views]: each view has boxes, points, masks and second pictures of its own. Their entries are called
    VIEW.NAME: "0.mask" is that of the first view.

    Attributes:
        names: the keys of the batch, in order, and the name of what each has: "image" is that of images.
        images: names of masks, (n * k, height, width) ids, and second pictures, (n * k, height, width, channels).
        options: of boxes, by name of the field.
        places: of each view; they become arrays when nothing moves them any more.
        arrays: what goes to the device, by name, or as Note [entries of views] says.
        counts: of the entries that become one tensor a row: how many boxes or objects each row has.
        lists: what stays on the host, by name.
    """

    names: Mapping[str, str]
    images: tuple[str, ...] = ()
    options: Mapping[str, Boxes] = field(default_factory=dict)
    places: list[Places] = field(default_factory=list)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    counts: dict[str, list[int]] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)

    def by_view(self, name: str) -> bool:
        """Whether each view has one of its own."""
        return f"0.{name}" in self.arrays


@dataclass(frozen=True)
class HostBatch:
    """A batch as the engine leaves it.

    Attributes:
        number: of the batch in its epoch.
        epoch: the epoch's number.
        plan: of its n samples, of k rows each. A bad sample may have been replaced; the draws of the augmentation stay
            the plan's.
        views: the images of each view: (N, height, width, channels) uint8 or uint16, N >= n * k, a slot of a SlotRing.
        labels: (n,) int64.
        ids: (n,) int64 numbers of the samples that are there.
        fields: what else the batch has; None: it is (images, labels).
        image_sizes: (n, 2) int64, height and width of the picture at the top left of each row; None: rows are full.
    """

    number: int
    epoch: int
    plan: BatchPlan
    views: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    fields: HostFields | None = None
    image_sizes: NDArray[np.int64] | None = None
