"""Some arrays -> one buffer that takes one copy to a device, and back into arrays there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

_ALIGNMENT = 16

Arrays = Mapping[str, NDArray[np.generic]]


def pack(arrays: Arrays, allocate: Callable[[tuple[int, ...]], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The arrays' bytes, each from a multiple of 16 bytes on, in a buffer that `allocate` makes."""
    buffer = allocate((_places(arrays)[-1],))
    for place, array in zip(_places(arrays), arrays.values(), strict=False):  # the last place is the end
        if array.size:
            buffer[place : place + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
    return buffer


def unpack(buffer: torch.Tensor, like: Arrays) -> dict[str, torch.Tensor]:
    """The arrays in a copy of the buffer: views of it, with the names, shapes and dtypes of `like`."""
    tensors = {}
    for place, (name, array) in zip(_places(like), like.items(), strict=False):
        empty = torch.from_numpy(np.empty(array.shape if array.size == 0 else 0, dtype=array.dtype))
        piece = buffer[place : place + array.nbytes]
        tensors[name] = piece.view(empty.dtype).view(array.shape) if array.size else empty.to(buffer.device)
    return tensors


def _places(arrays: Arrays) -> list[int]:
    """Where each array begins, and the end of them all."""
    places = [0]
    for array in arrays.values():
        places.append(places[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    return places
