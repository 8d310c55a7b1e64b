"""The plan of one batch: its samples, their crops, and which rows are mirrored."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from fastpipe.arrays import Bools, Int64s, Records
from fastpipe.plan.crop_boxes import Crops


@dataclass(frozen=True)
class BatchPlan:
    """The work of the engine for n samples.

    Each sample becomes k rows: 1, or as many as the crop has (FiveCrop: 5).
    """

    ids: Int64s  # (n,) positions of the samples in the dataset
    samples: Int64s  # (n,) numbers of the samples in the index
    records: Records  # (n,) index records of the samples
    crops: Crops  # of the n * k rows; the rows of a sample are neighbours
    flips: Bools  # (n * k,) True: the row is mirrored left and right
    # (n,) samples that count. The others are repeats, to give the batches of all ranks one size.
    valid: Bools
    # (n,) names of the random draws; the samples' numbers, unless a sample may come twice.
    names: Int64s
    row_names: Int64s  # (n * k,) the same for the draws of each row
    other_views: tuple[
        BatchPlan, ...
    ] = ()  # the same samples in the views after the first

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def views(self) -> tuple[BatchPlan, ...]:
        """The plans of all views, this one first."""
        return self, *self.other_views

    @property
    def rows_per_sample(self) -> int:
        return len(self.flips) // max(len(self.samples), 1)

    @property
    def has_own_sizes(self) -> bool:
        """Whether the rows have sizes of their own."""
        return self.crops.row_sizes is not None

    def by_row(self) -> BatchPlan:
        """The plan of n * k samples of one row each: each sample is repeated for its rows."""
        k = self.rows_per_sample
        if k == 1:
            return self
        samples = np.repeat(np.arange(len(self)), k)
        by_row = self._select(samples, self.crops, self.flips, self.row_names)
        return replace(by_row, names=self.row_names)

    @property
    def labels(self) -> Int64s:
        """(n,) int64, a copy."""
        return self.records["label"].astype(np.int64)

    def part(self, start: int, stop: int) -> BatchPlan:
        """The plan of the samples [start, stop) of this batch."""
        k = self.rows_per_sample
        rows = slice(start * k, stop * k)
        other_views = tuple(view.part(start, stop) for view in self.other_views)
        return self._select(
            slice(start, stop),
            self.crops.part(rows),
            self.flips[rows],
            self.row_names[rows],
            other_views,
        )

    def _select(
        self,
        chosen: Int64s | slice,
        crops: Crops,
        flips: Bools,
        row_names: Int64s,
        other_views: tuple[BatchPlan, ...] = (),
    ) -> BatchPlan:
        """The plan of some samples of this batch, with these crops, flips and names of their rows."""
        return BatchPlan(
            ids=self.ids[chosen],
            samples=self.samples[chosen],
            records=self.records[chosen],
            crops=crops,
            flips=flips,
            valid=self.valid[chosen],
            names=self.names[chosen],
            row_names=row_names,
            other_views=other_views,
        )

    def replaced(self, rows: Int64s, others: BatchPlan) -> BatchPlan:
        """The same plan with the samples of `others` in place of those at `rows`, (m,).

        `valid` and `names` stay, so the augmentation of a row does not depend on which sample
        stands in.
        """
        # The arrays may be parts of larger plans, which stay as they are.
        plan = deepcopy(self)
        plan.ids[rows] = others.ids
        plan.samples[rows] = others.samples
        plan.records[rows] = others.records
        image_rows = rows_of(rows, self.rows_per_sample)
        for view, other in zip(plan.views, others.views, strict=True):
            crops = view.crops
            new_crops = other.crops
            crops.boxes[image_rows] = new_crops.boxes
            crops.bounds[image_rows] = new_crops.bounds
            if crops.image_sizes is not None and new_crops.image_sizes is not None:
                crops.image_sizes[image_rows] = new_crops.image_sizes
            if crops.row_sizes is not None and new_crops.row_sizes is not None:
                crops.row_sizes[image_rows] = new_crops.row_sizes
            view.flips[image_rows] = other.flips
        return plan


def rows_of(samples: Int64s, rows_per_sample: int) -> Int64s:
    """The rows of samples at these positions of a batch: (n,) -> (n * rows_per_sample,)."""
    first_rows = samples[:, None] * rows_per_sample
    rows = first_rows + np.arange(rows_per_sample)
    return rows.ravel()
