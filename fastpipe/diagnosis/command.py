"""A training command -> the command run as it is, its DataLoaders watched for a while, and a Diagnosis of each.

The command's Python programs get the folder `inject` on their PYTHONPATH; nothing else of it changes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from fastpipe.diagnosis import stuck
from fastpipe.diagnosis.code import source, split
from fastpipe.diagnosis.ended import ended, is_gone
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import Ending, read_state
from fastpipe.diagnosis.inject.fastpipe_probe.patch import FOLDER, STOPPING
from fastpipe.diagnosis.observation import Observation, observations, records, surroundings
from fastpipe.diagnosis.report import Diagnosis, report
from fastpipe.diagnosis.stacks import Stack, children, started
from fastpipe.errors import ConfigError

_INJECT = Path(__file__).parent / "inject"
_LOOK_S = 0.25
_TIMES_UNTIL_FIRST = 10
_MOST_LOADERS = 4
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*=")


@dataclass(frozen=True)
class Watched:
    """How a command was watched.

    Attributes:
        diagnoses: of the DataLoaders that gave most batches, those that are stuck first; empty if there was none.
        ended: why the watching ended.
        refused: options that torch refused, and errors that ended the program, one finding each.
        python: whether a Python program of the command could be watched at all.
        trouble: what went wrong in the watching itself; "" if nothing did.
    """

    diagnoses: tuple[Diagnosis, ...]
    ended: str
    refused: tuple[Finding, ...]
    python: bool
    trouble: str


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

    Args:
        command: as for a shell, but without its expansions; `NAME=value` may stand before it.
        batches: of one DataLoader, after which the command is ended.
        seconds: after the first batch was asked for, after which it is ended; it may take ten times as long to come to
            its first batch.
        stall_timeout: seconds without a batch after which a loader is stuck.
        output: where the command's standard output goes, a file or its number; None: where this program's does.
        say: is told when the command is ended.

    Raises:
        ConfigError: the command cannot be run.
    """
    folder = Path(tempfile.mkdtemp(prefix="fastpipe-diagnose-"))
    before = surroundings()
    try:
        process = _start(command, folder, output)
        stacks: list[Stack] = []
        found: list[Finding] = []
        try:
            why, key = _until(process, folder, batches, seconds, stall_timeout)
            all_seen = observations(folder)  # before the end, which interrupts whoever waits for a batch
            for seen in all_seen:
                if seen.key == key:
                    stacks = stuck.stacks(seen, folder)
                    found = [_stuck(seen, folder, stacks)]
            (folder / STOPPING).touch()
            if process.poll() is None:
                say(why)
        finally:
            end(process)
        endings = {int(path.stem.rpartition("-")[2]): Ending(**line) for path, line in _left(folder, "ended")}
        children = {int(line["pid"]): str(line["place"]) for _, line in _left(folder, "unguarded")}
        whole = merged(seen for seen in all_seen if seen.facts["pid"] not in children)
        diagnoses = []
        for seen in whole:
            stands = key in (seen.key, *seen.others)
            last = endings.get(seen.facts["pid"])
            gone = last is not None and is_gone(last) and seen.num_workers > 0
            if seen.errors or gone:
                endings.pop(seen.facts["pid"], None)
            here: list[Finding] = []
            if children and seen.num_workers:
                place = next(iter(children.values()))
                evidence = {"line": split(place)[1], "source": source(place), "method": seen.facts["method"]}
                here = [Finding(Code.NO_MAIN_GUARD, place, evidence)]
            elif stands:
                here = found
            elif error := seen.errors[0] if seen.errors else last if gone else None:
                here = ended(seen, error, before.oom_kills, folder)
            if stands or seen.batches or seen.errors or here or len(whole) == 1:
                shown = tuple(stacks if stands else ())
                diagnoses.append((alike(seen), report(seen, before, more=tuple(here), stacks=shown)))
        trouble = folder / "trouble.txt"
        return Watched(
            _shown(diagnoses),
            why,
            (
                *(_refused(line) for _, line in _left(folder, "refused")),
                *(
                    Finding(Code.ERROR, last.place, {"ended": last.text[:1000]}, "program")
                    for pid, last in endings.items()
                    if last.place and pid not in children
                ),
            ),
            any(folder.glob("process-*.json")),
            trouble.read_text(errors="replace")[:2000] if trouble.exists() else "",
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: str, folder: Path, output: TextIO | int | None) -> subprocess.Popen[bytes]:
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
        return subprocess.Popen(words, env=environment, stdout=output, start_new_session=True)
    except OSError as problem:
        raise ConfigError(
            f"train-script: {words[0]!r} cannot be run: {problem.strerror}; "
            "expected a command such as 'python train.py'"
        ) from problem


def _until(
    process: subprocess.Popen[bytes], folder: Path, batches: int, seconds: float, stall_timeout: float
) -> tuple[str, str | None]:
    """Waits for the end of the watching: why, and the key of the loader that is stuck."""
    began_s = time.monotonic()
    first_s: float | None = None
    counts: dict[Path, tuple[int, int]] = {}  # bytes read and batches of each file
    lines: dict[Path, object] = {}  # by which each loader was made
    while True:
        ended = process.poll() is not None
        now_s = time.monotonic()
        for path in folder.glob("loader-*.jsonl"):
            first_s = first_s or now_s
            _count(path, counts)
            if path not in lines and counts[path][0]:
                facts = next(records(path))["facts"]
                lines[path] = facts["pid"], facts["made_at"] or path
            count = sum(counts[other][1] for other, line in lines.items() if line == lines.get(path))
            if count >= batches:
                return f"after {count:,} batches", None
            state = read_state(str(path.with_suffix(".state")))
            if state and state[1] in ("waiting", "starting") and now_s - state[0] > stall_timeout and not ended:
                return f"no batch for {stall_timeout:g} s", path.stem.removeprefix("loader-")
        if ended:
            code = process.returncode
            return ("the command ended" if code == 0 else f"the command ended with exit code {code}"), None
        if first_s is not None and now_s - first_s > seconds:
            return f"after {seconds:g} s of batches", None
        if first_s is None and now_s - began_s > _TIMES_UNTIL_FIRST * seconds:
            return f"the command iterated over no DataLoader in {_TIMES_UNTIL_FIRST * seconds:g} s", None
        time.sleep(_LOOK_S)


def _count(path: Path, counts: dict[Path, tuple[int, int]]) -> None:
    """Counts batches in a file that grows; only what is new is read."""
    done, count = counts.get(path, (0, 0))
    with path.open("rb") as file:
        file.seek(done)
        new = file.read()
    whole = new.rfind(b"\n") + 1
    count += sum(line.startswith(b'{"batches"') for line in new[:whole].splitlines())
    counts[path] = done + whole, count


def _stuck(seen: Observation, folder: Path, stacks: list[Stack]) -> Finding:
    state = read_state(str(folder / f"loader-{seen.key}.state"))
    return stuck.finding(seen, folder, stacks, time.monotonic() - state[0] if state else 0.0)


def _left(folder: Path, kind: str) -> list[tuple[Path, dict[str, Any]]]:
    """The lines that programs left: fastpipe_probe/files.py."""
    return [(path, line) for path in sorted(folder.glob(f"{kind}-*.jsonl")) for line in records(path)]


def _shown(found: list[tuple[tuple[Any, ...], Diagnosis]]) -> tuple[Diagnosis, ...]:
    """The worst ones; of DataLoaders that one line made in several processes only the worst."""
    shown: dict[object, Diagnosis] = {}
    for line, diagnosis in sorted(found, key=lambda each: _weight(each[1])):
        shown.setdefault(line, diagnosis)
    return tuple(shown.values())[:_MOST_LOADERS]


def _weight(diagnosis: Diagnosis) -> tuple[int, int, int]:
    """The less, the worse: its first finding, how many there are, how many batches it gave."""
    ranks = [list(Severity).index(finding.severity) for finding in diagnosis.findings]
    return min(ranks, default=len(Severity)), -len(ranks), -(diagnosis.stages.batches if diagnosis.stages else 0)


def _refused(line: dict[str, Any]) -> Finding:
    cause = "workers" if "num_workers > 0" in line["error"] else ""  # torch's words
    return Finding(Code.REFUSED_OPTIONS, line["made_at"], {"refused": line["error"]}, cause)


_ALIKE = ("made_at", "class", "dataset", "length", "batch_size", "num_workers", "method", "pin_memory")


def merged(found: Iterable[Observation]) -> list[Observation]:
    """Those that one process made at one line, one after the other, count as epochs of one."""
    by_line: dict[Any, list[Observation]] = {}
    for seen in found:
        by_line.setdefault((seen.facts["pid"], *alike(seen)), []).append(seen)
    return [_merged(several) for several in by_line.values()]


def alike(seen: Observation) -> tuple[Any, ...]:
    """What DataLoaders that one line made have in common; nothing, where the line is not known."""
    return tuple(seen.facts[name] for name in _ALIKE) if seen.made_at else (seen.key,)


def _merged(several: list[Observation]) -> Observation:
    whole, *others = several
    for number, seen in enumerate(others, 1):
        epochs, batches = len(whole.epochs), len(whole.batches)
        whole.epochs += [replace(epoch, made=number) for epoch in seen.epochs]
        whole.batches += [replace(batch, epoch=batch.epoch + epochs) for batch in seen.batches]
        whole.snapshots += [replace(snapshot, batch=snapshot.batch + batches) for snapshot in seen.snapshots]
        whole.workers += seen.workers
        whole.errors += seen.errors
        whole.holds = whole.holds or seen.holds
        whole.others.append(seen.key)
    return whole


_PATIENCE_S = 5.0


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks by SIGINT, as Ctrl-C does, then by SIGTERM, 5 s each; then the kernel ends what is left of it.

    Args:
        process: that was started with start_new_session.
    """
    family = [(pid, started(pid)) for pid in children(process.pid)]  # some may have left the group, as torchrun's do
    # Only the command itself is interrupted: a training that saves its state on Ctrl-C needs its workers for it.
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    if not _gone(process):
        _signal(process.pid, signal.SIGTERM)
        _gone(process)
    _signal(process.pid, signal.SIGKILL)
    for pid, since in family:
        with contextlib.suppress(OSError):
            if since and started(pid) == since:  # its number was not given to another
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _gone(process: subprocess.Popen[bytes]) -> bool:
    until_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    return process.poll() is not None


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
