"""Some samples -> the batch that an epoch of a loader makes of them, for somebody who looks; no iteration changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.device.host_batch import HostBatch
from fastpipe.device.streams import Stream
from fastpipe.device.transfer import Batch, Transfer
from fastpipe.engine.engine import Engine
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.format.index import Index
from fastpipe.plan.batch import BatchPlan, EpochPlan, Recipe


@dataclass(frozen=True)
class Look:
    """What a loader makes batches with.

    Attributes:
        index, recipe, engine, stream, augment, watchdog: the loader's own.
    """

    index: Index
    recipe: Recipe
    engine: Engine
    stream: Stream
    augment: Augment | None
    watchdog: Watchdog

    def at(self, samples: NDArray[np.int64], epoch: int) -> tuple[BatchPlan, Batch]:
        """Decodes samples at full size and takes them through the loader's device and augmentation.

        Args:
            samples: (n,) int64 sample numbers.
            epoch: whose crops and augmentation.

        Returns:
            The crops, and the images and labels on the CPU.

        Raises:
            SampleError: a sample cannot be decoded.
        """
        plan = EpochPlan(self.index, self.recipe, epoch).of(samples)
        images = self.stream.buffer((len(samples), *self.recipe.size, 3))
        for row, reason in self.engine.decode(plan, images):
            raise self.index.sample_error(int(samples[row]), reason)
        transfer = Transfer(
            self.stream,
            self.augment,
            seed=self.recipe.seed,
            classes=len(self.index.classes),
            stats=Stats(),
            watchdog=self.watchdog,
        )
        made, labels = transfer.hand_over(transfer.begin(HostBatch(0, epoch, plan, images, plan.labels)))
        return plan, (made.cpu(), labels.cpu())
