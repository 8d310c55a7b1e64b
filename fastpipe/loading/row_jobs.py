"""The pictures of a batch, and the masks and second pictures beside them -> one job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fastpipe.engine.engine import Job

if TYPE_CHECKING:
    from fastpipe.engine.fetched_job import FetchedJob


class RowJobs:
    """Jobs of the same samples. Like a Job.

    Args:
        jobs: of the rows of a plan.
        rows_per_sample: of the plan.
    """

    def __init__(self, jobs: list[Job | FetchedJob], rows_per_sample: int = 1) -> None:
        self._jobs = jobs
        self._rows_per_sample = rows_per_sample

    def wait(self, timeout_s: float) -> bool:
        """True when every row of all is done; False after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        return all(job.wait(max(deadline - time.monotonic(), 0.0)) for job in self._jobs)

    @property
    def done(self) -> bool:
        """Whether every row of all is done. Any thread may ask: it changes nothing."""
        return all(job.done for job in self._jobs)

    def cancel(self) -> None:
        """Takes back what has not begun, and waits for what has; see Job."""
        for job in self._jobs:
            job.cancel()

    def errors(self) -> list[tuple[int, str]]:
        """(position in the plan, reason) of each sample of which something failed, in the order of the plan."""
        found: dict[int, str] = {}
        for job in self._jobs:
            for row, reason in job.errors():
                found.setdefault(row // self._rows_per_sample, reason)
        return sorted(found.items())
