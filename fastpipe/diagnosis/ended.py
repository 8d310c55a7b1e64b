"""An error that ended a loader, or the program -> a finding that explains it, if no sample explains it."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

from fastpipe.diagnosis.code import assigned_at
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import Ending
from fastpipe.diagnosis.observation import Observation, kills
from fastpipe.diagnosis.stacks import dumped, frames_in, own_frame
from fastpipe.diagnosis.stuck import at_work

# Note [the words of others]: errors of torch, Python and the C library have no codes. All of their words that a
# diagnosis looks for in an error's text stand here.
_SIGNS = {  # of what the machine or an option lacks, whatever was read
    Code.SMALL_SHARED_MEMORY: ("shared memory", "Bus error", "/torch_"),  # torch, the C library, torch's files
    Code.OPEN_FILES: ("ancdata", "Too many open files", "Errno 24"),  # Python's sockets, the C library, Python
    Code.OUT_OF_MEMORY: ("can't allocate memory", "MemoryError", "Cannot allocate memory", "Errno 12"),  # torch first
    Code.DISK_FULL: ("No space left on device", "Errno 28"),  # the C library, Python
    Code.NOT_PICKLABLE: ("pickle", "local object"),  # Python
}
# torch, then Python
_GONE = ("killed by signal", "exited unexpectedly", "ConnectionResetError", "EOFError", "BrokenPipeError")
_WORKERS_TRACE = "Original Traceback (most recent call last):"  # torch, before a worker's own
_PID = re.compile(r"\(pid(?:\(s\))? (\d+)")  # torch
_EXIT_CODE = re.compile(r"exit code (\d+)")  # torch
_ENDED_BY = {"SIGKILL": "outside", "SIGALRM": "alarm", "SIGVTALRM": "alarm", "SIGPROF": "alarm"}
UNEQUAL = "equal size"  # torch, of samples that do not make a batch


def cause_of(text: str) -> Code | None:
    """What an error's text is a sign of, if not of a bad sample."""
    return next((code for code, signs in _SIGNS.items() if any(sign in text for sign in signs)), None)


def is_gone(ending: Ending) -> bool:
    """Whether a worker that is no more was the reason."""
    return bool(ending.exits) or any(word in ending.text for word in _GONE)


def ended(seen: Observation, ending: Ending, kills_before: int | None, folder: Path | None = None) -> list[Finding]:
    """What ended a loader in an error, if no sample did; `kills_before` is `kills()` before the loader ran."""
    if any(worker.failures for worker in seen.workers):
        return []  # checks/samples.py tells it
    head, _, trace = ending.text.partition(_WORKERS_TRACE)
    text = next((line for line in reversed(trace.splitlines()) if line and not line.startswith(" ")), head)
    users = own_frame(reversed(frames_in(trace)))
    where = users.place if users else ending.place or seen.made_at
    if ending.timed_out:
        line = text.splitlines()[0].removeprefix("RuntimeError: ")[:200]
        late = {"timed_out": line, "samples": _at_samples(seen, folder)}
        return [Finding(Code.STUCK, str(seen.facts["dataset_place"]), late, "timeout", Severity.STUCK)]
    if is_gone(ending):
        return [_killed(seen, ending, kills_before, folder)]
    code, evidence = cause_of(text) or Code.ERROR, {"ended": text[:500]}
    if code is Code.NOT_PICKLABLE and seen.facts["unpicklable"]:
        found = seen.facts["unpicklable"][:3]
        refused = ", ".join(f"{each['path']} ({each['kind']})" for each in found)
        where, evidence = found[0]["place"], {"refused": refused, "reason": text[:500]}
    elif code is Code.NOT_PICKLABLE and ending.refused:
        first = ending.refused[0]
        where = assigned_at(first["path"], first["place"]) or where
        evidence = {"refused": first["path"], "reason": first["kind"]}
    return [Finding(code, where, evidence)]


def _at_samples(seen: Observation, folder: Path | None, pid: int | None = None) -> str | None:
    """The samples at which workers, or one of them, are, or were when they ended."""
    busy = at_work(seen, folder) if folder is not None else []
    found = {sample for worker, stage, sample, _ in busy if stage == "dataset" and pid in (worker.pid, None)}
    return ", ".join(sorted(found)) or None


def _killed(seen: Observation, ending: Ending, kills_before: int | None, folder: Path | None) -> Finding:
    pid, how = _dead(ending)
    number = next((worker.number for worker in seen.workers if worker.pid == pid), None)
    process = f"worker {number} (pid {pid})" if number is not None else f"a worker (pid {pid})" if pid else "a worker"
    now = kills()
    evidence: dict[str, Any] = {"process": process, **how, "kills": now}
    evidence["at_sample"] = _at_samples(seen, folder, pid)
    where = dumped(pid, folder) if folder is not None else ""
    if how.get("signal") == "SIGBUS":
        return Finding(Code.SMALL_SHARED_MEMORY, where or seen.made_at, evidence)
    if kills_before is not None and now is not None and now > kills_before:
        cause = "memory"
    else:
        cause = _ENDED_BY.get(how.get("signal", ""), "itself")
    return Finding(Code.WORKER_KILLED, where or str(seen.facts["dataset_place"]), evidence, cause)


def _dead(ending: Ending) -> tuple[int, dict[str, Any]]:
    """The process that ended, and how: signal, exit code, or the error that tells only that it did."""
    names = {each.value: each.name for each in signal.Signals}
    if ending.exits:
        _, pid, code = ending.exits[0]
        return pid, {"signal": names.get(-code, f"signal {-code}")} if code < 0 else {"exit_code": code}
    found = _PID.search(ending.text)
    pid = int(found[1]) if found else 0
    for number, name in names.items():
        if f"signal: {signal.strsignal(number)}" in ending.text:  # torch, with the C library's word
            return pid, {"signal": name}
    if told := _EXIT_CODE.search(ending.text):
        return pid, {"exit_code": int(told[1])}
    return pid, {"gone": ending.text.splitlines()[0][:300]}
