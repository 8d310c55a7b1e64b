"""(index, options, seed, epoch, batch) -> the plan of that batch: its samples, their crops, and which are mirrored.

Every random choice is made here, ahead of the engine, as arrays: results cannot depend on threads or timing.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ALL, Content, EpochContent
from fastpipe.plan.crop_boxes import Crops, plan_bucket, plan_crops
from fastpipe.plan.crops import Crop
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.plan.grouping import Grouping
from fastpipe.plan.mixture import MixedContent, MixedPartition, Mixture
from fastpipe.plan.partition import ALONE, Partition, Ranks
from fastpipe.plan.passes import Passes
from fastpipe.plan.readahead import joined, members, run_ranges, runs_of, sample_ranges
from fastpipe.plan.sizes import Sizes
from fastpipe.plan.views import ViewRecipe


@dataclass(frozen=True)
class Recipe:
    """What decides a loader's batches, checked; nothing else does.

    Attributes:
        batch_size: samples a batch, of each rank.
        size: (height, width) of the output in pixels.
        crop: how a picture becomes its row; Buckets also decide which samples are in one batch, and its size.
        flip: probability of mirroring left and right.
        shuffle: a new order each epoch; False gives shard order.
        drop_last: leave out a last global batch that is not full.
        seed: in [0, 2**64).
        ranks: who shares an epoch.
        sequences: that an epoch's order is cut into; see Note [partition].
        sizes: where they change, instead of `size`, which is the largest that is known.
        content: which samples of the dataset epochs have.
        mixture: of the datasets of a MixedIndex; None: it is none.
        more: the views after the first, which is described by size, crop and flip; see Note [views].
    """

    batch_size: int
    size: tuple[int, int]
    crop: Crop | Buckets
    flip: float
    shuffle: bool
    drop_last: bool
    seed: int
    ranks: Ranks = ALONE
    sequences: int = 1
    sizes: Sizes | None = None
    content: Content = ALL
    mixture: Mixture | None = None
    more: tuple[ViewRecipe, ...] = ()

    @property
    def views(self) -> tuple[ViewRecipe, ...]:
        """All of them."""
        return ViewRecipe(None, self.crop, self.flip, self.seed), *self.more

    @property
    def one_size(self) -> bool:
        """Whether all views have the loader's size, whatever it is."""
        return all(view.size is None for view in self.more)


@dataclass(frozen=True)
class BatchPlan:
    """What the engine has to do for n samples, each of which becomes k rows: 1, or as many as the crop gives.

    Attributes:
        samples: (n,) int64 sample numbers.
        records: (n,) their index records.
        crops: the n * k rows', those of a sample one after the other.
        flips: (n * k,) bool: mirror left and right.
        valid: (n,) bool: samples that count; the others are there twice, so that all ranks' batches are of one size.
        names: (n,) int64 that name the random draws of each row; those of the samples, where none comes twice.
        more: the same samples in the views after the first.
    """

    samples: NDArray[np.int64]
    records: NDArray[np.void]
    crops: Crops
    flips: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    names: NDArray[np.int64]
    more: tuple[BatchPlan, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def views(self) -> tuple[BatchPlan, ...]:
        """The plans of all views; where there is but one, this one."""
        return self, *self.more

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
        return BatchPlan(
            self.samples[rows], self.records[rows], self.crops, self.flips, self.valid[rows], self.names[rows]
        )

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
        for view, other in zip(plan.views, others.views, strict=True):
            view.crops.boxes[made] = other.crops.boxes
            view.crops.bounds[made] = other.crops.bounds
            if view.crops.shown is not None and other.crops.shown is not None:
                view.crops.shown[made] = other.crops.shown
            view.flips[made] = other.flips
        return plan


def rows_of(samples: NDArray[np.int64], rows_per_sample: int) -> NDArray[np.int64]:
    """The rows of samples at these places of a batch."""
    return (samples[:, None] * rows_per_sample + np.arange(rows_per_sample)).ravel()


def partition_of(samples: int, recipe: Recipe, epoch: int = 0) -> Partition | MixedPartition:
    """Who takes what of an epoch of a dataset of so many samples."""
    if recipe.mixture is not None:
        return MixedPartition(
            recipe.mixture.weights,
            recipe.mixture.batches,
            epoch,
            recipe.batch_size,
            ranks=recipe.ranks,
            nodes=recipe.sequences,
            seed=recipe.seed,
        )
    return Partition(
        recipe.content.size(samples),
        recipe.batch_size,
        drop_last=recipe.drop_last,
        ranks=recipe.ranks,
        sequences=recipe.sequences,
        in_turn=recipe.content.repeats > 1,
    )


def batches_per_epoch(samples: int, recipe: Recipe) -> int:
    """How many batches each rank's epoch of a dataset of so many samples has."""
    return partition_of(samples, recipe).batches


class EpochPlan:
    """Plans the batches of one rank's epoch, any of them, in any order.

    Attributes:
        epoch: its number.
        orders: of each sequence that the rank's node reads: its first place, and the order of its places.
        samples_at: (n,) places -> the samples there.
    """

    def __init__(self, index: Index, recipe: Recipe, epoch: int) -> None:
        self._index = index
        self._recipe = recipe
        self.epoch = epoch
        self._sizes = None if recipe.sizes is None else recipe.sizes.in_epoch(epoch, recipe.seed)
        self._partition = partition_of(len(index), recipe, epoch)
        self._content = self._content_of(index)
        self.samples_at = self._content.samples_at
        self.orders: dict[int, tuple[int, Passes]] = {}
        alone = recipe.sequences == 1 and recipe.mixture is None
        everyones = self._partition
        if isinstance(recipe.crop, Buckets):  # all ranks give a global batch one size: each looks at all sequences
            everyones = partition_of(len(index), replace(recipe, ranks=replace(recipe.ranks, nodes=1)), epoch)
        for number, _, size in everyones.sequences:
            first, places, chunk = self._content.sequence(number, recipe.sequences)
            order = Passes(
                places,
                chunk,
                seed=recipe.seed if alone else key(recipe.seed, number, Stream.SEQUENCE),
                begin=self._begin_of(number, size, places),
                size=size,
                repeats=recipe.content.repeats,
                shuffle=recipe.shuffle,
            )
            self.orders[number] = (first, order)
        self._grouping: Grouping | None = None
        if isinstance(recipe.crop, Buckets):
            assert isinstance(everyones, Partition)
            assert isinstance(self._content, EpochContent)
            self._grouping = Grouping(
                everyones,
                partial(_resized, index, self.orders, self._content, recipe.crop),
                recipe.crop,
                batches=Grouping.batches_of(self._content.chunk, everyones.global_batch_size),
                key=key(recipe.seed, epoch, Stream.GROUP) if recipe.shuffle else None,
            )

    def _content_of(self, index: Index) -> EpochContent | MixedContent:
        recipe = self._recipe
        if recipe.mixture is not None:
            assert isinstance(index, MixedIndex)
            return MixedContent(index, recipe.mixture, shuffle=recipe.shuffle, seed=recipe.seed, epoch=self.epoch)
        places = recipe.content.places(len(index), recipe.sequences)
        return EpochContent(index, recipe.content, places, shuffle=recipe.shuffle, seed=recipe.seed, epoch=self.epoch)

    def _begin_of(self, sequence: int, size: int, places: int) -> int:
        """Where the epoch begins in the endless order of a sequence; see Note [passes]."""
        if isinstance(self._partition, MixedPartition):
            return self._partition.begins[sequence % len(self._partition.begins)]
        if self._recipe.content.weighting is None:
            return self.epoch * size
        return self.epoch * places * self._recipe.content.repeats  # draws are made anew: a pass of their own

    def __len__(self) -> int:
        return self._partition.batches

    def batch(self, number: int) -> BatchPlan:
        """The plan of batch `number`, 0 <= number < len(self)."""
        share = self._partition.share(number)
        taken, times = [], []
        for sequence, start, stop in share.spans:
            first, order = self.orders[sequence]
            if self._grouping is None:
                taken.append(order.take(start, stop) + first)
                times.append(order.times(start, stop))
            else:
                begin, chosen = self._grouping.positions(sequence, start, stop)
                end = begin + int(chosen.max(initial=-1)) + 1
                taken.append(order.take(begin, end)[chosen] + first)
                times.append(order.times(begin, end)[chosen])
        places, time = np.concatenate(taken)[share.rows], np.concatenate(times)[share.rows]
        samples = self.samples_at(places)
        return self._plan(samples, share.valid, self._content.names(samples, places, time), self._size_of(number))

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
        found = []
        for sequence, start, stop in self._spans_ahead(number, first=first):
            base, order = self.orders[sequence]
            found.append(order.reads(start, stop, first=first) + base)
        runs = np.concatenate(found)
        if not self._content.plain:
            samples = self.samples_at(members(runs))
            runs = runs_of(samples)
        if self._index.packed:
            ranges = run_ranges(self._index, runs)
        else:
            ranges = joined(sample_ranges(self._index.records_of(samples)))
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
        for sequence, start, stop in self._spans_ahead(number, first=first):
            base, order = self.orders[sequence]
            mine = partial(self._mine, sequence)
            found += [run + base for run in order.ahead(start, stop, mine, first=first)]
        samples = self.samples_at(np.concatenate(found))
        again = np.zeros(len(samples), dtype=np.bool_)
        again[1:] = samples[1:] == samples[:-1]  # drawn more than once
        return samples[~again]

    def _spans_ahead(self, number: int, *, first: bool) -> list[tuple[int, int, int]]:
        """(sequence, start, stop): what is used up to batch `number`, as far as no batch before it has said so."""
        if self._grouping is None:
            return self._partition.spans(number)
        return [(each, *self._grouping.due(each, number, first=first)) for each, _, _ in self._partition.sequences]

    def _mine(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which positions of a sequence are this rank's."""
        if self._grouping is not None:
            positions = self._grouping.grouped(sequence, positions)
        return self._partition.mine(sequence, positions)

    def others(self, plan: BatchPlan, rows: NDArray[np.int64], attempt: int) -> BatchPlan:
        """Other samples for rows of a batch that cannot be decoded: a draw by row and attempt. Where epochs go through
        all samples of the dataset it is never the sample itself.
        """
        names, samples = plan.names[rows], plan.samples[rows]
        count = len(self._index)
        draw = uniform(key(self._recipe.seed, self.epoch, Stream.REPLACE), names + attempt * count)
        if self._content.plain or self._recipe.content is ALL:
            others = (samples + 1 + (draw * (count - 1)).astype(np.int64)) % count
        else:
            others = self.samples_at((draw * self._content.places).astype(np.int64))
        return self._plan(others, np.ones(len(rows), dtype=np.bool_), others, plan.crops.size)

    @property
    def alternatives(self) -> bool:
        """Whether there is more than one sample."""
        return self._recipe.content.count(len(self._index)) > 1

    def of(self, samples: NDArray[np.int64], number: int = 0) -> BatchPlan:
        """The plan of some samples that come for the first time, as this epoch has them in whatever batch that has the
        size of batch `number`; with Buckets, as a batch of these samples alone.
        """
        size = None if self._grouping is not None else self._size_of(number)
        return self._plan(samples, np.ones(len(samples), dtype=np.bool_), samples, size)

    def _size_of(self, number: int) -> tuple[int, int]:
        if self._grouping is not None:
            return self._grouping.size(number)
        return self._recipe.size if self._sizes is None else self._sizes.of(number)

    def _plan(
        self,
        samples: NDArray[np.int64],
        valid: NDArray[np.bool_],
        names: NDArray[np.int64],
        size: tuple[int, int] | None,
    ) -> BatchPlan:
        recipe = self._recipe
        records = self._index.read(samples)
        if recipe.content.labels is not None:
            records["label"] = recipe.content.labels[records["label"]]
        widths, heights = (records[side].astype(np.int64) for side in ("width", "height"))
        planned = []
        for view in recipe.views:
            flips = uniform(key(view.seed, self.epoch, Stream.FLIP), names) < view.flip
            if isinstance(view.crop, Buckets):
                crops = plan_bucket(view.crop, size, widths, heights, flips)
            else:
                assert size is not None
                draws = {"seed": view.seed, "epoch": self.epoch}
                crops = plan_crops(view.crop, view.size or size, widths, heights, samples=names, **draws)
                if view.crop.rows > 1:
                    flips = np.repeat(flips, view.crop.rows)
                if crops.mirrored is not None:
                    flips = crops.mirrored
            planned.append(BatchPlan(samples, records, crops, flips, valid, names))
        return planned[0] if len(planned) == 1 else replace(planned[0], more=tuple(planned[1:]))


def _resized(
    index: Index,
    orders: dict[int, tuple[int, Passes]],
    content: EpochContent,
    buckets: Buckets,
    sequence: int,
    start: int,
    stop: int,
) -> NDArray[np.int64]:
    """(n, 2) widths and heights in their rows of the samples at positions of a sequence's order."""
    first, order = orders[sequence]
    records = index.records_of(content.samples_at(order.take(start, stop) + first))
    # A damaged record is found when its sample's batch is planned.
    return buckets.resized(*(np.maximum(records[side].astype(np.int64), 1) for side in ("width", "height")))
