"""(index, options, seed, epoch, batch) -> the plan of that batch: which samples, which crop of each, which mirrored.

Every random choice is made here, ahead of the engine, as arrays: results cannot depend on threads or timing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.config import Crop
from fastpipe.crops import Crops, plan_crops
from fastpipe.draws import Stream, key, uniform
from fastpipe.index import Index
from fastpipe.order import EpochOrder, samples_per_chunk
from fastpipe.readahead import run_ranges, sample_ranges


@dataclass(frozen=True)
class Recipe:
    """What decides a loader's batches, checked; nothing else does.

    Attributes:
        batch_size: samples a batch.
        size: (height, width) of the output in pixels.
        crop: how a picture becomes its row.
        flip: probability of mirroring left and right.
        shuffle: a new order each epoch; False gives shard order.
        drop_last: leave out a last batch that is not full.
        seed: in [0, 2**64).
    """

    batch_size: int
    size: tuple[int, int]
    crop: Crop
    flip: float
    shuffle: bool
    drop_last: bool
    seed: int


@dataclass(frozen=True)
class BatchPlan:
    """What the engine has to do for n rows.

    Attributes:
        samples: (n,) int64 sample numbers.
        records: (n,) their index records.
        crops: their crops.
        flips: (n,) bool: mirror left and right.
    """

    samples: NDArray[np.int64]
    records: NDArray[np.void]
    crops: Crops
    flips: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) int64, a copy."""
        return self.records["label"].astype(np.int64)


def batches_per_epoch(samples: int, recipe: Recipe) -> int:
    """How many batches an epoch has."""
    full, rest = divmod(samples, recipe.batch_size)
    return full + (rest > 0 and not recipe.drop_last)


class EpochPlan:
    """Plans the batches of one epoch, any of them, in any order.

    Attributes:
        epoch: its number.
        order: of the samples.
    """

    def __init__(self, index: Index, recipe: Recipe, epoch: int) -> None:
        self._index = index
        self._recipe = recipe
        self.epoch = epoch
        chunk = samples_per_chunk(len(index), index.jpeg_bytes)
        self.order = EpochOrder(len(index), chunk, seed=recipe.seed, epoch=epoch, shuffle=recipe.shuffle)

    def __len__(self) -> int:
        return batches_per_epoch(len(self._index), self._recipe)

    def batch(self, number: int) -> BatchPlan:
        """The plan of batch `number`, 0 <= number < len(self)."""
        start = number * self._recipe.batch_size
        stop = min(start + self._recipe.batch_size, len(self._index))
        return self.of(self.order.take(start, stop))

    def reads(self, number: int, plan: BatchPlan, *, first: bool) -> NDArray[np.void]:
        """What the engine should have read ahead before batch `number`, in order; see EpochOrder.reads.

        Args:
            number: of the batch.
            plan: of the batch.
            first: no batch was before it. Then its own samples come first of all, so that it need not wait for a
                whole window.

        Returns:
            (n,) of readahead.RANGE_DTYPE.
        """
        start = number * self._recipe.batch_size
        runs = run_ranges(self._index, self.order.reads(start, start + len(plan), first=first))
        return np.concatenate([sample_ranges(plan.records), runs]) if first else runs

    def replacements(self, samples: NDArray[np.int64], attempt: int) -> BatchPlan:
        """Other samples for those that cannot be decoded: a draw by sample and attempt, never the sample itself."""
        count = len(self._index)
        draw = uniform(key(self._recipe.seed, self.epoch, Stream.REPLACE), samples + attempt * count)
        distance = 1 + (draw * (count - 1)).astype(np.int64)
        return self.of((samples + distance) % count)

    def of(self, samples: NDArray[np.int64]) -> BatchPlan:
        """The plan of some samples, as this epoch has them in whatever batch."""
        recipe = self._recipe
        records = self._index.read(samples)
        crops = plan_crops(
            recipe.crop,
            recipe.size,
            records["width"].astype(np.int64),
            records["height"].astype(np.int64),
            seed=recipe.seed,
            epoch=self.epoch,
            samples=samples,
        )
        flips = uniform(key(recipe.seed, self.epoch, Stream.FLIP), samples) < recipe.flip
        return BatchPlan(samples, records, crops, flips)
