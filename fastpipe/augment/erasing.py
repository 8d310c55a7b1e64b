"""Draws -> a box of some samples, which is blanked: random erasing.

Source: Zhong et al., "Random Erasing Data Augmentation", 2020, with the ranges of torchvision's RandomErasing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment.operation import on_rows
from fastpipe.augment.plan import Draws, Step
from fastpipe.draws import Stream

SCALE = (0.02, 0.33)  # share of the image's area
RATIO = (0.3, 3.3)  # height divided by width
_TRIES = 10


@dataclass(frozen=True)
class Erasing:
    """Blanks a box in a share of the samples: zeros in the normalised image, which is the mean colour.

    Args:
        probability: that a sample loses a box.
    """

    probability: float

    def plan(self, draws: Draws, size: tuple[int, int]) -> Step:
        """Draws the boxes: arrays "rows" (m,), and "boxes" (m, 4) int64: top, left, bottom, right."""
        boxes = _boxes(draws, size)
        chosen = (draws.each(Stream.ERASE) < self.probability) & (boxes[:, 2] > boxes[:, 0])
        rows = np.flatnonzero(chosen & (boxes[:, 3] > boxes[:, 1]))
        return Step(rows, {"rows": rows, "boxes": boxes[rows]})

    def apply(self, rows_nhw: Tensor, first: int, rows: NDArray[np.int64], tensors: Mapping[str, Tensor]) -> None:
        """Blanks the boxes in images (n, height, width * 3), the batch's rows from `first` on, in place."""
        out = on_rows(_blank, rows_nhw, first, rows, tensors["rows"], tensors["boxes"])
        assert out is rows_nhw


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


def inside(boxes: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Boxes (m, 4) -> which rows (m, height, 1) and which places along rows (m, 1, width * 3) they hold."""
    y = torch.arange(height, device=boxes.device)[:, None]
    x = torch.arange(width, device=boxes.device).repeat_interleave(3, output_size=width * 3)
    top, left, bottom, right = (edge[:, None, None] for edge in boxes.unbind(1))
    return (y >= top) & (y < bottom), (x >= left) & (x < right)


def _blank(rows_nhw: Tensor, boxes: Tensor) -> Tensor:
    across, along = inside(boxes, rows_nhw.shape[1], rows_nhw.shape[2] // 3)
    return rows_nhw.masked_fill_(across & along, 0)
