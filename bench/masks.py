"""Turns a folder of JPEG photos into a Markdown table: CPU time of a training crop of photo and mask, here and there.

    python bench/masks.py PHOTOS [--count 300] [--repeats 5] [--workers 2]

The masks are made of the photos: regions of like luminance, each with an id. Photos are packed as `fastpipe pack` does,
masks are PNGs as Pillow writes them (for torchvision) and as `fastpipe pack` does (for fastpipe). Both do the same:
RandomResizedCrop(224), mirroring, a uint8 photo and its mask, for each photo once a round. They take turns; CPU time is
that of the whole process, and of each one's rounds the median counts.
"""

from __future__ import annotations

import argparse
import functools
import io
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from peers.import_torchvision import torchvision
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

from fastpipe import _engine
from fastpipe.dataset.format.fields import FIELD_IMAGE_DTYPE, PNG
from fastpipe.dataset.format.layout import INDEX_DTYPE
from fastpipe.engine.engine import Engine
from fastpipe.plan.batch import BatchPlan
from fastpipe.plan.crop_boxes import plan_crops
from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.sources.picture.png import encode_png

SIZE = (224, 224)
IDS = np.array([0, 15, 7, 3, 12, 1, 20, 255], dtype=np.uint8)  # of regions, from dark to light
BLUR = 8.0  # pixels: about as many regions as a segmented photo has
TILE = 64  # as `fastpipe pack` writes them


def mask_of(photo: Image.Image) -> NDArray[np.uint8]:
    """Regions of like luminance: few ids, flat areas, smooth edges."""
    light = cv2.GaussianBlur(np.asarray(photo.convert("L")), (0, 0), BLUR)
    return IDS[light // 32]


class Torchvision(torch.utils.data.Dataset[Any]):
    """Photos and masks as a training script has them: files in memory, Pillow, v2."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.pairs = pairs
        self.transform = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, number: int) -> Any:
        photo, mask = (Image.open(io.BytesIO(data)) for data in self.pairs[number])
        image = tv_tensors.Image(v2.functional.pil_to_tensor(photo.convert("RGB")))
        return self.transform(image, tv_tensors.Mask(torch.from_numpy(np.array(mask))))


class Fastpipe:
    """The same photos and masks in one shard, by the engine's threads."""

    def __init__(self, folder: Path, jpegs: list[bytes], masks: list[bytes], threads: int) -> None:
        self.records = np.zeros(len(jpegs), dtype=INDEX_DTYPE)
        self.fields = np.zeros(len(jpegs), dtype=FIELD_IMAGE_DTYPE)
        with open(folder / "shard", "wb") as file:
            for number, (jpeg, mask) in enumerate(zip(jpegs, masks, strict=True)):
                width, height = _engine.picture_size(jpeg)
                record, field = self.records[number], self.fields[number]
                record["offset"], record["size"] = file.tell(), len(jpeg)
                field["offset"], field["size"] = file.tell() + len(jpeg), len(mask)
                record["width"], record["height"], field["format"] = width, height, PNG
                file.write(jpeg + mask)
        shard = SimpleNamespace(name="shard", size_bytes=(folder / "shard").stat().st_size)
        index = SimpleNamespace(
            folder=folder,
            shards=[shard],
            mtimes_ns=None,
            convert=None,
            reader=lambda: None,
            in_coefficients=lambda shards: False,
        )
        self.engine = Engine(index, threads)  # type: ignore[arg-type]
        self.images = np.zeros((len(jpegs), *SIZE, 3), dtype=np.uint8)
        self.masks = np.zeros((len(jpegs), *SIZE), dtype=np.uint8)

    def plan(self, epoch: int) -> BatchPlan:
        samples = np.arange(len(self.records))
        sides = (self.records[name].astype(np.int64) for name in ("width", "height"))
        crops = plan_crops(RandomResizedCrop(), SIZE, *sides, seed=0, epoch=epoch, samples=samples)
        return BatchPlan(
            ids=samples,
            samples=samples,
            records=self.records,
            crops=crops,
            flips=samples % 2 == epoch % 2,
            valid=np.ones(len(samples), dtype=bool),
            names=samples,
            row_names=samples,
        )

    def epoch(self, number: int, *, photos: bool = True, masks: bool = True) -> None:
        plan, jobs = self.plan(number), []
        if photos:
            jobs.append(self.engine.submit(plan, (self.images, False)))
        if masks:
            jobs.append(self.engine.submit_field(plan, self.fields, self.masks))
        for job in jobs:
            while not job.wait(1.0):
                pass
            assert job.errors() == []


def cpu_s(work: Callable[[], object]) -> float:
    """CPU time of all threads of this process, and of its workers, which have ended by then."""
    started = used_s()
    work()
    return used_s() - started


def used_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="CPU time of a training crop of photo and mask.")
    parser.add_argument("folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--count", type=int, default=300, help="number of photos (default 300)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default 5)")
    parser.add_argument(
        "--workers", type=int, default=2, help="threads here, worker processes there (default 2)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(
        path for path in arguments.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )
    photos = [path.read_bytes() for path in paths[: arguments.count]]
    masks = [mask_of(Image.open(io.BytesIO(photo))) for photo in photos]
    theirs = []
    for mask in masks:
        stream = io.BytesIO()
        Image.fromarray(mask).save(stream, "PNG")
        theirs.append(stream.getvalue())
    ours = [encode_png(mask, filters=False) for mask in masks]
    packed = [_engine.transcode(photo, tile=TILE)[0] or photo for photo in photos]

    dataset = Torchvision(list(zip(photos, theirs, strict=True)))
    with tempfile.TemporaryDirectory(prefix="fastpipe-masks-") as folder:
        as_is = Path(folder) / "pillow"
        as_is.mkdir()
        mine = Fastpipe(Path(folder), packed, ours, arguments.workers)
        foreign = Fastpipe(as_is, packed, theirs, arguments.workers)

        def loaded() -> None:
            loader = torch.utils.data.DataLoader(
                dataset, batch_size=25, num_workers=arguments.workers
            )
            assert sum(len(images) for images, _ in loader) == len(photos)

        contenders: dict[str, Callable[[int], object]] = {
            "DataLoader, Pillow, torchvision v2": lambda _: loaded(),
            "the same without workers": lambda _: [
                dataset[number] for number in range(len(dataset))
            ],
            "fastpipe, photo and mask": mine.epoch,
            "fastpipe, photo alone": lambda number: mine.epoch(number, masks=False),
            "fastpipe, mask alone": lambda number: mine.epoch(number, photos=False),
            "fastpipe, mask alone, as Pillow wrote it": lambda number: foreign.epoch(
                number, photos=False
            ),
        }
        took: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(arguments.repeats + 1):
            for name, work in contenders.items():
                took[name].append(cpu_s(functools.partial(work, number)))
    first, *_ = (statistics.median(times[1:]) for times in took.values())
    pixels = statistics.mean(mask.size for mask in masks)
    sys.stdout.write(
        f"{len(photos)} photos of {pixels / 1e6:.2f} megapixels and {statistics.mean(map(len, photos)) / 1e3:.0f} kB; "
        f"masks of {statistics.mean(map(len, theirs)) / 1e3:.1f} kB by Pillow, "
        f"{statistics.mean(map(len, ours)) / 1e3:.1f} kB by fastpipe; {arguments.workers} workers; torch "
        f"{torch.__version__}, torchvision {torchvision.__version__}\n\n"
        "| pipeline | CPU time a sample | as fast |\n|---|---|---|\n"
    )
    for name, times_s in took.items():
        median = statistics.median(times_s[1:])
        sys.stdout.write(
            f"| {name} | {median / len(photos) * 1e6:.0f} us | {first / median:.1f}x |\n"
        )


if __name__ == "__main__":
    main()
