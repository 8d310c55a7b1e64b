"""A dataset behind 1 GB/s and 5 ms -> images/s of its loader, as a share of the local loader's with as many threads.

    python -m bench.remote_decoder PHOTOS [--threads 1,2] [--rounds 3] [--seconds 10] [--work FOLDER]

In each round the local folder is read, then the URL without a cache, then the URL with an empty cache; the server is a
process of its own. Each case reads 4 GB of photos, or as many as come in 10 s. With fewer decoding threads than cores,
the other cores are there to receive, to write and to serve; with as many, all of that takes its time from decoding.

Each line has the medians of the rounds, and where the time went: the share of it that a decoding thread ran, waited for
a core, and had nothing to do; CPU seconds a fetched GB of fetching (all of the loader but decoding) and of the server;
the share of the cores that other programs took. If that is more than a few percent, measure again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.cpu_seconds import machine_seconds, process_seconds
from bench.remote import BATCH, measure, repeated, served
from bench.remote_cost import show
from fastpipe.dataset.format.packed_index import PackedIndex

CASES = ("local folder", "cache_limit=0", "cache_limit=200GB")
DATA_BYTES = 4_000_000_000


class Figures(NamedTuple):
    """Of a round, or medians of some.

    Attributes:
        images_per_s: once the loader runs.
        ran, queued: shares of the time that a decoding thread ran, and waited for a core.
        fetching, serving: CPU seconds a fetched GB.
        others: the share of the cores that other programs took.
    """

    images_per_s: float
    ran: float
    queued: float
    fetching: float
    serving: float
    others: float


def measured(data: Path, case: str, threads: int, seconds: float, work: Path) -> Figures:
    """Of a loader."""
    server, url = served(data, 1e9, 0.005)
    cache = Path(tempfile.mkdtemp(dir=work))
    began, busy, mine = (
        time.perf_counter(),
        machine_seconds(),
        time.process_time() + process_seconds(server.pid),
    )
    try:
        if case == CASES[0]:
            found = measure(data, seconds, threads)
        else:
            limit = case.partition("=")[2]
            found = measure(
                url, seconds, threads, server=server.pid, cache_dir=cache, cache_limit=limit
            )
        mine = time.process_time() + process_seconds(server.pid) - mine
        cores = (time.perf_counter() - began) * (os.cpu_count() or 1)
        decoding = found.threads["decoding"]
        fetching_s = sum(each.ran for kind, each in found.threads.items() if kind != "decoding")
        gigabytes = found.fetched_bytes / 1e9
        return Figures(
            found.images_per_s,
            decoding.ran / threads / found.seconds,
            decoding.queued / threads / found.seconds,
            fetching_s / gigabytes if gigabytes else 0.0,
            found.server_s / gigabytes if gigabytes else 0.0,
            max(machine_seconds() - busy - mine, 0.0) / cores,
        )
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    """Prints two lines for each number of threads and place of the data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-remote-decoder"
    )
    chosen = parser.parse_args()
    data = repeated(chosen.photos, chosen.work, DATA_BYTES)
    samples = len(PackedIndex(data))
    show(
        f"{samples:,} samples, batches of {BATCH}, {os.cpu_count()} cores; medians of {chosen.rounds} rounds"
    )
    measure(data, 10 * chosen.seconds, 1)  # from now on it is in memory
    for threads in map(int, chosen.threads.split(",")):
        rounds = [
            {case: measured(data, case, threads, chosen.seconds, chosen.work) for case in CASES}
            for _ in range(chosen.rounds)
        ]
        for case in CASES:
            shares = [each[case].images_per_s / each[CASES[0]].images_per_s for each in rounds]
            share = f"{statistics.median(shares):.1%} of local ({', '.join(f'{one:.0%}' for one in shares)})"
            median = Figures(
                *map(statistics.median, zip(*(each[case] for each in rounds), strict=True))
            )
            idle = max(1.0 - median.ran - median.queued, 0.0)
            show(f"{threads} thread(s), {case}: {median.images_per_s:,.0f} images/s, {share}")
            show(
                f"    decoding ran {median.ran:.0%}, waited for a core {median.queued:.0%}, had nothing to do "
                f"{idle:.0%}; s/GB: fetching {median.fetching:.2f}, the server {median.serving:.2f}; other programs "
                f"{median.others:.0%}"
            )


if __name__ == "__main__":
    main()
