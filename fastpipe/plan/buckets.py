"""Images of any shape -> the sizes at which they share a batch: fastpipe.Buckets."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Bools, Int64s
from fastpipe.errors import ConfigError, choice, flag, whole
from fastpipe.plan.bucket_sizes import (
    covers_any,
    covers_size,
    nearest_covered_sizes,
    nearest_sizes,
    ratios_of,
    sizes_of_area,
    sort_by_ratio,
)
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, PaddedCrop, Size, parse_size
from fastpipe.plan.dealing import Dealt

_Sides = TypeVar("_Sides", int, Int64s)

_DEFAULT_AREA = 224 * 224
# The longest side, in sides of a square of the same area. Only images more elongated than 4:1
# become smaller.
_LONGEST_SIDE_RATIO = 2
_SIZE_DIVISIBLE = 32


@refusing_unknown_fields("fastpipe.Buckets")
@dataclass(frozen=True, kw_only=True)
class Buckets(PaddedCrop):
    """Images of any shape, in batches of similar shape: fastpipe.loader(size=Buckets(...)).

    fit="pad" shows whole images in their own aspect ratio. Each is resized by its own width and
    height only, put at the top left of its row, and padded at the right and below. A batch is as
    high and as wide as its largest image, rounded up to a multiple of `size_divisible`.

    fit="cover" has no padding, as the training of diffusion models wants it. Batches have the
    listed `sizes` (see `no_upscale`). Each image is resized until it just covers the size whose
    shape is nearest to its own, and the rest is cut off. "crop_box" and "original_size" in
    fields= say which part of which image a row shows. A few images lie between two shapes, at most
    one batch for each size in some hundred batches: there all get the size that most of them have.

    Args:
        area: pixels of each resized image; sides are rounded down. With fit="cover" it makes the
            sizes: for each width that is a multiple of `size_divisible` the largest such height
            within the area, and the same turned. None: 224 * 224, unless `min_size` or `sizes` is
            given.
        min_size: instead of the area: length of the shorter side in pixels, as in torchvision's
            detection models.
        max_size: longest side in pixels; an image that would be longer becomes smaller. None: with
            min_size 5 / 3 of it, with an area twice its root.
        size_divisible: height and width of batches are multiples of this.
        sizes: instead of these four, the sizes of batches: numbers for squares, or (height, width).
            With fit="pad", each image is resized until it just fits into the nearest one.
        fit: "pad" or "cover".
        no_upscale: with fit="cover": an image gets the nearest of the sizes that it covers without
            being enlarged. An image that covers none is an error. A batch between shapes has the
            largest size that all of its images cover; if none in the list is so small, the smaller
            height and the smaller width of theirs. An image that replaces a damaged one
            (`on_error`) may be enlarged.
        random_crop: with fit="cover": True: the part that is kept lies at a random place. False: in
            the middle. None: `train` decides.
        pixels: most pixels of a batch, padding included: a batch of large images then has fewer of
            them than one of small images, and `batch_size` is the most that it has; left out, there
            is no other limit. How many batches an epoch has follows from its images. Ranks may have
            batches of different sizes. None: all batches have batch_size images.
        fill, padding_mode: how images are padded; see RandomCrop.
        interpolation, antialias: how images are resized; see RandomResizedCrop.
        mask_fill: see RandomResizedCrop.

    Example:
        >>> size = fastpipe.Buckets(area=48 * 48)
        >>> loader = fastpipe.loader("data/train", batch_size=4, size=size)
        >>> batch = next(iter(loader))
        >>> batch.pixel_mask.shape == batch[0].shape[:1] + batch[0].shape[2:]
        True
        >>> size = fastpipe.Buckets(sizes=[(64, 64), (48, 80), (80, 48)], fit="cover")
        >>> images, labels = next(iter(fastpipe.loader("data/train", batch_size=4, size=size)))
        >>> tuple(images.shape[2:]) in size.sizes
        True
    """

    area: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    size_divisible: int = _SIZE_DIVISIBLE
    sizes: Sequence[int | Size] | None = None
    fit: str = "pad"
    no_upscale: bool = False
    random_crop: bool | None = None
    pixels: int | None = None

    # Loaders use these.
    _NOT_PUBLIC = frozenset(
        [
            "covers",
            "covers_listed",
            "deal",
            "identity",
            "largest",
            "resized",
            "rounded_up",
            "row_sizes",
            "shape",
            "sort_by_shape",
        ]
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("fit", self.fit, ("pad", "cover"))
        flag("no_upscale", self.no_upscale)
        if self.random_crop is not None:
            flag("random_crop", self.random_crop)
        whole("size_divisible", self.size_divisible, least=1, most=1024)
        self._check_fit()
        if self.sizes is not None:
            self._set_sizes(self.sizes)
        else:
            self._set_area()
        if self.covers and not self.listed_sizes:
            raise ConfigError(
                f"Buckets: no multiple of size_divisible={self.size_divisible} has at most "
                f"area={self.area} pixels; pass a larger area or a smaller size_divisible"
            )
        self._check_pixels()

    def _check_pixels(self) -> None:
        """Raises ConfigError if a batch could not hold an image of each size."""
        if self.pixels is None:
            return
        whole("pixels", self.pixels, least=1, most=MAX_OUTPUT_PIXELS**2)
        height, width = self.largest
        if height * width > self.pixels:
            raise ConfigError(
                f"Buckets: pixels={self.pixels} of a batch hold no image of {height} x {width}; pass "
                f"more, such as pixels={16 * height * width} for 16 of them, or smaller sizes"
            )

    def _check_fit(self) -> None:
        """Raises ConfigError for options that belong to the other kind of fit."""
        if self.covers:
            if self.min_size is not None:
                raise ConfigError(
                    f'Buckets: expected sizes= or area= with fit="cover", got min_size='
                    f"{self.min_size!r}; pass sizes=[(height, width), ...]"
                )
            if self.padding_mode != "constant" or self.fill != (0, 0, 0, 0):
                raise ConfigError(
                    'Buckets: fit="cover" pads nothing; leave fill and padding_mode out'
                )
            return
        for name, default in (("no_upscale", False), ("random_crop", None)):
            if getattr(self, name) != default:
                raise ConfigError(
                    f'Buckets: {name} works only with fit="cover", which cuts images; pass it, or '
                    f"leave {name} out"
                )

    def _set_sizes(self, sizes: object) -> None:
        for name, default in (
            ("area", None),
            ("min_size", None),
            ("max_size", None),
            ("size_divisible", _SIZE_DIVISIBLE),
        ):
            value = getattr(self, name)
            if value != default:
                raise ConfigError(
                    f"Buckets: expected one of sizes= and {name}=, got both, {name}={value!r}; "
                    "leave one out"
                )
        if not isinstance(sizes, (tuple, list)) or not sizes:
            raise ConfigError(
                "Buckets: sizes: expected sizes, for example [(1024, 1024), (832, 1216)], got "
                f"{sizes!r}"
            )
        parsed = tuple(parse_size(size, "sizes") for size in sizes)
        object.__setattr__(self, "sizes", parsed)

    def _set_area(self) -> None:
        """Fills in the area and the longest side."""
        if self.area is not None and self.min_size is not None:
            raise ConfigError(
                f"Buckets: expected one of area= and min_size=, got both, area={self.area!r} and "
                f"min_size={self.min_size!r}; leave one out"
            )
        # max_size may not be smaller than `side`.
        if self.min_size is not None:
            side = whole("min_size", self.min_size, least=1, most=MAX_OUTPUT_PIXELS)
            default_max_size = side * 5 // 3
        else:
            area = self.area
            if area is None:
                area = _DEFAULT_AREA
            area = whole("area", area, least=1, most=MAX_OUTPUT_PIXELS**2)
            object.__setattr__(self, "area", area)
            side = math.isqrt(area)
            default_max_size = _LONGEST_SIDE_RATIO * side

        if self.max_size is None:
            max_size = min(default_max_size, MAX_OUTPUT_PIXELS)
            object.__setattr__(self, "max_size", max_size)
            return
        max_size = whole("max_size", self.max_size, least=1, most=MAX_OUTPUT_PIXELS)
        if max_size < side:
            limit = "the sides of a square of that area"
            if self.area is None:
                limit = "min_size"
            raise ConfigError(
                f"Buckets: max_size={self.max_size} is shorter than {limit}, {side}; pass a larger "
                "one, or leave it out"
            )

    @classmethod
    def _hint(cls, size: object) -> str:
        side = size if isinstance(size, int) else 800
        return (
            f"For a shorter side of {side} pixels: "
            f"fastpipe.loader(..., size=fastpipe.Buckets(min_size={side}))"
        )

    @property
    def covers(self) -> bool:
        """Whether images fill their rows and are cut, instead of being padded."""
        return self.fit == "cover"

    @property
    def pads(self) -> bool:
        return not self.covers

    @property
    def budget(self) -> int | None:
        return self.pixels

    def costs(self, pictures: Int64s) -> Int64s:
        """(n,) the pixels of the rows that images, (n, 2), would have alone."""
        row_sizes = self.row_sizes(pictures)
        if not self.listed_sizes:
            row_sizes = self.rounded_up(row_sizes)
        return np.asarray(row_sizes.prod(axis=1))

    def deal(self, pictures: Int64s, most: int) -> Dealt:
        """Images, (n, 2), in batches of similar shape that have at most `pixels`.

        `most`: images of a batch. An image that has more pixels alone has a batch of its own.
        """
        row_sizes = self.row_sizes(pictures)
        by_shape = self.sort_by_shape(pictures, row_sizes)
        batches = np.empty(len(pictures), dtype=np.int64)
        sizes: list[Size] = []
        start = 0
        while start < len(pictures):
            candidates = row_sizes[by_shape[start : start + most]]
            count = self._count_that_fit(candidates)
            batches[by_shape[start : start + count]] = len(sizes)
            sizes.append(self._shape_within(candidates[:count]))
            start += count
        return Dealt(batches, sizes)

    def _count_that_fit(self, row_sizes: Int64s) -> int:
        """How many images, whose rows would have these sizes alone, (n, 2), a batch takes."""
        assert self.pixels is not None
        if self.listed_sizes:
            # The first one decides on the size.
            return max(1, min(len(row_sizes), self.pixels // int(row_sizes[0].prod())))
        largest = np.maximum.accumulate(row_sizes)
        counts = np.arange(1, len(row_sizes) + 1)
        fits = self.rounded_up(largest).prod(axis=1) * counts <= self.pixels
        return max(1, int(np.count_nonzero(fits)))

    def _shape_within(self, row_sizes: Int64s) -> Size:
        """(height, width) of a batch of these images, as `shape`, but within `pixels`."""
        assert self.pixels is not None
        if self.listed_sizes and (row_sizes[0] == row_sizes[-1]).all():
            # They are sorted, so all have one size.
            width, height = row_sizes[0].tolist()
            return height, width
        height, width = self.shape(row_sizes)
        if self.listed_sizes and height * width * len(row_sizes) > self.pixels:
            width, height = row_sizes[0].tolist()
        return height, width

    @functools.cached_property
    def listed_sizes(self) -> tuple[Size, ...]:
        """The sizes that batches can have, (height, width); empty: they follow from the images."""
        if self.sizes is not None:
            return cast(tuple[Size, ...], self.sizes)  # _set_sizes has parsed them
        if not self.covers:
            return ()
        assert self.area is not None
        assert self.max_size is not None
        return sizes_of_area(self.area, self.size_divisible, self.max_size)

    @functools.cached_property
    def _sizes_by_ratio(self) -> Int64s:
        return sort_by_ratio(self.listed_sizes)

    @property
    def largest(self) -> Size:
        """(height, width) of a batch that holds any single image of usual shape.

        The first memory has this size.
        """
        if self.listed_sizes:
            return max(self.listed_sizes, key=math.prod)
        if self.area is not None:
            square_side = math.isqrt(self.area)
            side = self.rounded_up(square_side + self.size_divisible)
            return side, side
        assert self.min_size is not None
        assert self.max_size is not None
        return self.rounded_up(self.min_size), self.rounded_up(self.max_size)

    @property
    def identity(self) -> list[int | None]:
        """The options that decide which samples share a batch. A loader's state compares them."""
        identity = [self.area, self.min_size, self.max_size, self.size_divisible]
        if self.listed_sizes:
            identity += self._sizes_by_ratio.ravel().tolist()
            identity.append(self.no_upscale)
        if self.pixels is not None:
            identity.append(self.pixels)
        return identity

    def rounded_up(self, sides: _Sides) -> _Sides:
        """The sides of batches that hold images with these sides."""
        num_steps = -(-sides // self.size_divisible)  # rounded up
        return num_steps * self.size_divisible

    def row_sizes(self, pictures: Int64s) -> Int64s:
        """(n, 2) width and height that the row of each image, (n, 2), would have alone."""
        if not self.listed_sizes:
            return self.resized(pictures[:, 0], pictures[:, 1])
        sizes = self._sizes_by_ratio
        if self.no_upscale:
            return sizes[nearest_covered_sizes(sizes, pictures)]
        return sizes[nearest_sizes(sizes, pictures)]

    def covers_listed(self, pictures: Int64s) -> Bools:
        """(n,) whether each image, (n, 2), covers a listed size without being enlarged."""
        return covers_any(self._sizes_by_ratio, pictures)

    def resized(self, widths: Int64s, heights: Int64s) -> Int64s:
        """(n, 2) int64: width and height of each image in its row, if no sizes are listed."""
        assert self.max_size is not None
        # (n,) each: the sides of the image, and those of its row, of which the longer one may still
        # be too long.
        shorter = np.minimum(widths, heights)
        longer = np.maximum(widths, heights)
        if self.area is not None:
            # Of width w and height h, an area A in the same ratio has the sides sqrt(A * w / h) and
            # sqrt(A * h / w). float64 has the exact root of a square below 2**52.
            short_squared = self.area * shorter // longer
            short = np.sqrt(short_squared).astype(np.int64)
            long_squared = self.area * longer // shorter
            long = np.sqrt(long_squared).astype(np.int64)
            short_if_too_long = self.max_size * shorter // longer
        else:
            # The rule of torchvision's Resize(min_size, max_size=max_size).
            assert self.min_size is not None
            short = np.full_like(shorter, self.min_size)
            long = self.min_size * longer // shorter
            short_if_too_long = self.max_size * self.min_size // long

        too_long = long > self.max_size
        short = np.where(too_long, short_if_too_long, short)
        short = np.maximum(short, 1)
        long = np.where(too_long, self.max_size, long)
        is_wide = widths >= heights
        resized_widths = np.where(is_wide, long, short)
        resized_heights = np.where(is_wide, short, long)
        return np.stack([resized_widths, resized_heights], axis=1)

    def shape(self, row_sizes: Int64s) -> Size:
        """(height, width) of a batch whose images would have rows of these sizes, (n, 2), alone."""
        if not self.listed_sizes:
            width, height = row_sizes.max(axis=0, initial=1).tolist()
            return self.rounded_up(height), self.rounded_up(width)
        if self.no_upscale:
            # Images that cover their own sizes cover one that is no wider and no higher.
            least = row_sizes.min(axis=0)
            is_covered = covers_size(least, self._sizes_by_ratio)
            listed = self._sizes_by_ratio[is_covered]
            width, height = least.tolist()
            if len(listed):
                width, height = listed[listed.prod(axis=1).argmax()].tolist()
            return height, width
        sizes, counts = np.unique(row_sizes, axis=0, return_counts=True)
        width, height = sizes[counts.argmax()].tolist()
        return height, width

    def sort_by_shape(self, pictures: Int64s, row_sizes: Int64s) -> Int64s:
        """(n,) the images in an order in which neighbours have rows of one size or of similar shape.

        Args:
            pictures: (n, 2) widths and heights of the images.
            row_sizes: (n, 2) of their rows.
        """
        if not self.listed_sizes:
            # Ascending by width and, within one width, descending by height, in steps of
            # size_divisible, rounded up. A height is below the weight, so the width decides first.
            steps = -(-row_sizes // self.size_divisible)
            weight = 2 * MAX_OUTPUT_PIXELS
            return np.argsort(steps @ (weight, -1), kind="stable")
        # The image's own ratio decides within a size: where a batch has images of two sizes, these
        # are the ones whose shapes lie between them.
        row_ratios = ratios_of(row_sizes)
        picture_ratios = ratios_of(pictures)
        return np.lexsort((picture_ratios, row_sizes[:, 0], row_ratios))
