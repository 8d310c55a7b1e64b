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
    """A batch as the engine leaves it: n samples of k rows each. Its images are, by view, (N, height, width, channels)
    uint8 or uint16, N >= n * k, a slot of a SlotRing.
    """

    number: int  # in its epoch
    epoch: int
    plan: BatchPlan  # a bad sample may have been replaced; the draws of the augmentation stay the plan's
    views: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]  # (n,)
    ids: NDArray[np.int64]  # (n,) numbers of the samples that are there
    fields: HostFields | None = None  # what else the batch has; None: it is (images, labels)
    image_sizes: NDArray[np.int64] | None = None  # (n, 2), height and width at the top left of each row; None: full
