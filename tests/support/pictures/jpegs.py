"""JPEGs of all kinds for the tests of the decoder, tiled or not, and what libjpeg-turbo makes of them."""

from __future__ import annotations

import io
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
import turbojpeg
from numpy.typing import NDArray
from PIL import Image

from fastpipe import _engine

Pixels = NDArray[np.uint8]
Region = tuple[int, int, int, int]

DENOMINATORS = (1, 2, 4, 8)
PICTURES = ("noise", "smooth", "flat", "stripes")
WHOLE_ROWS = 10_000  # pixels: a tile that is wider than any picture here
SUBSAMPLINGS = {
    "444": turbojpeg.TJSAMP_444,
    "422": turbojpeg.TJSAMP_422,
    "420": turbojpeg.TJSAMP_420,
    "440": turbojpeg.TJSAMP_440,
    "411": turbojpeg.TJSAMP_411,
    "gray": turbojpeg.TJSAMP_GRAY,
}
_TURBO = turbojpeg.TurboJPEG()
_MCU_WIDTH = {"444": 8, "422": 16, "420": 16, "440": 8, "411": 32, "gray": 8}
_MCU_HEIGHT = {"444": 8, "422": 8, "420": 16, "440": 16, "411": 8, "gray": 8}


def picture(width: int, height: int, kind: str = "noise", seed: int = 0) -> Pixels:
    """(height, width, 3) RGB."""
    rng = np.random.default_rng([seed, width, height])
    if kind == "noise":
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == "smooth":
        coarse = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
        return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    if kind == "flat":
        return np.broadcast_to(rng.integers(0, 256, 3, dtype=np.uint8), (height, width, 3)).copy()
    colours = np.array(
        [[255, 0, 0], [0, 255, 255], [0, 0, 255], [255, 255, 0]], np.uint8
    )  # the farthest apart
    return colours[(np.arange(width) // 3 + np.arange(height)[:, None] // 2) % 4]


def encoded(rgb: Pixels, sampling: str = "420", quality: int = 85) -> bytes:
    """By TurboJPEG: baseline, the standard's Huffman tables, no restart markers."""
    kind = turbojpeg.TJPF_RGB
    if sampling == "gray":
        rgb, kind = np.ascontiguousarray(rgb[:, :, :1]), turbojpeg.TJPF_GRAY
    return bytes(
        _TURBO.encode(
            rgb, quality=quality, pixel_format=kind, jpeg_subsample=SUBSAMPLINGS[sampling]
        )
    )


def noise_jpeg(width: int, height: int, sampling: str, quality: int = 85) -> bytes:
    return encoded(picture(width, height), sampling, quality)


def by_pillow(rgb: Pixels, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "JPEG", **options)
    return file.getvalue()


def by_cjpeg(rgb: Pixels, *options: str) -> bytes:
    """By libjpeg-turbo's own tool, which knows every layout; skips the test where it is absent."""
    tool = shutil.which("cjpeg")
    if tool is None:
        pytest.skip("cjpeg is not installed (Debian: libjpeg-turbo-progs)")
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "PPM")
    return subprocess.run(
        [tool, *options], input=file.getvalue(), capture_output=True, check=True, timeout=300
    ).stdout


def tiled(jpeg: bytes, tile: int) -> bytes:
    """As `pack` stores it, with tiles about `tile` pixels wide even where they make a small file much larger."""
    # The bytes beyond the end are no part of the picture; they count as the source's size, which tiles are weighed by.
    _, info = _engine.transcode(jpeg, check_only=True)
    packed, _ = _engine.transcode(
        jpeg + bytes(4 * (info["width"] + 8) * (info["height"] + 8)), tile=tile
    )
    assert packed is not None
    return packed


def header_segments(jpeg: bytes) -> list[tuple[int, bytes]]:
    """(marker, payload) of the segments up to and with the scan's header."""
    found, at = [], 2
    while not found or found[-1][0] != 0xDA:
        size = int.from_bytes(jpeg[at + 2 : at + 4], "big")
        found.append((jpeg[at + 1], jpeg[at + 4 : at + 2 + size]))
        at += 2 + size
    return found


def scan_start(jpeg: bytes) -> int:
    """Where the entropy-coded bytes begin."""
    return 2 + sum(4 + len(payload) for _, payload in header_segments(jpeg))


def restart_interval(jpeg: bytes) -> int:
    """In MCUs; 0: no restart markers."""
    return next(
        (
            int.from_bytes(payload, "big")
            for marker, payload in header_segments(jpeg)
            if marker == 0xDD
        ),
        0,
    )


def mcu_size(sampling: str) -> tuple[int, int]:
    """Width and height in pixels."""
    return _MCU_WIDTH[sampling], _MCU_HEIGHT[sampling]


def full_decode(jpeg: bytes, denominator: int = 1) -> Pixels:
    """What libjpeg-turbo makes of the whole picture: the reference."""
    decoded: Pixels = _TURBO.decode(
        jpeg, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=(1, denominator)
    )
    return decoded


def has_one_scale(width: int, height: int, denominator: int) -> bool:
    """TurboJPEG takes the largest scale whose result has the wanted size: tiny pictures have several of that size."""
    larger = 8 // denominator + 1  # eighths
    return denominator == 1 or any(
        -(-side * larger // 8) > -(-side // denominator) for side in (width, height)
    )


def crop(image: Pixels, region: Region) -> Pixels:
    x, y, width, height = region
    return image[y : y + height, x : x + width]


def random_region(rng: np.random.Generator, width: int, height: int) -> Region:
    x, y = int(rng.integers(width)), int(rng.integers(height))
    return x, y, int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))
