"""A loader that hangs -> whether its diagnosis tells where, and leaves nothing behind."""

from __future__ import annotations

import os
import time

from support.workers.diagnosed import FAULTS, Stuck, diagnosed, finding, line_of

from fastpipe.diagnosis.processes import list_children, read_command_line, read_parent
from fastpipe.diagnosis.stacks import catches_dumps


def check_the_stack(method: str, how: str, patience_s: float) -> None:
    """Diagnoses a loader of one worker that hangs: where, and what is left of it afterwards."""
    before = set(list_children(os.getpid()))
    diagnosis = diagnosed(
        Stuck(how), num_workers=1, multiprocessing_context=method, stall_timeout=patience_s
    )
    found = finding(diagnosis, "stuck")
    assert diagnosis.findings[0] is found
    assert "is at sample 20, in never" in found.what
    line = line_of("return time.sleep(3600)" if how == "sleep" else "return re.match")
    assert found.where == f"{FAULTS}:{line}"
    (stack,) = [stack for stack in diagnosis.stacks if stack.role == "worker 0"]
    assert f'File "{FAULTS}", line {line} in never' in stack.text
    assert any("in __getitem__" in line for line in stack.lines)
    assert stack.status[0] == ("S" if how == "sleep" else "R")
    text = str(diagnosis)
    assert f"{FAULTS}:{line} in never" in text
    assert "stuck: no batch for" in text
    given_up = time.monotonic() + 300
    while (left := _workers(before)) and time.monotonic() < given_up:
        time.sleep(0.05)
    assert not left, "the worker is ended"
    assert not catches_dumps(os.getpid()), "the signal means again what it did"


def _workers(before: set[int]) -> list[int]:
    """Processes that came since, but for those of multiprocessing that stay."""
    return [
        pid
        for pid in set(list_children(os.getpid())) - before
        if b"resource_tracker" not in read_command_line(pid)
        and not (b"forkserver" in read_command_line(pid) and read_parent(pid) == os.getpid())
    ]
