"""A batch in host memory, between the engine and a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.batch import BatchPlan


@dataclass(frozen=True)
class HostFields:
    """What a batch that is a dict has besides images and labels.

    Attributes:
        names: the keys of the batch, in order, "image" and "label" among them.
        pictures: of the arrays' keys, those of (n, height, width, 3) that become (n, 3, height, width), as images do.
        arrays: what goes to the device, by key.
        counts: of the keys that become one tensor a sample: how many rows each sample has.
        lists: what stays on the host, by key.
    """

    names: tuple[str, ...]
    pictures: tuple[str, ...] = ()
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    counts: dict[str, list[int]] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostBatch:
    """A batch as the engine leaves it.

    Attributes:
        number: of the batch in its epoch.
        epoch: the epoch's number.
        plan: of its n rows. A bad sample may have been replaced; the draws of the augmentation stay the plan's.
        images: (N, height, width, 3) uint8, N >= n, a slot of a SlotRing.
        labels: (n,) int64.
        fields: what else the batch has; None: it is (images, labels).
    """

    number: int
    epoch: int
    plan: BatchPlan
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    fields: HostFields | None = None
