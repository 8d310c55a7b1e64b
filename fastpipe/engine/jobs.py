"""Rows that the engine's threads do, that are converted, or that are fetched first -> a job to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastpipe.engine.limits import CONVERTIBLE, PATIENCE_S
from fastpipe.engine.tasks import Slot, Tasks
from fastpipe.native import _engine
from fastpipe.plan.draws import Bools, Int64s

if TYPE_CHECKING:  # most programs read packed folders
    from fastpipe.engine.conversions import Conversions
    from fastpipe.store.remote.reader import Reader
    from fastpipe.store.remote.wants import Ticket, Where

    Begin = Callable[[NDArray[np.intp], Where], "Job"]  # begins rows of a plan that are there

_ATTEMPTS = 2  # for bytes that were right when they came and are wrong when they are read
Reason = _engine.Reason  # why a row failed: the words, and `code`, a member of _engine.Code
_CANCELLED = Reason("cancelled")


class Job:
    """Rows of a plan, (n,), in the works. Dropping it cancels what has not begun; its slot is not let go of before."""

    def __init__(self, job: _engine.Job, rows: NDArray[np.intp]) -> None:
        self._job, self._rows = job, rows

    def wait(self, timeout_s: float) -> bool:
        """True when every row is done; False after `timeout_s` seconds. Ctrl-C is acted on within 0.1 s."""
        return self._job.wait(timeout_s)

    @property
    def done(self) -> bool:
        """Whether every row is done. Any thread may ask: it changes nothing."""
        return self._job.wait(0)

    def cancel(self, patience_s: float = PATIENCE_S) -> None:
        """Takes back the rows that have not begun, and waits for the few that have, 10 s at most."""
        self._job.cancel(patience_s)

    def errors(self) -> list[tuple[int, Reason]]:
        """(position in the plan, reason) of each row that failed, in the order of the plan."""
        return [(int(self._rows[task]), reason) for task, reason in self._job.errors()]


class MixedJob(Job):
    """Rows of which `odd` ones are converted, and those that the engine's threads refuse, which become odd."""

    def __init__(
        self,
        submit: Callable[[Tasks, Sequence[Slot]], _engine.Job],
        conversions: Conversions,
        odd: Bools,
        samples: Int64s,
        tasks: Tasks,
        slots: Sequence[Slot],
        rows: NDArray[np.intp],
    ) -> None:
        converted = odd[samples[rows]]  # once: another thread may add to `odd`
        others = rows[~converted]
        super().__init__(submit(tasks[others], slots), others)
        self._conversions, self._odd = conversions, odd
        self._samples, self._tasks, self._slots = samples, tasks, slots
        self._converted: dict[int, Future[Reason | None]] = {}
        self._refused: dict[int, Reason] | None = None  # of the engine's rows, once they are done: those tried again
        self._convert(rows[converted], refused=False)

    def _convert(self, rows: NDArray[np.intp], *, refused: bool) -> None:
        begun = self._conversions.begin(self._samples[rows].tolist(), self._tasks[rows], self._slots, refused=refused)
        self._converted.update(zip(rows.tolist(), begun, strict=True))

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        if not super().wait(timeout_s):
            return False
        if self._refused is None:
            self._refused = {row: why for row, why in super().errors() if why.code in CONVERTIBLE}
            self._convert(np.array(list(self._refused), dtype=np.intp), refused=True)
        return not wait_for(self._converted.values(), max(0.0, deadline - time.monotonic())).not_done

    @property
    def done(self) -> bool:
        """As of Job; a row that the engine refused is done until `wait` has it converted."""
        return super().done and all(ended.done() for ended in list(self._converted.values()))

    def cancel(self, patience_s: float = PATIENCE_S) -> None:
        super().cancel(patience_s)
        wait_for([row for row in self._converted.values() if not row.cancel()], patience_s)

    def errors(self) -> list[tuple[int, Reason]]:
        refused = self._refused or {}
        failed = {row: why for row, why in super().errors() if row not in refused}
        for row, ended in self._converted.items():
            why = _CANCELLED if ended.cancelled() else ended.result()
            if why is not None:
                failed[row] = why
        self._odd[self._samples[[row for row in refused if row not in failed]]] = True
        return sorted(failed.items())


class FetchedJob:
    """A Job that begins when its bytes are here; wrong ones are fetched again. `last`: nothing else reads them."""

    def __init__(self, reader: Reader, samples: Int64s, rows: NDArray[np.intp], begin: Begin, *, last: bool) -> None:
        self._reader, self._samples, self._last = reader, samples, last
        self._begin: Begin | None = begin
        self._attempts, self._found = 0, dict[int, Reason]()
        self._ask(rows)

    def _ask(self, rows: NDArray[np.intp]) -> None:
        assert self._begin is not None
        self._begun: Future[Job] | None = Future()  # None: all is done
        go = partial(_go, self._begun, partial(self._begin, rows))
        self._ticket: Ticket | None = self._reader.ticket(self._samples[rows], go)

    def wait(self, timeout_s: float) -> bool:
        """As of Job. DatasetError: a range does not come."""
        deadline = time.monotonic() + timeout_s
        while self._begun is not None:
            if not self._begun.done():
                started = time.monotonic()
                wait_for([self._begun], max(deadline - started, 0.0))
                self._reader.waited(time.monotonic() - started)
                if not self._begun.done():
                    return False
            job = self._begun.result()
            if not job.wait(max(deadline - time.monotonic(), 0.0)):
                return False
            self._judge(job)
        return True

    @property
    def done(self) -> bool:
        begun = self._begun
        return begun is None or (begun.done() and (begun.exception() is not None or begun.result().done))

    def _judge(self, job: Job) -> None:
        """Takes the errors of rows; those with wrong bytes begin again."""
        errors = job.errors()
        mismatch = _engine.Code.hash_mismatch
        wrong = np.array([row for row, why in errors if why.code == mismatch], dtype=np.intp)
        wrong = wrong[self._reader.brings(self._samples[wrong])]
        known = self._reader.damaged(self._samples[wrong])
        again = wrong[~known] if self._attempts < _ATTEMPTS else wrong[:0]
        for row, why in errors:
            if row in wrong[known] or (row in wrong and not len(again)):
                why = Reason(
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
            self._begun, self._begin = None, None

    def _give_back(self, *, used: bool) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._reader.end(ticket, used=used and self._last)

    def cancel(self) -> None:
        self._give_back(used=False)
        self._begin, begun = None, self._begun
        if begun is not None and begun.done() and begun.exception() is None:
            begun.result().cancel()

    def errors(self) -> list[tuple[int, Reason]]:
        return sorted(self._found.items())


def _go(begun: Future[Job], begin: Callable[[Where], Job], where: Where | Exception) -> None:
    """Begins rows that are here. It knows nothing of the FetchedJob, so that dropping that frees the batch's memory."""
    if isinstance(where, Exception):
        begun.set_exception(where)
        return
    try:
        begun.set_result(begin(where))
    except Exception as problem:  # told to whoever waits
        begun.set_exception(problem)
