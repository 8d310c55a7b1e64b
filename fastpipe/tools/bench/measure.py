"""A task and its contenders -> medians and ratios, measured in turn, each time in a fresh process.

It imports no torch: only the measured processes need it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from fastpipe.errors import FastpipeError

_GRACE_S = 120.0  # for imports and the first batch
# The contenders, and their names for people.
NAMES = {
    "fastpipe": "fastpipe",
    "torch-pil": "DataLoader (PIL)",
    "torch-cv2": "DataLoader (turbo, cv2)",
}
GROUPS = {"torch": ("torch-pil", "torch-cv2")}


@dataclass(frozen=True)
class Task:
    """The work that is measured: a dataset, and how its batches are made."""

    data: str
    batch_size: int
    workers: int  # threads, or processes
    size: int  # of the output in pixels, square
    seed: int = 0


@dataclass(frozen=True)
class Figures:
    """Figures of one process with its workers. Only fastpipe has times of stages."""

    images_per_s: float  # after the warm-up
    # From asking for the loader to its first batch; imports excluded.
    first_batch_s: float
    cpus: float | None  # CPUs' worth of work, user and system
    memory_mb: float | None  # proportional set size at the end; shared pages count once
    read_us: float | None = None  # of a thread, for an image
    decode_us: float | None = None
    resize_us: float | None = None
    # Of the main thread, for an image: planning and handing over.
    plan_us: float | None = None


@dataclass(frozen=True)
class Result:
    """One contender's figures over all repeats."""

    contender: str
    median: Figures  # of each figure
    slowest: float  # images/s
    fastest: float
    # fastpipe's images/s by this contender's: the median of the pairs measured next to each other
    ratio: float


def compare(
    task: Task,
    contenders: Sequence[str],
    *,
    repeats: int,
    seconds: float,
    warmup_s: float = 1.0,
    on_run: Callable[[int, str, Figures], None] = lambda *_: None,
) -> list[Result]:
    """Measures contenders in turn, A B C A B C ..., so that a machine drifts for all of them.

    Args:
        task: the work.
        contenders: the first is fastpipe.
        repeats: number of rounds.
        seconds: of each measurement.
        warmup_s: before each measurement.
        on_run: called after each run with the round, the contender and its figures.
    """
    rounds: list[dict[str, Figures]] = []
    for number in range(repeats):
        by_contender: dict[str, Figures] = {}
        for contender in contenders:
            figures = _run_child(contender, task, warmup_s, seconds)
            by_contender[contender] = figures
            on_run(number, contender, figures)
        rounds.append(by_contender)
    return [_summarize(contender, contenders[0], rounds) for contender in contenders]


def _summarize(contender: str, first: str, rounds: list[dict[str, Figures]]) -> Result:
    """Summarizes the rounds of a contender, compared with the first one."""
    runs = [by_contender[contender] for by_contender in rounds]
    speeds = [run.images_per_s for run in runs]
    # Pairs of one round were measured next to each other, so a drift of the machine cancels out.
    ratios = []
    for by_contender in rounds:
        ratio = by_contender[first].images_per_s / by_contender[contender].images_per_s
        ratios.append(ratio)
    return Result(
        contender=contender,
        median=_take_medians(runs),
        slowest=min(speeds),
        fastest=max(speeds),
        ratio=statistics.median(ratios),
    )


def _take_medians(runs: list[Figures]) -> Figures:
    """Takes the median of each figure; None if a run has none."""
    medians: dict[str, float | None] = {}
    for field in fields(Figures):
        values = [getattr(run, field.name) for run in runs]
        medians[field.name] = None if None in values else statistics.median(values)
    return Figures(**medians)  # type: ignore[arg-type]


def _run_child(contender: str, task: Task, warmup_s: float, seconds: float) -> Figures:
    """Measures a contender in a fresh process."""
    order = {
        "contender": contender,
        "task": asdict(task),
        "warmup_s": warmup_s,
        "seconds": seconds,
    }
    try:
        run = subprocess.run(
            [sys.executable, "-m", "fastpipe.tools.bench.child"],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=10 * (warmup_s + seconds) + _GRACE_S,
        )
    except subprocess.TimeoutExpired as problem:
        raise FastpipeError(
            f"bench: {contender} gave no results within {problem.timeout:.0f} s and may be stuck. "
            "Try a smaller --batch-size or fewer --workers"
        ) from problem
    if run.returncode != 0:
        raise FastpipeError(f"bench: {contender} failed:\n{run.stderr.strip()[-2000:]}")
    # Libraries may print lines of their own before.
    last_line = run.stdout.splitlines()[-1]
    return Figures(**json.loads(last_line))
