"""A worker that is gone -> a finding that says what ended it."""

from __future__ import annotations

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.observation import Observation
from fastpipe.machine import oom_kills


def killed(seen: Observation, text: str, kills_before: int | None) -> Finding:
    """`text` is the error; `kills_before` the kernel's count of processes killed for memory, before the loader ran."""
    now = oom_kills()
    for_memory = kills_before is not None and now is not None and now > kills_before
    if for_memory:
        why = "the kernel ended it for want of memory"
        change = "fewer num_workers, prefetch_factor=1, arrays in place of lists: see the findings on memory"
    elif "Bus error" in text:
        why = "/dev/shm is full: workers hand batches over in files there"
        change = "docker run --shm-size=8g (or --ipc=host)"
    else:
        why = "the kernel has killed nothing for want of memory meanwhile: a library of the dataset ended the process"
        change = "run it with num_workers=0 to see the error itself"
    section = 15 if "Bus error" not in text else 3
    return Finding("worker-killed", Severity.BAD, text.splitlines()[0][:500], why, change, seen.made_at, section)
