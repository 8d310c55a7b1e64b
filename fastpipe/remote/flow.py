"""Bytes that arrive -> how many requests to have under way: as many as make the link faster, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST, MOST = 16, 64
REQUEST_BYTES = 8 << 20
_STEP = 8
_WORTH_IT = 1.05  # more requests stay if the link became so many times faster
_LOOK_S = 1.0


class Flow:
    """Tries more requests at a time while there is work for them, and goes back where that did not pay.

    Args:
        now: seconds of a clock.

    Attributes:
        most: requests that may be under way.
        rate: bytes/s of late.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.most = LEAST
        self.rate = 0.0
        self._since = now()
        self._bytes = 0
        self._starved = False  # there were fewer requests than there might have been
        self._before = 0.0  # the rate with fewer requests
        self._settled = False

    def add(self, size: int, *, starved: bool, busy: bool) -> None:
        """Counts bytes that have arrived.

        Args:
            size: of them.
            starved: fewer requests than `most` were under way, because nothing was to be fetched.
            busy: the server has asked for fewer requests.
        """
        self._bytes += size
        self._starved |= starved
        seconds = self._now() - self._since
        if seconds < _LOOK_S:
            return
        self.rate = self._bytes / seconds
        if busy:  # later it may take more again
            self.most, self._before, self._settled = max(LEAST // 4, self.most // 2), 0.0, False
        elif not self._starved and not self._settled:
            if self.rate > _WORTH_IT * self._before and self.most < MOST:
                self._before = self.rate
                self.most += _STEP
            elif self.rate <= _WORTH_IT * self._before:
                self.most, self._settled = max(LEAST, self.most - _STEP), True
        self._since, self._bytes, self._starved = self._now(), 0, False
