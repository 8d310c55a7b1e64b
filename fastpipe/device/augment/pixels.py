"""How pixels are laid out, cut out and normalised, on a CPU or on an accelerator.

Note [rows]
A CPU normalises an output as (n, height, width * channels), the bytes of channels_last without a
dimension of channels, so that arithmetic runs along whole rows. Along a dimension of 3 it is
several times as slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fastpipe.device.augment.operation import Array

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# A CPU works on parts of a batch that stay in its cache from the first operation to the last. These
# are bytes of float32 images a thread: where operations make copies, and where pixels are only
# normalised.
PART_BYTES = 2**20
NORMALISE_BYTES = 2**22


def on_cpu(device: torch.device) -> bool:
    """Whether work is laid out for a CPU.

    True: memory and the cache count, so images are changed one by one, and boxes by slices at
    places that the host knows. False: launches count, so a batch is changed at once, and boxes by
    masks, whose places the device has.
    """
    return device.type == "cpu"


def cut_out(image: Tensor, box_tlbr: Sequence[int]) -> Tensor:
    """A view of the pixels of one image (height, width, c) in a box (top, left, bottom, right)."""
    top, left, bottom, right = box_tlbr
    return image[top:bottom, left:right]


def inside(boxes_tlbr: Tensor, height: int, width: int) -> Tensor:
    """Boxes (n, 4) int64 on the device -> (n, height, width) bool: the pixels in each box."""
    # (height, 1), (width,) and (n, 1, 1), so that only the last line makes an array of all pixels.
    y = torch.arange(height, device=boxes_tlbr.device)[:, None]
    x = torch.arange(width, device=boxes_tlbr.device)
    top, left, bottom, right = boxes_tlbr[:, :, None, None].unbind(1)
    is_row_inside = (y >= top) & (y < bottom)  # (n, height, 1)
    is_column_inside = (x >= left) & (x < right)  # (n, 1, width)
    return is_row_inside & is_column_inside


def parts(images: Tensor, part_bytes: int | None) -> Iterator[tuple[int, int]]:
    """The rows [first, end) of each part of a batch, of `part_bytes` bytes of float32 a thread;
    None: one part.
    """
    count = len(images)
    step = count
    if on_cpu(images.device) and part_bytes is not None:
        image_bytes = 4 * images[0].numel()  # as float32
        bytes_of_all_threads = part_bytes * torch.get_num_threads()
        step = max(1, bytes_of_all_threads // image_bytes)
    for first_row in range(0, count, step):
        end_row = min(first_row + step, count)
        yield first_row, end_row


def to_unit(images: Tensor, memory_format: torch.memory_format) -> Tensor:
    """uint8 or uint16 -> float32 in [0, 1], in fresh memory of this format."""
    out = torch.empty(
        images.shape,
        dtype=torch.float32,
        device=images.device,
        memory_format=memory_format,
    )
    if on_cpu(images.device) or images.dtype == torch.uint16:
        # Torch has no arithmetic of uint16.
        bits = 8 * images.element_size()
        return out.copy_(images).mul_(1 / full_of(bits))
    # One pass over memory. A Python number would have torch's default dtype.
    factor = torch.full((), 1 / 255, dtype=torch.float32, device=images.device)
    return torch.mul(images, factor, out=out)


def full_of(bits: int) -> int:
    """The value that stands for 1: 255 or 65535."""
    return (1 << bits) - 1


def affine(
    mean: Sequence[float], std: Sequence[float], *, full: int
) -> dict[str, Array]:
    """(pixel / full - mean) / std as pixel * scale + shift: two (c,) float32 arrays."""
    means = np.array(mean)
    stds = np.array(std)
    scale = 1 / (full * stds)
    shift = -means / stds
    scale_f32 = scale.astype(np.float32)
    shift_f32 = shift.astype(np.float32)
    return {"scale": scale_f32, "shift": shift_f32}


def normalise(images: Tensor, scale: Tensor, shift: Tensor, out: Tensor) -> None:
    """Writes images * scale + shift to `out`, which is channels_last.

    It is computed in float32 and rounded once, to the dtype of `out`.

    Args:
        images: (n, c, height, width) uint8, uint16 or float32.
        scale, shift: (c,) float32.
        out: (n, c, height, width) of any floating dtype.
    """
    if not on_cpu(images.device):
        if images.dtype == torch.uint16:  # torch has no arithmetic of it
            images = images.to(torch.float32)
        # Channels go last, so that scale and shift (c,) are broadcast along them. One kernel.
        images_nhwc = images.permute(0, 2, 3, 1)
        out_nhwc = out.permute(0, 2, 3, 1)
        torch.addcmul(shift, images_nhwc, scale, out=out_nhwc)
        return

    # The CPU's addcmul would convert all of the images first. So: convert into the output, then
    # multiply there, while it is in the cache. A narrower dtype goes through a float32 buffer of
    # these images; the caller cuts batches into parts.
    is_float32 = out.dtype == torch.float32
    work = out
    if not is_float32:
        work = torch.empty_like(out, dtype=torch.float32)
    work.copy_(images)
    count, channels, height, width = work.shape
    work_nhwc = work.permute(0, 2, 3, 1)
    rows = work_nhwc.view(count, height, width * channels)  # Note [rows]
    shifts = shift.repeat(width)
    scales = scale.repeat(width)
    torch.addcmul(shifts, rows, scales, out=rows)
    if not is_float32:
        out.copy_(work)
