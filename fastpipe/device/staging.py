"""The small arrays of a batch -> one buffer, which is copied at once -> tensors on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.arrays import Uint8s

_ALIGNMENT_BYTES = 16

Arrays = Mapping[str, NDArray[np.generic]]


def pack(arrays: Arrays, allocate: Callable[[tuple[int, ...]], Uint8s]) -> Uint8s:
    """The arrays' bytes, each at a multiple of 16 bytes, in a buffer that `allocate` makes."""
    *offsets, size_bytes = _offsets(arrays)
    buffer = allocate((size_bytes,))
    for offset, array in zip(offsets, arrays.values(), strict=True):
        if array.size:
            end = offset + array.nbytes
            part = buffer[offset:end]
            # A view of these bytes as the array, through which it is copied.
            copy = part.view(array.dtype).reshape(array.shape)
            copy[...] = array
    return buffer


def unpack(buffer: torch.Tensor, like: Arrays) -> dict[str, torch.Tensor]:
    """The arrays in a copy of the buffer: views of it, with names, shapes and dtypes of `like`."""
    *offsets, _ = _offsets(like)
    tensors = {}
    for offset, (name, array) in zip(offsets, like.items(), strict=True):
        # torch has no public function from numpy's dtypes to its own, so an empty array is turned
        # into a tensor.
        empty = np.empty(0, dtype=array.dtype)
        dtype = torch.from_numpy(empty).dtype
        if array.size:
            end = offset + array.nbytes
            part = buffer[offset:end]
            tensors[name] = part.view(dtype).view(array.shape)
        else:
            # An array without elements has no bytes in the buffer.
            tensors[name] = torch.empty(array.shape, dtype=dtype, device=buffer.device)
    return tensors


def _offsets(arrays: Arrays) -> list[int]:
    """Where each array begins, and the end of all."""
    sizes = []
    for array in arrays.values():
        block_count = -(-array.nbytes // _ALIGNMENT_BYTES)  # rounded up
        sizes.append(block_count * _ALIGNMENT_BYTES)
    return list(accumulate(sizes, initial=0))
