"""An error that ended a loader -> a finding that explains it, if no sample explains it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation
from fastpipe.machine.state import oom_kills

_GONE = ("killed by signal", "exited unexpectedly", "ConnectionResetError", "EOFError", "BrokenPipeError")


def ended(seen: Observation, text: str, kills_before: int | None, workers: Sequence[Any] = ()) -> list[Finding]:
    """What ended it.

    Args:
        seen: the loader.
        text: the error's type and message.
        kills_before: the kernel's count of processes killed for memory, before the loader ran.
        workers: its processes, as multiprocessing has them, where this program started them.
    """
    if any(worker.failures for worker in seen.workers):
        return []  # samples.failures tells it
    dead = [(number, worker) for number, worker in enumerate(workers) if worker.exitcode not in (None, 0)]
    if dead or any(word in text for word in _GONE):
        return [_killed(seen, _who(dead) or text.splitlines()[0][:500], text, kills_before)]
    pickling = "pickle" in text or "local object" in text
    return [
        Finding(
            "error",
            Severity.BAD,
            f"the loader ended with {text[:1000]}",
            "workers get the dataset by pickle" if pickling else "speed is not the problem: the loader does not run",
            "see the finding on lambdas; or replace the object that cannot be pickled"
            if pickling
            else "fix this first",
            seen.made_at,
            10 if pickling else 4 if "open files" in text else 0,
        )
    ]


def _who(dead: list[tuple[int, Any]]) -> str:
    if not dead:
        return ""
    number, worker = dead[0]
    code = worker.exitcode
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"worker {number} (pid {worker.pid}) ended {how}"


def _killed(seen: Observation, what: str, text: str, kills_before: int | None) -> Finding:
    now, section = oom_kills(), 15
    if kills_before is not None and now is not None and now > kills_before:
        why = "the kernel ended it because there was too little memory"
        change = "fewer num_workers, prefetch_factor=1, arrays instead of lists: see the findings on memory"
    elif "Bus error" in text or "SIGBUS" in what:
        why, section = "/dev/shm is full: workers pass batches in files there", 3
        change = "docker run --shm-size=8g (or --ipc=host)"
    else:
        why = "the kernel ended no process because of too little memory: a library or a person ended this one"
        change = "run it with num_workers=0 to see the original error"
    return Finding("worker-killed", Severity.BAD, what, why, change, seen.made_at, section)
