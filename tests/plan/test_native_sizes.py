"""Sizes of whole images: those of the processors of Qwen-VL and of NaFlex, by their own rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fastpipe

COUNT = 10_000


def sides() -> tuple[Any, Any]:
    """Widths and heights; some of them small, or very elongated."""
    rng = np.random.default_rng(3)
    widths, heights = rng.integers(1, 9000, (2, COUNT))
    heights[: COUNT // 4] = rng.integers(1, 100, COUNT // 4)
    widths[COUNT // 8 : COUNT // 3] = rng.integers(1, 100, COUNT // 3 - COUNT // 8)
    return widths, heights


def qwen(width: int, height: int, size: fastpipe.Native) -> tuple[int, int]:
    """The rule, one image after the other in Python's numbers: (width, height)."""
    step = size.multiple
    least, most = size.min_pixels or step * step, size.max_pixels
    high, wide = round(height / step) * step, round(width / step) * step
    if high * wide > most:
        by = math.sqrt(height * width / most)
        high = max(step, math.floor(height / by / step) * step)
        wide = max(step, math.floor(width / by / step) * step)
    elif high * wide < least:
        by = math.sqrt(least / (height * width))
        high = math.ceil(height * by / step) * step
        wide = math.ceil(width * by / step) * step
    return wide, high


def naflex(width: int, height: int, size: fastpipe.Native) -> tuple[int, int]:
    step, most = size.multiple, size.max_pixels // size.multiple**2

    def patches(side: int, scale: float) -> int:
        return max(1, math.ceil(side * scale / step))

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        scale = (low + high) / 2
        if patches(width, scale) * patches(height, scale) <= most:
            low = scale
        else:
            high = scale
    return patches(width, low) * step, patches(height, low) * step


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"max_pixels": 1 << 20}, qwen),
        ({"max_pixels": 14 * 14 * 4 * 1280, "min_pixels": 56 * 56}, qwen),
        ({"max_pixels": 501_760, "multiple": 14, "min_pixels": 100_352}, qwen),
        ({"max_pixels": 2048, "multiple": 32}, qwen),
        ({"max_pixels": 256 * 16**2, "multiple": 16, "enlarge": True}, naflex),
        ({"max_pixels": 7 * 14**2, "multiple": 14, "enlarge": True}, naflex),
    ],
)
def test_sizes_are_those_of_the_processors(options: Any, rule: Any) -> None:
    size = fastpipe.Native(**options)
    widths, heights = sides()
    resized = size.resized(widths, heights)
    assert resized.shape == (COUNT, 2)
    for width, height, got in zip(widths.tolist(), heights.tolist(), resized.tolist(), strict=True):
        assert tuple(got) == rule(width, height, size), (width, height)


def test_no_side_is_longer_than_a_picture_can_be() -> None:
    size = fastpipe.Native(max_pixels=1 << 28)
    widths, heights = np.array([65_535, 65_535, 15]), np.array([15, 65_535, 65_535])
    assert size.resized(widths, heights).max() <= 65_535


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"multiple": 0}, "multiple: expected"),
        ({"max_pixels": 27 * 28}, "max_pixels: expected"),
        ({"min_pixels": 1 << 21}, "min_pixels: expected"),
        ({"enlarge": True, "min_pixels": 3000}, "leave min_pixels out"),
        ({"interpolation": "cubic"}, "interpolation: expected"),
        ({"pixels": 3}, "max_pixels="),
    ],
)
def test_impossible_options_are_refused(options: Any, words: str) -> None:
    with pytest.raises(fastpipe.ConfigError, match=words):
        fastpipe.Native(**options)


def test_a_size_in_place_of_options_says_what_to_write() -> None:
    with pytest.raises(fastpipe.ConfigError, match=r"Native\(max_pixels=448 \* 448\)"):
        fastpipe.Native(448)
