"""Turns a folder of photos into a table: what DINO's views cost together, apart, and with DataLoader and torchvision.

    python -m bench.views PHOTOS [--rounds 5] [--threads 2]

The folder, which has a folder for each class, is packed in both storages. In each round each of these makes an epoch,
in turn: one loader with 2 global views (224 pixels, 0.4 to 1 of the area) and 6 local ones (96 pixels, 0.05 to 0.4);
eight loaders, each with one of them; a DataLoader with torchvision's transforms (build/peers/torchvision_pil; if it is
not there, run `make bench-peers`) and as many worker processes as the loaders have threads. All give uint8, and decode
at full size unless the table says exact=False, which is a loader's default. Eight loaders are compared by CPU time of
all threads, which other work on the machine disturbs less than the clock. DataLoader is compared by photos a second, as
training sees it, and by CPU time in one process, without workers. Ratios are medians of the rounds' own ratios.
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
from typing import NamedTuple

import fastpipe
from bench.roster import INSTALLED, PEERS, SCRIPTS, missing
from fastpipe import RandomResizedCrop, View
from fastpipe.engine.engine import read_engine_facts

# Label -> storage, and whether all is decoded at full size.
CONTENDERS = {
    "jpeg": ("jpeg", True),
    "coefficients": ("coefficients", True),
    "jpeg, exact=False": ("jpeg", False),
}
KINDS = ((224, (0.4, 1.0), 2), (96, (0.05, 0.4), 6))
BATCH_SIZE = 64
WARM_UP = 2  # epochs of each
TOGETHER_AT_LEAST, PEER_AT_LEAST = 1.4, 6.0


def loaders_of(
    data: Path, threads: int, *, exact: bool
) -> tuple[fastpipe.Loader, list[fastpipe.Loader]]:
    """The loader with all views, and a loader for each view."""
    options = {"drop_last": False, "num_workers": threads, "exact": exact}
    kinds = [(size, RandomResizedCrop(scale=scale), count) for size, scale, count in KINDS]
    views = [View(size, count=count, crop=crop) for size, crop, count in kinds]
    together = fastpipe.loader(data, BATCH_SIZE, views=views, **options)
    each = [(size, crop) for size, crop, count in kinds for _ in range(count)]
    apart = [
        fastpipe.loader(data, BATCH_SIZE, size=size, crop=crop, seed=seed, **options)
        for (size, crop), seed in zip(each, together.view_seeds, strict=True)
    ]
    return together, apart


class Took(NamedTuple):
    """Seconds a photo, by the clock and of CPU time."""

    clock: float
    cpu: float


def epoch_s(loaders: list[fastpipe.Loader]) -> Took:
    """Of an epoch of each.

    From its second epoch on, a loader makes the first batches of the next one while an epoch ends. These are waited
    for, so that each epoch has the work of as many photos, and no work is left to the next contender.
    """
    started = time.perf_counter(), time.process_time()
    for loader in loaders:
        for _ in loader:
            pass
        while (levels := loader.stats()).threads_busy or levels.rows_waiting:
            time.sleep(0.01)
    photos = len(loaders[0].dataset)
    return Took(
        (time.perf_counter() - started[0]) / photos, (time.process_time() - started[1]) / photos
    )


def peer_s(photos: Path, workers: int) -> Took:
    """The same of a DataLoader: by the clock with so many workers, and the CPU time without any."""
    python = INSTALLED / "torchvision_pil" / "bin" / "python"
    views = [f"{size}:{scale[0]}:{scale[1]}:{count}" for size, scale, count in KINDS]
    command = [str(python), str(SCRIPTS / "torchvision_views.py"), str(photos), "--views", *views]
    clock, cpu = (
        float(
            subprocess.run(
                [*command, "--workers", str(each)], capture_output=True, text=True, check=True
            ).stdout
        )
        for each in (workers, 0)
    )
    return Took(clock, cpu)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What several views of each photo cost.")
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each (default 5)")
    parser.add_argument(
        "--threads",
        type=int,
        default=2,
        help="threads of each loader, and workers of DataLoader (default 2)",
    )
    arguments = parser.parse_args()
    if reason := missing(next(peer for peer in PEERS if peer.environment == "torchvision_pil")):
        sys.exit(f"bench: DataLoader with torchvision: {reason}")
    with tempfile.TemporaryDirectory(prefix="fastpipe-views-") as work:
        loaders = {}
        for label, (storage, exact) in CONTENDERS.items():
            packed = Path(work, storage)
            fastpipe.pack(
                arguments.folder, packed, storage=storage
            )  # once: it sees that this is done
            loaders[label] = loaders_of(packed, arguments.threads, exact=exact)
        took: dict[str, list[Took]] = {"torchvision": []}
        for number in range(-WARM_UP, arguments.rounds):
            for label, (together, apart) in loaders.items():
                for name, chosen in (("together", [together]), ("apart", apart)):
                    seconds = epoch_s(chosen)
                    if number >= 0:
                        took.setdefault(f"{label} {name}", []).append(seconds)
            if number >= 0:
                took["torchvision"].append(peer_s(arguments.folder, arguments.threads))
        report(took)
        for together, apart in loaders.values():
            for loader in (together, *apart):
                loader.close()


def report(took: dict[str, list[Took]]) -> None:
    """Writes the table: medians, and medians of ratios."""
    lines = [
        "| storage | photos/s | CPU us | 8 loaders, CPU us | ratio | DataLoader, photos/s | ratio | CPU us | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for label in CONTENDERS:
        mine, apart, peer = (
            took[name] for name in (f"{label} together", f"{label} apart", "torchvision")
        )
        rates = [1 / statistics.median(each.clock for each in times) for times in (mine, peer)]
        us = [1e6 * statistics.median(each.cpu for each in times) for times in (mine, apart, peer)]
        ratios = [
            statistics.median(other[by] / own[by] for other, own in zip(others, mine, strict=True))
            for others, by in ((apart, 1), (peer, 0), (peer, 1))
        ]
        lines.append(
            f"| {label} | {rates[0]:.0f} | {us[0]:.0f} | {us[1]:.0f} | {ratios[0]:.2f} | {rates[1]:.0f} "
            f"| {ratios[1]:.1f} | {us[2]:.0f} | {ratios[2]:.1f} |"
        )
    lines.append(
        f"\naim for JPEGs: {TOGETHER_AT_LEAST} times the CPU time of 8 loaders, {PEER_AT_LEAST} times DataLoader"
    )
    lines.append(f"({read_engine_facts()}, load average {os.getloadavg()[0]:.1f})")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
