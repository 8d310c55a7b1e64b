"""(index, options, seed, epoch, batch) -> the plan of that batch: its samples, their crops, and which are mirrored.

Every random choice is made here, ahead of the engine, as arrays: results cannot depend on threads or timing.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.plan.crop_boxes import Crops, plan_crops
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.plan.order import EpochOrder, samples_per_chunk
from fastpipe.plan.partition import ALONE, Partition, Ranks
from fastpipe.plan.readahead import joined, members, run_ranges, sample_ranges
from fastpipe.plan.sizes import Sizes

_NO_RUNS = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Recipe:
    """What decides a loader's batches, checked; nothing else does.

    Attributes:
        batch_size: samples a batch, of each rank.
        size: (height, width) of the output in pixels.
        crop: how a picture becomes its row.
        flip: probability of mirroring left and right.
        shuffle: a new order each epoch; False gives shard order.
        drop_last: leave out a last global batch that is not full.
        seed: in [0, 2**64).
        ranks: who shares an epoch.
        sequences: that an epoch's order is cut into; see Note [partition].
        sizes: where they change, instead of `size`, which is the largest that is known.
    """

    batch_size: int
    size: tuple[int, int]
    crop: Crop
    flip: float
    shuffle: bool
    drop_last: bool
    seed: int
    ranks: Ranks = ALONE
    sequences: int = 1
    sizes: Sizes | None = None


@dataclass(frozen=True)
class BatchPlan:
    """What the engine has to do for n samples, each of which becomes k rows: 1, or as many as the crop gives.

    Attributes:
        samples: (n,) int64 sample numbers.
        records: (n,) their index records.
        crops: the n * k rows', those of a sample one after the other.
        flips: (n * k,) bool: mirror left and right.
        valid: (n,) bool: samples that count; the others are there twice, so that all ranks' batches are of one size.
    """

    samples: NDArray[np.int64]
    records: NDArray[np.void]
    crops: Crops
    flips: NDArray[np.bool_]
    valid: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def rows_per_sample(self) -> int:
        """k."""
        return len(self.flips) // max(len(self.samples), 1)

    def by_row(self) -> BatchPlan:
        """The plan of the n * k rows as if each were that of a sample."""
        k = self.rows_per_sample
        if k == 1:
            return self
        rows = np.repeat(np.arange(len(self)), k)
        return BatchPlan(self.samples[rows], self.records[rows], self.crops, self.flips, self.valid[rows])

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,) int64, a copy."""
        return self.records["label"].astype(np.int64)

    def replaced(self, rows: NDArray[np.int64], others: BatchPlan) -> BatchPlan:
        """The same plan with other samples in some places, (m,), which `others` plans."""
        plan = deepcopy(self)
        plan.samples[rows] = others.samples
        plan.records[rows] = others.records
        made = rows_of(rows, self.rows_per_sample)
        plan.crops.boxes[made] = others.crops.boxes
        plan.crops.bounds[made] = others.crops.bounds
        plan.flips[made] = others.flips
        return plan


def rows_of(samples: NDArray[np.int64], rows_per_sample: int) -> NDArray[np.int64]:
    """The rows of samples at these places of a batch."""
    return (samples[:, None] * rows_per_sample + np.arange(rows_per_sample)).ravel()


def partition_of(samples: int, recipe: Recipe) -> Partition:
    """Who takes what of an epoch."""
    return Partition(
        samples, recipe.batch_size, drop_last=recipe.drop_last, ranks=recipe.ranks, sequences=recipe.sequences
    )


def batches_per_epoch(samples: int, recipe: Recipe) -> int:
    """How many batches each rank's epoch has."""
    return partition_of(samples, recipe).batches


class EpochPlan:
    """Plans the batches of one rank's epoch, any of them, in any order.

    Attributes:
        epoch: its number.
        orders: of each sequence that the rank's node reads: its first place, and the order of its places. Places are
            those of `samples_at`.
    """

    def __init__(self, index: Index, recipe: Recipe, epoch: int) -> None:
        self._index = index
        self._recipe = recipe
        self.epoch = epoch
        self._sizes = None if recipe.sizes is None else recipe.sizes.in_epoch(epoch, recipe.seed)
        self._partition = partition_of(len(index), recipe)
        chunk = 1 if index.scattered else samples_per_chunk(len(index), index.jpeg_bytes)
        self.orders: dict[int, tuple[int, EpochOrder]] = {}
        for number, first, samples in self._partition.sequences:
            seed = recipe.seed if recipe.sequences == 1 else key(recipe.seed, number, Stream.SEQUENCE)
            order = EpochOrder(samples, chunk, seed=seed, epoch=epoch, shuffle=recipe.shuffle)
            self.orders[number] = (first, order)

    def __len__(self) -> int:
        return self._partition.batches

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at places of the order that the epoch is cut from."""
        return self._index.samples_at(places) if self._recipe.shuffle else places

    def batch(self, number: int) -> BatchPlan:
        """The plan of batch `number`, 0 <= number < len(self)."""
        share = self._partition.share(number)
        taken = []
        for sequence, start, stop in share.spans:
            first, order = self.orders[sequence]
            taken.append(order.take(start, stop) + first)
        return self._plan(self.samples_at(np.concatenate(taken)[share.rows]), share.valid, number)

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
        runs = [_NO_RUNS]
        for sequence, start, stop in self._partition.spans(number):
            base, order = self.orders[sequence]
            if start < stop:
                runs.append(order.reads(start, stop, first=first) + base)
        if self._index.packed:
            ranges = run_ranges(self._index, np.concatenate(runs))
        else:
            coming = self._index.records_of(self.samples_at(members(np.concatenate(runs))))
            ranges = joined(sample_ranges(coming))
        return np.concatenate([sample_ranges(plan.records), ranges]) if first else ranges

    @property
    def world_size(self) -> int:
        """Processes that share the epoch."""
        return self._recipe.ranks.world_size

    def upcoming(self, number: int, *, first: bool) -> NDArray[np.int64]:
        """This rank's samples of the chunks that `reads` names before batch `number`, chunk by chunk.

        Args:
            number: of the batch.
            first: no batch was before it.
        """
        found = [np.empty(0, dtype=np.int64)]
        for sequence, start, stop in self._partition.spans(number):
            base, order = self.orders[sequence]
            if start == stop:
                continue
            begin, end = order.positions_ahead(start, stop, first=first)
            mine = self._partition.mine(sequence, np.arange(begin, end))
            samples = np.sort(order.take(begin, end)[mine])
            for run in order.reads(start, stop, first=first):
                found.append(samples[slice(*np.searchsorted(samples, run))] + base)
        return np.concatenate(found)

    def replacements(self, samples: NDArray[np.int64], attempt: int, number: int = 0) -> BatchPlan:
        """Other samples for those of batch `number` that cannot be decoded: a draw by sample and attempt, never the
        sample itself.
        """
        count = len(self._index)
        draw = uniform(key(self._recipe.seed, self.epoch, Stream.REPLACE), samples + attempt * count)
        distance = 1 + (draw * (count - 1)).astype(np.int64)
        return self.of((samples + distance) % count, number)

    def of(self, samples: NDArray[np.int64], number: int = 0) -> BatchPlan:
        """The plan of some samples, as this epoch has them in whatever batch that has the size of batch `number`."""
        return self._plan(samples, np.ones(len(samples), dtype=np.bool_), number)

    def _plan(self, samples: NDArray[np.int64], valid: NDArray[np.bool_], number: int) -> BatchPlan:
        recipe = self._recipe
        records = self._index.read(samples)
        crops = plan_crops(
            recipe.crop,
            recipe.size if self._sizes is None else self._sizes.of(number),
            records["width"].astype(np.int64),
            records["height"].astype(np.int64),
            seed=recipe.seed,
            epoch=self.epoch,
            samples=samples,
        )
        flips = uniform(key(recipe.seed, self.epoch, Stream.FLIP), samples) < recipe.flip
        if crops.mirrored is not None:
            flips = crops.mirrored
        elif recipe.crop.rows > 1:
            flips = np.repeat(flips, recipe.crop.rows)
        return BatchPlan(samples, records, crops, flips, valid)
