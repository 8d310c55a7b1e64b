"""Turns a folder of photos into a Markdown table: what both storages cost to pack, to keep and to load.

    python bench/storage.py PHOTOS [--rounds 15] [--threads 2]

The folder is packed with `--storage jpeg` and with `--storage coefficients`. Both are loaded in turn (random-resized
crops to 224 x 224, batches of 64, in the page cache): an epoch each to warm up, then an epoch a round; and packed in
turn, three times. Time is CPU time of all threads, which other work on the machine disturbs less than the clock;
medians. Ratios are those of medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fastpipe
from fastpipe.engine.engine import read_engine_facts

STORAGES = ("jpeg", "coefficients")
PACKS = 3


def cpu_s(work: Callable[..., object], *arguments: object, **options: object) -> float:
    """CPU seconds of all threads in one call."""
    started = time.process_time()
    work(*arguments, **options)
    return time.process_time() - started


def epoch(loader: fastpipe.Loader) -> None:
    """Takes all batches."""
    for _ in loader:
        pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What each storage costs.")
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument(
        "--rounds", type=int, default=15, help="epochs of each storage (default 15)"
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of the loader and of the pack (default 2)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastpipe-storage-") as work:
        packs: dict[str, list[float]] = {name: [] for name in STORAGES}
        for number, name in itertools.product(range(PACKS), STORAGES):
            destination = Path(work, f"{name}-{number}")
            options = {"storage": name, "workers": arguments.threads}
            packs[name].append(cpu_s(fastpipe.pack, arguments.folder, destination, **options))
        loaders = {name: fastpipe.loader(Path(work, f"{name}-0"), 64, size=224, num_workers=arguments.threads)
                   for name in STORAGES}  # fmt: skip
        took: dict[str, list[float]] = {name: [] for name in STORAGES}
        for number, name in itertools.product(range(-1, arguments.rounds), STORAGES):
            seconds = cpu_s(epoch, loaders[name])
            if number >= 0:
                took[name].append(seconds / (len(loaders[name]) * 64))
        index = {name: fastpipe.open(Path(work, f"{name}-0")).index for name in STORAGES}
        source = index["jpeg"].info["packs"][0]["source"]["bytes"]
        lines = [
            "| storage | us an image | pack, ms an image | bytes, of the sources' |",
            "|---|---|---|---|",
        ]
        for name in STORAGES:
            load, pack = (statistics.median(each[name]) for each in (took, packs))
            share = index[name].stored_bytes / source
            lines.append(
                f"| {name} | {1e6 * load:.0f} | {1e3 * pack / len(index[name]):.2f} | {share:.3f} |"
            )
        ratio = statistics.median(took["jpeg"]) / statistics.median(took["coefficients"])
        slower = statistics.median(packs["coefficients"]) / statistics.median(packs["jpeg"])
        lines.append(
            f"\ncoefficients load {ratio:.2f} times as fast and take {slower:.2f} times the CPU time to pack"
        )
        lines.append(f"({read_engine_facts()}, load average {os.getloadavg()[0]:.1f})")
        sys.stdout.write("\n".join(lines) + "\n")
        for loader in loaders.values():
            loader.close()


if __name__ == "__main__":
    main()
