"""Rows whose samples are fetched first -> a job like any other, begun when all of them are there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastpipe.native import _engine
from fastpipe.store.remote.reader import Reader
from fastpipe.store.remote.wants import Ticket, Where

_ATTEMPTS = 2  # for bytes that were right when they came and are wrong when they are read


class Begun(Protocol):
    """A job of the engine."""

    def wait(self, timeout_s: float) -> bool: ...
    @property
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    def errors(self) -> list[tuple[int, _engine.Reason]]: ...


class FetchedJob:
    """Like a Job. A row whose bytes have another hash than the recorded one is fetched again and done again.

    Args:
        reader: brings the samples.
        samples: (n,) of a plan.
        positions: (m,) in the plan: the rows.
        begin: begins rows of the plan whose samples are there; its errors have positions in these rows.
        last: nothing else reads the samples for this batch.
    """

    def __init__(
        self,
        reader: Reader,
        samples: NDArray[np.int64],
        positions: NDArray[np.intp],
        begin: Callable[[NDArray[np.intp], Where], Begun],
        *,
        last: bool,
    ) -> None:
        self._reader, self._samples, self._last = reader, samples, last
        self._begin: Callable[[NDArray[np.intp], Where], Begun] | None = begin
        self._attempts = 0
        self._found: dict[int, _engine.Reason] = {}
        self._done = False
        self._ask(positions)

    def _ask(self, rows: NDArray[np.intp]) -> None:
        self._rows = rows
        self._arrived = arrived = threading.Event()
        self._outcome: list[Begun | Exception] = []
        self._ticket: Ticket | None = self._reader.ticket(
            self._samples[rows], _starter(rows, self._begin, self._outcome, arrived)
        )

    def wait(self, timeout_s: float) -> bool:
        """True when every row is done; False after `timeout_s` seconds. Ctrl-C is acted on at once.

        Raises:
            DatasetError: a range does not come.
        """
        deadline = time.monotonic() + timeout_s
        while not self._done:
            if not self._arrived.is_set():
                started = time.monotonic()
                there = self._arrived.wait(max(deadline - started, 0.0))
                self._reader.waited(time.monotonic() - started)
                if not there:
                    return False
            job = self._outcome[0]
            if isinstance(job, Exception):
                raise job
            if not job.wait(max(deadline - time.monotonic(), 0.0)):
                return False
            self._judge(job)
        return True

    @property
    def done(self) -> bool:
        """Whether every row is done. Any thread may ask: it changes nothing."""
        return self._done or any(isinstance(job, Exception) or job.done for job in self._outcome)

    def _judge(self, job: Begun) -> None:
        """Takes the errors of rows; those with wrong bytes begin again."""
        errors = [(int(self._rows[row]), why) for row, why in job.errors()]
        mismatch = _engine.Code.hash_mismatch
        wrong = np.array([row for row, why in errors if why.code == mismatch], dtype=np.intp)
        wrong = wrong[self._reader.brings(self._samples[wrong])]
        known = self._reader.damaged(self._samples[wrong])
        again = wrong[~known] if self._attempts < _ATTEMPTS else wrong[:0]
        for row, why in errors:
            if row in wrong[known] or (row in wrong and not len(again)):
                why = _engine.Reason(
                    f"{why}; its bytes were fetched again and are no better, so the file behind the URL is damaged"
                )
            if row not in again:
                self._found[row] = why
        self._give_back(used=not len(again))
        if len(again):
            self._attempts += 1
            self._reader.again(self._samples[again])
            self._ask(again)
        else:
            self._done, self._begin = True, None

    def _give_back(self, *, used: bool) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._reader.end(ticket, used=used and self._last)

    def cancel(self) -> None:
        """Takes back what has not begun, and waits for what has; see Job."""
        self._give_back(used=False)
        self._begin = None
        if self._outcome and not isinstance(self._outcome[0], Exception):
            self._outcome[0].cancel()

    def errors(self) -> list[tuple[int, _engine.Reason]]:
        """(position in the plan, reason) of each row that failed, in the order of the plan."""
        return sorted(self._found.items())


def _starter(
    rows: NDArray[np.intp],
    begin: Callable[[NDArray[np.intp], Where], Begun] | None,
    outcome: list[Begun | Exception],
    arrived: threading.Event,
) -> Callable[[Where | Exception], None]:
    """What begins the rows. It knows nothing of the FetchedJob, so that dropping that frees the batch's memory."""

    def go(where: Where | Exception) -> None:
        try:
            assert begin is not None
            outcome.append(where if isinstance(where, Exception) else begin(rows, where))
        except Exception as problem:  # told to whoever waits
            outcome.append(problem)
        arrived.set()

    return go
