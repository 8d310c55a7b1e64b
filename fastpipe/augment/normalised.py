"""What happens to normalised images: a box of some becomes blank; they are mixed with their neighbours, as are labels.

Random erasing: Zhong et al., "Random Erasing Data Augmentation", 2020, with the ranges of torchvision's RandomErasing.
Mixup and cutmix are one formula, mask * image + (1 - mask) * partner: mixup's mask is one number a sample (Zhang et
al., "mixup: Beyond Empirical Risk Minimization", 2018), cutmix's is 0 in a box and 1 outside (Yun et al., "CutMix",
2019). The partner of a row is the row before it; that of the first is the last.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
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
        boxes = _erased_boxes(draws, size)
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


def _erased_boxes(draws: Draws, size: tuple[int, int]) -> NDArray[np.int64]:
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


def beta(u: NDArray[np.float64], v: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Two uniform draws of [0, 1) -> one of Beta(alpha, alpha), exactly.

    Source: Bailey's polar method for Student's t ("Polar generation of random variates with the t-distribution",
    1994); (1 + t / sqrt(2 alpha + t * t)) / 2 of a t with 2 alpha degrees of freedom is Beta(alpha, alpha).
    """
    log_w = np.log1p(-u) / alpha  # of 1 - u, which is never 0
    w, rest = np.exp(log_w), -np.expm1(log_w)
    cosine = np.cos(2 * np.pi * v)
    square = cosine * cosine * rest + w
    share = (1 + cosine * np.sqrt(rest) / np.sqrt(np.where(square > 0, square, 1))) / 2
    return np.clip(share, 0, 1)  # but for rounding it lies there


class Mixing(Operation):
    """Mixes each sample with its neighbour; after normalising. `mixup` and `cutmix` are the alphas of their Beta
    distributions; 0: not done. With both, each sample takes one of them, half and half.
    """

    by_rows = False
    mixes = in_pairs = True

    def __init__(self, mixup: float, cutmix: float) -> None:
        super().__init__()
        self.alphas = mixup, cutmix
        self.moves = frozenset(["shown"] if mixup else ["shown", "mask", "image"])  # cutmix pastes them, too

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Draws the shares; where rows have padding, cutmix counts the pixels of images only.

        Host and arrays: "cut" (n,), which samples are cut; "share" (n,) float32, what is left of the sample itself,
        exact to the pixel for cutmix; "boxes" (n, 4) int64 top, left, bottom, right, empty where it is not cut.
        """
        mixup, cutmix = self.alphas
        cut = np.full(len(draws), cutmix > 0)
        if mixup > 0 and cutmix > 0:
            cut = draws.each(Stream.MIX_OR_CUT) < 0.5
        u, v = draws.each(Stream.MIX_RADIUS), draws.each(Stream.MIX_ANGLE)
        share = np.zeros(len(draws))
        for alpha, rows in ((mixup, ~cut), (cutmix, cut)):
            if alpha > 0:
                share[rows] = beta(u[rows], v[rows], alpha)
        boxes = np.where(cut[:, None], _boxes(draws, size, share), 0)
        share = np.where(cut, 1 - box_share(boxes, np.roll(np.arange(len(draws)), 1), draws, size), share)
        share = share.astype(np.float32)
        return Step((cut, share, boxes), {"cut": cut.astype(np.float32), "share": share, "boxes": boxes})

    def run(self, images: Tensor, first: int, host: tuple[NDArray[Any], ...], tensors: Mapping[str, Tensor]) -> Tensor:
        """Mixes the images."""
        cut, share, boxes = host
        images = images.permute(0, 2, 3, 1)  # as they lie in memory
        if pixels.on_cpu(images.device):
            return _one_by_one(images, cut, share, boxes).permute(0, 3, 1, 2)
        mask = tensors["share"][:, None, None, None]
        if cut.any():
            # 1 in a cut sample, where its share says nothing about single pixels; then 0 in its box.
            mask = torch.where(tensors["cut"][:, None, None, None] > 0, 1.0, mask)
            mask = mask.masked_fill(inside(tensors["boxes"], *images.shape[1:3])[..., None], 0)
        return torch.lerp(images.roll(1, 0), images, mask).permute(0, 3, 1, 2)

    def move(self, kind: str, values: Tensor, host: Any, tensors: Mapping[str, Tensor]) -> Tensor:
        """Pastes the boxes of cutmix; after mixup, rows show what either image shows."""
        partner = values.roll(1, 0)
        pasted = torch.where(inside(tensors["boxes"], *values.shape[2:])[:, None], partner, values)
        if kind != "shown":
            return pasted
        return torch.where(tensors["cut"][:, None, None, None] > 0, pasted, torch.maximum(values, partner))

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Mapping[str, Tensor]) -> Tensor:
        """Each row keeps its share of its own label; the rest is its partner's."""
        return torch.lerp(labels.roll(1, 0), labels, tensors["share"][:, None])


def box_share(
    boxes: NDArray[np.int64], partners: NDArray[np.int64], draws: Draws, size: tuple[int, int]
) -> NDArray[np.float64]:
    """(n,): of the pixels of images in each row of `size`, the part that is its partner's, in its box, (n, 4)."""
    if draws.shown is None:
        return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(axis=1) / (size[0] * size[1]))
    shown = draws.shown * size
    corner = np.minimum(boxes[:, None, 2:], np.stack([shown, shown[partners]], axis=1))
    own, others = np.maximum(corner - boxes[:, None, :2], 0).prod(axis=2).T  # pixels of both in the box
    return np.asarray(others / (shown.prod(axis=1) - own + others))


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


def _one_by_one(images: Tensor, cut: NDArray[np.bool_], share: NDArray[np.float32], boxes: NDArray[np.int64]) -> Tensor:
    """In place, from the last row to the first: so only one image has to be kept, and no other memory is touched."""
    last = images[-1].clone()
    for row in range(len(images) - 1, -1, -1):
        image, partner = images[row], images[row - 1] if row else last
        if cut[row]:
            box = boxes[row].tolist()
            cut_out(image, box).copy_(cut_out(partner, box))
        else:
            torch.lerp(partner, image, float(share[row]), out=image)
    return images


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Labels (n,) int64 below num_classes -> (n, num_classes) float32: 1 for the class, else 0."""
    # Not torch's one_hot or scatter: a label out of range would end a CUDA program, or one_hot would ask the device.
    classes = torch.arange(num_classes, device=labels.device)
    return (labels[:, None] == classes).to(torch.float32)
