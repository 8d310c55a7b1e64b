"""Photos -> the padding of batches with size="bucket", and without: pixels of padding for each pixel of an image.

    python bench/bucket_padding.py PHOTOS

Plans an epoch of 100,000 samples that have the sizes of the photos, in random order; nothing is read or decoded.
"alone" is an image in a batch of its own, so only rounding up to multiples of 32 counts. "in any order" pads each batch
of the plain order to its largest image, as a collate function does. The last columns are the number of different sizes
of batches, and the CPU time to plan a batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.epoch import EpochPlan
from fastpipe.plan.recipe import Recipe

SAMPLES = 100_000
KINDS = {
    "area 224 x 224": Buckets(),
    "area 512 x 512": Buckets(area=512 * 512),
    "min_size 800, max_size 1333": Buckets(min_size=800, max_size=1333),
}


class Shapes:
    """The parts of an Index that a plan reads.

    Args:
        photos: (n, 2) widths and heights.
    """

    jpeg_bytes = SAMPLES * 110_000
    scattered = False
    packed = True

    def __init__(self, photos: NDArray[np.int64]) -> None:
        self._sides = photos[np.random.default_rng(0).integers(len(photos), size=SAMPLES)]

    def __len__(self) -> int:
        return SAMPLES

    def samples_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def records_of(self, samples: NDArray[np.int64]) -> NDArray[np.void]:
        records = np.zeros(len(samples), dtype=INDEX_DTYPE)
        records["width"], records["height"] = self._sides[samples].T
        return records

    read = records_of


def padding(batches: list[NDArray[np.int64]], buckets: Buckets) -> float:
    """Of batches of (n, 2) heights and widths."""
    of_images = sum(int(sizes.prod(axis=1).sum()) for sizes in batches)
    of_batches = 0
    for sizes in batches:
        height, width = (buckets.rounded_up(side) for side in sizes.max(axis=0).tolist())
        of_batches += len(sizes) * height * width
    return of_batches / of_images - 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    files = sorted(
        path
        for path in parser.parse_args().photos.glob("*/*")
        if path.suffix.lower() in (".jpg", ".jpeg")
    )
    index = Shapes(np.array([Image.open(file).size for file in files]))
    heads = "| | batch | alone | buckets | in any order | sizes | ms a batch |\n|---|---|---|---|---|---|---|\n"
    sys.stdout.write(heads)
    for name, buckets in KINDS.items():
        for batch_size in (8, 32, 256):
            recipe = Recipe(batch_size, buckets.largest, buckets, 0.0, True, True, 0)
            plan = EpochPlan(index, recipe, 0)  # type: ignore[arg-type]
            started = time.process_time()
            crops = [plan.batch(number).crops for number in range(len(plan))]
            milliseconds = 1e3 * (time.process_time() - started) / len(plan)
            shown = [each.shown for each in crops if each.shown is not None]
            together = np.concatenate(shown)
            alone = padding([size[None] for size in together[:5000]], buckets)
            mixed = np.array_split(np.random.default_rng(1).permutation(together), len(shown))
            shares = (alone, padding(shown, buckets), padding(mixed, buckets))
            columns = " | ".join(f"{share:.0%}" for share in shares)
            sizes = len({each.size for each in crops})
            sys.stdout.write(
                f"| {name} | {batch_size} | {columns} | {sizes} | {milliseconds:.2f} |\n"
            )


if __name__ == "__main__":
    main()
