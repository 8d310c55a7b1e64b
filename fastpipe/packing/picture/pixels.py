"""Turns the bytes of a source image into 8-bit RGB pixels, and those into what a shard stores.

What comes out is what users know from Pillow's ``Image.open(f).convert("RGB")``. Where OpenCV differs
from that is mended in tiff_pixels.py, bmp_pixels.py and png_pixels.py; CMYK JPEGs are converted here.
All functions may run in many threads at once, and release the GIL where the libraries do.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, ImageError
from fastpipe.packing.picture.bmp_pixels import decode_bmp_rgb
from fastpipe.packing.picture.jpeg import UnnamedSamplingError, decode_jpeg, encode_jpeg
from fastpipe.packing.picture.opencv import decode_bgr, quiet_cv2
from fastpipe.packing.picture.png_pixels import decode_png_rgb
from fastpipe.packing.picture.probe import Probe
from fastpipe.packing.picture.tiff_pixels import decode_tiff_rgb

__all__ = ["apply_orientation", "decode_rgb", "encode_jpeg", "shrink"]

_ROWS_AT_ONCE = 64  # of a CMYK picture, so that the wider numbers in between stay in cache


def decode_rgb(data: bytes, probe: Probe, *, max_pixels: int) -> NDArray[np.uint8]:
    """Decode an image file to RGB, as stored: its orientation is not applied.

    Alpha is dropped, not blended; palettes are expanded; gray is repeated; of 16-bit samples
    the high byte is taken (v >> 8), so they are scaled and never clipped; no color profile is applied.
    Of a file with many pictures the first is decoded.

    Args:
        data: the whole file. A JPEG must have been validated natively before.
        probe: what `fastpipe.packing.picture.probe.probe` said of it.
        max_pixels: most pixels (width * height) that are decoded.

    Returns:
        (height, width, 3) uint8, C-contiguous, owning its memory.

    Raises:
        ImageError: over the limit (said before anything is decoded), damaged, or a kind of image that
            is not supported.
        PackError: libturbojpeg is missing.
    """
    if probe.width * probe.height > max_pixels:
        raise ImageError(
            f"{probe.width}x{probe.height} is {probe.width * probe.height} pixels, over the limit of {max_pixels}"
        )
    if probe.format == "jpeg":
        rgb = _jpeg_rgb(data)
    elif probe.format == "tiff":
        rgb = decode_tiff_rgb(data)
    elif probe.format == "png":
        rgb = decode_png_rgb(data)
    elif probe.format == "bmp":
        rgb = decode_bmp_rgb(data)
    else:
        rgb = _bgr_to_rgb(decode_bgr(data))
    height, width = rgb.shape[:2]
    if (width, height) != (probe.width, probe.height):
        raise ImageError(
            f"damaged {probe.format.upper()}: decoded to {width}x{height}, its header says {probe.width}x{probe.height}"
        )
    return np.ascontiguousarray(rgb)


def apply_orientation(image: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn and mirror a picture upright (CIPA DC-008, tag Orientation).

    Args:
        image: (height, width, channels) or (height, width).
        orientation: 1..8.

    Returns:
        The same object for 1; else a C-contiguous copy, its sides swapped for 5..8.

    Raises:
        ConfigError: the orientation is not 1..8.
    """
    if not 1 <= orientation <= 8:
        raise ConfigError(f"orientation must be 1..8, got {orientation}")
    if orientation == 1:
        return image
    turned = image.swapaxes(0, 1) if orientation >= 5 else image
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    return np.ascontiguousarray(turned)


def shrink(image_rgb: NDArray[np.uint8], max_size: int) -> NDArray[np.uint8]:
    """Scale a picture down so that its longest side is at most ``max_size``, by area averaging.

    Args:
        image_rgb: (height, width, 3) uint8.
        max_size: pixels, at least 1.

    Returns:
        The same object if it is small enough already; else a new array with the proportions kept to the
        nearest pixel, each side at least 1.

    Raises:
        ConfigError: max_size is below 1.
    """
    if max_size < 1:
        raise ConfigError(f"max_size must be at least 1 pixel, got {max_size}")
    height, width = image_rgb.shape[:2]
    longest = max(height, width)
    if longest <= max_size:
        return image_rgb
    # Round half up in whole numbers: the same on every machine.
    new_width = max(1, (2 * width * max_size + longest) // (2 * longest))
    new_height = max(1, (2 * height * max_size + longest) // (2 * longest))
    quiet_cv2()
    small = cv2.resize(image_rgb, (new_width, new_height), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8)


def _jpeg_rgb(data: bytes) -> NDArray[np.uint8]:
    try:
        pixels = decode_jpeg(data, allow_stray_bytes=True)
    except UnnamedSamplingError:
        # OpenCV brings a libjpeg-turbo of its own, with the same DCT and upsampling, that takes them all.
        # It lets damaged data pass; that such files are whole rests on the native validation alone.
        return _bgr_to_rgb(decode_bgr(data))
    return _cmyk_to_rgb(pixels) if pixels.shape[2] == 4 else pixels


def _bgr_to_rgb(bgr: NDArray[np.uint8]) -> NDArray[np.uint8]:
    cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr)
    return bgr


def _cmyk_to_rgb(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert a CMYK picture as stored in a JPEG (255 is no ink) exactly as Pillow does.

    Pillow takes every four-channel JPEG for inverted, with an Adobe marker or without
    (JpegImagePlugin.py, "assume adobe conventions"). Its Convert.c then computes
    (255 - K) - round(C * (255 - K) / 255), which in stored numbers is k - round((255 - c) * k / 255).
    """
    rgb = np.empty((*stored.shape[:2], 3), np.uint8)
    for top in range(0, stored.shape[0], _ROWS_AT_ONCE):
        rows = stored[top : top + _ROWS_AT_ONCE]
        k = rows[:, :, 3:].astype(np.uint16)
        product = (255 - rows[:, :, :3]) * k + np.uint16(128)  # at most 255 * 255 + 128: fits in 16 bits
        rgb[top : top + _ROWS_AT_ONCE] = k - ((product + (product >> 8)) >> 8)
    return rgb
