"""(index, recipe, epoch) -> the plan of any batch of the epoch, and what is read and fetched ahead of it.

Every random choice is made here, ahead of the engine, as arrays: results cannot depend on threads or timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastpipe.format.index import Index
from fastpipe.format.mixed_index import MixedIndex
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.content import ALL, EpochContent
from fastpipe.plan.crop_boxes import check_room, crops_at, plan_bucket, plan_crops, random_resized
from fastpipe.plan.crops import RandomCrop, RandomResizedCrop
from fastpipe.plan.draws import Stream, key, keys, uniform
from fastpipe.plan.grouping import Grouping
from fastpipe.plan.mixture import MixedContent, MixedPartition
from fastpipe.plan.partition import Partition
from fastpipe.plan.passes import Passes
from fastpipe.plan.readahead import joined, members, run_ranges, runs_of, sample_ranges
from fastpipe.plan.recipe import Recipe, partition_of

_MOST_LOOKED_AT = 1 << 21  # samples: 0.6 s
_AT_ONCE = 1 << 20


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
        views = zip(plan.views, self._recipe.views, strict=True)
        size = next((made.crops.size for made, view in views if view.size is None), self._recipe.size)  # the batch's
        return self._plan(others, np.ones(len(rows), dtype=np.bool_), others, size)

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
        return self._recipe.size if self._sizes is None else self._sizes(number)

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
        drawn = uniform(keys([view.seed for view in recipe.views], self.epoch, Stream.FLIP)[:, None], names)
        random = [(view.crop, view.seed) for view in recipe.views if isinstance(view.crop, RandomResizedCrop)]
        boxes = iter(random_resized(random, widths, heights, epoch=self.epoch, samples=names) if random else ())
        for view, draws in zip(recipe.views, drawn, strict=True):
            flips = draws < view.flip
            if isinstance(view.crop, Buckets):
                crops = plan_bucket(view.crop, size, widths, heights, flips)
            elif isinstance(view.crop, RandomResizedCrop):
                assert size is not None
                crops = crops_at(next(boxes), view.crop, view.size or size)
            else:
                assert size is not None
                named = {"seed": view.seed, "epoch": self.epoch}
                called = _names(self._index, samples)
                crops = plan_crops(view.crop, view.size or size, widths, heights, samples=names, name=called, **named)
                if view.crop.rows > 1:
                    flips = np.repeat(flips, view.crop.rows)
                if crops.mirrored is not None:
                    flips = crops.mirrored
            planned.append(BatchPlan(samples, records, crops, flips, valid, names))
        return planned[0] if len(planned) == 1 else replace(planned[0], more=tuple(planned[1:]))


def check_pictures(index: Index, recipe: Recipe) -> None:
    """Looks for pictures that are too small for a random crop, or too large, before an epoch comes to them.

    Of more than 2 million samples, of those that are drawn by weights, and where a function gives the sizes, the plan
    of a batch tells.

    Raises:
        ConfigError, DatasetError: as the plan of the batch that has it.
    """
    count, content = recipe.content.count(len(index)), recipe.content
    sizes = recipe.sizes.choices if recipe.sizes is not None and recipe.sizes.choices else (recipe.size,)
    crops = [view for view in recipe.views if isinstance(view.crop, RandomCrop) and not view.crop.pad_if_needed]
    if content.weighting is not None or count > _MOST_LOOKED_AT or not (crops or index.may_be_large):
        return
    samples = np.arange(count, dtype=np.int64) if content.samples is None else content.samples
    starts = range(0, count, _AT_ONCE)
    records = np.concatenate([index.records_of(samples[at : at + _AT_ONCE])[["width", "height"]] for at in starts])
    index.check_pixels(samples, records)
    widths, heights = (np.maximum(records[side].astype(np.int64), 1) for side in ("width", "height"))
    for view in crops:
        for size in sizes:
            check_room(view.crop, view.size or size, widths, heights, _names(index, samples))


def _names(index: Index, samples: NDArray[np.int64]) -> Callable[[int], str]:
    return lambda at: index.name_of(int(samples[at]))


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
