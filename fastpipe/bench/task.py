"""What is measured, by whom, and the figures of it; without torch, which only the measured processes need."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

NAMES = {
    "fastpipe": "fastpipe",
    "torch-pil": "DataLoader, PIL",
    "torch-cv2": "DataLoader, turbo, cv2",
}
GROUPS = {"torch": ("torch-pil", "torch-cv2")}


@dataclass(frozen=True)
class Task:
    """What is measured: a dataset, and how its batches are made.

    Attributes:
        data: a packed dataset's folder.
        batch_size: samples a batch.
        workers: threads, or processes.
        size: of the output in pixels, square.
        seed: picks order and crops.
    """

    data: str
    batch_size: int
    workers: int
    size: int
    seed: int = 0


@dataclass(frozen=True)
class Figures:
    """What one process did.

    Attributes:
        images_per_s: after the warm-up.
        first_batch_s: from asking for the loader to its first batch; imports excluded.
        cpus: CPUs' worth of work, user and system, of the process and its workers.
        memory_mb: proportional set size of the process and its workers, in MB, at the end; shared pages count once.
        read_us, decode_us, resize_us: wall time of a thread for an image in each stage of fastpipe's engine; else None.
        plan_us: main thread's time an image for planning and handing over; else None.
    """

    images_per_s: float
    first_batch_s: float
    cpus: float | None
    memory_mb: float | None
    read_us: float | None = None
    decode_us: float | None = None
    resize_us: float | None = None
    plan_us: float | None = None


def missing(contender: str) -> str | None:
    """Why a contender cannot run here; None if it can."""
    if contender == "torch-pil" and importlib.util.find_spec("PIL") is None:
        return "Pillow is not installed (pip install 'fastpipe[bench]')"
    return None


def runnable(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Those of the contenders that can run here, and why each other one cannot."""
    skipped = {name: reason for name in names if (reason := missing(name)) is not None}
    return [name for name in names if name not in skipped], skipped
