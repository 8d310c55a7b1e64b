"""Turns (seed, index, label) into one photo-like JPEG file in memory, with the mask and the caption of its object."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray
from turbojpeg import TJPF_BGR, TJSAMP_444, TJSAMP_GRAY, TurboJPEG

from fastpipe.demo.mix import PhotoPlan, draw_plan
from fastpipe.demo.scene import Scene, paint_scene
from fastpipe.demo.shapes import CLASSES
from fastpipe.demo.truth import caption_of
from fastpipe.errors import ConfigError
from fastpipe.sources.picture.jpeg import open_turbojpeg

__all__ = ["DemoPhoto", "make_photo"]

_MOST_WEIGHT = 9.0  # texture beyond this is clipped to black and white and adds few bits
_TOLERANCE = 0.06  # relative error of bits per pixel at which the search stops
_MOST_TRIES = 4


@dataclass(frozen=True)
class DemoPhoto:
    """One generated photo.

    Attributes:
        jpeg: the complete baseline JPEG file.
        width: columns, pixels.
        height: rows, pixels.
        mask: bool (height, width): where the object is.
        caption: a few English words for the object, its colours and its place.
    """

    jpeg: bytes
    width: int
    height: int
    mask: NDArray[np.bool_] = field(compare=False, repr=False)
    caption: str


@cache
def _codec() -> TurboJPEG:
    """Load libjpeg-turbo once; each call of its methods makes its own C handle, so threads may share it."""
    return open_turbojpeg()


def _encode_to_size(scene: Scene, plan: PhotoPlan) -> bytes:
    """Compress with that weight of texture which comes close to the plan's bits per pixel.

    The search is a secant in log(weight + 0.1) and bits per pixel; where it runs out of tries the closest
    file is taken, and a scene that is too rich even without texture stays as it is.
    """
    target = plan.bits_per_pixel
    made: dict[float, bytes] = {}  # by the relative error of the bits
    # The first guess is a least-squares fit over 150 photos.
    place = -3.83 + 2.07 * np.log(target) + 1.18 * np.log(101 - plan.quality) - 0.41 * (plan.subsampling == TJSAMP_444)
    place = np.log(np.clip(np.exp(place), 0.1, 0.7 * _MOST_WEIGHT) + 0.1)
    before: tuple[float, float] | None = None
    for _ in range(_MOST_TRIES):
        weight = float(np.clip(np.exp(place) - 0.1, 0.0, _MOST_WEIGHT))
        image = cv2.addWeighted(scene.smooth, 1.0, scene.texture, weight, 0.0, dtype=cv2.CV_8U)
        jpeg = bytes(_codec().encode(image, plan.quality, TJPF_BGR, plan.subsampling))
        bits = 8.0 * len(jpeg) / (plan.width * plan.height)
        error = abs(bits / target - 1.0)
        made.setdefault(error, jpeg)
        if error <= _TOLERANCE or weight == (0.0 if bits > target else _MOST_WEIGHT):
            break
        place = np.log(weight + 0.1)
        slope = 0.45 * (bits + 1.0)
        if before is not None and abs(place - before[0]) > 1e-6:
            slope = max(0.2, (bits - before[1]) / (place - before[0]))
        before = place, bits
        place += np.clip((target - bits) / slope, -2.5, 2.5)
    return made[min(made)]


def make_photo(seed: int, index: int, label: int, scale: float = 1.0) -> DemoPhoto:
    """Make one photo in memory.

    Args:
        seed: seed of the whole dataset, 0 or more.
        index: the photo's number in the dataset, 0 or more.
        label: its class, a place in CLASSES.
        scale: of width and height, to those of a photo like ImageNet's; a third is a tenth of the work.

    Returns:
        The photo; the same arguments give the same bytes on the same versions of numpy, OpenCV and
        libjpeg-turbo.

    Raises:
        ConfigError: an argument is out of its range.
        PackError: libturbojpeg is missing.
    """
    if seed < 0 or index < 0:
        raise ConfigError(f"expected a seed and an index of 0 or more, got seed {seed} and index {index}")
    if not 0 <= label < len(CLASSES):
        raise ConfigError(f"expected a label from 0 to {len(CLASSES) - 1}, got {label}")
    rng = np.random.default_rng((seed, index, label))
    plan = draw_plan(rng, scale)
    scene = paint_scene(rng, plan.height, plan.width, CLASSES[label])
    caption = caption_of(CLASSES[label], scene.colours, scene.mask, gray=plan.subsampling == TJSAMP_GRAY)
    return DemoPhoto(_encode_to_size(scene, plan), plan.width, plan.height, scene.mask, caption)
