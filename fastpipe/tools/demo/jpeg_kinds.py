"""Draws the size of a photo and the kind of its JPEG file, as ImageNet has them.

The numbers were read off 300 ImageNet-like photos; docs/development/demo-photos.md shows both side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_LANDSCAPE_SHARE = 0.73


class JpegKind(NamedTuple):
    """A kind of JPEG file."""

    share: float  # of all photos
    sampling: str  # of the chroma
    qualities: tuple[int, ...]  # equally likely
    long_500: float  # the share of these photos whose longer edge is 500 pixels


_KINDS = (
    JpegKind(0.62, "444", (96,), 0.97),
    JpegKind(0.115, "444", (75, 80, 85, 90, 92, 94), 0.20),
    JpegKind(0.217, "420", (70, 75, 75, 80, 85, 90, 92), 0.20),
    JpegKind(0.018, "422", (75, 85, 85, 89), 0.20),
    JpegKind(0.030, "gray", (76, 92, 96, 96), 0.50),
)


def draw_kind(rng: np.random.Generator) -> JpegKind:
    shares = [kind.share for kind in _KINDS]
    return _KINDS[int(rng.choice(len(_KINDS), p=shares))]


def draw_size(
    rng: np.random.Generator, kind: JpegKind, scale: float
) -> tuple[int, int]:
    """Draw the width and the height, pixels, and scale them."""
    long_edge, short_edge = _draw_edges(rng, kind.long_500)
    long_pixels = round(scale * long_edge)
    short_pixels = round(scale * short_edge)
    if rng.random() < _LANDSCAPE_SHARE:
        return long_pixels, short_pixels
    return short_pixels, long_pixels


def _draw_edges(rng: np.random.Generator, long_500: float) -> tuple[float, float]:
    """Draw the longer and the shorter edge, pixels."""
    group = rng.random()  # chooses among cameras and habits, each with its own sizes
    if rng.random() < long_500:
        return 500.0, _draw_short_of_500(rng, group)
    if group < 0.57:
        long_edge = rng.uniform(150.0, 470.0)
    elif group < 0.95:
        any_edge = rng.uniform(510.0, 860.0)
        long_edge = float(rng.choice((640.0, 600.0, 800.0, any_edge)))
    else:
        log_edge = rng.uniform(np.log(900.0), np.log(1900.0))
        long_edge = float(np.exp(log_edge))
    aspects = (1.0, 4 / 3, 4 / 3, 3 / 2)
    aspect = float(rng.choice(aspects))
    aspect *= rng.uniform(0.97, 1.08)
    short_edge = max(100.0, long_edge / aspect)
    return long_edge, min(short_edge, long_edge)


def _draw_short_of_500(rng: np.random.Generator, group: float) -> float:
    """Draw the shorter edge beside one of 500 pixels; `group` is uniform, 0 to 1."""
    # Drawn in any case: the numbers that are drawn decide all that follow.
    normal_edge = rng.normal(370.0, 50.0)
    cropped_by_hand = float(np.clip(normal_edge, 240.0, 500.0))
    if group < 0.43:  # a compact camera's 4:3
        return 375.0
    if group < 0.70:  # a reflex camera's 3:2
        return float(rng.integers(332, 335))
    return cropped_by_hand
