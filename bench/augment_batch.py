"""A batch of smooth images with grain -> calls that do one operation to all of it, in each contender's own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kornia.augmentation
import torch
from torch import Tensor

from bench.peers.import_torchvision import torchvision  # first: it makes torchvision importable
from fastpipe import Augment
from fastpipe.device.augment.operation import compiled
from fastpipe.device.augment.pixels import IMAGENET_MEAN, IMAGENET_STD, PART_BYTES, parts

__all__ = ["Batch", "Call", "torchvision"]

Call = Callable[[], object]


class Batch:
    """What all contenders work on.

    Args:
        count: images.
        size: pixels a side.
        device: where all of it lies.
        compile: our functions run through torch.compile.

    Attributes:
        bytes: (count, 3, size, size) uint8, channels_last.
        images: the same as float32 in [0, 1], contiguous.
        labels: (count,) int64.
        share: (count,) of the way from an operation's least to its most.
        taps: of a blur's kernel.
    """

    def __init__(
        self, count: int, size: int, device: str | torch.device = "cpu", *, compile: bool = False
    ) -> None:
        self._compile = compile
        generator = torch.Generator().manual_seed(0)
        coarse = torch.rand(count, 3, size // 12 + 2, size // 12 + 2, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (size, size), mode="bilinear")
        grain = torch.rand(count, 3, size, size, generator=generator) / 12
        pixels = ((smooth + grain).clamp(0, 1) * 255).byte().to(device)
        self.bytes = pixels.contiguous(memory_format=torch.channels_last)
        self.images = (self.bytes / 255).contiguous()
        self.labels = torch.arange(count, device=device)
        self.share = torch.rand(count, generator=generator).to(device)
        self.taps = size // 10 // 2 * 2 + 1

    def kornia(self, module: torch.nn.Module) -> Call:
        """kornia's module, which draws its parameters."""
        return lambda: module(self.images)

    def each(self, function: Callable[[Tensor, float], Tensor], values: Tensor) -> Call:
        """torchvision's function, which takes one parameter: image by image."""
        numbers = values.tolist()
        return lambda: torch.stack(
            [function(*pair) for pair in zip(self.images, numbers, strict=True)]
        )

    def ours(self, function: Callable[..., Tensor], *parameters: Tensor) -> Call:
        """Our function on a copy of the images, part by part, as Augment takes a batch on a CPU."""
        out = torch.empty_like(self.images)
        function = compiled(function) if self._compile else function

        def run() -> None:
            for first, end in parts(self.images, PART_BYTES):
                part = out[first:end].copy_(self.images[first:end])
                made = function(part, *(parameter[first:end] for parameter in parameters))
                if made.data_ptr() != part.data_ptr():
                    part.copy_(made)

        return run

    def kornia_chain(self, *modules: torch.nn.Module) -> Call:
        """uint8 -> kornia's modules -> kornia's normalising."""
        normalise: Any = kornia.augmentation.Normalize
        moments = (
            torch.tensor(each, device=self.bytes.device) for each in (IMAGENET_MEAN, IMAGENET_STD)
        )
        chain = torch.nn.Sequential(*modules, normalise(*moments))
        return lambda: chain(self.bytes.float().div(255))

    def torchvision_chain(self, *transforms: Any) -> Call:
        """uint8 -> torchvision's transforms, normalising last: image by image, as in a dataset."""
        v2 = torchvision.transforms.v2
        convert, normalise = (
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        )
        chain = v2.Compose([convert, *transforms, normalise])
        return lambda: torch.stack([chain(image) for image in self.bytes])

    def mixed(self, mix: Callable[[object, Tensor], object], chain: Call) -> Call:
        """Another's chain, then its mixing of the batch."""
        return lambda: mix(chain(), self.labels)

    def augment(self, augment: Augment) -> Call:
        """uint8 -> Augment, its drawing included."""
        return lambda: augment(self.bytes, self.labels)
