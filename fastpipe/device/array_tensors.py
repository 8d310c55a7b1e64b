"""The bytes of arrays, in host memory or on a device -> tensors of their dtype and shape."""

from __future__ import annotations

import math
from typing import Any

import torch

from fastpipe.plan.arrays import ArrayBatch


def numbers_of(data: torch.Tensor, dtype_name: str) -> torch.Tensor:
    """(M,) the numbers in a tensor of bytes, in the dtype that torch calls so."""
    dtype: Any = getattr(torch, dtype_name)
    assert isinstance(dtype, torch.dtype)
    if not data.numel():
        # torch makes no view of another dtype of a tensor without elements.
        return torch.empty(0, dtype=dtype, device=data.device)
    return data.flatten().view(dtype)


def arrays_in_slot(
    slot: torch.Tensor, arrays: ArrayBatch
) -> torch.Tensor | list[torch.Tensor]:
    """The arrays of a batch: one tensor, or a list with one for each sample.

    `slot` is that of `arrays`, or a copy of it on the device. The tensors are views of it.
    """
    numbers = numbers_of(slot, arrays.dtype)
    if arrays.shape is not None:
        return numbers.view(arrays.shape)
    counts = [math.prod(shape) for shape in arrays.shapes]
    parts = torch.split(numbers, counts)
    tensors = []
    for part, shape in zip(parts, arrays.shapes, strict=True):
        tensors.append(part.view(shape))
    return tensors
