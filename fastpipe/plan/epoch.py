"""(recipe, epoch) -> the plan of any batch of the epoch, and what is read and fetched ahead of it.

Every random choice is made here, ahead of the engine, as arrays: results cannot depend on threads
or timing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from fastpipe.arrays import Bools, Int64s, Records
from fastpipe.dataset.format.columns import Ragged
from fastpipe.dataset.format.parts import parts_of
from fastpipe.errors import FastpipeError
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.byte_ranges import (
    RANGE_DTYPE,
    joined,
    run_ranges,
    runs_of,
    sample_ranges,
)
from fastpipe.plan.crop_boxes import (
    canvas_of,
    check_covered,
    check_room,
    crops_at,
    names_of_rows,
    plan_crops,
    random_resized,
)
from fastpipe.plan.crops import CropAt, RandomCrop, RandomResizedCrop
from fastpipe.plan.draws import Stream, bits, key, keys, uniform, up_to
from fastpipe.plan.epoch_batches import make_batches
from fastpipe.plan.epoch_rows import ids_of_pass
from fastpipe.plan.objects import labels_of_rows
from fastpipe.plan.patches import Patches
from fastpipe.plan.picks import PartsOfImages
from fastpipe.plan.picture_sizes import picture_sizes, sides_of
from fastpipe.plan.recipe import Recipe, Size

_MAX_SAMPLES_CHECKED = 1 << 21  # takes 0.6 s
_MAX_SAMPLES_PLANNED_AT_ONCE = 1 << 11


class EpochPlan:
    """Plans the batches of one rank's epoch, any of them, in any order."""

    def __init__(self, recipe: Recipe, epoch: int) -> None:
        self.recipe = recipe
        self.epoch = epoch
        self._content = recipe.content
        self._sizes = None
        if recipe.sizes is not None:
            self._sizes = recipe.sizes.in_epoch(epoch, recipe.seed)
        self._planned: dict[int, BatchPlan] = {}  # plans of the next batches, by number
        # How many batches are planned at once: one at first, because the training loop waits for
        # it, then twice as many each time.
        self._plan_at_once = 1
        self._batches, self.orders = make_batches(recipe, epoch)

    def __len__(self) -> int:
        return len(self._batches)

    def count_samples(self) -> int:
        """How many samples the batches of this rank have."""
        return self._batches.count_samples()

    def batch(self, number: int) -> BatchPlan:
        """The plan of batch `number`, 0 <= number < len(self)."""
        if number not in self._planned:
            # Twice as many as the last time, up to the limit of `_plan_batches`.
            count = self._plan_at_once
            self._plan_at_once = 2 * count
            try:
                self._planned = self._plan_batches(number, count)
            except FastpipeError as problem:
                if isinstance(problem.__cause__, OSError):
                    raise
                # One of the batches has a damaged record. It may be a later one, which raises when
                # it is planned.
                self._planned = self._plan_batches(number, 1)
        return self._planned.pop(number)

    def _plan_batches(self, first: int, count: int) -> dict[int, BatchPlan]:
        """The plans of at most `count` batches of one size, by number, from batch `first` on.

        numpy takes hardly longer for several batches than for one.
        """
        size = self._size_of(first)
        end = first + 1
        if self._batches.size(first) is None:
            count = min(count, _MAX_SAMPLES_PLANNED_AT_ONCE // self.recipe.batch_size)
            last = min(first + count, len(self))
            while end < last and self._size_of(end) == size:
                end += 1

        ids = []
        valid = []
        names = []
        row_edges = [0]
        for number in range(first, end):
            batch_ids, batch_valid, batch_names = self._batches.rows(number)
            ids.append(batch_ids)
            valid.append(batch_valid)
            names.append(batch_names)
            row_edges.append(row_edges[-1] + len(batch_ids))
        all_ids = np.concatenate(ids)
        all_valid = np.concatenate(valid)
        all_names = np.concatenate(names)
        plan = self._plan(all_ids, all_valid, all_names, size)
        parts = []
        for start, stop in pairwise(row_edges):
            parts.append(plan.part(start, stop))
        return dict(zip(range(first, end), parts, strict=True))

    def reads(self, number: int, plan: BatchPlan, *, is_first: bool) -> Records:
        """The ranges, (n,) of RANGE_DTYPE, to read ahead before batch `number`, which `plan` plans.

        With `is_first`, the first batch of an iteration, the ranges of its own samples come first.
        """
        content = self._content
        index = content.index
        is_in_shard_order = content.is_in_shard_order and not self.recipe.picks
        parts = []
        for sequence, start, stop in self._batches.spans_ahead(
            number, is_first=is_first
        ):
            order = self.orders[sequence]
            parts.append(
                order.reads(start, stop, is_first=is_first, runs=is_in_shard_order)
            )
        # (n, 2) runs of samples if they are in the order of the shards; else (n,) ids.
        ahead = np.concatenate(parts)
        # The usual case, if a chunk has the samples of many batches.
        if not is_first and not len(ahead):
            return np.empty(0, dtype=RANGE_DTYPE)

        if is_in_shard_order:
            ranges = run_ranges(index, ahead)
        elif index.packed:
            samples = content.numbers(ahead)
            ranges = run_ranges(index, runs_of(samples))
        else:
            # The files of an index that is not packed are in any order.
            records = index.records_of(content.numbers(ahead))
            ranges = joined(sample_ranges(records))
        if is_first:
            return np.concatenate([sample_ranges(plan.records), ranges])
        return ranges

    def upcoming(self, number: int, *, is_first: bool) -> Int64s:
        """This rank's samples in the chunks that `reads` names before a batch, chunk by chunk."""
        parts = [np.empty(0, dtype=np.int64)]
        for sequence, start, stop in self._batches.spans_ahead(
            number, is_first=is_first
        ):
            order = self.orders[sequence]
            is_mine = partial(self._batches.is_mine, sequence)
            parts += order.ahead(start, stop, is_mine, is_first=is_first)
        samples = self._content.numbers(np.concatenate(parts))
        # A sampler may draw a sample more than once.
        is_new = samples[1:] != samples[:-1]
        first = samples[:1]
        others = samples[1:]
        return np.concatenate([first, others[is_new]])

    def others(self, plan: BatchPlan, rows: Int64s, attempt: int) -> BatchPlan:
        """Random samples in the place of those that cannot be decoded, on rows (m,) of a batch.

        They are of the same share of a mixture. Without a sampler each is another one than the
        row's own. A sampler draws as it does for an epoch, so it may draw the same one again: the
        next attempt then draws another.
        """
        recipe = self.recipe
        content = self._content
        names = plan.names[rows] + attempt * len(content.index)
        replace_key = key(recipe.seed, self.epoch, Stream.REPLACE)
        draws = uniform(replace_key, names)

        ids = plan.ids[rows]
        share_of_row = parts_of(content.starts, ids)
        # (m,) each: the samples of a row's share have `share_sizes` ids, from `first_ids` on.
        first_ids = content.starts[share_of_row]
        share_sizes = np.diff(content.starts)[share_of_row]
        # A share of one sample has no other one: take any sample of the mixture.
        is_alone = share_sizes == 1
        first_ids[is_alone] = 0
        share_sizes[is_alone] = len(content)
        # Any sample of these but the row's own: 1 to size - 1 further on, then around the end.
        distances = 1 + up_to(draws, share_sizes - 2)
        other_ids = first_ids + (ids - first_ids + distances) % share_sizes
        if recipe.picks:
            for share in np.unique(share_of_row).tolist():
                in_share = share_of_row == share
                place_count = recipe.places(share, self.epoch)
                places_in_share = (draws[in_share] * place_count).astype(np.int64)
                places = places_in_share + content.starts[share]
                # Draws of pass number `epoch`. In a mixture a pass is no epoch, but any will do.
                ids_of = ids_of_pass(recipe, self.epoch, share, self.epoch)
                other_ids[in_share] = ids_of(places)

        # The size of the batch is that of a view without a size of its own.
        size = recipe.size
        for view_plan, view in zip(plan.views, recipe.views, strict=True):
            if view.size is None:
                size = view_plan.crops.size
                break
        valid = np.ones(len(rows), dtype=np.bool_)
        others = self._plan(other_ids, valid, content.numbers(other_ids), size)
        crop = recipe.crop
        if isinstance(crop, Patches):
            # They have to fit into the batch, so each has at most the tokens of the one it replaces.
            row_sizes = plan.crops.row_sizes
            assert row_sizes is not None
            most_tokens = crop.tokens_of_rows(row_sizes[rows])
            other_sizes = others.crops.row_sizes
            assert other_sizes is not None
            crops = replace(
                others.crops, row_sizes=crop.limit(other_sizes, most_tokens)
            )
            others = replace(others, crops=crops)
        return others

    def of(self, ids: Int64s, number: int = 0) -> BatchPlan:
        """The plan of some samples at the size of batch `number`.

        With Buckets, at the size that they have alone.
        """
        crop = self.recipe.crop
        if isinstance(crop, Buckets):
            records = self._content.records_of(ids)
            pictures = picture_sizes(records)
            row_sizes = crop.row_sizes(pictures)
            size = crop.shape(row_sizes)
        else:
            size = self._size_of(number)
        valid = np.ones(len(ids), dtype=np.bool_)
        numbers = self._content.numbers(ids)
        plan = self._plan(ids, valid, numbers, size)
        layout = plan.crops.layout
        if layout is not None:
            # They may have more patches than a batch.
            crops = replace(plan.crops, layout=replace(layout, batch_patches=None))
            plan = replace(plan, crops=crops)
        return plan

    def plan_pictures(
        self, plan: BatchPlan, samples: Int64s, numbers: Int64s, pictures: Records
    ) -> BatchPlan:
        """The plan of M pictures that belong to samples of a batch, in all views.

        Args:
            plan: of the batch.
            samples: (M,) the sample of each picture, a position in the plan.
            numbers: (M,) which picture of the sample it is, from 0 on.
            pictures: (M,) of FIELD_IMAGE_DTYPE.
        """
        records = plan.records[samples]
        records["width"] = pictures["width"]
        records["height"] = pictures["height"]
        # Each picture has draws of its own.
        picture_keys = bits(key(0, 0, Stream.PICTURE), numbers)
        names_of_samples = plan.names[samples]
        names = bits(picture_keys, names_of_samples).view(np.int64)
        return self._plan_views(
            plan.ids[samples],
            plan.samples[samples],
            records,
            plan.valid[samples],
            names,
            [view.crops.size for view in plan.views],
            objects={},  # boxes lie on the image of a sample, and not on those of its lists
        )

    def _size_of(self, number: int) -> Size:
        size = self._batches.size(number)
        if size is not None:
            return size
        if self._sizes is not None:
            return self._sizes(number)
        return self.recipe.size

    def _plan(self, ids: Int64s, valid: Bools, names: Int64s, size: Size) -> BatchPlan:
        """The plan of n samples in all views; `size` is that of views without one of their own."""
        content = self._content
        return self._plan_views(
            ids,
            content.numbers(ids),
            content.read(ids),
            valid,
            names,
            [view.size or size for view in self.recipe.views],
            self._objects_of(ids),
        )

    def _plan_views(
        self,
        ids: Int64s,
        samples: Int64s,
        records: Records,
        valid: Bools,
        names: Int64s,
        sizes: Sequence[Size],
        objects: Mapping[str, Ragged],
    ) -> BatchPlan:
        """The plan of n pictures in all views.

        `sizes` has the size of each view, and `objects` the boxes of the pictures, by field.
        """
        content = self._content
        views = self.recipe.views
        widths, heights = sides_of(records)
        seeds = [view.seed for view in views]
        flip_keys = keys(seeds, self.epoch, Stream.FLIP)
        flip_draws = uniform(flip_keys[:, None], names)  # (views, n)
        patches = None
        crop = self.recipe.crop
        if crop.is_per_part:
            patches = self._patches_of(names)
            if isinstance(crop, CropAt):
                boxes = objects[crop.name]
                records = _with_labels_of(records, boxes, patches[:, 0])
        # (n, 4) boxes for each view with a random-resized crop, in the order of the views.
        random_boxes = self._draw_random_resized(widths, heights, names)

        plans = []
        for view, draws, view_size in zip(views, flip_draws, sizes, strict=True):
            flips = draws < view.flip
            row_names = names_of_rows(view.crop, names)
            if isinstance(view.crop, RandomResizedCrop):
                crops = crops_at(next(random_boxes), view.crop, view_size)
            else:
                crops = plan_crops(
                    view.crop,
                    view_size,
                    widths,
                    heights,
                    seed=view.seed,
                    epoch=self.epoch,
                    samples=names,
                    flips=flips,
                    patches=patches,
                    objects=objects.get(view.crop.objects_field or ""),
                    name=lambda position: content.index.name_of(int(samples[position])),
                )
            if crops.mirrored is not None:
                flips = crops.mirrored
            elif view.crop.rows > 1:
                flip_key = key(view.seed, self.epoch, Stream.FLIP)
                flips = uniform(flip_key, row_names) < view.flip
            plan = BatchPlan(
                ids, samples, records, crops, flips, valid, names, row_names
            )
            plans.append(plan)
        if len(plans) == 1:
            return plans[0]
        return replace(plans[0], other_views=tuple(plans[1:]))

    def _objects_of(self, ids: Int64s) -> dict[str, Ragged]:
        """The boxes of samples, by the fields that crops name."""
        objects = {}
        for name, column in self.recipe.objects.items():
            objects[name] = column.take(ids)
        return objects

    def _patches_of(self, names: Int64s) -> Int64s:
        """(n, 2) the patches of a Grid, or boxes of CropAt, by the names of their draws; see Crops."""
        recipe = self.recipe
        (pick,) = recipe.picks
        assert isinstance(pick, PartsOfImages)
        # The name of a part is its place, and the number of its pass: see EpochRows.names.
        return pick.numbers(names % recipe.count_names(0, self.epoch))

    def _draw_random_resized(
        self, widths: Int64s, heights: Int64s, names: Int64s
    ) -> Iterator[Int64s]:
        """(n, 4) boxes for each view with a random-resized crop.

        All are drawn in one call, because numpy's calls take most of its time.
        """
        random_crops = []
        for view in self.recipe.views:
            if isinstance(view.crop, RandomResizedCrop):
                random_crops.append((view.crop, view.seed))
        if not random_crops:
            return iter(())
        boxes = random_resized(
            random_crops, widths, heights, epoch=self.epoch, samples=names
        )
        return iter(boxes)


def check_image_sizes(recipe: Recipe) -> None:
    """Raises ConfigError if images are too small for a random crop or for buckets without
    enlarging, or too large to be decoded.

    It reads the records of all samples, so it does nothing for a large dataset or with a sampler.
    """
    content = recipe.content
    index = content.index
    crop_views = []
    for view in recipe.views:
        if isinstance(view.crop, RandomCrop) and not view.crop.pad_if_needed:
            crop_views.append(view)
    buckets = None
    if isinstance(recipe.crop, Buckets) and recipe.crop.no_upscale:
        buckets = recipe.crop
    if recipe.picks or len(content) > _MAX_SAMPLES_CHECKED:
        return
    if not crop_views and buckets is None and not index.can_be_large:
        return

    ids = np.arange(len(content), dtype=np.int64)
    samples = content.numbers(ids)
    records = index.records_of(samples)
    index.check_pixels(samples, records)

    widths, heights = sides_of(records)
    if buckets is not None:
        check_covered(
            buckets, picture_sizes(records), partial(content.sample_name, ids)
        )
    sizes: tuple[Size, ...] = (recipe.size,)
    if recipe.sizes is not None and recipe.sizes.choices:
        sizes = recipe.sizes.choices
    for view in crop_views:
        for size in sizes:
            view_size = view.size or size
            canvas = canvas_of(view.crop, view_size, widths, heights)
            check_room(
                canvas,
                view_size,
                partial(content.sample_name, ids),
            )


def _with_labels_of(records: Records, objects: Ragged, numbers: Int64s) -> Records:
    """Records whose labels are those of the boxes with these numbers, (n,), if these have labels."""
    labels = labels_of_rows(objects, numbers)
    if labels is None:
        return records
    labelled = records.copy()
    labelled["label"] = labels
    return labelled
