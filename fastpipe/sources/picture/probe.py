"""The bytes of a picture -> its format, channels and bits, by content and never by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastpipe.dataset.format.pixel_form import PixelForm
from fastpipe.dataset.format.sample_layout import picture_ending
from fastpipe.dataset.format.tiled_file import tiled_form
from fastpipe.errors import ImageError
from fastpipe.native import _engine
from fastpipe.sources.jpeg_segments import read_header

# The format of a picture that `fastpipe pack --storage coefficients` wrote.
COEFFICIENTS = "KEY.fpc"
_SUPPORTED = (
    "JPEG",
    "PNG",
    "WebP",
    "TIFF",
    "BMP",
    "GIF",
    "AVIF",
    "JPEG 2000",
    "PPM",
    "TGA",
    "ICO",
    "HEIC",
)
EXPECTED = f"expected {', '.join(_SUPPORTED[:-1])} or {_SUPPORTED[-1]}"

# The start of a file, and its format. The first that matches counts.
_SIGNATURES = (
    (rb"\xff\xd8(\xff|$)", "JPEG"),
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"FPC[\x01-\x1f]", COEFFICIENTS),  # the last byte is the version
    (rb"RIFF....WEBP", "WebP"),
    (rb"II\*\0....CR\x02\0", "Canon raw (CR2)"),
    (rb"II[*+]\0|MM\0[*+]", "TIFF"),
    # Two letters are a weak signature, so the size of the header has to be possible, too.
    (rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", "BMP"),
    (rb"GIF8[79]a", "GIF"),
    (rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51", "JPEG 2000"),
    (rb"P[1-6][\t-\r ]", "PPM"),
    (rb"\0\0\x01\0", "ICO"),
    (rb"\0\0\0\x0cJXL \r\n\x87\n|\xff\x0a", "JPEG XL"),
    (rb"8BPS", "PSD (Photoshop)"),
    (rb"II\xbc\x01", "JPEG XR"),
    (rb"\x76\x2f\x31\x01", "OpenEXR"),
    (rb"DDS ", "DDS"),
    (rb"qoif", "QOI"),
    (rb"icns", "ICNS"),
    (rb"SIMPLE  =", "FITS"),
    (rb"P[Ff]\n", "PFM"),
    (rb"%PDF-", "PDF"),
    (rb"%!PS|\xc5\xd0\xd3\xc6", "PostScript"),
    (rb"(\xef\xbb\xbf)?\s*<(.{0,1000}<)?svg", "SVG"),
    # TGA has no signature. Its colour map, kind of picture, width, height and bits per pixel have
    # to be possible.
    (
        rb".[\0\x01][\x01-\x03\x09-\x0b].{9}(?!\0\0)..(?!\0\0)..[\x01\x08\x0f\x10\x18\x20]",
        "TGA",
    ),
)
# Brands of ISO base media files (ISO/IEC 14496-12, 4.3).
_BRANDS = {
    b"avif": "AVIF",
    b"avis": "AVIF",
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"heim": "HEIC",
    b"heis": "HEIC",
    b"hevc": "HEIC",
    b"hevx": "HEIC",
    b"hevm": "HEIC",
    b"hevs": "HEIC",
    b"crx ": "Canon raw (CR3)",
}
_CHANNELS_OF_COLOR_TYPE = {0: 1, 2: 3, 3: 3, 4: 4, 6: 4}  # W3C PNG, 11.2.1
_COMPONENTS_OFFSET = 20  # in a KEY.fpc: docs/explanation/format.md


def image_format(data: bytes) -> str:
    """The name of an image file's format.

    Raises:
        ImageError: it is none of EXPECTED, and no COEFFICIENTS.
    """
    if not data:
        raise ImageError("empty file")
    name: str | None
    if data[4:8] == b"ftyp":
        name = _iso_media_format(data)
    else:
        name = _format_by_signature(data)
    if name is None:
        raise ImageError(
            f"not an image of a known format: starts with {data[:16]!r}; {EXPECTED}"
        )
    if name not in _SUPPORTED and name != COEFFICIENTS:
        raise ImageError(f"{name} is not supported; {EXPECTED}")
    return name


def _format_by_signature(data: bytes) -> str | None:
    for signature, name in _SIGNATURES:
        if re.match(signature, data, re.DOTALL):
            return name
    return None


def _iso_media_format(data: bytes) -> str:
    """The format by the first brand that names one: "mif1" and "msf1" name no coding."""
    end = min(int.from_bytes(data[:4], "big"), 256)
    # The major brand, a version, which is no brand, and the compatible brands; 4 bytes each.
    brands = data[8 : max(end, 12)]
    for offset in range(0, len(brands), 4):
        name = _BRANDS.get(brands[offset : offset + 4])
        if name is not None:
            return name
    return f"ISO media file (brand {data[8:12]!r})"


def read_form(picture: bytes) -> PixelForm:
    """The form of a JPEG, KEY.fpc, PNG or KEY.tif whose size could be read.

    Raises:
        ImageError: a JPEG ends before its picture data.
    """
    ending = picture_ending(picture)
    if ending == "fpc":
        return PixelForm(picture[_COMPONENTS_OFFSET])
    if ending == "tif":
        return tiled_form(picture)
    if ending == "jpg":
        return PixelForm(read_header(picture).components)
    # A PNG has alpha by its colour type, or by a chunk tRNS between IHDR and the picture.
    channels = _CHANNELS_OF_COLOR_TYPE[picture[25]]
    offset = 33  # behind IHDR
    while True:
        chunk = picture[offset + 4 : offset + 8]
        if chunk == b"tRNS":
            channels = 4
        if chunk in (b"tRNS", b"IDAT", b""):
            return PixelForm(channels, max(picture[24], 8))
        length = int.from_bytes(picture[offset : offset + 4], "big")
        offset += 12 + length


P = ParamSpec("P")
R = TypeVar("R")


def native(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Calls a function of the engine that reads a picture.

    Raises:
        ImageError: it refuses the picture.
        MemoryError: there is not enough memory for the picture.
    """
    try:
        return function(*args, **options)
    except _engine.StatusError as problem:
        if problem.code == _engine.Code.out_of_memory:
            raise MemoryError(str(problem)) from problem
        raise ImageError(str(problem)) from problem


def engine_code(problem: ImageError) -> _engine.Code | None:
    """The code with which the engine refused a picture; None if not the engine refused it."""
    cause = problem.__cause__  # from `native`
    if not isinstance(cause, _engine.StatusError):
        return None
    return cause.code
