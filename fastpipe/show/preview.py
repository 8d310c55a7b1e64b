"""A packed dataset and an augmentation -> a sheet of some photos, their crops, and the images that the model sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fastpipe.augment import Augment
from fastpipe.engine.engine import Engine
from fastpipe.format.index import Index
from fastpipe.machine.cpus import granted_cpus
from fastpipe.plan.batch import BatchPlan, EpochPlan, Recipe
from fastpipe.plan.crops import Crops, RandomResizedCrop
from fastpipe.show.sheet import contact_sheet, fitted, with_boxes, write_png

VARIANTS = 8
SIZE = 160

PRESETS: dict[str, Callable[..., Augment]] = {
    "none": Augment.imagenet,
    "simclr": Augment.simclr,
    "randaugment": Augment.randaugment,
    "trivial_augment": Augment.trivial_augment,
}


def write_preview(data: Path, out: Path, *, preset: str = "none", rows: int = 6, seed: int = 0) -> int:
    """Draws one row a photo: the photo, the random crops on it, and each crop as training would see it.

    The crops, mirrored or not, and the augmentation are those of the photo in epochs 0 to 7 of a loader with this seed
    and preset; only the normalising is left out. Yellow is the crop of epoch 0.

    Args:
        data: a packed dataset.
        out: the PNG.
        preset: a name in PRESETS.
        rows: photos.
        seed: of the loader; also picks the photos.

    Returns:
        How many photos the sheet shows: `rows`, or as many as there are.

    Raises:
        SampleError: a photo cannot be decoded.
    """
    index = Index(data)
    count = min(rows, len(index))
    samples = np.sort(np.random.default_rng(seed).choice(len(index), count, replace=False)).astype(np.int64)
    recipe = Recipe(count, (SIZE, SIZE), RandomResizedCrop(), 0.5, True, True, seed)
    augment = PRESETS[preset](mean=None, std=None)
    plans = [EpochPlan(index, recipe, epoch).of(samples) for epoch in range(VARIANTS)]
    engine = Engine(index, granted_cpus())
    try:
        photos = [_whole(engine, index, plans[0], row) for row in range(count)]
        variants = [_variant(engine, index, augment, plan, epoch, seed) for epoch, plan in enumerate(plans)]
    finally:
        engine.close()
    cells: list[NDArray[np.uint8]] = []
    captions: list[str] = []
    for row, photo in enumerate(photos):
        record = plans[0].records[row]
        scale = photo.shape[1] / record["width"]
        boxes = np.stack([plan.crops.boxes[row] for plan in plans]) * scale
        cells += [fitted(photo, SIZE), fitted(with_boxes(photo, boxes), SIZE), *(images[row] for images in variants)]
        captions += [index.class_name(record["label"]), f"{record['width']} x {record['height']}"]
        captions += [f"epoch {epoch}" for epoch in range(VARIANTS)]
    write_png(out, contact_sheet(np.stack(cells), captions, columns=2 + VARIANTS))
    return count


def _whole(engine: Engine, index: Index, plan: BatchPlan, row: int) -> NDArray[np.uint8]:
    """A whole photo, shrunk or enlarged to fit a cell: (h, w, 3)."""
    record = plan.records[row]
    width, height = int(record["width"]), int(record["height"])
    scale = SIZE / max(width, height)
    image = np.empty((1, max(1, round(height * scale)), max(1, round(width * scale)), 3), dtype=np.uint8)
    box = np.array([[0, 0, width, height]])
    crops = Crops(box.astype(np.float64), box.astype(np.int32))
    one = slice(row, row + 1)
    whole = replace(
        plan,
        samples=plan.samples[one],
        records=plan.records[one],
        crops=crops,
        flips=np.zeros(1, dtype=np.bool_),
        valid=plan.valid[one],
    )
    _decode(engine, index, whole, image)
    return image.reshape(image.shape[1:])


def _variant(
    engine: Engine, index: Index, augment: Augment, plan: BatchPlan, epoch: int, seed: int
) -> NDArray[np.uint8]:
    """All photos as an epoch would show them: (rows, SIZE, SIZE, 3)."""
    images = np.empty((len(plan), SIZE, SIZE, 3), dtype=np.uint8)
    _decode(engine, index, plan, images)
    seen: torch.Tensor = augment(
        torch.from_numpy(images).permute(0, 3, 1, 2), seed=seed, epoch=epoch, batch=0, samples=plan.samples
    )
    pixels: NDArray[np.uint8] = seen.clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return pixels


def _decode(engine: Engine, index: Index, plan: BatchPlan, images: NDArray[np.uint8]) -> None:
    for row, reason in engine.decode(plan, images):
        raise index.sample_error(int(plan.samples[row]), reason)
