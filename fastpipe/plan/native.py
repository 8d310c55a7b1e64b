"""Whole images, each at a size of its own, by the rules of the processors of vision-language
models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpipe.arguments import refusing_unknown_fields
from fastpipe.arrays import Float64s, Int64s
from fastpipe.errors import ConfigError, flag, whole
from fastpipe.plan.buckets import Buckets
from fastpipe.plan.crops import MAX_OUTPUT_PIXELS, BaseCrop

# The search of NaFlex processors for a scale: its limits, and how near it comes.
_NEAREST = 1e-5
_LEAST_SCALE = _NEAREST / 10
_MOST_SCALE = 100.0
# Of a row, in pixels. Only images more elongated than 200:1 would get longer.
_MAX_SIDE = 65535


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
        max_pixels: of an image, about: a side is never shorter than `multiple`.
        multiple: of which width and height are multiples: the size of a patch, times the patches
            that the model merges.
        min_pixels: of an image. None: multiple * multiple.
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
            resized = self._enlarged(pictures)
        else:
            resized = self._rounded(pictures)
        longest = _MAX_SIDE // self.multiple * self.multiple
        return np.minimum(resized.astype(np.int64), longest)

    def _rounded(self, pictures: Int64s) -> Float64s:
        """Qwen-VL's rule: (n, 2) -> (n, 2).

        Source: smart_resize of Qwen2-VL in transformers.
        """
        multiple = self.multiple
        # Halves are rounded to even, as Python's round does.
        resized = np.rint(pictures / multiple) * multiple
        pixels = resized.prod(axis=1)
        areas = pictures.prod(axis=1)  # of at most 65,535 x 65,535 pixels

        is_too_large = pixels > self.max_pixels
        shrink = np.sqrt(areas / self.max_pixels)[:, None]
        multiples = np.floor(pictures / shrink / multiple)
        shrunk = np.maximum(multiples * multiple, multiple)

        assert self.min_pixels is not None
        is_too_small = pixels < self.min_pixels
        grow = np.sqrt(self.min_pixels / areas)[:, None]
        multiples = np.ceil(pictures * grow / multiple)
        grown = multiples * multiple

        resized = np.where(is_too_small[:, None], grown, resized)
        return np.where(is_too_large[:, None], shrunk, resized)

    def _enlarged(self, pictures: Int64s) -> Float64s:
        """The largest sizes whose patches fit into max_pixels: (n, 2) -> (n, 2).

        Source: get_image_size_for_max_num_patches of SigLIP 2 in transformers. The search stops at
        a scale that is near enough; with more steps, some sizes would be others.
        """
        most_patches = self.max_pixels // self.multiple**2
        # (n,) the scales between which the one that just fits lies.
        least = np.full(len(pictures), _LEAST_SCALE)
        most = np.full(len(pictures), _MOST_SCALE)
        while len(pictures) and most[0] - least[0] >= _NEAREST:
            scales = (least + most) / 2
            patches_of_sides = self._patches(pictures, scales)
            fits = patches_of_sides.prod(axis=1) <= most_patches
            least = np.where(fits, scales, least)
            most = np.where(fits, most, scales)
        return self._patches(pictures, least) * self.multiple

    def _patches(self, pictures: Int64s, scales: Float64s) -> Float64s:
        """Patches of each side, at these scales: (n, 2)."""
        sides = pictures * scales[:, None]
        patches: Float64s = np.maximum(np.ceil(sides / self.multiple), 1)
        return patches


# The kinds of size= that show whole images, whose sizes follow from the images.
WholeImages = Buckets | Native
