"""A batch in host memory, between the engine and a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.placed import Boxes, PlacedBoxes, PlacedPoints


@dataclass(frozen=True)
class HostFields:
    """What a batch that is a dict has besides images and labels.

    Attributes:
        names: the keys of the batch, in order, and the name of what each has: "image" is that of images.
        pictures: of the arrays' keys, those of (n, height, width, 3) that become (n, 3, height, width), as images do.
        masks: of the arrays' keys, those of (n, height, width) ids.
        options: of boxes, by name of the field.
        boxes, points: by name of the field; they become arrays when nothing moves them any more.
        arrays: what goes to the device, by key.
        counts: of the keys that become one tensor a sample: how many rows each sample has.
        lists: what stays on the host, by key.
    """

    names: Mapping[str, str]
    pictures: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    options: Mapping[str, Boxes] = field(default_factory=dict)
    boxes: dict[str, PlacedBoxes] = field(default_factory=dict)
    points: dict[str, PlacedPoints] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    counts: dict[str, list[int]] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostBatch:
    """A batch as the engine leaves it.

    Attributes:
        number: of the batch in its epoch.
        epoch: the epoch's number.
        plan: of its n samples, of k rows each. A bad sample may have been replaced; the draws of the augmentation stay
            the plan's.
        views: the images of each view: (N, height, width, 3) uint8, N >= n * k, a slot of a SlotRing.
        labels: (n,) int64.
        ids: (n,) int64 numbers of the samples that are there.
        fields: what else the batch has; None: it is (images, labels).
        image_sizes: (n, 2) int64, height and width of the picture at the top left of each row; None: rows are full.
    """

    number: int
    epoch: int
    plan: BatchPlan
    views: tuple[NDArray[np.uint8], ...]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    fields: HostFields | None = None
    image_sizes: NDArray[np.int64] | None = None
