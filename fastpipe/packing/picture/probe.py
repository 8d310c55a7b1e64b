"""The first bytes of a file -> its image format. Formats are told by content, never by name."""

from __future__ import annotations

import re

from fastpipe.errors import ImageError

COEFFICIENTS = "KEY.fpc"  # of a dataset of ours
_READ = ("JPEG", "PNG", "WebP", "TIFF", "BMP", "GIF", "AVIF", "JPEG 2000", "PPM", "TGA", "ICO", "HEIC", COEFFICIENTS)
EXPECTED = f"expected {', '.join(_READ[:-2])} or {_READ[-2]}"

# What a file begins with, and the name; the first that fits counts.
_SIGNATURES = (
    (rb"\xff\xd8(\xff|$)", "JPEG"),
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"FPC[\x01-\x1f]", COEFFICIENTS),  # the last is the version
    (rb"RIFF....WEBP", "WebP"),
    (rb"II\*\0....CR\x02\0", "Canon raw (CR2)"),
    (rb"II[*+]\0|MM\0[*+]", "TIFF"),
    (rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", "BMP"),  # two letters are weak: so the header's size is asked too
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
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "HEIC"),
    b"crx ": "Canon raw (CR3)",
}


def image_format(data: bytes) -> str:
    """The name of an image file's format, told by its content: one of those in EXPECTED, or COEFFICIENTS.

    Raises:
        ImageError: the file is empty, not an image, or of a format that is not supported.
    """
    if not data:
        raise ImageError("empty file")
    if data[4:8] == b"ftyp":
        name: str | None = _iso_media(data)
    else:
        name = next((known for signature, known in _SIGNATURES if re.match(signature, data, re.DOTALL)), None)
    if name is None:
        raise ImageError(f"not an image of a known format: starts with {data[:16]!r}; {EXPECTED}")
    if name not in _READ:
        raise ImageError(f"{name} is not supported; {EXPECTED}")
    return name


def _iso_media(data: bytes) -> str:
    # mif1 and msf1 leave open how the picture is coded, so the first brand that says it counts.
    brands = data[8 : max(12, min(int.from_bytes(data[:4], "big"), 256))]
    found = (_BRANDS.get(brands[at : at + 4]) for at in range(0, len(brands), 4))
    return next(filter(None, found), f"ISO media file (brand {data[8:12]!r})")
