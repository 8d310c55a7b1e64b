"""torch's DataLoader over torchvision's ImageFolder with several crops of each photo, as DINO's own program makes them.

    python torchvision_views.py PHOTOS --views 224:0.4:1.0:2 96:0.05:0.4:6 [--workers 2]

A view is SIZE:LEAST_AREA:MOST_AREA:COUNT. Prints the seconds a photo, of an epoch after a first one: by the clock with
workers; without workers the CPU time, so without the time that moving batches between processes takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from import_torchvision import torchvision
from torch.utils.data import DataLoader
from torchvision.transforms import Compose, PILToTensor, RandomHorizontalFlip, RandomResizedCrop

BATCH_SIZE = 64


def crops(views: list[str]) -> Callable[[Any], list[torch.Tensor]]:
    """A transform that gives a list of crops."""
    made = []
    for size, least, most, count in (view.split(":") for view in views):
        scale = float(least), float(most)
        one = Compose([RandomResizedCrop(int(size), scale), RandomHorizontalFlip(), PILToTensor()])
        made += [one] * int(count)
    return lambda photo: [each(photo) for each in made]


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument("--views", nargs="+", required=True)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    photos = torchvision.datasets.ImageFolder(str(arguments.photos), crops(arguments.views))
    workers = arguments.workers
    loader = DataLoader(
        photos, BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    now = time.perf_counter if workers else time.process_time
    epochs_s = []
    for _ in range(2):
        started = now()
        for _ in loader:
            pass
        epochs_s.append(now() - started)
    sys.stdout.write(f"{epochs_s[-1] / len(photos)}\n")


if __name__ == "__main__":
    main()
