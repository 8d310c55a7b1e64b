"""examples/train_demo.py with fastpipe and with DataLoader + torchvision -> a table of the accuracies reached.

    .venv/bin/python -m bench.accuracy [FOLDER] [--seeds 5] [--test 1000]

Both are given the same photos, crops of the same law, mirroring, batch size and epochs. fastpipe reads them packed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import fastpipe
from bench.peers.import_torchvision import (
    Compose,
    PILToTensor,
    RandomHorizontalFlip,
    RandomResizedCrop,
    torchvision,
)
from fastpipe.tools.demo.photos import write_photos

sys.path.append(str(Path(__file__).parents[1] / "examples"))

import train_demo

_LEARN = 1000
_PHOTO_SCALE = 0.35  # the network sees 48 pixels of them, and they take a quarter of the time
_WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains all networks, one after the other, and prints the table."""
    parser = _arguments()
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error(f"--seeds: expected at least 2, for the standard error, got {options.seeds}")
    packed = {
        "learn": _packed(options.folder / "learn", options.learn, seed=0),
        "test": _packed(options.folder / "test", options.test, seed=1),
    }
    shares: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for seed in range(options.seeds):
        for name, train in CONTENDERS.items():
            torch.manual_seed(seed)
            shares[name].append(train(packed["learn"], packed["test"], seed))
            print(f"seed {seed}, {name}: {100 * shares[name][-1]:.2f} %", flush=True)  # noqa: T201
    sys.stdout.write("\n" + "\n".join(table(shares)) + "\n")


def _packed(folder: Path, count: int, seed: int) -> Path:
    """Makes photos in folder/photos and packs them into folder/packed; what is there already is used again."""
    workers = os.cpu_count() or 1
    write_photos(folder / "photos", count, seed=seed, workers=workers, scale=_PHOTO_SCALE)
    fastpipe.pack(folder / "photos", folder / "packed")
    return folder / "packed"


def with_fastpipe(learn: Path, test: Path, seed: int) -> float:
    """As the example does it."""
    crop = fastpipe.RandomResizedCrop(scale=train_demo.SCALE, ratio=train_demo.RATIO)
    size = train_demo.SIZE
    with (
        fastpipe.loader(learn, train_demo.BATCH_SIZE, size=size, crop=crop, seed=seed) as training,
        fastpipe.loader(test, 100, size=size, crop=fastpipe.Resize(), train=False) as testing,
    ):
        return train_demo.trained(training, testing, len(training.classes))


def with_dataloader(learn: Path, test: Path, seed: int) -> float:
    """The photos that were packed, as torchvision's recipes read them. Draws come from torch's seed."""
    size = train_demo.SIZE
    crop = RandomResizedCrop(size, train_demo.SCALE, train_demo.RATIO)
    resize = torchvision.transforms.Resize((size, size))
    folder = torchvision.datasets.ImageFolder
    photos = folder(learn.parent / "photos", Compose([crop, RandomHorizontalFlip(), PILToTensor()]))
    others = folder(test.parent / "photos", Compose([resize, PILToTensor()]))
    loader = torch.utils.data.DataLoader
    training = loader(
        photos,
        train_demo.BATCH_SIZE,
        shuffle=True,
        drop_last=True,
        num_workers=_WORKERS,
        persistent_workers=True,
    )
    return train_demo.trained(
        training, loader(others, 100, num_workers=_WORKERS), len(photos.classes)
    )


CONTENDERS: dict[str, Callable[[Path, Path, int], float]] = {
    "fastpipe": with_fastpipe,
    "DataLoader + torchvision": with_dataloader,
}


def table(shares: dict[str, list[float]]) -> list[str]:
    """Markdown, in percent: the accuracies of each, their mean and its standard error; the difference of the means."""
    seeds = len(next(iter(shares.values())))
    lines = [
        f"| | {' | '.join(f'seed {seed}' for seed in range(seeds))} | mean |",
        "|---|" + "---:|" * (seeds + 1),
    ]
    for name, values in shares.items():
        each = " | ".join(f"{100 * value:.1f}" for value in values)
        lines.append(
            f"| {name} | {each} | {100 * statistics.mean(values):.2f} ± {100 * error_of(values):.2f} |"
        )
    one, other = shares.values()
    error = (error_of(one) ** 2 + error_of(other) ** 2) ** 0.5
    difference = statistics.mean(one) - statistics.mean(other)
    lines += ["", f"difference {100 * difference:+.2f} ± {100 * error:.2f}"]
    return lines


def error_of(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    return statistics.stdev(values) / len(values) ** 0.5


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy", description="Accuracy with either loader."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("bench-accuracy"), help="for the photos"
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, at least 2 (5)")
    parser.add_argument("--learn", type=int, default=_LEARN, help=f"photos to learn ({_LEARN})")
    parser.add_argument("--test", type=int, default=1000, help="photos to test (1000)")
    return parser


if __name__ == "__main__":
    main()
