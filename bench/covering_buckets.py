"""Photos of any shape -> batches of a few sizes without padding: images a second and CPU time.

    python -m bench.covering_buckets PHOTOS [--area 512] [--rounds 5]

fastpipe.Buckets(fit="cover") with two threads, beside a DataLoader of two workers and Pillow whose batch sampler knows
the width and height of each photo, and datago if it is installed. Each resizes a photo until it covers the size whose
shape is nearest to its own, and cuts it in the middle. The contenders take turns; the table has medians. CPU time is
that of the process and its children.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import fastpipe
from bench.contenders import pack_copies, print_medians
from fastpipe.plan.bucket_sizes import nearest_sizes, sort_by_ratio

BATCH = 16
WORKERS = 2
MULTIPLE = 64


class PhotoFiles(Dataset[torch.Tensor]):
    """Photos that cover their sizes, cut in the middle, by Pillow."""

    def __init__(self, paths: list[Path], sizes: list[tuple[int, int]]) -> None:
        self.paths = paths
        self.sizes = sizes  # width, height

    def __getitem__(self, number: int) -> torch.Tensor:
        width, height = self.sizes[number]
        with Image.open(self.paths[number]) as photo:
            image = photo.convert("RGB")
        scale = max(width / image.width, height / image.height)
        resized = image.resize(
            (
                max(width, round(image.width * scale)),
                max(height, round(image.height * scale)),
            )
        )
        left = (resized.width - width) // 2
        top = (resized.height - height) // 2
        pixels = np.array(resized.crop((left, top, left + width, top + height)))
        return torch.from_numpy(pixels).permute(2, 0, 1)


class BucketSampler:
    """Batches of samples of one size; the last batch of a size may be smaller."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes

    def __iter__(self) -> Iterator[list[int]]:
        waiting: dict[tuple[int, int], list[int]] = {}
        for number in torch.randperm(len(self.sizes)).tolist():
            batch = waiting.setdefault(self.sizes[number], [])
            batch.append(number)
            if len(batch) == BATCH:
                yield waiting.pop(self.sizes[number])
        yield from waiting.values()


def load_with_pillow(paths: list[Path], sizes: list[tuple[int, int]]) -> Callable[[], int]:
    loader = DataLoader(
        PhotoFiles(paths, sizes), batch_sampler=BucketSampler(sizes), num_workers=WORKERS
    )
    return lambda: sum(len(batch) for batch in loader)


def load_with_datago(folder: Path, side: int, count: int) -> Callable[[], int]:
    """datago chooses the size itself, from its own list around a square of `side`."""
    datago = importlib.import_module("datago")
    config = {
        "source_type": "file",
        "source_config": {
            "root_path": str(folder),
            "random_sampling": False,
            "rank": 0,
            "world_size": 1,
        },
        "image_config": {
            "crop_and_resize": True,
            "default_image_size": side,
            "downsampling_ratio": MULTIPLE,
            "min_aspect_ratio": 0.5,
            "max_aspect_ratio": 2.0,
            "pre_encode_images": False,
        },
        "prefetch_buffer_size": 64,
        "samples_buffer_size": 64,
        "limit": count,
        "num_threads": WORKERS,
    }

    def load() -> int:
        client = datago.DatagoClient(json.dumps(config))
        loaded = 0
        while loaded < count and (sample := client.get_sample()):
            torch.from_numpy(sample.image.to_numpy_array())
            loaded += 1
        client.stop()
        return loaded

    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--area", type=int, default=512, help="side of a square of the area")
    parser.add_argument("--copies", type=int, default=4, help="how often each photo is packed")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = pack_copies(args.photos, folder, args.copies)
        buckets = fastpipe.Buckets(
            area=args.area**2, size_divisible=MULTIPLE, fit="cover", random_crop=False
        )
        loader = fastpipe.loader(
            folder / "data", BATCH, size=buckets, hflip=False, drop_last=False, num_workers=WORKERS
        )
        data = fastpipe.open(folder / "data")
        pictures = np.stack([data["width"], data["height"]], axis=1).astype(np.int64)
        listed = sort_by_ratio(buckets.listed_sizes)
        sizes = [
            (width, height) for width, height in listed[nearest_sizes(listed, pictures)].tolist()
        ]

        contenders: dict[str, Callable[[], int]] = {
            "fastpipe, two threads": lambda: sum(len(batch[0]) for batch in loader),
            "DataLoader, two workers, Pillow": load_with_pillow(paths, sizes),
        }
        if importlib.util.find_spec("datago") is not None:
            contenders["datago, two threads"] = load_with_datago(
                folder / "files", args.area, len(paths)
            )
        print_medians(contenders, args.rounds, "images")


if __name__ == "__main__":
    main()
