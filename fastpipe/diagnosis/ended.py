"""An error that ended a loader or the program -> a finding that explains it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from fastpipe.diagnosis.advice import LESS_MEMORY
from fastpipe.diagnosis.error_causes import (
    NOT_PICKLABLE,
    SMALL_SHARED_MEMORY,
    ErrorCause,
    find_error_cause,
)
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.records import Ending
from fastpipe.diagnosis.observation import Observation, count_oom_kills
from fastpipe.diagnosis.source.places import find_assignment
from fastpipe.diagnosis.stacks import find_fatal_line, find_user_frame, parse_frames
from fastpipe.diagnosis.stuck import list_busy_workers

# *Note [the words of others]* in error_causes.py. The first two are torch's, the others are
# Python's.
_GONE = (
    "killed by signal",
    "exited unexpectedly",
    "ConnectionResetError",
    "EOFError",
    "BrokenPipeError",
)
# Torch writes it before a worker's own.
_WORKERS_TRACEBACK = "Original Traceback (most recent call last):"
_PID = re.compile(r"\(pid(?:\(s\))? (\d+)")  # torch
_EXIT_CODE = re.compile(r"exit code (\d+)")  # torch
_ALARMS = ("SIGALRM", "SIGVTALRM", "SIGPROF")
_MAX_LETTERS = 500


def is_worker_gone(ending: Ending) -> bool:
    """Whether an error was raised because a worker is gone."""
    if ending.exits:
        return True
    return any(word in ending.text for word in _GONE)


def explain_ending(
    observation: Observation,
    ending: Ending,
    kills_before: int | None,
    folder: Path | None = None,
) -> list[Finding]:
    """Explains the error that ended a loader.

    Returns nothing if a sample raised the error: checks/errors.py explains that.

    Args:
        observation: what was seen of the loader.
        ending: the error.
        kills_before: `count_oom_kills()` before the loader ran.
        folder: the folder of the probe's files.
    """
    if any(worker.failures for worker in observation.workers):
        return []
    if ending.is_timeout:
        return [_report_timed_out(observation, ending, folder)]
    if is_worker_gone(ending):
        return [_report_worker_gone(observation, ending, kills_before, folder)]

    text, traceback = _split_traceback(ending.text)
    # A traceback has the innermost frame at its end.
    innermost_first = reversed(parse_frames(traceback))
    frame = find_user_frame(innermost_first)
    where = ending.place or observation.made_at
    if frame is not None:
        where = frame.place
    cause = find_error_cause(text)
    if cause is NOT_PICKLABLE:
        return [_report_not_picklable(observation, ending, text, where)]
    symptom = f"the loader ended with {text[:_MAX_LETTERS]}"
    return [(cause or _ERROR).make_finding(symptom, where)]


_ERROR = ErrorCause(
    Code.ERROR,
    signs=(),
    why="the loader does not run",
    change="correct this line first",
    section=0,
)


def _split_traceback(text: str) -> tuple[str, str]:
    """Splits a worker's error into the error and the worker's traceback ("" if it has none)."""
    head, _, traceback = text.partition(_WORKERS_TRACEBACK)
    for line in reversed(traceback.splitlines()):
        if line and not line.startswith(" "):
            return line, traceback
    return head, traceback


def _report_timed_out(
    observation: Observation, ending: Ending, folder: Path | None
) -> Finding:
    """The DataLoader's own `timeout` ran out."""
    text, _ = _split_traceback(ending.text)
    headline = text.splitlines()[0].removeprefix("RuntimeError: ")[:200]
    symptom = headline
    samples = _describe_samples(observation, folder)
    if samples:
        symptom += f"; workers were at sample {samples}"
    return Finding(
        Code.STUCK,
        str(observation.facts["dataset_place"]),
        what=symptom,
        why="a sample took longer than the timeout of the DataLoader",
        change="look at what these samples wait for; a larger timeout= if they only are slow",
        section=13,
        severity=Severity.STUCK,
        headline=headline,
    )


def _describe_samples(
    observation: Observation, folder: Path | None, pid: int | None = None
) -> str:
    """Lists the samples that all workers, or one of them, are reading, or were when they ended."""
    if folder is None:
        return ""
    samples = set()
    for busy in list_busy_workers(observation, folder):
        if busy.stage == "dataset" and pid in (busy.worker.pid, None):
            samples.add(busy.sample)
    return ", ".join(sorted(samples))


def _report_not_picklable(
    observation: Observation, ending: Ending, text: str, where: str
) -> Finding:
    """Names the functions, classes or attributes that cannot be pickled, if they are known."""
    unpicklable = observation.facts["unpicklable"]
    reason = text[:_MAX_LETTERS]
    if unpicklable:
        paths = ", ".join(
            f"{part['path']} ({part['kind']})" for part in unpicklable[:3]
        )
        symptom = f"{paths} cannot be pickled: {reason}"
        return NOT_PICKLABLE.make_finding(symptom, unpicklable[0]["place"])
    if ending.unpicklable:
        first = ending.unpicklable[0]
        symptom = f"{first['path']} cannot be pickled: {first['kind']}"
        place = find_assignment(first["path"], first["place"])
        return NOT_PICKLABLE.make_finding(symptom, place or where)
    return NOT_PICKLABLE.make_finding(f"the loader ended with {reason}", where)


@dataclass(frozen=True)
class _Death:
    """The end of a worker process."""

    pid: int  # 0: not known
    description: str  # such as "was ended by SIGKILL"
    signal: str = ""  # its name, if a signal ended the process


def _report_worker_gone(
    observation: Observation,
    ending: Ending,
    kills_before: int | None,
    folder: Path | None,
) -> Finding:
    death = _parse_death(ending)
    symptom = f"{_name_worker(observation, death.pid)} {death.description}"
    samples = _describe_samples(observation, folder, death.pid)
    if samples:
        symptom += f", at sample {samples}"
    # A signal such as SIGSEGV leaves the stack in the file of the process.
    where = ""
    if folder is not None:
        where = find_fatal_line(death.pid, folder)
    # The kernel sends SIGBUS for a page of /dev/shm that it cannot provide.
    if death.signal == "SIGBUS":
        return SMALL_SHARED_MEMORY.make_finding(symptom, where or observation.made_at)
    why, change = _explain_death(death, kills_before)
    return Finding(
        Code.WORKER_KILLED,
        where or str(observation.facts["dataset_place"]),
        what=symptom,
        why=why,
        change=change,
        section=15,
    )


def _name_worker(observation: Observation, pid: int) -> str:
    for worker in observation.workers:
        if worker.pid == pid:
            return f"worker {worker.number} (pid {pid})"
    if pid:
        return f"a worker (pid {pid})"
    return "a worker"


def _parse_death(ending: Ending) -> _Death:
    """Finds the process that ended, and how, by its exit code or by torch's message."""
    signals = {number.value: number.name for number in signal.Signals}
    if ending.exits:
        _, pid, exit_code = ending.exits[0]
        if exit_code < 0:
            name = signals.get(-exit_code, f"signal {-exit_code}")
            return _Death(pid, f"was ended by {name}", name)
        return _Death(pid, f"ended with exit code {exit_code}")
    pid_match = _PID.search(ending.text)
    pid = int(pid_match[1]) if pid_match else 0
    for value, name in signals.items():
        # torch's words, with the C library's for the signal
        description = signal.strsignal(value)
        if f"signal: {description}" in ending.text:
            return _Death(pid, f"was ended by {name}", name)
    code_match = _EXIT_CODE.search(ending.text)
    if code_match:
        return _Death(pid, f"ended with exit code {int(code_match[1])}")
    first_line = ending.text.splitlines()[0]
    return _Death(pid, f"is gone: {first_line[:300]}")


def _explain_death(death: _Death, kills_before: int | None) -> tuple[str, str]:
    """Returns why a worker was ended, and what to change."""
    kills = count_oom_kills()
    if kills_before is not None and kills is not None and kills > kills_before:
        return (
            "the kernel's OOM killer ended it: there was too little memory",
            LESS_MEMORY,
        )
    if death.signal == "SIGKILL":
        why = (
            "SIGKILL comes from outside: most often from the kernel's OOM killer, "
            "where there is too little memory"
        )
        if kills is not None:
            why += (
                f"; its count did not rise here (it is {kills}), "
                "so a job manager, a container's limit or a person sent it"
            )
        change = f"look at `dmesg -T | grep -i kill` and the job's memory limit; {LESS_MEMORY}"
        return why, change
    if death.signal in _ALARMS:
        return (
            "an alarm of the program (signal.alarm, signal.setitimer) ran out "
            "where no handler was set",
            "signal.alarm(0) in a finally: after the work it was set for; "
            "or pass a timeout to the call instead",
        )
    return (
        "the program or a library called exit, or did something that the machine refused, "
        "often after a fork",
        "run it with num_workers=0 to see the error; look for sys.exit and os._exit; "
        "update the library of this line",
    )
