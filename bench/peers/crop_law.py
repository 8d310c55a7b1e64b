"""A photo's width and height -> a random crop, for peers that bring none."""

from __future__ import annotations

import math
import random


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop's law, with Python's own generator, which is quicker than torch's."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h
