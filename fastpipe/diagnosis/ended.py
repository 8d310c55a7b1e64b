"""An error that ended a loader, or the program -> a finding that explains it, if no sample explains it."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

from fastpipe.diagnosis.code import assigned_at
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import Ending, read_state
from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own
from fastpipe.diagnosis.observation import Observation, kills
from fastpipe.diagnosis.stacks import dumped

# Words of Python, torch and the C library in an error -> what the machine or an option lacks, whatever was read.
_SIGNS = {
    Code.SMALL_SHARED_MEMORY: ("shared memory", "Bus error", "/torch_"),
    Code.OPEN_FILES: ("ancdata", "Too many open files", "Errno 24"),
    Code.OUT_OF_MEMORY: ("can't allocate memory", "MemoryError", "Cannot allocate memory", "Errno 12"),
    Code.DISK_FULL: ("No space left on device", "Errno 28"),
    Code.NOT_PICKLABLE: ("pickle", "local object"),
}
_GONE = ("killed by signal", "exited unexpectedly", "ConnectionResetError", "EOFError", "BrokenPipeError")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CODE = re.compile(r"exit code (\d+)")
_PID = re.compile(r"\(pid(?:\(s\))? (\d+)")
_SIGNALS = {"Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS", "Aborted": "SIGABRT"}
_SIGNALS |= {"Terminated": "SIGTERM", "Floating point exception": "SIGFPE", "Illegal instruction": "SIGILL"}


def cause_of(text: str) -> Code | None:
    """What an error's text is a sign of, if not of a bad sample."""
    return next((code for code, signs in _SIGNS.items() if any(sign in text for sign in signs)), None)


def is_gone(ending: Ending) -> bool:
    """Whether a worker that is no more was the reason."""
    return bool(ending.exits) or any(word in ending.text for word in _GONE)


def ended(seen: Observation, ending: Ending, kills_before: int | None, folder: Path | None = None) -> list[Finding]:
    """What ended it.

    Args:
        seen: the loader.
        ending: the error.
        kills_before: `kills()` before the loader ran.
        folder: of the files that its processes wrote.
    """
    if any(worker.failures for worker in seen.workers):
        return []  # checks/samples.py tells it
    where, text = _inside(ending)
    where = where or ending.place or seen.made_at
    if ending.timed_out:
        states = _at_samples(folder, f"worker-{seen.key}-*.state")
        line = text.splitlines()[0].removeprefix("RuntimeError: ")[:200]
        late = {"timed_out": line, "samples": ", ".join(sorted(set(states))) or None}
        return [Finding(Code.STUCK, str(seen.facts["dataset_place"]), late, "timeout", Severity.STUCK)]
    if is_gone(ending):
        return [_killed(seen, ending, kills_before, folder)]
    code = cause_of(text) or Code.ERROR
    evidence = {"ended": text[:500]}
    if code is Code.NOT_PICKLABLE and (found := seen.facts["unpicklable"] or ending.refused):
        first = found[0]
        if seen.facts["unpicklable"]:
            where, reason = first["place"], text[:500]
        else:
            where, reason = assigned_at(first["path"], first["place"]) or where, first["kind"]
        evidence = {"refused": first["path"], "reason": reason}
    return [Finding(code, where, evidence)]


def _inside(ending: Ending) -> tuple[str, str]:
    """The user's line in a worker's traceback, which torch puts into the error's text; and the error without it."""
    head, found, trace = ending.text.partition("Original Traceback (most recent call last):")
    if not found:
        return "", ending.text
    lines = [(file, line) for file, line in _FRAME.findall(trace) if is_own(file)]
    last = next((line for line in reversed(trace.splitlines()) if line and not line.startswith(" ")), "")
    return (":".join(lines[-1]) if lines else ""), last or head


def _at_samples(folder: Path | None, names: str) -> list[str]:
    """The samples at which workers are, or were when they ended."""
    states = [read_state(str(path)) for path in folder.glob(names)] if folder is not None else []
    return [state[2] for state in states if state is not None and state[1] == "dataset"]


def _killed(seen: Observation, ending: Ending, kills_before: int | None, folder: Path | None) -> Finding:
    pid, how = _dead(ending)
    number = next((worker.number for worker in seen.workers if worker.pid == pid), None)
    process = f"worker {number} (pid {pid})" if number is not None else f"a worker (pid {pid})" if pid else "a worker"
    evidence, where = {"process": process, **how}, ""
    if folder is not None and number is not None:
        evidence["at_sample"] = ", ".join(_at_samples(folder, f"worker-*-{number}-{pid}.state")) or None
        where = dumped(pid, folder)
    if how.get("signal") == "SIGBUS":
        return Finding(Code.SMALL_SHARED_MEMORY, where or seen.made_at, evidence)
    evidence["kills"] = now = kills()
    if kills_before is not None and now is not None and now > kills_before:
        cause = "memory"
    elif how.get("signal") == "SIGKILL":
        cause = "outside"
    else:
        cause = "exit" if how.get("exit_code") else "library"
    return Finding(Code.WORKER_KILLED, where or str(seen.facts["dataset_place"]), evidence, cause)


def _dead(ending: Ending) -> tuple[int, dict[str, Any]]:
    """The process that ended, and how: signal, exit code, or the error that tells only that it did."""
    if ending.exits:
        _, pid, code = ending.exits[0]
        return pid, {"signal": _name(-code)} if code < 0 else {"exit_code": code}
    found = _PID.search(ending.text)
    pid = int(found[1]) if found else 0
    for word, name in _SIGNALS.items():
        if f"signal: {word}" in ending.text:
            return pid, {"signal": name}
    if exit_code := _CODE.search(ending.text):
        return pid, {"exit_code": int(exit_code[1])}
    return pid, {"gone": ending.text.splitlines()[0][:300]}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
