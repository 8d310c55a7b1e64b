"""A loader that gives no more batches -> the stacks of its processes, and the stuck one."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fastpipe.diagnosis.findings import Code, Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import read_state
from fastpipe.diagnosis.observation import WITHOUT_WORKERS, Observation, Worker
from fastpipe.diagnosis.processes import (
    THIS_PROCESS,
    list_children,
    read_command_line,
    read_parent,
)
from fastpipe.diagnosis.stacks import Stack, read_stack
from fastpipe.diagnosis.stuck_reasons import MAIN, Reason, find_reason
from fastpipe.errors import format_count

SILENT = "a worker that has not started"
# The stages of a process at which it can hang -> the user's function that runs then.
_FUNCTIONS = {
    "worker_init_fn": "worker_init_fn",
    "iter(dataset)": "iter(dataset)",
    "dataset": "dataset",
    "collate": "collate_fn",
}
_ADVISED_TIMEOUT_S = 120


@dataclass(frozen=True)
class BusyWorker:
    """A worker that is making a batch, or was when it ended."""

    worker: Worker
    stage: str
    sample: str  # that it reads; "" at other stages
    busy_s: float  # how long it has been at this


def collect_stacks(
    observation: Observation, folder: Path, worker_pids: Collection[int] | None = None
) -> list[Stack]:
    """Reads the stacks of the process that iterates and of its workers, started or not.

    Args:
        observation: what was seen of the loader.
        folder: the folder of the probe's files.
        worker_pids: the processes of this loader. None: not known; then all children count that
            look like a worker and have not written a file, which would make them another loader's.
    """
    main_pid = int(observation.facts["pid"])
    started = {
        worker.pid: worker
        for worker in observation.workers
        if worker.number != WITHOUT_WORKERS
    }
    pids_with_files = set()
    for path in folder.glob("worker-*.jsonl"):
        _, _, pid_text = path.stem.rpartition("-")
        pids_with_files.add(int(pid_text))

    stacks = [read_stack(main_pid, MAIN, folder)]
    for pid in list_children(main_pid):
        if pid in started:
            name = f"worker {started[pid].number}"
            stacks.append(read_stack(pid, name, folder))
            continue
        if worker_pids is not None:
            is_silent_worker = pid in worker_pids
        else:
            is_silent_worker = pid not in pids_with_files and _may_be_worker(
                pid, main_pid
            )
        if is_silent_worker:
            stacks.append(read_stack(pid, SILENT, folder))
    return stacks


def _may_be_worker(pid: int, main_pid: int) -> bool:
    """Whether a process looks like a worker: forked, or started by multiprocessing."""
    command = read_command_line(pid)
    if b"resource_tracker" in command:
        return False
    if b"multiprocessing.forkserver" in command:
        # The server itself is a child of the main process.
        return read_parent(pid) != main_pid
    if b"multiprocessing.spawn" in command:
        return True
    return command != b"" and command == read_command_line(main_pid)


def list_busy_workers(observation: Observation, folder: Path) -> list[BusyWorker]:
    """Lists the workers that are making a batch, the longest first."""
    busy = []
    for worker in observation.workers:
        pattern = f"worker-*-{worker.number}-{worker.pid}.state"
        for path in folder.glob(pattern):
            state = read_state(str(path))
            if state is None or state.stage not in _FUNCTIONS:
                continue
            busy_s = time.monotonic() - state.since_s
            busy.append(BusyWorker(worker, state.stage, state.sample, busy_s))
    return sorted(busy, key=lambda entry: -entry.busy_s)


def explain_stall(
    observation: Observation,
    folder: Path,
    stacks: list[Stack],
    waited_s: float,
    *,
    in_step: bool = False,
) -> Finding:
    """Finds the process that holds the loader up, where it hangs, and why.

    Args:
        observation: what was seen of the loader.
        folder: the folder of the probe's files.
        stacks: those of its processes.
        waited_s: seconds since the last batch.
        in_step: the loop itself hangs in its step, and requests no batch.
    """
    headline = _describe_wait(observation, waited_s)
    by_pid = {stack.pid: stack for stack in stacks}
    main = by_pid.get(int(observation.facts["pid"]))
    if in_step:
        return _report_stuck_step(observation, headline, main, waited_s)
    freeing = _find_freeing(observation, stacks)
    if freeing is not None:
        return _report_stuck_freeing(observation, headline, freeing)
    # A worker whose process is gone has no stack.
    busy = [
        entry
        for entry in list_busy_workers(observation, folder)
        if entry.worker.pid in by_pid
    ]
    if busy:
        return _report_stuck_worker(
            observation, headline, busy, by_pid[busy[0].worker.pid]
        )
    silent = [stack for stack in stacks if stack.role == SILENT]
    if observation.num_workers and silent:
        return _report_stuck_start(observation, headline, silent)
    return _report_lost_batch(observation, headline, main)


def _describe_wait(observation: Observation, waited_s: float) -> str:
    text = f"no batch for {waited_s:.0f} s"
    if observation.batches:
        text += f", after {format_count(len(observation.batches), 'batch')}"
    return text


def _find_freeing(observation: Observation, stacks: list[Stack]) -> Stack | None:
    """Finds a forked worker that sleeps in its garbage collector: it waits in a destructor."""
    if observation.facts["method"] != "fork":
        return None
    for stack in stacks:
        is_collecting = "Garbage-collecting" in stack.text  # faulthandler's word
        if stack.role != MAIN and is_collecting and stack.status.startswith("S:"):
            return stack
    return None


def _report_stuck_step(
    observation: Observation, headline: str, main: Stack | None, waited_s: float
) -> Finding:
    symptom = f"no batch was asked for in {waited_s:.0f} s"
    if observation.batches:
        symptom += f", after {format_count(len(observation.batches), 'batch')}"
    symptom += f": the main process is in {_describe_line(main)}"
    symptom += f"{_describe_inner(main)}{_describe_kernel(main)}"
    reason = Reason(
        why="the program waits in this line, not for the loader; "
        "ranks that get one batch less leave the others waiting so",
        change="see what this line waits for; give each rank the same number of batches: "
        "DistributedSampler, or drop_last=True",
        section=17,
    )
    return _make_finding(observation, main, headline, symptom, reason)


def _report_stuck_freeing(
    observation: Observation, headline: str, stack: Stack
) -> Finding:
    symptom = (
        f"{headline}: {stack.role} (pid {stack.pid}) frees garbage, which does not end; "
        f"the kernel says {stack.status}"
    )
    reason = Reason(
        why="to free an object of the main process (DistributedDataParallel, a pool), "
        "it waits for threads it does not have",
        change="gc.collect() before the loop starts workers; "
        'or DataLoader(..., multiprocessing_context="forkserver")',
        section=1,
    )
    return _make_finding(observation, stack, headline, symptom, reason)


def _report_stuck_worker(
    observation: Observation, headline: str, busy: list[BusyWorker], stack: Stack
) -> Finding:
    """`stack` is that of the first busy worker, which is at its batch for the longest time."""
    first = busy[0]
    description = _describe_busy(first, stack, other_count=len(busy) - 1)
    symptom = f"{headline}: {description}"
    reason = find_reason(observation, first.worker, first.stage, stack)
    reason = _advise_timeout(observation, reason)
    return _make_finding(observation, stack, headline, symptom, reason)


def _report_stuck_start(
    observation: Observation, headline: str, silent: list[Stack]
) -> Finding:
    """Workers that have not come as far as worker_init_fn."""
    method = observation.facts["method"]
    first = silent[0]
    symptom = (
        f"{headline}: {format_count(len(silent), 'worker')} started by {method} did not reach "
        f"worker_init_fn (process {first.pid}"
    )
    if first.line is not None:
        symptom += f", in {first.line}"
    symptom += f"){_describe_kernel(first)}"
    if method == "fork":
        reason = Reason(
            why="a forked worker inherits locks that no thread will release",
            change="start threads, and use libraries that have some, "
            "only after the loop has started its workers",
            section=1,
        )
    else:
        reason = Reason(
            why="such a worker first imports the main script and unpickles the dataset",
            change='put the script under if __name__ == "__main__":, '
            "and look at what the dataset does when it is unpickled",
            section=10,
        )
    return _make_finding(observation, first, headline, symptom, reason)


def _report_lost_batch(
    observation: Observation, headline: str, main: Stack | None
) -> Finding:
    """No process is at work."""
    symptom = f"{headline}: no worker is working"
    if main is not None and main.line is not None:
        symptom += f"; the main process is in {main.line}"
    reason = Reason(
        why="a batch was lost between a worker and the main process, "
        "or the sampler does not return",
        change="read the stacks below",
        section=13,
    )
    return _make_finding(observation, main, headline, symptom, reason)


def _make_finding(
    observation: Observation,
    stack: Stack | None,
    headline: str,
    symptom: str,
    reason: Reason,
) -> Finding:
    where = observation.made_at
    if stack is not None and stack.user_frame is not None:
        where = stack.user_frame.place
    return Finding(
        Code.STUCK,
        where,
        what=symptom,
        why=reason.why,
        change=reason.change,
        section=reason.section,
        severity=Severity.STUCK,
        headline=headline,
    )


def _advise_timeout(observation: Observation, reason: Reason) -> Reason:
    """Adds the advice to set a timeout, if the loader can have one and has none."""
    if observation.num_workers == 0 or observation.facts["timeout"]:
        return reason
    change = (
        f"{reason.change}; "
        f"DataLoader(..., timeout={_ADVISED_TIMEOUT_S}) turns the wait into an error"
    )
    return Reason(reason.why, change, reason.section)


def _describe_busy(busy: BusyWorker, stack: Stack, other_count: int) -> str:
    """Says where a worker hangs, for how long, and how many others do."""
    number = busy.worker.number
    process = MAIN if number == WITHOUT_WORKERS else f"worker {number}"
    text = f"{process} (pid {stack.pid}) is "
    if busy.stage == "dataset":
        text += f"at sample {busy.sample}"
    else:
        text += f"in {_FUNCTIONS[busy.stage]}"
    if stack.line is not None:
        text += f", in {stack.line}"
    text += f"{_describe_inner(stack)}, for {busy.busy_s:.0f} s"
    if other_count:
        text += f"; {format_count(other_count, 'more worker')} at work or waiting"
    return text + _describe_kernel(stack)


def _describe_line(stack: Stack | None) -> str:
    if stack is None or stack.line is None:
        return "an unknown line"
    return str(stack.line)


def _describe_inner(stack: Stack | None) -> str:
    """Names the innermost function, if that is not the user's own line."""
    if stack is None or not stack.working or stack.working[0] == stack.line:
        return ""
    return f", inside of {stack.working[0]}"


def _describe_kernel(stack: Stack | None) -> str:
    if stack is None or stack.status == THIS_PROCESS:
        return ""
    return f"; the kernel says {stack.status}"
