"""The frame that every peer's script runs in: arguments -> its loader, run against the clock -> one JSON line.

A script gives `read(task) -> loader` and, where the peer has a format of its own, `write(making)`:

    python SCRIPT.py write PHOTOS DESTINATION --workers 2
    python SCRIPT.py read DATA --workers 2 --batch-size 128 --size 224 --warmup 2 --seconds 4

`--variant` names one of several ways that a peer has.

A loader is iterated again and again, an epoch each time, and gives uint8 images (N, 3, size, size) and integer labels
(N,).

Epochs of the few photos that are measured are far shorter than real ones, so what an epoch's start costs is left out
for everybody: the clock stands still from an epoch's last batch until the pipeline is in its stride in the next.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """What a loader does.

    Attributes:
        data: photos, or what the peer's `write` made of them.
        workers: threads or processes.
        batch_size: samples a batch.
        size: of the output in pixels, square.
        variant: one of the peer's ways, or "".
    """

    data: Path
    workers: int
    batch_size: int
    size: int
    variant: str


@dataclass(frozen=True)
class Making:
    """What a peer's own format is made of and where; `photos` is a folder with one folder a class."""

    photos: Path
    destination: Path
    workers: int
    variant: str


Loader = Iterable[Sequence[Any]]


def main(
    packages: Sequence[str],
    read: Callable[[Task], Loader],
    write: Callable[[Making], None] | None = None,
    finish: Callable[[], None] = lambda: None,
    device: str = "cpu",
) -> None:
    """Does what the command line says and prints the figures, with the versions of `packages`.

    Its batches lie on `device`. Ends by `finish` and without Python's clean-up: workers that have batches left to send
    need not be waited for.
    """
    order = _arguments().parse_args()
    if order.do == "write":
        assert write is not None, "this peer reads the photos themselves"
        started = time.perf_counter()
        write(Making(order.photos, order.destination, order.workers, order.variant))
        figures = {"seconds": time.perf_counter() - started}
    else:
        task = Task(order.data, order.workers, order.batch_size, order.size, order.variant)
        figures = measure(read, task, order.warmup, order.seconds, device)
    versions = {package: importlib.metadata.version(package) for package in packages}
    sys.stdout.write(
        json.dumps({**figures, "versions": {"Python": platform.python_version(), **versions}})
        + "\n"
    )
    sys.stdout.flush()
    finish()
    os._exit(0)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="do", required=True)
    write = verbs.add_parser("write")
    write.add_argument("photos", type=Path)
    write.add_argument("destination", type=Path)
    read = verbs.add_parser("read")
    read.add_argument("data", type=Path)
    read.add_argument("--batch-size", type=int, default=128)
    read.add_argument("--size", type=int, default=224)
    read.add_argument("--warmup", type=float, default=2.0)
    read.add_argument("--seconds", type=float, default=4.0)
    for verb in (write, read):
        verb.add_argument("--workers", type=int, default=2)
        verb.add_argument("--variant", default="")
    return parser


def measure(
    read: Callable[[Task], Loader], task: Task, warmup_s: float, seconds: float, device: str = "cpu"
) -> dict[str, float | None]:
    """Runs a loader for `warmup_s` and then for `seconds`, epoch after epoch, and returns its figures.

    The clock runs between batches of one epoch, from number 2 x workers on: as many are in the works when a DataLoader
    starts. It is read only after whole rounds of the workers, since theirs come out together.
    """
    started = time.perf_counter()
    images, took, first_batch_s, cpu_s = 0, 0.0, 0.0, None
    loader = read(task)
    while True:
        before, number = None, -1
        for number, (pictures, labels) in enumerate(loader):
            now = time.perf_counter()
            if not first_batch_s:
                first_batch_s = now - started
                _check(pictures, labels, task, device)
            if (
                (number + 1) % task.workers
                or number + 1 < 2 * task.workers
                or now - started - first_batch_s < warmup_s
            ):
                continue
            if before is not None:
                images += task.workers * task.batch_size
                took += now - before
            elif cpu_s is None:
                cpu_s, wall = _cpu_seconds(), now
            before = now
            if took >= seconds:
                return {
                    "images_per_s": images / took,
                    "first_batch_s": first_batch_s,
                    "cpus": (_cpu_seconds() - cpu_s) / (now - wall),
                    "memory_mb": _memory_mb(),
                }
        if number + 1 < 3 * task.workers:
            raise SystemExit(
                f"expected at least {3 * task.workers} batches an epoch, the first {2 * task.workers} not measured; "
                f"got {number + 1}; raise --samples"
            )


def _check(pictures: Any, labels: Any, task: Task, device: str) -> None:
    """All do the same task, or the comparison says nothing."""
    shape, kind = tuple(pictures.shape), str(pictures.dtype)
    expected = task.batch_size, 1 if task.variant == "gray" else 3, task.size, task.size
    if shape != expected or not kind.endswith("uint8") or pictures.device.type != device:
        count, *sides = expected
        raise SystemExit(
            f"expected a batch of {count} uint8 pictures of {' x '.join(map(str, sides))}, got {kind} {shape}"
        )
    if labels.numel() != task.batch_size or labels.is_floating_point():
        raise SystemExit(
            f"expected {task.batch_size} integer labels, got {labels.dtype} {tuple(labels.shape)}"
        )


def _processes() -> list[int]:
    """This process and its children."""
    found = [os.getpid()]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            found.extend(int(child) for child in task.read_text().split())
    return found


def _cpu_seconds() -> float:
    """User and system time of this process and its children so far."""
    ticks = 0
    for process in _processes():
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory_mb() -> float:
    """Proportional share of memory that is not a file's: a mapped dataset is page cache, which everyone's is."""
    kilobytes = 0
    for process in _processes():
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                kilobytes += int(line.split()[1])
    return kilobytes / 1e3


def photo_files(photos: Path) -> list[tuple[str, int]]:
    """Path and class number of every photo, as torchvision's ImageFolder lists them."""
    classes = sorted(entry for entry in photos.iterdir() if entry.is_dir())
    return [
        (str(path), label)
        for label, folder in enumerate(classes)
        for path in sorted(folder.iterdir())
    ]
