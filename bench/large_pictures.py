"""Patches of large pictures: CPU time a patch and memory, beside MONAI's way.

    python -m bench.large_pictures [--pictures 50] [--side 8000] [--patch 512] [--count 8] [--rounds 3]

Pictures of 8,000 x 8,000, JPEGs of smooth noise with detail, are made and packed. fastpipe.RandomCrop(count=8) takes
eight patches of each in a step, and Grid all patches, with two threads. Beside it MONAI if it is installed (LoadImaged
with its PILReader, RandSpatialCropSamplesd), else Pillow: both open the whole picture and cut, in a DataLoader of two
workers. CPU time is that of the process and its children; memory is the most that the process had above the start of
the contender, without its children.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import fastpipe
from bench.contenders import Result, measure

WORKERS = 2
BATCH = 2  # pictures


def draw_picture(rng: np.random.Generator, side: int, colours: int) -> Image.Image:
    """Smooth noise of so many random colours a side, with detail."""
    coarse = rng.integers(0, 256, (colours, colours, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    detail = rng.integers(-12, 13, (side, side, 1), dtype=np.int16)
    pixels = np.asarray(smooth).astype(np.int16) + detail
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_pictures(folder: Path, count: int, side: int) -> list[Path]:
    picture = draw_picture(np.random.default_rng(0), side, side // 40)
    paths = []
    for number in range(count):
        path = folder / f"{number:03}.jpg"
        if number == 0:
            picture.save(path, quality=90)
        else:
            path.write_bytes(paths[0].read_bytes())
        paths.append(path)
    return paths


class WholePictures(Dataset[torch.Tensor]):
    """Pictures opened whole by Pillow, and some patches of each."""

    def __init__(self, paths: list[Path], patch: int, count: int) -> None:
        self.paths = paths
        self.patch = patch
        self.count = count

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        with Image.open(self.paths[number]) as file:
            pixels = np.asarray(file.convert("RGB"))
        height, width = pixels.shape[:2]
        patches = []
        for _ in range(self.count):
            top = int(torch.randint(height - self.patch + 1, ()))
            left = int(torch.randint(width - self.patch + 1, ()))
            patches.append(pixels[top : top + self.patch, left : left + self.patch])
        return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2)


def load_with_pillow(paths: list[Path], patch: int, count: int) -> Callable[[], int]:
    Image.MAX_IMAGE_PIXELS = None
    loader = DataLoader(WholePictures(paths, patch, count), BATCH, num_workers=WORKERS)
    return lambda: sum(len(patches) * count for patches in loader)


def load_with_monai(paths: list[Path], patch: int, count: int) -> Callable[[], int]:
    data = importlib.import_module("monai.data")
    transforms = importlib.import_module("monai.transforms")
    transform = transforms.Compose(
        [
            transforms.LoadImaged(keys=["image"], reader="PILReader", ensure_channel_first=True),
            transforms.RandSpatialCropSamplesd(
                keys=["image"], roi_size=(patch, patch), num_samples=count, random_size=False
            ),
        ]
    )
    items = [{"image": str(path)} for path in paths]
    dataset = data.Dataset(items, transform)
    loader = data.DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)
    return lambda: sum(len(batch["image"]) for batch in loader)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pictures", type=int, default=50)
    parser.add_argument("--side", type=int, default=8000)
    parser.add_argument("--patch", type=int, default=512)
    parser.add_argument("--count", type=int, default=8, help="random patches of each picture")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        paths = make_pictures(folder / "files", args.pictures, args.side)
        with fastpipe.Writer(folder / "data") as writer:
            for path in paths:
                writer.add(path, key=path.name)
        options: dict[str, Any] = {"size": args.patch, "hflip": False, "num_workers": WORKERS}
        some = fastpipe.loader(
            folder / "data", BATCH, crop=fastpipe.RandomCrop(count=args.count), **options
        )
        every = fastpipe.loader(
            folder / "data", BATCH * args.count, crop=fastpipe.Grid(), train=False, **options
        )
        contenders: dict[str, Callable[[], int]] = {
            f"fastpipe, RandomCrop(count={args.count})": lambda: sum(
                len(images) * args.count for images, _ in some
            ),
            "fastpipe, Grid(), all patches": lambda: sum(len(images) for images, _ in every),
        }
        if importlib.util.find_spec("monai") is not None:
            contenders["MONAI, two workers"] = load_with_monai(paths, args.patch, args.count)
        else:
            contenders["Pillow, two workers"] = load_with_pillow(paths, args.patch, args.count)
        results: dict[str, list[Result]] = {contender: [] for contender in contenders}
        memory: dict[str, float] = {}
        for _ in range(args.rounds):
            for contender, load in contenders.items():
                before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                results[contender].append(measure(load))
                after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                grown_mb = (after_kb - before_kb) / 1024
                memory[contender] = memory.get(contender, 0.0) + grown_mb
        sys.stdout.write("| | patches a second | CPU, us each | memory, MB |\n|---|---|---|---|\n")
        for contender, rounds in results.items():
            rate = statistics.median(result.items_per_s for result in rounds)
            cpu = statistics.median(result.cpu_us for result in rounds)
            sys.stdout.write(
                f"| {contender} | {rate:,.0f} | {cpu:,.0f} | {memory[contender]:,.0f} |\n"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
