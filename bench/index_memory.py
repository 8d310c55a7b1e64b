"""How much private memory a large dataset's index costs in the worker processes of torch's DataLoader.

    python -m bench.index_memory                                   # the table of docs/memory.md
    python -m bench.index_memory --samples 2000000 --picks 20000   # smaller and sooner

Each figure comes from a fresh process with a DataLoader, whose workers are looked at after each epoch: the memory that
is theirs alone (USS: Private_Clean + Private_Dirty of /proc/PID/smaps_rollup). What the index costs is the difference
to the same with 10 samples. The dataset is a real one in as many shards as photos would need, except that its rows share a
few small pictures, so that reading them takes little time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

import fastpipe
from fastpipe.format import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, shard_name
from fastpipe.pack.job import PackOptions, pack

FEW = 10
SAMPLES_PER_SHARD = 2400  # of photos of 107 kB in shards of 256 MB
PIECE = 1_000_000
BATCH_SIZE = 256


def make_dataset(folder: Path, samples: int) -> None:
    """A packed dataset of so many samples, the pictures of which are those of its first few, again and again."""
    source = folder / "source"
    for number in range(FEW):
        (source / f"class-{number % 2}").mkdir(parents=True, exist_ok=True)
        picture = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        cv2.imwrite(str(source / f"class-{number % 2}" / f"{number}.png"), picture)
    data = folder / "packed"
    pack(source, data, PackOptions(workers=1))
    info = json.loads((data / DATASET_FILE).read_text())
    few = np.load(data / INDEX_FILE)
    records = np.lib.format.open_memmap(data / INDEX_FILE, mode="w+", dtype=INDEX_DTYPE, shape=(samples,))
    for start in range(0, samples, PIECE):
        numbers = np.arange(start, min(start + PIECE, samples))
        piece = few[numbers % FEW]
        piece["shard"] = numbers // SAMPLES_PER_SHARD
        records[numbers[0] : numbers[-1] + 1] = piece
    records.flush()
    starts = range(0, samples, SAMPLES_PER_SHARD)
    for number in range(1, len(starts)):
        os.link(data / shard_name(0), data / shard_name(number))
    info["shards"] = [
        {**info["shards"][0], "name": shard_name(number), "samples": min(SAMPLES_PER_SHARD, samples - start)}
        for number, start in enumerate(starts)
    ]
    (data / DATASET_FILE).write_text(json.dumps(info | {"samples": samples}))


class PathList(torch.utils.data.Dataset[int]):
    """The usual dataset: a Python list of (path, label). The file is not read: what is measured is the list."""

    def __init__(self, samples: int) -> None:
        self.samples = [(f"/data/train/class-{n % 1000:04d}/{n:010d}.jpg", n % 1000) for n in range(samples)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, sample: int) -> int:
        path, label = self.samples[sample]
        return len(path) + label


class Picks(Sampler[int]):
    """So many numbers of an epoch, at random, and different ones in each; all numbers once where there are no more."""

    def __init__(self, samples: int, picks: int) -> None:
        self.samples, self.picks, self.epoch = samples, picks, 0

    def __len__(self) -> int:
        return self.picks

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng(self.epoch)
        self.epoch += 1
        if self.picks == self.samples:
            order = rng.permutation(self.samples)
            for start in range(0, len(order), PIECE):
                yield from order[start : start + PIECE].tolist()
        else:
            yield from rng.integers(self.samples, size=self.picks).tolist()


def private_bytes(process: int) -> int:
    """Memory that this process has and no other one."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines[1:])
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def measure(kind: str, samples: int, picks: int, workers: int, epochs: int, start_method: str) -> list[int]:
    """The workers' private bytes, all together, after each epoch."""
    dataset: torch.utils.data.Dataset[Any]
    with tempfile.TemporaryDirectory() as folder:
        if kind == "fastpipe":
            make_dataset(Path(folder), samples)
            dataset = fastpipe.Dataset(Path(folder) / "packed")
        else:
            dataset = PathList(samples)
        loader = DataLoader(
            dataset,
            BATCH_SIZE,
            sampler=Picks(samples, picks),
            num_workers=workers,
            collate_fn=len,
            persistent_workers=True,
            multiprocessing_context=start_method,
        )
        found = []
        for _ in range(epochs):
            done = sum(loader)
            if done != picks:
                raise SystemExit(f"expected {picks} samples, got {done}")
            found.append(sum(private_bytes(child.pid) for child in multiprocessing.active_children() if child.pid))
        return found


def in_fresh_process(kind: str, samples: int, picks: int, options: argparse.Namespace) -> list[int]:
    row = [kind, samples, picks, options.workers, options.epochs, options.start_method]
    command = [sys.executable, "-m", "bench.index_memory", "--row", *map(str, row)]
    found: list[int] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000, help="rows of the index")
    parser.add_argument("--picks", type=int, default=0, help="samples of an epoch, at random; 0: all")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--start-method", default="fork", choices=("fork", "forkserver", "spawn"))
    parser.add_argument("--kinds", default="fastpipe,list", help="what to measure")
    parser.add_argument("--json", action="store_true", help="print bytes instead of a table")
    parser.add_argument("--row", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than CPUs
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # a fork where there are threads
        kind, *numbers, start_method = options.row
        say(json.dumps(measure(kind, *map(int, numbers), start_method)))
        return
    picks = options.picks or options.samples
    results = {}
    for kind in options.kinds.split(","):
        few = in_fresh_process(kind, FEW, min(picks, 20_000), options)
        many = in_fresh_process(kind, options.samples, picks, options)
        results[kind] = {"few": few, "many": many, "index": [b - a for a, b in zip(few, many, strict=True)]}
    if options.json:
        say(json.dumps(results))
        return
    say(f"| {options.start_method}, {options.workers} workers | all private memory | of it the index, by epoch |")
    say("|---|---|---|")
    for kind, found in results.items():
        growth = ", ".join(f"{number / 1e6:,.1f} MB" for number in found["index"])
        say(f"| {kind}, {options.samples:,} samples | {found['many'][-1] / 1e6:,.1f} MB | {growth} |")


if __name__ == "__main__":
    main()
