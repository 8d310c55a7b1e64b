"""A packed dataset -> what fastpipe.monitor costs: CPU time an image with and without it, and its thread's own.

    python bench/monitor_cost.py DATA [--pairs 40] [--seconds 2]

With and without come in turn, and the ratios of neighbours count, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from rich.console import Console

import fastpipe


def cpu_per_image(loader: fastpipe.Loader, seconds: float, at_end: Callable[[], None]) -> float:
    """CPU seconds of the whole process for each image, over whole epochs."""
    started, cpu, images = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < seconds:
        for batch, _ in loader:
            images += len(batch)
    at_end()
    return (time.process_time() - cpu) / images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="duration of each half of a pair"
    )
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error(
            f"--pairs: expected at least 2, for the middle half of the ratios, got {options.pairs}"
        )
    torch.set_num_threads(1)
    own: list[float] = []  # CPU seconds of the monitor's thread for each second

    def note() -> None:
        (thread,) = [each for each in threading.enumerate() if each.name == "fastpipe-monitor"]
        assert thread.ident is not None
        own.append(time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) / options.seconds)

    with fastpipe.loader(options.data, 32) as loader:
        console = Console(file=io.StringIO(), force_terminal=True, width=100)
        with fastpipe.monitor(loader, console=console):  # warm-up: the first imports much of rich
            cpu_per_image(loader, options.seconds, lambda: None)
        ratios = []
        for pair in range(options.pairs):
            took = {}
            for on in (True, False) if pair % 2 else (False, True):
                with fastpipe.monitor(loader, console=console) if on else nullcontext():
                    took[on] = cpu_per_image(loader, options.seconds, note if on else lambda: None)
            ratios.append(took[True] / took[False])
    quarters = statistics.quantiles(ratios, n=4)
    sys.stdout.write(
        f"CPU time an image with the monitor to that without, {options.pairs} pairs in turn:\n"
        f"median {quarters[1]:.4f}, middle half {quarters[0]:.4f} to {quarters[2]:.4f}\n"
        f"its own thread: median {statistics.median(own):.3%} of a CPU, most {max(own):.3%}\n"
    )


if __name__ == "__main__":
    main()
