"""Turns a packed dataset into a Markdown table of what decoding at reduced size does to the pixels.

    python bench/reduced_pixels.py DATA [--sizes 224 128 64] [--epochs 8]

Loads the same random-resized crops with exact=True and with exact=False and compares them value by value. Only those
that were decoded at 1/2, 1/4 or 1/8 count; a crop is where it is at least twice the output in both directions.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fastpipe
from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import RandomResizedCrop


def reduced(data: fastpipe.Dataset, size: int, epoch: int) -> NDArray[np.bool_]:
    """Which samples' crops are decoded at reduced size."""
    samples = np.arange(len(data))
    sides = data["width"][:], data["height"][:]
    crops = plan_crops(
        RandomResizedCrop(), (size, size), *sides, seed=0, epoch=epoch, samples=samples
    )
    return np.asarray((crops.boxes[:, 2:] >= 2 * size).all(axis=1))


def rows(data: fastpipe.Dataset, size: int, epochs: int, *, exact: bool) -> NDArray[np.uint8]:
    """All samples of some epochs in shard order: (epochs * samples, size, size, 3)."""
    with fastpipe.loader(
        data, 64, size=size, shuffle=False, drop_last=False, hflip=0, exact=exact
    ) as loader:
        return np.concatenate(
            [images.permute(0, 2, 3, 1).numpy() for _ in range(epochs) for images, _ in loader],
            dtype=np.uint8,
        )


def table_row(data: fastpipe.Dataset, size: int, epochs: int) -> str:
    """One line of the table."""
    changed = np.concatenate([reduced(data, size, epoch) for epoch in range(epochs)])
    share = f"| {size} | {changed.mean():.1%} |"
    if not changed.any():
        return share + " - | - | - | - |"
    apart = np.abs(
        rows(data, size, epochs, exact=True)[changed].astype(np.int16)
        - rows(data, size, epochs, exact=False)[changed]
    )
    psnr = 10 * np.log10(255**2 / np.mean(apart.astype(np.float64) ** 2, axis=(1, 2, 3)).clip(1e-9))
    return f"{share} {apart.mean():.2f} | {np.percentile(apart, 99):.0f} | {np.median(psnr):.1f} | {psnr.min():.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How decoding at reduced size changes the pixels.")
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a folder that `fastpipe pack` wrote"
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[224, 128, 64], help="output sizes in pixels"
    )
    parser.add_argument(
        "--epochs", type=int, default=8, help="number of crops of each photo (default 8)"
    )
    arguments = parser.parse_args()
    data = fastpipe.open(arguments.data)
    out = sys.stdout
    out.write(
        "| output | crops reduced | mean difference | 99th percentile | median PSNR, dB | lowest PSNR, dB |\n"
    )
    out.write("|---|---|---|---|---|---|\n")
    for size in arguments.sizes:
        out.write(table_row(data, size, arguments.epochs) + "\n")


if __name__ == "__main__":
    main()
