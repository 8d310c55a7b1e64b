"""Batches in host memory -> batches on the device, augmented, in order."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.device.array_tensors import arrays_in_slot
from fastpipe.device.augment import Augment
from fastpipe.device.augment.foreign import Foreign
from fastpipe.device.augment.operation import AugmentPlan
from fastpipe.device.field_batch import FieldBatch
from fastpipe.device.image_batch import ImageBatch, pixel_mask
from fastpipe.device.patch_batch import as_images, as_patches
from fastpipe.device.row_sizes import split_list, split_rows, stack_or_split
from fastpipe.device.staging import Arrays, pack, unpack
from fastpipe.device.streams import Mark, Stream
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.host_batch import HostBatch, HostFields, lay_out
from fastpipe.plan.patches import PATCH_FACTS, PatchLayout

Batch = Any  # an ImageBatch, (images, labels); or a dict, if fields were asked for

# Batches for which the training loop may have queued work that is not done. More would only take
# the device's memory.
_MAX_UNDONE_STEPS = 4
_BUFFER_COUNT = 4  # for the small arrays of batches that are being copied
_STEP_UNDONE = (
    f"has not finished the training step of {_MAX_UNDONE_STEPS} batches ago; check the work that "
    "the program queues there and, with several ranks, check the other ranks"
)


class _AugmentedView(NamedTuple):
    """How the images of one view are augmented."""

    augment: Augment
    plan: AugmentPlan


# Number of a view -> its augmentation. A view whose images stay as they are has no entry.
_Plans = dict[int, _AugmentedView]
_HostMemory = tuple[NDArray[Any], ...]


class StagedBatch(NamedTuple):
    """A batch whose way to the device is queued."""

    batch: Batch  # for the loop, to be used after `ready` only
    # By view: a tensor, or a list of tensors with sizes of their own.
    images: tuple[Any, ...]
    labels: torch.Tensor
    valid: torch.Tensor
    # One tensor in each piece of memory that the batch uses.
    memory: tuple[torch.Tensor, ...]
    ready: Mark  # its work is done


class _Work(NamedTuple):
    """The device's work for a batch: marks before and after the copies, and at the end."""

    first: Mark
    copied: Mark
    ready: Mark
    # All was queued before the device had done the copies, so it did not wait for the host.
    in_time: bool


class _Copies(NamedTuple):
    """A batch on the device, before its augmentation."""

    views: list[torch.Tensor]  # (n * k, channels, height, width) each
    tensors: dict[str, torch.Tensor]  # the small arrays
    slots: dict[str, torch.Tensor]  # of fields of arrays, by name; see ArrayBatch
    first: Mark  # before the copies
    copied: Mark  # after them


class Transfer:
    """Queues copies and augmentation on a stream; frees host memory that has been copied.

    Args:
        stream: of the device.
        views: of each, its augmentation (None: its images stay as they are) and a seed. The seed
            decides the augmentation, together with epoch, batch and samples.
        classes: of the dataset.
        stats: counts the time.
        watchdog: of waits for the loop's own work.
    """

    def __init__(
        self,
        stream: Stream,
        views: Sequence[tuple[Augment | None, int]],
        *,
        classes: int,
        stats: Stats,
        watchdog: Watchdog,
    ) -> None:
        self._stream = stream
        # Batches to queue before the one before them is handed out.
        self.lookahead = stream.lookahead
        self._views = views
        self._augments: list[Augment] = []
        # A module of a user may read tensors that the program writes.
        self._follows_program = False
        for augment, _ in views:
            if augment is None:
                continue
            self._augments.append(augment)
            if any(isinstance(stage, Foreign) for stage in augment.stages):
                self._follows_program = True
        self._classes = classes
        self._stats = stats
        self._watchdog = watchdog
        # Host memory that is being copied, until its mark is done.
        self._copying: deque[tuple[Mark, _HostMemory]] = deque()
        self._working: deque[_Work] = deque()
        self._buffers = SlotRing((0,), _BUFFER_COUNT, stream.slot)
        # The latest time in which the device did not wait for the host.
        self._unpaused_augment_s = math.inf
        self._undone_steps: deque[Mark] = deque()  # of the training loop

    @property
    def under_way(self) -> int:
        """Batches that are queued and were not done at the last `collect`; on the CPU 0.

        Any thread may ask. It does not look at the device: from another thread this would break a
        CUDA graph that the training loop captures.
        """
        if not self._stream.copies:
            return 0
        return len(self._working)

    def collect(self) -> None:
        """Lets go of host memory that has been copied, and counts the device's time.

        Raises as Mark.done.
        """
        while self._copying:
            copied, _ = self._copying[0]
            if not copied.done():
                break
            self._copying.popleft()
        while self._working:
            work = self._working[0]
            if not work.ready.done():
                break
            self._working.popleft()
            augment_s = work.ready.since(work.copied)
            # Pauses for the host do not count as work of the device.
            if work.in_time:
                self._unpaused_augment_s = augment_s
            copy_s = work.copied.since(work.first)
            unpaused_s = min(augment_s, self._unpaused_augment_s)
            self._stats.device_s += copy_s + unpaused_s

    @torch.inference_mode(False)  # the loop may train on the batch outside of this mode
    @torch.no_grad()
    def begin(self, batch: HostBatch) -> StagedBatch:
        """Queues a batch. Its slot is not lent again before it has been copied."""
        started = time.perf_counter()
        plans = self._plan_views(batch)
        arrays = self._small_arrays(batch, plans)
        planned = time.perf_counter()
        with self._stream.work(self._follows_program):
            copies = self._copy(batch, arrays)
            queued = time.perf_counter()
            staged = self._augment(batch, plans, copies)
        # Copies that are done by now left the device waiting for the augmentation.
        in_time = not copies.copied.done()
        work = _Work(
            first=copies.first,
            copied=copies.copied,
            ready=staged.ready,
            in_time=in_time,
        )
        self._working.append(work)
        planning_s = planned - started
        queueing_s = time.perf_counter() - queued
        self._stats.transfer_s += queued - planned
        self._stats.augment_s += planning_s + queueing_s
        return staged

    def hand_over(self, staged: StagedBatch) -> Batch:
        """Gives a batch to the training loop's stream, which waits for it on the device.

        A loop that queues work faster than the device does it waits here for its step of some
        batches ago.
        """
        undone_step = self._stream.hand_over(staged.ready, staged.memory)
        self._undone_steps.append(undone_step)
        if len(self._undone_steps) > _MAX_UNDONE_STEPS:
            step = self._undone_steps.popleft()
            if self._stream.copies:  # the CPU is never behind
                problem = f"{self._stream.device} {_STEP_UNDONE}"
                waited_s = self._watchdog.wait(step.wait, problem)
                self._stats.held_s += waited_s
        return staged.batch

    def _plan_views(self, batch: HostBatch) -> _Plans:
        """Draws the augmentation of the views."""
        plans = {}
        _, first_seed = self._views[0]
        for view, (augment, seed) in enumerate(self._views):
            if augment is None:
                continue
            images = batch.views[view]  # (n, height, width, channels)
            crops = batch.filled_plan.crops
            layout = crops.layout
            names = batch.plan.by_row().names
            size = images.shape[1:3]
            if layout is not None:
                # Each patch is normalised as a small image; nothing is drawn for it.
                num_patches = len(images) // layout.pixels
                names = np.arange(num_patches)
                size = (layout.pixels, 1)
            plan = augment.plan(
                names,
                size,
                seed=seed,
                epoch=batch.epoch,
                batch=batch.number,
                mixing_seed=first_seed,
                image_sizes=crops.image_sizes,
                channels=images.shape[3],
                bits=8 * images.itemsize,
            )
            plans[view] = _AugmentedView(augment, plan)
        return plans

    def _small_arrays(
        self, batch: HostBatch, plans: _Plans
    ) -> dict[str, NDArray[np.generic]]:
        """All arrays of a batch but its images: facts, "augment.VIEW.NAME" and "field.NAME"."""
        arrays: dict[str, NDArray[np.generic]] = {
            "labels": batch.filled_plan.labels,
            "ids": batch.filled_plan.ids,
            "valid": batch.plan.valid,
        }
        crops = batch.filled_plan.crops
        if crops.image_sizes is not None:
            arrays["image_sizes"] = crops.image_sizes
        if crops.layout is not None and crops.row_sizes is not None:
            facts = crops.layout.facts(crops.row_sizes)
            arrays.update(facts)
        elif crops.row_sizes is not None:
            arrays["row_sizes"] = np.ascontiguousarray(crops.row_sizes)
        for view, augmented in plans.items():
            for name, array in augmented.plan.arrays.items():
                arrays[f"augment.{view}.{name}"] = array
        if batch.fields is not None:
            self._complete_fields(batch, batch.fields, plans)
            for name, array in batch.fields.arrays.items():
                arrays[f"field.{name}"] = array
        return arrays

    def _complete_fields(
        self, batch: HostBatch, fields: HostFields, plans: _Plans
    ) -> None:
        """Adds the fields that depend on the augmentation: partners of mixed images, moved boxes
        and points.
        """
        names = fields.names.values()
        is_mixing_wanted = "mix_index" in names or "mix_lam" in names
        if 0 in plans and is_mixing_wanted:
            augment, plan = plans[0]
            partners, shares = augment.partners(plan)
            fields.arrays["mix_index"] = partners
            fields.arrays["mix_lam"] = shares
        # On the host, before the copy: Note [points on the host].
        rows = len(batch.plan.flips)
        rows_per_sample = batch.plan.rows_per_sample
        for view, places in enumerate(fields.places):
            if view in plans:
                augment, plan = plans[view]
                places = augment.move_places(plan, places)
            lay_out(fields, view, places, rows, rows_per_sample)

    def _copy(self, batch: HostBatch, arrays: Arrays) -> _Copies:
        """Queues the copies of the images and of the small arrays."""
        # torch makes the slices, because numpy's would not keep the slot lent: SlotRing.take.
        hosts = []
        plans_of_views = batch.filled_plan.views
        for images, view_plan in zip(batch.views, plans_of_views, strict=False):
            rows, _, _ = view_plan.crops.slot_shape()
            slot_tensor = torch.from_numpy(images)
            hosts.append(slot_tensor[:rows])
        array_slots = []
        host_slots = {}
        if batch.fields is not None:
            for name, arrays_of_field in batch.fields.array_batches.items():
                slot = arrays_of_field.slot
                array_slots.append(slot)
                host_slots[name] = torch.from_numpy(slot)
        if not self._stream.copies:
            mark = self._stream.mark()
            views = [host.permute(0, 3, 1, 2) for host in hosts]
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            return _Copies(
                views=views, tensors=tensors, slots=host_slots, first=mark, copied=mark
            )
        # The small arrays go together, in one copy.
        buffer = pack(arrays, self._buffers.take)
        packed = torch.from_numpy(buffer)
        copy = self._stream.copy
        first = self._stream.mark()
        small = copy(packed)
        views = []
        for host in hosts:
            images_nhwc = copy(host)
            views.append(images_nhwc.permute(0, 3, 1, 2))
        slots = {name: copy(host) for name, host in host_slots.items()}
        copied = self._stream.mark()
        host_memory = (*batch.views, buffer, *array_slots)
        self._copying.append((copied, host_memory))
        tensors = unpack(small, arrays)
        return _Copies(
            views=views, tensors=tensors, slots=slots, first=first, copied=copied
        )

    def _augment(self, batch: HostBatch, plans: _Plans, copies: _Copies) -> StagedBatch:
        """Queues the augmentation, and builds the batch that the loop gets."""
        tensors = copies.tensors
        ids = tensors["ids"]
        valid = tensors["valid"]
        image_sizes = tensors.get("image_sizes")
        # One for each view, for buckets only. Empty unless they are among the fields, or move with
        # the images: otherwise ImageBatch makes them on demand.
        masks: list[torch.Tensor] = []
        if image_sizes is not None and self._needs_pixel_masks(batch.fields):
            masks = pixel_mask(image_sizes, copies.views)
        views, labels = self._augment_views(batch, plans, copies, masks)

        attributes: dict[str, Any] = {}
        attributes["ids"] = ids
        attributes["valid"] = valid
        attributes["epoch"] = batch.epoch
        memory = [*views, labels, ids, valid, *masks]
        layout = batch.filled_plan.crops.layout
        if "row_sizes" in tensors:
            memory.append(tensors["row_sizes"])
        if image_sizes is not None:
            attributes["image_sizes"] = image_sizes
            memory.append(image_sizes)
        if masks:
            attributes["pixel_mask"] = _one_or_list(masks)
        shown: list[Any] = list(views)
        if layout is not None:
            for name in PATCH_FACTS:
                if name in tensors:
                    attributes[name] = tensors[name]
                    memory.append(tensors[name])
            attributes["patches"] = None
            if views:
                attributes["patches"] = views[0]
        elif batch.filled_plan.has_own_sizes:
            shown = self._split_views(batch, copies)
        images = None
        if views:
            images = _one_or_list(shown)
        if batch.fields is None:
            loop_batch: Batch = ImageBatch(images, labels, **attributes)
        else:
            values = {
                **attributes,
                "image": images,
                "label": labels,
                "id": ids,
                # Its name in fields=; the attribute of an ImageBatch is image_sizes.
                "image_size": tensors.get("row_sizes", image_sizes),
            }
            # What moves with images has a name for each view, such as "0.mask".
            for name in batch.fields.arrays:
                tensor = tensors[f"field.{name}"]
                values[name] = tensor
                memory.append(tensor)
            for name, arrays in batch.fields.array_batches.items():
                slot = copies.slots[name]
                values[name] = arrays_in_slot(slot, arrays)
                memory.append(slot)
            loop_batch = _as_dict(batch.fields, values, batch.filled_plan)
        ready = self._stream.mark()
        # The training stream has to know each piece of memory once, however many tensors are in it.
        # By the address of the memory.
        by_address = {}
        for tensor in memory:
            storage = tensor.untyped_storage()
            by_address[storage.data_ptr()] = tensor
        pieces = tuple(by_address.values())
        return StagedBatch(
            batch=loop_batch,
            images=tuple(shown),
            labels=labels,
            valid=valid,
            memory=pieces,
            ready=ready,
        )

    def _split_views(
        self, batch: HostBatch, copies: _Copies
    ) -> list[list[torch.Tensor]]:
        """The images of each view, a tensor for each: they have sizes of their own."""
        views = []
        plans_of_views = batch.filled_plan.views
        for pixels, view_plan in zip(copies.views, plans_of_views, strict=False):
            row_sizes = view_plan.crops.row_sizes
            assert row_sizes is not None
            # (pixels, channels, 1, 1) -> (pixels, 1, 1, channels)
            pixels_nhwc = pixels.permute(0, 2, 3, 1)
            images = split_rows(pixels_nhwc, row_sizes)
            views.append(images)
        return views

    def _needs_pixel_masks(self, fields: HostFields | None) -> bool:
        """Whether a batch of buckets needs its pixel masks at once: it is asked for them, or they
        move.
        """
        if fields is not None:
            names = fields.names.values()
            if "pixel_mask" in names:
                return True
        return any("shown" in augment.moves for augment in self._augments)

    def _augment_views(
        self,
        batch: HostBatch,
        plans: _Plans,
        copies: _Copies,
        masks: list[torch.Tensor],
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The images of each view, and the labels.

        Replaces masks and second images, in `copies.tensors`, and the pixel masks of buckets, by
        those that have moved with the images.
        """
        tensors = copies.tensors
        labels = tensors["labels"]
        rows_per_sample = batch.plan.rows_per_sample
        row_labels = labels
        if rows_per_sample > 1:
            row_labels = labels.repeat_interleave(rows_per_sample)
        field_names: tuple[str, ...] = ()
        if batch.fields is not None:
            field_names = batch.fields.images
        layout = batch.filled_plan.crops.layout
        if layout is not None and copies.views:
            patches = self._patches_of(batch, layout, plans, copies)
            return [patches], labels
        views = []
        for view, images in enumerate(copies.views):
            if view in plans:
                augment, plan = plans[view]
                plan_tensors = {
                    name: tensors[f"augment.{view}.{name}"] for name in plan.arrays
                }
                images, soft = augment.carry_out(
                    images, row_labels, plan, plan_tensors, num_classes=self._classes
                )
                if view == 0:  # all views have the same labels
                    labels = soft[::rows_per_sample]
                if masks:
                    masks[view] = augment.move_shown(masks[view], plan, plan_tensors)
                rendering = batch.plan.views[view].crops.rendering
                fill = rendering.mask_fill
                for name in field_names:
                    entry = f"field.{view}.{name}"
                    if batch.fields is not None and name in batch.fields.maps:
                        outside = batch.fields.maps[name].outside
                        tensors[entry] = augment.move_maps(
                            tensors[entry], plan, plan_tensors, outside
                        )
                    else:
                        tensors[entry] = augment.move_masks(
                            tensors[entry], plan, plan_tensors, fill
                        )
            if rows_per_sample > 1:
                # (n * k, ...) -> (n, k, ...)
                shape_of_row = images.shape[1:]
                images = images.view(-1, rows_per_sample, *shape_of_row)
            views.append(images)
        return views, labels

    def _patches_of(
        self, batch: HostBatch, layout: PatchLayout, plans: _Plans, copies: _Copies
    ) -> torch.Tensor:
        """The patches of a batch, normalised."""
        (pixels,) = copies.views
        tensors = copies.tensors
        images = as_images(pixels, layout)
        if 0 in plans:
            augment, plan = plans[0]
            plan_tensors = {name: tensors[f"augment.0.{name}"] for name in plan.arrays}
            images = augment.normalise(images, plan, plan_tensors)
        row_sizes = batch.filled_plan.crops.row_sizes
        assert row_sizes is not None
        patch_counts = layout.counts(row_sizes)
        count = int(patch_counts.sum())
        return as_patches(images, layout, tensors["patch_valid"], count)


def _one_or_list(views: list[Any]) -> Any:
    """A batch of several views has a list, any other a tensor."""
    if len(views) == 1:
        return views[0]
    return views


def _as_dict(
    fields: HostFields, values: Mapping[str, Any], plan: BatchPlan
) -> FieldBatch:
    """A batch of fields.

    An entry that each view has of its own is a list if there are several views.

    Args:
        fields: of the batch.
        values: its tensors on the device, by name or VIEW.NAME.
        plan: of the batch.
    """
    rows_per_sample = plan.rows_per_sample
    batch = FieldBatch()
    for key, name in fields.names.items():
        if fields.by_view(name):
            entries: list[Any] = []
            for view, view_plan in enumerate(plan.views):
                entry = f"{view}.{name}"
                value = values[entry]
                row_sizes = view_plan.crops.row_sizes
                layout = fields.layouts.get(entry)
                if layout is not None:
                    patch_counts = layout.counts(fields.row_sizes[entry])
                    count = int(patch_counts.sum())
                    patch_valid = values[f"{name}_patch_valid"]
                    value_nchw = value.permute(0, 3, 1, 2)
                    pictures = as_images(value_nchw, layout)
                    patches = as_patches(pictures, layout, patch_valid, count)
                    entries.append(patches)
                elif name in fields.picture_lists:
                    counts = fields.counts.get(name)
                    row_sizes = fields.row_sizes.get(entry)
                    lists = _picture_lists(value, counts, row_sizes, rows_per_sample)
                    entries.append(lists)
                elif name in fields.images and row_sizes is not None:
                    images = split_rows(value, row_sizes)
                    entries.append(images)
                else:
                    counts = fields.counts.get(entry)
                    is_images = name in fields.images
                    form = _entry_of_view(value, counts, is_images, rows_per_sample)
                    entries.append(form)
            batch[key] = _one_or_list(entries)
        elif name in values:
            batch[key] = values[name]
        else:
            batch[key] = fields.lists[name]
    return batch


def _picture_lists(
    pictures: torch.Tensor,
    counts: list[int] | None,
    row_sizes: Int64s | None,
    rows_per_picture: int,
) -> Any:
    """The pictures of one view: a tensor (M, ...), or one for each sample.

    Args:
        pictures: (M * k, height, width, channels), on the device.
        counts: of each sample; None: the batch has one tensor.
        row_sizes: (M, 2) if they have sizes of their own, and so `pictures` is (pixels, 1, 1,
            channels). Each sample then has a list.
        rows_per_picture: k. With several, (M, k, channels, height, width).
    """
    if row_sizes is not None:
        if counts is None:
            return stack_or_split(pictures, row_sizes)
        single_pictures = split_rows(pictures, row_sizes)
        return split_list(single_pictures, counts)
    pictures = _entry_of_view(pictures, None, True, rows_per_picture)
    if counts is None:
        return pictures
    pictures_of_samples = torch.split(pictures, counts)  # views of its memory
    return list(pictures_of_samples)


def _entry_of_view(
    value: Any, counts: list[int] | None, is_images: bool, rows_per_sample: int
) -> Any:
    """The form in which the loop gets a field of one view.

    Args:
        value: on the device.
        counts: boxes or objects of each row, if the entry is a list with a tensor a row.
        is_images: the value has masks or second images.
        rows_per_sample: k. With several rows, entries have a second dimension, or are lists of
            lists.
    """
    if counts is not None:
        parts = list(torch.split(value, counts))  # views of its memory
        if rows_per_sample == 1:
            return parts
        parts_of_samples = []
        for start in range(0, len(parts), rows_per_sample):
            end = start + rows_per_sample
            parts_of_samples.append(parts[start:end])
        return parts_of_samples
    if not is_images:
        return value
    if value.ndim == 4:
        value = value.permute(0, 3, 1, 2)  # channels before height and width
    if rows_per_sample == 1:
        return value
    return value.unflatten(0, (-1, rows_per_sample))
