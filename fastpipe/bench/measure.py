"""A task and its contenders -> medians and ratios, measured in turn, each time in a fresh process; without torch, which
only the measured processes need.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from fastpipe.errors import FastpipeError

_GRACE_S = 120.0
NAMES = {"fastpipe": "fastpipe", "torch-pil": "DataLoader, PIL", "torch-cv2": "DataLoader, turbo, cv2"}
GROUPS = {"torch": ("torch-pil", "torch-cv2")}


@dataclass(frozen=True)
class Task:
    """What is measured: a dataset, and how its batches are made."""

    data: str
    batch_size: int
    workers: int  # threads, or processes
    size: int  # of the output in pixels, square
    seed: int = 0


@dataclass(frozen=True)
class Figures:
    """What one process did, with its workers; times of stages are fastpipe's only."""

    images_per_s: float  # after the warm-up
    first_batch_s: float  # from asking for the loader to its first batch; imports excluded
    cpus: float | None  # CPUs' worth of work, user and system
    memory_mb: float | None  # proportional set size at the end; shared pages count once
    read_us: float | None = None  # of a thread, for an image
    decode_us: float | None = None
    resize_us: float | None = None
    plan_us: float | None = None  # of the main thread, for an image: planning and handing over


@dataclass(frozen=True)
class Result:
    """One contender's figures over all repeats."""

    contender: str
    median: Figures  # of each figure
    slowest: float  # images/s
    fastest: float
    ratio: float  # fastpipe's images/s by this contender's, median of the pairs measured next to each other


def compare(
    task: Task,
    contenders: Sequence[str],
    *,
    repeats: int,
    seconds: float,
    warmup_s: float = 1.0,
    on_run: Callable[[int, str, Figures], None] = lambda *_: None,
) -> list[Result]:
    """Measures contenders in turn, A B C A B C ..., so that a machine that drifts does so for all of them. The first
    is fastpipe; `on_run` is called after each run with the round, the contender and its figures.
    """
    rounds: list[dict[str, Figures]] = []
    for number in range(repeats):
        rounds.append({})
        for contender in contenders:
            figures = _run_child(contender, task, warmup_s, seconds)
            rounds[-1][contender] = figures
            on_run(number, contender, figures)
    return [_result(contender, rounds) for contender in contenders]


def _result(contender: str, rounds: list[dict[str, Figures]]) -> Result:
    runs = [figures[contender] for figures in rounds]
    medians = {}
    for name in (field.name for field in fields(Figures)):
        values = [getattr(run, name) for run in runs]
        medians[name] = None if None in values else statistics.median(values)
    return Result(
        contender=contender,
        median=Figures(**medians),  # type: ignore[arg-type]
        slowest=min(run.images_per_s for run in runs),
        fastest=max(run.images_per_s for run in runs),
        ratio=statistics.median(
            figures[next(iter(figures))].images_per_s / figures[contender].images_per_s for figures in rounds
        ),
    )


def _run_child(contender: str, task: Task, warmup_s: float, seconds: float) -> Figures:
    order = {"contender": contender, "task": asdict(task), "warmup_s": warmup_s, "seconds": seconds}
    try:
        run = subprocess.run(
            [sys.executable, "-m", "fastpipe.bench.child"],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=10 * (warmup_s + seconds) + _GRACE_S,
        )
    except subprocess.TimeoutExpired as problem:
        raise FastpipeError(
            f"bench: {contender} gave no results within {problem.timeout:.0f} s and may be stuck. Try a smaller "
            "--batch-size or fewer --workers"
        ) from problem
    if run.returncode != 0:
        raise FastpipeError(f"bench: {contender} failed:\n{run.stderr.strip()[-2000:]}")
    return Figures(**json.loads(run.stdout.splitlines()[-1]))
