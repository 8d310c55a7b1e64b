"""Kinds of crops, image sizes and draws -> the part of each image that becomes its row of the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import (
    CenterCrop,
    Crop,
    FiveCrop,
    Letterbox,
    RandomCrop,
    RandomResizedCrop,
    Rendering,
    Resize,
    TenCrop,
    shorter_side,
)
from fastpipe.plan.draws import Stream, key, uniform
from fastpipe.plan.random_resized import random_resized


@dataclass(frozen=True)
class Crops:
    """The crops of n rows, in pixels of each row's picture.

    Attributes:
        boxes: (n, 4) float64: x, y, width, height of what becomes the row. It lies inside the bounds, or, with padding,
            anywhere.
        bounds: (n, 4) int32: x, y, width, height; pixels outside have no part in the row. It is the box where the
            picture is cropped and then resized, the picture where it is resized and then cropped.
        size: (height, width) of the rows in pixels.
        mirrored: (n,) bool: the crop is one of the mirrored picture; None: none is.
        shown: (n, 2) int64: height and width of the picture at the top left of each row, where the rest is padding;
            None: rows have no known part of padding.
    """

    boxes: NDArray[np.float64]
    bounds: NDArray[np.int32]
    size: tuple[int, int]
    rendering: Rendering = field(default_factory=Rendering)
    mirrored: NDArray[np.bool_] | None = None
    shown: NDArray[np.int64] | None = None


def plan_crops(
    crop: Crop,
    size: tuple[int, int],
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    samples: NDArray[np.int64],
    name: Callable[[int], str] = lambda picture: f"picture {picture} of these",
) -> Crops:
    """Plans the crops of n pictures: crop.rows each, one picture after the other.

    Args:
        crop: a checked crop.
        size: (height, width) of the output in pixels.
        widths, heights: (n,) of the pictures in pixels, at least 1.
        seed, epoch, samples: name the draws; samples is (n,).
        name: what an error calls a picture.

    Raises:
        ConfigError: a picture is smaller than a random crop without a resize.
    """
    if isinstance(crop, RandomResizedCrop):
        (boxes,) = random_resized([(crop, seed)], widths, heights, epoch=epoch, samples=samples)
        return crops_at(boxes, crop, size)
    if not isinstance(crop, RandomCrop):
        if len(widths) == 1:
            return _fixed_one(crop, size, int(widths[0]), int(heights[0]))
        return _fixed(crop, size, widths, heights)
    canvas = canvas_of(crop, size, widths, heights)
    room = canvas.room(size)
    if (room < 0).any():
        check_room(crop, size, widths, heights, name)
    drawn = [uniform(key(seed, epoch, stream), samples) for stream in (Stream.CROP_X, Stream.CROP_Y)]
    left_top = (np.stack(drawn, axis=1) * (room + 1)).astype(np.int64)
    return _cut(crop, size, canvas, left_top, widths, heights)


@functools.lru_cache(maxsize=1024)
def _fixed_one(crop: Crop, size: tuple[int, int], width: int, height: int) -> Crops:
    """Of one picture, for which numpy is slow; most pictures of a dataset have one of few sizes."""
    return _fixed(crop, size, np.array([width]), np.array([height]))


def _fixed(crop: Crop, size: tuple[int, int], widths: NDArray[np.int64], heights: NDArray[np.int64]) -> Crops:
    """As `plan_crops`, of crops without draws."""
    if isinstance(crop, Resize):
        bounds = _whole(widths, heights)
        return Crops(bounds.astype(np.float64), bounds, size, crop.rendering)
    canvas = canvas_of(crop, size, widths, heights)
    room = canvas.room(size)
    if isinstance(crop, FiveCrop):
        left_top = _several_places(room, crop.rows)
        crops = _cut(crop, size, canvas, left_top, widths, heights)
        mirrored = np.tile(np.arange(10) >= 5, len(widths)) if isinstance(crop, TenCrop) else None
        return replace(crops, mirrored=mirrored)
    left_top = np.rint(room / 2.0).astype(np.int64) if isinstance(crop, CenterCrop) else np.zeros_like(room)
    return _cut(crop, size, canvas, left_top, widths, heights)


def crops_at(boxes: NDArray[np.int64], crop: Crop, size: tuple[int, int]) -> Crops:
    """Those that are cut out at these boxes, (n, 4), and then resized."""
    return Crops(boxes.astype(np.float64), boxes.astype(np.int32), size, crop.rendering)


def plan_bucket(
    buckets: Buckets,
    size: tuple[int, int] | None,
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    flips: NDArray[np.bool_],
) -> Crops:
    """Plans the rows of n whole pictures, at the top left; in those that are mirrored later, at the right.

    `size` is the rows' (height, width); None: what these pictures need.
    """
    size = size or buckets.shape(buckets.resized(widths, heights))
    canvas = canvas_of(buckets, size, widths, heights)
    left_top = np.zeros_like(canvas.resized)
    left_top[flips, 0] = (canvas.resized[:, 0] - size[1])[flips]
    crops = _cut(buckets, size, canvas, left_top, widths, heights)
    return replace(crops, shown=canvas.resized[:, ::-1].copy())


@dataclass(frozen=True)
class Canvas:
    """What n pictures are made into before a crop of the output's size is cut out.

    Attributes:
        resized: (n, 2) int64: width and height of each resized picture.
        before: (n, 2) int64: pixels of padding left and above.
        after: (n, 2) int64: right and below.
    """

    resized: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    def room(self, size: tuple[int, int]) -> NDArray[np.int64]:
        """(n, 2) by how much it is wider and higher than a crop of (height, width)."""
        room: NDArray[np.int64] = self.resized + self.before + self.after - size[::-1]
        return room


def canvas_of(
    crop: Crop | Buckets, size: tuple[int, int], widths: NDArray[np.int64], heights: NDArray[np.int64]
) -> Canvas:
    """The canvas that a crop cuts from, by torchvision's rules; see plan_crops."""
    output = np.array(size[::-1])
    if isinstance(crop, Buckets):
        resized = crop.resized(widths, heights)
        larger = (resized > output).any(axis=1)  # one that replaces a bad sample of another shape
        resized[larger] = _fitting(output, widths[larger], heights[larger])
        return Canvas(resized, np.zeros_like(resized), output - resized)
    if isinstance(crop, Letterbox):
        resized = _fitting(output, widths, heights)
        before = (output - resized) // 2 if crop.centered else np.zeros_like(resized)
        return Canvas(resized, before, output - resized - before)
    if isinstance(crop, (CenterCrop, FiveCrop)):
        resized = _of_shorter_side(shorter_side(crop, size), widths, heights)
        return Canvas(resized, np.zeros_like(resized), np.zeros_like(resized))
    assert isinstance(crop, RandomCrop)
    resized = np.stack([widths, heights], axis=1)
    if crop.resize is not None:
        resized = _of_shorter_side(crop.resize, widths, heights)
    before, after = (np.broadcast_to(sides, resized.shape) for sides in (crop.sides[:2], crop.sides[2:]))
    if crop.pad_if_needed:
        lacking = np.maximum(output - (resized + before + after), 0)
        before, after = before + lacking, after + lacking
    return Canvas(resized, before, after)


def check_room(
    crop: Crop | Buckets,
    size: tuple[int, int],
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    name: Callable[[int], str],
) -> None:
    """Raises ConfigError if pictures are smaller than a random crop; `name` names the first of them."""
    if not isinstance(crop, RandomCrop) or crop.pad_if_needed:
        return
    small = np.flatnonzero((canvas_of(crop, size, widths, heights).room(size) < 0).any(axis=1))
    if len(small):
        at = int(small[0])
        raise ConfigError(
            f"crop: {len(small):,} of {len(widths):,} pictures, resized and padded, are smaller than the output, "
            f"{size[1]} x {size[0]}. The first is {name(at)}: {widths[at]} x {heights[at]} pixels. Pass "
            "RandomCrop(pad_if_needed=True), a smaller size=, or a larger resize= or padding=; or leave these out, "
            "by samples="
        )


def _cut(
    crop: Crop | Buckets,
    size: tuple[int, int],
    canvas: Canvas,
    left_top: NDArray[np.int64],
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
) -> Crops:
    """Crops of the output's size from n canvases; left_top is (n * crop.rows, 2), from the canvas's corner on."""
    scale = np.repeat(np.stack([widths, heights], axis=1) / canvas.resized, crop.rows, axis=0)
    left_top = left_top - np.repeat(canvas.before, crop.rows, axis=0)
    boxes: NDArray[np.float64] = np.concatenate([left_top * scale, np.array(size[::-1]) * scale], axis=1)
    return Crops(boxes, np.repeat(_whole(widths, heights), crop.rows, axis=0), size, crop.rendering)


def _whole(widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.int32]:
    zeros = np.zeros_like(widths)
    return np.stack([zeros, zeros, widths, heights], axis=1).astype(np.int32)


def _several_places(room: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Left and top of torchvision's five crops, (n * count, 2); the last five of ten are of the mirrored picture,
    mirrored back.
    """
    zero = np.zeros_like(room[:, 0])
    wide, high = room.T
    middle_x, middle_y = np.rint(room.T / 2.0).astype(np.int64)
    x = np.stack([zero, wide, zero, wide, middle_x], axis=1)
    y = np.stack([zero, zero, high, high, middle_y], axis=1)
    if count == 10:
        x, y = np.concatenate([x, wide[:, None] - x], axis=1), np.concatenate([y, y], axis=1)
    return np.stack([x, y], axis=2).reshape(-1, 2)


def _of_shorter_side(resize: int, widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.int64]:
    """torchvision's Resize(resize)."""
    return _scaled(widths <= heights, resize, resize, widths, heights)


def _fitting(output: NDArray[np.int64], widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest size in the picture's aspect ratio that fits."""
    width, height = output.tolist()
    return np.maximum(_scaled(width * heights <= height * widths, width, height, widths, heights), 1)


def _scaled(
    by_width: NDArray[np.bool_], width: int, height: int, widths: NDArray[np.int64], heights: NDArray[np.int64]
) -> NDArray[np.int64]:
    """One side is the one given, the other keeps the picture's aspect ratio, cut to a whole pixel."""
    scaled_w = np.where(by_width, width, height * widths // heights)
    scaled_h = np.where(by_width, width * heights // widths, height)
    return np.stack([scaled_w, scaled_h], axis=1)
