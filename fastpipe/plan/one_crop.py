"""The crop of one picture: the same numbers as plan_crops, in a fifth of the time, since arrays of one are slow."""

from __future__ import annotations

import functools
import math

import numpy as np

from fastpipe.plan.crop_boxes import Crops, plan_crops
from fastpipe.plan.crops import Crop, RandomResizedCrop
from fastpipe.plan.draws import Stream, key, uniform_one
from fastpipe.plan.random_resized import TRIES, middle

_key = functools.lru_cache(maxsize=1024)(key)


def plan_one_crop(
    crop: Crop, size: tuple[int, int], width: int, height: int, *, seed: int, epoch: int, sample: int
) -> Crops:
    """As `plan_crops` for one picture.

    Args:
        crop: a checked crop.
        size: (height, width) of the output in pixels.
        width, height: of the picture in pixels, at least 1.
        seed, epoch, sample: name the draws.
    """
    if not crop.is_random:
        return _without_draws(crop, size, width, height)
    if not isinstance(crop, RandomResizedCrop):
        sides, numbers = np.array([[width], [height]], dtype=np.int64), np.array([sample])
        return plan_crops(crop, size, sides[0], sides[1], seed=seed, epoch=epoch, samples=numbers)
    box = np.array([_random_resized(crop, width, height, seed, epoch, sample)], dtype=np.int32)
    return Crops(box.astype(np.float64), box, size, crop.rendering)


def is_mirrored(flip: float, *, seed: int, epoch: int, sample: int) -> bool:
    """Whether a picture is mirrored, with probability `flip`."""
    return uniform_one(_key(seed, epoch, Stream.FLIP), sample) < flip


@functools.lru_cache(maxsize=1024)
def _without_draws(crop: Crop, size: tuple[int, int], width: int, height: int) -> Crops:
    sizes, nobody = np.array([[width], [height]], dtype=np.int64), np.zeros(1, dtype=np.int64)
    return plan_crops(crop, size, sizes[0], sizes[1], seed=0, epoch=0, samples=nobody)


def _random_resized(
    crop: RandomResizedCrop, width: int, height: int, seed: int, epoch: int, sample: int
) -> tuple[int, int, int, int]:
    def draw(stream: int) -> float:
        return uniform_one(_key(seed, epoch, stream), sample)

    low, high = math.log(crop.ratio[0]), math.log(crop.ratio[1])
    for attempt in range(TRIES):
        area = (width * height) * (crop.scale[0] + (crop.scale[1] - crop.scale[0]) * draw(Stream.CROP_AREA + attempt))
        # numpy's, which may differ from Python's in the last bit.
        ratio = float(np.exp(low + (high - low) * draw(Stream.CROP_RATIO + attempt)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(draw(Stream.CROP_X) * (width - w + 1)), int(draw(Stream.CROP_Y) * (height - h + 1)), w, h
    x, y, w, h = middle(crop.ratio, np.array([width]), np.array([height]))[0].tolist()
    return x, y, w, h
