"""Turns a random generator into the size, JPEG settings and bits per pixel that one demo photo aims at.

The numbers here were read off 300 ImageNet-like photos; docs/demo-photos.md shows both side by side. In such
photos a longer edge of 500 pixels, quality 96, 4:4:4 and many bits go together (copies that were scaled on
the way into the collection), while the others, as they came from the web, have a quality of 75 to 92.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from turbojpeg import TJSAMP_420, TJSAMP_422, TJSAMP_444, TJSAMP_GRAY

__all__ = ["PhotoPlan", "draw_plan"]


class PhotoPlan(NamedTuple):
    """What one photo aims at: pixels, one of PyTurboJPEG's TJSAMP values, and the file's bits over width x height."""

    width: int
    height: int
    subsampling: int
    quality: int
    bits_per_pixel: float


class _Kind(NamedTuple):
    """A kind of JPEG file: its share of all photos, and the share of them whose longer edge is 500 pixels."""

    share: float
    subsampling: int
    qualities: tuple[int, ...]
    bits_per_pixel: tuple[float, ...]  # at _QUANTILES
    long_500: float


_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_KINDS = (
    _Kind(0.62, TJSAMP_444, (96,), (1.85, 3.73, 4.53, 5.83, 7.10, 8.46, 12.9), 0.97),
    _Kind(0.115, TJSAMP_444, (75, 80, 85, 90, 92, 94), (0.83, 1.17, 1.83, 2.12, 3.22, 3.76, 7.77), 0.20),
    _Kind(0.217, TJSAMP_420, (70, 75, 75, 80, 85, 90, 92), (0.79, 1.07, 1.38, 1.84, 2.50, 3.54, 7.25), 0.20),
    _Kind(0.018, TJSAMP_422, (75, 85, 85, 89), (0.66, 0.89, 1.23, 2.15, 3.11, 3.17, 3.20), 0.20),
    _Kind(0.030, TJSAMP_GRAY, (76, 92, 96, 96), (1.02, 1.15, 2.69, 3.24, 3.41, 3.98, 4.42), 0.50),
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


def draw_plan(rng: np.random.Generator, scale: float = 1.0) -> PhotoPlan:
    """Draw what one photo aims at, its edges times a scale; the same state gives the same plan."""
    kind = _KINDS[int(rng.choice(len(_KINDS), p=[kind.share for kind in _KINDS]))]
    long, short = (round(scale * edge) for edge in _draw_edges(rng, kind.long_500))
    size = (long, short) if rng.random() < _LANDSCAPE_SHARE else (short, long)
    bits = float(np.interp(rng.random(), _QUANTILES, kind.bits_per_pixel))
    return PhotoPlan(*size, kind.subsampling, int(rng.choice(kind.qualities)), bits)
