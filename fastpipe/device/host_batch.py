"""A batch in host memory, between the engine and a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.batch import BatchPlan


@dataclass(frozen=True)
class HostBatch:
    """A batch as the engine leaves it.

    Attributes:
        number: of the batch in its epoch.
        epoch: the epoch's number.
        plan: of its n rows.
        images: (N, height, width, 3) uint8, N >= n, a slot of a SlotRing.
        labels: (n,) int64.
    """

    number: int
    epoch: int
    plan: BatchPlan
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
