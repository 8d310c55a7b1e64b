"""What watches an epoch, to warn if a program uses it as it hardly means to."""

from __future__ import annotations


class EpochWatch:
    """Is called while a program goes through an epoch. Nothing that it does changes a batch."""

    def come_back(self) -> None:
        """The program has used a batch and asks for the next one, or for the end."""

    def end(self, num_batches: int) -> None:
        """The program has gone through all batches of the epoch, so many of them in this iteration."""
