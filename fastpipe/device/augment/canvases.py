"""Memory of the output images of an augmentation, used again and again."""

from __future__ import annotations

import torch
from torch import Tensor

from fastpipe.engine.slots import SlotRing

_KEPT = 3  # with the user, in progress, and one more while both are held for a moment


class Canvases:
    """Lends output tensors.

    Fresh memory costs a page fault every 4 kB, which takes a CPU ten times as long as normalising
    the batch does. So outputs come from a SlotRing: two batches that somebody holds never share
    memory. torch itself reuses the memory of other devices.
    """

    def __init__(self) -> None:
        self._ring = SlotRing((0,), _KEPT)

    def take(
        self, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """(n, c, height, width) in channels_last, with no particular content."""
        if device.type != "cpu":
            return torch.empty(
                shape, dtype=dtype, device=device, memory_format=torch.channels_last
            )
        count, channels, height, width = shape
        memory = torch.from_numpy(
            self._ring.take((count, height, width, channels * dtype.itemsize))
        )
        # Keeps the slot lent, as do all views of it.
        return memory.view(dtype).permute(0, 3, 1, 2)

    def __reduce__(self) -> tuple[type[Canvases], tuple[()]]:
        # A copy or a pickle of an Augment has memory of its own.
        return Canvases, ()
