"""Pixels -> turned, scaled down by OpenCV, a JPEG by libjpeg-turbo; and the versions of libraries that decide bytes."""

from __future__ import annotations

import contextlib
import functools
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import turbojpeg
import xxhash
from numpy.typing import NDArray
from turbojpeg import TurboJPEG

from fastpipe.errors import ImageError, PackError
from fastpipe.native import _engine

# `scripts/build_wheel.py` puts it there; a build from source has none. Its soname is its own, so that it neither takes
# the place of a libturbojpeg that something else in the process has loaded, nor is taken for that.
BUNDLED = Path(__file__).resolve().parents[2] / "_lib" / "libturbojpeg-fastpipe.so.0"
MAX_SIDE = 65500  # libjpeg's limit; the format's own is 65,535
# EXIF orientations (CIPA DC-008): sides change places first, then rows run backwards, then columns do.
SWAPPED, DOWN, ACROSS = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)
_SAMPLINGS = {
    name: getattr(turbojpeg, f"TJSAMP_{name.upper()}") for name in ("444", "422", "420", "gray")
}
_PACKAGES = (
    "install it with apt install libturbojpeg0 (Debian), apt install libturbojpeg (Ubuntu) or brew install jpeg-turbo "
    "(Homebrew)"
)


def open_turbojpeg() -> TurboJPEG:
    """A codec with the libturbojpeg at BUNDLED where that exists, else with the system's. PackError: none loads."""
    bundled = BUNDLED.exists()
    try:
        return TurboJPEG(str(BUNDLED) if bundled else None)
    except (RuntimeError, OSError, AttributeError, KeyError) as error:
        where = (
            f"libturbojpeg, which came with fastpipe at {BUNDLED}," if bundled else "libturbojpeg"
        )
        remedy = "install fastpipe again, with pip's --force-reinstall" if bundled else _PACKAGES
        raise PackError(f"{where} is missing or cannot be loaded; {remedy}: {error}") from error


_turbo = functools.cache(open_turbojpeg)  # of all threads: it makes a handle for each call


def encode_jpeg(rgb: NDArray[np.uint8], *, quality: int, sampling: str) -> bytes:
    """(height, width, 3) uint8 -> a JPEG; the same pixels, the same bytes. Sampling is a key of _SAMPLINGS."""
    try:
        encoded: bytes = _turbo().encode(
            rgb,
            quality=quality,
            pixel_format=turbojpeg.TJPF_RGB,
            jpeg_subsample=_SAMPLINGS[sampling],
            # Below quality 96 TurboJPEG would take the fast, less accurate DCT.
            flags=turbojpeg.TJFLAG_ACCURATEDCT,
        )
    except OSError as problem:
        raise ImageError(
            f"libjpeg-turbo cannot encode {rgb.shape[1]}x{rgb.shape[0]} pixels: {problem}"
        ) from problem
    return encoded


def apply_orientation(image: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turns (height, width, ...) upright by its EXIF orientation, 1..8; the same object for 1, else C-contiguous."""
    if orientation == 1:
        return image
    turned = image.swapaxes(0, 1) if orientation in SWAPPED else image
    turned = turned[:: -1 if orientation in DOWN else 1, :: -1 if orientation in ACROSS else 1]
    return np.ascontiguousarray(turned)


def shrink(samples: NDArray[Any], max_size: int) -> NDArray[Any]:
    """(height, width, 1..4) uint8 or uint16 -> its longest side `max_size` pixels, by area averaging."""
    height, width, channels = samples.shape
    longest = max(height, width)
    # Round half up in whole numbers: the same on every machine.
    size = [max(1, (2 * side * max_size + longest) // (2 * longest)) for side in (width, height)]
    small: NDArray[Any] = opencv().resize(samples, size, interpolation=opencv().INTER_AREA)
    return small.reshape(*size[::-1], channels)


@functools.cache
def opencv() -> Any:
    """OpenCV, which uses only the calling thread (0), for packing runs one a core, and writes nothing to stderr."""
    try:
        import cv2
    except ImportError as missing:
        raise PackError(
            f"OpenCV makes this picture smaller or converts it, and cannot be imported ({missing}); install it: pip "
            "install opencv-python-headless. For the free-threaded Python, which it has no wheel for, see "
            "docs/install.md"
        ) from missing
    cv2.setNumThreads(0)
    cv2.utils.logging.setLogLevel(0)
    return cv2


@functools.cache
def made_with() -> dict[str, str]:
    """The versions of the libraries that decide bytes, by name."""
    found = {
        "engine": _engine.LIBJPEG_TURBO_VERSION,
        "libturbojpeg": "missing",
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    with contextlib.suppress(
        PackError
    ):  # JPEGs can be packed without it. It tells no version: so what it makes does
        picture = np.random.RandomState(0).randint(0, 256, (40, 40, 3)).astype(np.uint8)
        encoded = (
            encode_jpeg(picture, quality=at, sampling=how) for at, how in ((95, "444"), (90, "420"))
        )
        found["libturbojpeg"] = xxhash.xxh3_64_hexdigest(b"".join(encoded))
    for name in ("pillow", "pillow-heif", "opencv-python-headless"):
        found[name] = "missing"
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
