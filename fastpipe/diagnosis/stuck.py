"""A loader that gives no more batches -> the stacks of all its processes, and which process is stuck."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fastpipe.diagnosis.code import source
from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import read_state
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation, Worker
from fastpipe.diagnosis.stacks import THIS, Stack, children, command_line, parent, stack_of

MAIN, SILENT = "the main process", "a worker that has not started"
_BUSY = {each: each for each in ("worker_init_fn", "iter(dataset)", "dataset")} | {"collate": "collate_fn"}
# In a file and a function of Python's own -> why a process that is there does not go on, and for what it waits.
_CALLS = (
    ("multiprocessing/queues.py put", "queue-full", ""),
    ("multiprocessing/queues.py ", "other", "an item of a queue"),
    ("multiprocessing/connection.py ", "other", "an answer of another process"),
    ("multiprocessing/pool.py ", "thread", "a pool of processes"),
    ("multiprocessing/synchronize.py __enter__", "lock", ""),
    ("multiprocessing/synchronize.py ", "other", "an event, a condition or a barrier of other processes"),
    ("/queue.py ", "thread", "another thread, at a queue"),
    ("concurrent/futures/", "thread", "an executor"),
    ("/threading.py ", "thread", "another thread"),
    ("/subprocess.py ", "other", "the end of a program that it has started"),
    ("/socket.py ", "other", "a server's answer"),
    ("/ssl.py ", "other", "a server's answer"),
)
_LOCKS = re.compile(r"\bwith\b.*(lock|mutex|sem|guard|cond)|\.acquire\(", re.IGNORECASE)


def stacks(seen: Observation, folder: Path, own: Collection[int] | None = None) -> list[Stack]:
    """Of the process that iterates, of each of its workers, and of those that have not come as far as to say so: `own`,
    where they are known, else all that look like a worker, and have not said that they are another loader's.
    """
    main = int(seen.facts["pid"])
    known = {worker.pid: worker for worker in seen.workers if worker.number != WITHOUT_WORKERS}
    said = {int(path.stem.rpartition("-")[2]) for path in folder.glob("worker-*.jsonl")}
    found = [stack_of(main, MAIN, folder)]
    for pid in children(main):
        if pid in known:
            found.append(stack_of(pid, f"worker {known[pid].number}", folder))
        elif pid in own if own is not None else (pid not in said and _worker_to_be(pid, main)):
            found.append(stack_of(pid, SILENT, folder))
    return found


def _worker_to_be(pid: int, main: int) -> bool:
    """Whether a process was forked from the one that iterates, or started by multiprocessing to be a worker."""
    command, own = command_line(pid), command_line(main)
    if b"resource_tracker" in command:
        return False
    if b"multiprocessing.forkserver" in command:
        return parent(pid) != main  # the server itself is no worker
    return b"multiprocessing.spawn" in command or (command == own and bool(command))


def finding(seen: Observation, folder: Path, found: list[Stack], waited_s: float, *, in_step: bool = False) -> Finding:
    """Which process holds the loader up, at what, for how long; `in_step`: it is the loop, which asks for no batch."""
    evidence: dict[str, Any] = {"waited_s": waited_s, "batches": len(seen.batches) or None}
    by_pid = {stack.pid: stack for stack in found}
    working = [] if in_step else [each for each in at_work(seen, folder) if each[0].pid in by_pid]
    silent = [] if in_step else [stack for stack in found if stack.role == SILENT]
    stack = by_pid.get(int(seen.facts["pid"]))
    cause = "step" if in_step else "lost"
    forked = [] if in_step or seen.facts["method"] != "fork" else [each for each in found if each.role != MAIN]
    # faulthandler says so of a process whose garbage collector is at work; one that sleeps there waits in a destructor.
    if freeing := [each for each in forked if "Garbage-collecting" in each.text and each.status.startswith("S:")]:
        stack, cause = freeing[0], "freeing"
        evidence["process"] = stack.role
    elif working:
        worker, stage, sample, busy_s = working[0]
        stack = by_pid[worker.pid]
        cause, more = _why(seen, worker, stage, stack)
        evidence |= {
            "process": MAIN if worker.number == WITHOUT_WORKERS else f"worker {worker.number}",
            "sample": sample if stage == "dataset" else None,
            "function": _BUSY[stage] if stage != "dataset" else None,
            "busy_s": busy_s,
            "others": len(working) - 1 or None,
            "timeout": None if seen.facts["timeout"] or not seen.num_workers else 120,
            **more,
        }
    elif seen.num_workers and silent:
        stack = silent[0]
        evidence |= {"silent": len(silent), "method": seen.facts["method"]}
        cause = "start-fork" if seen.facts["method"] == "fork" else "start"
    if stack:
        inner = stack.working[0] if stack.working and stack.working[0] != stack.line else None
        kernel = stack.status if stack.status != THIS else None
        evidence |= {"pid": stack.pid, "line": stack.line, "inner": inner, "kernel": kernel}
    where = stack.users.place if stack and stack.users else seen.made_at
    return Finding(Code.STUCK, where, evidence, cause, Severity.STUCK)


def at_work(seen: Observation, folder: Path) -> list[tuple[Worker, str, str, float]]:
    """The workers that are, or were at their end, at something: stage, sample, for how many seconds; longest first."""
    found = []
    for worker in seen.workers:
        for path in folder.glob(f"worker-*-{worker.number}-{worker.pid}.state"):
            if (state := read_state(str(path))) and state[1] in _BUSY:
                found.append((worker, state[1], state[2], time.monotonic() - state[0]))
    return sorted(found, key=lambda each: -each[3])


def _why(seen: Observation, worker: Worker, stage: str, stack: Stack) -> tuple[str, dict[str, Any]]:
    """Why a process does not go on: the cause, and evidence of it."""
    if stack.status.startswith("D:"):
        return "disk", {}
    text = source(stack.users.place) if stack.users else ""
    inner = stack.working[: stack.working.index(stack.users)] if stack.users else []
    if _LOCKS.search(text) and not inner:
        return _lock(seen, worker, text)
    for frame in reversed(inner):  # the call that the user's line makes tells more than what it is made of
        for call, cause, awaited in _CALLS:
            if call in f"{frame.file} {frame.function}":
                return _lock(seen, worker, text) if cause == "lock" else (cause, {"awaited": awaited})
    if stage == "dataset" and seen.num_workers and seen.facts["method"] == "fork" and "futex" in stack.status:
        plain = not seen.facts["locks"] and not seen.facts["unpicklable"]  # else pickle would refuse the dataset
        return "library", {"instead": "forkserver" if plain else None}
    return "call", {}


def _lock(seen: Observation, worker: Worker, text: str) -> tuple[str, dict[str, Any]]:
    """Who holds the lock that a line of the worker waits for."""
    if seen.holds:
        return "lock-shared", {"lock": seen.holds[0], "holder": MAIN}
    if not worker.locks:
        return "other", {"awaited": "a lock that another worker, thread or process holds"}
    lock = next((each for each in worker.locks if each["path"].rpartition(".")[2] in text), worker.locks[0])
    by = " and ".join(f"{each['name']} (at {each['place']})" for each in worker.threads[:3])
    evidence = {
        "lock": lock["path"],
        "holder": f"the main process's thread {by}" if by else "another thread of the main process",
        "in_worker": lock["path"].replace("dataset", "get_worker_info().dataset", 1),
        "kind": lock["kind"],
    }
    return "lock-shared" if lock["kind"].startswith("multi") else "lock-copied", evidence
