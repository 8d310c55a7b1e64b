"""A training command -> the command run as it is, and a Diagnosis of each of its DataLoaders.

The command's Python programs get the folder `inject` on their PYTHONPATH; nothing else of it
changes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TextIO

from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.findings import Finding
from fastpipe.diagnosis.inject.fastpipe_probe.files import Activity, read_state
from fastpipe.diagnosis.inject.fastpipe_probe.patch import FOLDER, STOPPING
from fastpipe.diagnosis.loader_diagnoses import (
    Stall,
    choose_worst,
    diagnose_loaders,
    report_option_error,
    report_program_error,
)
from fastpipe.diagnosis.observation import (
    Observation,
    Surroundings,
    measure_surroundings,
    read_observations,
    read_programs,
)
from fastpipe.diagnosis.processes import list_children, read_start_ticks
from fastpipe.diagnosis.report import Diagnosis
from fastpipe.errors import ConfigError
from fastpipe.machine.binding import unbound

_INJECT = Path(__file__).parent / "inject"
_LOOK_S = 0.25
# After each signal.
_PATIENCE_S = 5.0
# A program may import and set up for that many times `seconds` before its first batch.
_TIMES_UNTIL_FIRST = 10
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*=")


@dataclass(frozen=True)
class Watched:
    """How a command was watched."""

    # The diagnoses of the DataLoaders that gave most batches; those that are stuck come first.
    diagnoses: tuple[Diagnosis, ...]
    ended: str  # why the watching ended
    # About programs and no DataLoader: options that torch did not accept, and errors that ended
    # the program.
    program_findings: tuple[Finding, ...]
    python: bool  # whether a Python program of the command could be watched at all
    trouble: str  # errors of the watching itself; "" without any


@dataclass(frozen=True)
class _End:
    """The end of the watching."""

    why: str
    stuck_key: str | None = None  # of the loader that is stuck


@dataclass(frozen=True)
class _Limits:
    """How long a command is watched."""

    batches: int  # of one loader
    seconds: float  # from the first batch that is asked for
    stall_timeout: float


def watch_command(
    command: str,
    *,
    batches: int,
    seconds: float,
    stall_timeout: float,
    output: TextIO | int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Watched:
    """Runs a command until a DataLoader has given enough batches or is stuck, then ends it.

    Args:
        command: the command line.
        batches: ends the command after this number of batches of a loader.
        seconds: ends it after this time, counted from the first batch that is asked for. Before
            that batch, ten times `seconds` are allowed.
        stall_timeout: a loader is stuck after this number of seconds without a batch.
        output: a file or its number, for standard output; None: this program's.
        say: called with the reason when the command is ended.

    Raises:
        ConfigError: the command cannot be run.
    """
    prefix = "fastpipe-diagnose-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        surroundings = measure_surroundings()
        process = _start(command, folder, output)
        try:
            end = _wait(process, folder, _Limits(batches, seconds, stall_timeout))
            # Read now: the end of the command interrupts whoever waits for a batch, and that adds
            # errors.
            observations = read_observations(folder)
            stall = _find_stall(observations, folder, end.stuck_key)
            (folder / STOPPING).touch()
            if process.poll() is None:
                say(end.why)
        finally:
            end_command(process)
        return _evaluate(observations, stall, surroundings, folder, end.why)


def _start(command: str, folder: Path, output: TextIO | int | None) -> Popen[bytes]:
    """Starts the command, with the probe on its PYTHONPATH."""
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise ConfigError(
            f"train-script: {command!r} is not a valid command: {problem}"
        ) from problem
    environment = dict(os.environ)
    while words and _VARIABLE.match(words[0]):
        # As in: OMP_NUM_THREADS=1 python train.py.
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if not words:
        raise ConfigError(
            f"train-script: expected a command such as 'python train.py', got {command!r}"
        )
    python_path = [str(_INJECT)]
    if environment.get("PYTHONPATH"):
        python_path.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(python_path)
    environment[FOLDER] = str(folder)
    try:
        # OpenMP may have bound this thread to some CPUs (OMP_PROC_BIND), and the command would
        # inherit that. It gets a session of its own, so that whatever it starts can be ended with
        # it.
        with unbound():
            return Popen(words, env=environment, stdout=output, start_new_session=True)
    except OSError as problem:
        raise ConfigError(
            f"train-script: {words[0]!r} cannot be run: {problem.strerror}; "
            "expected a command such as 'python train.py'"
        ) from problem


def _wait(process: Popen[bytes], folder: Path, limits: _Limits) -> _End:
    """Waits until the command ends, a limit is reached, or a loader is stuck."""
    began_s = time.monotonic()
    first_s: float | None = None
    most_until_first_s = _TIMES_UNTIL_FIRST * limits.seconds
    while True:
        # Asked first: the files of a command that has ended by now are complete.
        has_ended = process.poll() is not None
        now_s = time.monotonic()
        activities = _read_activities(folder)
        if activities and first_s is None:
            first_s = now_s
        for key, activity in activities.items():
            # The probe writes the number of batches so far into this place.
            batch_count = int(activity.sample)
            if batch_count >= limits.batches:
                return _End(f"after {batch_count:,} batches")
            is_waiting = activity.stage in ("waiting", "starting")
            is_late = now_s - activity.since_s > limits.stall_timeout
            # A command that has ended left its loaders as they were: nobody waits any more.
            if is_waiting and is_late and not has_ended:
                return _End(f"no batch for {limits.stall_timeout:g} s", key)
        if has_ended:
            if process.returncode == 0:
                return _End("the command ended")
            return _End(f"the command ended with exit code {process.returncode}")
        if first_s is None:
            if now_s - began_s > most_until_first_s:
                return _End(
                    f"the command iterated over no DataLoader in {most_until_first_s:g} s"
                )
        elif now_s - first_s > limits.seconds:
            stuck_key = _find_stuck_step(activities, now_s, limits.stall_timeout)
            return _End(f"after {limits.seconds:g} s of batches", stuck_key)
        time.sleep(_LOOK_S)


def _read_activities(folder: Path) -> dict[str, Activity]:
    """Reads the present activity of each loader, by the key of its files."""
    activities = {}
    for path in folder.glob("loader-*.state"):
        activity = read_state(str(path))
        if activity is not None:
            activities[path.stem.removeprefix("loader-")] = activity
    return activities


def _find_stuck_step(
    activities: dict[str, Activity], now_s: float, stall_timeout: float
) -> str | None:
    """Finds a loader whose step does not end, if no other loader is at work."""
    for activity in activities.values():
        if now_s - activity.since_s <= stall_timeout:
            return None
    for key, activity in activities.items():
        if activity.stage == "step":
            return key
    return None


def _find_stall(
    observations: list[Observation], folder: Path, stuck_key: str | None
) -> Stall | None:
    """Explains why a loader is stuck, while its processes still run."""
    if stuck_key is None:
        return None
    activity = read_state(str(folder / f"loader-{stuck_key}.state"))
    for observation in observations:
        if observation.key != stuck_key or activity is None:
            continue
        stacks = stuck.collect_stacks(observation, folder)
        in_step = activity.stage == "step"
        if in_step and stacks[0].status.startswith("R"):
            return None  # it computes: a step may take long
        waited_s = time.monotonic() - activity.since_s
        finding = stuck.explain_stall(
            observation, folder, stacks, waited_s, in_step=in_step
        )
        return Stall(stuck_key, finding, stacks)
    return None


def _evaluate(
    observations: list[Observation],
    stall: Stall | None,
    surroundings: Surroundings,
    folder: Path,
    why: str,
) -> Watched:
    """Makes the diagnoses, after the end of the command."""
    programs = read_programs(folder)
    # Workers that run the script again make loaders, too.
    worker_pids = {program.pid for program in programs if program.unguarded}
    observations = [
        seen for seen in observations if seen.facts["pid"] not in worker_pids
    ]
    diagnoses = diagnose_loaders(observations, programs, stall, surroundings, folder)
    program_findings = [
        report_option_error(error)
        for program in programs
        for error in program.option_errors
    ]
    for program in programs:
        if program.unguarded:
            continue
        for ending in program.errors:
            if ending.place:
                program_findings.append(report_program_error(ending.text, ending.place))
    trouble = ""
    trouble_file = folder / "trouble.txt"
    if trouble_file.exists():
        trouble = trouble_file.read_text(errors="replace")[:2000]
    return Watched(
        diagnoses=choose_worst(diagnoses),
        ended=why,
        program_findings=tuple(program_findings),
        python=bool(programs),
        trouble=trouble,
    )


def end_command(process: Popen[bytes]) -> None:
    """Ends a command by SIGINT, as Ctrl-C does; after 5 s by SIGTERM, then by SIGKILL.

    SIGKILL also goes to what is left of its session, and to the processes that have left it, as
    torchrun's do.
    """
    family = [(pid, read_start_ticks(pid)) for pid in list_children(process.pid)]

    # Only the command itself gets SIGINT: a training that saves its state on Ctrl-C needs its
    # workers for it.
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        _wait_for_exit(process)
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        _wait_for_exit(process)
    _signal_group(process.pid, signal.SIGKILL)
    for pid, start_ticks in family:
        # The number of a process that has ended may belong to another one by now.
        if start_ticks and read_start_ticks(pid) == start_ticks:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _wait_for_exit(process: Popen[bytes]) -> None:
    with contextlib.suppress(TimeoutExpired):
        process.wait(_PATIENCE_S)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
