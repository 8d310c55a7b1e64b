"""The small arrays of a batch -> one buffer, which is copied at once -> tensors on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

_ALIGNMENT_BYTES = 16

Arrays = Mapping[str, NDArray[np.generic]]


def pack(
    arrays: Arrays, allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    """The arrays' bytes, each at a multiple of 16 bytes, in a buffer that `allocate` makes."""
    *offsets, size_bytes = _offsets(arrays)
    buffer = allocate((size_bytes,))
    for offset, array in zip(offsets, arrays.values(), strict=True):
        if array.size:
            part = buffer[offset : offset + array.nbytes]
            part.view(array.dtype).reshape(array.shape)[...] = array
    return buffer


def unpack(buffer: torch.Tensor, like: Arrays) -> dict[str, torch.Tensor]:
    """The arrays in a copy of the buffer: views of it, with names, shapes and dtypes of `like`."""
    *offsets, _ = _offsets(like)
    tensors = {}
    for offset, (name, array) in zip(offsets, like.items(), strict=True):
        shape = array.shape if array.size == 0 else 0
        empty = torch.from_numpy(np.empty(shape, dtype=array.dtype))  # of torch's dtype
        if array.size:
            part = buffer[offset : offset + array.nbytes]
            tensors[name] = part.view(empty.dtype).view(array.shape)
        else:
            tensors[name] = empty.to(buffer.device)
    return tensors


def _offsets(arrays: Arrays) -> list[int]:
    """Where each array begins, and the end of all."""
    sizes = [
        -(-array.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        for array in arrays.values()
    ]
    return list(accumulate(sizes, initial=0))
