"""A shape -> the memory of a batch's output: on a CPU taken from batches that the program no longer uses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastpipe.engine.slots import SlotRing

_KEEP = 3  # with the user, being made, one more while both are held for a moment


class Canvases:
    """Lends output tensors.

    Fresh memory costs a page fault every 4 kB, which takes a CPU ten times as long as normalising the batch does. So
    outputs come from a SlotRing: as there, two batches that somebody holds never share memory. torch recycles the
    memory of other devices itself.
    """

    def __init__(self) -> None:
        # The ring, the shape of its images, and how many a buffer of it has; replaced as one.
        self._lender: tuple[SlotRing, tuple[int, ...], int] | None = None

    def take(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
        """(n, 3, height, width) in channels_last, with no particular content."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
        count, channels, height, width = shape
        image = (height, width, channels * dtype.itemsize)
        lender = self._lender
        if lender is None or image != lender[1] or count > lender[2]:
            self._lender = lender = SlotRing((count, *image), _KEEP), image, count
        lent = torch.from_numpy(lender[0].take())  # refers to the array lent, as do all views of it
        return lent[:count].view(dtype).view(count, height, width, channels).permute(0, 3, 1, 2)

    def __deepcopy__(self, memo: dict[int, Any]) -> Canvases:
        return Canvases()

    def __reduce__(self) -> tuple[type[Canvases], tuple[()]]:
        return Canvases, ()
