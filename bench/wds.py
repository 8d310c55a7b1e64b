"""fastpipe.wds against webdataset's own decoding and torchvision, on the same tars: a table with ratios.

    .venv/bin/python -m bench.wds PHOTOS [--samples 1200] [--rounds 5] [--seconds 4] [--workers 2]

PHOTOS is a folder with one folder of JPEG files a class. All run in this environment, in fresh processes, in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

from bench import contest, datasets
from bench.contest import Load
from bench.roster import PHOTOS, Peer

TARS = "webdataset"
# Variants of bench/peers/webdataset_tars.py, and the names in the table.
OURS = {
    "crop": "`decode(fastpipe.wds.crop(224))`",
    "batch_crop": "`batched(N).map(fastpipe.wds.batch_crop(224))`",
}
THEIRS = {
    "": '`decode("pil")`, torchvision v1',
    "v2": '`decode("pil")`, torchvision v2',
    "torchrgb8": '`decode("torchrgb8")`, torchvision v2',
}


class Run(NamedTuple):
    """Images a second, and images a second of CPU time, which other work on the machine changes less."""

    speed: float
    per_cpu_s: float


def main() -> None:
    """Makes the tars, measures and prints the table."""
    options = _arguments().parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    datasets.gather(options.photos.resolve(), work, options.samples)
    if not (work / TARS).exists():
        contest.write(_peer(""), work, PHOTOS, options.workers)
    load = Load(options.workers, options.batch_size, 224, options.warmup, options.seconds)
    runs: dict[str, list[Run]] = {way: [] for way in (*OURS, *THEIRS)}
    for _ in range(options.rounds):
        for way, found in runs.items():
            figures = contest.read(_peer(way), work, load)
            found.append(Run(figures["images_per_s"], figures["images_per_s"] / figures["cpus"]))
            busy = os.getloadavg()[0]
            sys.stderr.write(
                f"{way or 'pil'}: {found[-1].speed:,.0f} images/s (load of the machine {busy:.1f})\n"
            )
    sys.stdout.write(table(runs))


def table(runs: dict[str, list[Run]]) -> str:
    """By way: the runs of all rounds -> Markdown: medians, and ratios of runs of one round."""
    heads = [f"{head} is" if head in OURS else head for head in ("pipeline", "images/s", *OURS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for way, found in runs.items():
        cells = [(OURS | THEIRS)[way], f"{statistics.median(run.speed for run in found):,.0f}"]
        for ours in OURS:
            cells.append("" if way in OURS else _ratio(runs[ours], found))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _ratio(ours: list[Run], theirs: list[Run]) -> str:
    """The median, the lowest and the highest; the median by CPU time."""
    ratios = [mine.speed / other.speed for mine, other in zip(ours, theirs, strict=True)]
    by_cpu = [mine.per_cpu_s / other.per_cpu_s for mine, other in zip(ours, theirs, strict=True)]
    low, high = min(ratios), max(ratios)
    return f"{statistics.median(ratios):.2f} x ({low:.2f} to {high:.2f}), by CPU time {statistics.median(by_cpu):.2f} x"


def _peer(variant: str) -> Peer:
    return Peer(variant, variant, "", "webdataset_tars.py", TARS, variant=variant)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path, metavar="PHOTOS")
    parser.add_argument(
        "--samples", type=int, default=1200, help="photos are copied until there are as many"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument(
        "--work", type=Path, default=Path("build/bench/wds"), help="where the tars are made"
    )
    return parser


if __name__ == "__main__":
    main()
