"""Images -> operations -> normalised -> boxes blanked -> mixed -> the output's dtype; planned, then carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastpipe.augment import pixels
from fastpipe.augment.erasing import Erasing
from fastpipe.augment.foreign import Foreign
from fastpipe.augment.mixing import Mixing, one_hot
from fastpipe.augment.operation import Operation
from fastpipe.augment.options import Moments, of_channels
from fastpipe.augment.pixels import affine, full_of, normalise, parts, to_unit
from fastpipe.augment.plan import AugmentPlan, Draws, Step
from fastpipe.engine.slots import SlotRing
from fastpipe.errors import ConfigError

_KEEP = 3  # with the user, being made, one more while both are held for a moment


class Canvases:
    """Lends output tensors.

    Fresh memory costs a page fault every 4 kB, which takes a CPU ten times as long as normalising the batch does. So
    outputs come from a SlotRing: as there, two batches that somebody holds never share memory. torch recycles the
    memory of other devices itself.
    """

    def __init__(self) -> None:
        # The ring, the shape of its images, and how many a buffer of it has; replaced as one.
        self._lender: tuple[SlotRing, tuple[int, ...], int] | None = None

    def take(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
        """(n, c, height, width) in channels_last, with no particular content."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
        count, channels, height, width = shape
        image = (height, width, channels * dtype.itemsize)
        lender = self._lender
        if lender is None or image != lender[1] or count > lender[2]:
            self._lender = lender = SlotRing((count, *image), _KEEP), image, count
        lent = torch.from_numpy(lender[0].take())  # refers to the array lent, as do all views of it
        return lent[:count].view(dtype).view(count, height, width, channels).permute(0, 3, 1, 2)

    def __deepcopy__(self, memo: dict[int, Any]) -> Canvases:
        return Canvases()

    def __reduce__(self) -> tuple[type[Canvases], tuple[()]]:
        return Canvases, ()


@dataclass(frozen=True)
class Chain:
    """All that happens to the images of a batch. The order is that of torchvision's recipes.

    Mixing comes last and in float32, and the output is rounded to its dtype once, after it: so a mixed pixel has the
    share that its label says.

    Attributes:
        operations: between uint8 and normalising.
        dtype: of the output.
        mean, std: of pixels in [0, 1], as they were given, or None; see `moments`.
    """

    operations: tuple[Operation, ...]
    dtype: torch.dtype
    mean: Moments | None
    std: Moments | None
    erasing: Erasing | None
    mixing: Mixing | None
    _canvases: Canvases = field(default_factory=Canvases)

    @property
    def _part_bytes(self) -> int | None:
        if not self.operations:
            return pixels.NORMALISE_BYTES
        return pixels.PART_BYTES if all(operation.by_rows for operation in self.operations) else None

    def moments(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """mean and std of images with so many channels; 0 and 1 where they are not normalised."""
        return of_channels("mean", self.mean, channels, 0.0), of_channels("std", self.std, channels, 1.0)

    def plan(self, draws: Draws, size: tuple[int, int], mixing: Draws | None = None, bits: int = 8) -> AugmentPlan:
        """Draws what happens to a batch of images of `size` (height, width); `mixing` draws for what mixes images."""
        steps, given, mixing = [], size, mixing or draws
        for position, operation in enumerate(self.operations):
            steps.append(operation.plan(mixing if operation.mixes else draws, size, position))
            size = operation.size_after(size, draws.channels)
        full = 1 if self.operations else full_of(bits)
        steps.append(Step(None, affine(*self.moments(draws.channels), full=full)))
        steps.append(Step(None, {}) if self.erasing is None else self.erasing.plan(draws, size))
        steps.append(Step(None, {}) if self.mixing is None else self.mixing.plan(mixing, size, len(steps)))
        arrays = {
            f"{number}.{name}": np.ascontiguousarray(array)
            for number, step in enumerate(steps)
            for name, array in step.arrays.items()
        }
        return AugmentPlan(len(draws), given, draws.channels, bits, tuple(step.host for step in steps), arrays)

    def apply(self, images: Tensor, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """Carries a plan out; `stages`: the tensors of each of its steps, on the images' device."""
        out: Tensor | None = None
        for first, end in parts(images, self._part_bytes):
            part, size = self._operate(images[first:end], first, plan, stages)
            if self._as_is and (part.ndim != 4 or part.shape[1] != plan.channels):
                return part.to(self.dtype)
            if out is None:
                boxed = self.erasing is not None or self.mixing is not None
                self._check_size(part, plan.channels, size if boxed else None)
                dtype = torch.float32 if self.mixing is not None else self.dtype
                out = self._canvases.take(images.shape[:2] + part.shape[2:], dtype, images.device)
            self._finish(part, out[first:end], first, plan, stages)
        assert out is not None
        if self.mixing is None:
            return out
        return self.mixing.run(out, 0, plan.hosts[-1], stages[-1]).to(self.dtype)

    @property
    def moving(self) -> tuple[Operation, ...]:
        """All that moves pixels from place to place or from image to image, in order."""
        return self.operations if self.mixing is None else (*self.operations, self.mixing)

    def _steps(
        self, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]
    ) -> Iterator[tuple[Operation, Any, Mapping[str, Tensor]]]:
        """`moving`, each with its part of a plan."""
        yield from zip(self.operations, plan.hosts, stages, strict=False)
        if self.mixing is not None:
            yield self.mixing, plan.hosts[-1], stages[-1]

    def size_after(self, plan: AugmentPlan) -> tuple[int, int]:
        """(height, width) of what becomes of the images."""
        size = plan.size
        for operation in self.operations:
            size = operation.size_after(size, plan.channels)
        return size

    def move_points(self, points: Tensor, plan: AugmentPlan) -> Tensor:
        """Points (n, P, 2) of a batch -> where the operations move them."""
        for operation, host in zip(self.operations, plan.hosts, strict=False):
            points = operation.move_points(points, host)
        return points

    def move_masks(
        self, masks: Tensor, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]], fill: int, kind: str
    ) -> Tensor:
        """Masks of ids or second pictures (n, c, height, width) -> the same, moved, in the same dtype."""
        ids = masks.to(torch.float32, copy=True).sub_(fill)  # holds 16 bits exactly; operations fill with 0
        for operation, host, tensors in self._steps(plan, stages):
            if kind in operation.moves:
                ids = operation.move_masks(ids, host, tensors)
        return ids.add(fill).to(masks.dtype)

    def move_shown(self, shown: Tensor, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """(n, height, width) bool: the pixels of images, not of padding -> the same of the images afterwards."""
        marks = shown[:, None].to(torch.float32)
        for operation, host, tensors in self._steps(plan, stages):
            marks = operation.move_shown(marks, host, tensors)
        return marks[:, 0] > 0.5

    @property
    def _as_is(self) -> bool:
        """Whether nothing but the dtype changes after the operations, so that their results may be anything."""
        return self.mean is None and self.erasing is None and self.mixing is None

    def _operate(
        self, images: Tensor, first: int, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, tuple[int, int]]:
        """The operations' result, and the size that was planned for it."""
        size = plan.size
        if not self.operations:
            return images, size
        images = to_unit(images, _memory_format(self.operations[0]))
        for number, operation in enumerate(self.operations):
            if not isinstance(operation, Foreign):
                self._check_size(images, plan.channels, size)
                if number and not self.operations[number - 1].fresh:
                    images = images.to(torch.float32, memory_format=_memory_format(operation), copy=True)
            images = images.contiguous(memory_format=_memory_format(operation))
            images = operation.run(images, first, plan.hosts[number], stages[number])
            size = operation.size_after(size, plan.channels)
        return images, size

    def _finish(
        self, images: Tensor, out: Tensor, first: int, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]
    ) -> None:
        number = len(self.operations)
        normalise(images, stages[number]["scale"], stages[number]["shift"], out)
        if self.erasing is not None:
            self.erasing.apply(out.permute(0, 2, 3, 1), first, plan.hosts[number + 1], stages[number + 1])

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

    def soft_labels(
        self, labels: Tensor, classes: int, smoothing: float, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]
    ) -> Tensor:
        """Labels (n,) int64 -> (n, classes) float32, mixed as the images are."""
        soft = one_hot(labels, classes)
        for operation, host, tensors in self._steps(plan, stages):
            if operation.mixes:
                soft = operation.mixed_labels(soft, host, tensors)
        return soft.mul_(1 - smoothing).add_(smoothing / classes) if smoothing else soft


def _memory_format(operation: Operation) -> torch.memory_format:
    """Our own operations are quickest on planes; modules of others are given what the loader hands out."""
    return torch.contiguous_format if operation.by_rows else torch.channels_last
