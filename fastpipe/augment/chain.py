"""Images -> operations -> normalised -> boxes blanked -> mixed -> the output's dtype; planned, then carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment import pixels
from fastpipe.augment.foreign import Foreign
from fastpipe.augment.inputs import check_fits, check_labels, classes_of_labels, unaffected
from fastpipe.augment.moving import moved
from fastpipe.augment.normalised import Mixing, one_hot
from fastpipe.augment.operation import AugmentPlan, Draws, Operation, Step, Tensors
from fastpipe.augment.options import checked_moments, of_channels
from fastpipe.augment.pixels import affine, full_of, normalise, parts, to_unit
from fastpipe.engine.slots import SlotRing
from fastpipe.errors import ConfigError
from fastpipe.plan.placed import Placed

_KEEP = 3  # with the user, being made, one more while both are held for a moment


class Canvases:
    """Lends output tensors. Fresh memory costs a page fault every 4 kB, which takes a CPU ten times as long as
    normalising the batch does. So outputs come from a SlotRing: as there, two batches that somebody holds never share
    memory. torch recycles the memory of other devices itself.
    """

    def __init__(self) -> None:
        self._ring = SlotRing((0,), _KEEP)

    def take(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
        """(n, c, height, width) in channels_last, with no particular content."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
        count, channels, height, width = shape
        lent = torch.from_numpy(self._ring.take((count, height, width, channels * dtype.itemsize)))
        return lent.view(dtype).permute(0, 3, 1, 2)  # refers to the array lent, as do all views of it

    def __reduce__(self) -> tuple[type[Canvases], tuple[()]]:
        return Canvases, ()


class Chain(torch.nn.Module):
    """All that happens to the images of a batch. The order is that of torchvision's recipes.

    Mixing comes last and in float32, and the output is rounded to its dtype once, after it: so a mixed pixel has the
    share that its label says. `mean` and `std` are of pixels in [0, 1], or None.
    """

    label_smoothing: float
    num_classes: int | None

    def __init__(
        self, before: Sequence[Operation], after: Sequence[Operation], dtype: torch.dtype, mean: object, std: object
    ) -> None:
        super().__init__()
        self.operations = torch.nn.ModuleList(before)
        self.stages = tuple(before)  # what happens before normalising, in order
        self._sequence = (*before, *after)  # in a plan, normalising comes last
        self.dtype = dtype
        self.mean, self.std = checked_moments(mean, std)
        self._canvases = Canvases()

    @property
    def compiled(self) -> bool:
        """Whether fastpipe's own operations run through torch.compile."""
        return any(operation.compiles for operation in self.stages)

    @property
    def soft(self) -> bool:
        """Whether labels become soft: float32 (N, num_classes) instead of int64 (N,)."""
        return bool(self.mixers) or self.label_smoothing > 0

    @property
    def mixers(self) -> list[Operation]:
        """What mixes images, in order."""
        return [operation for operation in self._sequence if operation.mixes]

    @property
    def in_pairs(self) -> bool:
        """Whether each image is mixed once, with one other image."""
        return [mixer.in_pairs for mixer in self.mixers] == [True]

    @property
    def moves(self) -> frozenset[str]:
        """The kinds of what moves with images; see Operation."""
        return frozenset[str]().union(*(operation.moves for operation in self._sequence))

    @property
    def pasted(self) -> frozenset[str]:
        """The kinds of fields that all that mixes images also mixes, by pasting: cutmix pastes masks."""
        mixing = [operation.moves for operation in self.mixers]
        return frozenset[str].intersection(*mixing) if mixing else frozenset()

    @property
    def moving_parts(self) -> list[Operation]:
        """The operations that move pixels, or may; without those that mix images."""
        return [operation for operation in self.stages if operation.may_move and not operation.mixes]

    @unaffected(torch.device("cpu"))
    def mixing_ids(self, size: tuple[int, int], channels: int = 3) -> list[str]:
        """The names of the operations that would make numbers in masks that are no ids, of images of `size`, (h, w)."""
        found = []
        for operation in self.stages:
            if operation.mixes_ids(size, channels):
                found.append(operation.name)
            size = operation.size_after(size, channels)
        return found

    def moments(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """mean and std that images with so many channels are normalised by, of pixels in [0, 1]; 0 and 1: not at all.

        Raises:
            ConfigError: another number of channels was given.
        """
        return of_channels("mean", self.mean, channels, 0.0), of_channels("std", self.std, channels, 1.0)

    @unaffected(torch.device("cpu"))
    def plan(
        self,
        samples: NDArray[np.int64],
        size: tuple[int, int],
        *,
        seed: int,
        epoch: int,
        batch: int,
        mixing_seed: int | None = None,
        shown: NDArray[np.int64] | None = None,
        channels: int = 3,
        bits: int = 8,
    ) -> AugmentPlan:
        """Draws the augmentation of one batch, on the host.

        Args:
            samples: (n,) int64 sample numbers, at least one.
            size: (height, width) of the images in pixels.
            seed, epoch, batch: keys of the draws; batch is the number of the global batch in its epoch.
            mixing_seed: in place of seed, for what mixes images: views of one seed have one partner and one share.
            shown: (n, 2), height and width of the image at the top left of each row, where the rest is padding.
            channels: 1, 3 or 4.
            bits: 8 for uint8 or 16 for uint16.

        Raises:
            ConfigError: mean, std or a module does not fit the channels.
        """
        shares = None if shown is None else shown / size
        size = int(size[0]), int(size[1])
        seeds = seed, seed if mixing_seed is None else mixing_seed
        draws, mixing = (
            Draws(samples, seed=each, epoch=epoch, batch=batch, shown=shares, channels=channels) for each in seeds
        )
        steps, sizes = [], [size]
        for position, operation in enumerate(self._sequence):
            steps.append(operation.plan(mixing if operation.mixes else draws, sizes[-1], position))
            sizes.append(operation.size_after(sizes[-1], channels))
        full = 1 if self.stages else full_of(bits)
        steps.append(Step(None, affine(*self.moments(channels), full=full)))
        arrays = {
            f"{number}.{name}": np.ascontiguousarray(array)
            for number, step in enumerate(steps)
            for name, array in step.arrays.items()
        }
        return AugmentPlan(len(draws), tuple(sizes), channels, bits, tuple(step.host for step in steps), arrays)

    def partners(self, plan: AugmentPlan) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(n,) the row that is mixed into each row of a batch, and (n,) each row's own share; see `in_pairs`."""
        (place,) = (place for place, operation in enumerate(self._sequence) if operation.mixes)
        if (share := plan.arrays.get(f"{place}.share")) is not None:
            mixer = self._sequence[place]
            assert isinstance(mixer, Mixing)
            return mixer.partners(plan.count), share
        return plan.arrays[f"{place}.partners"][1], plan.arrays[f"{place}.shares"][0].astype(np.float32)

    @torch.no_grad()
    @unaffected(torch.device("cpu"))
    def move_places(self, plan: AugmentPlan, places: Mapping[str, Placed]) -> Mapping[str, Placed]:
        """Moves the boxes and points of a batch, by name, as `carry_out` moves its images; on the host, in pixels.

        Boxes are cut off at the border; one that left the image has no width or no height.
        """
        if self.moves.isdisjoint(("boxes", "keypoints")) or not places:
            return places
        tensors = {name: torch.from_numpy(array) for name, array in plan.arrays.items()}
        return moved(plan, places, lambda xy: self._moved(xy, plan, tensors, "keypoints", "boxes"))

    @torch.no_grad()
    def move_masks(self, masks: Tensor, plan: AugmentPlan, tensors: Tensors, fill: int = 0) -> Tensor:
        """Moves masks or second pictures as `carry_out` moves images, on their device, in its current stream.

        Args:
            masks: (N, height, width) of ids; or pictures, (N, height, width, C), uint8 or uint16.
            plan, tensors: as for `carry_out`.
            fill: the id where pixels come from outside the image.
        """
        kind = "mask" if masks.ndim == 3 else "image"
        if kind not in self.moves:
            return masks
        planes = masks[:, None] if kind == "mask" else masks.permute(0, 3, 1, 2)
        ids = planes.to(torch.float32, copy=True).sub_(fill)  # holds 16 bits exactly; operations fill with 0
        made = self._moved(ids, plan, tensors, kind).add(fill).to(masks.dtype)
        return made[:, 0] if kind == "mask" else made.permute(0, 2, 3, 1)

    @torch.no_grad()
    def move_shown(self, shown: Tensor, plan: AugmentPlan, tensors: Tensors) -> Tensor:
        """(N, height, width) bool, True for pixels of images and False for padding -> the same after `carry_out`."""
        if "shown" not in self.moves:
            return shown
        return self._moved(shown[:, None].to(torch.float32), plan, tensors, "shown")[:, 0] > 0.5

    def _moved(self, values: Tensor, plan: AugmentPlan, tensors: Tensors, *kinds: str) -> Tensor:
        """Values of one of these kinds -> where the operations that have such a kind move them."""
        with unaffected(values.device):
            for operation, host, own in self._steps(plan, tensors):
                if not operation.moves.isdisjoint(kinds):
                    values = operation.move(kinds[0], values, host, own)
        return values

    @torch.no_grad()
    def carry_out(
        self, images: Tensor, labels: Tensor, plan: AugmentPlan, tensors: Tensors, *, num_classes: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Applies a plan on the images' device, in its current stream; never waits for the device.

        Args:
            images: (N, C, height, width) uint8 or uint16, channels_last.
            labels: (N,) int64 on the same device, each below the number of classes.
            plan: of this batch.
            tensors: plan.arrays on the same device.
            num_classes: number of classes of the dataset; used if Augment(num_classes=) was not given.

        Returns:
            images, channels_last in this Augment's dtype; labels, unchanged or soft.

        Raises:
            ConfigError: the tensors do not match the plan, a module returned no batch, or num_classes is missing.
        """
        check_fits(images, labels, plan, tensors)
        classes = classes_of_labels(self.num_classes, num_classes) if self.soft else 0
        with unaffected(images.device):
            out = self._carried_out(images, plan, plan.split(tensors))
            if self.soft:
                check_labels(labels, classes)
                labels = self._soft_labels(labels, classes, plan, tensors)
        return out, labels

    def _carried_out(self, images: Tensor, plan: AugmentPlan, stages: Sequence[Tensors]) -> Tensor:
        """Carries a plan out; `stages`: the tensors of each of its steps, on the images' device."""
        out: Tensor | None = None
        after = [*enumerate(self._sequence)][len(self.stages) :]
        by_rows = [*takewhile(lambda each: each[1].by_rows, after)]
        part_bytes: int | None = pixels.NORMALISE_BYTES
        if self.stages:
            part_bytes = pixels.PART_BYTES if all(operation.by_rows for operation in self.stages) else None
        for first, end in parts(images, part_bytes):
            part = self._operate(images[first:end], first, plan, stages)
            as_is = self.mean is None and not after  # but for the dtype, so results may be anything
            if as_is and (part.ndim != 4 or part.shape[1] != plan.channels):
                return part.to(self.dtype)
            if out is None:
                self._check_size(part, plan.channels, plan.sizes[-1] if after else None)
                dtype = self.dtype if by_rows == after else torch.float32
                out = self._canvases.take(images.shape[:2] + part.shape[2:], dtype, images.device)
            normalise(part, stages[-1]["scale"], stages[-1]["shift"], out[first:end])
            for number, operation in by_rows:
                operation.run(out[first:end], first, plan.hosts[number], stages[number])
        assert out is not None
        for number, operation in after[len(by_rows) :]:
            out = operation.run(out, 0, plan.hosts[number], stages[number])
        return out.to(self.dtype)

    def _steps(self, plan: AugmentPlan, tensors: Tensors) -> Iterator[tuple[Operation, Any, Tensors]]:
        """Each operation with its part of a plan."""
        return zip(self._sequence, plan.hosts, plan.split(tensors), strict=False)

    def _operate(self, images: Tensor, first: int, plan: AugmentPlan, stages: Sequence[Tensors]) -> Tensor:
        if not self.stages:
            return images
        images = to_unit(images, _memory_format(self.stages[0]))
        for number, operation in enumerate(self.stages):
            if not isinstance(operation, Foreign):
                self._check_size(images, plan.channels, plan.sizes[number])
                if number and isinstance(self.stages[number - 1], Foreign):  # which may keep what it returned
                    images = images.to(torch.float32, memory_format=_memory_format(operation), copy=True)
            images = images.contiguous(memory_format=_memory_format(operation))
            images = operation.run(images, first, plan.hosts[number], stages[number])
        return images

    def _check_size(self, images: Tensor, channels: int, size: tuple[int, int] | None) -> None:
        """Raises ConfigError where they are no images with so many channels, of `size` if it is given."""
        shape = tuple(images.shape)
        if images.ndim != 4 or shape[1] != channels:
            raise ConfigError(
                f"augment: the operations returned shape {shape}; expected images (N, {channels}, height, width), with "
                "as many channels as before, to normalise. To get the output of modules unchanged, pass "
                "fastpipe.Augment(modules, mean=None, std=None)"
            )
        if size is not None and shape[2:] != size:
            raise ConfigError(
                f"augment: the operations changed the images' size from {size} to {shape[2:]}; erasing, mixup, "
                "cutmix and later operations of fastpipe or kornia need the same size. Pass the new size to the "
                f"loader: size={shape[2:]}"
            )

    def _soft_labels(self, labels: Tensor, classes: int, plan: AugmentPlan, tensors: Tensors) -> Tensor:
        soft = one_hot(labels, classes)
        for operation, host, own in self._steps(plan, tensors):
            if operation.mixes:
                soft = operation.mixed_labels(soft, host, own)
        smoothing = self.label_smoothing
        return soft.mul_(1 - smoothing).add_(smoothing / classes) if smoothing else soft


def _memory_format(operation: Operation) -> torch.memory_format:
    """Our own operations are quickest on planes; modules of others are given what the loader hands out."""
    return torch.contiguous_format if operation.by_rows else torch.channels_last
