"""How much private memory a large dataset's index costs in the worker processes of torch's DataLoader.

    python bench/index_memory.py                                     # every sample twice; takes half an hour
    python bench/index_memory.py --picks 20000 --start-methods spawn   # 20,000 of the 10,000,000 in each epoch

Each figure comes from a fresh process with a DataLoader, whose workers are looked at after each epoch: the memory that
is theirs alone (USS: Private_Clean + Private_Dirty of /proc/PID/smaps, without libraries' unchanged pages). What the
index costs is the difference to as much work on 10 samples. The dataset is a real one, in as many shards as photos
would need, except that its rows share a few small pictures, so that reading them takes little time.
"""

from __future__ import annotations

import argparse
import gc
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
from fastpipe.dataset.format.description import with_self_checksum
from fastpipe.dataset.format.layout import DATASET_FILE, INDEX_DTYPE, INDEX_FILE, shard_name
from fastpipe.packing.job.threads import pack
from fastpipe.packing.shard.options import PackOptions

FEW = 10
SAMPLES_PER_SHARD = 2400  # of photos of 107 kB in shards of 256 MB
PIECE = 1_000_000
BATCH_SIZE = 256


def make_dataset(folder: Path, samples: int) -> None:
    """A packed dataset of so many samples: its shards are one file, in which a few pictures stand again and again."""
    source = folder / "source"
    for number in range(FEW):
        (source / f"class-{number % 2}").mkdir(parents=True, exist_ok=True)
        picture = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        cv2.imwrite(str(source / f"class-{number % 2}" / f"{number}.png"), picture)
    data = folder / "packed"
    pack(source, data, PackOptions(workers=1))
    info = json.loads((data / DATASET_FILE).read_text())
    few = np.load(data / INDEX_FILE)
    tar = (data / shard_name(0)).read_bytes()
    (data / shard_name(0)).write_bytes(tar * (SAMPLES_PER_SHARD // FEW))
    info["shards"][0]["size_bytes"] = len(tar) * (SAMPLES_PER_SHARD // FEW)
    records = np.lib.format.open_memmap(
        data / INDEX_FILE, mode="w+", dtype=INDEX_DTYPE, shape=(samples,)
    )
    for start in range(0, samples, PIECE):
        numbers = np.arange(start, min(start + PIECE, samples))
        piece = few[numbers % FEW]
        piece["shard"] = numbers // SAMPLES_PER_SHARD
        piece["offset"] += (numbers % SAMPLES_PER_SHARD // FEW * len(tar)).astype(np.uint64)
        records[numbers[0] : numbers[-1] + 1] = piece
    records.flush()
    starts = range(0, samples, SAMPLES_PER_SHARD)
    for number in range(1, len(starts)):
        os.link(data / shard_name(0), data / shard_name(number))
    info["shards"] = [
        {
            **info["shards"][0],
            "name": shard_name(number),
            "samples": min(SAMPLES_PER_SHARD, samples - start),
        }
        for number, start in enumerate(starts)
    ]
    _, text = with_self_checksum(info | {"samples": samples})
    (data / DATASET_FILE).write_bytes(text)


class PathList(torch.utils.data.Dataset[int]):
    """The usual dataset: a Python list of (path, label). The file is not read: what is measured is the list."""

    def __init__(self, samples: int) -> None:
        self.samples = [
            (f"/data/train/class-{n % 1000:04d}/{n:010d}.jpg", n % 1000) for n in range(samples)
        ]

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
        order = rng.permutation(self.samples) if self.picks == self.samples else None
        for start in range(0, self.picks, PIECE):
            stop = min(start + PIECE, self.picks)
            numbers = (
                rng.integers(self.samples, size=stop - start)
                if order is None
                else order[start:stop]
            )
            yield from numbers.tolist()


def private_bytes(process: int | str) -> int:
    """Memory that this process has and no other one; "self" for one's own.

    Not counted are the unchanged pages of programs and libraries: the kernel drops them and reads them again as it
    likes, a hundred MB within a minute, and they are the same for all datasets.
    """
    total, library = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):  # a mapping begins: address, rights, offset, device, inode, path
            path = line.split(maxsplit=5)[5:]
            library = bool(path) and (
                ".so" in path[0] or path[0].startswith((sys.base_prefix, "/usr"))
            )
        elif name == "Private_Dirty:" or (name == "Private_Clean:" and not library):
            total += int(rest.split()[0]) * 1024
    return total


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def measure(
    dataset: torch.utils.data.Dataset[Any], picks: Picks, workers: int, epochs: int, start: str
) -> list[int]:
    """The workers' private bytes, all together, after each epoch."""
    loader = DataLoader(
        dataset,
        BATCH_SIZE,
        sampler=picks,
        num_workers=workers,
        collate_fn=len,
        persistent_workers=True,
        multiprocessing_context=start,
    )
    found = []
    for _ in range(epochs):
        done = sum(loader)
        if done != len(picks):
            raise SystemExit(f"expected {len(picks)} samples, got {done}")
        found.append(
            sum(
                private_bytes(child.pid) for child in multiprocessing.active_children() if child.pid
            )
        )
    return found


def in_fresh_process(
    dataset: str, samples: int, picks: int, workers: int, epochs: int, start: str
) -> list[int]:
    """The same, where nothing else was before. `dataset`: a packed dataset's folder, or "list"."""
    row = [dataset, *map(str, (samples, picks, workers, epochs)), start]
    found: list[int] = json.loads(
        subprocess.check_output([sys.executable, __file__, "--row", *row], text=True)
    )
    return found


def print_row(
    dataset: str, samples: str, picks: str, workers: str, epochs: str, start: str
) -> None:
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than CPUs
    warnings.filterwarnings(
        "ignore", "This process", DeprecationWarning
    )  # a fork where there are threads
    gc.disable()  # it writes to every object that it looks at, and does so the less often the more there are
    opened = PathList(int(samples)) if dataset == "list" else fastpipe.open(dataset)
    found = measure(opened, Picks(int(samples), int(picks)), int(workers), int(epochs), start)
    say(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--samples", type=int, default=10_000_000, help="number of rows in the index"
    )
    parser.add_argument(
        "--list-samples",
        type=int,
        default=2_000_000,
        help="number of entries in the list; 0: no list",
    )
    parser.add_argument(
        "--picks", type=int, default=0, help="number of random samples in an epoch; 0: all samples"
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--start-methods", default="fork", help="fork,forkserver,spawn")
    parser.add_argument("--row", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print_row(*options.row)
        return
    say("| dataset | start method | all private memory | of it the index, after each epoch |")
    say("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        many, few = Path(folder) / "many", Path(folder) / "few"
        make_dataset(many, options.samples)
        make_dataset(few, FEW)
        rows = [("fastpipe.Dataset", str(many / "packed"), str(few / "packed"), options.samples)]
        if options.list_samples:
            rows.append(("list of (path, label)", "list", "list", options.list_samples))
        for name, large, small, samples in rows:
            for start in options.start_methods.split(","):
                # As many samples are read of the small one, so that the workers do as much.
                picks = options.picks or samples
                run = (picks, options.workers, options.epochs, start)
                base = in_fresh_process(small, FEW, *run)
                found = in_fresh_process(large, samples, *run)
                growth = ", ".join(
                    f"{(b - a) / 1e6:,.1f} MB" for a, b in zip(base, found, strict=True)
                )
                say(
                    f"| {name}, {samples:,} samples | {start} | {found[-1] / 1e6:,.1f} MB | {growth} |"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
