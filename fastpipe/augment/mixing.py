"""Draws -> how each sample is mixed with its neighbour in the batch, and its soft label: mixup and cutmix.

Both are one formula, mask * image + (1 - mask) * partner: mixup's mask is one number a sample (Zhang et al., "mixup:
Beyond Empirical Risk Minimization", 2018), cutmix's is 0 in a box and 1 outside (Yun et al., "CutMix", 2019). The
partner of a row is the row before it; that of the first is the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment.erasing import inside
from fastpipe.augment.plan import Draws, Step
from fastpipe.draws import Stream


def beta(u: NDArray[np.float64], v: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Two uniform draws of [0, 1) -> one of Beta(alpha, alpha), exactly.

    Source: Bailey's polar method for Student's t ("Polar generation of random variates with the t-distribution",
    1994); (1 + t / sqrt(2 alpha + t * t)) / 2 of a t with 2 alpha degrees of freedom is Beta(alpha, alpha).
    """
    log_w = np.log1p(-u) / alpha  # of 1 - u, which is never 0
    w, rest = np.exp(log_w), -np.expm1(log_w)
    cosine = np.cos(2 * np.pi * v)
    square = cosine * cosine * rest + w
    return (1 + cosine * np.sqrt(rest) / np.sqrt(np.where(square > 0, square, 1))) / 2


@dataclass(frozen=True)
class Mixing:
    """Mixes each sample with its neighbour.

    Args:
        mixup: alpha of mixup's Beta distribution; 0: no mixup.
        cutmix: alpha of cutmix's; 0: no cutmix. With both, each sample takes one of them, half and half.
    """

    mixup: float
    cutmix: float

    def plan(self, draws: Draws, size: tuple[int, int]) -> Step:
        """Draws the shares.

        Host: (n,) bool, which samples are cut. Arrays: "share" (n,) float32, what is left of the sample itself, exact
        to the pixel for cutmix; "blend" (n,), the mask of a sample outside of its box: 1 where it is cut; "boxes"
        (n, 4) int64 top, left, bottom, right; empty where it is not cut.
        """
        cut = np.full(len(draws), self.cutmix > 0)
        if self.mixup > 0 and self.cutmix > 0:
            cut = draws.each(Stream.MIX_OR_CUT) < 0.5
        u, v = draws.each(Stream.MIX_RADIUS), draws.each(Stream.MIX_ANGLE)
        share = np.zeros(len(draws))
        for alpha, rows in ((self.mixup, ~cut), (self.cutmix, cut)):
            if alpha > 0:
                share[rows] = beta(u[rows], v[rows], alpha)
        boxes = np.where(cut[:, None], _boxes(draws, size, share), 0)
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        share = np.where(cut, 1 - area / (size[0] * size[1]), share)
        arrays = {
            "share": share.astype(np.float32),
            "blend": np.where(cut, 1, share).astype(np.float32),
            "boxes": boxes,
        }
        return Step(cut, arrays)

    def apply(self, rows_nhw: Tensor, cut: NDArray[np.bool_], tensors: Mapping[str, Tensor]) -> Tensor:
        """Mixes the images of a whole batch, (n, height, width * 3) float32, which may be overwritten."""
        blend = tensors["blend"][:, None, None]
        if rows_nhw.device.type == "cpu":
            return _one_by_one(rows_nhw, cut, blend, tensors["boxes"])
        mask = _mask(blend, tensors["boxes"], rows_nhw) if cut.any() else blend
        return torch.lerp(rows_nhw.roll(1, 0), rows_nhw, mask)


def _boxes(draws: Draws, size: tuple[int, int], share: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n, 4): the paper's boxes, of 1 - share of the area around a uniform middle, cut off at the border."""
    height, width = size
    side = np.sqrt(1 - share)
    h, w = (height * side).astype(np.int64), (width * side).astype(np.int64)
    y = (draws.each(Stream.CUT_Y) * height).astype(np.int64)
    x = (draws.each(Stream.CUT_X) * width).astype(np.int64)
    edges = [y - h // 2, x - w // 2, y + h // 2, x + w // 2]
    limits = (height, width, height, width)
    return np.stack([np.clip(edge, 0, limit) for edge, limit in zip(edges, limits, strict=True)], axis=1)


def _mask(blend: Tensor, boxes: Tensor, rows_nhw: Tensor) -> Tensor:
    across, along = inside(boxes, rows_nhw.shape[1], rows_nhw.shape[2] // 3)
    return blend.masked_fill(across & along, 0)


def _one_by_one(rows_nhw: Tensor, cut: NDArray[np.bool_], blend: Tensor, boxes: Tensor) -> Tensor:
    """In place, from the last row to the first, so that only one image has to be kept: no other memory is touched."""
    last = rows_nhw[-1:].clone()
    for row in range(len(rows_nhw) - 1, -1, -1):
        this = slice(row, row + 1)
        image, partner = rows_nhw[this], rows_nhw[row - 1 : row] if row else last
        mask = _mask(blend[this], boxes[this], image) if cut[row] else blend[this]
        torch.lerp(partner, image, mask, out=image)
    return rows_nhw


def soft_labels(labels: Tensor, num_classes: int, smoothing: float, share: Tensor | None) -> Tensor:
    """Labels -> probabilities.

    Args:
        labels: (n,) int64 below num_classes.
        num_classes: how many.
        smoothing: share of each label that is spread evenly over all classes.
        share: (n,) of each row's own label; the rest is its partner's. None: not mixed.

    Returns:
        (n, num_classes) float32; each row's sum is 1.
    """
    # Not one_hot or scatter: a label out of range would end a CUDA program, or make one_hot ask the device.
    classes = torch.arange(num_classes, device=labels.device)
    own = (labels[:, None] == classes).to(torch.float32)
    if share is not None:
        own = torch.lerp(own.roll(1, 0), own, share[:, None])
    return own.mul_(1 - smoothing).add_(smoothing / num_classes) if smoothing else own
