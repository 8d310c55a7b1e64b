"""Stacks of processes that hang, made up as faulthandler writes them -> which process holds the loader up, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.workers.made_up import seen

from fastpipe.diagnosis.findings import Finding, Severity
from fastpipe.diagnosis.inject.fastpipe_probe.files import State
from fastpipe.diagnosis.observation import Observation
from fastpipe.diagnosis.stacks import Stack
from fastpipe.diagnosis.stuck import MAIN, SILENT, explain_stall

TRAIN = """def __getitem__(self, number):
    with self.lock:
        return call(number)
"""
LOCK, CALL = 2, 3
WAITING = "S: waiting (for a lock, a pipe, a socket or time), in futex_do_wait"


@pytest.fixture
def train(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def stack(
    pid: int, role: str, *frames: tuple[str, int, str], status: str = WAITING, head: str = ""
) -> Stack:
    """Of a process with one thread; its frames with the innermost first."""
    lines = [f'  File "{file}", line {line} in {function}\n' for file, line, function in frames]
    text = (
        f"{head}Current thread 0x01 (most recent call first):\n{''.join(lines)}" if frames else ""
    )
    return Stack(pid, role, status, 0.1, text)


def stuck(observation: Observation, folder: Path, *others: Stack, **options: Any) -> Finding:
    """With a main process that waits in torch."""
    observation.facts["pid"] = 50
    main = stack(
        50, MAIN, ("/lib/python3.11/queue.py", 180, "get"), ("/home/me/loop.py", 9, "main")
    )
    return explain_stall(observation, folder, [main, *others], 60.0, **options)


def at_work(folder: Path, number: int, pid: int, stage: str, sample: object) -> None:
    State(str(folder / f"worker-1.0-{number}-{pid}.state")).set(stage, sample)


PYTHON = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ((f"{PYTHON}/multiprocessing/queues.py", 91, "put"), "the queue is full"),
        (
            (f"{PYTHON}/multiprocessing/queues.py", 103, "get"),
            "it waits in vain for an item of a queue",
        ),
        (
            (f"{PYTHON}/multiprocessing/connection.py", 9, "poll"),
            "it waits in vain for an answer of another process",
        ),
        ((f"{PYTHON}/multiprocessing/pool.py", 9, "map"), "it waits for a pool of processes"),
        (
            (f"{PYTHON}/multiprocessing/synchronize.py", 95, "__enter__"),
            "it waits in vain for a lock that another",
        ),
        (
            (f"{PYTHON}/multiprocessing/synchronize.py", 9, "wait"),
            "it waits in vain for an event, a condition or",
        ),
        ((f"{PYTHON}/queue.py", 180, "get"), "it waits for another thread, at a queue"),
        ((f"{PYTHON}/concurrent/futures/_base.py", 9, "result"), "it waits for an executor"),
        (
            (f"{PYTHON}/threading.py", 9, "wait"),
            "it waits for another thread, perhaps made in the main process",
        ),
        (
            (f"{PYTHON}/subprocess.py", 9, "wait"),
            "it waits in vain for the end of a program that it has started",
        ),
        ((f"{PYTHON}/socket.py", 9, "readinto"), "it waits in vain for a server's answer"),
        ((f"{PYTHON}/ssl.py", 9, "read"), "it waits in vain for a server's answer"),
        ((f"{PYTHON}/re.py", 9, "match"), "it waits for a lock, perhaps of a library"),
    ],
    ids=lambda value: (
        value[0].rpartition("3.11/")[2] + value[2] if isinstance(value, tuple) else ""
    ),
)
def test_what_a_worker_waits_for(
    frame: tuple[str, int, str], why: str, train: str, tmp_path: Path
) -> None:
    at_work(tmp_path, 1, 101, "dataset", 20)
    worker = stack(
        101,
        "worker 1",
        frame,
        (train, CALL, "__getitem__"),
        (f"{PYTHON}/torch/worker.py", 9, "fetch"),
    )
    found = stuck(seen(), tmp_path, worker)
    assert found.why.startswith(why)
    assert (found.where, found.severity) == (f"{train}:{CALL}", Severity.STUCK)
    inner = f"{frame[2]} ({frame[0]}:{frame[1]})"
    assert found.what == (
        f"no batch for 60 s, after 30 batches: worker 1 (pid 101) is at sample 20, in __getitem__ ({train}:{CALL}), "
        f"inside of {inner}, for 0 s; the kernel says {WAITING}"
    )
    assert found.change.endswith("; DataLoader(..., timeout=120) turns the wait into an error")


def test_who_holds_the_lock(train: str, tmp_path: Path) -> None:
    at_work(tmp_path, 0, 100, "dataset", 3)
    worker = stack(100, "worker 0", (train, LOCK, "__getitem__"))
    assert stuck(seen(), tmp_path, worker).why == (
        "it waits in vain for a lock that another worker, thread or process holds"
    )
    observation = seen()
    observation.workers[0].locks = [
        {"path": "dataset.other", "kind": "threading.Lock", "place": "a"},
        {"path": "dataset.lock", "kind": "threading.Lock", "place": "b"},
    ]
    observation.workers[0].threads = [{"name": "refresher", "place": "cache.py:5"}]
    found = stuck(observation, tmp_path, worker)
    assert found.why.startswith(
        "dataset.lock was held by the main process's thread refresher (at cache.py:5) when"
    )
    assert found.change.startswith(
        "in worker_init_fn, get_worker_info().dataset.lock = threading.Lock(); or stop"
    )
    observation.workers[0].locks[1]["kind"] = "multiprocessing.Lock"
    observation.workers[0].threads = []
    assert stuck(observation, tmp_path, worker).why == (
        "another thread of the main process held dataset.lock, which all processes share, when the worker was forked"
    )
    observation.holds = ["dataset.lock"]
    assert stuck(observation, tmp_path, worker).why.startswith(
        "the main process held dataset.lock, which all"
    )


def test_other_reasons(train: str, tmp_path: Path) -> None:
    lost = stuck(seen(), tmp_path)
    assert lost.what == (
        "no batch for 60 s, after 30 batches: no worker is working; the main process is in main (/home/me/loop.py:9)"
    )
    assert lost.where == "/home/me/loop.py:9"
    step = stuck(seen(), tmp_path, in_step=True)
    assert step.what.startswith(
        "no batch was asked for in 60 s, after 30 batches: the main process is in main ("
    )
    frames = ((train, CALL, "__getitem__"),)
    garbage = stack(100, "worker 0", *frames, head="Garbage-collecting\n")
    freeing = stuck(seen(), tmp_path, garbage)
    assert freeing.what == (
        "no batch for 60 s, after 30 batches: worker 0 (pid 100) frees garbage, which does not end; the kernel says "
        f"{WAITING}"
    )
    assert "gc.collect() before the loop starts workers" in freeing.change
    busy = stack(100, "worker 0", *frames, head="Garbage-collecting\n", status="R: on a CPU")
    assert "frees garbage" not in stuck(seen(), tmp_path, busy).what
    silent = stack(102, SILENT)
    assert stuck(seen(), tmp_path, silent).what.startswith(
        "no batch for 60 s, after 30 batches: 1 worker started by fork did not reach worker_init_fn (process 102); the"
    )
    assert "first imports the main script" in stuck(seen(method="spawn"), tmp_path, silent).why
    at_work(tmp_path, 0, 100, "collate", "[1, 2]")
    disk = stuck(
        seen(), tmp_path, stack(100, "worker 0", *frames, status="D: waiting for the disk")
    )
    assert disk.why == "the disk or the network does not answer"
    assert "is in collate_fn, in __getitem__ (" in disk.what
    call = stuck(seen(timeout=5.0), tmp_path, stack(100, "worker 0", *frames, status="R: on a CPU"))
    assert (
        call.why == "a call that does not return there delays its own batch and all later batches"
    )
    assert "timeout=120" not in call.change, "it has one"
    at_work(tmp_path, 1, 101, "dataset", 7)
    both = stuck(seen(), tmp_path, stack(100, "worker 0", *frames), stack(101, "worker 1", *frames))
    assert "; 1 more worker at work or waiting" in both.what
