"""A dataset behind a link of some bandwidth and latency -> how much of the link a loader uses, and its first batch.

    python -m bench.remote PHOTOS [--seconds 10] [--threads 1] [--work FOLDER]

It packs the photos once and repeats their shards until they make 1.3 GB, serves them from a process of its own, and
reads them with an empty cache. Link: bytes/s that arrive once the loader runs, as a share of the bandwidth. The last
rows compare with the same dataset in a local folder, both read before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import fastpipe
from bench.cpu_seconds import Seconds, process_seconds, thread_seconds
from fastpipe.dataset.format.description import fingerprint, with_self_checksum
from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.dataset.format.packed_index import PackedIndex

ROOT = Path(__file__).parents[1]
LINKS = [(100e6, 0.030), (1e9, 0.005)]
BATCH = 256


def repeated(photos: Path, folder: Path, least_bytes: int) -> Path:
    """The photos packed, and their shards as often as they are needed to make so many bytes."""
    packed, many = folder / "packed", folder / "many"
    if (many / "dataset.json").exists():
        return many
    fastpipe.pack(photos, packed, overwrite=True)
    index = PackedIndex(packed)
    one = int(index.shard_sizes.sum())
    times = -(-least_bytes // one)
    shutil.rmtree(many, ignore_errors=True)
    many.mkdir()
    info = json.loads((packed / "dataset.json").read_bytes())
    shards: list[dict[str, Any]] = []
    parts = []
    for copy in range(times):
        records = np.array(index.records)
        records["shard"] += copy * len(index.shards)
        parts.append(records)
        for number, shard in enumerate(info["shards"]):
            name = f"shard-{copy * len(index.shards) + number:06d}.tar"
            shutil.copyfile(
                packed / shard["name"], many / name
            )  # one file for all would stay in the CPU's cache
            shards.append({**shard, "name": name})
    np.save(many / "index.npy", np.concatenate(parts).astype(INDEX_DTYPE))
    data = (many / "index.npy").read_bytes()
    info.pop("self_xxh3_64", None)
    info["shards"], info["samples"], info["jpeg_bytes"] = (
        shards,
        len(index) * times,
        index.jpeg_bytes * times,
    )
    info["class_counts"] = [count * times for count in info["class_counts"]]
    records_hash = xxhash.xxh3_64_hexdigest(np.concatenate(parts).tobytes())
    info["index"] = {
        "name": "index.npy",
        "xxh3_64": records_hash,
        "file_xxh3_64": xxhash.xxh3_64_hexdigest(data),
    }
    info["fingerprint"] = fingerprint(info)
    (many / "dataset.json").write_bytes(with_self_checksum(info)[1])
    return many


def served(folder: Path, bytes_per_s: float, latency_s: float) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its URL."""
    script = (
        f"import os, sys, time; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "os.nice(10)\n"  # of a real server's CPU time, nothing is taken from the loader
        "from pathlib import Path\nfrom support.remote.range_server import RangeServer\n"
        f"server = RangeServer(Path({str(folder)!r}), bytes_per_s={bytes_per_s}, latency_s={latency_s})\n"
        "print(server.url, flush=True)\ntime.sleep(3600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@dataclass(frozen=True)
class Run:
    """What a loader did, over so many seconds or an epoch.

    Attributes:
        first_batch_s: until the first batch. All that follows is of what came after nine batches, or 3 s.
        seconds: taken.
        samples, fetched_bytes: that came.
        threads: the seconds of the loader's threads, by what they do.
        server_s: CPU seconds of the server.
    """

    first_batch_s: float
    seconds: float
    samples: int
    fetched_bytes: int
    threads: dict[str, Seconds]
    server_s: float

    @property
    def images_per_s(self) -> float:
        """Once the loader runs."""
        return self.samples / self.seconds


def measure(
    data: str | Path, seconds: float, threads: int, *, server: int | None = None, **options: Any
) -> Run:
    """Reads for so many seconds, or an epoch.

    Args:
        data: folder or URL.
        seconds: to measure.
        threads: that decode.
        server: the process that serves the URL.
        options: of fastpipe.open.
    """
    with fastpipe.loader(fastpipe.open(data, **options), BATCH, num_workers=threads) as loader:
        started = time.perf_counter()
        first_s, warm = 0.0, None
        for number, _ in enumerate(loader):
            now = time.perf_counter()
            first_s = first_s or now - started
            if warm is None and (number >= 8 or now - started > 3.0):
                warm = (
                    now,
                    loader.stats(),
                    thread_seconds(),
                    process_seconds(server) if server else 0.0,
                )
            if warm is not None and now - warm[0] > seconds:
                break
        assert warm is not None
        began, stats, earlier, served_s = warm
        done, taken = loader.stats().since(stats), time.perf_counter() - began
        did = {
            kind: each.since(earlier.get(kind, Seconds()))
            for kind, each in thread_seconds().items()
        }
        served_s = (process_seconds(server) if server else 0.0) - served_s
        return Run(first_s, taken, done.samples, done.fetched_bytes, did, served_s)


def main() -> None:
    """Prints a line a link."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-remote"
    )
    chosen = parser.parse_args()
    data = repeated(chosen.photos, chosen.work, 1_300_000_000)
    size = int(PackedIndex(data).shard_sizes.sum())
    count = chosen.threads
    samples = len(PackedIndex(data))
    head = f"{samples:,} samples, {size / 1e9:.2f} GB, batches of {BATCH}, {count} threads"
    print(head)  # noqa: T201
    measure(data, chosen.seconds, count)
    local = measure(data, chosen.seconds, count).images_per_s
    print(f"local folder: {local:,.0f} images/s")  # noqa: T201
    for bandwidth, latency in LINKS:
        for limit, name in (("200GB", "cache"), (0, "no cache")):
            server, url = served(data, bandwidth, latency)
            cache = Path(tempfile.mkdtemp(dir=chosen.work))
            try:
                found = measure(url, chosen.seconds, count, cache_dir=cache, cache_limit=limit)
                rate, images = found.fetched_bytes / found.seconds, found.images_per_s
                link = f"{bandwidth / 1e6:,.0f} MB/s, {latency * 1e3:.0f} ms, {name}"
                share = f"{rate / 1e6:,.1f} MB/s ({rate / bandwidth:.1%} of the link)"
                speed = f"{images:,.0f} images/s ({images / local:.1%} of local)"
                line = f"{link}: {share}, {speed}, first batch {found.first_batch_s:.2f} s"
                print(line, flush=True)  # noqa: T201
            finally:
                server.kill()
                server.wait()
                shutil.rmtree(cache, ignore_errors=True)


if __name__ == "__main__":
    main()
