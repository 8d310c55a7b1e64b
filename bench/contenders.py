"""Loaders in one process that take turns -> a table of their medians."""

from __future__ import annotations

import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import fastpipe


class Result(NamedTuple):
    """Of one round: items (arrays or pictures) a second, and CPU microseconds an item."""

    items_per_s: float
    cpu_us: float


def pack_copies(photos: Path, folder: Path, copies: int) -> list[Path]:
    """Packs the photos so often into FOLDER/data.

    Returns:
        The paths of the packed files, of which there is a copy each in FOLDER/files.
    """
    originals = sorted(path for path in photos.rglob("*") if path.is_file())
    (folder / "files").mkdir()
    paths = []
    with fastpipe.Writer(folder / "data") as writer:
        for number, original in enumerate(originals * copies):
            path = folder / "files" / f"{number}{original.suffix}"
            shutil.copy(original, path)
            paths.append(path)
            writer.add(original, key=str(number))
    return paths


def print_medians(contenders: Mapping[str, Callable[[], int]], num_rounds: int, items: str) -> None:
    """Runs the contenders in turns, and prints a table. `items`: what they return the number of."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    for _ in range(num_rounds + 1):
        for name, load in contenders.items():
            results[name].append(measure(load))
    sys.stdout.write(f"| | {items} a second | CPU, us each |\n|---|---|---|\n")
    for name, rounds in results.items():
        # The first round fills the page cache.
        rate = statistics.median(result.items_per_s for result in rounds[1:])
        cpu = statistics.median(result.cpu_us for result in rounds[1:])
        sys.stdout.write(f"| {name} | {rate:,.0f} | {cpu:,.0f} |\n")


def measure(count: Callable[[], int]) -> Result:
    """Runs a function that returns how many items it has brought."""
    started = time.perf_counter()
    cpu_before = cpu_seconds()
    items = count()
    seconds = time.perf_counter() - started
    return Result(items / seconds, (cpu_seconds() - cpu_before) / items * 1e6)


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
