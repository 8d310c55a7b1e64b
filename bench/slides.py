"""Patches of slides: CPU time a patch, beside OpenSlide in a DataLoader.

    python -m bench.slides [--slides 4] [--side 40000] [--patch 512] [--count 64] [--rounds 3] [--tile 256]

Slides of 40,000 x 40,000 in JPEG tiles are made of photo-like noise and packed, which says how long that takes.
fastpipe.RandomCrop(count=64) takes patches of each in a step, with two threads. Beside it, if it is installed,
OpenSlide's read_region in a DataLoader of two workers that keeps its slides open. First 200 of its patches are
compared with those of fastpipe, pixel by pixel.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

import fastpipe
from bench.contenders import print_medians
from bench.large_pictures import draw_picture

WORKERS = 2
EPOCHS = 8  # of a round: a loader has the first batches of an epoch ready before it begins
DIFFERENT_TILES = 64


def make_tiles(side: int) -> list[bytes]:
    """JPEGs of smooth noise with detail."""
    rng = np.random.default_rng(0)
    tiles = []
    for _ in range(DIFFERENT_TILES):
        picture = draw_picture(rng, side, side // 40 + 2)
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=80, subsampling=0)
        tiles.append(file.getvalue())
    return tiles


def write_slide(path: Path, tiles: list[bytes], tile: int, side: int) -> None:
    per_row = -(-side // tile)

    def in_order() -> Iterator[bytes]:
        rng = np.random.default_rng(1)
        for number in rng.integers(0, len(tiles), per_row * per_row):
            yield tiles[number]

    tifffile.imwrite(
        path,
        in_order(),
        shape=(side, side, 3),
        dtype=np.uint8,
        tile=(tile, tile),
        compression="jpeg",
        photometric="ycbcr",
        subsampling=(1, 1),
        bigtiff=True,
    )


def read_patch(slide: Any, left: int, top: int, patch: int) -> NDArray[np.uint8]:
    """(patch, patch, 3) by OpenSlide."""
    region = slide.read_region((left, top), 0, (patch, patch))
    return np.asarray(region)[:, :, :3]


class Slides(Dataset[torch.Tensor]):
    """Random patches of slides that each worker keeps open."""

    def __init__(self, paths: list[Path], patch: int, count: int, side: int) -> None:
        self.paths = paths
        self.patch = patch
        self.count = count
        self.side = side
        self.opened: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        if number not in self.opened:
            openslide = importlib.import_module("openslide")
            self.opened[number] = openslide.OpenSlide(self.paths[number])
        patches = []
        for _ in range(self.count):
            left, top = torch.randint(self.side - self.patch + 1, (2,)).tolist()
            patches.append(read_patch(self.opened[number], left, top, self.patch))
        return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2)


def count_equal(data: fastpipe.Dataset, path: Path, patch: int) -> int:
    """How many of 200 patches of fastpipe and of OpenSlide are the same, pixel by pixel."""
    loader = fastpipe.loader(
        data.select(range(1)),
        1,
        size=patch,
        crop=fastpipe.RandomCrop(count=200),
        hflip=False,
        fields=("image", "crop_box"),
    )
    (batch,) = loader
    slide = importlib.import_module("openslide").OpenSlide(path)
    equal = 0
    for ours, box in zip(batch["image"][0], batch["crop_box"][0].int().tolist(), strict=True):
        theirs = torch.from_numpy(read_patch(slide, box[0], box[1], patch).copy()).permute(2, 0, 1)
        equal += torch.equal(ours, theirs)
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--slides", type=int, default=4)
    parser.add_argument("--side", type=int, default=40_000)
    parser.add_argument("--tile", type=int, default=256)
    parser.add_argument("--patch", type=int, default=512)
    parser.add_argument("--count", type=int, default=64, help="random patches of each slide")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    most = args.side * args.side
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "slides").mkdir()
        tiles = make_tiles(args.tile)
        paths = [folder / "slides" / f"{number}.tif" for number in range(args.slides)]
        for path in paths:
            write_slide(path, tiles, args.tile, args.side)
        started = time.perf_counter()
        fastpipe.pack(folder / "slides", folder / "data", max_pixels=most, shuffle=False)
        seconds = time.perf_counter() - started
        megapixels = args.slides * most / 1e6
        sys.stdout.write(f"packed {megapixels:,.0f} megapixels in {seconds:.0f} s\n\n")

        data = fastpipe.open(folder / "data", max_pixels=most)
        ours = fastpipe.loader(
            data,
            1,
            size=args.patch,
            crop=fastpipe.RandomCrop(count=args.count),
            hflip=False,
            num_workers=WORKERS,
        )
        loaders: dict[str, Callable[[], int]] = {
            "fastpipe": lambda: sum(
                len(images) * args.count for _ in range(EPOCHS) for images, _ in ours
            )
        }
        if importlib.util.find_spec("openslide") is not None:
            equal = count_equal(data, paths[0], args.patch)
            sys.stdout.write(f"{equal} of 200 patches have the pixels of OpenSlide\n\n")
            slides = Slides(paths, args.patch, args.count, args.side)
            theirs = DataLoader(slides, 1, num_workers=WORKERS)
            loaders["OpenSlide, two workers"] = lambda: sum(
                len(patches[0]) for _ in range(EPOCHS) for patches in theirs
            )
        print_medians(loaders, args.rounds, "patches")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
