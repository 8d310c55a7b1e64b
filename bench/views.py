"""Turns a folder of photos into a table: what DINO's views cost together, apart, and with DataLoader and torchvision.

    python -m bench.views PHOTOS [--rounds 5] [--threads 1]

The folder, which has a folder for each class, is packed in both storages. In each round each of these makes an epoch,
in turn: one loader with 2 global views (224 pixels, 0.4 to 1 of the area) and 6 local ones (96 pixels, 0.05 to 0.4);
eight loaders, each with one of them; a DataLoader with torchvision's transforms (build/peers/torchvision_pil; if it is
not there, run `make bench-peers`). All decode at full size and give uint8. Time is CPU time of all threads, which other
work on the machine disturbs less than the clock; ratios are medians of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fastpipe
from bench.roster import INSTALLED, SCRIPTS
from fastpipe import RandomResizedCrop, View
from fastpipe.engine.engine import engine_facts

STORAGES = ("jpeg", "coefficients")
KINDS = ((224, (0.4, 1.0), 2), (96, (0.05, 0.4), 6))
BATCH_SIZE = 64
WARM_UP = 2  # epochs of each
TOGETHER_AT_LEAST, PEER_AT_LEAST = 1.4, 6.0


def loaders_of(data: Path, threads: int) -> tuple[fastpipe.Loader, list[fastpipe.Loader]]:
    """The loader with all views, and a loader for each view."""
    options = {"drop_last": False, "num_workers": threads, "exact": True}
    kinds = [(size, RandomResizedCrop(scale=scale), count) for size, scale, count in KINDS]
    views = [View(size, count=count, crop=crop) for size, crop, count in kinds]
    together = fastpipe.loader(data, BATCH_SIZE, views=views, **options)
    each = [(size, crop) for size, crop, count in kinds for _ in range(count)]
    apart = [
        fastpipe.loader(data, BATCH_SIZE, size=size, crop=crop, seed=seed, **options)
        for (size, crop), seed in zip(each, together.view_seeds, strict=True)
    ]
    return together, apart


def epoch_s(loaders: list[fastpipe.Loader]) -> float:
    """CPU seconds a photo, of an epoch of each.

    From its second epoch on, a loader makes the first batches of the next one while an epoch ends. These are waited
    for, so that each epoch has the work of as many photos, and no work is left to the next contender.
    """
    started = time.process_time()
    for loader in loaders:
        for _ in loader:
            pass
        while (levels := loader.stats()).threads_busy or levels.rows_waiting:
            time.sleep(0.01)
    return (time.process_time() - started) / len(loaders[0].dataset)


def peer_s(photos: Path) -> float:
    """The same of a DataLoader."""
    python = INSTALLED / "torchvision_pil" / "bin" / "python"
    views = [f"{size}:{scale[0]}:{scale[1]}:{count}" for size, scale, count in KINDS]
    command = [str(python), str(SCRIPTS / "torchvision_views.py"), str(photos), "--views", *views]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What several views of each photo cost.")
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each loader (default 1)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastpipe-views-") as work:
        loaders = {}
        for storage in STORAGES:
            fastpipe.pack(arguments.folder, Path(work, storage), storage=storage)
            loaders[storage] = loaders_of(Path(work, storage), arguments.threads)
        took: dict[str, list[float]] = {"torchvision": []}
        for number in range(-WARM_UP, arguments.rounds):
            for storage, (together, apart) in loaders.items():
                for name, chosen in (("together", [together]), ("apart", apart)):
                    seconds = epoch_s(chosen)
                    if number >= 0:
                        took.setdefault(f"{storage} {name}", []).append(seconds)
            if number >= 0:
                took["torchvision"].append(peer_s(arguments.folder))
        report(took)
        for together, apart in loaders.values():
            for loader in (together, *apart):
                loader.close()


def report(took: dict[str, list[float]]) -> None:
    """Writes the table: medians, and medians of ratios."""
    lines = ["| storage | 8 views, us a photo | 8 loaders | ratio | DataLoader | ratio |", "|---|---|---|---|---|---|"]
    for storage in STORAGES:
        together, apart, peer = (took[name] for name in (f"{storage} together", f"{storage} apart", "torchvision"))
        ratios = [
            statistics.median(other / mine for other, mine in zip(others, together, strict=True))
            for others in (apart, peer)
        ]
        us = [1e6 * statistics.median(each) for each in (together, apart, peer)]
        lines.append(f"| {storage} | {us[0]:.0f} | {us[1]:.0f} | {ratios[0]:.2f} | {us[2]:.0f} | {ratios[1]:.1f} |")
    lines.append(f"\naim: ratios of at least {TOGETHER_AT_LEAST} and {PEER_AT_LEAST}, where JPEGs are stored")
    lines.append(f"({engine_facts()}, load average {os.getloadavg()[0]:.1f})")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
