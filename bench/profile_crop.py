"""Turns a folder of photos into a Markdown table: where the time of a training crop goes, by part and storage.

    python -m bench.profile_crop PHOTOS [--seconds 10] [--symbols] [--views]

The folder is packed with `--storage jpeg` and with `--storage coefficients`. `perf` (Debian: linux-perf) samples the
engine's one thread while it makes random-resized crops of 224 x 224 at full size. The samples count by function, and
their sum is scaled to the CPU time that the kernel counted for that thread. Turns of both storages follow each other;
figures are medians of three turns. `--symbols` adds the functions of each part. `--views`: instead of a crop, the eight
views of a photo that `bench.views` measures.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fastpipe
from bench.views import KINDS
from fastpipe import RandomResizedCrop, View
from fastpipe.engine.engine import read_engine_facts

STORAGES = ("jpeg", "coefficients")
TURNS = 3
BATCH = 50
TASKS = Path("/proc/self/task")
# The first pattern found in "library;function" names the part.
PARTS = {
    "reading the file": r"^\[kernel.*(copy|filemap|xa|page|read|rcu|fdget)|File::|FileCache|StoredBytes|;\w*pread",
    "header, Huffman lookups": r"ParsedHeader|Reader::|HuffmanCodes|CoefficientTable|EntropyDecoder::build|FpcHeader",
    "finding the tiles": r"RestartMap|next_marker|memchr",
    "removing stuffed zeros": r"unstuff",
    "entropy decoding": r"EntropyDecoder|read_long|read_beyond|BaselineDecoder",
    "reading blocks": r"BlockRow|McuRows|CoefficientDecoder|add_exceptions|\(anonymous namespace\)::read$",
    "clearing coefficients": r"memset",
    "inverse DCT": r"idct|::transform",
    "upsampling, colour": r"ycc|gray_to|twice_as|three_to_one|color_row|convert_row|mend_edges",
    "weights of the resize": r"weigh|arrange|ResizeAxis|Resizer::plan",
    "resize": r"horizontal|vertical|Resizer|resize",
}
REST = "all else"


def part_of(function: str) -> str:
    """The part that a function belongs to."""
    return next((part for part, pattern in PARTS.items() if re.search(pattern, function)), REST)


def engine_tasks() -> list[str]:
    """Ids of this process's threads but Python's own."""
    return [task.name for task in TASKS.iterdir() if task.name != str(os.getpid())]


def cpu_ns(tasks: list[str]) -> int:
    """CPU time that the threads have had."""
    return sum(int((TASKS / task / "schedstat").read_text().split()[0]) for task in tasks)


def samples(recorded: Path) -> collections.Counter[str]:
    """How many samples each "library;function" has."""
    command = [
        "perf",
        "report",
        "-i",
        str(recorded),
        "--stdio",
        "-q",
        "--no-children",
        "-F",
        "sample,dso,sym",
    ]
    said = subprocess.run([*command, "-t", ";"], capture_output=True, text=True, check=True).stdout
    found: collections.Counter[str] = collections.Counter()
    for line in said.splitlines():
        count, _, function = line.partition(";")
        if count.strip().isdigit():
            found[re.sub(r";\[.\] ", ";", function).strip()] += int(count)
    return found


def turn(loader: fastpipe.Loader, seconds: float, work: Path) -> dict[str, float]:
    """Microseconds a crop by function, over whole epochs."""
    recorded = work / "perf.data"
    tasks = engine_tasks()
    command = [
        "perf",
        "record",
        "-q",
        "-o",
        str(recorded),
        "-e",
        "cpu-clock",
        "-F",
        "8000",
        "-t",
        ",".join(tasks),
    ]
    perf = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)  # perf attaches
    images, spent, started = 0, cpu_ns(tasks), time.monotonic()
    while time.monotonic() - started < seconds:
        images += sum(BATCH for _ in loader)
    spent = cpu_ns(tasks) - spent
    perf.send_signal(signal.SIGINT)
    problem = perf.communicate()[1]
    if not recorded.exists():
        sys.exit(f"expected perf to sample this process; it said: {problem.strip()}")
    found = samples(recorded)
    return {
        function: spent / 1e3 / images * count / found.total() for function, count in found.items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Where the time of a crop goes.")
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument(
        "--seconds", type=float, default=10, help="of sampling, a storage (default 10)"
    )
    parser.add_argument(
        "--symbols", action="store_true", help="list the functions of each part, too"
    )
    parser.add_argument(
        "--views", action="store_true", help="profile DINO's eight views instead of one crop"
    )
    arguments = parser.parse_args()
    views = [
        View(size, count=count, crop=RandomResizedCrop(scale=scale)) for size, scale, count in KINDS
    ]
    rows: dict[str, Any] = {"views": views} if arguments.views else {"size": 224}
    if shutil.which("perf") is None:
        sys.exit(
            "expected the program perf on the path; found none; install it (Debian: apt-get install linux-perf)"
        )
    with tempfile.TemporaryDirectory(prefix="fastpipe-profile-") as folder:
        work = Path(folder)
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in STORAGES}
        for name in STORAGES:
            fastpipe.pack(arguments.folder, work / name, storage=name, workers=2)
        for number in range(TURNS * len(STORAGES)):
            name = STORAGES[number % len(STORAGES)]
            with fastpipe.loader(work / name, BATCH, num_workers=1, exact=True, **rows) as loader:
                sum(1 for _ in loader)  # files in the page cache, memory made
                turns[name].append(turn(loader, arguments.seconds / TURNS, work))
    out = sys.stdout
    out.write(
        f"| part, us a {'photo' if arguments.views else 'crop'} | {' | '.join(STORAGES)} |\n|---|---|---|\n"
    )
    for part in (*PARTS, REST):
        cells = (median(turns[name], part) for name in STORAGES)
        out.write(f"| {part} | {' | '.join(cells)} |\n")
    sums = (
        f"{statistics.median(sum(each.values()) for each in turns[name]):.0f}" for name in STORAGES
    )
    out.write(
        f"| sum | {' | '.join(sums)} |\n\n({read_engine_facts()}, load average {os.getloadavg()[0]:.1f})\n"
    )
    for name in STORAGES if arguments.symbols else ():
        out.write(f"\n{name}:\n")
        for function, us in sorted(turns[name][-1].items(), key=lambda item: -item[1])[:60]:
            out.write(f"  {us:6.1f}  {part_of(function)}: {function}\n")


def median(turns: list[dict[str, float]], part: str) -> str:
    """A cell of the table."""
    us = statistics.median(
        sum(us for function, us in each.items() if part_of(function) == part) for each in turns
    )
    return f"{us:.1f}" if us else ""


if __name__ == "__main__":
    main()
