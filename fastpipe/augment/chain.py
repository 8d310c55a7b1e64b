"""uint8 images -> operations -> normalised -> boxes blanked -> mixed -> the output's dtype; planned, then done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fastpipe.augment import pixels
from fastpipe.augment.canvas import Canvases
from fastpipe.augment.erasing import Erasing
from fastpipe.augment.mixing import Mixing
from fastpipe.augment.operation import Operation
from fastpipe.augment.pixels import affine, as_rows, normalise, parts, to_unit
from fastpipe.augment.plan import AugmentPlan, Draws, Step
from fastpipe.errors import ConfigError


@dataclass(frozen=True)
class Chain:
    """All that happens to the images of a batch, in order.

    The order is that of torchvision's recipes. Mixing comes last and in float32, and the output is rounded to its dtype
    once, after it: so a mixed pixel has the share that its label says.

    Attributes:
        operations: between uint8 and normalising.
        dtype: of the output.
        mean, std: of pixels in [0, 1], or None.
        erasing, mixing: None: not done.
        as_is: what the operations return is the result; nothing comes after them.
    """

    operations: tuple[Operation, ...]
    dtype: torch.dtype
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    erasing: Erasing | None
    mixing: Mixing | None
    as_is: bool = False
    _canvases: Canvases = field(default_factory=Canvases)

    @property
    def _part_bytes(self) -> int | None:
        if not self.operations:
            return pixels.NORMALISE_BYTES
        return pixels.PART_BYTES if all(operation.by_rows for operation in self.operations) else None

    def plan(self, draws: Draws, size: tuple[int, int]) -> AugmentPlan:
        """Draws what happens to a batch of images of `size` (height, width)."""
        steps = [operation.plan(draws, size, position) for position, operation in enumerate(self.operations)]
        steps.append(Step(None, affine(self.mean, self.std, full=1 if self.operations else 255)))
        steps.append(Step(None, {}) if self.erasing is None else self.erasing.plan(draws, size))
        steps.append(Step(None, {}) if self.mixing is None else self.mixing.plan(draws, size))
        return AugmentPlan.of(len(draws), size, steps)

    def apply(self, images: Tensor, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """Carries a plan out.

        Args:
            images: (n, 3, height, width) uint8.
            plan: of this batch.
            stages: the tensors of each of its steps, on the images' device.
        """
        out: Tensor | None = None
        for first, end in parts(images, self._part_bytes):
            part = self._operate(images[first:end], first, plan, stages)
            if self.as_is:
                return part
            if out is None:
                self._check_size(part, plan, same=self.erasing is not None or self.mixing is not None)
                mixed = torch.float32 if self.mixing is not None else self.dtype
                out = self._canvases.take(images.shape[:2] + part.shape[2:], mixed, images.device)
            self._finish(part, out[first:end], first, plan, stages)
        assert out is not None
        if self.mixing is None:
            return out
        rows = self.mixing.apply(as_rows(out), plan.hosts[-1], stages[-1])
        count, _, height, width = out.shape
        return rows.view(count, height, width, 3).permute(0, 3, 1, 2).to(self.dtype)

    def _operate(self, images: Tensor, first: int, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]) -> Tensor:
        if not self.operations:
            return images
        images = to_unit(images, _memory_format(self.operations[0]))
        for number, operation in enumerate(self.operations):
            before = self.operations[max(number - 1, 0)]
            if operation.by_rows and not before.by_rows:  # what a module of others returns may be anything, and is its
                self._check_size(images, plan, same=True)
                images = images.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
            images = images.contiguous(memory_format=_memory_format(operation))
            images = operation.run(images, first, plan.hosts[number], stages[number])
        return images

    def _finish(
        self, images: Tensor, out: Tensor, first: int, plan: AugmentPlan, stages: Sequence[Mapping[str, Tensor]]
    ) -> None:
        number = len(self.operations)
        normalise(images, stages[number]["scale"], stages[number]["shift"], out)
        if self.erasing is not None:
            self.erasing.apply(as_rows(out), first, plan.hosts[number + 1], stages[number + 1])

    def _check_size(self, images: Tensor, plan: AugmentPlan, *, same: bool) -> None:
        shape = tuple(images.shape)
        if images.ndim != 4 or shape[1] != 3:
            raise ConfigError(
                f"augment: the operations returned shape {shape}; expected images (N, 3, height, width) to normalise. "
                "To get the output of a module unchanged, pass the module itself: fastpipe.loader(augment=module)"
            )
        if same and shape[2:] != plan.size:
            raise ConfigError(
                f"augment: the operations changed the images' size from {plan.size} to {shape[2:]}; erasing, mixup, "
                "cutmix and later operations of fastpipe need the same size. Pass the new size to the loader: "
                f"size={shape[2:]}"
            )


def _memory_format(operation: Operation) -> torch.memory_format:
    """Our own operations are quickest on planes; modules of others are given what the loader hands out."""
    return torch.contiguous_format if operation.by_rows else torch.channels_last
