"""A batch in host memory, between the engine and a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.host_fields import HostFields


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
