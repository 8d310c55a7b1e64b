"""A place in a device's queue of work -> whether the device has come there."""

from __future__ import annotations

from typing import Protocol


class Mark(Protocol):
    """A place in a queue of work: all that was queued before it."""

    def done(self) -> bool:
        """Whether all of it has been done; never waits.

        Raises:
            RuntimeError: work of the program has failed on the device.
        """

    def wait(self, timeout_s: float) -> bool:
        """Whether it has been done within so many seconds; raises as `done`."""

    def since(self, earlier: Mark) -> float:
        """Seconds of the device between two marks that are done."""
