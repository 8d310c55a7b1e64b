"""Pictures of any shape -> whole pictures of about one size, and the shapes of the batches that hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastpipe.checks import whole
from fastpipe.errors import ConfigError
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, PaddedCrop
from fastpipe.plan.draws import Int64s

_AREA = 224 * 224
_LONGEST = 2  # sides of the square of the same area: only pictures more elongated than 4:1 become smaller


@dataclass(frozen=True, kw_only=True)
class Buckets(PaddedCrop):
    """Whole images in their own aspect ratio, in batches of images of like shape: fastpipe.loader(size=Buckets(...)).

    Each image is resized by its own width and height only, put at the top left of its row, and padded at the right and
    below. A batch is as high and as wide as its largest image, rounded up to a multiple of `size_divisible`.

    Args:
        area: pixels of each resized image; sides are rounded down. None: 224 * 224, unless there is min_size.
        min_size: instead of the area: length of the shorter side in pixels, as in torchvision's detection models.
        max_size: longest side in pixels; an image that would be longer becomes smaller. None: with min_size 5 / 3 of
            it, with an area twice its root.
        size_divisible: height and width of batches are multiples of this.
        fill, padding_mode: of the padding; see RandomCrop.
        interpolation, antialias: of the resize; they and mask_fill: see RandomResizedCrop.
    """

    area: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    size_divisible: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area is not None and self.min_size is not None:
            raise ConfigError(
                f"Buckets: expected one of area= and min_size=, got both, area={self.area!r} and "
                f"min_size={self.min_size!r}; leave one out"
            )
        whole("size_divisible", self.size_divisible, least=1, most=1024)
        if self.min_size is not None:
            side = whole("min_size", self.min_size, least=1, most=MAX_OUTPUT_PIXELS)
            longest = side * 5 // 3
        else:
            area = whole("area", _AREA if self.area is None else self.area, least=1, most=MAX_OUTPUT_PIXELS**2)
            object.__setattr__(self, "area", area)
            side, longest = math.isqrt(area), _LONGEST * math.isqrt(area)
        if self.max_size is None:
            object.__setattr__(self, "max_size", min(longest, MAX_OUTPUT_PIXELS))
        elif whole("max_size", self.max_size, least=1, most=MAX_OUTPUT_PIXELS) < side:
            of = "min_size" if self.area is None else "the sides of a square of that area"
            raise ConfigError(
                f"Buckets: max_size={self.max_size} is shorter than {of}, {side}; pass a larger one, or leave it out"
            )

    @classmethod
    def _hint(cls, size: object) -> str:
        side = size if isinstance(size, int) else 800
        return f"For a shorter side of {side} pixels: fastpipe.loader(..., size=fastpipe.Buckets(min_size={side}))"

    @property
    def largest(self) -> tuple[int, int]:
        """(height, width) of a batch that has room for any single image of usual shape: memory is made for it first."""
        if self.area is not None:
            side = self.rounded_up(math.isqrt(self.area) + self.size_divisible)
            return side, side
        assert self.min_size is not None
        assert self.max_size is not None
        return self.rounded_up(self.min_size), self.rounded_up(self.max_size)

    @property
    def identity(self) -> list[int | None]:
        """What decides which samples are in one batch, for a state."""
        return [self.area, self.min_size, self.max_size, self.size_divisible]

    def rounded_up(self, side: int) -> int:
        """The side of a batch that holds a picture of this side."""
        return -(-side // self.size_divisible) * self.size_divisible

    def resized(self, widths: Int64s, heights: Int64s) -> Int64s:
        """(n, 2) int64: width and height of each picture in its row."""
        assert self.max_size is not None
        shorter, longer = np.minimum(widths, heights), np.maximum(widths, heights)
        if self.area is not None:
            # Roots of whole numbers below 2**52 are exact where they are whole.
            short = np.sqrt(self.area * shorter // longer).astype(np.int64)
            long = np.sqrt(self.area * longer // shorter).astype(np.int64)
            of_longest = self.max_size * shorter // longer
        else:  # torchvision's Resize(min_size, max_size=max_size)
            assert self.min_size is not None
            short, long = np.full_like(shorter, self.min_size), self.min_size * longer // shorter
            of_longest = self.max_size * self.min_size // long
        too_long = long > self.max_size
        short = np.maximum(np.where(too_long, of_longest, short), 1)
        long = np.where(too_long, self.max_size, long)
        wide = widths >= heights
        return np.stack([np.where(wide, long, short), np.where(wide, short, long)], axis=1)

    def shape(self, resized: Int64s) -> tuple[int, int]:
        """(height, width) of a batch that holds pictures of (n, 2) widths and heights, n at least 1."""
        width, height = resized.max(axis=0).tolist()
        return self.rounded_up(height), self.rounded_up(width)

    def likeness(self, resized: Int64s) -> Int64s:
        """(n,) numbers by which pictures of one shape, rounded up, stand together, and like shapes near each other."""
        steps: Int64s = -(-resized // self.size_divisible)
        return steps @ (2 * MAX_OUTPUT_PIXELS, -1)
