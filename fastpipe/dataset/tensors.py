"""Arrays -> tensors of the same memory; torchvision's tv_tensors, where it is installed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def as_tensor(picture: NDArray[Any]) -> torch.Tensor:
    """(height, width, channels) -> a (channels, height, width) view, in channels_last order.

    Nothing is copied: see README.md for the time that `.contiguous()` would take.
    """
    return torch.from_numpy(picture).permute(2, 0, 1)


def as_image(pixels: NDArray[Any]) -> torch.Tensor:
    """(..., height, width, channels) -> an Image (..., channels, height, width)."""
    return tv_tensor("Image", np.moveaxis(pixels, -1, -3))


def tv_tensor(
    kind: str,
    values: NDArray[Any],
    canvas_size: tuple[int, int] | None = None,
    **options: Any,
) -> torch.Tensor:
    """A tv_tensor of this kind, of the same memory; without torchvision, a tensor.

    Args:
        kind: the name of its class in torchvision.tv_tensors.
        values: the array.
        canvas_size: (height, width) of the picture that boxes or points are on.
        options: of its class.
    """
    tensor = torch.from_numpy(values)
    classes = _tv_tensors()
    if classes is None:
        return tensor
    # Masks and images have no canvas: their own size says it.
    if canvas_size is not None:
        options["canvas_size"] = canvas_size
    image: torch.Tensor = getattr(classes, kind)(
        tensor, device=tensor.device, **options
    )
    return image


@cache
def _tv_tensors() -> Any:
    """torchvision.tv_tensors; None: it is not installed, too old, or does not fit this torch."""
    try:
        from torchvision import tv_tensors
    except (ImportError, RuntimeError):
        return None
    # Older versions have no points, and samples should have the same types in all.
    return tv_tensors if hasattr(tv_tensors, "KeyPoints") else None
