"""Kinds of crops, image sizes and draws -> the part of each image that becomes its row of the batch."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from enum import Enum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastpipe.checks import choice, flag, pair, whole
from fastpipe.errors import ConfigError
from fastpipe.plan.draws import Stream, key, uniform

MAX_OUTPUT_PIXELS = 16384  # a side of the output

TRIES = 10
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


@dataclass(frozen=True, kw_only=True)
class _Crop:
    """A kind of crop. Its options are keywords: in torchvision the first argument is the size of the output."""

    interpolation: str = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        name = self.interpolation.name.lower() if isinstance(self.interpolation, Enum) else self.interpolation
        object.__setattr__(self, "interpolation", choice("interpolation", name, INTERPOLATIONS))
        if not flag("antialias", self.antialias) and name == "nearest":
            raise ConfigError("antialias: nearest takes single pixels in any case; leave antialias out")

    def __new__(cls, *size: object, **options: object) -> Self:
        known = [f"{name}=" for name in [*inspect.get_annotations(cls), *inspect.get_annotations(_Crop)]]
        expected = f"{', '.join(known[:-1])} and {known[-1]} by name"
        if not size and "size" in options:
            size = (options["size"],)
        if size:
            raise ConfigError(
                f"{cls.__name__}: expected {expected}, got {', '.join(map(repr, size))}. The size of the output "
                f"belongs to the loader: fastpipe.loader(..., size={size[0]!r}, crop=fastpipe.{cls.__name__}())"
                f"{cls._hint(size[0])}"
            )
        unknown = [name for name in options if f"{name}=" not in known]
        if unknown:
            raise ConfigError(f"{cls.__name__}: expected {expected}, got {'=, '.join(unknown)}=")
        return super().__new__(cls)

    @property
    def may_be_reduced(self) -> bool:
        """Whether the picture may be decoded at a fraction of its size, where it is not to be exact."""
        return False

    @classmethod
    def _hint(cls, size: object) -> str:
        """What else a size may have been meant for."""
        return ""


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop(_Crop):
    """A random part of the image, resized, with the sampling rule of torchvision's RandomResizedCrop.

    Args:
        scale: minimum and maximum share of the image's area, in (0, 1].
        ratio: minimum and maximum of width divided by height.
        interpolation: "bilinear", "bicubic" or "nearest", as Pillow computes them; also as torchvision's
            InterpolationMode or Pillow's Resampling.
        antialias: False: where the image shrinks, only the nearest pixels have a part in each pixel of the output, as
            in torch's interpolate.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", pair("scale", self.scale, most=1.0))
        object.__setattr__(self, "ratio", pair("ratio", self.ratio))

    @property
    def may_be_reduced(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class CenterCrop(_Crop):
    """The image resized so that its shorter side is `resize`, then its centre: torchvision's Resize and CenterCrop.

    Args:
        resize: length of the shorter side in pixels before the crop; None: size * 256 / 224, rounded.
        interpolation, antialias: see RandomResizedCrop.
    """

    resize: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize is not None:
            whole("resize", self.resize, least=1, most=MAX_OUTPUT_PIXELS)


@dataclass(frozen=True, kw_only=True)
class Resize(_Crop):
    """The whole image, resized to the output's size; this can change its aspect ratio.

    Args:
        interpolation, antialias: see RandomResizedCrop.
    """

    @classmethod
    def _hint(cls, size: object) -> str:
        if not isinstance(size, int):
            return ""
        return (
            f". For torchvision's Resize({size!r}) of the shorter side before a CenterCrop: "
            f"crop=fastpipe.CenterCrop(resize={size!r})"
        )


Crop = RandomResizedCrop | CenterCrop | Resize


@dataclass(frozen=True)
class Rendering:
    """How the pixels of rows are made from those of pictures.

    Attributes:
        interpolation: one of INTERPOLATIONS.
        antialias: see RandomResizedCrop.
    """

    interpolation: str = "bilinear"
    antialias: bool = True


@dataclass(frozen=True)
class Crops:
    """The crops of n pictures, in pixels of each picture.

    Attributes:
        boxes: (n, 4) float64: x, y, width, height of what becomes the row.
        bounds: (n, 4) int32: x, y, width, height; pixels outside have no part in the row. It is the box where the
            picture is cropped and then resized, the picture where it is resized and then cropped.
        rendering: of all of them.
    """

    boxes: NDArray[np.float64]
    bounds: NDArray[np.int32]
    rendering: Rendering = Rendering()


def plan_crops(
    crop: Crop,
    size: tuple[int, int],
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    samples: NDArray[np.int64],
) -> Crops:
    """Plans one crop a picture.

    Args:
        crop: a checked crop; CenterCrop's resize is filled in.
        size: (height, width) of the output in pixels.
        widths, heights: (n,) of the pictures in pixels, at least 1.
        seed, epoch, samples: name the draws; samples is (n,).
    """
    rendering = Rendering(crop.interpolation, crop.antialias)
    if isinstance(crop, RandomResizedCrop):
        boxes = _random_resized(crop, widths, heights, seed=seed, epoch=epoch, samples=samples)
        return Crops(boxes.astype(np.float64), boxes.astype(np.int32), rendering)
    zeros = np.zeros_like(widths)
    bounds = np.stack([zeros, zeros, widths, heights], axis=1).astype(np.int32)
    if isinstance(crop, CenterCrop):
        assert crop.resize is not None
        return Crops(_centered(crop.resize, size, widths, heights), bounds, rendering)
    return Crops(bounds.astype(np.float64), bounds, rendering)


def _random_resized(
    crop: RandomResizedCrop,
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    samples: NDArray[np.int64],
) -> NDArray[np.int64]:
    """torchvision's RandomResizedCrop.get_params: ten tries at an area and a ratio that fit, then the middle."""

    def draw(stream: int, which: NDArray[np.int64]) -> NDArray[np.float64]:
        return uniform(key(seed, epoch, stream), which)

    log_ratio = math.log(crop.ratio[0]), math.log(crop.ratio[1])
    out = middle(crop.ratio, widths, heights)
    todo = np.arange(len(samples))
    for attempt in range(TRIES):
        if not len(todo):
            break
        which, width, height = samples[todo], widths[todo], heights[todo]
        share = crop.scale[0] + (crop.scale[1] - crop.scale[0]) * draw(Stream.CROP_AREA + attempt, which)
        area = (width * height) * share
        ratio = np.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * draw(Stream.CROP_RATIO + attempt, which))
        w = np.rint(np.sqrt(area * ratio)).astype(np.int64)
        h = np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        x = (draw(Stream.CROP_X, which) * (width - w + 1)).astype(np.int64)
        y = (draw(Stream.CROP_Y, which) * (height - h + 1)).astype(np.int64)
        out[todo[fits]] = np.stack([x, y, w, h], axis=1)[fits]
        todo = todo[~fits]
    return out


def middle(ratio: tuple[float, float], widths: NDArray[np.int64], heights: NDArray[np.int64]) -> NDArray[np.int64]:
    """As much of the middle as the nearest allowed ratio leaves."""
    too_tall = widths / heights < ratio[0]
    too_wide = widths / heights > ratio[1]
    w = np.where(too_wide, np.rint(heights * ratio[1]).astype(np.int64), widths)
    h = np.where(too_tall, np.rint(widths / ratio[0]).astype(np.int64), heights)
    w, h = np.clip(w, 1, widths), np.clip(h, 1, heights)
    return np.stack([(widths - w) // 2, (heights - h) // 2, w, h], axis=1)


def centered(
    resize: int, size: tuple[int, int], widths: NDArray[np.int64], heights: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """torchvision's Resize(resize) and CenterCrop(size), in whole pixels.

    The longer side is cut to a whole pixel (int), the cut's edge rounded half to even (Python's round), as there.

    Returns:
        (n, 2): width and height of each resized picture; (n, 2): left and top of the cut in it.
    """
    shorter = np.minimum(widths, heights)
    resized_w = np.where(widths <= heights, resize, resize * widths // shorter)
    resized_h = np.where(widths <= heights, resize * heights // shorter, resize)
    resized = np.stack([resized_w, resized_h], axis=1)
    return resized, np.rint((resized - size[::-1]) / 2.0).astype(np.int64)


def _centered(
    resize: int, size: tuple[int, int], widths: NDArray[np.int64], heights: NDArray[np.int64]
) -> NDArray[np.float64]:
    """`centered`, as the box of the picture that the cut shows."""
    resized, left_top = centered(resize, size, widths, heights)
    scale = np.stack([widths, heights], axis=1) / resized
    return np.concatenate([left_top * scale, np.array(size[::-1]) * scale], axis=1)
