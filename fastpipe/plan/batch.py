"""The plan of one batch: its samples, their crops, and which are mirrored."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.crop_boxes import Crops
from fastpipe.plan.draws import Bools, Int64s


@dataclass(frozen=True)
class BatchPlan:
    """What the engine has to do for n samples, each of which becomes k rows: 1, or as many as the crop gives."""

    ids: Int64s  # (n,) places of the samples in the dataset
    samples: Int64s  # (n,) their numbers in its index
    records: NDArray[np.void]  # (n,) their index records
    crops: Crops  # the n * k rows', those of a sample one after the other
    flips: Bools  # (n * k,) mirror left and right
    valid: Bools  # (n,) samples that count; the others are there twice, so that all ranks' batches are of one size
    names: Int64s  # (n,) that name the random draws of each row; those of the samples, where none comes twice
    more: tuple[BatchPlan, ...] = ()  # the same samples in the views after the first

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def views(self) -> tuple[BatchPlan, ...]:
        """The plans of all views; where there is but one, this one."""
        return self, *self.more

    @property
    def rows_per_sample(self) -> int:
        return len(self.flips) // max(len(self.samples), 1)

    def by_row(self) -> BatchPlan:
        """The plan of the n * k rows as if each were that of a sample."""
        k = self.rows_per_sample
        if k == 1:
            return self
        return self._of(np.repeat(np.arange(len(self)), k), self.crops, self.flips)

    @property
    def labels(self) -> Int64s:
        """(n,) int64, a copy."""
        return self.records["label"].astype(np.int64)

    def part(self, start: int, stop: int) -> BatchPlan:
        k = self.rows_per_sample
        rows, more = slice(start * k, stop * k), tuple(view.part(start, stop) for view in self.more)
        return self._of(slice(start, stop), self.crops.part(rows), self.flips[rows], more)

    def _of(self, some: Int64s | slice, crops: Crops, flips: Bools, more: tuple[BatchPlan, ...] = ()) -> BatchPlan:
        ids, samples, records = self.ids[some], self.samples[some], self.records[some]
        return BatchPlan(ids, samples, records, crops, flips, self.valid[some], self.names[some], more)

    def replaced(self, rows: Int64s, others: BatchPlan) -> BatchPlan:
        """The same plan with other samples in some places, (m,), which `others` plans."""
        plan = deepcopy(self)
        plan.ids[rows] = others.ids
        plan.samples[rows] = others.samples
        plan.records[rows] = others.records
        made = rows_of(rows, self.rows_per_sample)
        for view, other in zip(plan.views, others.views, strict=True):
            view.crops.boxes[made] = other.crops.boxes
            view.crops.bounds[made] = other.crops.bounds
            if view.crops.shown is not None and other.crops.shown is not None:
                view.crops.shown[made] = other.crops.shown
            view.flips[made] = other.flips
        return plan


def rows_of(samples: Int64s, rows_per_sample: int) -> Int64s:
    return (samples[:, None] * rows_per_sample + np.arange(rows_per_sample)).ravel()
