"""(recipe, epoch) -> the plan of any batch of the epoch, and what is read and fetched ahead of it.

Every random choice is made here, ahead of the engine, as arrays: results cannot depend on threads or timing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import FastpipeError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets, Grouping
from fastpipe.plan.content import Content
from fastpipe.plan.crop_boxes import canvas_of, check_room, crops_at, plan_crops, random_resized
from fastpipe.plan.crops import RandomCrop, RandomResizedCrop
from fastpipe.plan.draws import Bools, Int64s, Stream, key, keys, uniform
from fastpipe.plan.order import RANGE_DTYPE, Ids, Passes, Taken, joined, run_ranges, runs_of, sample_ranges
from fastpipe.plan.recipe import Recipe, Size, partition_of

_MOST_LOOKED_AT = 1 << 21  # samples: 0.6 s
_AT_ONCE = 1 << 20
_MOST_TOGETHER = 1 << 11  # samples whose batches are planned at once


class EpochPlan:
    """Plans the batches of one rank's epoch, any of them, in any order."""

    def __init__(self, recipe: Recipe, epoch: int) -> None:
        self.recipe, self._content, self.epoch = recipe, recipe.content, epoch
        self._sizes = None if recipe.sizes is None else recipe.sizes.in_epoch(epoch, recipe.seed)
        self._partition = partition_of(recipe, epoch)
        everyones = self._partition
        if isinstance(recipe.crop, Buckets):  # all ranks give a global batch one size: each looks at all sequences
            everyones = partition_of(replace(recipe, ranks=replace(recipe.ranks, nodes=1)), epoch)
        self._planned: dict[int, BatchPlan] = {}  # some that come next
        self._together = 1  # batches to plan next time: the first one is waited for
        # Of each sequence that the rank's node reads.
        self.orders = {number: self._order_of(number, size) for number, size in everyones.sequences}
        self._grouping: Grouping | None = None
        if isinstance(recipe.crop, Buckets):
            content, orders, buckets = self._content, self.orders, recipe.crop  # not self: no circle of objects

            def resized(sequence: int, start: int, stop: int) -> Int64s:
                return _resized(content, buckets, orders[sequence].take(start, stop).ids)

            stream = key(recipe.seed, epoch, Stream.GROUP) if recipe.shuffle else None
            together = Grouping.batches_of(content.chunk, everyones.global_batch_size)
            self._grouping = Grouping(everyones, resized, buckets, batches=together, key=stream)

    def _order_of(self, sequence: int, size: int) -> Passes:
        """The order of a sequence: a node's part of a share; see Note [partition]."""
        recipe, shares = self.recipe, len(self._content.weights)
        node, share = divmod(sequence, shares)
        total = recipe.places(share, self.epoch)
        first, end = (each * total // recipe.sequences for each in (node, node + 1))
        places, pick = end - first, recipe.picks[share] if recipe.picks else None
        begin = self._partition.begins[sequence]
        if pick is not None and not self._content.mixed:
            begin = self.epoch * places * recipe.repeats  # draws are made anew: a pass of their own
        return Passes(
            places,
            self._content.chunk if pick is None or pick.together else 1,
            seed=recipe.seed if recipe.sequences * shares == 1 else key(recipe.seed, sequence, Stream.SEQUENCE),
            begin=begin,
            size=size,
            repeats=recipe.repeats,
            shuffle=recipe.shuffle,
            ids=partial(_ids_of, recipe, self.epoch, share),  # not of self: no circle of objects
            base=first + int(self._content.starts[share]),
        )

    def __len__(self) -> int:
        return self._partition.batches

    def batch(self, number: int) -> BatchPlan:
        """The plan of batch `number`, 0 <= number < len(self)."""
        if number not in self._planned:
            together, self._together = self._together, 2 * self._together
            try:
                self._planned = self._batches(number, together)
            except FastpipeError as problem:
                if isinstance(problem.__cause__, OSError):
                    raise
                # One of them is wrong: it says so in its turn.
                self._planned = self._batches(number, 1)
        return self._planned.pop(number)

    def _batches(self, number: int, most: int) -> dict[int, BatchPlan]:
        """The plans of some batches from `number` on, of one size: numpy takes hardly longer for them than for one."""
        size, end = self._size_of(number), number + 1
        if self._grouping is None:
            stop = min(number + min(most, _MOST_TOGETHER // self.recipe.batch_size), len(self))
            while end < stop and self._size_of(end) == size:
                end += 1
        rows = [self._rows(each) for each in range(number, end)]
        ids, valid, names = (np.concatenate(each) for each in zip(*rows, strict=True))
        plan, ends = self._plan(ids, valid, names, size), np.cumsum([0, *(len(each) for each, _, _ in rows)]).tolist()
        return {each: plan.part(*ends[each - number : each - number + 2]) for each in range(number, end)}

    def _rows(self, number: int) -> tuple[Int64s, Bools, Int64s]:
        """The ids of a batch, which of them count, and what names their draws."""
        share = self._partition.share(number)
        ids, names = [], []
        for sequence, start, stop in share.spans:
            chosen: Int64s | slice = slice(None)
            if self._grouping is not None:
                start, chosen = self._grouping.positions(sequence, number, start, stop)
                stop = start + int(chosen.max(initial=-1)) + 1
            taken = self.orders[sequence].take(start, stop)
            ids.append(taken.ids[chosen])
            names.append(self._names(sequence, taken)[chosen])
        return np.concatenate(ids)[share.rows], share.valid, np.concatenate(names)[share.rows]

    def _names(self, sequence: int, taken: Taken) -> Int64s:
        """Numbers that name the random draws of rows: where a sample comes once in a pass, the sample's own."""
        recipe, content = self.recipe, self._content
        share = sequence % len(content.weights)
        if recipe.picks and not recipe.picks[share].distinct(self.epoch):
            total = max(recipe.places(share, self.epoch), len(content))
            return taken.places + taken.times * total
        return content.numbers(taken.ids) + taken.times * len(content.index)

    def reads(self, number: int, plan: BatchPlan, *, first: bool) -> NDArray[np.void]:
        """The ranges, (n,) of RANGE_DTYPE, to read ahead before a batch: those of the first one's `plan` come first."""
        content, index = self._content, self._content.index
        plain = content.plain and not self.recipe.picks
        spans = self._spans_ahead(number, first=first)
        found = [self.orders[sequence].reads(*span, first=first, runs=plain) for sequence, *span in spans]
        ahead = np.concatenate(found)
        if not (first or len(ahead)):  # most often, where many batches are of one chunk
            return np.empty(0, dtype=RANGE_DTYPE)
        samples = ahead if plain else content.numbers(ahead)
        if index.packed:
            ranges = run_ranges(index, samples if plain else runs_of(samples))
        else:
            ranges = joined(sample_ranges(index.records_of(samples)))
        return np.concatenate([sample_ranges(plan.records), ranges]) if first else ranges

    def upcoming(self, number: int, *, first: bool) -> Int64s:
        """This rank's samples of the chunks that `reads` names before batch `number`, chunk by chunk."""
        found = [np.empty(0, dtype=np.int64)]
        for sequence, start, stop in self._spans_ahead(number, first=first):
            found += self.orders[sequence].ahead(start, stop, partial(self._mine, sequence), first=first)
        samples = self._content.numbers(np.concatenate(found))
        again = samples[1:] == samples[:-1]  # drawn more than once
        return np.concatenate([samples[:1], samples[1:][~again]])

    def _spans_ahead(self, number: int, *, first: bool) -> list[tuple[int, int, int]]:
        """(sequence, start, stop): what is used up to batch `number`, as far as no batch before it has said so."""
        if self._grouping is None:
            return self._partition.spans(number)
        return [(each, *self._grouping.due(each, number, first=first)) for each, _ in self._partition.sequences]

    def _mine(self, sequence: int, positions: Int64s) -> Bools:
        """Which positions of a sequence are this rank's."""
        if self._grouping is not None:
            positions = self._grouping.grouped(sequence, positions)
        return self._partition.mine(sequence, positions)

    def others(self, plan: BatchPlan, rows: Int64s, attempt: int) -> BatchPlan:
        """Other samples for rows that cannot be decoded, drawn by row and attempt: of all, or of a sampler's."""
        recipe, content = self.recipe, self._content
        names, ids = plan.names[rows], plan.ids[rows]
        draw = uniform(key(recipe.seed, self.epoch, Stream.REPLACE), names + attempt * len(content.index))
        others = (ids + 1 + (draw * (len(content) - 1)).astype(np.int64)) % len(content)
        if recipe.picks:
            shares = np.searchsorted(content.starts, ids, side="right") - 1
            for share in np.unique(shares).tolist():
                mine = shares == share
                places = (draw[mine] * recipe.places(share, self.epoch)).astype(np.int64) + content.starts[share]
                others[mine] = _ids_of(recipe, self.epoch, share, self.epoch)(places)
        views = zip(plan.views, recipe.views, strict=True)
        size = next((made.crops.size for made, view in views if view.size is None), recipe.size)  # the batch's
        return self._plan(others, np.ones(len(rows), dtype=np.bool_), content.numbers(others), size)

    def of(self, ids: Int64s, number: int = 0) -> BatchPlan:
        """Some samples as batches of the size of batch `number` have them; with Buckets, as a batch of these alone."""
        crop = self.recipe.crop
        size = crop.shape(_resized(self._content, crop, ids)) if isinstance(crop, Buckets) else self._size_of(number)
        return self._plan(ids, np.ones(len(ids), dtype=np.bool_), self._content.numbers(ids), size)

    def _size_of(self, number: int) -> Size:
        if self._grouping is not None:
            return self._grouping.size(number)
        return self.recipe.size if self._sizes is None else self._sizes(number)

    def _plan(self, ids: Int64s, valid: Bools, names: Int64s, size: Size) -> BatchPlan:
        views, index, epoch = self.recipe.views, self._content.index, self.epoch
        samples, records = self._content.numbers(ids), self._content.read(ids)
        widths, heights = (records[side].astype(np.int64) for side in ("width", "height"))
        drawn = uniform(keys([view.seed for view in views], epoch, Stream.FLIP)[:, None], names)
        random = [(view.crop, view.seed) for view in views if isinstance(view.crop, RandomResizedCrop)]
        boxes = iter(random_resized(random, widths, heights, epoch=epoch, samples=names) if random else ())
        plan = partial(plan_crops, epoch=epoch, samples=names, name=lambda at: index.name_of(int(samples[at])))
        planned = []
        for view, draws in zip(views, drawn, strict=True):
            flips, its_size = draws < view.flip, view.size or size
            if isinstance(view.crop, RandomResizedCrop):
                crops = crops_at(next(boxes), view.crop, its_size)
            else:
                crops = plan(view.crop, its_size, widths, heights, seed=view.seed, flips=flips)
            flips = np.repeat(flips, view.crop.rows) if crops.mirrored is None else crops.mirrored
            planned.append(BatchPlan(ids, samples, records, crops, flips, valid, names))
        return planned[0] if len(planned) == 1 else replace(planned[0], more=tuple(planned[1:]))


def check_pictures(recipe: Recipe) -> None:
    """Looks for pictures that are too small for a random crop, or too large, if they are few enough to look at all."""
    content, index = recipe.content, recipe.content.index
    sizes = recipe.sizes.choices if recipe.sizes is not None and recipe.sizes.choices else (recipe.size,)
    crops = [view for view in recipe.views if isinstance(view.crop, RandomCrop) and not view.crop.pad_if_needed]
    if recipe.picks or len(content) > _MOST_LOOKED_AT or not (crops or index.may_be_large):
        return
    samples = content.numbers(np.arange(len(content), dtype=np.int64))
    starts = range(0, len(samples), _AT_ONCE)
    records = np.concatenate([index.records_of(samples[at : at + _AT_ONCE])[["width", "height"]] for at in starts])
    index.check_pixels(samples, records)
    widths, heights = (np.maximum(records[side].astype(np.int64), 1) for side in ("width", "height"))
    for view in crops:
        for size in sizes:
            canvas = canvas_of(view.crop, view.size or size, widths, heights)
            check_room(canvas, view.size or size, lambda at: index.name_of(int(samples[at])))


def _ids_of(recipe: Recipe, epoch: int, share: int, number: int) -> Ids:
    """The ids at the places of pass `number` through a share, or a part of it, in an epoch."""
    content = recipe.content
    start = content.starts[share]
    at_places: Ids = content.ids_at if recipe.shuffle else np.asarray
    if not recipe.picks:
        return at_places
    seed = key(recipe.seed, share, Stream.SEQUENCE) if content.mixed else recipe.seed
    drawn = recipe.picks[share].ids(recipe.places(share, epoch), seed=seed, epoch=number)
    return lambda places: at_places(drawn(places - start) + start)


def _resized(content: Content, buckets: Buckets, ids: Int64s) -> Int64s:
    """(n, 2) widths and heights of samples in their rows."""
    records = content.index.records_of(content.numbers(ids))
    # A damaged record is found when its sample's batch is planned.
    return buckets.resized(*(np.maximum(records[side].astype(np.int64), 1) for side in ("width", "height")))
