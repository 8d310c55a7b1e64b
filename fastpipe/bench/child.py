"""A task on standard input -> one contender's figures on standard output: the process that is measured."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import chain, repeat
from pathlib import Path

from fastpipe.bench.contenders import Batch, fastpipe_loader, torch_batches
from fastpipe.bench.measure import Figures, Task
from fastpipe.errors import FastpipeError

_MIN_BATCHES = 4


def measure(contender: str, task: Task, warmup_s: float, seconds: float) -> Figures:
    """Runs one contender in this process."""
    asked = time.perf_counter()
    ours = fastpipe_loader(task) if contender == "fastpipe" else None
    batches = chain.from_iterable(repeat(ours)) if ours else torch_batches(contender, task)
    next(batches)
    first_batch_s = time.perf_counter() - asked
    _run(batches, warmup_s)

    before, cpu_before = ours.stats() if ours else None, _of_all(_cpu_seconds)
    images, took = _run(batches, seconds)
    cpu_after, after = _of_all(_cpu_seconds), ours.stats() if ours else None
    figures = Figures(
        images_per_s=images / took,
        first_batch_s=first_batch_s,
        cpus=None if cpu_before is None or cpu_after is None else (cpu_after - cpu_before) / took,
        memory_mb=_of_all(_memory_mb),
    )
    if ours is None or before is None or after is None:
        return figures
    decoded = after.images_decoded - before.images_decoded
    ours.close()
    return replace(
        figures,
        read_us=1e6 * (after.read_s - before.read_s) / decoded,
        decode_us=1e6 * (after.decode_s - before.decode_s) / decoded,
        resize_us=1e6 * (after.resize_s - before.resize_s) / decoded,
        plan_us=1e6 * (after.plan_s - before.plan_s) / (after.samples - before.samples),
    )


def _run(batches: Iterator[Batch], seconds: float) -> tuple[int, float]:
    """Takes batches for about `seconds`; returns images and the seconds they took."""
    started = time.perf_counter()
    images = count = 0
    while True:
        images += len(next(batches)[1])
        count += 1
        took = time.perf_counter() - started
        if took >= seconds and count >= _MIN_BATCHES:
            return images, took


def _of_all(of: Callable[[Path], float]) -> float | None:
    """The sum over this process and its children; None where /proc is not Linux's."""
    processes = [os.getpid()]
    try:
        for process in processes:
            for task in Path(f"/proc/{process}/task").glob("*/children"):
                processes.extend(map(int, task.read_text().split()))
        return sum(of(Path(f"/proc/{process}")) for process in processes)
    except (OSError, IndexError, ValueError):
        return None


def _cpu_seconds(process: Path) -> float:
    """User and system time so far."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(process: Path) -> float:
    lines = (process / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def main() -> None:
    """Reads the order, measures, and ends without waiting for worker processes that have batches left to send."""
    order = json.load(sys.stdin)
    try:
        figures = measure(order["contender"], Task(**order["task"]), order["warmup_s"], order["seconds"])
    except FastpipeError as problem:
        sys.exit(str(problem))
    sys.stdout.write(json.dumps(asdict(figures)) + "\n")


if __name__ == "__main__":
    main()
