"""Batches of an epoch in host memory -> batches on the device, in order, the next ones queued ahead of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fastpipe.device.transfer import StagedBatch, Transfer
from fastpipe.loading.epoch import EpochWorks


class StagedEpoch:
    """One pass over an epoch, or the rest of one.

    Args:
        works: makes its batches in host memory.
        transfer: queues them on the device.
    """

    def __init__(self, works: EpochWorks, transfer: Transfer) -> None:
        self._works = works
        self._transfer = transfer
        self._staged: deque[StagedBatch] = deque()
        self._failure: Exception | None = None  # of a batch that was to be queued ahead

    def __len__(self) -> int:
        """Batches not taken yet."""
        return len(self._staged) + len(self._works)

    @property
    def failed(self) -> bool:
        """Whether a batch to be taken later could not be made or queued."""
        return self._failure is not None

    def begin(self, batches: int) -> None:
        """Has the first batches made in host memory, as far as they fit and have not been."""
        self._works.begin(batches)

    def follow_with(self, begin: Callable[[int], None]) -> None:
        """Once all of this epoch is in the works, calls `begin` with the number of batches that there is room for."""
        self._works.follow_with(begin)

    def check_usable(self) -> None:
        """Raises EngineError if the engine is closed or belongs to the parent process."""
        self._works.check_usable()

    def cancel(self) -> None:
        """Takes back what has not begun; nothing can be taken afterwards."""
        self._staged.clear()
        self._works.cancel()

    def stage(self, batches: int) -> None:
        """Queues batches on the device until there are so many, as far as they are made: never waits for one."""
        while len(self._staged) < batches and self._failure is None and len(self._works):
            try:
                if not self._works.ready:
                    return
                self._stage()
            except Exception as problem:  # whatever it is, it is told when its batch is asked for
                self._failure = problem

    def take(self, ahead: int) -> StagedBatch:
        """Waits for the next batch, and queues up to `ahead` batches after it."""
        if not self._staged:
            if self._failure is not None:
                raise self._failure
            self._stage()
        self.stage(ahead + 1)
        return self._staged.popleft()

    def _stage(self) -> None:
        self._staged.append(self._transfer.begin(self._works.take()))
