"""Operations on normalised images: boxes become blank; images and labels are mixed.

Random erasing: Zhong et al., "Random Erasing Data Augmentation", 2020, with the ranges of
torchvision's RandomErasing. Mixup and cutmix are one formula, mask * image + (1 - mask) * partner:
mixup's mask is one number a sample (Zhang et al., "mixup: Beyond Empirical Risk Minimization",
2018), cutmix's is 0 in a box and 1 outside (Yun et al., "CutMix", 2019). The partner of a row is
the row before it; the partner of the first is the last.

Boxes are (n, 4) int64: top, left, bottom, right ("tlbr"). The last two are the first row and column
that are not in the box. An empty box has no pixels.
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

from fastpipe.arrays import Bools, Float32s, Float64s, Int64s
from fastpipe.device.augment import pixels
from fastpipe.device.augment.operation import (
    Array,
    Draws,
    Operation,
    Step,
    Tensors,
    on_rows,
)
from fastpipe.device.augment.pixels import cut_out, inside
from fastpipe.plan.crop_boxes import sides_of
from fastpipe.plan.crops import Size
from fastpipe.plan.draws import Stream, between, key, up_to

SCALE = (0.02, 0.33)  # share of the image's area
RATIO = (0.3, 3.3)  # height divided by width
_TRIES = 10

Draw = Callable[[int], Float64s]  # a stream -> (n,) in [0, 1)


class Erasing(Operation):
    """Blanks boxes in some samples: zeros in the normalised image, which is the mean colour.

    Args:
        probability: of a sample.
        noise: "box": a box has one random colour; "pixel": each pixel has one, both from the normal
            distribution; None: zeros.
        most: boxes of a sample, which share the area of one; a number from 1 to it is drawn.
        spared: the part of a batch, at its beginning, that stays as it is.

    The last three are timm's.
    """

    def __init__(
        self,
        probability: float,
        *,
        noise: str | None = None,
        most: int = 1,
        spared: float = 0.0,
    ) -> None:
        super().__init__()
        self.probability = probability
        self.noise = noise
        self.most = most
        self.spared = spared

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Draws which boxes of which rows are erased.

        Returns:
            A Step. Its `host` has rows, boxes, and seeds (m,) of their noise; its `arrays` have
            "rows" (m,) ascending, and "boxes" (m, 4): top, left, bottom, right, in pixels.
        """
        erase_draws = draws.each(Stream.ERASE)
        is_chosen = erase_draws < self.probability
        num_spared = int(self.spared * len(draws))
        is_chosen[:num_spared] = False
        # (n,) how many boxes a chosen sample gets, 1 to `most`.
        count_draws = draws.each(Stream.ERASE_COUNT)
        more_boxes = np.floor(count_draws * self.most)
        counts = 1 + more_boxes
        row_parts = []
        box_parts = []
        seed_parts = []
        for number in range(self.most):
            # Each further box of a sample has draws of its own.
            box_draws = draws
            if number > 0:
                box_seed = key(draws.seed, number, Stream.ERASE)
                box_draws = replace(draws, seed=box_seed)
            boxes_tlbr = _erased_boxes(box_draws, size, counts)
            top, left, bottom, right = boxes_tlbr.T
            has_height = bottom > top
            has_width = right > left
            has_area = has_height & has_width
            is_counted = number < counts
            has_box = is_chosen & is_counted
            is_erased = has_box & has_area
            rows = np.flatnonzero(is_erased)
            # 63 bits, because a generator takes signed seeds.
            noise_bits = box_draws.sample_bits(Stream.ERASE_NOISE, position)
            seeds = noise_bits >> np.uint64(1)
            row_parts.append(rows)
            box_parts.append(boxes_tlbr[rows])
            seed_parts.append(seeds[rows])
        # By row, as `run` needs them; the boxes of a row in the order of their numbers.
        rows = np.concatenate(row_parts)
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        all_boxes = np.concatenate(box_parts)
        boxes_tlbr = all_boxes[order]
        seeds = np.concatenate(seed_parts)
        seeds = seeds[order].astype(np.int64)
        arrays: dict[str, Array] = {"rows": rows, "boxes": boxes_tlbr}
        return Step((rows, boxes_tlbr, seeds), arrays)

    def run(
        self, images: Tensor, first_row: int, host: tuple[Int64s, ...], tensors: Tensors
    ) -> Tensor:
        """Blanks the boxes, in place."""
        rows, boxes_tlbr, seeds = host
        images_nhwc = images.permute(0, 2, 3, 1)  # as they lie in memory
        # One box a row, of zeros.
        is_simple = self.noise is None and self.most == 1
        # On a GPU launches take the time, so all boxes are blanked at once. Noise, or several boxes
        # of a row, are done box by box, as on a CPU.
        if is_simple and not pixels.on_cpu(images.device):
            blanked = on_rows(
                _blank, images_nhwc, first_row, rows, tensors["rows"], tensors["boxes"]
            )
            return blanked.permute(0, 3, 1, 2)
        # Those boxes that belong to these images.
        end_row = first_row + len(images)
        begin = bisect_left(rows, first_row)
        end = bisect_left(rows, end_row)
        for box_index in range(begin, end):
            image_index = rows[box_index] - first_row
            image = images_nhwc[image_index]
            box_tlbr = boxes_tlbr[box_index].tolist()
            box = cut_out(image, box_tlbr)
            if self.noise is None:
                box.zero_()
            else:
                seed = int(seeds[box_index])
                self._fill_with_noise(box, seed)
        return images

    def _fill_with_noise(self, box: Tensor, seed: int) -> None:
        """Fills a box (height, width, c) with random colours, one or as many as pixels."""
        shape = box.shape
        if self.noise != "pixel":
            shape = box.shape[2:]  # (c,): one colour, which is copied to all pixels
        generator = torch.Generator(box.device)
        generator.manual_seed(seed)
        noise = torch.randn(
            shape, dtype=box.dtype, device=box.device, generator=generator
        )
        box.copy_(noise)

    def extra_repr(self) -> str:
        return f"{self.probability}, noise={self.noise!r}, most={self.most}, spared={self.spared}"


def _erased_boxes(draws: Draws, size: Size, counts: Float64s) -> Int64s:
    """(n, 4): one of the `counts` boxes, (n,), of each sample.

    Empty if ten tries gave none that fits.
    """
    height, width = size
    min_share, max_share = SCALE
    min_ratio, max_ratio = RATIO
    min_log = math.log(min_ratio)
    max_log = math.log(max_ratio)
    boxes_tlbr = np.zeros((len(draws), 4), dtype=np.int64)
    is_todo = np.ones(len(draws), dtype=bool)
    y_draws = draws.each(Stream.ERASE_Y)
    x_draws = draws.each(Stream.ERASE_X)
    for attempt in range(_TRIES):
        if not is_todo.any():
            break
        # (n,) each: the share of the image's area evenly, the ratio evenly in its logarithm.
        area_draws = draws.each(Stream.ERASE_AREA + attempt)
        share = between(area_draws, min_share, max_share)
        area_of_all = height * width * share
        area = area_of_all / counts
        ratio_draws = draws.each(Stream.ERASE_RATIO + attempt)
        log_ratio = between(ratio_draws, min_log, max_log)
        ratio = np.exp(log_ratio)
        h, w = sides_of(area, ratio)
        fits_height = h < height
        fits_width = w < width
        fits = is_todo & fits_height & fits_width
        last_y = height - h
        last_x = width - w
        y = up_to(y_draws, last_y)
        x = up_to(x_draws, last_x)
        bottom = y + h
        right = x + w
        tried_boxes = np.stack([y, x, bottom, right], axis=1)
        boxes_tlbr[fits] = tried_boxes[fits]
        is_todo &= ~fits
    return boxes_tlbr


def _blank(images: Tensor, boxes_tlbr: Tensor) -> Tensor:
    """Zeros in a box of each image (n, height, width, c), in place."""
    height, width = images.shape[1:3]
    in_box = inside(boxes_tlbr, height, width)  # (n, height, width)
    in_box_of_channels = in_box[..., None]
    return images.masked_fill_(in_box_of_channels, 0)


def beta(u: Float64s, v: Float64s, alpha: float) -> Float64s:
    """Two uniform draws of [0, 1) -> one of Beta(alpha, alpha), exactly.

    Source: Bailey's polar method for Student's t ("Polar generation of random variates with the
    t-distribution", 1994); (1 + t / sqrt(2 alpha + t * t)) / 2 of a t with 2 alpha degrees of
    freedom is Beta(alpha, alpha).
    """
    log_of_1_minus_u = np.log1p(-u)  # 1 - u is never 0
    log_w = log_of_1_minus_u / alpha
    w = np.exp(log_w)
    one_minus_w = -np.expm1(log_w)
    angle = 2 * np.pi * v
    cosine = np.cos(angle)
    # t = cosine * sqrt(2 alpha * (1 - w) / w). Both sides of t / sqrt(2 alpha + t * t) are
    # multiplied by sqrt(w / (2 alpha)), so that a w of 0 makes no number infinite.
    numerator = cosine * np.sqrt(one_minus_w)
    squared_cosine = cosine * cosine
    square = squared_cosine * one_minus_w + w
    is_positive = square > 0
    positive_square = np.where(is_positive, square, 1)
    denominator = np.sqrt(positive_square)
    quotient = numerator / denominator  # from -1 to 1
    share = (1 + quotient) / 2
    return np.clip(share, 0, 1)  # rounding may move it outside


class Mixing(Operation):
    """Mixes each sample with its neighbour, after normalising.

    Args:
        mixup, cutmix: alphas of their Beta distributions; 0: not done. One of them is above 0; with
            both, each sample draws one.
        probability: of being mixed at all.
        cutting: probability of cutmix, if both are done.
        sides: least and most of a box's sides, as parts of the image's, in place of cutmix's alpha;
            such a box lies inside the image.
        at_once: one draw for the whole batch.
        from_the_end: a row's neighbour is as far from the end of the batch as the row is from its
            beginning.

    All but the first two are timm's.
    """

    by_rows = False
    mixes = True
    in_pairs = True

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
        self.alphas = (mixup, cutmix)
        self.probability = probability
        self.enabled = True  # timm switches mixing off after some epochs
        self.cutting = cutting
        self.sides = sides
        self.at_once = at_once
        self.from_the_end = from_the_end
        # A pixel of mixup belongs to two images, so masks and second images cannot follow.
        self.moves = frozenset(["shown", "mask", "image"])
        if mixup:
            self.moves = frozenset(["shown"])

    def partners(self, count: int) -> Int64s:
        """(count,): the row that is mixed into each row."""
        rows = np.arange(count)
        if self.from_the_end:
            return np.flip(rows)
        return np.roll(rows, 1)

    def _partners_of(self, rows: Tensor) -> Tensor:
        """(n, ...): the rows that are mixed into these."""
        if self.from_the_end:
            return rows.flip(0)
        return rows.roll(1, 0)

    def plan(self, draws: Draws, size: Size, position: int) -> Step:
        """Draws the shares; where rows have padding, cutmix counts the pixels of images only.

        Host and arrays: "cut" (n,), which samples are cut; "share" (n,) float32, the sample's share
        of itself, exact to the pixel for cutmix; "boxes" (n, 4), empty for samples that are not
        cut.
        """

        def draw(stream: int) -> Float64s:
            """(n,) a draw for each sample; with `at_once` the same one for all."""
            if self.at_once:
                draw_of_all = draws.once(stream)
                return np.full(len(draws), draw_of_all)
            return draws.each(stream)

        mixup, cutmix = self.alphas
        is_cut = np.full(len(draws), cutmix > 0)
        if mixup > 0 and cutmix > 0:
            method_draws = draw(Stream.MIX_OR_CUT)
            is_cut = method_draws < self.cutting
        u = draw(Stream.MIX_RADIUS)
        v = draw(Stream.MIX_ANGLE)
        # A share is drawn for all samples by the alpha of their own method.
        share = np.zeros(len(draws))
        methods = ((mixup, ~is_cut), (cutmix, is_cut))
        for alpha, is_method in methods:
            if alpha > 0:
                u_of_method = u[is_method]
                v_of_method = v[is_method]
                share[is_method] = beta(u_of_method, v_of_method, alpha)
        boxes_tlbr = self._draw_boxes(draw, size, share)

        probability = 0.0
        if self.enabled:
            probability = self.probability
        if probability < 1:
            mix_draws = draw(Stream.MIX)
            is_unmixed = mix_draws >= probability
            is_cut = is_cut & ~is_unmixed
            share = np.where(is_unmixed, 1, share)
        is_box_cut = is_cut[:, None]
        boxes_tlbr = np.where(is_box_cut, boxes_tlbr, 0)
        # Boxes are clipped to the image, so a label gets the share of the pixels, and not the share
        # that was drawn.
        partners = self.partners(len(draws))
        share_in_box = box_share(boxes_tlbr, partners, draws, size)
        share_outside = 1 - share_in_box
        exact_share = np.where(is_cut, share_outside, share)
        share = exact_share.astype(np.float32)
        arrays: dict[str, Array] = {
            "cut": is_cut.astype(np.float32),
            "share": share,
            "boxes": boxes_tlbr,
        }
        return Step((is_cut, share, boxes_tlbr), arrays)

    def _draw_boxes(self, draw: Draw, size: Size, share: Float64s) -> Int64s:
        """(n, 4) boxes of cutmix for all samples, cut or not."""
        if self.sides is None:
            return _boxes_of_share(draw, size, share)
        return _boxes_of_sides(draw, size, self.sides)

    def run(
        self,
        images: Tensor,
        first_row: int,
        host: tuple[NDArray[Any], ...],
        tensors: Tensors,
    ) -> Tensor:
        is_cut, share, boxes_tlbr = host
        images_nhwc = images.permute(0, 2, 3, 1)  # as they lie in memory
        # In the order from the end, a row and its partner both change, so they cannot be mixed in
        # place one by one.
        if pixels.on_cpu(images.device) and not self.from_the_end:
            mixed = _mix_one_by_one(images_nhwc, is_cut, share, boxes_tlbr)
            return mixed.permute(0, 3, 1, 2)
        # (n, height, width, 1), or (n, 1, 1, 1) without boxes: each pixel's share of its own image.
        mask = tensors["share"][:, None, None, None]
        if is_cut.any():
            # The pixels of a cut sample do not have its share: 1 outside its box and 0 inside.
            cut_numbers = tensors["cut"][:, None, None, None]
            is_cut_on_device = cut_numbers > 0
            mask = torch.where(is_cut_on_device, 1.0, mask)
            height, width = images_nhwc.shape[1:3]
            in_box = inside(tensors["boxes"], height, width)  # (n, height, width)
            in_box_of_channels = in_box[..., None]
            mask = mask.masked_fill(in_box_of_channels, 0)
        partners = self._partners_of(images_nhwc)
        mixed = torch.lerp(partners, images_nhwc, mask)
        return mixed.permute(0, 3, 1, 2)

    def move(self, kind: str, values: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Pastes the boxes of cutmix; after mixup, rows show what either image shows."""
        partner = self._partners_of(values)
        height, width = values.shape[2:]
        # A sample that is not cut has an empty box.
        in_box = inside(tensors["boxes"], height, width)  # (n, height, width)
        in_box_of_channels = in_box[:, None]
        pasted = torch.where(in_box_of_channels, partner, values)
        if kind != "shown":
            return pasted
        cut_numbers = tensors["cut"][:, None, None, None]
        is_cut = cut_numbers > 0
        shown_in_either = torch.maximum(values, partner)
        return torch.where(is_cut, pasted, shown_in_either)

    def mixed_labels(self, labels: Tensor, host: Any, tensors: Tensors) -> Tensor:
        """Each row keeps its share of its own label; the rest is its partner's."""
        partners = self._partners_of(labels)
        share = tensors["share"][:, None]
        return torch.lerp(partners, labels, share)


def box_share(
    boxes_tlbr: Int64s, partners: Int64s, draws: Draws, size: Size
) -> Float64s:
    """(n,): the part of each row's image pixels that is its partner's, in its box.

    Args:
        boxes_tlbr: (n, 4).
        partners: (n,) rows.
        draws: say which part of a row its image fills.
        size: (height, width) of the rows.
    """
    # (n, 2) each, y and x.
    top_left = boxes_tlbr[:, :2]
    bottom_right = boxes_tlbr[:, 2:]
    if draws.image_shares is None:
        # Images fill their rows.
        height, width = size
        sides = bottom_right - top_left
        areas = sides.prod(axis=1)
        image_area = height * width
        return np.asarray(areas / image_area)

    image_sizes = draws.image_shares * size  # (n, 2) height and width
    # (n,) each: the pixels of the own image that the box covers, and those of the partner in it.
    covered = _pixels_in_box(top_left, bottom_right, image_sizes)
    partner_sizes = image_sizes[partners]
    pasted = _pixels_in_box(top_left, bottom_right, partner_sizes)
    image_areas = image_sizes.prod(axis=1)
    visible = image_areas - covered + pasted
    return np.asarray(pasted / visible)


def _pixels_in_box(
    top_left: Int64s, bottom_right: Int64s, image_sizes: Float64s
) -> Float64s:
    """(n,) the area of each box that its image, at the top left of the row, fills."""
    ends = np.minimum(bottom_right, image_sizes)
    # An image may end before its box begins.
    signed_sides = ends - top_left
    sides = np.maximum(signed_sides, 0)
    return np.asarray(sides.prod(axis=1))


def _boxes_of_sides(draw: Draw, size: Size, sides: tuple[float, float]) -> Int64s:
    """(n, 4): boxes inside the image, with sides drawn between two parts of the image's."""
    height, width = size
    least, most = sides
    height_draws = draw(Stream.CUT_HEIGHT)
    width_draws = draw(Stream.CUT_WIDTH)
    height_share = between(height_draws, least, most)
    width_share = between(width_draws, least, most)
    exact_h = height * height_share
    exact_w = width * width_share
    h = exact_h.astype(np.int64)
    w = exact_w.astype(np.int64)
    last_y = height - h
    last_x = width - w
    y_draws = draw(Stream.CUT_Y)
    x_draws = draw(Stream.CUT_X)
    y = up_to(y_draws, last_y)
    x = up_to(x_draws, last_x)
    bottom = y + h
    right = x + w
    return np.stack([y, x, bottom, right], axis=1)


def _boxes_of_share(draw: Draw, size: Size, share: Float64s) -> Int64s:
    """(n, 4): the paper's boxes, of 1 - share of the area around a uniform middle, clipped to the
    image.
    """
    height, width = size
    area_share = 1 - share
    side_share = np.sqrt(area_share)
    exact_h = height * side_share
    exact_w = width * side_share
    h = exact_h.astype(np.int64)
    w = exact_w.astype(np.int64)
    half_h = h // 2
    half_w = w // 2
    exact_y = draw(Stream.CUT_Y) * height
    exact_x = draw(Stream.CUT_X) * width
    y = exact_y.astype(np.int64)
    x = exact_x.astype(np.int64)
    top = y - half_h
    left = x - half_w
    bottom = y + half_h
    right = x + half_w
    boxes_tlbr = np.stack([top, left, bottom, right], axis=1)
    limits = (height, width, height, width)
    return np.clip(boxes_tlbr, 0, limits)


def _mix_one_by_one(
    images: Tensor, is_cut: Bools, share: Float32s, boxes_tlbr: Int64s
) -> Tensor:
    """Mixes (n, height, width, c) in place, each row with the row before it.

    It goes from the last row to the first, so a row's partner has not been mixed yet. Only the last
    row, the partner of the first, has to be kept.
    """
    last = images[-1].clone()
    for row in reversed(range(len(images))):
        image = images[row]
        partner = last
        if row > 0:
            partner = images[row - 1]
        if is_cut[row]:
            box_tlbr = boxes_tlbr[row].tolist()
            box = cut_out(image, box_tlbr)
            box_of_partner = cut_out(partner, box_tlbr)
            box.copy_(box_of_partner)
        else:
            weight = float(share[row])
            torch.lerp(partner, image, weight, out=image)
    return images


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Labels (n,) int64 below num_classes -> (n, num_classes) float32: 1 for the class, else 0."""
    # Not torch's one_hot or scatter: for a label out of range scatter ends a CUDA program, and
    # one_hot asks the device.
    classes = torch.arange(num_classes, device=labels.device)
    is_class = labels[:, None] == classes  # (n, num_classes)
    return is_class.to(torch.float32)
