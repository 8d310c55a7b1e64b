"""Draws -> a box of some samples, which becomes blank: random erasing.

Source: Zhong et al., "Random Erasing Data Augmentation", 2020, with the ranges of torchvision's RandomErasing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment import pixels
from fastpipe.augment.operation import Draws, Operation, Step, on_rows
from fastpipe.augment.pixels import cut_out, inside
from fastpipe.plan.draws import Stream

SCALE = (0.02, 0.33)  # share of the image's area
RATIO = (0.3, 3.3)  # height divided by width
_TRIES = 10


class Erasing(Operation):
    """Blanks a box in a share of the samples: zeros in the normalised image, which is the mean colour."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Draws the boxes. Host and arrays: "rows" (m,), "boxes" (m, 4) int64 top, left, bottom, right."""
        boxes = _boxes(draws, size)
        chosen = (draws.each(Stream.ERASE) < self.probability) & (boxes[:, 2] > boxes[:, 0])
        rows = np.flatnonzero(chosen & (boxes[:, 3] > boxes[:, 1]))
        return Step((rows, boxes[rows]), {"rows": rows, "boxes": boxes[rows]})

    def run(
        self, images: Tensor, first: int, host: tuple[NDArray[np.int64], ...], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """Blanks the boxes, in place."""
        rows, boxes = host
        lying = images.permute(0, 2, 3, 1)  # as they lie in memory
        if not pixels.on_cpu(images.device):
            blanked = on_rows(_blank, lying, first, rows, tensors["rows"], tensors["boxes"])
            assert blanked is lying
        else:
            for place in range(bisect_left(rows, first), bisect_left(rows, first + len(images))):
                cut_out(lying[rows[place] - first], boxes[place].tolist()).zero_()
        return images


def _boxes(draws: Draws, size: tuple[int, int]) -> NDArray[np.int64]:
    """(n, 4): top, left, bottom, right; empty where ten tries found none that fits."""
    height, width = size
    log_ratio = math.log(RATIO[0]), math.log(RATIO[1])
    boxes = np.zeros((len(draws), 4), dtype=np.int64)
    todo = np.ones(len(draws), dtype=bool)
    top, left = draws.each(Stream.ERASE_Y), draws.each(Stream.ERASE_X)
    for attempt in range(_TRIES):
        if not todo.any():
            break
        area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * draws.each(Stream.ERASE_AREA + attempt))
        ratio = np.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * draws.each(Stream.ERASE_RATIO + attempt))
        h, w = np.rint(np.sqrt(area * ratio)).astype(np.int64), np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = todo & (h < height) & (w < width)
        y, x = (top * (height - h + 1)).astype(np.int64), (left * (width - w + 1)).astype(np.int64)
        boxes[fits] = np.stack([y, x, y + h, x + w], axis=1)[fits]
        todo &= ~fits
    return boxes


def _blank(images: Tensor, boxes: Tensor) -> Tensor:
    return images.masked_fill_(inside(boxes, *images.shape[1:3])[..., None], 0)
