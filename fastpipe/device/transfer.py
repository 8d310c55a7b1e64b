"""Batches in host memory -> batches on the device, augmented, in order."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.augment.foreign import Foreign
from fastpipe.augment.operation import AugmentPlan
from fastpipe.device.streams import Mark, Stream
from fastpipe.engine.slots import SlotRing
from fastpipe.engine.stats import Stats
from fastpipe.engine.watchdog import Watchdog
from fastpipe.plan.host_batch import HostBatch, HostFields, lay_out

Batch = Any  # an ImageBatch, (images, labels); or a dict, where fields were asked for

Drawn = tuple[Augment, AugmentPlan]

# Batches that the training loop may have queued work for and not done. More would only take the device's memory.
_MOST_UNDONE = 4
_BUFFERS = 4  # that hold the small arrays of batches whose copies are under way
_STEP_UNDONE = (
    f"has not finished the training step of {_MOST_UNDONE} batches ago; check the work that the program queues there "
    "and, with several ranks, check the other ranks"
)


class ImageBatch(tuple[Any, torch.Tensor]):
    """(images, labels), and which samples they are of. With several views, images is a list of tensors, one a view.

    Programs that rebuild batches take it for a named tuple (torch's pytree, pin_memory, Lightning), or for a tuple
    (Hugging Face's Trainer). What they make has images and labels, but no `ids`, `valid` and `epoch`.

    Attributes:
        ids: (N,) int64, the samples' numbers in `loader.dataset`. If it is packed again, they mean others: keys do not.
        valid: (N,) bool, rows that count. A row with False repeats a sample that counts on another rank.
        epoch: number of the epoch.
        image_sizes: (N, 2) int64, with size="bucket": height and width in pixels of the image at the top left of each
            row, before the augmentation moves or mixes pixels. The rest of the row is padding.
        pixel_mask: (N, height, width) bool, with size="bucket": True for the pixels of the image, False for padding. It
            moves with the image; of mixed images it shows where either is. With several views, a list.
    """

    _fields = ("images", "labels")

    ids: torch.Tensor
    valid: torch.Tensor
    epoch: int
    image_sizes: torch.Tensor
    pixel_mask: Any

    def __new__(cls, images: Any, labels: torch.Tensor | None = None, **facts: Any) -> ImageBatch:
        if labels is None:
            images, labels = images
        batch = super().__new__(cls, (images, labels))
        vars(batch).update(facts)
        return batch

    def __getnewargs__(self) -> Any:
        return tuple(self)

    @classmethod
    def _make(cls, parts: Iterable[torch.Tensor]) -> ImageBatch:
        return cls(*parts)

    def _asdict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._fields, self, strict=True))

    @property
    def images(self) -> Any:
        """As the loader's `augment` leaves them; without it (N, channels, height, width). A list of these by view."""
        return self[0]

    @property
    def labels(self) -> torch.Tensor:
        """(N,) int64, or soft ones (N, classes)."""
        return self[1]

    def __getattr__(self, name: str) -> Any:
        if name == "pixel_mask" and "image_sizes" in vars(self):  # made when it is asked for, if nothing moves it
            return pixel_mask(self.image_sizes, self[0])
        if name in ("ids", "valid", "epoch"):
            raise AttributeError(
                f"this batch has no {name}: another program has made it anew of (images, labels). Pass "
                'fields=("image", "label", "id", "valid", "epoch") to fastpipe.loader: a batch is then a dict with them'
            )
        if name in ("image_sizes", "pixel_mask"):
            raise AttributeError(f'this batch has no {name}: its images fill it. Batches of size="bucket" have it')
        raise AttributeError(f"a batch has no attribute {name!r}; it has images, labels, ids, valid and epoch")


def pixel_mask(image_sizes: torch.Tensor, images: Any) -> Any:
    """(N, height, width) bool: the pixels at the top left of each row that its image fills; a list by view."""
    if isinstance(images, list):
        return [pixel_mask(image_sizes, each) for each in images]
    rows, columns = (torch.arange(side, device=image_sizes.device) for side in images.shape[-2:])
    high, wide = image_sizes.unbind(1)
    return (rows < high[:, None])[:, :, None] & (columns < wide[:, None])[:, None, :]


@dataclass(frozen=True)
class StagedBatch:
    """A batch whose way to the device is queued."""

    batch: Batch  # what the loop gets, to be used after `ready` only
    images: tuple[torch.Tensor, ...]  # by view
    labels: torch.Tensor
    valid: torch.Tensor
    memory: tuple[torch.Tensor, ...]  # a tensor of each piece of memory that the batch is in
    ready: Mark  # its work is done


@dataclass(frozen=True)
class _Work:
    """The device's work for a batch: marks before the copies, after them, and after the augmentation."""

    first: Mark
    copied: Mark
    ready: Mark
    in_time: bool  # all was queued before the device had done the copies: it did not pause for the host


class Transfer:
    """Queues copies and augmentation on a stream, and gives host memory back once it has been copied.

    `views` are, of each, what is done with its images, None: nothing; and a seed, which decides the augmentation
    together with epoch, batch and samples. The watchdog is of waits for the loop's own work.
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
        self.lookahead = stream.lookahead  # batches to queue before the one before them is handed out
        self._views = views
        stages = (stage for augment, _ in views if augment is not None for stage in augment.stages)
        self._follows = any(isinstance(stage, Foreign) for stage in stages)  # it may read what the program writes
        self._classes = classes
        self._stats = stats
        self._watchdog = watchdog
        self._copying: deque[tuple[Mark, tuple[NDArray[Any], ...]]] = deque()
        self._working: deque[_Work] = deque()
        self._buffers = SlotRing((0,), _BUFFERS, stream.slot)
        self._augment_s = math.inf  # the latest time without pauses
        self._users: deque[Mark] = deque()

    @property
    def under_way(self) -> int:
        """Batches that are queued and were not done at the last `collect`; on the CPU none. Any thread may ask: a look
        at the device from another one would break a CUDA graph that the training loop captures.
        """
        return len(self._working) if self._stream.copies else 0

    def collect(self) -> None:
        """Lets go of host memory that has been copied, and counts what the device has done. Raises as Mark.done."""
        while self._copying and self._copying[0][0].done():
            self._copying.popleft()
        while self._working and self._working[0].ready.done():
            work = self._working.popleft()
            augment_s = work.ready.since(work.copied)
            if work.in_time:
                self._augment_s = augment_s
            self._stats.device_s += work.copied.since(work.first) + min(augment_s, self._augment_s)

    @torch.inference_mode(False)  # the loop may train on the batch when it has left that mode
    @torch.no_grad()
    def begin(self, batch: HostBatch) -> StagedBatch:
        """Queues a batch. Its slot is not lent again before it has been copied."""
        started = time.perf_counter()
        each = batch.plan.rows_per_sample
        there, shown = batch.there, batch.there.crops.shown
        arrays: dict[str, NDArray[np.generic]] = {"labels": there.labels, "ids": there.ids, "valid": batch.plan.valid}
        if shown is not None:
            arrays["image_sizes"] = shown
        plans = [self._plan(view, batch) for view in range(len(batch.views))]
        names = () if batch.fields is None else batch.fields.names.values()
        for view, drawn in enumerate(plans):
            if drawn is not None:
                arrays.update({f"augment.{view}.{name}": array for name, array in drawn[1].arrays.items()})
        if batch.fields is not None:
            if plans[0] is not None and not {"mix_index", "mix_lam"}.isdisjoint(names):
                augment, plan = plans[0]
                index, lam = augment.partners(plan)
                batch.fields.arrays.update(mix_index=index, mix_lam=lam)
            for view, places in enumerate(batch.fields.places):
                if (drawn := plans[view]) is not None:
                    places = drawn[0].move_places(drawn[1], places)
                lay_out(batch.fields, view, places, len(batch.plan.flips), each)
            arrays.update({f"field.{name}": array for name, array in batch.fields.arrays.items()})
        planned = time.perf_counter()
        with self._stream.work(self._follows):
            copies, tensors, first, copied = self._copy(batch, arrays)
            queued = time.perf_counter()
            labels, ids, valid = (tensors.pop(name) for name in ("labels", "ids", "valid"))
            facts: dict[str, Any] = {"ids": ids, "valid": valid, "epoch": batch.epoch}
            sizes, masks = tensors.get("image_sizes"), []
            if sizes is not None:
                facts["image_sizes"] = sizes
                if "pixel_mask" in names or any(a and "shown" in a.moves for a, _ in self._views):
                    masks = pixel_mask(sizes, copies)
            augmented, labels = self._augmented(batch, plans, copies, labels, tensors, masks)
            images = augmented[0] if len(augmented) == 1 else augmented
            if masks:
                facts["pixel_mask"] = masks[0] if len(masks) == 1 else masks
            made: Batch = ImageBatch(images, labels, **facts)
            fields: dict[str, torch.Tensor] = {}
            if batch.fields is not None:
                fields = {name: tensors[f"field.{name}"] for name in batch.fields.arrays}
                facts |= {"image": images, "label": labels, "id": ids, "image_size": sizes}
                made = _as_dict(batch.fields, {**facts, **fields}, len(plans), each)
            ready = self._stream.mark()
        self._working.append(_Work(first, copied, ready, in_time=not copied.done()))
        self._stats.transfer_s += queued - planned
        self._stats.augment_s += planned - started + time.perf_counter() - queued
        kept = (*augmented, labels, ids, valid, *masks, *([] if sizes is None else [sizes]), *fields.values())
        memory = {each.untyped_storage().data_ptr(): each for each in kept}
        return StagedBatch(made, tuple(augmented), labels, valid, tuple(memory.values()), ready)

    def _augmented(
        self,
        batch: HostBatch,
        plans: list[Drawn | None],
        views: list[torch.Tensor],
        labels: torch.Tensor,
        tensors: dict[str, torch.Tensor],
        masks: list[torch.Tensor],
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The images of each view, and the labels. Masks and second pictures, in `tensors`, and the pixel masks of
        buckets, by view, are replaced by those that have moved with them.
        """
        each = batch.plan.rows_per_sample
        rows = labels if each == 1 else labels.repeat_interleave(each)
        made = []
        for view, (drawn, images) in enumerate(zip(plans, views, strict=True)):
            if drawn is not None:
                augment, plan = drawn
                given = {name: tensors[f"augment.{view}.{name}"] for name in plan.arrays}
                images, soft = augment.carry_out(images, rows, plan, given, num_classes=self._classes)
                labels = soft[::each] if view == 0 else labels  # those of all views
                if masks:
                    masks[view] = augment.move_shown(masks[view], plan, given)
                for name in () if batch.fields is None else batch.fields.images:
                    entry, fill = f"field.{view}.{name}", batch.plan.views[view].crops.rendering.mask_fill
                    tensors[entry] = augment.move_masks(tensors[entry], plan, given, fill)
            made.append(images if each == 1 else images.view(-1, each, *images.shape[1:]))
        return made, labels

    def _plan(self, view: int, batch: HostBatch) -> Drawn | None:
        """What is drawn for a view; None: it is not augmented."""
        (augment, seed), images = self._views[view], batch.views[view]
        if augment is None:
            return None
        plan = augment.plan(
            batch.plan.by_row().names,
            images.shape[1:3],
            seed=seed,
            epoch=batch.epoch,
            batch=batch.number,
            mixing_seed=self._views[0][1],
            shown=batch.there.crops.shown,
            channels=images.shape[3],
            bits=8 * images.itemsize,
        )
        return augment, plan

    def hand_over(self, staged: StagedBatch) -> Batch:
        """Gives a batch to the training loop's stream, which waits for it on the device. A loop that queues work faster
        than the device does it waits here, for the step of some batches ago.
        """
        self._users.append(self._stream.hand_over(staged.ready, staged.memory))
        if len(self._users) > _MOST_UNDONE:
            step = self._users.popleft()
            if self._stream.copies:  # the CPU is never behind
                self._stats.held_s += self._watchdog.wait(step.wait, f"{self._stream.device} {_STEP_UNDONE}")
        return staged.batch

    def _copy(self, batch: HostBatch, arrays: Arrays) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], Mark, Mark]:
        """Each view's rows (n * k, channels, height, width) and the arrays, on the device; marks around the copies."""
        rows = len(batch.plan.flips)
        hosts = [torch.from_numpy(each)[:rows] for each in batch.views]  # sliced by torch: SlotRing.take
        if not self._stream.copies:
            mark = self._stream.mark()
            views = [each.permute(0, 3, 1, 2) for each in hosts]
            return views, {name: torch.from_numpy(each) for name, each in arrays.items()}, mark, mark
        buffer = pack(arrays, self._buffers.take)
        first = self._stream.mark()
        small = self._stream.copy(torch.from_numpy(buffer))
        views = [self._stream.copy(each).permute(0, 3, 1, 2) for each in hosts]
        copied = self._stream.mark()
        self._copying.append((copied, (*batch.views, buffer)))
        return views, unpack(small, arrays), first, copied


def _as_dict(fields: HostFields, tensors: Mapping[str, Any], views: int, rows_per_sample: int) -> dict[str, Any]:
    """A batch of fields, made of its tensors on the device. What each view has of its own is a list, as images are."""

    def of_view(view: int, name: str) -> Any:
        value = tensors[f"{view}.{name}"]
        if (counts := fields.counts.get(f"{view}.{name}")) is not None:
            parts = list(torch.split(value, counts))  # views
            steps = range(0, len(parts), rows_per_sample)
            return parts if rows_per_sample == 1 else [parts[at : at + rows_per_sample] for at in steps]
        if name not in fields.images:
            return value
        value = value.permute(0, 3, 1, 2) if value.ndim == 4 else value
        return value if rows_per_sample == 1 else value.unflatten(0, (-1, rows_per_sample))

    found: dict[str, Any] = {}
    for key, name in fields.names.items():
        if fields.by_view(name):
            by_view = [of_view(view, name) for view in range(views)]
            found[key] = by_view[0] if views == 1 else by_view
        else:
            found[key] = tensors[name] if name in tensors else fields.lists[name]
    return found


_ALIGNMENT = 16

Arrays = Mapping[str, NDArray[np.generic]]


def pack(arrays: Arrays, allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The arrays' bytes, each from a multiple of 16 bytes on, in a buffer that `allocate` makes."""
    buffer = allocate((_places(arrays)[-1],))
    for place, array in zip(_places(arrays), arrays.values(), strict=False):  # the last place is the end
        if array.size:
            buffer[place : place + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
    return buffer


def unpack(buffer: torch.Tensor, like: Arrays) -> dict[str, torch.Tensor]:
    """The arrays in a copy of the buffer: views of it, with the names, shapes and dtypes of `like`."""
    tensors = {}
    for place, (name, array) in zip(_places(like), like.items(), strict=False):
        empty = torch.from_numpy(np.empty(array.shape if array.size == 0 else 0, dtype=array.dtype))
        piece = buffer[place : place + array.nbytes]
        tensors[name] = piece.view(empty.dtype).view(array.shape) if array.size else empty.to(buffer.device)
    return tensors


def _places(arrays: Arrays) -> list[int]:
    """Where each array begins, and the end of them all."""
    sizes = (-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays.values())
    return [*accumulate(sizes, initial=0)]
