"""Turns a random generator into smooth and rough 2-D noise fields.

Natural photos have an amplitude spectrum of about 1/f (D. J. Field, "Relations between the statistics of
natural images and the response properties of cortical cells", J. Opt. Soc. Am. A 4(12), 1987). A sum of
octaves of white noise, each twice as fine as the one before, has it where all octaves weigh the same.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["Field", "fractal", "resized", "smoothstep"]

Field = NDArray[np.float32]
"""A plane of float32 values with axes (row, column)."""


def resized(field: Field, height: int, width: int, *, smooth: bool = True) -> Field:
    """Resample a field to height x width pixels.

    Args:
        field: axes (row, column).
        height: rows of the result, pixels.
        width: columns of the result, pixels.
        smooth: bicubic where True; bilinear, cheaper, where False.

    Returns:
        The resampled field, float32.
    """
    how = cv2.INTER_CUBIC if smooth else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(field, (width, height), interpolation=how), dtype=np.float32)


def smoothstep(field: Field, softness: float) -> Field:
    """Map a field to 0..1 by a smooth step at 0.

    Args:
        field: any values.
        softness: half-width of the step, in the field's own unit; greater than 0.

    Returns:
        3t^2 - 2t^3 of t = clip((field / softness + 1) / 2, 0, 1), float32.
    """
    t = np.clip(field * np.float32(0.5 / softness) + np.float32(0.5), 0.0, 1.0)
    return np.asarray(t * t * (3.0 - 2.0 * t), dtype=np.float32)


def fractal(
    rng: np.random.Generator,
    height: int,
    width: int,
    *,
    persistence: float = 0.5,
    finest: int = 0,
    coarsest: int = 9,
    stretch: float = 1.0,
) -> Field:
    """Draw a sum of octaves of Gaussian noise with mean 0 and standard deviation 1.

    Args:
        rng: source of the noise.
        height: rows, pixels.
        width: columns, pixels.
        persistence: amplitude of an octave relative to the next coarser one; 0.5 is cloud-like, 1.0 is 1/f.
        finest: the finest octave has cells of 2**finest pixels.
        coarsest: the coarsest octave has cells of at most 2**coarsest pixels.
        stretch: cells are this many times as tall as wide (grass, fur, grain of wood).

    Returns:
        float32 of shape (height, width).
    """
    rows, columns = max(2, round(height / stretch)), width
    top = min(coarsest, max(finest, int(np.log2(max(rows, columns))) - 1))
    field = np.zeros((2, 2), np.float32)
    amplitude = np.float32(1.0)
    for octave in range(top, finest - 1, -1):
        cells = (-(-rows >> octave) + 1, -(-columns >> octave) + 1)
        field = resized(field, *cells) + amplitude * rng.standard_normal(cells, dtype=np.float32)
        amplitude *= np.float32(persistence)
    if field.shape != (height, width):
        field = resized(field, height, width)
    mean, deviation = cv2.meanStdDev(field)
    return (field - np.float32(mean[0, 0])) * np.float32(1.0 / max(deviation[0, 0], 1e-6))
