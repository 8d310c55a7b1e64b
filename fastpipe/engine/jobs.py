"""Rows of a plan under way, as a job to wait for: decoded, converted first, or fetched first.

`Engine.submit` returns a job. All three kinds have `wait`, `done`, `cancel` and `errors`. Dropping
a job cancels the rows that have not begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastpipe.arrays import Int64s
from fastpipe.engine.limits import CONVERTIBLE, PATIENCE_S
from fastpipe.engine.tasks import Slot, Tasks
from fastpipe.native import _engine

if TYPE_CHECKING:  # most programs read packed folders
    from fastpipe.engine.conversions import Conversions
    from fastpipe.store.remote.reader import Reader
    from fastpipe.store.remote.wants import Ticket, Where

    # Starts rows whose bytes have arrived.
    StartRows = Callable[[NDArray[np.intp], Where], "Job"]

# Bytes may be right when they arrive, and wrong when they are read. They are fetched again this
# often.
_MAX_REFETCHES = 2
# Why a row failed: a text, whose `code` is a member of _engine.Code.
Reason = _engine.Reason
_CANCELLED = Reason("cancelled")


class Job:
    """Rows of a plan, (n,), in the engine's threads. Their slot is kept until they are done."""

    def __init__(self, job: _engine.Job, rows: NDArray[np.intp]) -> None:
        self._job = job
        self._rows = rows

    def wait(self, timeout_s: float) -> bool:
        """True when every row is done; False after `timeout_s` seconds. Ctrl-C ends it in 0.1 s."""
        return self._job.wait(timeout_s)

    @property
    def done(self) -> bool:
        """Whether every row is done. Changes nothing, so any thread may read it."""
        return self._job.wait(0)

    def cancel(self, patience_s: float = PATIENCE_S) -> None:
        """Cancels the rows that have not begun, and waits for the others, 10 s at most."""
        self._job.cancel(patience_s)

    def errors(self) -> list[tuple[int, Reason]]:
        """(position in the plan, reason) of each row that failed, in the order of the plan."""
        errors = []
        for task, reason in self._job.errors():
            errors.append((int(self._rows[task]), reason))
        return errors


class ConvertingJob(Job):
    """Rows of an unpacked source, some of which the engine cannot decode as they are.

    Rows that are known as such are converted in Python threads from the start. So are rows that the
    engine's threads refuse; their samples are then known for later epochs.
    """

    def __init__(
        self,
        submit: Callable[[Tasks, Sequence[Slot]], _engine.Job],
        conversions: Conversions,
        samples: Int64s,
        tasks: Tasks,
        slots: Sequence[Slot],
        rows: NDArray[np.intp],
    ) -> None:
        # Looked up once, because another thread may add samples meanwhile.
        is_converted = conversions.needed[samples[rows]]
        decoded_rows = rows[~is_converted]
        super().__init__(submit(tasks[decoded_rows], slots), decoded_rows)
        self._conversions = conversions
        self._samples = samples
        self._tasks = tasks
        self._slots = slots
        self._conversion_by_row: dict[int, Future[Reason | None]] = {}
        # The rows that the engine refused and that are converted instead; None: not known yet.
        self._refused: set[int] | None = None
        self._convert(rows[is_converted])

    def _convert(self, rows: NDArray[np.intp], *, refused: bool = False) -> None:
        samples = self._samples[rows].tolist()
        futures = self._conversions.begin(
            samples, self._tasks[rows], self._slots, refused=refused
        )
        self._conversion_by_row.update(zip(rows.tolist(), futures, strict=True))

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        if not super().wait(timeout_s):
            return False
        # The engine has done its rows. Those that it refused are converted now.
        if self._refused is None:
            refused = [
                row for row, reason in super().errors() if reason.code in CONVERTIBLE
            ]
            self._refused = set(refused)
            self._convert(np.array(refused, dtype=np.intp), refused=True)
        seconds_left = max(0.0, deadline - time.monotonic())
        return not wait_for(self._conversion_by_row.values(), seconds_left).not_done

    @property
    def done(self) -> bool:
        """As of Job. A row that the engine refused counts as done until `wait` has it converted."""
        conversions = list(self._conversion_by_row.values())
        return super().done and all(future.done() for future in conversions)

    def cancel(self, patience_s: float = PATIENCE_S) -> None:
        super().cancel(patience_s)
        begun = [
            future for future in self._conversion_by_row.values() if not future.cancel()
        ]
        wait_for(begun, patience_s)

    def errors(self) -> list[tuple[int, Reason]]:
        refused = self._refused or set()
        failed: dict[int, Reason] = {}
        for row, engine_reason in super().errors():
            if row not in refused:
                failed[row] = engine_reason
        for row, future in self._conversion_by_row.items():
            reason = _CANCELLED if future.cancelled() else future.result()
            if reason is not None:
                failed[row] = reason

        # These could be converted: in later epochs they are from the start.
        converted_rows = sorted(refused - failed.keys())
        converted_samples = self._samples[converted_rows]
        self._conversions.needed[converted_samples] = True
        return sorted(failed.items())


class FetchedJob:
    """Rows whose bytes come over the network: a Job that starts when the bytes have arrived.

    Rows with wrong bytes are fetched again. `is_use`: samples whose rows are done count as used.
    """

    def __init__(
        self,
        reader: Reader,
        samples: Int64s,
        rows: NDArray[np.intp],
        start: StartRows,
        *,
        is_use: bool,
    ) -> None:
        self._reader = reader
        self._samples = samples
        self._is_use = is_use
        self._start: StartRows | None = start
        self._refetch_count = 0
        self._failed: dict[int, Reason] = {}
        # The job of the rows that are under way, once their bytes have arrived; None: all are done.
        self._job: Future[Job] | None = None
        self._ticket: Ticket | None = None  # what the reader brings for them
        self._request(rows)

    def _request(self, rows: NDArray[np.intp]) -> None:
        """Asks the reader for the bytes of rows, which start when all of the bytes are there."""
        assert self._start is not None
        self._job = Future()
        start = partial(self._start, rows)
        on_arrival = partial(_start_rows, self._job, start)
        samples = self._samples[rows]
        self._ticket = self._reader.ticket(samples, on_arrival)

    def wait(self, timeout_s: float) -> bool:
        """As of Job. DatasetError: some bytes cannot be fetched."""
        deadline = time.monotonic() + timeout_s
        while self._job is not None:
            if not self._job.done():
                started = time.monotonic()
                wait_for([self._job], max(deadline - started, 0.0))
                self._reader.waited(time.monotonic() - started)
                if not self._job.done():
                    return False
            job = self._job.result()
            if not job.wait(max(deadline - time.monotonic(), 0.0)):
                return False
            self._collect(job)
        return True

    @property
    def done(self) -> bool:
        job = self._job
        if job is None:
            return True
        if not job.done():  # the bytes are still being fetched
            return False
        has_failed = job.exception() is not None
        return has_failed or job.result().done

    def _collect(self, job: Job) -> None:
        """Keeps the errors of a job that is done; requests its rows with wrong bytes again."""
        # Only bytes that came over the network can be fetched again, and only if it is of use.
        errors = job.errors()
        mismatch = _engine.Code.hash_mismatch
        wrong = np.array(
            [row for row, why in errors if why.code == mismatch], dtype=np.intp
        )
        samples = self._samples[wrong]
        wrong = wrong[self._reader.brings(samples)]
        # These were fetched again before, in vain.
        is_known = self._reader.damaged(self._samples[wrong])
        refetched = wrong[~is_known]
        if self._refetch_count >= _MAX_REFETCHES:
            refetched = wrong[:0]

        for row, reason in errors:
            if row in refetched:
                continue
            if row in wrong:
                reason = Reason(
                    f"{reason}; its bytes were fetched again and are no better, so the file behind "
                    "the URL is damaged"
                )
            self._failed[row] = reason

        self._end_ticket(used=not len(refetched))
        if not len(refetched):
            self._job = None
            self._start = None  # it refers to the tasks and the slots
            return
        self._refetch_count += 1
        self._reader.again(self._samples[refetched])
        self._request(refetched)

    def _end_ticket(self, *, used: bool) -> None:
        """`used`: the bytes were read, so they need not be kept if no other job needs them."""
        ticket = self._ticket
        self._ticket = None
        if ticket is not None:
            self._reader.end(ticket, used=used and self._is_use)

    def cancel(self) -> None:
        """As of Job."""
        self._end_ticket(used=False)
        self._start = None
        job = self._job
        if job is not None and job.done() and job.exception() is None:
            job.result().cancel()

    def errors(self) -> list[tuple[int, Reason]]:
        """As of Job."""
        return sorted(self._failed.items())


# A function, which refers to no FetchedJob: otherwise the reader would keep the job, and with it
# the batch's memory, after the job was dropped.
def _start_rows(
    job: Future[Job], start: Callable[[Where], Job], where: Where | Exception
) -> None:
    """Starts rows whose bytes have arrived, in the reader's thread; errors go to who waits."""
    if isinstance(where, Exception):
        job.set_exception(where)
        return
    try:
        job.set_result(start(where))
    except Exception as problem:
        job.set_exception(problem)
