"""An error that ended a loader, or the program -> a finding that explains it, if no sample explains it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from fastpipe.diagnosis.causes import cause_of, caused
from fastpipe.diagnosis.code import assigned_at
from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import read_state
from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own
from fastpipe.diagnosis.observation import Ending, Observation
from fastpipe.diagnosis.stacks import dumped
from fastpipe.diagnosis.surroundings import kills

_GONE = ("killed by signal", "exited unexpectedly", "ConnectionResetError", "EOFError", "BrokenPipeError")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_CODE = re.compile(r"exit code (\d+)")
_PID = re.compile(r"\(pid(?:\(s\))? (\d+)")
_SIGNALS = {"Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS", "Aborted": "SIGABRT"}
_SIGNALS |= {"Terminated": "SIGTERM", "Floating point exception": "SIGFPE", "Illegal instruction": "SIGILL"}


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
        return []  # samples.failures tells it
    where, text = _inside(ending)
    where = where or ending.place or seen.made_at
    if "timed out after" in text:
        return [_timed_out(seen, text, folder)]
    if is_gone(ending):
        return [_killed(seen, ending, kills_before, folder)]
    cause = cause_of(text)
    if cause is None:
        what = f"the loader ended with {text[:500]}"
        return [Finding("error", Severity.BAD, what, "the loader does not run", "correct this line first", where)]
    if cause.name == "not-picklable" and seen.facts["unpicklable"]:
        first = seen.facts["unpicklable"][0]
        return [caused(cause, f"{first['path']} cannot be pickled: {text[:500]}", first["place"])]
    if cause.name == "not-picklable" and ending.refused:
        first = ending.refused[0]
        where = assigned_at(first["path"], first["place"]) or where
        return [caused(cause, f"{first['path']} cannot be pickled: {first['kind']}", where)]
    return [caused(cause, f"the loader ended with {text[:500]}", where)]


def _inside(ending: Ending) -> tuple[str, str]:
    """The user's line in a worker's traceback, which torch puts into the error's text; and the error without it."""
    head, found, trace = ending.text.partition("Original Traceback (most recent call last):")
    if not found:
        return "", ending.text
    lines = [(file, line) for file, line in _FRAME.findall(trace) if is_own(file)]
    last = next((line for line in reversed(trace.splitlines()) if line and not line.startswith(" ")), "")
    return (":".join(lines[-1]) if lines else ""), last or head


def _timed_out(seen: Observation, text: str, folder: Path | None) -> Finding:
    """The loader's own timeout: the samples at which its workers were."""
    paths = folder.glob(f"worker-{seen.key}-*.state") if folder is not None else ()
    states = [state for path in paths if (state := read_state(str(path))) is not None and state[1] == "dataset"]
    at = ", ".join(sorted({state[2] for state in states}))
    return Finding(
        "stuck",
        Severity.STUCK,
        f"{text.splitlines()[0].removeprefix('RuntimeError: ')[:200]}{f'; workers were at sample {at}' if at else ''}",
        "a sample took longer than the timeout of the DataLoader",
        "look at what these samples wait for; a larger timeout= if they only are slow",
        str(seen.facts["dataset_place"]),
        13,
    )


def _killed(seen: Observation, ending: Ending, kills_before: int | None, folder: Path | None) -> Finding:
    pid, how, code = _dead(ending)
    number = next((worker.number for worker in seen.workers if worker.pid == pid), None)
    who = f"worker {number} (pid {pid})" if number is not None else f"a worker (pid {pid})" if pid else "a worker"
    what, where = f"{who} {how}", ""
    if folder is not None and number is not None:
        states = [read_state(str(path)) for path in folder.glob(f"worker-*-{number}-{pid}.state")]
        what += "".join(f", at sample {state[2]}" for state in states if state is not None and state[1] == "dataset")
        where = dumped(pid, folder)
    now = kills()
    section = 15
    if "SIGBUS" in how:
        cause = cause_of("Bus error")
        assert cause is not None
        return caused(cause, what, where or seen.made_at)
    if kills_before is not None and now is not None and now > kills_before:
        why = "the kernel's OOM killer ended it: there was too little memory"
        change = "fewer num_workers, prefetch_factor=1, smaller batches, arrays instead of lists"
    elif "SIGKILL" in how:
        why = "SIGKILL comes from outside: most often from the kernel's OOM killer, where there is too little memory"
        why += (
            "; its count did not rise here, so a job manager, a container's limit or a person sent it"
            if now is not None
            else ""
        )
        change = "look at `dmesg -T | grep -i kill` and the job's memory limit; fewer num_workers, prefetch_factor=1"
    elif code > 0:
        why = "the program or a library called exit in the worker"
        change = "look for sys.exit and os._exit in the dataset; run it with num_workers=0 to see more"
    else:
        why = "a library in the worker did something that the machine refused, often after a fork"
        change = (
            "run it with num_workers=0 to see the original error; update or replace the library that this line calls"
        )
    return Finding("worker-killed", Severity.BAD, what, why, change, where or str(seen.facts["dataset_place"]), section)


def _dead(ending: Ending) -> tuple[int, str, int]:
    """The process that ended, how, and its exit code."""
    if ending.exits:
        _, pid, code = ending.exits[0]
        if code < 0:
            return pid, f"was ended by {_name(-code)}", code
        return pid, f"ended with exit code {code}", code
    found = _PID.search(ending.text)
    pid = int(found[1]) if found else 0
    for word, name in _SIGNALS.items():
        if f"signal: {word}" in ending.text:
            return pid, f"was ended by {name}", -1
    if exit_code := _CODE.search(ending.text):
        return pid, f"ended with exit code {exit_code[1]}", int(exit_code[1])
    return pid, f"is gone: {ending.text.splitlines()[0][:300]}", 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
