"""What happens to normalised images: a box of some becomes blank; they are mixed with their neighbours, as are labels.

Random erasing: Zhong et al., "Random Erasing Data Augmentation", 2020, with the ranges of torchvision's RandomErasing.
Mixup and cutmix are one formula, mask * image + (1 - mask) * partner: mixup's mask is one number a sample (Zhang et
al., "mixup: Beyond Empirical Risk Minimization", 2018), cutmix's is 0 in a box and 1 outside (Yun et al., "CutMix",
2019). The partner of a row is the row before it; that of the first is the last.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastpipe.augment import pixels
from fastpipe.augment.operation import Draws, Operation, Step, Tensors, on_rows
from fastpipe.augment.pixels import cut_out, inside
from fastpipe.plan.draws import Bools, Float64s, Int64s, Stream, key

SCALE = (0.02, 0.33)  # share of the image's area
RATIO = (0.3, 3.3)  # height divided by width
_TRIES = 10

Draw = Callable[[int], Float64s]  # a stream -> (n,) in [0, 1)


class Erasing(Operation):
    """Blanks a box in a share of the samples: zeros in the normalised image, which is the mean colour.

    noise: "box": of one colour, "pixel": of one colour a pixel, drawn from the normal distribution; None: zeros. most:
    boxes of a sample, which share the area of one; as many as are drawn, at least 1. spared: the part of a batch, at
    its beginning, that stays as it is. The last three are timm's.
    """

    def __init__(self, probability: float, *, noise: str | None = None, most: int = 1, spared: float = 0.0) -> None:
        super().__init__()
        self.probability, self.noise, self.most, self.spared = probability, noise, most, spared

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Draws the boxes. Host and arrays: "rows" (m,), "boxes" (m, 4) int64 top, left, bottom, right; "seeds" (m,) of
        their noise.
        """
        chosen = draws.each(Stream.ERASE) < self.probability
        chosen[: int(self.spared * len(draws))] = False
        counts = 1 + np.floor(draws.each(Stream.ERASE_COUNT) * self.most)
        found = []
        for number in range(self.most):
            own = draws if number == 0 else replace(draws, seed=key(draws.seed, number, Stream.ERASE))
            boxes = _erased_boxes(own, size, counts)
            there = chosen & (number < counts) & (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
            rows = np.flatnonzero(there)
            found.append((rows, boxes[rows], own.sample_bits(Stream.ERASE_NOISE, position)[rows] >> np.uint64(1)))
        rows, boxes, seeds = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, boxes, seeds = rows[order], boxes[order], seeds[order].astype(np.int64)
        return Step((rows, boxes, seeds), {"rows": rows, "boxes": boxes})

    def run(self, images: Tensor, first: int, host: tuple[Int64s, ...], tensors: Tensors) -> Tensor:
        """Blanks the boxes, in place."""
        rows, boxes, seeds = host
        lying = images.permute(0, 2, 3, 1)  # as they lie in memory
        if self.noise is None and self.most == 1 and not pixels.on_cpu(images.device):
            return on_rows(_blank, lying, first, rows, tensors["rows"], tensors["boxes"]).permute(0, 3, 1, 2)
        for place in range(bisect_left(rows, first), bisect_left(rows, first + len(images))):
            box = cut_out(lying[rows[place] - first], boxes[place].tolist())
            if self.noise is None:
                box.zero_()
                continue
            generator = torch.Generator(box.device).manual_seed(int(seeds[place]))
            colours = box if self.noise == "pixel" else box[0, 0]
            box.copy_(torch.randn(colours.shape, dtype=box.dtype, device=box.device, generator=generator))
        return images

    def extra_repr(self) -> str:
        return f"{self.probability}, noise={self.noise!r}, most={self.most}, spared={self.spared}"


def _erased_boxes(draws: Draws, size: tuple[int, int], counts: Float64s) -> Int64s:
    """(n, 4): top, left, bottom, right, of one of a sample's `counts` boxes; empty where ten tries found none."""
    height, width = size
    log_ratio = math.log(RATIO[0]), math.log(RATIO[1])
    boxes = np.zeros((len(draws), 4), dtype=np.int64)
    todo = np.ones(len(draws), dtype=bool)
    top, left = draws.each(Stream.ERASE_Y), draws.each(Stream.ERASE_X)
    for attempt in range(_TRIES):
        if not todo.any():
            break
        share = SCALE[0] + (SCALE[1] - SCALE[0]) * draws.each(Stream.ERASE_AREA + attempt)
        area = height * width * share / counts
        ratio = np.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * draws.each(Stream.ERASE_RATIO + attempt))
        h, w = np.rint(np.sqrt(area * ratio)).astype(np.int64), np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = todo & (h < height) & (w < width)
        y, x = (top * (height - h + 1)).astype(np.int64), (left * (width - w + 1)).astype(np.int64)
        boxes[fits] = np.stack([y, x, y + h, x + w], axis=1)[fits]
        todo &= ~fits
    return boxes


def _blank(images: Tensor, boxes: Tensor) -> Tensor:
    return images.masked_fill_(inside(boxes, *images.shape[1:3])[..., None], 0)


def beta(u: Float64s, v: Float64s, alpha: float) -> Float64s:
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

    probability: of being mixed at all. cutting: probability of cutmix, where there are both. sides: least and most of a
    box's sides, as parts of the image's, in place of cutmix's alpha; such a box lies inside. at_once: one draw for the
    whole batch. from_the_end: a row's neighbour is the one as far from the end of the batch. These five are timm's.
    """

    by_rows = False
    mixes = in_pairs = True

    def __init__(
        self,
        mixup: float,
        cutmix: float,
        *,
        probability: float = 1.0,
        cutting: float = 0.5,
        sides: tuple[float, float] | None = None,
        at_once: bool = False,
        from_the_end: bool = False,
    ) -> None:
        super().__init__()
        self.alphas = mixup, cutmix
        self.probability, self.enabled = probability, True
        self.cutting, self.sides, self.at_once, self.from_the_end = cutting, sides, at_once, from_the_end
        self.moves = frozenset(["shown"] if mixup else ["shown", "mask", "image"])  # cutmix pastes them, too

    def partners(self, count: int) -> Int64s:
        """(count,): the row that is mixed into each row; a plan calls nothing of torch."""
        rows = np.arange(count)
        return np.flip(rows) if self.from_the_end else np.roll(rows, 1)

    def _partners(self, rows: Tensor) -> Tensor:
        """(n, ...): what is mixed into each of these."""
        return rows.flip(0) if self.from_the_end else rows.roll(1, 0)

    def plan(self, draws: Draws, size: tuple[int, int], position: int) -> Step:
        """Draws the shares; where rows have padding, cutmix counts the pixels of images only.

        Host and arrays: "cut" (n,), which samples are cut; "share" (n,) float32, what is left of the sample itself,
        exact to the pixel for cutmix; "boxes" (n, 4) int64 top, left, bottom, right, empty where it is not cut.
        """

        def draw(stream: int) -> Float64s:
            return np.full(len(draws), draws.once(stream)) if self.at_once else draws.each(stream)

        mixup, cutmix = self.alphas
        cut = np.full(len(draws), cutmix > 0)
        if mixup > 0 and cutmix > 0:
            cut = draw(Stream.MIX_OR_CUT) < self.cutting
        u, v = draw(Stream.MIX_RADIUS), draw(Stream.MIX_ANGLE)
        share = np.zeros(len(draws))
        for alpha, rows in ((mixup, ~cut), (cutmix, cut)):
            if alpha > 0:
                share[rows] = beta(u[rows], v[rows], alpha)
        boxes = _boxes(draw, size, share) if self.sides is None else _sided_boxes(draw, size, self.sides)
        if (probability := self.probability * self.enabled) < 1:
            left = draw(Stream.MIX) >= probability
            cut, share = cut & ~left, np.where(left, 1, share)
        boxes = np.where(cut[:, None], boxes, 0)
        share = np.where(cut, 1 - box_share(boxes, self.partners(len(draws)), draws, size), share)
        share = share.astype(np.float32)
        return Step((cut, share, boxes), {"cut": cut.astype(np.float32), "share": share, "boxes": boxes})

    def run(self, images: Tensor, first: int, host: tuple[NDArray[Any], ...], tensors: Tensors) -> Tensor:
        cut, share, boxes = host
        images = images.permute(0, 2, 3, 1)  # as they lie in memory
        if pixels.on_cpu(images.device) and not self.from_the_end:
            return _one_by_one(images, cut, share, boxes).permute(0, 3, 1, 2)
        mask = tensors["share"][:, None, None, None]
        if cut.any():
            # 1 in a cut sample, where its share says nothing about single pixels; then 0 in its box.
            mask = torch.where(tensors["cut"][:, None, None, None] > 0, 1.0, mask)
            mask = mask.masked_fill(inside(tensors["boxes"], *images.shape[1:3])[..., None], 0)
        return torch.lerp(self._partners(images), images, mask).permute(0, 3, 1, 2)

    def move(self, kind: str, values: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Pastes the boxes of cutmix; after mixup, rows show what either image shows."""
        partner = self._partners(values)
        pasted = torch.where(inside(tensors["boxes"], *values.shape[2:])[:, None], partner, values)
        if kind != "shown":
            return pasted
        return torch.where(tensors["cut"][:, None, None, None] > 0, pasted, torch.maximum(values, partner))

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Each row keeps its share of its own label; the rest is its partner's."""
        return torch.lerp(self._partners(labels), labels, tensors["share"][:, None])


def box_share(boxes: Int64s, partners: Int64s, draws: Draws, size: tuple[int, int]) -> Float64s:
    """(n,): of the pixels of images in each row of `size`, the part that is its partner's, in its box, (n, 4)."""
    if draws.shown is None:
        return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(axis=1) / (size[0] * size[1]))
    shown = draws.shown * size
    corner = np.minimum(boxes[:, None, 2:], np.stack([shown, shown[partners]], axis=1))
    own, others = np.maximum(corner - boxes[:, None, :2], 0).prod(axis=2).T  # pixels of both in the box
    return np.asarray(others / (shown.prod(axis=1) - own + others))


def _sided_boxes(draw: Draw, size: tuple[int, int], sides: tuple[float, float]) -> Int64s:
    """(n, 4): boxes inside of the image, with sides drawn between two parts of the image's."""
    (height, width), (least, most) = size, sides
    h = (height * (least + (most - least) * draw(Stream.CUT_HEIGHT))).astype(np.int64)
    w = (width * (least + (most - least) * draw(Stream.CUT_WIDTH))).astype(np.int64)
    y = (draw(Stream.CUT_Y) * (height - h + 1)).astype(np.int64)
    x = (draw(Stream.CUT_X) * (width - w + 1)).astype(np.int64)
    return np.stack([y, x, y + h, x + w], axis=1)


def _boxes(draw: Draw, size: tuple[int, int], share: Float64s) -> Int64s:
    """(n, 4): the paper's boxes, of 1 - share of the area around a uniform middle, cut off at the border."""
    height, width = size
    side = np.sqrt(1 - share)
    h, w = (height * side).astype(np.int64), (width * side).astype(np.int64)
    y = (draw(Stream.CUT_Y) * height).astype(np.int64)
    x = (draw(Stream.CUT_X) * width).astype(np.int64)
    edges = [y - h // 2, x - w // 2, y + h // 2, x + w // 2]
    limits = (height, width, height, width)
    return np.stack([np.clip(edge, 0, limit) for edge, limit in zip(edges, limits, strict=True)], axis=1)


def _one_by_one(images: Tensor, cut: Bools, share: NDArray[np.float32], boxes: Int64s) -> Tensor:
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
