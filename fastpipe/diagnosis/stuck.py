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
from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation, Worker
from fastpipe.diagnosis.stacks import THIS, Frame, Stack, children, command_line, parent, stack_of

SILENT = "a worker that has not started"
_FUNCTIONS = {"collate": "collate_fn"}
_BUSY = ("worker_init_fn", "iter(dataset)", "dataset", "collate")
# File of Python's own, functions in it -> what a process that is there waits for.
_CALLS = (
    ("multiprocessing/queues.py", ("put",), "queue-full"),
    ("multiprocessing/queues.py", ("get",), "queue-empty"),
    ("/queue.py", ("put", "get"), "thread-queue"),
    ("concurrent/futures/", ("result", "wait", "as_completed"), "executor"),
    ("multiprocessing/connection.py", ("recv", "recv_bytes", "poll", "wait", "_recv", "_recv_bytes"), "answer"),
    ("multiprocessing/pool.py", ("get", "wait", "next"), "pool"),
    ("multiprocessing/synchronize.py", ("wait",), "event"),
    ("/threading.py", ("wait", "join", "_wait_for_tstate_lock", "acquire"), "thread"),
    ("/subprocess.py", ("wait", "communicate", "_wait", "_try_wait", "run"), "program"),
    ("/socket.py", ("readinto", "create_connection", "accept"), "server"),
    ("/ssl.py", ("read", "recv", "recv_into", "do_handshake"), "server"),
)
_LOCKS = re.compile(r"\bwith\b.*(lock|mutex|sem|guard|cond)|\.acquire\(", re.IGNORECASE)


def stacks(seen: Observation, folder: Path, own: Collection[int] | None = None) -> list[Stack]:
    """Of the process that iterates, of each of its workers, and of those that have not come as far as to say so.

    Args:
        seen: the loader.
        folder: of the files of all loaders.
        own: the processes that are known to be this loader's workers; None: all that look like a worker, and have not
            said that they are another loader's.
    """
    main = int(seen.facts["pid"])
    known = {worker.pid: worker for worker in seen.workers if worker.number != WITHOUT_WORKERS}
    said = {int(path.stem.rpartition("-")[2]) for path in folder.glob("worker-*.jsonl")}
    found = [stack_of(main, "the main process", folder)]
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


def finding(seen: Observation, folder: Path, found: list[Stack], waited_s: float) -> Finding:
    """Which process holds the loader up, at what, for how long."""
    late = {"waited_s": waited_s, "batches": len(seen.batches) or None}
    by_pid = {stack.pid: stack for stack in found}
    workers = _longest(seen, folder, by_pid)
    silent = [stack for stack in found if stack.role == SILENT]
    main = by_pid.get(int(seen.facts["pid"]))
    if workers:
        worker, stage, sample, busy_s = workers[0]
        stack: Stack | None = by_pid[worker.pid]
        cause, evidence = _at_work(seen, worker, stage, by_pid[worker.pid])
        evidence |= {
            "sample": sample if stage == "dataset" else None,
            "function": None if stage == "dataset" else _FUNCTIONS.get(stage, stage),
            "busy_s": busy_s,
            "others": len(workers) - 1 or None,
            "timeout": None if seen.facts["timeout"] or not seen.num_workers else 120,
        }
    elif seen.num_workers and silent:
        stack = silent[0]
        evidence = {"silent": len(silent), "method": seen.facts["method"], "pid": stack.pid, "kernel": stack.status}
        evidence["line"] = stack.users or stack.innermost
        cause = "start-fork" if seen.facts["method"] == "fork" else "start"
    else:
        stack, cause, evidence = main, "lost", {"line": main and main.innermost}
    return Finding(Code.STUCK, _where(stack) or seen.made_at, {**late, **evidence}, cause, Severity.STUCK)


def _longest(seen: Observation, folder: Path, by_pid: dict[int, Stack]) -> list[tuple[Worker, str, str, float]]:
    """The workers that are at something: stage, sample, for how many seconds; the longest first."""
    found = []
    for worker in seen.workers:
        state = read_state(str(folder / f"worker-{seen.key}-{worker.number}-{worker.pid}.state"))
        if state is not None and worker.pid in by_pid and state[1] in _BUSY:
            found.append((worker, state[1], state[2], time.monotonic() - state[0]))
    return sorted(found, key=lambda each: -each[3])


def _at_work(seen: Observation, worker: Worker, stage: str, stack: Stack) -> tuple[str, dict[str, Any]]:
    """Why a process does not go on, and where it stands."""
    line = stack.users or stack.innermost
    evidence: dict[str, Any] = {
        "process": "the main process" if worker.number == WITHOUT_WORKERS else f"worker {worker.number}",
        "pid": worker.pid,
        "line": line,
        "inner": stack.innermost if stack.innermost != line else None,
        "kernel": stack.status if stack.status != THIS else None,
    }
    if stack.state == "D":
        return "disk", evidence
    inner = list(_installed(stack))
    text = source(f"{stack.users.file}:{stack.users.line}") if stack.users else ""
    if any(_is_of(frame, "multiprocessing/synchronize.py", ("__enter__",)) for frame in inner) or (
        _LOCKS.search(text) and not inner
    ):
        cause, lock = _lock(seen, worker, text)
        return cause, evidence | lock
    for frame in reversed(inner):  # the call that the user's line makes tells more than what it is made of
        for file, functions, cause in _CALLS:
            if _is_of(frame, file, functions):
                return cause, evidence
    if stage != "dataset":
        return "call", evidence
    if seen.num_workers and seen.facts["method"] == "fork" and "futex" in stack.status:
        plain = not seen.facts["locks"] and not seen.facts["unpicklable"]  # else pickle would refuse the dataset
        return "library", evidence | {"instead": "forkserver" if plain else None}
    return "sample", evidence


def _is_of(frame: Frame, file: str, functions: tuple[str, ...]) -> bool:
    return file in frame.file and frame.function in functions


def _installed(stack: Stack) -> tuple[Frame, ...]:
    """The frames inside of the user's innermost line, the innermost first."""
    return stack.working[: stack.working.index(stack.users)] if stack.users else ()


def _lock(seen: Observation, worker: Worker, text: str) -> tuple[str, dict[str, Any]]:
    """Who holds the lock that a line of the worker waits for."""
    if seen.holds:
        return "lock-of-the-loop", {"lock": seen.holds[0]}
    if not worker.locks:
        return "lock", {}
    lock = next((each for each in worker.locks if each["path"].rpartition(".")[2] in text), worker.locks[0])
    by = " and ".join(f"{each['name']} (at {each['place']})" for each in worker.threads[:3])
    evidence = {
        "lock": lock["path"],
        "holder": f"the main process's thread {by}" if by else "another thread of the main process",
        "in_worker": lock["path"].replace("dataset", "get_worker_info().dataset", 1),
        "kind": lock["kind"],
    }
    return "lock-shared" if lock["kind"].startswith("multi") else "lock-copied", evidence


def _where(stack: Stack | None) -> str:
    frame = None if stack is None else stack.users or stack.innermost
    return "" if frame is None or not is_own(frame.file) else f"{frame.file}:{frame.line}"
