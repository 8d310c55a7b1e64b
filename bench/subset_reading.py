"""Photos -> what a scattered subset and samplers do to reading: bytes from the disk and images a second.

    python bench/subset_reading.py PHOTOS [--samples 20000] [--rounds 3] [--work FOLDER]

Packs the photos again and again until there are so many samples. A round iterates an epoch of each kind twice: cold,
after the shards have been dropped from the page cache, and warm. Rows are decoded to 64 x 64 at reduced size, so that
reading counts. The table has medians; "read" is the bytes from the disk (read_bytes of /proc/self/io) in the cold
epoch, compared with the bytes of the JPEGs that the epoch used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fastpipe


def write(photos: Path, data: Path, samples: int) -> None:
    """Each photo as often as gives so many samples, in random order, in 10 classes."""
    files = sorted(path for path in photos.glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg"))
    jpegs = [path.read_bytes() for path in files]
    rng = np.random.default_rng(0)
    with fastpipe.Writer(data) as writer:
        for number in rng.permutation(samples).tolist():
            writer.add(jpegs[number % len(jpegs)], label=number % 10)


def kinds_of(data: fastpipe.Dataset) -> dict[str, tuple[fastpipe.Dataset, dict[str, Any]]]:
    """What an epoch goes through, and the options of the loader."""
    count, one = len(data), data.classes[0]
    rng = np.random.default_rng(1)
    return {
        "all": (data, {}),
        "a tenth, anywhere": (data.select(rng.random(count) < 0.1), {}),
        "half, anywhere": (data.select(rng.random(count) < 0.5), {}),
        "the first tenth": (data.select(range(count // 10)), {}),
        "one class of 10": (data.only([one]), {}),
        "Weighted: a class 10 times": (data, {"sampler": fastpipe.Weighted({one: 10})}),
        "Weighted, by sample": (data, {"sampler": fastpipe.Weighted(rng.exponential(size=count))}),
        "PerClass(26)": (data, {"sampler": fastpipe.PerClass(26), "batch_size": 260}),
        "Repeated(3)": (data, {"sampler": fastpipe.Repeated(3)}),
        "buckets": (data, {"size": fastpipe.Buckets(area=64 * 64)}),
    }


def drop(data: Path) -> None:
    """The shards leave the page cache."""
    for shard in data.glob("shard-*.tar"):
        handle = os.open(shard, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def bytes_from_disk() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def epoch(data: fastpipe.Dataset, options: dict[str, Any], seed: int) -> tuple[float, float, float]:
    """Seconds, images, bytes from the disk for each byte of a JPEG that was used."""
    with fastpipe.loader(
        data, **{"size": 64, "seed": seed, "drop_last": False, **options}
    ) as loader:
        sizes = data.index.records["size"][data.content.numbers(np.arange(len(data)))]
        before, started = bytes_from_disk(), time.perf_counter()
        ids = [batch.ids.numpy() for batch in loader]
        seconds = time.perf_counter() - started
    used = np.concatenate(ids)
    return seconds, len(used), (bytes_from_disk() - before) / sizes[np.unique(used)].sum()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        data = Path(folder) / "data"
        write(options.photos, data, options.samples)
        kinds = kinds_of(fastpipe.open(data))
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in kinds}
        for number in range(options.rounds):
            for name, (chosen, how) in kinds.items():
                drop(data)
                cold_s, images, share = epoch(chosen, how, number)
                warm_s, _, _ = epoch(chosen, how, number)
                found[name].append((images / cold_s, images / warm_s, share))
        rows = [
            "| an epoch of | cold, images/s | warm, images/s | read : used |\n|---|---|---|---|\n"
        ]
        for name, rounds in found.items():
            cold, warm, share = (statistics.median(values) for values in zip(*rounds, strict=True))
            rows.append(f"| {name} | {cold:,.0f} | {warm:,.0f} | {share:.2f} |\n")
        sys.stdout.write("".join(rows))


if __name__ == "__main__":
    main()
