"""Tests of decoding to gray, RGBA and 16 bits, from JPEGs, their coefficients and PNGs, in whole and in part."""

from __future__ import annotations

import io
import itertools
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.pictures.jpegs import DENOMINATORS, picture

from fastpipe import _engine
from fastpipe.sources.picture.convert import EncodeOptions, convert
from fastpipe.sources.picture.png import encode_png

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
WIDTH, HEIGHT = 61, 45


def jpeg_of(subsampling: int, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    drawn = Image.fromarray(picture(WIDTH, HEIGHT, "smooth")).convert(mode)
    drawn.save(out, "JPEG", quality=90, subsampling=subsampling)
    return out.getvalue()


def packed(jpeg: bytes, storage: str) -> bytes:
    return convert(jpeg, EncodeOptions(storage=storage, tile=16)).data


def luma(jpeg: bytes) -> NDArray[np.uint8]:
    """What libjpeg's grayscale output is, by Pillow."""
    opened = Image.open(io.BytesIO(jpeg))
    opened.draft("L", opened.size)
    return np.asarray(opened.convert("L"))[..., None]


@pytest.mark.parametrize("storage", ["jpeg", "coefficients"])
@pytest.mark.parametrize(("subsampling", "mode"), [(0, "RGB"), (1, "RGB"), (2, "RGB"), (0, "L")])
def test_gray_of_a_jpeg_is_its_luma(storage: str, subsampling: int, mode: str) -> None:
    jpeg = jpeg_of(subsampling, mode)
    data = packed(jpeg, storage)
    random = np.random.default_rng(subsampling)
    assert np.array_equal(_engine.decode(data, channels=1), luma(jpeg))
    for denominator in DENOMINATORS:
        by_libjpeg = _engine.decode(data, denominator=denominator, channels=1, method="libjpeg")
        height, width, _ = by_libjpeg.shape
        for method in _engine.decode_methods():
            for _ in range(10):
                x, y = int(random.integers(0, width)), int(random.integers(0, height))
                w, h = (
                    int(random.integers(1, width - x + 1)),
                    int(random.integers(1, height - y + 1)),
                )
                part = _engine.decode(
                    data, region=(x, y, w, h), denominator=denominator, channels=1, method=method
                )
                assert np.array_equal(part, by_libjpeg[y : y + h, x : x + w]), (denominator, method)


@pytest.mark.parametrize("storage", ["jpeg", "coefficients"])
def test_jpegs_with_alpha_and_of_16_bits(storage: str) -> None:
    data = packed(jpeg_of(2), storage)
    for channels in MODES:
        eight = _engine.decode(data, channels=channels)
        if channels == 4:
            assert np.array_equal(eight[..., :3], _engine.decode(data))
            assert (eight[..., 3] == 255).all()
        sixteen = _engine.decode(data, channels=channels, bits=16)
        assert sixteen.dtype == np.uint16
        assert np.array_equal(sixteen, eight.astype(np.uint16) * 257)


def saved(image: Image.Image, **more: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", **more)
    return out.getvalue()


def pngs() -> dict[str, bytes]:
    colour = picture(WIDTH, HEIGHT)
    image = Image.fromarray(colour)
    gray, some = image.convert("L"), tuple(int(value) for value in colour[3, 3])
    return {
        "gray": saved(gray),
        "one bit": saved(image.convert("1")),
        "gray, one clear": saved(gray, transparency=gray.getpixel((3, 3))),
        "gray and alpha": saved(Image.merge("LA", (gray, image.getchannel(0)))),
        "rgb": saved(image),
        "rgb, one clear": saved(image, transparency=some),
        "rgba": saved(Image.merge("RGBA", (*image.split(), image.getchannel(1)))),
        "palette": saved(image.convert("P")),
        "palette and alpha": saved(image.convert("P"), transparency=bytes(range(256))),
        "interlaced rgba": saved(Image.merge("RGBA", (*image.split(), gray)), interlace=1),
        "in strips": encode_png(np.dstack([colour, colour[..., 1]]), strip_rows=8),
    }


@pytest.mark.filterwarnings("ignore:Palette images")
def test_pngs_are_converted_as_pillow_does() -> None:
    for (kind, data), (channels, mode) in itertools.product(pngs().items(), MODES.items()):
        expected = np.asarray(Image.open(io.BytesIO(data)).convert(mode)).reshape(
            HEIGHT, WIDTH, channels
        )
        assert np.array_equal(_engine.decode(data, channels=channels), expected), (kind, mode)
        part = _engine.decode(data, region=(7, 11, 40, 30), channels=channels)
        assert np.array_equal(part, expected[11:41, 7:47]), (kind, mode)
        if channels > 1:
            wide = _engine.decode(data, channels=channels, bits=16)
            assert np.array_equal(wide, expected.astype(np.uint16) * 257), (kind, mode)


@pytest.mark.parametrize("stored", [1, 3, 4])
def test_pngs_of_16_bits(stored: int) -> None:
    samples = (
        np.random.default_rng(stored).integers(0, 65536, (HEIGHT, WIDTH, stored)).astype(np.uint16)
    )
    in_order = samples[..., [2, 1, 0, 3][:stored]] if stored > 1 else samples
    data = cv2.imencode(".png", in_order)[1].tobytes()
    rgb = np.broadcast_to(samples[..., :1], (HEIGHT, WIDTH, 3)) if stored == 1 else samples[..., :3]
    alpha = samples[..., 3:] if stored == 4 else np.full((HEIGHT, WIDTH, 1), 65535, np.uint16)
    wide = rgb.astype(np.uint64)
    mixed = (wide @ np.array([19595, 38470, 7471], np.uint64) + np.uint64(32768)) >> np.uint64(16)
    gray = samples if stored == 1 else mixed[..., None].astype(np.uint16)
    expected = {1: gray, 3: rgb, 4: np.concatenate([rgb, alpha], axis=2)}
    for channels, pixels in expected.items():
        assert np.array_equal(_engine.decode(data, channels=channels, bits=16), pixels)
        if channels > 1:
            assert np.array_equal(_engine.decode(data, channels=channels), pixels >> 8)


def test_wrong_forms() -> None:
    with pytest.raises(ValueError, match="1, 3 or 4 channels, of 8 or 16 bits"):
        _engine.decode(jpeg_of(0), channels=2)
    with pytest.raises(ValueError, match="1, 3 or 4 channels, of 8 or 16 bits"):
        _engine.decode(jpeg_of(0), bits=12)
