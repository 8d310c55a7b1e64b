"""Where batches are copied and augmented: at once on the CPU; cuda_stream has the stream of a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray


class Mark:
    """A place in a queue of work: all that was queued before it. On the CPU nothing is queued: it has been done."""

    def done(self) -> bool:
        """Whether all of it has been done; never waits. RuntimeError: work of the program has failed on the device."""
        return True

    def wait(self, timeout_s: float) -> bool:
        """Whether it has been done within so many seconds; raises as `done`."""
        return True

    def since(self, earlier: Mark) -> float:
        """Seconds of the device between two marks that are done."""
        return 0.0


class Stream:
    """Where batches are made ready for the training loop. The CPU does all at once, in the thread that asks."""

    device = torch.device("cpu")  # that they end up on
    copies = False  # its memory is not the host's
    lookahead = 0  # batches to make ready beyond the one handed out, which more of them would only delay here

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory of all slots. Any thread may ask."""
        return 0

    def slot(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Host memory of a batch, to be used for many; copied to the device without the host waiting, if possible."""
        return np.empty(shape, dtype=np.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy to the device; the tensor must stay as it is until a later mark is done."""
        return tensor

    def work(self, follows: bool = False) -> AbstractContextManager[object]:
        """What is queued inside goes to this stream; `follows`: behind what the program has queued in its own."""
        return nullcontext()

    def mark(self) -> Mark:
        """A mark in this stream."""
        return Mark()

    def hand_over(self, mark: Mark, tensors: tuple[torch.Tensor, ...]) -> Mark:
        """Lets the training loop's stream use tensors of this one, after `mark`; returns a mark in that stream."""
        return mark
