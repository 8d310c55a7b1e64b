"""Kinds of crops, image sizes and draws -> the part of each image that becomes its row of the batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

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
from fastpipe.plan.draws import Bools, Float64s, Int64s, Stream, key, keys, uniform, uniform_one

_TRIES = 10


@dataclass(frozen=True)
class Crops:
    """The crops of n rows, in pixels of each row's picture."""

    boxes: Float64s  # (n, 4) x, y, width, height of what becomes the row: inside the bounds, or, with padding, anywhere
    # (n, 4) x, y, width, height; pixels outside have no part in the row. It is the box where the picture is cropped and
    # then resized, the picture where it is resized and then cropped.
    bounds: NDArray[np.int32]
    size: tuple[int, int]  # (height, width) of the rows
    rendering: Rendering = field(default_factory=Rendering)
    mirrored: Bools | None = None  # (n,) the crop is one of the mirrored picture; None: none is
    shown: Int64s | None = None  # (n, 2) height and width of the picture at the top left, where the rest is padding

    def part(self, rows: slice) -> Crops:
        mirrored = None if self.mirrored is None else self.mirrored[rows]
        shown = None if self.shown is None else self.shown[rows]
        return Crops(self.boxes[rows], self.bounds[rows], self.size, self.rendering, mirrored, shown)


def plan_crops(
    crop: Crop | Buckets,
    size: tuple[int, int],
    widths: Int64s,
    heights: Int64s,
    *,
    seed: int,
    epoch: int,
    samples: Int64s,
    flips: Bools | None = None,
    name: Callable[[int], str] = lambda picture: f"picture {picture} of these",
) -> Crops:
    """Plans the crops of n pictures, at least 1 x 1: crop.rows each, one picture after the other. `seed`, `epoch` and
    `samples`, (n,), name the draws; Buckets need `flips`, (n,). ConfigError: a picture is too small for a random crop.
    """
    match crop:
        case CenterCrop() | Resize() | Letterbox() | FiveCrop():
            if len(widths) == 1:
                return _fixed_one(crop, size, int(widths[0]), int(heights[0]))
            return _fixed(crop, size, widths, heights)
        case RandomResizedCrop():
            (boxes,) = random_resized([(crop, seed)], widths, heights, epoch=epoch, samples=samples)
            return crops_at(boxes, crop, size)
        case RandomCrop():
            canvas = canvas_of(crop, size, widths, heights)
            check_room(canvas, size, name)
            drawn = [uniform(key(seed, epoch, stream), samples) for stream in (Stream.CROP_X, Stream.CROP_Y)]
            return _cut(crop, size, canvas, (np.stack(drawn, axis=1) * (canvas.room + 1)).astype(np.int64))
        case Buckets():  # the picture at the top left; where it is mirrored later, at the right
            assert flips is not None
            canvas = canvas_of(crop, size, widths, heights)
            crops = _cut(crop, size, canvas, flips[:, None] * (canvas.resized - size[::-1]) * (1, 0))
            return replace(crops, shown=canvas.resized[:, ::-1].copy())
        case _:
            assert_never(crop)


@functools.lru_cache(maxsize=1024)
def _fixed_one(crop: Crop, size: tuple[int, int], width: int, height: int) -> Crops:
    """Of one picture, for which numpy is slow; most pictures of a dataset have one of few sizes."""
    return _fixed(crop, size, np.array([width]), np.array([height]))


def _fixed(crop: Crop, size: tuple[int, int], widths: Int64s, heights: Int64s) -> Crops:
    """As `plan_crops`, of crops without draws."""
    canvas = canvas_of(crop, size, widths, heights)
    if isinstance(crop, Resize):
        return crops_at(_whole(canvas.pictures), crop, size)
    left_top = np.rint(canvas.room / 2.0).astype(np.int64)  # the middle; a Letterbox has no room
    if isinstance(crop, FiveCrop):
        room = canvas.room[:, None]
        five = np.concatenate([room * [(0, 0), (1, 0), (0, 1), (1, 1)], left_top[:, None]], axis=1)
        mirrored = room * (1, 0) + five * (-1, 1)  # the last five of ten, mirrored back
        left_top = np.concatenate([five, mirrored], axis=1)[:, : crop.rows].reshape(-1, 2)
    return _cut(crop, size, canvas, left_top)


def crops_at(boxes: Int64s | NDArray[np.int32], crop: Crop, size: tuple[int, int]) -> Crops:
    """Those that are cut out at these boxes, (n, 4), and then resized."""
    return Crops(boxes.astype(np.float64), boxes.astype(np.int32), size, crop.rendering)


@dataclass(frozen=True)
class Canvas:
    """What n pictures are made into before a crop of the output's size is cut out; all (n, 2), of x and y."""

    pictures: Int64s  # their widths and heights
    resized: Int64s  # the same after the resize
    before: Int64s  # pixels of padding left and above
    room: Int64s  # by how much the canvas, with all padding, is wider and higher than the crop


def canvas_of(crop: Crop | Buckets, size: tuple[int, int], widths: Int64s, heights: Int64s) -> Canvas:
    """The canvas that a crop of (height, width) is cut from, by torchvision's rules."""
    output, pictures = np.array(size[::-1]), np.stack([widths, heights], axis=1)
    resized, before = pictures, np.zeros_like(pictures)
    after = before
    match crop:
        case Buckets():
            resized = crop.resized(widths, heights)
            larger = (resized > output).any(axis=1)  # one that replaces a bad sample of another shape
            resized[larger] = _fitting(output, pictures[larger])
            after = output - resized
        case Letterbox():
            resized = _rounded(output, pictures) if crop.rounded else _fitting(output, pictures)
            before = (output - resized) // 2 if crop.centered else before
            after = output - resized - before
        case CenterCrop() | FiveCrop():
            resized = _of_shorter_side(shorter_side(crop, size), pictures)
        case RandomCrop():
            resized = pictures if crop.resize is None else _of_shorter_side(crop.resize, pictures)
            before, after = (np.broadcast_to(sides, pictures.shape) for sides in np.reshape(crop.padding, (2, 2)))
            if crop.pad_if_needed:
                lacking = np.maximum(output - (resized + before + after), 0)
                before, after = before + lacking, after + lacking
        case RandomResizedCrop() | Resize():  # cut out of the picture as it is
            pass
        case _:
            assert_never(crop)
    return Canvas(pictures, resized, before, resized + before + after - output)


def check_room(canvas: Canvas, size: tuple[int, int], name: Callable[[int], str]) -> None:
    """Raises ConfigError if pictures are smaller than a random crop; `name` names the first of them."""
    small = np.flatnonzero((canvas.room < 0).any(axis=1))
    if len(small):
        at = int(small[0])
        width, height = canvas.pictures[at].tolist()
        raise ConfigError(
            f"crop: {len(small):,} of {len(canvas.room):,} pictures, resized and padded, are smaller than the output, "
            f"{size[1]} x {size[0]}. The first is {name(at)}: {width} x {height} pixels. Pass "
            "RandomCrop(pad_if_needed=True), a smaller size=, or a larger resize= or padding=; or leave these out, "
            "with data.select(lambda c: c['width'] ...)"
        )


def _cut(crop: Crop | Buckets, size: tuple[int, int], canvas: Canvas, left_top: Int64s) -> Crops:
    """Crops of the output's size; left_top is (n * crop.rows, 2), from the canvas's corner on."""
    rows = np.repeat(np.arange(len(canvas.pictures)), crop.rows) if crop.rows > 1 else slice(None)
    scale = (canvas.pictures / canvas.resized)[rows]
    boxes: Float64s = np.concatenate([(left_top - canvas.before[rows]) * scale, size[::-1] * scale], axis=1)
    mirrored = np.tile(np.arange(10) >= 5, len(canvas.pictures)) if isinstance(crop, TenCrop) else None
    return Crops(boxes, _whole(canvas.pictures[rows]), size, crop.rendering, mirrored)


def _whole(pictures: Int64s) -> NDArray[np.int32]:
    return np.concatenate([np.zeros_like(pictures), pictures], axis=1).astype(np.int32)


def _of_shorter_side(resize: int, pictures: Int64s) -> Int64s:
    """torchvision's Resize(resize)."""
    return _scaled(np.array([resize, resize]), pictures, pictures[:, 0] <= pictures[:, 1])


def _fitting(output: Int64s, pictures: Int64s) -> Int64s:
    """The largest size in the picture's aspect ratio that fits."""
    across = output * pictures[:, ::-1]
    return np.maximum(_scaled(output, pictures, across[:, 0] <= across[:, 1]), 1)


def _rounded(output: Int64s, pictures: Int64s) -> Int64s:
    """The same, rounded to whole pixels, halves to even. Source: timm's ResizeKeepRatio with longest=1."""
    ratio = (pictures / output).max(axis=1, keepdims=True)
    found: Int64s = np.maximum(np.rint(pictures / ratio).astype(np.int64), 1)
    return found


def _scaled(output: Int64s, pictures: Int64s, by_width: Bools) -> Int64s:
    """One side is the output's, the other keeps the picture's aspect ratio, cut to a whole pixel."""
    own = np.stack([by_width, ~by_width], axis=1)
    return np.where(own, output, output[::-1] * pictures // pictures[:, ::-1])


def random_resized(
    crops: Sequence[tuple[RandomResizedCrop, int]], widths: Int64s, heights: Int64s, *, epoch: int, samples: Int64s
) -> Int64s:
    """(crops, n, 4) boxes, as of torchvision's get_params: ten tries at a fitting area and ratio, or the middle."""
    if len(crops) == len(samples) == 1:
        ((crop, seed),) = crops
        box = _one(crop, int(widths[0]), int(heights[0]), seed, epoch, int(samples[0]))
        return np.array(box).reshape(1, 1, 4)
    seeds = [seed for _, seed in crops]
    of = np.repeat(np.arange(len(crops)), len(samples))  # whose crop each of the rows below is
    names, widths, heights = (np.tile(each, len(crops)) for each in (samples, widths, heights))
    scales, ratios = (np.array([getattr(crop, name) for crop, _ in crops]) for name in ("scale", "ratio"))
    logs = np.array([[math.log(each) for each in crop.ratio] for crop, _ in crops])

    def draw(stream: int, rows: Int64s) -> Float64s:
        return uniform(keys(seeds, epoch, stream)[of[rows]], names[rows])

    def between(ends: Float64s, stream: int, rows: Int64s) -> Float64s:
        first, last = ends[of[rows]].T
        return np.asarray(first + (last - first) * draw(stream, rows))

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
) -> tuple[int, ...] | Int64s:
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


def _middle(ratio: tuple[float, float] | Float64s, widths: Int64s, heights: Int64s) -> Int64s:
    """As much of the middle as the nearest allowed ratio leaves."""
    too_tall = widths / heights < ratio[0]
    too_wide = widths / heights > ratio[1]
    w = np.where(too_wide, np.rint(heights * ratio[1]).astype(np.int64), widths)
    h = np.where(too_tall, np.rint(widths / ratio[0]).astype(np.int64), heights)
    w, h = np.clip(w, 1, widths), np.clip(h, 1, heights)
    return np.stack([(widths - w) // 2, (heights - h) // 2, w, h], axis=1)
