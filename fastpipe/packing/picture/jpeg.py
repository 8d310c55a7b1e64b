"""Pixels -> a baseline JPEG, by libjpeg-turbo (PyTurboJPEG): a wheel's own, else the system's; and its version."""

from __future__ import annotations

import functools
import threading
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import turbojpeg
import xxhash
from numpy.typing import NDArray
from turbojpeg import TurboJPEG

from fastpipe.errors import ConfigError, ImageError, PackError
from fastpipe.native import _engine

# `scripts/build_wheel.py` puts it there; a build from source has none. Its soname is its own, so that it neither takes
# the place of a libturbojpeg that something else in the process has loaded, nor is taken for that.
BUNDLED = Path(__file__).resolve().parents[2] / "_lib" / "libturbojpeg-fastpipe.so.0"

Codec = TypeVar("Codec", bound=TurboJPEG)


def open_turbojpeg(codec: type[Codec] = TurboJPEG) -> Codec:
    """Load libturbojpeg and make a codec of it.

    Returns:
        The codec; its library is BUNDLED where that exists, else the one that the system finds.

    Raises:
        PackError: there is none, or it cannot be loaded.
    """
    bundled = BUNDLED.exists()
    try:
        opened: Codec = codec(str(BUNDLED) if bundled else None)
    except (RuntimeError, OSError, AttributeError, KeyError) as error:
        if bundled:
            raise PackError(
                f"expected the libturbojpeg that came with fastpipe at {BUNDLED}, which cannot be loaded; "
                f"install fastpipe again, with pip's --force-reinstall: {error}"
            ) from error
        raise PackError(
            "libturbojpeg is missing or cannot be loaded; install it with "
            "apt install libturbojpeg0 (Debian), apt install libturbojpeg (Ubuntu) "
            f"or brew install jpeg-turbo (Homebrew): {error}"
        ) from error
    return opened


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


def versions(*, masks: bool = False) -> dict[str, str]:
    """By library: the engine's libjpeg-turbo transcodes, Pillow decodes, OpenCV shrinks, libturbojpeg encodes.

    Args:
        masks: also libdeflate, which compresses them.
    """
    return {**_versions(), "libdeflate": _engine.LIBDEFLATE_VERSION} if masks else _versions()


@functools.cache
def _versions() -> dict[str, str]:
    found = {"engine": _engine.LIBJPEG_TURBO_VERSION, "libturbojpeg": _encoder()}
    for name in ("pillow", "pillow-heif", "opencv-python-headless"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _encoder() -> str:
    """The hash of what libturbojpeg makes of a fixed picture, for it tells no version."""
    picture = np.random.RandomState(0).randint(0, 256, (40, 40, 3)).astype(np.uint8)
    try:
        encoded = encode_jpeg(picture, quality=95, subsampling="444") + encode_jpeg(
            picture, quality=90, subsampling="420"
        )
    except PackError:  # JPEGs can be packed without it
        return "missing"
    return xxhash.xxh3_64_hexdigest(encoded)
