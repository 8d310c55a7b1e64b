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
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import fastpipe
from fastpipe.format.index import Index
from fastpipe.format.layout import INDEX_DTYPE
from fastpipe.format.self_checksum import fingerprint, with_self_checksum

ROOT = Path(__file__).parents[1]
LINKS = [(100e6, 0.030), (1e9, 0.005)]
BATCH = 256


def repeated(photos: Path, folder: Path, least_bytes: int) -> Path:
    """The photos packed, and their shards as often as they are needed to make so many bytes."""
    packed, many = folder / "packed", folder / "many"
    if (many / "dataset.json").exists():
        return many
    fastpipe.pack(photos, packed, overwrite=True)
    index = Index(packed)
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
            shutil.copyfile(packed / shard["name"], many / name)  # one file for all would stay in the CPU's cache
            shards.append({**shard, "name": name})
    np.save(many / "index.npy", np.concatenate(parts).astype(INDEX_DTYPE))
    data = (many / "index.npy").read_bytes()
    info.pop("self_xxh3_64", None)
    info["shards"], info["samples"], info["jpeg_bytes"] = shards, len(index) * times, index.jpeg_bytes * times
    info["class_counts"] = [count * times for count in info["class_counts"]]
    records_hash = xxhash.xxh3_64_hexdigest(np.concatenate(parts).tobytes())
    info["index"] = {"name": "index.npy", "xxh3_64": records_hash, "file_xxh3_64": xxhash.xxh3_64_hexdigest(data)}
    info["fingerprint"] = fingerprint(info)
    (many / "dataset.json").write_bytes(with_self_checksum(info)[1])
    return many


def served(folder: Path, bytes_per_s: float, latency_s: float) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its URL."""
    script = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from pathlib import Path\nfrom remote.range_server import RangeServer\n"
        f"server = RangeServer(Path({str(folder)!r}), bytes_per_s={bytes_per_s}, latency_s={latency_s})\n"
        "print(server.url, flush=True)\ntime.sleep(3600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def measure(data: object, seconds: float, threads: int, **options: Any) -> dict[str, float]:
    """Seconds until the first batch, and then images/s and bytes/s, over so many seconds or an epoch."""
    with fastpipe.loader(data, BATCH, num_workers=threads, **options) as loader:  # type: ignore[arg-type]
        started = time.perf_counter()
        first_s, warm = 0.0, None
        for number, _ in enumerate(loader):
            now = time.perf_counter()
            first_s = first_s or now - started
            if warm is None and (number >= 8 or now - started > 3.0):
                warm = now, loader.stats()
            if warm is not None and now - warm[0] > seconds:
                break
        assert warm is not None
        done, taken = loader.stats().since(warm[1]), time.perf_counter() - warm[0]
        return {
            "first_batch_s": first_s,
            "images_per_s": done.samples / taken,
            "bytes_per_s": done.fetched_bytes / taken,
            "hits": done.cache_hit_bytes,
        }


def main() -> None:
    """Prints a line a link."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "fastpipe-bench-remote")
    chosen = parser.parse_args()
    data = repeated(chosen.photos, chosen.work, 1_300_000_000)
    size = int(Index(data).shard_sizes.sum())
    count = chosen.threads
    print(f"{len(Index(data)):,} samples, {size / 1e9:.2f} GB, batches of {BATCH}, {count} threads")  # noqa: T201
    measure(data, chosen.seconds, count)
    local = measure(data, chosen.seconds, count)["images_per_s"]
    print(f"local folder: {local:,.0f} images/s")  # noqa: T201
    for bandwidth, latency in LINKS:
        for limit, name in (("200GB", "cache"), (0, "no cache")):
            server, url = served(data, bandwidth, latency)
            cache = Path(tempfile.mkdtemp(dir=chosen.work))
            try:
                found = measure(url, chosen.seconds, count, cache_dir=cache, cache_limit=limit)
                rate, images = found["bytes_per_s"], found["images_per_s"]
                link = f"{bandwidth / 1e6:,.0f} MB/s, {latency * 1e3:.0f} ms, {name}"
                share = f"{rate / 1e6:,.1f} MB/s ({rate / bandwidth:.1%} of the link)"
                speed = f"{images:,.0f} images/s ({images / local:.1%} of local)"
                print(f"{link}: {share}, {speed}, first batch {found['first_batch_s']:.2f} s", flush=True)  # noqa: T201
            finally:
                server.kill()
                server.wait()
                shutil.rmtree(cache, ignore_errors=True)


if __name__ == "__main__":
    main()
