"""The bytes of a picture -> its format, channels and bits. Formats are told by content, never by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastpipe.errors import ImageError
from fastpipe.format.pixel_form import PixelForm
from fastpipe.format.sample_layout import picture_ending
from fastpipe.native import _engine
from fastpipe.sources.picture.jpeg_segments import read_header

COEFFICIENTS = "KEY.fpc"  # of a dataset of ours
_READ = (
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
    COEFFICIENTS,
)
EXPECTED = f"expected {', '.join(_READ[:-2])} or {_READ[-2]}"

# What a file begins with, and the name; the first that fits counts.
_SIGNATURES = (
    (rb"\xff\xd8(\xff|$)", "JPEG"),
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"FPC[\x01-\x1f]", COEFFICIENTS),  # the last is the version
    (rb"RIFF....WEBP", "WebP"),
    (rb"II\*\0....CR\x02\0", "Canon raw (CR2)"),
    (rb"II[*+]\0|MM\0[*+]", "TIFF"),
    (
        rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0",
        "BMP",
    ),  # two letters are weak: so the header's size is asked too
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
    # TGA has no signature; colour map or not, kind of picture, bits a pixel are what they can be, and it has a size.
    (rb".[\0\x01][\x01-\x03\x09-\x0b].{9}(?!\0\0)..(?!\0\0)..[\x01\x08\x0f\x10\x18\x20]", "TGA"),
)
# Brands of an ISO base media file (ISO/IEC 14496-12, 4.3).
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys(
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "HEIC"
    ),
    b"crx ": "Canon raw (CR3)",
}
_COLOR_TYPES = {0: 1, 2: 3, 3: 3, 4: 4, 6: 4}  # W3C PNG, 11.2.1 -> channels
_COMPONENTS = 20  # the byte of a KEY.fpc: docs/format.md


def image_format(data: bytes) -> str:
    """The name of an image file's format, told by its content. ImageError: it is none of EXPECTED and COEFFICIENTS."""
    if not data:
        raise ImageError("empty file")
    name = next(
        (known for signature, known in _SIGNATURES if re.match(signature, data, re.DOTALL)), None
    )
    if (
        data[4:8] == b"ftyp"
    ):  # mif1 and msf1 leave open how the picture is coded: the first brand that says it counts
        brands = data[8 : max(12, min(int.from_bytes(data[:4], "big"), 256))]
        found = (_BRANDS.get(brands[at : at + 4]) for at in range(0, len(brands), 4))
        name = next(filter(None, found), f"ISO media file (brand {data[8:12]!r})")
    if name is None:
        raise ImageError(f"not an image of a known format: starts with {data[:16]!r}; {EXPECTED}")
    if name not in _READ:
        raise ImageError(f"{name} is not supported; {EXPECTED}")
    return name


def form_of(picture: bytes) -> PixelForm:
    """The form of a JPEG, KEY.fpc or PNG whose size could be read. ImageError: a JPEG ends before its picture data."""
    ending = picture_ending(picture)
    if ending == "fpc":
        return PixelForm(picture[_COMPONENTS])
    if ending == "jpg":
        return PixelForm(read_header(picture).components)
    at = 33  # behind IHDR
    while (kind := picture[at + 4 : at + 8]) not in (b"tRNS", b"IDAT", b""):
        at += 12 + int.from_bytes(picture[at : at + 4], "big")
    return PixelForm(4 if kind == b"tRNS" else _COLOR_TYPES[picture[25]], max(picture[24], 8))


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def native(call: Callable[_Given, _Found], *args: _Given.args, **options: _Given.kwargs) -> _Found:
    """Calls the extension. ImageError: it refuses the picture; MemoryError: there is not enough memory for it."""
    try:
        return call(*args, **options)
    except _engine.StatusError as problem:
        if problem.code == _engine.Code.out_of_memory:
            raise MemoryError(str(problem)) from problem
        raise ImageError(str(problem)) from problem


def code_of(problem: ImageError) -> _engine.Code | None:
    """The code with which the engine refused a picture; None: another refused it."""
    refusal = problem.__cause__
    return refusal.code if isinstance(refusal, _engine.StatusError) else None
