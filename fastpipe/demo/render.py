"""Turns (seed, index, label) into one photo-like JPEG file in memory, with the mask and the caption of its object.

The numbers of _KINDS were read off 300 ImageNet-like photos; docs/demo-photos.md shows both side by side. In such
photos a longer edge of 500 pixels, quality 96, 4:4:4 and many bits go together (copies that were scaled on
the way into the collection), while the others, as they came from the web, have a quality of 75 to 92. With the weights
of texture, which are the same for all, the files have about as many bits as those of such photos.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.demo.scene import paint_scene
from fastpipe.demo.shapes import CLASSES
from fastpipe.demo.truth import caption_of
from fastpipe.errors import ConfigError
from fastpipe.sources.picture.jpeg import encode_jpeg

_LEAST_TEXTURE, _MOST_TEXTURE = 0.6, 7.2  # its weight; beyond, much of it is clipped to black and white


class _Kind(NamedTuple):
    """A kind of JPEG file: its share of all photos, and the share of them whose longer edge is 500 pixels."""

    share: float
    sampling: str
    qualities: tuple[int, ...]
    long_500: float


_KINDS = (
    _Kind(0.62, "444", (96,), 0.97),
    _Kind(0.115, "444", (75, 80, 85, 90, 92, 94), 0.20),
    _Kind(0.217, "420", (70, 75, 75, 80, 85, 90, 92), 0.20),
    _Kind(0.018, "422", (75, 85, 85, 89), 0.20),
    _Kind(0.030, "gray", (76, 92, 96, 96), 0.50),
)
_LANDSCAPE_SHARE = 0.73


def _draw_edges(rng: np.random.Generator, long_500: float) -> tuple[float, float]:
    """Draw the longer and the shorter edge, pixels."""
    at = rng.random()
    if rng.random() < long_500:  # a compact camera's 4:3, a reflex camera's 3:2, or cut by hand
        cut = float(np.clip(rng.normal(370.0, 50.0), 240.0, 500.0))
        return 500.0, 375.0 if at < 0.43 else float(rng.integers(332, 335)) if at < 0.70 else cut
    if at < 0.57:
        long = rng.uniform(150.0, 470.0)
    elif at < 0.95:
        long = float(rng.choice((640.0, 600.0, 800.0, rng.uniform(510.0, 860.0))))
    else:
        long = float(np.exp(rng.uniform(np.log(900.0), np.log(1900.0))))
    aspect = float(rng.choice((1.0, 4 / 3, 4 / 3, 3 / 2))) * rng.uniform(0.97, 1.08)
    return long, min(max(100.0, long / aspect), long)


@dataclass(frozen=True)
class DemoPhoto:
    """One generated photo."""

    jpeg: bytes  # the complete baseline file
    width: int
    height: int
    mask: NDArray[np.bool_] = field(compare=False, repr=False)  # (height, width): where the object is
    caption: str


def make_photo(seed: int, index: int, label: int, scale: float = 1.0) -> DemoPhoto:
    """Make photo `index` of a dataset's seed, of class CLASSES[label], in memory. A scale of 0.35 makes width and
    height that much smaller than ImageNet's, in a quarter of the time. The same arguments give the same bytes on the
    same versions of numpy, OpenCV and libjpeg-turbo.
    """
    if seed < 0 or index < 0:
        raise ConfigError(f"expected a seed and an index of 0 or more, got seed {seed} and index {index}")
    if not 0 <= label < len(CLASSES):
        raise ConfigError(f"expected a label from 0 to {len(CLASSES) - 1}, got {label}")
    rng = np.random.default_rng((seed, index, label))
    kind = _KINDS[int(rng.choice(len(_KINDS), p=[kind.share for kind in _KINDS]))]
    long, short = (round(scale * edge) for edge in _draw_edges(rng, kind.long_500))
    width, height = (long, short) if rng.random() < _LANDSCAPE_SHARE else (short, long)
    weight = _LEAST_TEXTURE * (_MOST_TEXTURE / _LEAST_TEXTURE) ** rng.random()
    quality = int(rng.choice(kind.qualities))
    scene = paint_scene(rng, height, width, CLASSES[label])
    bgr = cv2.addWeighted(scene.smooth, 1.0, scene.texture, weight, 0.0, dtype=cv2.CV_8U)
    jpeg = encode_jpeg(np.ascontiguousarray(bgr[:, :, ::-1]), quality=quality, sampling=kind.sampling)
    caption = caption_of(CLASSES[label], scene.colours, scene.mask, gray=kind.sampling == "gray")
    return DemoPhoto(jpeg, width, height, scene.mask, caption)
