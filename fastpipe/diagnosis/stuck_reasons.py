"""The stack of a worker that hangs -> why it does not go on, and what to change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fastpipe.diagnosis.observation import Observation, Worker
from fastpipe.diagnosis.source.files import read_line
from fastpipe.diagnosis.stacks import Frame, Stack

MAIN = "the main process"


@dataclass(frozen=True)
class Reason:
    """Why a process does not go on."""

    why: str
    change: str
    section: int  # of docs/reference/failures.md


# A call of Python's library, as "file function" -> what a process waits for that is in this call.
_QUEUE_PUT = "multiprocessing/queues.py put"
_LOCK_ENTER = "multiprocessing/synchronize.py __enter__"
_OTHER_PROCESS_CALLS = {
    "multiprocessing/queues.py ": "an item of a queue",
    "multiprocessing/connection.py ": "an answer of another process",
    "multiprocessing/synchronize.py ": "an event, a condition or a barrier of other processes",
    "/subprocess.py ": "the end of a program that it has started",
    "/socket.py ": "a server's answer",
    "/ssl.py ": "a server's answer",
}
_THREAD_CALLS = {
    "multiprocessing/pool.py ": "a pool of processes",
    "/queue.py ": "another thread, at a queue",
    "concurrent/futures/": "an executor",
    "/threading.py ": "another thread",
}
# A source line that takes a lock.
_LOCK_LINE = re.compile(
    r"\bwith\b.*(lock|mutex|sem|guard|cond)|\.acquire\(", re.IGNORECASE
)

_QUEUE_FULL = Reason(
    why="the queue is full: it has a maxsize, "
    "and nobody takes from it as fast as workers put into it",
    change="take from the queue in a thread of the main process; or put_nowait, and drop the rest",
    section=1,
)
_DISK = Reason(
    why="the disk or the network does not answer",
    change="check the disk or the mount; copy the data to a local disk",
    section=13,
)
_CALL = Reason(
    why="a call that does not return there delays its own batch and all later batches",
    change="give the call at this line a timeout, and leave out such samples",
    section=13,
)


def find_reason(
    observation: Observation, worker: Worker, stage: str, stack: Stack
) -> Reason:
    """Finds out why a worker does not go on."""
    if stack.status.startswith("D:"):
        return _DISK
    user_line = ""
    # Those that the user's line has called, the innermost first.
    library_frames: list[Frame] = []
    user_frame = stack.user_frame
    if user_frame is not None:
        user_line = read_line(user_frame.place)
        library_frames = stack.working[: stack.working.index(user_frame)]
    if _LOCK_LINE.search(user_line) and not library_frames:
        return _explain_lock(observation, worker, user_line)
    # The call in the user's line tells more than the calls that it is made of.
    for frame in reversed(library_frames):
        reason = _explain_call(
            observation, worker, user_line, f"{frame.file} {frame.function}"
        )
        if reason is not None:
            return reason
    is_forked = observation.num_workers > 0 and observation.facts["method"] == "fork"
    if stage == "dataset" and is_forked and "futex" in stack.status:
        return _explain_futex(observation)
    return _CALL


def _explain_call(
    observation: Observation, worker: Worker, user_line: str, call: str
) -> Reason | None:
    """Explains a call of Python's library that waits; None for any other call."""
    if _QUEUE_PUT in call:
        return _QUEUE_FULL
    if _LOCK_ENTER in call:
        return _explain_lock(observation, worker, user_line)
    for name, awaited in _OTHER_PROCESS_CALLS.items():
        if name in call:
            return _explain_wait_for_other(awaited)
    for name, awaited in _THREAD_CALLS.items():
        if name in call:
            return _explain_wait_for_thread(awaited)
    return None


def _explain_wait_for_other(awaited: str) -> Reason:
    return Reason(
        why=f"it waits in vain for {awaited}",
        change="give the call a timeout: "
        "get(timeout=60), acquire(timeout=60), poll(60), urlopen(..., timeout=60)",
        section=1,
    )


def _explain_wait_for_thread(awaited: str) -> Reason:
    return Reason(
        why=f"it waits for {awaited}, perhaps made in the main process: "
        "a forked worker has none of its threads",
        change="make and start it in the worker, when first used",
        section=1,
    )


def _explain_futex(observation: Observation) -> Reason:
    """A lock that Python does not know."""
    change = "give the call at this line a timeout, and leave out such samples"
    # With forkserver the dataset is pickled, and pickle refuses locks and lambdas.
    if not observation.facts["locks"] and not observation.facts["unpicklable"]:
        change += '; for such a library: multiprocessing_context="forkserver"'
    return Reason(
        why="it waits for a lock, perhaps of a library (OpenMP, OpenCV) "
        "whose threads do not exist after a fork",
        change=change,
        section=1,
    )


def _explain_lock(observation: Observation, worker: Worker, user_line: str) -> Reason:
    """Finds out who holds the lock that a line of the worker waits for."""
    if observation.holds:
        return _explain_held_lock(MAIN, observation.holds[0])
    if not worker.locks:
        return _explain_wait_for_other(
            "a lock that another worker, thread or process holds"
        )
    lock = _choose_lock(worker, user_line)
    threads = [
        f"{thread['name']} (at {thread['place']})" for thread in worker.threads[:3]
    ]
    holder = "another thread of the main process"
    if threads:
        holder = f"the main process's thread {' and '.join(threads)}"
    if lock["kind"].startswith("multiprocessing"):
        return _explain_held_lock(holder, lock["path"])
    worker_lock = lock["path"].replace("dataset", "get_worker_info().dataset", 1)
    return Reason(
        why=f"{lock['path']} was held by {holder} when the worker was forked. "
        "The worker's copy stays locked: it has no such thread",
        change=f"in worker_init_fn, {worker_lock} = {lock['kind']}(); "
        "or stop this thread before the loop starts its workers",
        section=1,
    )


def _choose_lock(worker: Worker, user_line: str) -> dict[str, Any]:
    """Chooses the lock that a source line names from those held at the fork, else the first."""
    for lock in worker.locks:
        _, _, name = lock["path"].rpartition(".")
        if name in user_line:
            return lock
    return worker.locks[0]


def _explain_held_lock(holder: str, lock: str) -> Reason:
    """A lock of multiprocessing, which is one and the same in all processes."""
    return Reason(
        why=f"{holder} held {lock}, which all processes share, when the worker was forked",
        change="release it before the loop asks for a batch, "
        "and never hold it while you wait for one",
        section=1,
    )
