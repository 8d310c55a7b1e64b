"""Pictures that tests draw: smooth ones, in which a shift shows, and flat ones, whose colour tells which they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FLAT_CLASSES = ("ant", "bee", "cow")
FLAT_IMAGES = 37


def smooth_noise(width: int, height: int, seed: int, cell: int = 12) -> Image.Image:
    """A picture with detail at two scales, so that a shift, a mirroring or a wrong filter shows."""
    rng = np.random.default_rng([seed, width, height])
    coarse = rng.integers(0, 256, (height // cell + 2, width // cell + 2, 3), dtype=np.uint8)
    base = np.asarray(
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.int16
    )
    grain = rng.integers(-12, 13, (height, width, 3))
    return Image.fromarray(np.clip(base + grain, 0, 255).astype(np.uint8))


def flat_colour(number: int) -> tuple[int, int, int]:
    """One colour a picture, far enough apart to survive JPEG; blue tells the class."""
    return 20 + number % 7 * 35, 20 + number // 7 * 35, 40 + number % 3 * 80


def flat_number(colour: NDArray[np.uint8]) -> int:
    """The picture that a pixel is of; its class is the number modulo 3."""
    red, green = np.rint((colour[:2].astype(float) - 20) / 35).astype(int)
    return int(green * 7 + red)
