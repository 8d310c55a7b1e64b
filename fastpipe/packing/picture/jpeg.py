"""Turns a JPEG into pixels and pixels into a baseline JPEG, through libjpeg-turbo (PyTurboJPEG)."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import turbojpeg
from numpy.typing import NDArray

from fastpipe.errors import ConfigError, ImageError
from fastpipe.packing.picture.turbo_library import open_turbojpeg

__all__ = ["SUBSAMPLINGS", "UnnamedSamplingError", "decode_jpeg", "encode_jpeg"]

SUBSAMPLINGS = {
    "444": turbojpeg.TJSAMP_444,
    "422": turbojpeg.TJSAMP_422,
    "420": turbojpeg.TJSAMP_420,
    "440": turbojpeg.TJSAMP_440,
    "411": turbojpeg.TJSAMP_411,
    "gray": turbojpeg.TJSAMP_GRAY,
}
_MAX_SIDE = 65500  # JPEG_MAX_DIMENSION of libjpeg
# What the native validation lets pass because no pixel is lost (csrc/jpeg/jpeg_errors.cc, `harmless`): unknown
# versions, and stray bytes, except those that made the decoder look for its place again (RST0..7).
_HARMLESS = re.compile(
    r"extraneous bytes before marker 0x(?!d[0-7])|Unknown Adobe color transform|unknown JFIF revision"
)
_per_thread = threading.local()


class UnnamedSamplingError(ImageError):
    """The JPEG's chroma subsampling is legal but has no name in TurboJPEG, which then refuses the file."""


class _StrictTurboJPEG(turbojpeg.TurboJPEG):  # type: ignore[misc]
    """PyTurboJPEG with every complaint of the library as an exception.

    As it comes, "corrupt data" is a Python warning and the damaged picture is returned. Python's warning
    filters are shared by all threads, so they cannot be used to catch it; the one method that sorts
    the complaints is replaced instead. A test fails if a PyTurboJPEG renames it.
    """

    allow_stray_bytes = False

    def _TurboJPEG__report_error(self, handle: int) -> None:  # noqa: N802 (the library's own name)
        reason: str = self._TurboJPEG__get_error_string(handle)
        if self.allow_stray_bytes and _HARMLESS.search(reason):
            return
        if "subsampling type" in reason:
            raise UnnamedSamplingError("JPEG has an unusual chroma subsampling")
        raise ImageError(f"libjpeg-turbo: {reason}")


def _turbo() -> Any:
    """This thread's TurboJPEG, made at its first use."""
    found = getattr(_per_thread, "turbo", None)
    if found is None:
        found = open_turbojpeg(_StrictTurboJPEG)
        _per_thread.turbo = found
    return found


def decode_jpeg(data: bytes, *, allow_stray_bytes: bool) -> NDArray[np.uint8]:
    """Decode a JPEG in full: accurate DCT, smooth chroma upsampling, as libjpeg-turbo does by default.

    The GIL is released while the library works. Any warning of the library (damaged or missing data)
    is an error here, as a second guard: callers have validated the JPEG natively before.

    Args:
        data: the whole file; gray, YCbCr, RGB, CMYK or YCCK.
        allow_stray_bytes: let the warnings pass that the native validation lets pass. The library tells
            only its first warning, so this is for files that it has validated.

    Returns:
        (height, width, 3) uint8 RGB; of a CMYK or YCCK file (height, width, 4) uint8 as stored
        by Adobe, that is 255 means no ink.

    Raises:
        ImageError: the data are damaged or of a kind that libjpeg-turbo does not decode.
        PackError: libturbojpeg is missing.
    """
    turbo = _turbo()
    turbo.allow_stray_bytes = allow_stray_bytes
    _, _, _, colors = turbo.decode_header(data)
    four = colors in (turbojpeg.TJCS_CMYK, turbojpeg.TJCS_YCCK)
    pixels: NDArray[np.uint8] = turbo.decode(
        data,
        pixel_format=turbojpeg.TJPF_CMYK if four else turbojpeg.TJPF_RGB,
        flags=turbojpeg.TJFLAG_ACCURATEDCT,
    )
    return pixels


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
    if max(height, width) > _MAX_SIDE:
        raise ImageError(
            f"{width}x{height} pixels do not fit in a JPEG (at most {_MAX_SIDE} a side); pack with a maximum size"
        )
    encoded: bytes = _turbo().encode(
        image_rgb,
        quality=quality,
        pixel_format=turbojpeg.TJPF_RGB,
        jpeg_subsample=SUBSAMPLINGS[subsampling],
        # Below quality 96 TurboJPEG would take the fast, less accurate DCT.
        flags=turbojpeg.TJFLAG_ACCURATEDCT,
    )
    return encoded
