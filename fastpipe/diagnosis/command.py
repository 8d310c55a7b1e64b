"""A training command -> the command run as it is, its DataLoaders watched for a while, and a Diagnosis of each.

The command's Python programs get the folder `inject` on their PYTHONPATH; nothing else of it changes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TextIO

from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.code import source, split
from fastpipe.diagnosis.ended import ended, is_gone
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import read_state
from fastpipe.diagnosis.inject.fastpipe_probe.patch import FOLDER, STOPPING
from fastpipe.diagnosis.inject.fastpipe_probe.watch import alike
from fastpipe.diagnosis.observation import Observation, Program, Surroundings, observations, programs, surroundings
from fastpipe.diagnosis.report import Diagnosis, report
from fastpipe.diagnosis.stacks import Stack, children, started
from fastpipe.errors import ConfigError
from fastpipe.machine.binding import unbound

_INJECT = Path(__file__).parent / "inject"
_LOOK_S = 0.25
_TIMES_UNTIL_FIRST = 10
_MOST_LOADERS = 4
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*=")


@dataclass(frozen=True)
class Watched:
    """How a command was watched."""

    diagnoses: tuple[Diagnosis, ...]  # of the DataLoaders that gave most batches, those that are stuck first
    ended: str  # why the watching ended
    refused: tuple[Finding, ...]  # options that torch refused, and errors that ended the program, one finding each
    python: bool  # whether a Python program of the command could be watched at all
    trouble: str  # what went wrong in the watching itself; "" if nothing did


def watch_command(
    command: str,
    *,
    batches: int,
    seconds: float,
    stall_timeout: float,
    output: TextIO | int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Watched:
    """Runs a command until one of its DataLoaders has given enough batches, or is stuck; then ends it.

    `seconds` count from the first batch that is asked for; it may take ten times as long to come to that. `output` is a
    file or its number, for standard output; None: where this program's goes. `say` is told when the command is ended.

    Raises:
        ConfigError: the command cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="fastpipe-diagnose-", ignore_cleanup_errors=True) as name:
        folder, before = Path(name), surroundings()
        process = _start(command, folder, output)
        stalled: dict[str, tuple[Finding, list[Stack]]] = {}
        try:
            why, key = _until(process, folder, batches, seconds, stall_timeout)
            found = observations(folder)  # before the end, which interrupts whoever waits for a batch
            for seen in found:
                if seen.key == key and (state := read_state(str(folder / f"loader-{key}.state"))):
                    stacks, in_step = stuck.stacks(seen, folder), state[1] == "step"
                    waited_s = time.monotonic() - state[0]
                    if not in_step or not stacks[0].status.startswith("R"):  # a step may compute for long
                        stalled[key] = stuck.finding(seen, folder, stacks, waited_s, in_step=in_step), stacks
            (folder / STOPPING).touch()
            if process.poll() is None:
                say(why)
        finally:
            end(process)
        ran = programs(folder)
        children = {program.pid for program in ran if program.unguarded}
        found = [seen for seen in found if seen.facts["pid"] not in children]
        diagnoses = _shown(list(_diagnoses(found, ran, stalled, before, folder)))
        refused = [_refused(each) for program in ran for each in program.refused]
        for program in ran:
            refused += [
                Finding(Code.ERROR, last.place, {"ended": last.text[:1000]}, "program")
                for last in program.errors
                if last.place and not program.unguarded
            ]
        trouble = folder / "trouble.txt"
        said = trouble.read_text(errors="replace")[:2000] if trouble.exists() else ""
        return Watched(diagnoses, why, tuple(refused), bool(ran), said)


def _diagnoses(
    found: list[Observation],
    ran: list[Program],
    stalled: dict[str, tuple[Finding, list[Stack]]],
    before: Surroundings,
    folder: Path,
) -> Iterator[tuple[Observation, Diagnosis]]:
    """Of each DataLoader that ran; takes from the programs the errors that were those of a DataLoader."""
    by_pid = {program.pid: program for program in ran}
    again = next((program.unguarded for program in ran if program.unguarded), "")
    for seen in found:
        program = by_pid.get(seen.facts["pid"], Program())  # of one that was forked, nothing is known
        errors = [*seen.errors, *(each for each in program.errors if is_gone(each) and seen.num_workers)]
        if errors:
            program.errors.clear()
        stall, stacks = stalled.get(seen.key, (None, []))
        more = [stall] if stall else []
        if again and seen.num_workers:
            evidence = {"line": split(again)[1], "source": source(again), "method": seen.facts["method"]}
            more = [Finding(Code.NO_MAIN_GUARD, again, evidence)]
        elif errors and not stall:
            more = ended(seen, errors[0], before.oom_kills, folder)
        if seen.batches or errors or more or len(found) == 1:
            yield seen, report(seen, before, more=tuple(more), stacks=tuple(stacks))


def _start(command: str, folder: Path, output: TextIO | int | None) -> Popen[bytes]:
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise ConfigError(f"train-script: {command!r} is not a valid command: {problem}") from problem
    environment = dict(os.environ)
    while words and _VARIABLE.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if not words:
        raise ConfigError(f"train-script: expected a command such as 'python train.py', got {command!r}")
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{_INJECT}{os.pathsep}{before}" if before else str(_INJECT)
    environment[FOLDER] = str(folder)
    try:
        # A session of its own: whatever it starts ends with it.
        with unbound():
            return Popen(words, env=environment, stdout=output, start_new_session=True)
    except OSError as problem:
        raise ConfigError(
            f"train-script: {words[0]!r} cannot be run: {problem.strerror}; "
            "expected a command such as 'python train.py'"
        ) from problem


def _until(
    process: Popen[bytes], folder: Path, batches: int, seconds: float, stall_timeout: float
) -> tuple[str, str | None]:
    """Waits for the end of the watching: why, and the key of the loader that is stuck."""
    began_s = time.monotonic()
    first_s: float | None = None
    while True:
        ended = process.poll() is not None
        now_s = time.monotonic()
        states = {path.stem.removeprefix("loader-"): read_state(str(path)) for path in folder.glob("loader-*.state")}
        at = {key: state for key, state in states.items() if state is not None}
        for key, (since_s, stage, count) in at.items():
            first_s = first_s or now_s
            if int(count) >= batches:
                return f"after {int(count):,} batches", None
            if stage in ("waiting", "starting") and now_s - since_s > stall_timeout and not ended:
                return f"no batch for {stall_timeout:g} s", key
        if ended:
            code = process.returncode
            return ("the command ended" if code == 0 else f"the command ended with exit code {code}"), None
        if first_s is not None and now_s - first_s > seconds:
            idle = all(now_s - since_s > stall_timeout for since_s, *_ in at.values())
            return f"after {seconds:g} s of batches", next((key for key in at if idle and at[key][1] == "step"), None)
        if first_s is None and now_s - began_s > _TIMES_UNTIL_FIRST * seconds:
            return f"the command iterated over no DataLoader in {_TIMES_UNTIL_FIRST * seconds:g} s", None
        time.sleep(_LOOK_S)


def _shown(found: list[tuple[Observation, Diagnosis]]) -> tuple[Diagnosis, ...]:
    """The worst ones; of DataLoaders that one line made in several processes only the worst."""
    shown: dict[object, Diagnosis] = {}
    for seen, diagnosis in sorted(found, key=lambda each: _weight(each[1])):
        shown.setdefault(alike(seen.facts), diagnosis)
    return tuple(shown.values())[:_MOST_LOADERS]


def _weight(diagnosis: Diagnosis) -> tuple[int, int, int]:
    """The less, the worse: its first finding, how many there are, how many batches it gave."""
    ranks = [list(Severity).index(finding.severity) for finding in diagnosis.findings]
    return min(ranks, default=len(Severity)), -len(ranks), -(diagnosis.stages.batches if diagnosis.stages else 0)


def _refused(line: dict[str, str]) -> Finding:
    cause = "workers" if "num_workers > 0" in line["error"] else ""  # torch's words
    return Finding(Code.REFUSED_OPTIONS, line["made_at"], {"refused": line["error"]}, cause)


_PATIENCE_S = 5.0


def end(process: Popen[bytes]) -> None:
    """Asks by SIGINT, as Ctrl-C does, then by SIGTERM, 5 s each; then the kernel ends what is left of its session."""
    family = [(pid, started(pid)) for pid in children(process.pid)]  # some may have left the group, as torchrun's do

    def tell_all(number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)

    # Only the command itself is interrupted: a training that saves its state on Ctrl-C needs its workers for it.
    for number, tell in ((signal.SIGINT, process.send_signal), (signal.SIGTERM, tell_all)):
        if process.poll() is None:
            tell(number)
            with contextlib.suppress(TimeoutExpired):
                process.wait(_PATIENCE_S)
    tell_all(signal.SIGKILL)
    for pid, since in family:
        with contextlib.suppress(OSError):
            if since and started(pid) == since:  # its number was not given to another
                os.kill(pid, signal.SIGKILL)
    process.wait()
