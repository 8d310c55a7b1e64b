"""A loader that gives no more batches -> the stacks of all its processes, and which process is stuck."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import read_state
from fastpipe.diagnosis.inject.fastpipe_probe.own import is_own
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation, Worker
from fastpipe.diagnosis.stacks import Stack, children, command_line, parent, stack_of
from fastpipe.diagnosis.waits import Wait, wait_of
from fastpipe.diagnosis.words import count

SILENT = "a worker that has not started"
_BUSY = ("worker_init_fn", "iter(dataset)", "dataset", "collate")


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
    head = f"no batch for {waited_s:.0f} s"
    if seen.batches:
        head += f", after {count(len(seen.batches), 'batch')}"
    by_pid = {stack.pid: stack for stack in found}
    workers = _longest(seen, folder, by_pid)
    if workers:
        worker, stage, sample, seconds = workers[0]
        return _at_work(seen, head, worker, stage, sample, seconds, by_pid[worker.pid], len(workers))
    silent = [stack for stack in found if stack.role == SILENT]
    if seen.num_workers and silent:
        return _not_begun(seen, head, silent)
    main = by_pid.get(int(seen.facts["pid"]))
    inside = f"; the main process is in {main.innermost}" if main and main.innermost else ""
    return Finding(
        "stuck",
        Severity.STUCK,
        f"{head}: no worker is working{inside}",
        "a batch was lost between a worker and the main process, or the sampler does not return",
        "read the stacks below",
        _where(main) or seen.made_at,
        13,
    )


def _longest(seen: Observation, folder: Path, by_pid: dict[int, Stack]) -> list[tuple[Worker, str, str, float]]:
    """The workers that are at something: stage, sample, for how many seconds; the longest first."""
    found = []
    for worker in seen.workers:
        state = read_state(str(folder / f"worker-{seen.key}-{worker.number}-{worker.pid}.state"))
        if state is not None and worker.pid in by_pid and state[1] in _BUSY:
            found.append((worker, state[1], state[2], time.monotonic() - state[0]))
    return sorted(found, key=lambda each: -each[3])


def _at_work(
    seen: Observation, head: str, worker: Worker, stage: str, sample: str, seconds: float, stack: Stack, many: int
) -> Finding:
    who = "the main process" if worker.number == WITHOUT_WORKERS else f"worker {worker.number}"
    at = {"dataset": f"at sample {sample}", "collate": "in collate_fn"}.get(stage, f"in {stage}")
    where = stack.users or stack.innermost
    line = f", in {where}" if where else ""
    if stack.innermost and where != stack.innermost:
        line += f", inside of {stack.innermost}"
    others = f"; {count(many - 1, 'more worker')} at work" if many > 1 else ""
    text = f"{head}: {who} (pid {worker.pid}) is {at}{line}, for {seconds:.0f} s{others}{_kernel(stack)}"
    timeout = (
        ""
        if seen.facts["timeout"] or not seen.num_workers
        else ("; DataLoader(..., timeout=120) turns the wait into an error")
    )
    wait = _wait(seen, worker, stage, stack)
    return Finding(
        "stuck", Severity.STUCK, text, wait.why, wait.change + timeout, _where(stack) or seen.made_at, wait.section
    )


def _wait(seen: Observation, worker: Worker, stage: str, stack: Stack) -> Wait:
    """Why it does not go on."""
    forked = bool(seen.num_workers) and seen.facts["method"] == "fork"
    if stack.status.startswith("D"):
        return Wait(
            "the disk or the network does not answer", "check the disk or the mount; copy the data to a local disk", 13
        )
    if (wait := wait_of(seen, worker, stack)) is not None:
        return wait
    if stage != "dataset":
        return Wait("a call that does not return there blocks the whole worker", "check this line", 1)
    why = "a sample that never comes blocks its own batch and all later batches"
    change = "give the call at this line a timeout, and leave out such samples"
    if forked and "futex" in stack.status:
        why += "; it waits for a lock, perhaps of a library (OpenMP, OpenCV) whose threads do not exist after a fork"
        if not seen.facts["locks"] and not seen.facts["unpicklable"]:  # else pickle would refuse the dataset
            change += '; for such a library: multiprocessing_context="forkserver"'
        return Wait(why, change, 1)
    return Wait(why, change, 13)


def _not_begun(seen: Observation, head: str, silent: list[Stack]) -> Finding:
    first = silent[0]
    inside = f"in {first.users or first.innermost}" if first.innermost else "without a Python stack"
    return Finding(
        "stuck",
        Severity.STUCK,
        f"{head}: {count(len(silent), 'worker')} started by {seen.facts['method']} did not reach worker_init_fn; "
        f"process {first.pid} is {inside}{_kernel(first)}",
        "a forked worker inherits locks that no thread will release"
        if seen.facts["method"] == "fork"
        else "such a worker first imports the main script and unpickles the dataset",
        "start threads, and use libraries that have some, only after the loop has started its workers"
        if seen.facts["method"] == "fork"
        else 'put the script under if __name__ == "__main__":, and look at what the dataset does when it is unpickled',
        _where(first) or seen.made_at,
        1 if seen.facts["method"] == "fork" else 10,
    )


def _kernel(stack: Stack) -> str:
    return "" if stack.status == "this process" else f"; the kernel says {stack.status}"


def _where(stack: Stack | None) -> str:
    frame = None if stack is None else stack.users or stack.innermost
    return "" if frame is None or not is_own(frame.file) else f"{frame.file}:{frame.line}"
