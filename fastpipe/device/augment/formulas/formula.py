"""A module of kornia as two functions: kornia's parameters -> small arrays -> changed images.

    plan: module.forward_parameters -> Formula.prepare -> arrays, on the host
    run:  images, the arrays on the images' device -> Formula.change -> images

All that depends on the parameters alone (matrices, kernels, boxes) is computed by `prepare`, with
kornia's own arithmetic, so that a GPU only gets the passes over the images. `change` gets images
that the module changes, all of them: it picks none out, and never asks the device for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastpipe.device.augment.blurs import MakeBlur
from fastpipe.device.augment.pixel_steps import Steps
from fastpipe.device.augment.warps import MakeWarp
from fastpipe.plan.crops import Size

Parameters = Mapping[str, Tensor]  # that kornia drew, by kornia's names
Tensors = Mapping[str, Tensor]  # that `prepare` returned, on the images' device


@dataclass(frozen=True)
class Prepared:
    """The parameters of some images, as a formula needs them.

    Attributes:
        tensors: small ones, float32 or int64, with a row for each image.
        host: what `change` needs on the host.
    """

    tensors: dict[str, Tensor]
    host: Any = None


@dataclass(frozen=True)
class Formula:
    """How fastpipe carries a module of kornia out.

    Attributes:
        prepare: parameters of n images, on the host, and the shape (n, c, height, width). Returns
            None if kornia has to carry these out.
        change: images (n, c, height, width) float32, which it may overwrite; `Prepared.tensors` on
            their device; `Prepared.host`. Returns the changed images.
        channels: the numbers of channels for which it is the same as kornia's module. Images with
            another number go through kornia.
        least_size: smaller images go through kornia, which refuses them.
        changes_size: whether the results have another size.
        memory_format: of the images. Planes, whose rows have one channel, are what a CPU adds and
            multiplies fastest. None: any; so it is where the channels are not computed with.
        steps: the same for RGB as steps of each pixel, from the arrays of `Prepared.tensors` and
            `Prepared.host`; None: it is no such thing.
        warp: the same as a matrix for each sample, from these arrays; None: it is no such thing.
        blur: the same as weights of neighbours; None: it is no such thing.
    """

    prepare: Callable[[Parameters, torch.Size], Prepared | None]
    change: Callable[[Tensor, Tensors, Any], Tensor]
    channels: tuple[int, ...] = (1, 3, 4)
    least_size: Size = (1, 1)
    changes_size: bool = False
    memory_format: torch.memory_format | None = torch.contiguous_format
    steps: Steps | None = None
    warp: MakeWarp | None = None
    blur: MakeBlur | None = None

    def fits(self, size: Size, channels: int) -> bool:
        """Whether it does what kornia's module does with such images."""
        height, width = size
        least_height, least_width = self.least_size
        if height < least_height or width < least_width:
            return False
        return channels in self.channels


def of_names(*names: str) -> Callable[[Parameters, torch.Size], Prepared]:
    """A `prepare` that takes parameters (n,) as they are."""

    def prepare(parameters: Parameters, shape: torch.Size) -> Prepared:
        return Prepared({name: parameters[name] for name in names})

    return prepare
