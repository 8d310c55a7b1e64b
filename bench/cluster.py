"""Photos -> what packing on Ray costs beside threads, and how it scales.

    python -m bench.cluster PHOTOS [--photos 20000] [--repeats 3] [--work FOLDER]

PHOTOS are repeated to so many files by hard links. Each pack is made with one and with two CPUs, in threads and on a
Ray cluster of this machine, one after the other, so many times; the medians are printed. All processes of a pack have
only these CPUs. CPU seconds are those of this process and all of its descendants: Ray's daemons and workers count. The
start of Ray, up to workers that have imported fastpipe, is told apart.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console

import fastpipe
from fastpipe.packing.cluster import run_tasks, session
from fastpipe.packing.distributed.pack import make_part

CPUS = (1, 2)
say = Console(highlight=False, markup=False, emoji=False, soft_wrap=True).print


def repeated(photos: Path, count: int, folder: Path) -> Path:
    """A folder of classes with so many photos: links to the same files."""
    files = sorted(path for path in photos.rglob("*") if path.is_file())
    for number in range(count):
        source = files[number % len(files)]
        target = folder / f"class-{number % 100:03d}" / f"{number:08d}{source.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
    return folder


def cpu_seconds() -> float:
    """Of this process and all that it has started and that are there."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def imported(_: int) -> str:
    """A task that brings all modules of a pack into a worker."""
    time.sleep(0.5)  # so that each worker gets one
    return make_part.__module__


@contextmanager
def ray(cpus: int) -> Iterator[float]:
    """A cluster of this machine with warm workers; gives the seconds that its start took."""
    started = time.perf_counter()
    with session(workers=cpus):
        list(run_tasks(imported, range(cpus), name=str))
        yield time.perf_counter() - started


@contextmanager
def granted(cpus: int) -> Iterator[None]:
    """This process and those that it starts have so many CPUs, as on machines of that size."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:cpus])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def timed(pack: Callable[[Path], object], work: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a pack."""
    target = work / "packed"
    before, began = cpu_seconds(), time.perf_counter()
    pack(target)
    wall, used = time.perf_counter() - began, cpu_seconds() - before
    shutil.rmtree(target)
    os.sync()
    return wall, used


def compare(source: Path, photos: int, repeats: int, work: Path) -> None:
    """Prints a table of packs."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    starts: list[float] = []
    for _ in range(repeats):
        for cpus in CPUS:
            with granted(cpus):
                made = timed(
                    lambda target, cpus=cpus: fastpipe.pack(source, target, workers=cpus), work
                )
                found.setdefault(("threads", cpus), []).append(made)
                with ray(cpus) as start_s:
                    starts.append(start_s)
                    made = timed(lambda target: fastpipe.pack(source, target, executor="ray"), work)
                found.setdefault(("ray", cpus), []).append(made)
    say(
        f"{photos:,} photos, medians of {repeats}; Ray's start, told apart: {statistics.median(starts):.1f} s"
    )
    say("| packed in | CPUs | seconds | photos/s | CPU seconds |\n|---|---|---|---|---|")
    middle = {
        key: [statistics.median(each) for each in zip(*runs, strict=True)]
        for key, runs in found.items()
    }
    for (kind, cpus), (wall, used) in middle.items():
        say(f"| {kind} | {cpus} | {wall:.1f} | {photos / wall:,.0f} | {used:.1f} |")
    for kind in ("threads", "ray"):
        say(
            f"{kind}: 2 CPUs are {middle[kind, 1][0] / middle[kind, 2][0]:.2f} times as fast as 1 (bar for ray: 1.85)"
        )
    for cpus in CPUS:
        wall, used = (
            ours / theirs - 1
            for ours, theirs in zip(middle["ray", cpus], middle["threads", cpus], strict=True)
        )
        say(
            f"ray on {cpus} CPUs beside threads: {wall:+.1%} time, {used:+.1%} CPU time (bar: +5 %)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--photos", dest="count", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--work", type=Path, help="a folder on the disk of PHOTOS, because of the links"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        work = Path(folder)
        compare(
            repeated(asked.photos, asked.count, work / "source"), asked.count, asked.repeats, work
        )


if __name__ == "__main__":
    main()
