"""A dataset behind 1 GB/s and 5 ms -> images/s of its loader, as a share of the local loader's with as many threads.

    python -m bench.remote_decoder PHOTOS [--threads 1,2] [--rounds 3] [--seconds 10] [--work FOLDER]

In each round the local folder is read, then the URL without a cache, then the URL with an empty cache; the server is a
process of its own. A line has the medians of the rounds, and the share of the cores that other programs took meanwhile:
if that is more than a few percent, measure again. With fewer decoding threads than cores, the other cores are there to
receive, to write and to serve; with as many, all of that takes its time from decoding.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench.remote import BATCH, measure, repeated, served
from bench.remote_cost import machine_seconds, process_seconds, show
from fastpipe.format.index import Index

CASES = ("local folder", "cache_limit=0", "cache_limit=200GB")


def measured(data: Path, case: str, threads: int, seconds: float, work: Path) -> tuple[float, float]:
    """Images/s of a loader once it runs, and the share of the cores that other programs took."""
    server, url = served(data, 1e9, 0.005)
    cache = Path(tempfile.mkdtemp(dir=work))
    began, busy, mine = time.perf_counter(), machine_seconds(), time.process_time() + process_seconds(server.pid)
    try:
        if case == CASES[0]:
            found = measure(data, seconds, threads)
        else:
            found = measure(url, seconds, threads, cache_dir=cache, cache_limit=case.partition("=")[2])
        mine = time.process_time() + process_seconds(server.pid) - mine
        cores = (time.perf_counter() - began) * (os.cpu_count() or 1)
        return found["images_per_s"], max(machine_seconds() - busy - mine, 0.0) / cores
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    """Prints a line for each number of threads and place of the data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-remote")
    chosen = parser.parse_args()
    data = repeated(chosen.photos, chosen.work, 1_300_000_000)
    show(f"{len(Index(data)):,} samples, batches of {BATCH}, {os.cpu_count()} cores; medians of {chosen.rounds} rounds")
    measure(data, chosen.seconds, 1)  # from now on it is in memory
    for threads in map(int, chosen.threads.split(",")):
        rounds = [
            {case: measured(data, case, threads, chosen.seconds, chosen.work) for case in CASES}
            for _ in range(chosen.rounds)
        ]
        for case in CASES:
            rate = statistics.median(each[case][0] for each in rounds)
            shares = [each[case][0] / each[CASES[0]][0] for each in rounds]
            share = f"{statistics.median(shares):.1%} of local ({', '.join(f'{one:.0%}' for one in shares)})"
            others = statistics.median(each[case][1] for each in rounds)
            show(f"{threads} thread(s), {case}: {rate:,.0f} images/s, {share}; other programs {others:.0%}")


if __name__ == "__main__":
    main()
