"""Turns (seed, index, label) into one photo-like JPEG, with its object's mask and caption."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np

from fastpipe.arrays import Bools
from fastpipe.errors import ConfigError
from fastpipe.sources.picture.jpeg import encode_jpeg
from fastpipe.tools.demo.jpeg_kinds import draw_kind, draw_size
from fastpipe.tools.demo.paint import Colour, Scene, paint_scene
from fastpipe.tools.demo.shapes import CLASSES
from fastpipe.tools.demo.truth import describe_object

# The weight of the fine texture. With more, much of it is clipped to black and white.
_MIN_TEXTURE = 0.6
_MAX_TEXTURE = 7.2


@dataclass(frozen=True)
class DemoPhoto:
    """One generated photo."""

    jpeg: bytes  # the complete baseline file
    width: int
    height: int
    # (height, width): where the object is
    mask: Bools = field(compare=False, repr=False)
    caption: str


def make_photo(seed: int, index: int, label: int, scale: float = 1.0) -> DemoPhoto:
    """Make photo `index` of a dataset's seed, of class CLASSES[label], in memory.

    The same arguments give the same bytes on the same versions of numpy, OpenCV and libjpeg-turbo.

    Args:
        seed: of the dataset, 0 or more.
        index: of the photo, 0 or more.
        label: of its class.
        scale: of the width and height. 0.35 makes a photo in a quarter of the time.

    Raises:
        ConfigError: an argument is out of its range.
    """
    if seed < 0 or index < 0:
        raise ConfigError(
            f"expected a seed and an index of 0 or more, got seed {seed} and index {index}"
        )
    if not 0 <= label < len(CLASSES):
        raise ConfigError(f"expected a label from 0 to {len(CLASSES) - 1}, got {label}")
    rng = np.random.default_rng((seed, index, label))
    kind = draw_kind(rng)
    width, height = draw_size(rng, kind, scale)
    # Between the least and the most weight; its logarithm is uniform.
    texture_range = _MAX_TEXTURE / _MIN_TEXTURE
    texture_weight = _MIN_TEXTURE * texture_range ** rng.random()
    quality = int(rng.choice(kind.qualities))
    class_name = CLASSES[label]
    scene = paint_scene(rng, height, width, class_name)

    # The planes become rows of pixels (height, width, BGR).
    smooth = np.ascontiguousarray(scene.smooth.transpose(1, 2, 0))
    texture = np.ascontiguousarray(scene.texture.transpose(1, 2, 0))
    bgr = cv2.addWeighted(smooth, 1.0, texture, texture_weight, 0.0, dtype=cv2.CV_8U)
    rgb_view = bgr[:, :, ::-1]
    rgb = np.ascontiguousarray(rgb_view, dtype=np.uint8)
    jpeg = encode_jpeg(rgb, quality=quality, sampling=kind.sampling)
    # The pixels of which the object covers at least half.
    mask = scene.shape.cover >= 0.5
    colours = _measure_colours(scene, mask)
    is_gray = kind.sampling == "gray"
    caption = describe_object(class_name, colours, mask, gray=is_gray)
    return DemoPhoto(jpeg, width, height, mask, caption)


def _measure_colours(scene: Scene, mask: Bools) -> list[Colour]:
    """Measure the mean colours of the object's surface, as it is lit: one, or two of a pattern."""
    parts = [mask]
    second = scene.shape.second
    if second is not None:
        is_second = second >= 0.5
        parts = [mask & ~is_second, mask & is_second]
    colours = []
    for part in parts:
        if part.any():
            pixels = scene.smooth[:, part]  # (blue-green-red, pixels)
            colours.append(pixels.mean(axis=1))
    return colours
