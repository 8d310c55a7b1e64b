"""Turns pixels into a baseline JPEG, through libjpeg-turbo (PyTurboJPEG)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import turbojpeg
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, ImageError
from fastpipe.packing.picture.turbo_library import open_turbojpeg

__all__ = ["MAX_SIDE", "SUBSAMPLINGS", "encode_jpeg"]

SUBSAMPLINGS = {
    "444": turbojpeg.TJSAMP_444,
    "422": turbojpeg.TJSAMP_422,
    "420": turbojpeg.TJSAMP_420,
    "440": turbojpeg.TJSAMP_440,
    "411": turbojpeg.TJSAMP_411,
    "gray": turbojpeg.TJSAMP_GRAY,
}
MAX_SIDE = 65500  # libjpeg's limit; the format's own is 65,535
_per_thread = threading.local()


def _turbo() -> Any:
    """This thread's TurboJPEG, made at its first use."""
    found = getattr(_per_thread, "turbo", None)
    if found is None:
        found = open_turbojpeg()
        _per_thread.turbo = found
    return found


def encode_jpeg(image_rgb: NDArray[np.uint8], *, quality: int, subsampling: str) -> bytes:
    """Encode pixels as baseline JPEG; the same pixels always give the same bytes.

    The GIL is released while the library works.

    Args:
        image_rgb: (height, width, 3) uint8 RGB, both sides 1..65500.
        quality: 1..100, libjpeg's scale.
        subsampling: "444", "422", "420", "440", "411" or "gray" (luma only).

    Returns:
        A whole JPEG file without metadata.

    Raises:
        ConfigError: quality, subsampling or the array is not as described.
        ImageError: a side is longer than JPEG allows.
        PackError: libturbojpeg is missing.
    """
    if subsampling not in SUBSAMPLINGS:
        raise ConfigError(f"subsampling must be one of {', '.join(SUBSAMPLINGS)}, got {subsampling!r}")
    if not 1 <= quality <= 100:
        raise ConfigError(f"quality must be 1..100, got {quality}")
    if image_rgb.dtype != np.uint8 or image_rgb.ndim != 3 or image_rgb.shape[2] != 3 or image_rgb.size == 0:
        raise ConfigError(f"image must be (height, width, 3) uint8, got {image_rgb.shape} {image_rgb.dtype}")
    height, width = image_rgb.shape[:2]
    if max(height, width) > MAX_SIDE:
        raise ImageError(
            f"{width}x{height} pixels do not fit in a JPEG (at most {MAX_SIDE} a side); pack with a maximum size"
        )
    try:
        encoded: bytes = _turbo().encode(
            image_rgb,
            quality=quality,
            pixel_format=turbojpeg.TJPF_RGB,
            jpeg_subsample=SUBSAMPLINGS[subsampling],
            # Below quality 96 TurboJPEG would take the fast, less accurate DCT.
            flags=turbojpeg.TJFLAG_ACCURATEDCT,
        )
    except OSError as problem:
        raise ImageError(f"libjpeg-turbo cannot encode {width}x{height} pixels: {problem}") from problem
    return encoded
