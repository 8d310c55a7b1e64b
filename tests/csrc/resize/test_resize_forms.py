"""Tests of the resize of gray, RGBA and 16 bits: Pillow's bit by bit; of 16 bits torch's interpolate of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastpipe import _engine

pytestmark = pytest.mark.usefixtures("one_thread")

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
sides = st.one_of(st.integers(2, 9), st.integers(10, 150))


def noise(height: int, width: int, channels: int, bits: int = 8) -> NDArray[Any]:
    dtype = np.uint8 if bits == 8 else np.uint16
    return np.random.default_rng([width, height]).integers(
        0, 1 << bits, (height, width, channels), dtype=dtype
    )


def by_torch(
    image: NDArray[np.uint16], height: int, width: int, mode: str, *, antialias: bool
) -> NDArray[np.uint16]:
    planes = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None].contiguous()
    resized = torch.nn.functional.interpolate(
        planes, size=(height, width), mode=mode, antialias=antialias
    )
    return resized[0].round().clamp(0, 65535).permute(1, 2, 0).numpy().astype(np.uint16)


@settings(max_examples=120)
@given(sides, sides, sides, sides, st.sampled_from((1, 3, 4)), st.sampled_from(INTERPOLATIONS[:2]))
def test_16_bits_are_torchs(
    height: int, width: int, out_height: int, out_width: int, channels: int, interpolation: str
) -> None:
    image = noise(height, width, channels, bits=16)
    got = _engine.resize(image, out_height, out_width, interpolation=interpolation)
    assert got.dtype == np.uint16
    assert np.array_equal(
        got, by_torch(image, out_height, out_width, interpolation, antialias=True)
    )
    got = _engine.resize(image, out_height, out_width, interpolation=interpolation, antialias=False)
    expected = by_torch(image, out_height, out_width, interpolation, antialias=False)
    assert np.abs(got.astype(int) - expected).max() <= 1


@settings(max_examples=60)
@given(sides, sides, st.integers(2, 60), st.booleans(), st.data())
def test_crops_of_16_bits(
    height: int, width: int, out: int, flip: bool, data: st.DataObject
) -> None:
    """A crop that is resized, and a cut of what was resized as a whole; mirrored or not."""
    image = noise(height, width, 3, bits=16)
    x, y = data.draw(st.integers(0, width - 2)), data.draw(st.integers(0, height - 2))
    w, h = data.draw(st.integers(2, width - x)), data.draw(st.integers(2, height - y))
    side = slice(None, None, -1 if flip else 1)
    got = _engine.resize(image, out, out + 1, box=(x, y, w, h), bounds=(x, y, w, h), flip=flip)
    expected = by_torch(image[y : y + h, x : x + w], out, out + 1, "bilinear", antialias=True)
    assert np.array_equal(got, expected[:, side])
    left, top = data.draw(st.integers(0, out - 1)), data.draw(st.integers(0, out - 1))
    scale_x, scale_y = width / (out + 1), height / out
    box = (left * scale_x, top * scale_y, (out + 1 - left) * scale_x, (out - top) * scale_y)
    got = _engine.resize(image, out - top, out + 1 - left, box=box, flip=flip)
    expected = by_torch(image, out, out + 1, "bilinear", antialias=True)
    assert np.array_equal(got, expected[top:, left:][:, side])


@pytest.mark.parametrize("bits", [8, 16])
def test_padding_and_fill(bits: int) -> None:
    for channels in (1, 3, 4):
        image = noise(6, 5, channels, bits)
        fill = tuple(range(40, 40 + channels))
        got = _engine.resize(image, 8, 9, box=(-2, -1, 9, 8), padding_mode="constant", fill=fill)
        expected = np.empty((8, 9, channels), image.dtype)
        expected[:] = fill
        expected[1:7, 2:7] = image
        assert np.array_equal(got, expected)
        for mode in ("reflect", "symmetric", "edge"):
            got = _engine.resize(image, 8, 9, box=(-2, -1, 9, 8), padding_mode=mode)
            assert np.array_equal(got, np.pad(image, ((1, 1), (2, 2), (0, 0)), mode=mode)), (
                channels,
                mode,
            )
