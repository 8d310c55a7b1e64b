"""Some samples -> the batch that an epoch of a loader makes of them, for somebody who looks; no iteration changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.device.host_batch import HostBatch
from fastpipe.device.streams import Stream
from fastpipe.device.transfer import Transfer
from fastpipe.engine.engine import Engine
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.format.index import Index
from fastpipe.loading.row_jobs import RowJobs
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

if TYPE_CHECKING:  # most programs load no fields
    from fastpipe.loading.fields import FieldReader


@dataclass(frozen=True)
class Seen:
    """A batch on the CPU.

    Attributes:
        plan: of its rows.
        views: images as the training loop gets them, by view.
        labels: as the training loop gets them.
        fields: the values of fields by name, as the training loop gets them; none if it gets (images, labels).
    """

    plan: BatchPlan
    views: tuple[torch.Tensor, ...]
    labels: torch.Tensor
    fields: dict[str, Any]

    @property
    def images(self) -> torch.Tensor:
        """Those of the first view."""
        return self.views[0]


@dataclass(frozen=True)
class Look:
    """What a loader makes batches with.

    Attributes:
        index, recipe, engine, stream, watchdog, fields: the loader's own.
        augments: of each view.
    """

    index: Index
    recipe: Recipe
    engine: Engine
    stream: Stream
    augments: tuple[Augment | None, ...]
    watchdog: Watchdog
    fields: FieldReader | None

    def at(self, samples: NDArray[np.int64], epoch: int) -> Seen:
        """Decodes samples at full size and takes them through the loader's device and augmentation.

        Args:
            samples: (n,) int64 sample numbers.
            epoch: whose crops and augmentation.

        Raises:
            SampleError: a sample cannot be decoded.
            DatasetError: a field cannot be read.
        """
        plan = EpochPlan(self.index, self.recipe, epoch).of(samples)
        rows = len(samples) * plan.rows_per_sample
        images = tuple(self.stream.slot((rows, *view.crops.size, 3)) for view in plan.views)
        fields = None
        jobs = [self.engine.submit(plan.by_row(), *((each, True) for each in images))]
        if self.fields is not None:
            fields = self.fields.read(plan)
            for name, out in self.fields.slots(len(samples), plan.crops.size).items():
                jobs.append(self.engine.submit_field(plan, self.fields.stored(name, samples), out))
                fields.arrays[name] = out
        job = RowJobs(jobs, plan.rows_per_sample)
        while not job.wait(1.0):
            self.engine.check_usable()
        for row, reason in job.errors():
            raise self.index.sample_error(int(samples[row]), reason)
        transfer = Transfer(
            self.stream,
            list(zip(self.augments, (view.seed for view in self.recipe.views), strict=True)),
            classes=len(self.recipe.content.classes or self.index.classes),
            stats=Stats(),
            watchdog=self.watchdog,
        )
        staged = transfer.begin(HostBatch(0, epoch, plan, images, plan.labels, plan.samples, fields, plan.crops.shown))
        batch = transfer.hand_over(staged)
        values = {fields.names[key]: _on_cpu(value) for key, value in batch.items()} if fields else {}
        return Seen(plan, tuple(each.cpu() for each in staged.images), staged.labels.cpu(), values)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_cpu(each) for each in value]
    return value.cpu() if isinstance(value, torch.Tensor) else value
