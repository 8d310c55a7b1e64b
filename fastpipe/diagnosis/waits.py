"""The stack of a process that does not go on -> what it waits for, and who would have to give it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastpipe.diagnosis.code import source
from fastpipe.diagnosis.observation import Observation, Worker
from fastpipe.diagnosis.stacks import Frame, Stack

# File of Python's own, function -> why it waits, and what to change.
_CALLS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    (
        "multiprocessing/queues.py",
        ("put",),
        "the queue is full: it has a maxsize, and nobody takes from it as fast as workers put into it",
        "take from the queue in the main process, in a thread, while the loop runs; or put_nowait, and drop the rest",
    ),
    (
        "multiprocessing/queues.py",
        ("get",),
        "the queue is empty: nobody puts into it, or another worker took what was meant for this one",
        "get(timeout=...), and put something for each worker",
    ),
    (
        "/queue.py",
        ("put", "get"),
        "it waits for another thread. A forked worker has none of the main process's threads: whoever would take from "
        "this queue, or put into it, does not exist there",
        "make the queue and its thread in the worker, when they are first used",
    ),
    (
        "concurrent/futures/",
        ("result", "wait", "as_completed"),
        "it waits for an executor. A forked worker has none of the main process's threads: an executor that was made "
        "there does no work",
        "make the executor in the worker, when it is first used",
    ),
    (
        "multiprocessing/connection.py",
        ("recv", "recv_bytes", "poll", "wait", "_recv", "_recv_bytes"),
        "it waits for an answer of another process, which does not come",
        "poll(timeout) before recv(); a pipe must not be shared by several workers",
    ),
    (
        "multiprocessing/pool.py",
        ("get", "wait", "next"),
        "it waits for a pool of processes: a pool that was made in the main process does no work in a forked worker",
        "make no pool in the dataset: the workers are one",
    ),
    (
        "multiprocessing/synchronize.py",
        ("wait",),
        "it waits for an event, a condition or a barrier of other processes, which does not come",
        "wait(timeout=...), or do without: workers need not wait for each other",
    ),
    (
        "/threading.py",
        ("wait", "join", "_wait_for_tstate_lock", "acquire"),
        "it waits for another thread. A forked worker has none of the main process's threads",
        "make the thread in the worker, when it is first used",
    ),
    (
        "/subprocess.py",
        ("wait", "communicate", "_wait", "_try_wait", "run"),
        "it waits for a program that it has started, and which does not end",
        "subprocess.run(..., timeout=60)",
    ),
    (
        "/socket.py",
        ("readinto", "create_connection", "accept"),
        "a server does not answer",
        "give the request a timeout: urlopen(..., timeout=30), requests.get(..., timeout=30)",
    ),
    (
        "/ssl.py",
        ("read", "recv", "recv_into", "do_handshake"),
        "a server does not answer",
        "give the request a timeout: urlopen(..., timeout=30), requests.get(..., timeout=30)",
    ),
)
_LOCKS = re.compile(r"\bwith\b.*(lock|mutex|sem|guard|cond)|\.acquire\(", re.IGNORECASE)


@dataclass(frozen=True)
class Wait:
    """Why a process waits, what to change, and the section of docs/failures.md."""

    why: str
    change: str
    section: int


def wait_of(seen: Observation, worker: Worker, stack: Stack) -> Wait | None:
    """What its stack tells; None where it tells nothing but the line."""
    inner = list(_installed(stack))
    text = source(f"{stack.users.file}:{stack.users.line}") if stack.users else ""
    in_lock = any("multiprocessing/synchronize.py" in each.file and each.function == "__enter__" for each in inner)
    if in_lock or (_LOCKS.search(text) and not inner):
        return _lock(seen, worker, text)
    for frame in reversed(inner):  # the call that the user's line makes tells more than what it is made of
        for file, functions, why, change in _CALLS:
            if file in frame.file and frame.function in functions:
                return Wait(why, change, 1)
    return None


def _installed(stack: Stack) -> list[Frame]:
    """The frames inside of the user's innermost line, the innermost first."""
    frames = list(stack.working)
    return frames[: frames.index(stack.users)] if stack.users in frames else []


def _lock(seen: Observation, worker: Worker, text: str) -> Wait:
    if seen.holds:
        return Wait(
            f"the main process held {seen.holds[0]}, a lock that all processes share, when it started the workers, and "
            "waits for them while it holds it",
            "release the lock before the loop asks for a batch",
            1,
        )
    if worker.locks:
        lock = next((each for each in worker.locks if each["path"].rpartition(".")[2] in text), worker.locks[0])
        by = " and ".join(f"{each['name']} (at {each['place']})" for each in worker.threads[:3])
        held = f"by the main process's thread {by}" if by else "by another thread of the main process"
        if lock["kind"].startswith("multi"):
            return Wait(
                f"{lock['path']} is a lock that all processes share. It was held {held} when the worker was forked",
                "release it before the loop asks for a batch, and never hold it while you wait for one",
                1,
            )
        in_worker = lock["path"].replace("dataset", "get_worker_info().dataset", 1)
        return Wait(
            f"{lock['path']} was held {held} when the worker was forked. The worker's copy of the lock stays locked: "
            "the thread that would release it does not exist there",
            f"give each worker a lock of its own: in worker_init_fn, {in_worker} = {lock['kind']}(); or stop this "
            "thread before the loop starts its workers",
            1,
        )
    return Wait(
        "it waits for a lock that another worker, thread or process holds",
        "acquire(timeout=...), and release it in finally; a worker that is killed never releases its lock",
        1,
    )
