"""Pixels uint8 or float32 in [0, 1] -> normalised pixels in the output's dtype, in one pass over memory.

Note [rows]: an output is held as (n, height, width * 3), the bytes of channels_last without a dimension of channels, so
that arithmetic runs along whole rows. Along a dimension of 3 a CPU is several times as slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fastpipe.augment import placement
from fastpipe.augment.plan import Array

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# A CPU takes a batch in parts that stay in its cache from the first operation to the last; other devices take it whole.
# Bytes of float32 images a thread: where operations make copies, and where pixels are only normalised.
PART_BYTES = 2**20
NORMALISE_BYTES = 2**22


def parts(images: Tensor, part_bytes: int | None) -> Iterator[tuple[int, int]]:
    """How a batch of images (n, 3, height, width) is taken: (first row, row after the last), in order.

    Args:
        images: of the batch.
        part_bytes: of float32 images, a thread; None: whole on any device.
    """
    count, _, height, width = images.shape
    step = count
    if placement.on_cpu(images.device) and part_bytes is not None:
        step = max(1, part_bytes * torch.get_num_threads() // (12 * height * width))
    for first in range(0, count, step):
        yield first, min(first + step, count)


def to_unit(images: Tensor, memory_format: torch.memory_format) -> Tensor:
    """uint8 -> float32 in [0, 1], fresh memory in the order asked for."""
    out = torch.empty(images.shape, dtype=torch.float32, device=images.device, memory_format=memory_format)
    if placement.on_cpu(images.device):
        return out.copy_(images).mul_(1 / 255)
    # One pass over memory. A plain number would make it one of torch's default dtype, whatever that is set to.
    return torch.mul(images, torch.full((), 1 / 255, dtype=torch.float32, device=images.device), out=out)


def affine(mean: Sequence[float] | None, std: Sequence[float] | None, *, full: float) -> dict[str, Array]:
    """(pixel / full - mean) / std as pixel * scale + shift: two (3,) float32 arrays.

    Args:
        mean, std: of pixels in [0, 1], a channel each; None for both: 0 and 1.
        full: what stands for 1: 255 or 1.
    """
    m, s = np.array(mean or (0.0,) * 3), np.array(std or (1.0,) * 3)
    return {"scale": (1 / (full * s)).astype(np.float32), "shift": (-m / s).astype(np.float32)}


def as_rows(out: Tensor) -> Tensor:
    """(n, 3, height, width) in channels_last -> the same memory as (n, height, width * 3); Note [rows]."""
    count, channels, height, width = out.shape
    return out.permute(0, 2, 3, 1).view(count, height, width * channels)


def normalise(images: Tensor, scale: Tensor, shift: Tensor, out: Tensor) -> None:
    """Writes images * scale + shift.

    Args:
        images: (n, 3, height, width) uint8 or float32.
        scale, shift: (3,) float32 on the same device.
        out: (n, 3, height, width) in channels_last, any floating dtype; rounded to it once.
    """
    if not placement.on_cpu(images.device):
        torch.addcmul(shift, images.permute(0, 2, 3, 1), scale, out=out.permute(0, 2, 3, 1))  # one kernel
        return
    # The CPU's addcmul would convert all of the images first. So: convert into the output, then multiply there,
    # while it is in the cache; a narrower dtype goes through a float32 buffer of this part.
    whole = out.dtype == torch.float32
    work = out if whole else torch.empty_like(out, dtype=torch.float32)
    work.copy_(images)
    rows, width = as_rows(work), out.shape[3]
    torch.addcmul(shift.repeat(width), rows, scale.repeat(width), out=rows)
    if not whole:
        out.copy_(work)
