"""Whole images, each at a size of its own, by the rules of the processors of vision-language
models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Int64s
from fastpipe.errors import ConfigError, flag, whole
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, BaseCrop
from fastpipe.plan.own_sizes import MAX_SIDE, largest_sizes, rounded_sizes


@refusing_unknown_fields("fastpipe.Native")
@dataclass(frozen=True, kw_only=True)
class Native(BaseCrop):
    """Whole images, each in its own aspect ratio and at a size of its own, without padding:
    fastpipe.loader(size=Native(...)).

    Width and height are multiples of `multiple`. The size follows from the image's own width and
    height alone, by the rule of Qwen-VL's processors (`smart_resize` in transformers): both sides
    are rounded to the next multiple; an image with more than `max_pixels` is then made smaller, and
    one with less than `min_pixels` larger. Images are resized once, at full size, and not mirrored
    unless `hflip=` says so.

    A batch has a list of N tensors (channels, height, width) in place of one tensor; so have
    masks and second images. Boxes and points are in pixels of the image's own row.

    Args:
        max_pixels: most pixels of an image, about: a side is never shorter than `multiple`.
        multiple: width and height are multiples of this: the size of a patch, times the patches
            that the model merges.
        min_pixels: fewest pixels of an image. None: multiple * multiple.
        enlarge: True: the rule of NaFlex processors (SigLIP 2 in transformers, timm): each image,
            also a small one, is as large as fits into `max_pixels`, which are
            max_num_patches * patch_size ** 2. Sides are rounded up.
        interpolation: "bicubic", as in Qwen-VL's processors and timm; "bilinear", as in SigLIP 2's;
            or "nearest".
        antialias, mask_fill: see RandomResizedCrop.

    Example:
        >>> size = fastpipe.Native(max_pixels=64 * 64, multiple=8)
        >>> images, labels = next(iter(fastpipe.loader("data/train", batch_size=4, size=size)))
        >>> [image.shape[1] % 8 for image in images]
        [0, 0, 0, 0]
    """

    max_pixels: int = 1 << 20
    multiple: int = 28
    min_pixels: int | None = None
    enlarge: bool = False
    interpolation: str = "bicubic"

    has_own_sizes = True
    _NOT_PUBLIC = frozenset(["resized"])  # loaders use it

    def __post_init__(self) -> None:
        super().__post_init__()
        multiple = whole("multiple", self.multiple, least=1, most=1024)
        least = multiple * multiple
        flag("enlarge", self.enlarge)
        whole("max_pixels", self.max_pixels, least=least, most=MAX_OUTPUT_PIXELS**2)
        if self.min_pixels is None:
            object.__setattr__(self, "min_pixels", least)
            return
        if self.enlarge:
            raise ConfigError(
                "Native: with enlarge=True each image is as large as max_pixels allows; leave "
                "min_pixels out"
            )
        whole("min_pixels", self.min_pixels, least=1, most=self.max_pixels)

    @classmethod
    def _hint(cls, size: object) -> str:
        side = size if isinstance(size, int) else 448
        return (
            f"For about {side} x {side} pixels: "
            f"fastpipe.loader(..., size=fastpipe.Native(max_pixels={side} * {side}))"
        )

    def resized(self, widths: Int64s, heights: Int64s) -> Int64s:
        """(n, 2) int64: width and height of each image in its row."""
        pictures = np.stack([widths, heights], axis=1)
        if self.enlarge:
            resized = largest_sizes(
                pictures, multiple=self.multiple, max_pixels=self.max_pixels
            )
        else:
            assert self.min_pixels is not None
            resized = rounded_sizes(
                pictures,
                multiple=self.multiple,
                min_pixels=self.min_pixels,
                max_pixels=self.max_pixels,
            )
        longest = MAX_SIDE // self.multiple * self.multiple
        return np.minimum(resized.astype(np.int64), longest)
