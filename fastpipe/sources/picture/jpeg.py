"""Pixels -> pixels turned, or scaled down by OpenCV, or a JPEG by libjpeg-turbo."""

from __future__ import annotations

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

from fastpipe.arrays import Uint8s
from fastpipe.distribution import REINSTALL
from fastpipe.errors import ImageError, PackError
from fastpipe.native import _engine
from fastpipe.pages import name_page

# `scripts/build_wheel.py` puts the library there; a build from source has none. It has a soname of
# its own, so that the process may have loaded another libturbojpeg.
BUNDLED = Path(__file__).resolve().parents[2] / "_lib" / "libturbojpeg-fastpipe.so.0"
# libjpeg's limit. The format's is 65,535.
MAX_SIDE = 65500
# The EXIF orientations (CIPA DC-008) for which each step is needed to turn an image upright. First
# rows and columns change places, then the rows are reversed, then the columns.
SWAPPED = (5, 6, 7, 8)
DOWN = (3, 4, 7, 8)
ACROSS = (2, 3, 6, 7)
_SAMPLINGS = {
    "444": turbojpeg.TJSAMP_444,
    "422": turbojpeg.TJSAMP_422,
    "420": turbojpeg.TJSAMP_420,
    "gray": turbojpeg.TJSAMP_GRAY,
}


def open_turbojpeg() -> TurboJPEG:
    """Loads libturbojpeg: the one at BUNDLED where that exists, else the system's.

    Raises:
        PackError: it cannot be loaded.
    """
    if BUNDLED.exists():
        path = str(BUNDLED)
        name = f"libturbojpeg, which came with fastpipe at {BUNDLED},"
        remedy = f"install fastpipe again: {REINSTALL}"
    else:
        path = None
        name = "libturbojpeg"
        remedy = (
            "install it with apt install libturbojpeg0 (Debian), apt install libturbojpeg (Ubuntu) "
            "or brew install jpeg-turbo (Homebrew)"
        )
    try:
        return TurboJPEG(path)
    except (RuntimeError, OSError, AttributeError, KeyError) as error:
        raise PackError(
            f"{name} is missing or cannot be loaded; {remedy}: {error}"
        ) from error


# All threads share it, which is safe because each call makes a handle of its own.
_shared_turbojpeg = functools.cache(open_turbojpeg)


def encode_jpeg(rgb: Uint8s, *, quality: int, sampling: str) -> bytes:
    """Encodes a JPEG; the same pixels give the same bytes.

    Args:
        rgb: (height, width, 3) uint8.
        quality: 1..100.
        sampling: of the colours: "444", "422", "420", or "gray" for none.

    Raises:
        ImageError: libjpeg-turbo refuses the pixels.
    """
    try:
        encoded: bytes = _shared_turbojpeg().encode(
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


def turn_upright(image: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turns an image upright.

    Args:
        image: (height, width, ...).
        orientation: of EXIF, 1..8.

    Returns:
        The same object for 1, else a C-contiguous array.
    """
    if orientation == 1:
        return image
    if orientation in SWAPPED:
        image = image.swapaxes(0, 1)
    if orientation in DOWN:
        image = image[::-1]
    if orientation in ACROSS:
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def shrink(samples: NDArray[Any], max_size: int) -> NDArray[Any]:
    """Scales (height, width, 1..4) uint8 or uint16 down by area averaging.

    The longest side becomes `max_size` pixels.
    """
    height, width, channels = samples.shape
    longest: int = max(height, width)

    def scale(side: int) -> int:
        # Rounds half up in whole numbers: the same on every machine.
        scaled = (2 * side * max_size + longest) // (2 * longest)
        return max(1, scaled)

    cv2 = import_opencv()
    size = (scale(width), scale(height))
    small: NDArray[Any] = cv2.resize(samples, size, interpolation=cv2.INTER_AREA)
    # OpenCV drops the axis of a single channel.
    return small.reshape(size[1], size[0], channels)


@functools.cache
def import_opencv() -> Any:
    """Imports OpenCV.

    Raises:
        PackError: it cannot be imported.
    """
    try:
        import cv2
    except ImportError as missing:
        raise PackError(
            "OpenCV makes this image smaller or converts it, and cannot be imported "
            f"({missing}); install it: pip install opencv-python-headless. It has no wheel for the "
            f"free-threaded Python; see {name_page('install')}"
        ) from missing
    # Packing runs a thread on each core already. With 0, OpenCV uses only the calling thread.
    cv2.setNumThreads(0)
    # A damaged file is an error of ours, and OpenCV need not write about it to stderr as well.
    cv2.utils.logging.setLogLevel(0)
    return cv2


@functools.cache
def made_with() -> dict[str, str]:
    """The versions of the libraries that decide bytes, by name."""
    versions = {
        "engine": _engine.LIBJPEG_TURBO_VERSION,
        "libturbojpeg": _hash_of_encoder(),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    for name in ("pillow", "pillow-heif", "opencv-python-headless"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def _hash_of_encoder() -> str:
    """A hash of JPEGs that libturbojpeg makes, since the library does not say its version."""
    generator = np.random.RandomState(0)
    pixels = generator.randint(0, 256, (40, 40, 3)).astype(np.uint8)
    try:
        encoded = encode_jpeg(pixels, quality=95, sampling="444")
        encoded += encode_jpeg(pixels, quality=90, sampling="420")
    except PackError:
        return "missing"  # a source of JPEGs can be packed without the library
    return xxhash.xxh3_64_hexdigest(encoded)
