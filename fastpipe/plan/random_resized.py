"""Image sizes and draws -> the boxes of random-resized crops: several views' at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastpipe.plan.crops import RandomResizedCrop
from fastpipe.plan.draws import Stream, key, keys, uniform, uniform_one

_TRIES = 10


def random_resized(
    crops: Sequence[tuple[RandomResizedCrop, int]],
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    *,
    epoch: int,
    samples: NDArray[np.int64],
) -> NDArray[np.int64]:
    """torchvision's RandomResizedCrop.get_params: ten tries at an area and a ratio that fit, then the middle.

    Args:
        crops: each with its seed. Several are drawn in the time of few.
        widths, heights: (n,) of the pictures in pixels, at least 1.
        epoch, samples: name the draws; samples is (n,).

    Returns:
        (crops, n, 4): left, top, width and height of each crop of each picture.
    """
    if len(crops) == len(samples) == 1:
        ((crop, seed),) = crops
        box = _one(crop, int(widths[0]), int(heights[0]), seed, epoch, int(samples[0]))
        return np.array(box).reshape(1, 1, 4)
    seeds = [seed for _, seed in crops]
    of = np.repeat(np.arange(len(crops)), len(samples))  # whose crop each of the rows below is
    names, widths, heights = (np.tile(each, len(crops)) for each in (samples, widths, heights))
    scales = np.array([crop.scale for crop, _ in crops]).reshape(-1, 2)
    ratios = np.array([crop.ratio for crop, _ in crops]).reshape(-1, 2)
    logs = np.array([[math.log(each) for each in crop.ratio] for crop, _ in crops]).reshape(-1, 2)

    def draw(stream: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return uniform(keys(seeds, epoch, stream)[of[rows]], names[rows])

    def between(ends: NDArray[np.float64], stream: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        first, last = ends[of[rows]].T
        drawn: NDArray[np.float64] = first + (last - first) * draw(stream, rows)
        return drawn

    todo = np.arange(len(of))
    x_drawn, y_drawn = draw(Stream.CROP_X, todo), draw(Stream.CROP_Y, todo)
    out = np.empty((len(of), 4), dtype=np.int64)
    for attempt in range(_TRIES):
        if not len(todo):
            break
        width, height = widths[todo], heights[todo]
        area = (width * height) * between(scales, Stream.CROP_AREA + attempt, todo)
        ratio = np.exp(between(logs, Stream.CROP_RATIO + attempt, todo))
        w = np.rint(np.sqrt(area * ratio)).astype(np.int64)
        h = np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        x = (x_drawn[todo] * (width - w + 1)).astype(np.int64)
        y = (y_drawn[todo] * (height - h + 1)).astype(np.int64)
        out[todo[fits]] = np.stack([x, y, w, h], axis=1)[fits]
        todo = todo[~fits]
    out[todo] = _middle(ratios[of[todo]].T, widths[todo], heights[todo])
    return out.reshape(len(crops), len(samples), 4)


def _one(
    crop: RandomResizedCrop, width: int, height: int, seed: int, epoch: int, sample: int
) -> tuple[int, ...] | NDArray[np.int64]:
    """The same numbers for one picture, in a tenth of the time: numpy's calls are slow for arrays of one."""

    def draw(stream: int) -> float:
        return uniform_one(key(seed, epoch, stream), sample)

    low, high = math.log(crop.ratio[0]), math.log(crop.ratio[1])
    for attempt in range(_TRIES):
        area = (width * height) * (crop.scale[0] + (crop.scale[1] - crop.scale[0]) * draw(Stream.CROP_AREA + attempt))
        # numpy's, which may differ from Python's in the last bit.
        ratio = float(np.exp(low + (high - low) * draw(Stream.CROP_RATIO + attempt)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(draw(Stream.CROP_X) * (width - w + 1)), int(draw(Stream.CROP_Y) * (height - h + 1)), w, h
    return _middle(crop.ratio, np.array([width]), np.array([height]))


def _middle(
    ratio: tuple[float, float] | NDArray[np.float64], widths: NDArray[np.int64], heights: NDArray[np.int64]
) -> NDArray[np.int64]:
    """As much of the middle as the nearest allowed ratio leaves."""
    too_tall = widths / heights < ratio[0]
    too_wide = widths / heights > ratio[1]
    w = np.where(too_wide, np.rint(heights * ratio[1]).astype(np.int64), widths)
    h = np.where(too_tall, np.rint(widths / ratio[0]).astype(np.int64), heights)
    w, h = np.clip(w, 1, widths), np.clip(h, 1, heights)
    return np.stack([(widths - w) // 2, (heights - h) // 2, w, h], axis=1)
